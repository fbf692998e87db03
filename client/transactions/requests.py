"""The requests of a transaction, one attempt each: receiver, version, and whether the request may have arrived.

The rule: the transaction is notified of a request without a response, since it may arrive late (KAFKA-17754).
Versions: request versions of transactions version 2 (KIP-890) are used only with it; offsets need TxnOffsetCommit 3,
because with older ones the broker cannot reject a replaced member (KIP-447).
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.share_transactions import TxnShareAcknowledgeRequest, TxnShareAcknowledgeResponse
from ...protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnTopic,
)
from ..errors import BrokerUnreachableError, KafkaError, RequestTimedOutError, UnsupportedVersionError, error_of
from ..net.cluster import Cluster
from ..net.connection import Connection
from ..net.coordinators import CoordinatorKind
from ..net.versions import TRANSACTION_FEATURE, too_old
from ..values import ConsumerGroupMetadata, OffsetAndMetadata, ProducerIdentity, TopicPartition
from .machine import ClientTransaction, Described, partitions_by_topic
from .sources import SharedRanges

Codes = Mapping[str, int]
"""The error code of each thing that was asked for, by its name in an error."""

PRODUCE_V1 = 11
"""The highest version of Produce for transactions version 1."""

_END_V1, _OFFSETS_V1, _ADD = 4, 4, 3  # highest EndTxn, TxnOffsetCommit, AddPartitionsToTxn of transactions version 1
_INIT_RENEWS = 3  # KIP-360
_MEMBER_SINCE = 3  # KIP-447
_END_V2 = 5
_DURATION_SINCE = 1  # of ListTransactions: duration_filter


class TransactionRequests:
    """Sends the requests of one ClientTransaction.

    seen_version: the coordinator's current version of transactions; the next transaction uses it.
    """

    def __init__(self, cluster: Cluster, machine: ClientTransaction, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._machine = machine
        self._timeout_ms = request_timeout_ms
        self.seen_version = 1

    async def _coordinator(self) -> Connection:
        """Return a connection to the transaction coordinator, and note which versions of transactions and of
        InitProducerId it has.
        """
        connection = await self._cluster.coordinator("transaction", self._machine.transactional_id)
        modern = connection.features.get(TRANSACTION_FEATURE, 0) >= 2 and connection.knows(EndTxnRequest, _END_V2)
        self.seen_version = 2 if modern else 1
        self._machine.can_renew = connection.knows(InitProducerIdRequest, _INIT_RENEWS)
        return connection

    async def _answer(
        self, connection: Connection, request: object, cap: int | None, target: tuple[CoordinatorKind, str]
    ) -> Any:
        """Send a request and return the response. cap: the highest version to use; None: any. Raises like Cluster.ask.
        If cancelled, the request was sent.
        """
        answer = connection.send(request, connection.version_of(type(request), cap), timeout_ms=self._timeout_ms)
        answered = False
        try:
            response = await answer
            answered = True
            return response
        except KafkaError as error:
            answered = not maybe_done(error)
            self._cluster.forget_coordinator(*target)
            raise
        finally:
            if not answered:
                self._machine.unanswered()

    def stale(self, code: int, target: tuple[CoordinatorKind, str]) -> None:
        """If this error code shows that the coordinator has moved, look it up again."""
        self._cluster.stale(code, target)

    @property
    def target(self) -> tuple[CoordinatorKind, str]:
        """Return what Cluster.ask needs to find this transaction's coordinator: its kind and the transactional id."""
        return "transaction", self._machine.transactional_id

    # ---- each request ----------------------------------------------------------------------------------------

    async def init(self, within_ms: float) -> tuple[int, ProducerIdentity]:
        """Send InitProducerId. Returns the error code and the new identity. Raises RequestTimedOutError if there is no
        response within within_ms, including the search for the coordinator.
        """
        try:
            async with asyncio.timeout(within_ms / 1000):
                return await self._init()
        except TimeoutError:
            raise RequestTimedOutError("the transaction coordinator did not answer") from None

    async def _init(self) -> tuple[int, ProducerIdentity]:
        """Send InitProducerId. Returns the error code, and the producer id and epoch of the response."""
        machine = self._machine
        connection = await self._coordinator()
        former = machine.former_identity()
        request = InitProducerIdRequest(
            transactional_id=machine.transactional_id,
            transaction_timeout_ms=machine.timeout_ms,
            producer_id=former.producer_id,
            producer_epoch=former.epoch,
        )
        response = await self._answer(connection, request, None, self.target)
        return response.error_code, ProducerIdentity(response.producer_id, response.producer_epoch)

    async def add_partitions(self, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        """Send AddPartitionsToTxn. Returns the error code of each partition."""
        machine = self._machine
        connection = await self._coordinator()
        topics = [TxnTopic(name=name, partitions=found) for name, found in partitions_by_topic(partitions).items()]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=machine.transactional_id,
            v3_and_below_producer_id=machine.identity.producer_id,
            v3_and_below_producer_epoch=machine.identity.epoch,
            v3_and_below_topics=topics,
        )
        response: AddPartitionsToTxnResponse = await self._answer(connection, request, _ADD, self.target)
        codes = {
            TopicPartition(topic.name, one.partition_index): one.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        }
        return {tp: codes.get(tp, ErrorCode.REQUEST_TIMED_OUT) for tp in partitions}  # left out: as if not answered

    async def add_offsets(self, group_id: str) -> Codes:
        """Send AddOffsetsToTxn for this group. Returns its error code, by the request's name."""
        machine = self._machine
        connection = await self._coordinator()
        request = AddOffsetsToTxnRequest(
            transactional_id=machine.transactional_id,
            producer_id=machine.identity.producer_id,
            producer_epoch=machine.identity.epoch,
            group_id=group_id,
        )
        return {"AddOffsetsToTxn": (await self._answer(connection, request, None, self.target)).error_code}

    async def check_offsets(self, group_id: str) -> Codes:
        """Raise UnsupportedVersionError if the group's coordinator cannot reject offsets of a replaced member
        (KIP-447). Returns no codes.
        """
        connection = await self._cluster.coordinator("group", group_id)
        version = connection.version_of(TxnOffsetCommitRequest)
        if version < _MEMBER_SINCE:
            raise too_old(
                "TxnOffsetCommit", _MEMBER_SINCE, version, "offsets in a transaction", connection.name, "Kafka 2.5"
            )
        return {}

    async def commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> Codes:
        """Send TxnOffsetCommit with these offsets to the group's coordinator. Returns the error code of each
        partition, by its name.
        """
        machine = self._machine
        connection = await self._cluster.coordinator("group", group.group_id)
        topics: dict[str, list[TxnOffsetCommitRequest.Topic.Partition]] = {}
        for (topic, index), at in offsets.items():
            one = TxnOffsetCommitRequest.Topic.Partition(
                partition_index=index,
                committed_offset=at.offset,
                committed_leader_epoch=at.leader_epoch,
                committed_metadata=at.metadata,
            )
            topics.setdefault(topic, []).append(one)
        request = TxnOffsetCommitRequest(
            transactional_id=machine.transactional_id,
            group_id=group.group_id,
            producer_id=machine.identity.producer_id,
            producer_epoch=machine.identity.epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[TxnOffsetCommitRequest.Topic(name=name, partitions=found) for name, found in topics.items()],
        )
        cap = None if machine.version >= 2 else _OFFSETS_V1
        response: TxnOffsetCommitResponse = await self._answer(connection, request, cap, ("group", group.group_id))
        codes = {
            (topic.name, one.partition_index): one.error_code for topic in response.topics for one in topic.partitions
        }
        return {str(tp): codes.get(tp, ErrorCode.REQUEST_TIMED_OUT) for tp in offsets}  # left out: as if not answered

    async def check_acknowledging(self, group_id: str) -> Codes:
        """Raise UnsupportedVersionError if the broker cannot acknowledge share group records inside a transaction.
        Returns no codes.
        """
        connection = await self._cluster.coordinator("group", group_id)
        if not connection.knows(TxnShareAcknowledgeRequest) or self._machine.version < 2:
            raise UnsupportedVersionError(
                f"{connection.name} cannot acknowledge records of a share group inside a transaction",
                hint="only fencepost has this API: this is another broker, such as Apache Kafka, or an older fencepost",
            )
        return {}

    async def acknowledge(self, group_id: str, member_id: str, acks: SharedRanges) -> tuple[int, KafkaError]:
        """Send TxnShareAcknowledge. Returns an error code and the KafkaError for it: of the request as a whole, else of
        the first refused partition. The code is 0 for success.
        """
        machine = self._machine
        connection = await self._cluster.coordinator("group", group_id)
        Topic = TxnShareAcknowledgeRequest.Topic
        topics: dict[bytes, list[TxnShareAcknowledgeRequest.Topic.Partition]] = {}
        for topic_id, partition, ranges in acks:
            one = Topic.Partition(partition_index=partition, acknowledgement_batches=ranges)
            topics.setdefault(topic_id, []).append(one)
        request = TxnShareAcknowledgeRequest(
            transactional_id=machine.transactional_id,
            group_id=group_id,
            producer_id=machine.identity.producer_id,
            producer_epoch=machine.identity.epoch,
            member_id=member_id,
            topics=[Topic(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()],
        )
        response: TxnShareAcknowledgeResponse = await self._answer(connection, request, None, ("group", group_id))
        answers = [(response.error_code, response.error_message)]
        answers += [(one.error_code, one.error_message) for topic in response.topics for one in topic.partitions]
        refused = [each for each in answers if each[0]]
        refused.sort(key=lambda each: each[0] == ErrorCode.OPERATION_NOT_ATTEMPTED)
        code, text = refused[0] if refused else (0, None)
        what = f"acknowledging records of share group {group_id!r}"
        return code, error_of(code, f"{what}: {text or error_of(code)}")

    async def end(self, commit: bool) -> tuple[int, ProducerIdentity]:
        """Send EndTxn. Returns its error code and the next identity, if it has one. If the request may have arrived
        without a response, sets the transaction's maybe_ended.
        """
        machine = self._machine
        connection = await self._coordinator()
        request = EndTxnRequest(
            transactional_id=machine.transactional_id,
            producer_id=machine.identity.producer_id,
            producer_epoch=machine.identity.epoch,
            committed=commit,
        )
        cap = None if machine.version >= 2 else _END_V1
        perhaps = machine.maybe_ended
        machine.maybe_ended = True  # stays so if this call is cancelled
        try:
            response = await self._answer(connection, request, cap, self.target)
        except KafkaError as error:
            machine.maybe_ended = perhaps or maybe_done(error)
            raise
        machine.maybe_ended = perhaps
        return response.error_code, ProducerIdentity(response.producer_id, response.producer_epoch)

    async def describe(self) -> Described | None:
        """Return the broker's description of the transactional id; None if it gives none."""
        try:
            connection = await self._coordinator()
            request = DescribeTransactionsRequest(transactional_ids=[self._machine.transactional_id])
            version = connection.version_of(DescribeTransactionsRequest)
            response = await connection.send(request, version, timeout_ms=self._timeout_ms)
        except KafkaError:
            return None
        for one in response.transaction_states:
            if not one.error_code:
                identity = ProducerIdentity(one.producer_id, one.producer_epoch)
                return Described(one.transaction_state, identity, await self._is_old(connection, identity))
        return None

    async def _is_old(self, connection: Connection, identity: ProducerIdentity) -> bool:
        """Return whether the broker lists the id as open for longer than our timeout (KIP-994)."""
        if not connection.knows(ListTransactionsRequest, _DURATION_SINCE):
            return False
        machine = self._machine
        request = ListTransactionsRequest(
            producer_id_filters=[identity.producer_id], duration_filter=machine.timeout_ms
        )
        try:
            version = connection.version_of(ListTransactionsRequest)
            response = await connection.send(request, version, timeout_ms=self._timeout_ms)
        except KafkaError:
            return False
        return any(one.transactional_id == machine.transactional_id for one in response.transaction_states)


def maybe_done(error: KafkaError) -> bool:
    """Return whether the request that failed with this error may have been carried out, or may be later."""
    if isinstance(error, BrokerUnreachableError):
        return error.sent
    return isinstance(error, RequestTimedOutError)

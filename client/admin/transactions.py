"""Admin's calls about transactions: list the open ones, find those that block a partition, abort hanging ones.

The rule: aborting a transaction here loses its records and nothing else. If a coordinator knows it, its producer is
fenced first; a marker is written directly to a partition only for a transaction that is open there from a named offset.
Sources: KIP-664, KIP-588, KIP-994, KIP-1152; Kafka's TransactionsCommand.
"""

from collections.abc import Iterable, Mapping

from ...protocol.errors import ErrorCode
from ...protocol.messages.ledger import DescribeLedgerRequest, DescribeLedgerResponse
from ...protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ..errors import AuthorizationError, ClientError, UnsupportedVersionError
from ..values import NO_IDENTITY, ProducerIdentity, TopicPartition
from .asking import Answer, all_of, by_topic, one_or_more, only, refuse
from .offsets import LATEST, OffsetAdmin
from .topics import TopicAdmin
from .values import (
    Blocker,
    OpenTransaction,
    PreparedTransaction,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    is_open_state,
)

MAX_TRANSACTION_TIMEOUT_MS = 900_000  # Kafka's default transaction.max.timeout.ms: an older open transaction hangs
FENCING_TIMEOUT_MS = 60_000  # transaction timeout of an id that has none yet; its next producer sets its own
_DESCRIBED_AT_ONCE = 500  # transactional ids in one request
_NO_TIMEOUT_MS = 0x7FFF_FFFF  # of a transaction that only a decision ends (KIP-939); no broker takes it of others
_EXPECTED_SINCE = 3  # of InitProducerId: it has the producer id and epoch that are to be replaced
_FILTERS_SINCE = 1  # of ListTransactions: it has duration_filter from version 1 on


class TransactionAdmin(TopicAdmin, OffsetAdmin):
    """Transactions, and the producers that partitions know. Needs Kafka 3.0; fence_producers needs 2.1."""

    async def list_transactions(
        self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = (), open_for_ms: int = -1
    ) -> list[TransactionListing]:
        """Return the transactional ids that pass every filter, of all coordinators, sorted. open_for_ms needs Kafka
        3.8.
        """
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(producer_ids), duration_filter=open_for_ms
        )
        if open_for_ms >= 0 and await self._version(ListTransactionsRequest) < _FILTERS_SINCE:
            raise UnsupportedVersionError("listing transactions by age needs a broker of Kafka 3.8 or newer")
        answers = await self._at_all_nodes(request, lambda r: [r.error_code])
        refuse(Answer(f"broker {node}", response.error_code) for node, response in answers)
        for _, response in answers:
            for state in response.unknown_state_filters:
                raise ClientError(
                    f"there is no transaction state {state!r}", code=ErrorCode.INVALID_REQUEST, hint=_STATES_HINT
                )
        found = [
            TransactionListing(
                each.transactional_id, each.producer_id, each.transaction_state, node, _hex_id(each.transaction_id)
            )
            for node, response in answers
            for each in response.transaction_states
        ]
        return sorted(found)

    async def describe_transactions(self, transactional_ids: str | Iterable[str]) -> dict[str, TransactionDescription]:
        """Return the transactions by transactional id. An id that does not exist is left out."""
        described = await all_of(self._describe_transaction(each) for each in one_or_more(transactional_ids))
        return {each.transactional_id: each for each in described if each is not None}

    async def _describe_transaction(self, transactional_id: str) -> TransactionDescription | None:
        """Describe one transactional id as its coordinator knows it. Returns None if it does not exist; raises any
        other error of the broker.
        """
        response: DescribeTransactionsResponse = await self._ask(
            ("transaction", transactional_id),
            DescribeTransactionsRequest(transactional_ids=[transactional_id]),
            lambda r: [each.error_code for each in r.transaction_states],
        )
        found = only(response.transaction_states, f"transactional id {transactional_id}")
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        refuse([Answer(f"transactional id {transactional_id}", found.error_code)])
        return _describe(found, (await self._cluster.coordinator("transaction", transactional_id)).node_id)

    async def describe_listed_transactions(
        self, listed: Iterable[TransactionListing]
    ) -> dict[str, TransactionDescription]:
        """Like describe_transactions(), for listed ids, in few requests: each names many ids of one coordinator."""
        by_node: dict[int, list[str]] = {}
        for each in listed:
            by_node.setdefault(each.coordinator, []).append(each.transactional_id)
        described: dict[str, TransactionDescription] = {}
        left: list[str] = []
        for node, names in by_node.items():
            for start in range(0, len(names), _DESCRIBED_AT_ONCE):
                request = DescribeTransactionsRequest(transactional_ids=names[start : start + _DESCRIBED_AT_ONCE])
                response: DescribeTransactionsResponse = await self._ask(node, request, lambda _: ())
                for found in response.transaction_states:
                    if found.error_code == ErrorCode.NONE:
                        described[found.transactional_id] = _describe(found, node)
                    elif found.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                        left.append(found.transactional_id)  # its coordinator has moved since
        return described | await self.describe_transactions(left)

    async def prepared_transactions(self) -> dict[str, PreparedTransaction]:
        """Return the transactions that wait for a decision (fencepost's two-phase sinks), by transactional id; none on
        other brokers.
        """
        if await self._version(DescribeLedgerRequest) < 0:
            return {}
        response: DescribeLedgerResponse = await self._ask(
            ("transaction", ""), DescribeLedgerRequest(), lambda r: [r.error_code]
        )
        refuse([Answer("the ledger", response.error_code, response.error_message)])
        return {
            each.transactional_id: PreparedTransaction(
                each.transactional_id,
                each.producer_id,
                each.producer_epoch,
                key.key,
                each.number,
                None if key.entry is None else key.entry.owner,
                each.held,
            )
            for key in response.keys
            for each in key.waiting
        }

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, skip_missing: bool = False
    ) -> dict[TopicPartition, list[ProducerState]]:
        """Return the producers whose state each partition keeps, sorted by producer id.

        Raises UnknownTopicError for a partition that does not exist; with skip_missing such partitions are left out.
        """

        def request(some: list[TopicPartition]) -> DescribeProducersRequest:
            """Return the DescribeProducers request for these partitions."""
            Topic = DescribeProducersRequest.Topic
            topics = [Topic(name=name, partition_indexes=which) for name, which in by_topic(some).items()]
            return DescribeProducersRequest(topics=topics)

        return await self._at_leaders(partitions, request, _producers, skip_missing=skip_missing)

    async def open_transactions(
        self, partitions: Iterable[TopicPartition] | None = None, *, skip_missing: bool = False
    ) -> list[OpenTransaction]:
        """Return the open transactions in these partitions, or in all that have a leader; in each the oldest first.

        skip_missing: as in describe_producers.
        """
        skip_missing |= partitions is None  # one may be deleted after it was listed
        producers = await self.describe_producers(await self._these_or_all(partitions), skip_missing=skip_missing)
        found = [
            OpenTransaction(partition, each)
            for partition, known in producers.items()
            for each in known
            if each.txn_start_offset is not None
        ]
        return sorted(found, key=lambda each: (each.topic_partition, each.start_offset))

    async def _these_or_all(self, partitions: Iterable[TopicPartition] | None) -> list[TopicPartition]:
        """Return these partitions; for None, all partitions that have a leader."""
        if partitions is not None:
            return [TopicPartition(*each) for each in partitions]
        return [one for topic in (await self.describe_topics()).values() for one in topic.led]

    async def find_blockers(self, partitions: Iterable[TopicPartition] | None = None) -> list[Blocker]:
        """Return, for each partition with last stable offset < high watermark, the oldest open transaction, which
        blocks it.
        """
        wanted = await self._these_or_all(partitions)
        skip_missing = partitions is None  # one may be deleted after it was listed
        stable = await self.ends(wanted, LATEST, "read_committed", skip_missing=skip_missing)
        ends = await self.ends(wanted, LATEST, skip_missing=skip_missing)
        return await self.blockers_at({each: (stable[each], ends[each]) for each in ends if each in stable})

    async def blockers_at(self, ends: Mapping[TopicPartition, tuple[int, int]]) -> list[Blocker]:
        """Return the oldest open transaction of each of these partitions whose last stable offset is below its high
        watermark.

        ends: for each partition, its (last stable offset, high watermark), read before this call; find_blockers() reads
        them itself. A partition that was deleted since then is left out.
        """
        held = [each for each, (stable, end) in ends.items() if stable < end]
        if not held:
            return []
        oldest: dict[TopicPartition, OpenTransaction] = {}
        for each in await self.open_transactions(held, skip_missing=True):
            oldest.setdefault(each.topic_partition, each)
        described = await self._owners(each.producer.producer_id for each in oldest.values())
        decisions = await self._decisions(described.values())
        return [
            Blocker(each, *ends[at], described.get(producer), decisions.get(producer))
            for at, each in oldest.items()
            for producer in (each.producer.producer_id,)
        ]

    async def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        open_for_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
    ) -> list[OpenTransaction]:
        """Transactions open in a partition for longer than open_for_ms that no coordinator will end.

        Reads the open transactions twice, so that one that ends in between is not reported.
        """
        before_ms = self._environment.clock.now_ms() - open_for_ms
        old = [
            each for each in await self.open_transactions(partitions) if each.producer.last_timestamp_ms <= before_ms
        ]
        if not old:
            return []
        owners = await self._owners(each.producer.producer_id for each in old)
        suspects: list[OpenTransaction] = []
        for each in old:
            owner = owners.get(each.producer.producer_id)
            if owner is None or each.topic_partition not in owner.partitions:
                suspects.append(each)
        still_open = {
            (each.topic_partition, each.producer.producer_id, each.start_offset)
            for each in await self.open_transactions(
                dict.fromkeys(one.topic_partition for one in suspects), skip_missing=True
            )
        }
        return [
            each
            for each in suspects
            if (each.topic_partition, each.producer.producer_id, each.start_offset) in still_open
        ]

    async def _owners(self, producer_ids: Iterable[int]) -> dict[int, TransactionDescription]:
        """Return the transactions of these producer ids; an id that no coordinator knows has no entry."""
        wanted = set(producer_ids)
        if not wanted:
            return {}
        listed = await self.list_transactions(producer_ids=sorted(wanted))
        described = await self.describe_listed_transactions(listed)
        return {each.producer_id: each for each in described.values() if each.producer_id in wanted}

    async def _decisions(self, described: Iterable[TransactionDescription]) -> dict[int, PreparedTransaction]:
        """Return, by producer id, which of these transactions are prepared and wait for a decision; nothing if this
        login may not see prepared transactions.
        """
        names = {each.transactional_id for each in described}
        if not names:
            return {}
        try:
            prepared = await self.prepared_transactions()
        except AuthorizationError:
            return {}
        return {each.producer_id: each for name, each in prepared.items() if name in names}

    # ---- aborting ------------------------------------------------------------------------------------------------

    async def fence_producers(self, transactional_ids: str | Iterable[str]) -> dict[str, ProducerIdentity]:
        """Raise the epoch of each transactional id: aborts its open transaction and fences its producer.

        Returns: each one's producer id and new epoch, which no producer uses.
        """
        wanted = list(one_or_more(transactional_ids))
        known = await self._timeouts_of(wanted)
        responses = await all_of(self._init_producer_id(each, known.get(each, 0), NO_IDENTITY) for each in wanted)
        answers = zip(wanted, responses, strict=True)
        refuse(Answer(f"transactional id {name}", each.error_code) for name, each in answers)
        return {
            name: ProducerIdentity(each.producer_id, each.producer_epoch)
            for name, each in zip(wanted, responses, strict=True)
        }

    async def fence_described(self, found: TransactionDescription) -> ProducerIdentity:
        """Fence the described producer and abort its open transaction, unless another producer has taken the id since
        (KIP-360).

        Raises PRODUCER_FENCED or INVALID_PRODUCER_EPOCH if the id has another producer id or epoch by now. fencepost
        then does nothing; Apache Kafka has already aborted the open transaction of the new producer. With a broker
        before Kafka 2.5 this is fence_producers().
        """
        name, expected = found.transactional_id, ProducerIdentity(found.producer_id, found.producer_epoch)
        if await self._version(InitProducerIdRequest) < _EXPECTED_SINCE or min(expected) < 0:
            return (await self.fence_producers(name))[name]
        response = await self._init_producer_id(name, found.timeout_ms, expected)
        refuse([Answer(f"transactional id {name}", response.error_code)])
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    async def _init_producer_id(self, name: str, timeout_ms: int, expected: ProducerIdentity) -> InitProducerIdResponse:
        """Send InitProducerId for another producer's id, which fences it. Returns the response. expected: the identity
        to replace.

        timeout_ms: of the id as it was described; 0 if it is not known.
        """
        kept_ms = timeout_ms if 0 < timeout_ms < _NO_TIMEOUT_MS else FENCING_TIMEOUT_MS
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=kept_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.epoch,
        )
        response: InitProducerIdResponse = await self._ask(("transaction", name), request, lambda r: [r.error_code])
        return response

    async def _timeouts_of(self, transactional_ids: list[str]) -> dict[str, int]:
        """Return the transaction timeout of each id, so that fencing keeps it; empty before Kafka 3.0."""
        if await self._version(DescribeTransactionsRequest) >= 0:
            return {k: v.timeout_ms for k, v in (await self.describe_transactions(transactional_ids)).items()}
        return {}

    async def abort_transaction(self, partition: TopicPartition, start_offset: int) -> OpenTransaction:
        """Write an abort marker for the transaction that is open from this offset on, in this partition only.

        For hanging transactions; use fence_producers for one that its coordinator knows.
        Returns: the aborted transaction. Raises INVALID_TXN_STATE if none is open from that offset on.
        """
        partition = TopicPartition(*partition)
        found = [each for each in await self.open_transactions([partition]) if each.start_offset == start_offset]
        if not found:
            raise ClientError(
                f"{partition} has no open transaction that begins at offset {start_offset}",
                code=ErrorCode.INVALID_TXN_STATE,
            )
        producer = found[0].producer
        Marker = WriteTxnMarkersRequest.Marker
        marker = Marker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[Marker.Topic(name=partition.topic, partition_indexes=[partition.partition])],
            # -1 says that the partition has no marker of this producer yet.
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        await self._at_leaders([partition], lambda _: WriteTxnMarkersRequest(markers=[marker]), _marker_results)
        return found[0]


_STATES_HINT = "Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, PrepareEpochFence, Dead"


def _describe(found: DescribeTransactionsResponse.TransactionState, node: int) -> TransactionDescription:
    """Return the description of a transactional id from the broker's answer. node: the id of the coordinator's broker.

    The start time is set only if the state is that of an open transaction: a broker also sends the start time of the
    last transaction when none is open. An empty list of partitions does not show that none is open, because partitions
    that this login may not see are left out of it.
    """
    started = found.transaction_start_time_ms
    return TransactionDescription(
        found.transactional_id,
        found.transaction_state,
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        started if started >= 0 and is_open_state(found.transaction_state) else None,
        node,
        tuple(sorted(TopicPartition(each.topic, one) for each in found.topics for one in each.partitions)),
        _hex_id(found.transaction_id),
    )


def _hex_id(transaction_id: bytes) -> str | None:
    return transaction_id.hex() if any(transaction_id) else None


_ProducersAnswer = Iterable[tuple[TopicPartition, int, str | None, list[ProducerState]]]


def _producers(response: DescribeProducersResponse) -> _ProducersAnswer:
    """Yield partition, error code, message and producers of each answer."""
    for topic in response.topics:
        for each in topic.partitions:
            known = [
                ProducerState(
                    one.producer_id,
                    one.producer_epoch,
                    one.last_sequence,
                    one.last_timestamp,
                    one.coordinator_epoch,
                    one.current_txn_start_offset if one.current_txn_start_offset >= 0 else None,
                )
                for one in each.active_producers
            ]
            yield TopicPartition(topic.name, each.partition_index), each.error_code, each.error_message, sorted(known)


def _marker_results(response: WriteTxnMarkersResponse) -> Iterable[tuple[TopicPartition, int, None, None]]:
    """Yield partition and error code of each answer, in the form that `_at_leaders` expects."""
    for marker in response.markers:
        for topic in marker.topics:
            for each in topic.partitions:
                yield TopicPartition(topic.name, each.partition_index), each.error_code, None, None

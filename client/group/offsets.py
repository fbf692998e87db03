"""Committed offsets of a group: OffsetCommit and OffsetFetch, with safe retries.

The rule: all attempts of a commit have the same generation, and the next commit waits for its end, so a late attempt
cannot undo a newer one. A fetch waits for pending offsets of open transactions (KIP-447).
Source: Kafka's ConsumerCoordinator.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ...effects.counts import list_text
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ..errors import (
    AuthorizationError,
    BrokerUnreachableError,
    CommitFailedError,
    RequestTimedOutError,
    code_of,
    error_of,
    is_retriable,
)
from ..net.cluster import Cluster
from ..net.connection import Connection
from ..values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

PURPOSE = "offsets"
BY_NAME = 9  # from version 10 on both have topic ids instead of names
_E = ErrorCode
RETRIED = frozenset(
    {
        _E.COORDINATOR_LOAD_IN_PROGRESS,
        _E.COORDINATOR_NOT_AVAILABLE,
        _E.NOT_COORDINATOR,
        _E.REQUEST_TIMED_OUT,
        _E.UNKNOWN_TOPIC_OR_PARTITION,
        _E.UNSTABLE_OFFSET_COMMIT,
    }
)
_ELSEWHERE = (_E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR, _E.REQUEST_TIMED_OUT)
_NOT_THAT_MEMBER = (_E.STALE_MEMBER_EPOCH, _E.UNKNOWN_MEMBER_ID)  # its next heartbeat finds out more
_OUT = (_E.FENCED_INSTANCE_ID, _E.UNKNOWN_MEMBER_ID, _E.ILLEGAL_GENERATION, _E.REBALANCE_IN_PROGRESS)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Committed = dict[TopicPartition, OffsetAndMetadata | None]


class GroupOffsets:
    """The offsets of one group, over a separate connection, where no waiting JoinGroup delays them.

    reader: the member that reads committed offsets, with its epoch (KIP-848); None: no member.
    """

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        reader: Callable[[], ConsumerGroupMetadata | None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._reader = reader
        self._commit_lock = asyncio.Lock()  # commits are sent one at a time, including retries

    async def connection(self) -> Connection:
        """Return a connection to the coordinator, separate from the one for joins and heartbeats."""
        found = await self._cluster.coordinator("group", self._group_id)
        return await self._cluster.node(found.node_id, PURPOSE)

    async def _ask_until(
        self,
        request: Any,
        codes: Callable[[Any], Iterable[ErrorCode]],
        timeout_ms: float,
        again: Collection[ErrorCode] = (),
        error_for: Callable[[Any, ErrorCode], Exception] | None = None,
    ) -> Any:
        """Repeat a request until it succeeds, and return its response.

        again: codes after which the request is made again, with the member's newest epoch. error_for: makes the error
        for a retriable code in a response; None: the error says no more than the code.
        """

        def verdict(response: Any) -> ErrorCode:
            """Return the retriable error code in the response; NONE if the request need not be sent again. With
            error_for, its error is raised instead, and retry() decides. Forgets the coordinator if the code means that
            it has moved.
            """
            code = _retriable_code(codes(response), again)
            if code in _ELSEWHERE:
                self._cluster.forget_coordinator("group", self._group_id)
            if error_for is not None and code is not _E.NONE:
                raise error_for(response, code)
            return code

        def retry(error: BaseException) -> bool:
            """Return whether to send the request again after this error. Without a response, looks up the coordinator
            again.
            """
            if isinstance(error, BrokerUnreachableError | RequestTimedOutError):
                self._cluster.forget_coordinator("group", self._group_id)
            return is_retriable(error) or (isinstance(error, KafkaError) and error.code in again)

        return await self._cluster.ask_until(
            self.connection, request, verdict=verdict, timeout_ms=timeout_ms, retry=retry, cap=BY_NAME
        )

    async def commit(
        self,
        offsets: Offsets,
        member: ConsumerGroupMetadata,
        *,
        timeout_ms: float,
        newest: Callable[[], ConsumerGroupMetadata] | None = None,
        refused: Callable[[ErrorCode], None] = lambda code: None,
    ) -> None:
        """Commit offsets. newest: returns the member for each attempt, whose epoch may grow meanwhile (KIP-848).

        refused: called with the final error code. Raises the error of `commit_error`, RequestTimedOutError.
        """
        if not offsets:
            return

        def codes_of(answer: OffsetCommitResponse) -> Iterable[ErrorCode]:
            return commit_codes(answer, offsets).values()

        def error_for(answer: OffsetCommitResponse, worst: ErrorCode) -> Exception:
            return commit_error(worst, [tp for tp, code in commit_codes(answer, offsets).items() if code is worst])

        def request() -> OffsetCommitRequest:
            return commit_request(offsets, member if newest is None else newest())

        again = () if newest is None else (_E.STALE_MEMBER_EPOCH,)
        async with self._commit_lock:
            response = await self._ask_until(request, codes_of, timeout_ms, again, error_for)
        worst = worst_of(codes_of(response))
        if worst is not _E.NONE:
            refused(worst)
            raise error_for(response, worst)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float, require_stable: bool = True
    ) -> Committed:
        """Return committed offsets, None for a partition without one. Before Kafka 2.5 require_stable has no effect.

        Raises the error of the group or of the first failed partition.
        """
        wanted = [TopicPartition(*tp) for tp in partitions]
        try:
            return await self._fetch(wanted, require_stable, fetch_codes, timeout_ms)
        except RequestTimedOutError as late:
            if late.code is _E.UNSTABLE_OFFSET_COMMIT:
                late.hint = f"an open transaction holds them: fencepost txn why-blocked --group {self._group_id}"
            raise

    async def stable_now(self, partitions: Iterable[TopicPartition], *, timeout_ms: float) -> Committed:
        """Return committed offsets like `committed`, but do not wait: leaves out partitions whose offsets are pending
        in open transactions.
        """
        wanted = [TopicPartition(*tp) for tp in partitions]
        return await self._fetch(wanted, True, lambda answer: _unless_later(fetch_codes(answer)), timeout_ms)

    async def _fetch(
        self,
        wanted: list[TopicPartition],
        require_stable: bool,
        codes: Callable[[OffsetFetchResponse], list[ErrorCode]],
        timeout_ms: float,
    ) -> Committed:
        """Return the committed offsets of these partitions; asks again until none of `codes` is retriable. Raises the
        error of a code, or RequestTimedOutError.
        """
        if not wanted:
            return {}

        def request() -> OffsetFetchRequest:
            return fetch_request(self._group_id, wanted, require_stable, self._reader())

        response = await self._ask_until(request, codes, timeout_ms, _NOT_THAT_MEMBER)
        for code in codes(response):
            if code is not _E.NONE:
                raise error_of(code, f"the offsets of group {self._group_id}: {code.text}")
        found, later = fetched_offsets(response), partitions_refused(response)
        return {tp: found.get(tp) for tp in wanted if tp not in later}


# ---- Commits -------------------------------------------------------------------------------------------------


def commit_request(offsets: Offsets, member: ConsumerGroupMetadata) -> OffsetCommitRequest:
    """Return an OffsetCommit request, valid in every version up to BY_NAME."""
    topics: dict[str, list[OffsetCommitRequest.Topic.Partition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequest.Topic.Partition(
                partition_index=partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id if member.generation >= 0 else None,
        topics=[OffsetCommitRequest.Topic(name=topic, partitions=listed) for topic, listed in topics.items()],
    )


def commit_codes(response: OffsetCommitResponse, sent: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    """Return the code of each partition; REQUEST_TIMED_OUT if the response does not contain it."""
    found = {
        TopicPartition(topic.name, partition.partition_index): code_of(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }
    return {tp: found.get(tp, _E.REQUEST_TIMED_OUT) for tp in sent}


def commit_error(code: ErrorCode, partitions: Iterable[TopicPartition] = ()) -> Exception:
    """Return the error to raise for a commit that the broker refused with this code."""
    named = list_text([*map(str, partitions)], "partition")
    if code in (_E.ILLEGAL_GENERATION, _E.UNKNOWN_MEMBER_ID, _E.STALE_MEMBER_EPOCH):
        return CommitFailedError(
            "the group has rebalanced without this member: other members own its partitions", code=code
        )
    if code is _E.REBALANCE_IN_PROGRESS:
        return error_of(code, "the group is rebalancing: poll, then commit what is still assigned")
    if code is _E.TOPIC_AUTHORIZATION_FAILED:
        return AuthorizationError(f"not allowed to commit offsets of {named}", code=code)
    return error_of(code, f"the offsets of {named} were not committed: {code.text}")


def worst_of(codes: Iterable[ErrorCode]) -> ErrorCode:
    """Return the most important code: that the member is out, else the first final one, else the first."""
    found = [code for code in codes if code is not _E.NONE]
    for code in (*_OUT, *(code for code in found if code not in RETRIED), *found):
        if code in found:
            return code
    return _E.NONE


def _retriable_code(codes: Iterable[ErrorCode], again: Collection[ErrorCode]) -> ErrorCode:
    """Return the code for which the request is sent again; NONE if none is retriable, or another code makes a retry
    useless. again: codes that are retriable here, besides the usual ones.
    """
    worst = worst_of(codes)
    return worst if worst in RETRIED or worst in again else _E.NONE


# ---- Reading -------------------------------------------------------------------------------------------------


def fetch_request(
    group_id: str,
    partitions: Iterable[TopicPartition],
    require_stable: bool,
    reader: ConsumerGroupMetadata | None = None,
) -> OffsetFetchRequest:
    """Return an OffsetFetch request that is valid in every version up to BY_NAME: the group is in it by itself, as
    older versions have it, and as a list of one.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    one = OffsetFetchRequest.Group(
        group_id=group_id,
        member_id=None if reader is None else reader.member_id,
        member_epoch=-1 if reader is None else reader.generation,
        topics=[
            OffsetFetchRequest.Group.Topic(name=topic, partition_indexes=listed) for topic, listed in topics.items()
        ],
    )
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[OffsetFetchRequest.Topic(name=topic, partition_indexes=listed) for topic, listed in topics.items()],
        groups=[one],
        require_stable=require_stable,
    )


def fetch_codes(response: OffsetFetchResponse) -> list[ErrorCode]:
    """Return all error codes in an OffsetFetch response: of the group and of its partitions."""
    codes = [response.error_code, *(group.error_code for group in response.groups)]
    codes += (partition.error_code for topic in response.topics for partition in topic.partitions)
    codes += (p.error_code for group in response.groups for topic in group.topics for p in topic.partitions)
    return [code_of(code) for code in codes]


def _unless_later(codes: list[ErrorCode]) -> list[ErrorCode]:
    """Return the codes without UNSTABLE_OFFSET_COMMIT, so that nobody waits for offsets that are pending in an open
    transaction.
    """
    return [code for code in codes if code is not _E.UNSTABLE_OFFSET_COMMIT]


def partitions_refused(response: OffsetFetchResponse) -> set[TopicPartition]:
    """Return the partitions that have an error in an OffsetFetch response."""
    found = {(t.name, p.partition_index) for t in response.topics for p in t.partitions if p.error_code}
    within = [topic for group in response.groups for topic in group.topics]
    found |= {(t.name, p.partition_index) for t in within for p in t.partitions if p.error_code}
    return {TopicPartition(*tp) for tp in found}


def fetched_offsets(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offset of each partition in an OffsetFetch response, of any version. Partitions without a
    committed offset are left out.
    """
    found: dict[TopicPartition, OffsetAndMetadata] = {}

    def add(name: str, partition: int, offset: int, metadata: str | None, leader_epoch: int) -> None:
        if offset >= 0:
            found[TopicPartition(name, partition)] = OffsetAndMetadata(offset, metadata or "", leader_epoch)

    for topic in response.topics:
        for one in topic.partitions:
            add(topic.name, one.partition_index, one.committed_offset, one.metadata, one.committed_leader_epoch)
    for group in response.groups:
        for within in group.topics:
            for each in within.partitions:
                add(
                    within.name, each.partition_index, each.committed_offset, each.metadata, each.committed_leader_epoch
                )
    return found

"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete: how far groups have read.

The rules are Kafka's, and so is their order, because it decides which error a client sees. First, partitions that do
not exist are refused, each by itself; then the group checks the member; then the length of each metadata text is
checked. The rest is written as one unit. In a transaction, the transaction coordinator checks the request before the
group does. A partition without an offset is no error; its offset is -1.

Source: Kafka's KafkaApis, GroupCoordinatorService, OffsetMetadataManager; asked of 4.3.1.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from ...protocol.encoding import Lazy
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ...protocol.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ...protocol.primitives import ZERO_UUID
from ..groups.offsets import PartitionKey
from ..groups.records import Committed
from ..net.turns import AnswerRoom
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acls import Operation, ResourceType

BY_ID_SINCE = 10
BATCHED_SINCE = 8  # OffsetFetch asks for several groups
EPOCHS_SINCE = 9  # OffsetCommit may come from a group of the newer kind, and gets an error when there is no such group
NO_OFFSET, NO_EPOCH = -1, -1
OFFSET_BYTES = 20  # of an answer, beside the metadata
LATER = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # clients ask again for groups that have this error


class _Wanted(NamedTuple):
    """An offset to commit, of a partition that exists and that the client may read.

    part_answer: the partition's entry in the response.
    """

    key: PartitionKey
    committed: Committed
    part_answer: Any


# ---- OffsetCommit and TxnOffsetCommit ------------------------------------------------------------------------


@handles(OffsetCommitRequest)
def offset_commit(broker: Services, call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit offsets of a group. Returns the response, with an error code for each partition."""
    broker.access.check(call.session, Operation.READ, ResourceType.GROUP, request.group_id)
    wanted: list[_Wanted] = []
    made = OffsetCommitResponse.Topic.Partition
    response = OffsetCommitResponse(topics=[])
    for topic in request.topics:
        named = {"topic_id": topic.topic_id} if call.version >= BY_ID_SINCE else {"name": topic.name}
        parts = list(_sort_out("OffsetCommit", broker, call, topic, named, made, wanted))
        if parts:
            response.topics.append(OffsetCommitResponse.Topic(**named, partitions=parts))

    if request.retention_time_ms >= 0:
        wanted = [each._replace(committed=_expiring(each.committed, request.retention_time_ms)) for each in wanted]
    with _errors_for_all("OffsetCommit", broker, call, wanted):
        fitting = _fitting("OffsetCommit", broker, wanted)
        if wanted:
            _check_group(broker, call.version, request, _partitions(fitting))
        if fitting:
            broker.group_offsets.commit(request.group_id, fitting)
    return response


def _expiring(committed: Committed, retention_ms: int) -> Committed:
    """Return the committed offset with the retention time that the request gives it."""
    return committed._replace(retention_ms=retention_ms)


def _partitions(fitting: Sequence[tuple[PartitionKey, Committed]]) -> list[tuple[bytes, int]]:
    """Return the topic id and partition index of each offset."""
    return [(committed.topic_id, key[1]) for key, committed in fitting]


def _check_group(
    broker: Services, version: int, request: OffsetCommitRequest, partitions: Sequence[tuple[bytes, int]]
) -> None:
    """Raise KafkaError if the group does not accept offsets from this member, or from this client without a member."""
    group_id, generation = request.group_id, request.generation_id_or_member_epoch
    if version >= EPOCHS_SINCE and generation >= 0 and not broker.group_kinds.exists(group_id):
        broker.group_offsets.check_online(group_id)
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    broker.group_kinds.check_commit(
        group_id, generation, request.member_id, request.group_instance_id, partitions, version=version
    )


@handles(TxnOffsetCommitRequest)
def txn_offset_commit(broker: Services, call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Commit offsets within a transaction. They take effect if the transaction commits."""
    broker.access.check(call.session, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    broker.access.check(call.session, Operation.READ, ResourceType.GROUP, request.group_id)
    broker.admission.awaited.came(request.transactional_id)
    wanted: list[_Wanted] = []
    response = TxnOffsetCommitResponse(topics=[])
    made = TxnOffsetCommitResponse.Topic.Partition
    for topic in request.topics:
        parts = list(_sort_out("TxnOffsetCommit", broker, call, topic, {"name": topic.name}, made, wanted))
        if parts:
            response.topics.append(TxnOffsetCommitResponse.Topic(name=topic.name, partitions=parts))
    with _errors_for_all("TxnOffsetCommit", broker, call, wanted):
        if wanted:
            _commit_in_transaction(broker, call, request, wanted)
    return response


def _commit_in_transaction(
    broker: Services, call: Call, request: TxnOffsetCommitRequest, wanted: Sequence[_Wanted]
) -> None:
    """Write the offsets in one unit. If they add the group's partition of __consumer_offsets to the transaction, the
    unit also contains the transaction's new state.

    Raises KafkaError.
    """
    group_id, producer_id, producer_epoch = request.group_id, request.producer_id, request.producer_epoch
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
    joining = broker.admission.admit_offsets(
        request.transactional_id, producer_id, producer_epoch, group_id, call.version, call.connection
    )
    fitting = _fitting("TxnOffsetCommit", broker, wanted)
    member_id, instance_id = request.member_id, request.group_instance_id
    broker.group_kinds.check_commit(
        group_id, request.generation_id, member_id, instance_id, _partitions(fitting), version=None
    )
    if fitting:
        broker.group_offsets.commit(
            group_id,
            fitting,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            also=[] if joining is None else [broker.store.append_part(joining.log.log_id, joining.batch)],
        )
        if joining is not None:
            broker.admission.joined(joining)


# ---- what both have in common --------------------------------------------------------------------------------


def _sort_out(
    api: str, broker: Services, call: Call, asked: Any, named: dict[str, Any], answer: type, wanted: list[_Wanted]
) -> Iterator[Any]:
    """Yield an entry of the response for each partition of a topic.

    A partition that does not exist, or that the client may not read, gets an error; the others are added to `wanted`.
    named: the topic's name or id, as a field of the response. answer: the class of the entries.
    """
    topics = broker.topics
    by_id = "topic_id" in named
    topic = topics.by_id.get(named["topic_id"]) if by_id else topics.by_name.get(named["name"])
    name = topic.name if topic is not None else named.get("name")
    readable = name is None or broker.access.allows(call.session, Operation.READ, ResourceType.TOPIC, name)
    now_ms, age_ms = broker.clock.now_ms(), broker.store.age_ms()
    for part in asked.partitions:
        part_answer = answer(partition_index=part.partition_index)
        if not readable:
            part_answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None:
            part_answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not 0 <= part.partition_index < len(topic.partitions):
            part_answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            epoch, metadata = part.committed_leader_epoch, part.committed_metadata or ""
            committed = Committed(part.committed_offset, epoch, metadata, now_ms, age_ms, topic.id)
            wanted.append(_Wanted((topic.name, part.partition_index), committed, part_answer))
        if part_answer.error_code:
            broker.metrics.error(api, part_answer.error_code)
        yield part_answer


@contextmanager
def _errors_for_all(api: str, broker: Services, call: Call, wanted: Sequence[_Wanted]) -> Iterator[None]:
    """Surround a block. A KafkaError that it raises becomes the error of every partition in `wanted`."""
    try:
        yield
    except KafkaError as error:
        broker.note_limit(api, call.client_host, call.client_id, error)
        for each in wanted:
            each.part_answer.error_code = error.code
            broker.metrics.error(api, error.code)


def _fitting(api: str, broker: Services, wanted: Sequence[_Wanted]) -> list[tuple[PartitionKey, Committed]]:
    """Return the offsets whose metadata is not too long. The others get OFFSET_METADATA_TOO_LARGE in the response."""
    longest = broker.settings.offset_metadata_max_bytes
    fitting = []
    for each in wanted:
        if len(each.committed.metadata) > longest:
            each.part_answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            broker.metrics.error(api, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        else:
            fitting.append((each.key, each.committed))
    return fitting


# ---- OffsetFetch ---------------------------------------------------------------------------------------------


class _Reading(NamedTuple):
    """How one OffsetFetch reads offsets.

    stable: whether an offset that an open transaction may change is refused. room: how many bytes the answer may still
    have. check_group: raises an error if the client may not describe a group. sees: returns whether the client may
    describe a topic.
    """

    stable: bool
    room: AnswerRoom
    check_group: Callable[[str], None]
    sees: Callable[[str], bool]


@handles(OffsetFetchRequest, may_be_long=True)
def offset_fetch(broker: Services, call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Answer with the committed offsets of one or several groups."""
    broker.store.confirm()  # so that a broker whose journal was taken over does not answer with old offsets
    how = _Reading(
        request.require_stable,
        AnswerRoom(len(broker.server.connections)),
        partial(broker.access.check, call.session, Operation.DESCRIBE, ResourceType.GROUP),
        partial(broker.access.allows, call.session, Operation.DESCRIBE, ResourceType.TOPIC),
    )
    if call.version < BATCHED_SINCE:
        single, group_id = OffsetFetchResponse.Topic, request.group_id
        topics = []
        for name, keys in _look_up(broker, group_id, request.topics, how):
            found = _fetch_committed(broker, group_id, keys, single.Partition, how)
            topics.append(single(name=name, partitions=Lazy(len(keys), found)))
        return OffsetFetchResponse(topics=topics)
    by_id, groups = call.version >= BY_ID_SINCE, request.groups
    return OffsetFetchResponse(
        groups=Lazy(len(groups), (_group_fetched(broker, group, by_id, how) for group in groups))
    )


def _group_fetched(
    broker: Services, asked: OffsetFetchRequest.Group, by_id: bool, how: _Reading
) -> OffsetFetchResponse.Group:
    """Return the committed offsets of one group, or its error."""
    made = OffsetFetchResponse.Group.Topic
    topics = []
    try:
        if how.room.is_full:
            raise KafkaError(LATER)
        how.check_group(asked.group_id)
        broker.group_kinds.check_fetch(asked.group_id, asked.member_id, asked.member_epoch)
        known, unknown = _by_name(broker, asked.topics) if by_id and asked.topics is not None else (asked.topics, [])
        for name, keys in _look_up(broker, asked.group_id, known, how):
            topic = broker.topics.by_name.get(name)
            topic_id = topic.id if topic is not None else ZERO_UUID
            found = _fetch_committed(broker, asked.group_id, keys, made.Partition, how)
            topics.append(made(name=name, topic_id=topic_id, partitions=Lazy(len(keys), found)))
    except KafkaError as error:
        broker.metrics.error("OffsetFetch", error.code)
        return OffsetFetchResponse.Group(group_id=asked.group_id, error_code=error.code)
    for each in unknown:
        missing = (_answer(made.Partition, index, None, ErrorCode.UNKNOWN_TOPIC_ID) for index in each.partition_indexes)
        topics.append(made(topic_id=each.topic_id, partitions=Lazy(len(each.partition_indexes), missing)))
    return OffsetFetchResponse.Group(group_id=asked.group_id, topics=topics)


def _by_name(
    broker: Services, asked: Iterable[OffsetFetchRequest.Group.Topic]
) -> tuple[list[OffsetFetchRequest.Topic], list[OffsetFetchRequest.Group.Topic]]:
    """Return the topics with names in place of ids, and those whose ids are unknown."""
    known, unknown = [], []
    for each in asked:
        topic = broker.topics.by_id.get(each.topic_id)
        if topic is None:
            unknown.append(each)
        else:
            known.append(OffsetFetchRequest.Topic(name=topic.name, partition_indexes=each.partition_indexes))
    return known, unknown


def _look_up(
    broker: Services, group_id: str, asked: Sequence[Any] | None, how: _Reading
) -> Iterable[tuple[str, Sequence[PartitionKey]]]:
    """Return the partitions to answer for a group, by topic name. asked: None for all in which the group has offsets
    and that the client may describe.

    Raises GROUP_AUTHORIZATION_FAILED, COORDINATOR_NOT_AVAILABLE.
    """
    how.check_group(group_id)
    offsets = broker.group_offsets
    offsets.check_online(group_id)
    if asked is not None:
        return [(topic.name, [(topic.name, index) for index in topic.partition_indexes]) for topic in asked]
    keys: dict[str, list[PartitionKey]] = {}
    for key in offsets.all_of(group_id):
        keys.setdefault(key[0], []).append(key)
    return [(name, of_topic) for name, of_topic in keys.items() if how.sees(name)]


def _fetch_committed(
    broker: Services,
    group_id: str,
    keys: Iterable[PartitionKey],
    made: Callable[..., Any],
    how: _Reading,
) -> Iterator[Any]:
    """Yield the answer for each of these partitions: the group's committed offset, looked up when the answer is
    taken.
    """
    offsets = broker.group_offsets
    for key in keys:
        committed, error = None, ErrorCode.NONE
        if not how.sees(key[0]):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            broker.metrics.error("OffsetFetch", error)
        elif how.stable and offsets.is_pending(group_id, key):
            error = ErrorCode.UNSTABLE_OFFSET_COMMIT
            broker.metrics.error("OffsetFetch", error)
        else:
            committed = offsets.fetch(group_id, key)
        how.room.take(OFFSET_BYTES + (len(committed.metadata) if committed is not None else 0))
        yield _answer(made, key[1], committed, error)


def _answer(made: Callable[..., Any], index: int, committed: Committed | None, error: ErrorCode) -> Any:
    """Return the answer for one partition. made: its class. The offset is -1 if there is no committed offset."""
    return made(
        partition_index=index,
        committed_offset=NO_OFFSET if committed is None else committed.offset,
        committed_leader_epoch=NO_EPOCH if committed is None else committed.leader_epoch,
        metadata="" if committed is None else committed.metadata,
        error_code=error,
    )


# ---- OffsetDelete --------------------------------------------------------------------------------------------


@handles(OffsetDeleteRequest)
def offset_delete(broker: Services, call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete committed offsets of topics that no member subscribes to (KIP-496)."""
    access, session = broker.access, call.session
    access.check(session, Operation.DELETE, ResourceType.GROUP, request.group_id)
    in_use = broker.group_kinds.topics_in_use(request.group_id)
    gone: list[PartitionKey] = []
    made = OffsetDeleteResponse.Topic
    topics = []
    for asked in request.topics:
        topic = broker.topics.by_name.get(asked.name)
        readable = access.allows(session, Operation.READ, ResourceType.TOPIC, asked.name)
        parts = []
        for part in asked.partitions:
            error = ErrorCode.NONE
            if not readable:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic is None or not 0 <= part.partition_index < len(topic.partitions):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif in_use(asked.name):
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                gone.append((asked.name, part.partition_index))
            if error:
                broker.metrics.error("OffsetDelete", error)
            parts.append(made.Partition(partition_index=part.partition_index, error_code=error))
        topics.append(made(name=asked.name, partitions=parts))
    broker.group_offsets.delete(request.group_id, gone)
    return OffsetDeleteResponse(topics=topics)

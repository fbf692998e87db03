"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets: an admin's requests about share
partitions.

The rules: describing a partition that the group does not have is no error; its start offset is -1. Altering and
deleting need a group without members. If the group has an error, it is that of the whole request, and nothing is done.
The window in the answer is our own addition: how many records are pending in transactions, and in which ones, as far as
the user may see them.

Source: Kafka's KafkaApis and GroupCoordinatorService, asked of 4.3.1; tests/conformance/scenarios/share/offsets.txt.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...protocol.encoding import Lazy
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ...protocol.primitives import ZERO_UUID
from ..net.turns import AnswerRoom, Steps
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acls import Operation, ResourceType
from ..share.values import SharePartitionKey
from ..topics.names import TopicIdPartition
from ..topics.topics import Topic

PARTITION_BYTES = 56  # of an answer
PENDING_BYTES = 32  # of a range that is pending, without its names
PENDING_SHOWN = 100  # ranges of a partition
LATER = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Ask for fewer groups at once."  # clients ask for these again
AT_ONCE = 100  # share partitions that are altered in one unit
UNITS_OF_A_START = 20
_Window = DescribeShareGroupOffsetsResponse.Group.Topic.Partition.Window
_Described = DescribeShareGroupOffsetsResponse.Group
_Altered = AlterShareGroupOffsetsResponse.Topic.Partition


# ---- describing ----------------------------------------------------------------------------------------------


@handles(DescribeShareGroupOffsetsRequest, may_be_long=True)
def describe_share_group_offsets(
    broker: Services, call: Call, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Answer with each group's start offset in each named partition, or in all partitions that the client may
    describe.
    """
    room = AnswerRoom(len(broker.server.connections))
    answers = (_describe_or_refuse(broker, call, asked, room) for asked in request.groups)
    return DescribeShareGroupOffsetsResponse(groups=Lazy(len(request.groups), answers))


def _describe_or_refuse(
    broker: Services, call: Call, asked: DescribeShareGroupOffsetsRequest.Group, room: AnswerRoom
) -> _Described:
    """Return the description of one group, or its error. room: how many bytes the answer may still have."""
    try:
        broker.access.check(call.session, Operation.DESCRIBE, ResourceType.GROUP, asked.group_id)
        broker.group_offsets.check_online(asked.group_id)
        if room.is_full:
            raise KafkaError(*LATER)
    except KafkaError as error:
        broker.metrics.error("DescribeShareGroupOffsets", error.code)
        return _Described(group_id=asked.group_id, error_code=error.code, error_message=error.text)
    if asked.topics is None:
        topics = [_topic(broker, call, asked.group_id, *each, room) for each in _all_of(broker, call, asked.group_id)]
    else:
        wanted: dict[str, dict[int, None]] = {}
        for topic in asked.topics:  # what is named twice is answered once, as in Kafka
            wanted.setdefault(topic.topic_name, {}).update(dict.fromkeys(topic.partitions))
        topics = [_topic(broker, call, asked.group_id, name, list(which), room) for name, which in wanted.items()]
    return _Described(group_id=asked.group_id, topics=topics)


def _all_of(broker: Services, call: Call, group_id: str) -> Iterable[tuple[str, Sequence[int]]]:
    """Return the group's share partitions that the client may describe, by topic."""
    found: dict[str, list[int]] = {}
    for key in broker.share_partitions.of_group(group_id):
        topic = broker.topics.by_id.get(key.topic_id)
        if topic is not None:
            found.setdefault(topic.name, []).append(key.partition)
    sees = broker.access.allows
    return [
        (name, sorted(which))
        for name, which in found.items()
        if sees(call.session, Operation.DESCRIBE, ResourceType.TOPIC, name)
    ]


def _topic(
    broker: Services, call: Call, group_id: str, name: str, which: Sequence[int], room: AnswerRoom
) -> _Described.Topic:
    """Return one topic of the answer. Its partitions are looked up when the answer is encoded. which: the indexes of
    the partitions.
    """
    topic = broker.topics.by_name.get(name)
    if not broker.access.allows(call.session, Operation.DESCRIBE, ResourceType.TOPIC, name):
        refused = (_refused(broker, index, room) for index in which)
        return _Described.Topic(topic_name=name, topic_id=ZERO_UUID, partitions=Lazy(len(which), refused))
    answers = _partitions(broker, call, group_id, topic, which, room)
    topic_id = topic.id if topic is not None else ZERO_UUID
    return _Described.Topic(topic_name=name, topic_id=topic_id, partitions=Lazy(len(which), answers))


def _refused(broker: Services, index: int, room: AnswerRoom) -> _Described.Topic.Partition:
    """Return the answer for a partition that the client may not describe."""
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.metrics.error("DescribeShareGroupOffsets", error)
    room.take(PARTITION_BYTES + len(error.text))
    return _Described.Topic.Partition(partition_index=index, error_code=error, error_message=error.text)


def _partitions(
    broker: Services, call: Call, group_id: str, topic: Topic | None, which: Iterable[int], room: AnswerRoom
) -> Iterator[_Described.Topic.Partition]:
    """Yield the answer for each of these partitions. Each is looked up when it is encoded."""
    topic_id = topic.id if topic is not None else ZERO_UUID
    limit = broker.group_configs.obeyed(group_id).share_partition_max_record_locks
    for index in which:
        answer = _Described.Topic.Partition(partition_index=index)
        room.take(PARTITION_BYTES)
        key = SharePartitionKey(group_id, topic_id, index)
        try:
            found = broker.share_partitions.describe(key)
            if topic is not None and found is not None:
                answer.start_offset, answer.leader_epoch = found.start_offset, found.leader_epoch
                partition = topic.partitions[index]
                partition.check_online()
                answer.lag = partition.log.high_watermark - found.start_offset - found.delivery_complete_count
                answer.window = _window(broker, call, key, limit, room)
        except KafkaError as error:
            broker.metrics.error("DescribeShareGroupOffsets", error.code)
            answer.error_code, answer.error_message = error.code, error.text
        yield answer


def _window(broker: Services, call: Call, key: SharePartitionKey, limit: int, room: AnswerRoom) -> _Window | None:
    """Return the group's window in the partition (from the first record that is not done to the last that was
    delivered), with its first pending ranges.

    Returns None if there is no such share partition. limit: how many records the window may have. A pending range has
    the id of its transaction only if that is known and the client may describe it.
    """
    found = broker.share_partitions.window(key)
    if found is None:
        return None
    count = sum(each.last - each.first + 1 for each in found.pending)
    window = _Window(
        size=found.size, limit=limit, pending_count=count, runs=found.runs, lacks_memory=found.lacks_memory
    )
    for each in found.pending[:PENDING_SHOWN]:
        if room.is_full:
            break
        name = broker.share_partitions.transactional_id_of(each.producer_id)
        if name is not None and not broker.access.allows(
            call.session, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name
        ):
            name = None
        room.take(PENDING_BYTES + len(name or "") + len(each.member))
        window.pending.append(
            _Window.Pending(
                first_offset=each.first,
                last_offset=each.last,
                transactional_id=name,
                producer_id=each.producer_id,
                member_id=each.member,
            )
        )
    return window


# ---- altering ------------------------------------------------------------------------------------------------


@handles(AlterShareGroupOffsetsRequest, may_be_long=True)
def alter_share_group_offsets(
    broker: Services, call: Call, request: AlterShareGroupOffsetsRequest
) -> Steps[AlterShareGroupOffsetsResponse]:
    """Set a group's start offsets. If the group does not exist, it is created. AT_ONCE partitions are written in one
    unit.
    """
    group_id = request.group_id
    broker.access.check(call.session, Operation.READ, ResourceType.GROUP, group_id)
    response = AlterShareGroupOffsetsResponse()
    starts: dict[TopicIdPartition, int] = {}
    answers: dict[TopicIdPartition, list[_Altered]] = {}
    for asked in request.topics:
        topic = broker.topics.by_name.get(asked.topic_name)
        readable = broker.access.allows(call.session, Operation.READ, ResourceType.TOPIC, asked.topic_name)
        topic_id = topic.id if topic is not None and readable else ZERO_UUID
        answer = AlterShareGroupOffsetsResponse.Topic(topic_name=asked.topic_name, topic_id=topic_id, partitions=[])
        for part in asked.partitions:
            altered = _Altered(partition_index=part.partition_index)
            answer.partitions.append(altered)
            error = _error_of_start(topic, readable, part)
            if error:
                _refuse(broker, altered, error)
            else:
                place = topic_id, part.partition_index
                starts[place] = part.start_offset  # of one that is named twice the last counts
                answers.setdefault(place, []).append(altered)
        response.responses.append(answer)
        yield len(asked.partitions)
    _check_group(broker, group_id, may_be_missing=True)
    yield from _alter(broker, group_id, starts, answers)
    return response


def _alter(
    broker: Services,
    group_id: str,
    starts: Mapping[TopicIdPartition, int],
    answers: Mapping[TopicIdPartition, Sequence[_Altered]],
) -> Steps[None]:
    """Write the start offsets, AT_ONCE partitions in one unit; put errors into `answers`. Raises KafkaError if nothing
    could be written.
    """
    places, some = list(starts), dict[TopicIdPartition, int]()
    for first in range(0, len(places), AT_ONCE):
        some = {place: starts[place] for place in places[first : first + AT_ONCE]}
        gone = [place for place in some if place[0] not in broker.topics.by_id]  # deleted while others were served
        for place in gone:
            del some[place]
        refused, error = gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            if some:
                broker.share_groups.alter(group_id, some)
        except KafkaError as failure:
            if not first:
                raise
            refused, error = places[first:], failure.code
        for place in refused:
            for answer in answers[place]:
                _refuse(broker, answer, error)
        if len(refused) > len(gone):
            return
        yield UNITS_OF_A_START * len(some)


def _refuse(broker: Services, answer: _Altered, error: ErrorCode) -> None:
    """Count an error of AlterShareGroupOffsets, and put its code and text into the partition's answer."""
    broker.metrics.error("AlterShareGroupOffsets", error)
    answer.error_code, answer.error_message = error, error.text


def _error_of_start(
    topic: Topic | None, readable: bool, part: AlterShareGroupOffsetsRequest.Topic.Partition
) -> ErrorCode:
    """Return why the partition's start offset cannot be set; NONE if it can."""
    if not readable:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if topic is None or not 0 <= part.partition_index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if part.start_offset >= 0 else ErrorCode.INVALID_REQUEST


# ---- deleting ------------------------------------------------------------------------------------------------


@handles(DeleteShareGroupOffsetsRequest, may_be_long=True)
def delete_share_group_offsets(
    broker: Services, call: Call, request: DeleteShareGroupOffsetsRequest
) -> Steps[DeleteShareGroupOffsetsResponse]:
    """Delete a group's share partitions of these topics, each topic in one unit."""
    group_id = request.group_id
    broker.access.check(call.session, Operation.DELETE, ResourceType.GROUP, group_id)
    _check_group(broker, group_id, may_be_missing=False)
    has = Counter(key.topic_id for key in broker.share_partitions.of_group(group_id))
    responses = []
    for asked in request.topics:
        topic = broker.topics.by_name.get(asked.topic_name)
        answer = DeleteShareGroupOffsetsResponse.Topic(topic_name=asked.topic_name, topic_id=ZERO_UUID)
        units = 1
        try:
            broker.access.check(call.session, Operation.READ, ResourceType.TOPIC, asked.topic_name)
            if topic is None or not has[topic.id]:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            broker.share_groups.delete_offsets(group_id, [topic.id])
            answer.topic_id, units = topic.id, UNITS_OF_A_START * has.pop(topic.id)
        except KafkaError as error:
            broker.metrics.error("DeleteShareGroupOffsets", error.code)
            answer.error_code, answer.error_message = error.code, error.text
        responses.append(answer)
        yield units
    return DeleteShareGroupOffsetsResponse(responses=responses)


def _check_group(broker: Services, group_id: str, *, may_be_missing: bool) -> None:
    """Raise KafkaError unless the group is a share group without members and without pending acknowledgements.

    may_be_missing: whether a group that does not exist at all is accepted, too.
    """
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
    broker.group_offsets.check_online(group_id)
    group = broker.share_groups.groups.get(group_id)
    if group is not None:
        group.check_empty()
        broker.share_partitions.check_nothing_pending(group_id)
    elif not may_be_missing or broker.group_kinds.exists(group_id):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group_id} is no share group")

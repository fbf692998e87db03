"""ShareGroupHeartbeat and ShareGroupDescribe: groups whose members share partitions (KIP-932).

An invalid request is refused before the group sees it, with Kafka's error texts and in its order: rights on the group,
the member's id, rights on the topics, then the request's other fields. If a group begins to read at a point in time, a
worker thread first looks up the offsets of that time.

Sources: Kafka's KafkaApis, GroupCoordinatorService; asked of 4.3.1.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import partial

from ...effects.threads import JobDropped
from ...protocol.encoding import Lazy
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.share_groups import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ...storage.log.reads import Gone
from ..groups.share.coordinator import NOT_LOOKED_UP, Starts
from ..groups.share.heartbeats import JOINS, LEAVES, Heartbeat
from ..groups.share.machine import ShareGroup
from ..groups.targets import Partitions, TopicId
from ..net.turns import BEHIND_SHORT, AnswerRoom, Steps
from ..net.waiting import Parked
from ..requests.dispatch import Call, handles
from ..requests.group_requests import (
    MANY_TOPICS,
    MEMBER_BYTES,
    PARTITION_BYTES,
    SeenGroups,
    check_text,
    describe_each,
    in_parts,
    named_partitions,
    names_of,
    sees_all,
    sight,
)
from ..requests.services import Services
from ..security.acls import Operation, ResourceType
from ..topics.names import TopicIdPartition

LONGEST_MEMBER_ID = 36  # letters: a UUID as text
SIMPLE = "simple"
_Response = ShareGroupHeartbeatResponse
_Described = ShareGroupDescribeResponse.Group
_Member = _Described.Member
Reply = ShareGroupHeartbeatResponse | Parked


# ---- ShareGroupHeartbeat -------------------------------------------------------------------------------------


@handles(ShareGroupHeartbeatRequest)
def share_group_heartbeat(broker: Services, call: Call, request: ShareGroupHeartbeatRequest) -> Reply | Steps[Reply]:
    """Handle a member's heartbeat, join or leave. The answer contains the member's epoch, and its assignment if that is
    new.
    """
    names = request.subscribed_topic_names or []
    if len(names) > MANY_TOPICS:
        return _answer_in_steps(broker, call, request)
    return _answer(broker, call, request, may_see=all(map(sight(broker, call), names)))


def _answer_in_steps(broker: Services, call: Call, request: ShareGroupHeartbeatRequest) -> Steps[Reply]:
    """Answer a heartbeat with many topics in steps, behind short requests of others."""
    yield BEHIND_SHORT
    may_see = yield from sees_all(broker, call, request.subscribed_topic_names or [])
    return _answer(broker, call, request, may_see=may_see)


def _answer(broker: Services, call: Call, request: ShareGroupHeartbeatRequest, *, may_see: bool) -> Reply:
    """Handle a heartbeat. Returns the response, or a Parked that gets it when start offsets are looked up. may_see:
    whether the client may describe all topics that the heartbeat names.
    """
    try:
        broker.access.check(call.session, Operation.READ, ResourceType.GROUP, request.group_id)
        if not 0 < len(request.member_id) <= LONGEST_MEMBER_ID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
        if not may_see:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        _check(request)
    except KafkaError as error:
        return _refused(broker, error)
    wanted = []
    if request.member_epoch != LEAVES:
        wanted = broker.share_groups.to_look_up(request.group_id, request.subscribed_topic_names or ())
    if wanted:
        return _Lookup(broker, call, request, dict(wanted)).parked
    return _beat(broker, call, request, NOT_LOOKED_UP)


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST if the request is not valid by itself."""
    for text, name in (request.member_id, "MemberId"), (request.group_id, "GroupId"), (request.rack_id, "RackId"):
        check_text(text, name)
    if request.member_epoch == JOINS and not request.subscribed_topic_names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")


def _refused(broker: Services, error: KafkaError) -> _Response:
    """Return a response with this error, and count the error."""
    broker.metrics.error("ShareGroupHeartbeat", error.code)
    return _Response(error_code=error.code, error_message=error.text)


def _beat(broker: Services, call: Call, request: ShareGroupHeartbeatRequest, looked_up: Starts) -> _Response:
    """Handle one heartbeat of a member. looked_up: the start offsets found for new share partitions."""
    names = request.subscribed_topic_names
    beat = Heartbeat(
        request.member_id,
        request.member_epoch,
        request.rack_id,
        None if names is None else tuple(names),
        call.client_id or "",
        f"/{call.client_host}",
        user=call.session,
    )
    try:
        if beat.epoch == LEAVES:
            answer, interval_ms = broker.group_kinds.share_leave(request.group_id, beat), 0
        else:
            answer = broker.group_kinds.share_heartbeat(request.group_id, beat, looked_up)
            interval_ms = broker.share_groups.heartbeat_interval_ms(request.group_id)
    except KafkaError as error:
        return _refused(broker, error)
    return _Response(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=None if answer.assigned is None else _assignment(answer.assigned),
    )


def _assignment(assigned: Partitions) -> _Response.Assignment:
    """Return the assignment in the form of the response: topic ids, each with its partitions in ascending order."""
    made = _Response.Assignment.TopicPartitions
    return _Response.Assignment(
        topic_partitions=[made(topic_id=key, partitions=sorted(each)) for key, each in assigned.items()]
    )


class _Lookup:
    """A heartbeat that waits until worker threads have found the start offsets of new share partitions by a timestamp.

    A partition whose offset cannot be found is left to the next heartbeat.
    """

    def __init__(
        self, broker: Services, call: Call, request: ShareGroupHeartbeatRequest, wanted: Mapping[TopicIdPartition, int]
    ) -> None:
        """Begin the lookups; if none needs a worker thread, answer at once. wanted: by partition, the time in ms whose
        offset is looked up.
        """
        self.parked = Parked()
        self._broker = broker
        self._call = call
        self._request = request
        self._found: dict[TopicIdPartition, int] = {}
        self._jobs_left = 1
        for place, at_ms in wanted.items():
            self._look_up(place, at_ms)
        self._job_ended()

    def _look_up(self, place: TopicIdPartition, at_ms: int) -> None:
        """Find the first offset at or after the time at_ms, or the end of the log if there is none. If needed, a worker
        thread searches. Nothing is found for a deleted topic or an offline partition.
        """
        topic = self._broker.topics.by_id.get(place[0])
        if topic is None or topic.partitions[place[1]].log.offline is not None:
            return
        log = topic.partitions[place[1]].log
        job = log.offset_for_time(at_ms, log.high_watermark)
        if job is None:
            self._found[place] = log.end_offset
            return
        self._jobs_left += 1
        self._broker.read_executor.submit(
            job.run,
            lambda found: self._take(place, at_ms, found),
            owner=self._call.connection,
            wanted=lambda: not (self.parked.cancelled or self._call.connection.has_left()),
        )

    def _take(self, place: TopicIdPartition, at_ms: int, found: object) -> None:
        """Use a worker's result. If segments were deleted meanwhile, search again."""
        if isinstance(found, Gone):
            self._look_up(place, at_ms)
        elif isinstance(found, tuple):
            self._found[place] = found[0]
        elif found is None:  # no record is as new: the group begins at the end of the log
            topic = self._broker.topics.by_id.get(place[0])
            if topic is not None:
                self._found[place] = topic.partitions[place[1]].log.end_offset
        elif isinstance(found, BaseException) and not isinstance(found, JobDropped):
            self._broker.metrics.error("ShareGroupHeartbeat", ErrorCode.KAFKA_STORAGE_ERROR)
        self._job_ended()

    def _job_ended(self) -> None:
        """Count one lookup less. After the last one, handle the heartbeat and answer it."""
        self._jobs_left -= 1
        if not self._jobs_left and not self.parked.cancelled:
            self.parked.answer(_beat(self._broker, self._call, self._request, self._found))


# ---- ShareGroupDescribe --------------------------------------------------------------------------------------


@handles(ShareGroupDescribeRequest, may_be_long=True)
def share_group_describe(
    broker: Services, call: Call, request: ShareGroupDescribeRequest
) -> Steps[ShareGroupDescribeResponse]:
    """Answer with each group's epochs, members and their assignments."""
    groups = SeenGroups(broker, call, broker.group_kinds.share_group, partial(_named_topics, broker))
    yield from groups.look(request.group_ids)
    describe = partial(_describe, broker, call, groups, request.include_authorized_operations)
    return ShareGroupDescribeResponse(groups=describe_each(broker, call, request.group_ids, describe, _Described))


def _describe(
    broker: Services,
    call: Call,
    groups: SeenGroups[ShareGroup],
    with_operations: bool,
    group_id: str,
    room: AnswerRoom,
) -> _Described:
    """Return the description of one share group. Raises KafkaError. room: how many bytes the answer may still have."""
    group = groups.find(group_id)
    members = list(group.members)
    found = _Described(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch.epoch,
        assignment_epoch=group.target_epoch.epoch,
        assignor_name=SIMPLE,
        members=Lazy(len(members), (_member(broker, group, member_id, room) for member_id in members)),
    )
    if with_operations:
        found.authorized_operations = broker.access.operations(call.session, ResourceType.GROUP, group_id)
    return found


def _named_topics(broker: Services, group: ShareGroup) -> Iterator[Collection[str]]:
    """Yield the names of all topics that a description of the group contains, some at a time."""
    assigned: set[TopicId] = set()
    for current in list(group.currents.values()):
        yield names_of(broker, current.assigned.keys() - assigned)
        assigned.update(current.assigned)
    yield from in_parts(list(group.subscribers))


def _member(broker: Services, group: ShareGroup, member_id: str, room: AnswerRoom) -> _Member:
    """Return the description of one member; an empty one if it has left meanwhile."""
    member, current, made = group.members.get(member_id), group.current(member_id), _Member.Assignment
    if member is None:  # it left while the answer was written
        return _Member(
            member_id=member_id,
            member_epoch=LEAVES,
            client_id="",
            client_host="",
            subscribed_topic_names=[],
            assignment=made(topic_partitions=[]),
        )
    partitions = sum(map(len, current.assigned.values()))
    room.take(MEMBER_BYTES + PARTITION_BYTES * partitions + sum(map(len, member.topics)))
    return _Member(
        member_id=member_id,
        rack_id=member.rack_id,
        member_epoch=current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=made(topic_partitions=named_partitions(broker, current.assigned, made.TopicPartitions)),
    )

"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: consumer groups whose partitions the broker assigns (KIP-848).

An invalid request is refused before the group sees it, with Kafka's error texts and in its order: rights on the group,
rights on the topics, then the request's own fields.

Sources: Kafka's KafkaApis, GroupCoordinatorService.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from uuid import UUID

from ...protocol.encoding import Lazy
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ..groups.consumer.heartbeats import JOINS, LEAVES, LEAVES_FOR_A_WHILE, NO_TIMEOUT, Heartbeat
from ..groups.consumer.machine import ConsumerGroup
from ..groups.consumer.reconciling import Owned, merge
from ..groups.consumer.records import Held
from ..groups.targets import TopicId
from ..net.turns import BEHIND_SHORT, LOOK_UNITS, AnswerRoom, Steps
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

OWN_ID_SINCE = 1  # KIP-1082
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
MEMBERS_OF_A_LARGE_GROUP = 100
_Assignment = ConsumerGroupHeartbeatResponse.Assignment
_Described = ConsumerGroupDescribeResponse.Group
_Member = _Described.Member


# ---- ConsumerGroupHeartbeat ----------------------------------------------------------------------------------


@handles(ConsumerGroupHeartbeatRequest)
def consumer_group_heartbeat(
    broker: Services, call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Steps[ConsumerGroupHeartbeatResponse]:
    """Handle a member's heartbeat, join or leave. The answer contains the member's epoch, and its assignment if that is
    new.

    In a large group hundreds of members may come and go at once. So a heartbeat that changes something there is
    answered in steps, after other requests; so is one that subscribes to many topics.
    """
    group, names = broker.group_kinds.consumer_group(request.group_id), request.subscribed_topic_names or ()
    if len(names) > MANY_TOPICS or (group is not None and _is_large(group) and _has_news(group, request)):
        return _answer_in_steps(broker, call, request)
    return _answer(broker, call, request, may_see=all(map(sight(broker, call), names)))


def _is_large(group: ConsumerGroup) -> bool:
    """Return whether the group has so many members that a heartbeat with changes is answered in steps."""
    return len(group.subscriptions) > MEMBERS_OF_A_LARGE_GROUP


def _has_news(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether the heartbeat reports changes, or the answer will contain some."""
    return request.member_epoch != group.target_epoch.epoch or request.topic_partitions is not None


def _answer_in_steps(
    broker: Services, call: Call, request: ConsumerGroupHeartbeatRequest
) -> Steps[ConsumerGroupHeartbeatResponse]:
    """Answer a heartbeat that takes long, in steps, behind short requests of others."""
    yield BEHIND_SHORT
    may_see = yield from sees_all(broker, call, request.subscribed_topic_names or [])
    answered = _answer(broker, call, request, may_see=may_see)
    yield LOOK_UNITS  # with this step, the work counts by the time it took
    return answered


def _answer(
    broker: Services, call: Call, request: ConsumerGroupHeartbeatRequest, *, may_see: bool
) -> ConsumerGroupHeartbeatResponse:
    """Handle a heartbeat. may_see: whether the client may describe all topics that it names."""
    try:
        broker.access.check(call.session, Operation.READ, ResourceType.GROUP, request.group_id)
        if not may_see:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        _check(broker, call.version, request)
        beat = _heartbeat(broker, call, request)
        if beat.epoch in (LEAVES, LEAVES_FOR_A_WHILE):
            answer, interval_ms = broker.group_kinds.leave(request.group_id, beat), 0
        else:
            answer = broker.group_kinds.heartbeat(request.group_id, beat)
            interval_ms = broker.consumer_groups.heartbeat_interval_ms(request.group_id)
    except KafkaError as error:
        broker.metrics.error("ConsumerGroupHeartbeat", error.code)
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.text)
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=None if answer.assigned is None else _assignment(answer.assigned),
    )


def _check(broker: Services, version: int, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST or UNSUPPORTED_ASSIGNOR if the request is not valid."""
    epoch = request.member_epoch
    if version >= OWN_ID_SINCE or epoch > 0 or epoch == LEAVES:
        check_text(request.member_id, "MemberId")
    for text, name in (request.group_id, "GroupId"), (request.instance_id, "InstanceId"), (request.rack_id, "RackId"):
        check_text(text, name)
    wrong = None
    if epoch == JOINS:
        if request.rebalance_timeout_ms == NO_TIMEOUT:
            wrong = "RebalanceTimeoutMs must be provided in first request."
        elif request.topic_partitions is None or request.topic_partitions:
            wrong = "TopicPartitions must be empty when (re-)joining."
        elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            wrong = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        wrong = "InstanceId can't be null."
    elif epoch < LEAVES_FOR_A_WHILE:
        wrong = "MemberEpoch is invalid."
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    known = broker.settings.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in known:
        text = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(known)}."
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, text)


def _heartbeat(broker: Services, call: Call, request: ConsumerGroupHeartbeatRequest) -> Heartbeat:
    """Convert the request to a Heartbeat of the group. A member without an id gets a new one."""
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return Heartbeat(
        request.member_id or str(UUID(bytes=broker.rng.bytes(16), version=4)),
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else tuple(names),
        request.subscribed_topic_regex,
        request.server_assignor,
        None if owned is None else _owned(owned),
        call.client_id or "",
        f"/{call.client_host}",
        user=call.session,
    )


def _owned(entries: Iterable[ConsumerGroupHeartbeatRequest.TopicPartitions]) -> Owned:
    """Return the owned partitions by topic. A topic may have several entries, which are merged."""
    found: dict[TopicId, set[int]] = {}
    for each in entries:
        found.setdefault(each.topic_id, set()).update(each.partitions)
    return found


def _assignment(assigned: Held) -> _Assignment:
    """Return the assigned partitions in the form of the response."""
    return _Assignment(
        topic_partitions=[
            _Assignment.TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in assigned.items()
        ]
    )


# ---- ConsumerGroupDescribe -----------------------------------------------------------------------------------


@handles(ConsumerGroupDescribeRequest, may_be_long=True)
def consumer_group_describe(
    broker: Services, call: Call, request: ConsumerGroupDescribeRequest
) -> Steps[ConsumerGroupDescribeResponse]:
    """Answer with each group's epochs, members, and their current and target assignments."""
    groups = SeenGroups(broker, call, broker.group_kinds.describe, partial(_named_topics, broker))
    yield from groups.look(request.group_ids)
    describe = partial(_describe, broker, call, groups, request.include_authorized_operations)
    return ConsumerGroupDescribeResponse(groups=describe_each(broker, call, request.group_ids, describe, _Described))


def _describe(
    broker: Services,
    call: Call,
    groups: SeenGroups[ConsumerGroup],
    with_operations: bool,
    group_id: str,
    room: AnswerRoom,
) -> _Described:
    """Return the description of one group. Raises KafkaError. room: how many bytes the answer may still have."""
    group = groups.find(group_id)
    members = list(group.subscriptions)
    found = _Described(
        group_id=group_id,
        group_state=group.state.shown,
        group_epoch=group.epoch.epoch,
        assignment_epoch=group.target_epoch.epoch,
        assignor_name=group.assignor,
        members=Lazy(len(members), (_member(broker, group, member_id, room) for member_id in members)),
    )
    if with_operations:
        found.authorized_operations = broker.access.operations(call.session, ResourceType.GROUP, group_id)
    return found


def _named_topics(broker: Services, group: ConsumerGroup) -> Iterator[Collection[str]]:
    """Yield the names of all topics that a description of the group contains, some at a time."""
    currents = [each for current in group.currents.values() for each in (current.assigned, current.revoking)]
    known: set[TopicId] = set()
    for each in (*currents, *(target.partitions for target in group.targets.values())):
        yield names_of(broker, each.keys() - known)
        known.update(each)
    yield from in_parts(list(group.subscribers))


def _member(broker: Services, group: ConsumerGroup, member_id: str, room: AnswerRoom) -> _Member:
    """Return the description of one member; an empty one if it has left meanwhile."""
    subscription, current = group.subscriptions.get(member_id), group.current(member_id)
    if subscription is None:  # it left while the answer was written
        return _Member(
            member_id=member_id,
            member_epoch=LEAVES,
            client_id="",
            client_host="",
            subscribed_topic_names=[],
            assignment=_Member.Assignment(topic_partitions=[]),
            target_assignment=_Member.Assignment(topic_partitions=[]),
        )
    target = group.target(member_id)
    partitions = sum(sum(map(len, each.values())) for each in (current.assigned, current.revoking, target))
    room.take(MEMBER_BYTES + PARTITION_BYTES * partitions + sum(map(len, subscription.topics)))
    return _Member(
        member_id=member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=current.epoch,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=list(subscription.topics),
        subscribed_topic_regex=subscription.regex,
        assignment=_named_assignment(broker, merge(current.assigned, current.revoking)),  # what it may still own
        target_assignment=_named_assignment(broker, target),
        member_type=CONSUMER_MEMBER if subscription.classic is None else CLASSIC_MEMBER,
    )


def _named_assignment(broker: Services, assigned: Mapping[TopicId, Iterable[int]]) -> _Member.Assignment:
    """Return the assigned partitions in the form of the response, with topic names."""
    made = _Member.Assignment
    return made(topic_partitions=named_partitions(broker, assigned, made.TopicPartitions))

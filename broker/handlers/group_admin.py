"""DescribeGroups, ListGroups, DeleteGroups: an admin's requests about groups.

Each group in the request is answered. A group that has offsets but has never had members is Empty, and has no protocol
type, as in Kafka.

Sources: KIP-222, 518, 848, 1043; Kafka's GroupMetadataManager.
"""

from ...protocol.encoding import Lazy
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cluster import NO_OPERATIONS
from ...protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ..groups.members import Member
from ..groups.states import State
from ..net.turns import SUBJECT_UNITS, AnswerRoom, Steps, answer_each
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acls import Operation, ResourceType

NOT_FOUND_SINCE = 6  # of DescribeGroups (KIP-1043); before, such a group is Dead
CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"
MEMBER_BYTES = 200  # of an answer, for its ids and lengths
LATER = ErrorCode.COORDINATOR_NOT_AVAILABLE, "Ask for fewer groups at once."  # clients ask for these again
_Described = DescribeGroupsResponse.Group


@handles(DescribeGroupsRequest, may_be_long=True)
def describe_groups(broker: Services, call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Answer with each group's state and members. The members' metadata is included only while the group is Stable."""
    room = AnswerRoom(len(broker.server.connections))
    answers = (
        _describe_or_refuse(broker, call, group_id, request.include_authorized_operations, room)
        for group_id in request.groups
    )
    return DescribeGroupsResponse(groups=Lazy(len(request.groups), answers))


def _describe_or_refuse(
    broker: Services, call: Call, group_id: str, with_operations: bool, room: AnswerRoom
) -> _Described:
    """Return the description of one group, or its error. room: how many bytes the answer may still have; if it has
    none, the error tells the client to ask again.
    """
    try:
        broker.access.check(call.session, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        broker.group_offsets.check_online(group_id)
        if room.is_full:
            raise KafkaError(*LATER)
    except KafkaError as error:
        broker.metrics.error("DescribeGroups", error.code)
        return _Described(
            group_id=group_id,
            error_code=error.code,
            error_message=error.text,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        )
    operations = NO_OPERATIONS
    if with_operations:
        operations = broker.access.operations(call.session, ResourceType.GROUP, group_id)
    return _describe(broker, call.version, group_id, operations, room)


def _describe(broker: Services, version: int, group_id: str, operations: int, room: AnswerRoom) -> _Described:
    """Return the description of one group. An unknown group has the state Dead, and from version NOT_FOUND_SINCE
    on the error GROUP_ID_NOT_FOUND.
    """
    group = broker.groups.group(group_id)
    found = _Described(
        group_id=group_id,
        group_state=group.state.shown if group is not None else State.EMPTY.shown,
        protocol_type=(group.protocol_type or "") if group is not None else "",
        protocol_data="",
        members=[],
        authorized_operations=operations,
    )
    is_other = group_id in broker.consumer_groups.groups or group_id in broker.share_groups.groups
    if group is None and (is_other or not broker.group_offsets.knows(group_id)):
        found.group_state = State.DEAD.shown
        if version >= NOT_FOUND_SINCE:
            kind = " is not a classic group" if is_other else " not found"
            found.error_code, found.error_message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id}{kind}."
            found.authorized_operations = NO_OPERATIONS
    elif group is not None:
        protocol = group.protocol if group.state is State.STABLE else None
        found.protocol_data = protocol or ""
        members = list(group.members.values())
        found.members = Lazy(len(members), (_member(each, protocol, room) for each in members))
    return found


def _member(member: Member, protocol: str | None, room: AnswerRoom) -> _Described.Member:
    """Return the description of a group member, and take its size from `room`. protocol: the protocol whose metadata to
    include; None to include none.
    """
    metadata = member.metadata(protocol) if protocol is not None else b""
    room.take(MEMBER_BYTES + len(metadata) + len(member.assignment))
    return _Described.Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=metadata,
        member_assignment=member.assignment,
    )


@handles(ListGroupsRequest, may_be_long=True)
def list_groups(broker: Services, call: Call, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    """List the groups in one of the given states and of one of the given types. An empty filter matches all.

    A client that may describe the cluster sees all groups, another client those that it may describe.
    """
    access, session = broker.access, call.session
    sees_all = access.allows_on_cluster(session, Operation.DESCRIBE)
    states = {name.lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    listed = []
    for group_id in broker.group_kinds.ids():
        found = _list_entry(broker, group_id)
        if (
            found is not None
            and (not types or found.group_type in types)
            and (not states or found.group_state.lower() in states)
            and (sees_all or access.allows(session, Operation.DESCRIBE, ResourceType.GROUP, group_id))
        ):
            listed.append(found)
        yield 1
    return ListGroupsResponse(groups=listed)


def _list_entry(broker: Services, group_id: str) -> ListGroupsResponse.Group | None:
    """Return the entry of a group; None if it does not exist any more."""
    consumer, group = broker.group_kinds.consumer_group(group_id), broker.groups.group(group_id)
    if consumer is not None:
        return ListGroupsResponse.Group(
            group_id=group_id, protocol_type=CONSUMER, group_state=consumer.state.shown, group_type=CONSUMER
        )
    share = broker.share_groups.groups.get(group_id)
    if share is not None:
        return ListGroupsResponse.Group(
            group_id=group_id, protocol_type=SHARE, group_state=share.state, group_type=SHARE
        )
    if group is None and not broker.group_offsets.has_committed(group_id):
        return None
    return ListGroupsResponse.Group(
        group_id=group_id,
        protocol_type=(group.protocol_type or "") if group is not None else "",
        group_state=(group.state if group is not None else State.EMPTY).shown,
        group_type=CLASSIC,
    )


@handles(DeleteGroupsRequest, may_be_long=True)
def delete_groups(broker: Services, call: Call, request: DeleteGroupsRequest) -> Steps[DeleteGroupsResponse]:
    """Delete groups with their offsets, each in a unit of its own. A group that is named twice is answered once, as in
    Kafka.
    """
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(
        results=(yield from answer_each(names, lambda name: _delete(broker, call, name), SUBJECT_UNITS))
    )


def _delete(broker: Services, call: Call, group_id: str) -> DeleteGroupsResponse.Result:
    """Delete one group. Returns its result, with the error if it was refused."""
    try:
        broker.access.check(call.session, Operation.DELETE, ResourceType.GROUP, group_id)
        broker.group_kinds.delete(group_id)
    except KafkaError as error:
        broker.metrics.error("DeleteGroups", error.code)
        return DeleteGroupsResponse.Result(group_id=group_id, error_code=error.code)
    return DeleteGroupsResponse.Result(group_id=group_id)

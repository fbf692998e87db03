"""DescribeGroups, ListGroups, DeleteGroups: looking after groups from outside.

Every group asked for is answered for (T25). A group that has offsets and never had members is Empty and without a
protocol type, as with Kafka. Sources: KIP-222, 518, 848, 1043; Kafka's GroupMetadataManager.
"""

from typing import TYPE_CHECKING

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
from ..dispatch import Call, handles
from ..groups.machine import Group
from ..groups.members import Member
from ..groups.states import State

if TYPE_CHECKING:
    from ..broker import Broker

GROUP_OPERATIONS = 3400  # bits of AclOperation that a group has: all allowed while there is no authorizer
NOT_FOUND_SINCE = 6  # of DescribeGroups (KIP-1043); before, such a group is Dead
CLASSIC = "classic"
MOST_BYTES = 16 << 20  # that one answer tells of what members said and have; a few groups are told whole in any case
_LATER = ErrorCode.COORDINATOR_NOT_AVAILABLE
_Described = DescribeGroupsResponse.Group


@handles(DescribeGroupsRequest)
def describe_groups(broker: "Broker", call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """The state, and the members; what they said only while the group is stable."""
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NO_OPERATIONS
    answers: list[_Described] = []
    left_bytes = MOST_BYTES
    for group_id in request.groups:
        found = _described_or_refused(broker, call.version, group_id, operations)
        left_bytes -= sum(len(each.member_metadata) + len(each.member_assignment) for each in found.members)
        if left_bytes < 0 and answers:
            found.error_code, found.error_message, found.members = _LATER, "Ask for fewer groups at once.", []
        answers.append(found)
    return DescribeGroupsResponse(groups=answers)


def _described_or_refused(broker: "Broker", version: int, group_id: str, operations: int) -> _Described:
    try:
        broker.group_offsets.check_online(group_id)
    except KafkaError as error:
        broker.metrics.error(error.code)
        return _Described(
            group_id=group_id,
            error_code=error.code,
            error_message=error.text,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=[],
        )
    return _described(broker, version, group_id, operations)


def _described(broker: "Broker", version: int, group_id: str, operations: int) -> _Described:
    group = broker.groups.group(group_id)
    found = _Described(
        group_id=group_id,
        group_state=group.state.shown if group is not None else State.EMPTY.shown,
        protocol_type=(group.protocol_type or "") if group is not None else "",
        protocol_data="",
        members=[],
        authorized_operations=operations,
    )
    if group is None and not broker.group_offsets.knows(group_id):
        found.group_state = State.DEAD.shown
        if version >= NOT_FOUND_SINCE:
            found.error_code, found.error_message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
            found.authorized_operations = NO_OPERATIONS
    elif group is not None:
        protocol = group.protocol if group.state is State.STABLE else None
        found.protocol_data = protocol or ""
        found.members = [_member(each, protocol) for each in group.members.values()]
    return found


def _member(member: Member, protocol: str | None) -> _Described.Member:
    return _Described.Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol) if protocol is not None else b"",
        member_assignment=member.assignment,
    )


@handles(ListGroupsRequest)
def list_groups(broker: "Broker", call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """All groups in one of the states, of one of the types; no filter lets all through."""
    states = {name.lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    listed = [_listed(group_id, group) for group_id, group in broker.groups.all().items()]
    return ListGroupsResponse(
        groups=[
            each
            for each in listed
            if (not states or each.group_state.lower() in states) and (not types or CLASSIC in types)
        ]
    )


def _listed(group_id: str, group: Group | None) -> ListGroupsResponse.Group:
    return ListGroupsResponse.Group(
        group_id=group_id,
        protocol_type=(group.protocol_type or "") if group is not None else "",
        group_state=(group.state if group is not None else State.EMPTY).shown,
        group_type=CLASSIC,
    )


@handles(DeleteGroupsRequest)
def delete_groups(broker: "Broker", call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Each group with its offsets, in a unit of its own; one that is named twice is answered for once, as by Kafka."""
    return DeleteGroupsResponse(results=[_deleted(broker, each) for each in dict.fromkeys(request.groups_names)])


def _deleted(broker: "Broker", group_id: str) -> DeleteGroupsResponse.Result:
    try:
        broker.groups.delete(group_id)
    except KafkaError as error:
        broker.metrics.error(error.code)
        return DeleteGroupsResponse.Result(group_id=group_id, error_code=error.code)
    return DeleteGroupsResponse.Result(group_id=group_id)

"""Consumer groups of the classic protocol: finding their coordinator, being a member, and looking after them.

What members tell each other (subscriptions, assignments) is bytes to a broker; it passes them on.
"""

from ..schema import Boolean, Bytes, Int8, Int16, Int32, String, field, request, response, struct
from .cluster import NO_OPERATIONS


@request(api=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """Ask for coordinators: of one key up to version 3, of a list of keys from version 4 on (KIP-699)."""

    key: String = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)  # 0 group, 1 transactional id, 2 share group
    coordinator_keys: list[String] = field("4+", factory=list)


@response(to=FindCoordinatorRequest)
class FindCoordinatorResponse:
    """The coordinator; from version 4 on one for each key, with an error of its own."""

    @struct
    class Coordinator:
        key: String
        node_id: Int32
        host: String
        port: Int32
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0-3", default=0)
    error_message: String | None = field("1-3", default=None)
    node_id: Int32 = field("0-3", default=-1)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=-1)
    coordinators: list[Coordinator] = field("4+", factory=list)


# ---- Being a member ------------------------------------------------------------------------------------------


@request(api=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """Join or rejoin a group. protocols: the assignors that the member supports, preferred ones first."""

    @struct
    class Protocol:
        name: String
        metadata: Bytes

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field("1+", default=-1)  # version 0: the session timeout
    member_id: String
    group_instance_id: String | None = field("5+", default=None)  # KIP-345
    protocol_type: String
    protocols: list[Protocol]
    reason: String | None = field("8+", default=None)  # KIP-800


@response(to=JoinGroupRequest)
class JoinGroupResponse:
    """The generation and its leader. Only the leader is sent the list of members."""

    @struct
    class Member:
        member_id: String
        group_instance_id: String | None = field("5+", default=None)
        metadata: Bytes

    throttle_time_ms: Int32 = field("2+", default=0)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: String | None = field("7+", default=None)
    protocol_name: String | None = field(nullable="7+", default="")
    leader: String
    skip_assignment: Boolean = field("9+", default=False)  # KIP-814: a static leader that came back
    member_id: String
    members: list[Member]


@request(api=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """Ask for the member's assignment. The leader's request carries the assignments of all members."""

    @struct
    class Assignment:
        member_id: String
        assignment: Bytes

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", default=None)
    protocol_type: String | None = field("5+", default=None)  # KIP-559
    protocol_name: String | None = field("5+", default=None)
    assignments: list[Assignment]


@response(to=SyncGroupRequest)
class SyncGroupResponse:
    """What the leader has assigned to this member."""

    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = 0
    protocol_type: String | None = field("5+", default=None)
    protocol_name: String | None = field("5+", default=None)
    assignment: Bytes


@request(api=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """Keep the member's session alive."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", default=None)


@response(to=HeartbeatRequest)
class HeartbeatResponse:
    """An error code; REBALANCE_IN_PROGRESS tells the member to rejoin."""

    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = 0


@request(api=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """Remove one member; from version 3 on several, by member id or by instance id (KIP-345)."""

    @struct
    class Member:
        member_id: String = field("3+", default="")
        group_instance_id: String | None = field("3+", default=None)
        reason: String | None = field("5+", default=None)

    group_id: String
    member_id: String = field("0-2", default="")
    members: list[Member] = field("3+", factory=list)


@response(to=LeaveGroupRequest)
class LeaveGroupResponse:
    """An error code; from version 3 on also one for each member."""

    @struct
    class Member:
        member_id: String = field("3+", default="")
        group_instance_id: String | None = field("3+", default=None)
        error_code: Int16 = field("3+", default=0)

    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = 0
    members: list[Member] = field("3+", factory=list)


# ---- Looking after groups ------------------------------------------------------------------------------------


@request(api=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """Ask for the state and the members of groups."""

    groups: list[String]
    include_authorized_operations: Boolean = field("3+", default=False)


@response(to=DescribeGroupsRequest)
class DescribeGroupsResponse:
    """Each group asked for. One that does not exist is "Dead" before version 6, GROUP_ID_NOT_FOUND from then on."""

    @struct
    class Group:
        @struct
        class Member:
            member_id: String
            group_instance_id: String | None = field("4+", default=None)
            client_id: String
            client_host: String
            member_metadata: Bytes
            member_assignment: Bytes

        error_code: Int16 = 0
        error_message: String | None = field("6+", default=None)  # KIP-1043
        group_id: String
        group_state: String
        protocol_type: String
        protocol_data: String
        members: list[Member]
        authorized_operations: Int32 = field("3+", default=NO_OPERATIONS)

    throttle_time_ms: Int32 = field("1+", default=0)
    groups: list[Group]


@request(api=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """List all groups, or those in some states (KIP-518) or of some types (KIP-848)."""

    states_filter: list[String] = field("4+", factory=list)
    types_filter: list[String] = field("5+", factory=list)


@response(to=ListGroupsRequest)
class ListGroupsResponse:
    """The groups. An empty protocol type means that the group only has committed offsets."""

    @struct
    class Group:
        group_id: String
        protocol_type: String
        group_state: String = field("4+", default="")
        group_type: String = field("5+", default="")

    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = 0
    groups: list[Group]


@request(api=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    """Delete groups and their committed offsets."""

    groups_names: list[String]


@response(to=DeleteGroupsRequest)
class DeleteGroupsResponse:
    """An error for each group."""

    @struct
    class Result:
        group_id: String
        error_code: Int16 = 0

    throttle_time_ms: Int32 = 0
    results: list[Result]

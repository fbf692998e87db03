"""Share groups: one heartbeat for all that a member does, and their description (KIP-932).

The member chooses its id. A heartbeat contains only what has changed since the last one; null means "as before".
Epoch 0 joins, -1 leaves. Their versions 0 were for trying out and are in no release.
"""

from ..schema import Boolean, Int16, Int32, String, Uuid, field, request, response, struct
from .cluster import NO_OPERATIONS


@request(api=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    """Keep a member in its group, or let it join (epoch 0) or leave (epoch -1)."""

    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: String | None = None
    subscribed_topic_names: list[String] | None = None


@response(to=ShareGroupHeartbeatRequest)
class ShareGroupHeartbeatResponse:
    """The member's epoch and, where it has changed, its assignment."""

    @struct
    class Assignment:
        @struct
        class TopicPartitions:
            topic_id: Uuid
            partitions: list[Int32]

        topic_partitions: list[TopicPartitions]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None


@request(api=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
    """Ask for the state, the members and the assignments of groups."""

    group_ids: list[String]
    include_authorized_operations: Boolean = False


@response(to=ShareGroupDescribeRequest)
class ShareGroupDescribeResponse:
    """Every group asked for, each with an error of its own."""

    @struct
    class Group:
        @struct
        class Member:
            @struct
            class Assignment:
                @struct
                class TopicPartitions:
                    topic_id: Uuid
                    topic_name: String
                    partitions: list[Int32]

                topic_partitions: list[TopicPartitions]

            member_id: String
            rack_id: String | None = None
            member_epoch: Int32
            client_id: String
            client_host: String
            subscribed_topic_names: list[String]
            assignment: Assignment

        error_code: Int16 = 0
        error_message: String | None = None
        group_id: String
        group_state: String = ""
        group_epoch: Int32 = 0
        assignment_epoch: Int32 = 0
        assignor_name: String = ""
        members: list[Member] = field(factory=list)
        authorized_operations: Int32 = NO_OPERATIONS

    throttle_time_ms: Int32 = 0
    groups: list[Group]

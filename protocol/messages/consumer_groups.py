"""Consumer groups of the newer protocol (KIP-848): one heartbeat for all that a member does, and their description.

A heartbeat contains only what has changed since the last one; null means "as before". Epochs below zero are a member
that leaves: -1 for good, -2 a static one that comes back.
"""

from ..schema import Boolean, Int8, Int16, Int32, String, Uuid, field, request, response, struct
from .cluster import NO_OPERATIONS


@request(api=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """A member's heartbeat: its epoch and the partitions it owns. Epoch 0 asks to join."""

    @struct
    class TopicPartitions:
        topic_id: Uuid
        partitions: list[Int32]

    group_id: String
    member_id: String  # from version 1 on the member chooses it (KIP-1082)
    member_epoch: Int32
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: String | None = field("1+", default=None)
    server_assignor: String | None = None
    topic_partitions: list[TopicPartitions] | None = None


@response(to=ConsumerGroupHeartbeatRequest)
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its assignment if that has changed."""

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


@request(api=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    """Ask for the state of groups, with members and assignments."""

    group_ids: list[String]
    include_authorized_operations: Boolean = False


@response(to=ConsumerGroupDescribeRequest)
class ConsumerGroupDescribeResponse:
    """Each group asked for, with an error of its own."""

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
            instance_id: String | None = None
            rack_id: String | None = None
            member_epoch: Int32
            client_id: String
            client_host: String
            subscribed_topic_names: list[String]
            subscribed_topic_regex: String | None = None
            assignment: Assignment
            target_assignment: Assignment
            member_type: Int8 = field("1+", default=-1)  # 0 classic, 1 of this protocol (KIP-1099)

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

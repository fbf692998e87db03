"""Offsets: which one belongs to a time or ends an epoch, and which a group has committed."""

from ..primitives import ZERO_UUID
from ..schema import Boolean, Int8, Int16, Int32, Int64, String, Uuid, field, request, response, struct


@request(api=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    """Ask for the offset at a timestamp in each partition; negative timestamps ask for the ends of the log."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            current_leader_epoch: Int32 = field("4+", default=-1)
            timestamp: Int64  # -1 latest, -2 earliest, -3 largest timestamp, -4 earliest local, -5 and -6 tiered

        name: String
        partitions: list[Partition]

    replica_id: Int32 = -1
    isolation_level: Int8 = field("2+", default=0)
    topics: list[Topic]
    timeout_ms: Int32 = field("10+", default=0)
    raw: Boolean = field("6+", tag=10_000, default=False)  # of our own: whatever the topic's least isolation level is


@response(to=ListOffsetsRequest)
class ListOffsetsResponse:
    """The first offset at or after each timestamp; -1 and -1 where there is none."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            timestamp: Int64 = -1
            offset: Int64 = -1
            leader_epoch: Int32 = field("4+", default=-1)

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = field("2+", default=0)
    topics: list[Topic]


@request(api=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """Ask where leader epochs ended, so that a reader notices a log that was truncated."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition: Int32
            current_leader_epoch: Int32 = -1
            leader_epoch: Int32

        topic: String
        partitions: list[Partition]

    replica_id: Int32 = field("3+", default=-2)  # -1 a consumer, -2 one that debugs
    topics: list[Topic]


@response(to=OffsetForLeaderEpochRequest)
class OffsetForLeaderEpochResponse:
    """The largest epoch up to the one asked for, and the offset after its last record."""

    @struct
    class Topic:
        @struct
        class Partition:
            error_code: Int16 = 0
            partition: Int32
            leader_epoch: Int32 = -1
            end_offset: Int64 = -1

        topic: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    topics: list[Topic]


# ---- Commits -------------------------------------------------------------------------------------------------


@request(api=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    """Commit a group's offsets: by topic name up to version 9, by topic id from version 10 on (KIP-848)."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Int32 = field("6+", default=-1)
            committed_metadata: String | None = None

        name: String = field("0-9", default="")
        topic_id: Uuid = field("10+", default=ZERO_UUID)
        partitions: list[Partition]

    group_id: String
    generation_id_or_member_epoch: Int32 = -1  # -1 and no member: whoever uses the group for its offsets only
    member_id: String = ""
    group_instance_id: String | None = field("7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1)
    topics: list[Topic]


@response(to=OffsetCommitRequest)
class OffsetCommitResponse:
    """An error for each partition."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0

        name: String = field("0-9", default="")
        topic_id: Uuid = field("10+", default=ZERO_UUID)
        partitions: list[Partition]

    throttle_time_ms: Int32 = field("3+", default=0)
    topics: list[Topic]


@request(api=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    """Ask for the committed offsets of one group, from version 8 on of several (KIP-709). Null topics: all."""

    @struct
    class Topic:
        name: String = field("0-7", default="")
        partition_indexes: list[Int32] = field("0-7", factory=list)

    @struct
    class Group:
        @struct
        class Topic:
            name: String = field("8-9", default="")
            topic_id: Uuid = field("10+", default=ZERO_UUID)
            partition_indexes: list[Int32] = field("8+", factory=list)

        group_id: String = field("8+", default="")
        member_id: String | None = field("9+", default=None)
        member_epoch: Int32 = field("9+", default=-1)
        topics: list[Topic] | None = field("8+", factory=list)

    group_id: String = field("0-7", default="")
    topics: list[Topic] | None = field("0-7", nullable="2-7", factory=list)
    groups: list[Group] = field("8+", factory=list)
    require_stable: Boolean = field("7+", default=False)  # KIP-447


@response(to=OffsetFetchRequest)
class OffsetFetchResponse:
    """The offsets; -1 and no error where nothing was committed."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32 = field("0-7", default=0)
            committed_offset: Int64 = field("0-7", default=-1)
            committed_leader_epoch: Int32 = field("5-7", default=-1)
            metadata: String | None = field("0-7", default="")
            error_code: Int16 = field("0-7", default=0)

        name: String = field("0-7", default="")
        partitions: list[Partition] = field("0-7", factory=list)

    @struct
    class Group:
        @struct
        class Topic:
            @struct
            class Partition:
                partition_index: Int32 = field("8+", default=0)
                committed_offset: Int64 = field("8+", default=-1)
                committed_leader_epoch: Int32 = field("8+", default=-1)
                metadata: String | None = field("8+", default="")
                error_code: Int16 = field("8+", default=0)

            name: String = field("8-9", default="")
            topic_id: Uuid = field("10+", default=ZERO_UUID)
            partitions: list[Partition] = field("8+", factory=list)

        group_id: String = field("8+", default="")
        topics: list[Topic] = field("8+", factory=list)
        error_code: Int16 = field("8+", default=0)

    throttle_time_ms: Int32 = field("3+", default=0)
    topics: list[Topic] = field("0-7", factory=list)
    error_code: Int16 = field("2-7", default=0)
    groups: list[Group] = field("8+", factory=list)


@request(api=47, versions="0", flexible="none")
class OffsetDeleteRequest:
    """Delete a group's committed offsets of these partitions (KIP-496)."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32

        name: String
        partitions: list[Partition]

    group_id: String
    topics: list[Topic]


@response(to=OffsetDeleteRequest)
class OffsetDeleteResponse:
    """An error for the group, or one for each partition."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0

        name: String
        partitions: list[Partition]

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[Topic]

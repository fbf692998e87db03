"""ListOffsets and OffsetForLeaderEpoch: which offset stands at a time, or ends an epoch.

Commits of offsets belong here too (OffsetCommit, OffsetFetch, OffsetDelete), once there are groups.
"""

from ..schema import Int8, Int16, Int32, Int64, String, field, request, response, struct


@request(api=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    """A timestamp for each partition; the ones below zero ask for the ends of the log."""

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
    """Where the epochs that a reader knows have ended, so that it sees whether its log was cut."""

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
    """The largest epoch not above the one asked for, and the offset after its last record."""

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

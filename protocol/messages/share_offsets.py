"""Where share groups stand: reading, setting and deleting their start offsets (KIP-932; the lag: KIP-1226).

The field with the tag 10000 is ours: what the group has begun in a partition, and which transactions hold some of it
(docs/apis.md).
"""

from ..schema import Boolean, Int16, Int32, Int64, String, Uuid, field, request, response, struct


@request(api=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    """Asks for the start offsets of share groups."""

    @struct
    class Group:
        @struct
        class Topic:
            topic_name: String
            partitions: list[Int32]

        group_id: String
        topics: list[Topic] | None  # null: all that the group has

    groups: list[Group]


@response(to=DescribeShareGroupOffsetsRequest)
class DescribeShareGroupOffsetsResponse:
    """Every group asked for, each with an error of its own, and so each partition."""

    @struct
    class Group:
        @struct
        class Topic:
            @struct
            class Partition:
                @struct
                class Window:
                    @struct
                    class Pending:
                        first_offset: Int64
                        last_offset: Int64
                        transactional_id: String | None  # null: unknown, or not for this user
                        producer_id: Int64
                        member_id: String

                    size: Int32  # records from the start offset to the last that was given out
                    limit: Int32
                    pending_count: Int32  # records, also those of ranges that are left out
                    pending: list[Pending] = field(factory=list)  # by offset, the first ones
                    runs: Int32 = field("0+", tag=0, default=0)  # neighbours that are alike are one
                    lacks_memory: Boolean = field("0+", tag=1, default=False)  # for more of them

                partition_index: Int32
                start_offset: Int64 = -1
                leader_epoch: Int32 = 0
                lag: Int64 = field("1+", default=-1)  # -1: not known
                error_code: Int16 = 0
                error_message: String | None = None
                window: Window | None = field("0+", tag=10_000, default=None)

            topic_name: String
            topic_id: Uuid
            partitions: list[Partition]

        group_id: String
        topics: list[Topic] = field(factory=list)
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    groups: list[Group]


@request(api=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    """Sets the start offsets of a share group."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            start_offset: Int64

        topic_name: String
        partitions: list[Partition]

    group_id: String
    topics: list[Topic]


@response(to=AlterShareGroupOffsetsRequest)
class AlterShareGroupOffsetsResponse:
    """The result for each partition."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = None

        topic_name: String
        topic_id: Uuid
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[Topic] = field(factory=list)


@request(api=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    """Deletes the start offsets of a share group in these topics."""

    @struct
    class Topic:
        topic_name: String

    group_id: String
    topics: list[Topic]


@response(to=DeleteShareGroupOffsetsRequest)
class DeleteShareGroupOffsetsResponse:
    """The result for each topic."""

    @struct
    class Topic:
        topic_name: String
        topic_id: Uuid
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[Topic] = field(factory=list)

"""Creating, growing, emptying and deleting topics."""

from ..primitives import ZERO_UUID
from ..schema import Boolean, Int8, Int16, Int32, Int64, String, Uuid, field, request, response, struct


@request(api=19, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    """Create topics, each with a number of partitions or an assignment of replicas, never both."""

    @struct
    class Topic:
        @struct
        class Assignment:
            partition_index: Int32
            broker_ids: list[Int32]

        @struct
        class Config:
            name: String
            value: String | None

        name: String
        num_partitions: Int32 = -1  # -1: the broker's default, or as many as are assigned
        replication_factor: Int16 = -1
        assignments: list[Assignment] = field(factory=list)
        configs: list[Config] = field(factory=list)

    topics: list[Topic]
    timeout_ms: Int32 = 60000
    validate_only: Boolean = False


@response(to=CreateTopicsRequest)
class CreateTopicsResponse:
    """An error for each topic; from version 5 on also its configs."""

    @struct
    class Topic:
        @struct
        class Config:
            name: String
            value: String | None
            read_only: Boolean
            config_source: Int8 = -1
            is_sensitive: Boolean

        name: String
        topic_id: Uuid = field("7+", default=ZERO_UUID)
        error_code: Int16 = 0
        error_message: String | None = None
        topic_config_error_code: Int16 = field("5+", tag=0, default=0)
        num_partitions: Int32 = field("5+", default=-1)
        replication_factor: Int16 = field("5+", default=-1)
        configs: list[Config] | None = field("5+", factory=list)

    throttle_time_ms: Int32 = 0
    topics: list[Topic]


@request(api=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    """Delete topics: by name up to version 5, then by name or by id."""

    @struct
    class Topic:
        name: String | None = None
        topic_id: Uuid = ZERO_UUID

    topics: list[Topic] = field("6+", factory=list)
    topic_names: list[String] = field("0-5", factory=list)
    timeout_ms: Int32


@response(to=DeleteTopicsRequest)
class DeleteTopicsResponse:
    """An error for each topic, under the name or id by which it was named in the request."""

    @struct
    class Topic:
        name: String | None = field(nullable="6+")
        topic_id: Uuid = field("6+", default=ZERO_UUID)
        error_code: Int16 = 0
        error_message: String | None = field("5+", default=None)

    throttle_time_ms: Int32 = 0
    responses: list[Topic]


@request(api=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """Raise the number of partitions of topics."""

    @struct
    class Topic:
        @struct
        class Assignment:
            broker_ids: list[Int32]

        name: String
        count: Int32
        assignments: list[Assignment] | None = None

    topics: list[Topic]
    timeout_ms: Int32
    validate_only: Boolean = False


@response(to=CreatePartitionsRequest)
class CreatePartitionsResponse:
    """An answer for each topic."""

    @struct
    class Topic:
        name: String
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    results: list[Topic]


@request(api=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """Delete records below an offset in each partition; -1 is its high watermark."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            offset: Int64

        name: String
        partitions: list[Partition]

    topics: list[Topic]
    timeout_ms: Int32


@response(to=DeleteRecordsRequest)
class DeleteRecordsResponse:
    """The new log start offset of each partition."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            low_watermark: Int64 = -1
            error_code: Int16 = 0

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    topics: list[Topic]

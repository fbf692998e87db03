"""What a client asks to find its way: versions, brokers, topics and their partitions, directories."""

from ..primitives import ZERO_UUID
from ..schema import Boolean, Int8, Int16, Int32, Int64, String, Uuid, field, request, response, struct

NO_OPERATIONS = -2147483648
"""The set of authorized operations where nobody asked for it."""


@request(api=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    """Ask for the supported APIs and versions: the first request of almost every connection."""

    client_software_name: String = field("3+", default="")
    client_software_version: String = field("3+", default="")


@response(to=ApiVersionsRequest)
class ApiVersionsResponse:
    """The supported versions of each API. Its response header always has version 0 (KIP-511)."""

    @struct
    class ApiKey:
        api_key: Int16
        min_version: Int16
        max_version: Int16

    @struct
    class SupportedFeature:
        name: String
        min_version: Int16
        max_version: Int16

    @struct
    class FinalizedFeature:
        name: String
        max_version_level: Int16
        min_version_level: Int16

    error_code: Int16 = 0
    api_keys: list[ApiKey]
    throttle_time_ms: Int32 = field("1+", default=0)
    supported_features: list[SupportedFeature] = field("3+", tag=0, factory=list)
    finalized_features_epoch: Int64 = field("3+", tag=1, default=-1)  # below 0, clients ignore what is finalized
    finalized_features: list[FinalizedFeature] = field("3+", tag=2, factory=list)
    zk_migration_ready: Boolean = field("3+", tag=3, default=False)


@request(api=3, versions="0-13", flexible="9+")
class MetadataRequest:
    """Ask for some topics, or for all: null, or in version 0 an empty list."""

    @struct
    class Topic:
        topic_id: Uuid = field("10+", default=ZERO_UUID)
        name: String | None = field(nullable="10+", default="")

    topics: list[Topic] | None = field(nullable="1+")
    allow_auto_topic_creation: Boolean = field("4+", default=True)
    include_cluster_authorized_operations: Boolean = field("8-10", default=False)
    include_topic_authorized_operations: Boolean = field("8+", default=False)


@response(to=MetadataRequest)
class MetadataResponse:
    """The brokers, and where each partition is led."""

    @struct
    class Broker:
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = field("1+", default=None)

    @struct
    class Topic:
        @struct
        class Partition:
            error_code: Int16 = 0
            partition_index: Int32
            leader_id: Int32
            leader_epoch: Int32 = field("7+", default=-1)
            replica_nodes: list[Int32]
            isr_nodes: list[Int32]
            offline_replicas: list[Int32] = field("5+", factory=list)

        error_code: Int16 = 0
        name: String | None = field(nullable="12+")
        topic_id: Uuid = field("10+", default=ZERO_UUID)
        is_internal: Boolean = field("1+", default=False)
        partitions: list[Partition]
        topic_authorized_operations: Int32 = field("8+", default=NO_OPERATIONS)

    throttle_time_ms: Int32 = field("3+", default=0)
    brokers: list[Broker]
    cluster_id: String | None = field("2+", default=None)
    controller_id: Int32 = field("1+", default=-1)
    topics: list[Topic]
    cluster_authorized_operations: Int32 = field("8-10", default=NO_OPERATIONS)
    error_code: Int16 = field("13+", default=0)


@request(api=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """Ask for the brokers alone, as admin clients do (KIP-700)."""

    include_cluster_authorized_operations: Boolean = False
    endpoint_type: Int8 = field("1+", default=1)  # 1 brokers, 2 controllers
    include_fenced_brokers: Boolean = field("2+", default=False)


@response(to=DescribeClusterRequest)
class DescribeClusterResponse:
    """The cluster's id, its controller and its brokers."""

    @struct
    class Broker:
        broker_id: Int32
        host: String
        port: Int32
        rack: String | None = None
        is_fenced: Boolean = field("2+", default=False)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String
    controller_id: Int32 = -1
    brokers: list[Broker]
    cluster_authorized_operations: Int32 = NO_OPERATIONS


@struct
class Cursor:
    """The partition at which a page ended, or the next one begins."""

    topic_name: String
    partition_index: Int32


@request(api=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """Ask for topics and their partitions, a page at a time (KIP-966)."""

    @struct
    class Topic:
        name: String

    topics: list[Topic]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


@response(to=DescribeTopicPartitionsRequest)
class DescribeTopicPartitionsResponse:
    """A page of topics, and where the next page begins."""

    @struct
    class Topic:
        @struct
        class Partition:
            error_code: Int16 = 0
            partition_index: Int32
            leader_id: Int32
            leader_epoch: Int32 = -1
            replica_nodes: list[Int32]
            isr_nodes: list[Int32]
            eligible_leader_replicas: list[Int32] | None = None
            last_known_elr: list[Int32] | None = None
            offline_replicas: list[Int32] = field(factory=list)

        error_code: Int16 = 0
        name: String | None
        topic_id: Uuid = ZERO_UUID
        is_internal: Boolean = False
        partitions: list[Partition]
        topic_authorized_operations: Int32 = NO_OPERATIONS

    throttle_time_ms: Int32 = 0
    topics: list[Topic]
    next_cursor: Cursor | None = None


@request(api=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    """Ask how many bytes are stored for some topics or for all."""

    @struct
    class Topic:
        topic: String
        partitions: list[Int32]

    topics: list[Topic] | None = None  # null: all


@response(to=DescribeLogDirsRequest)
class DescribeLogDirsResponse:
    """Each log directory with its partitions, size and free space."""

    @struct
    class Result:
        @struct
        class Topic:
            @struct
            class Partition:
                partition_index: Int32
                partition_size: Int64  # bytes
                offset_lag: Int64 = 0
                is_future_key: Boolean = False

            name: String
            partitions: list[Partition]

        error_code: Int16 = 0
        log_dir: String
        topics: list[Topic]
        total_bytes: Int64 = field("4+", default=-1)
        usable_bytes: Int64 = field("4+", default=-1)
        is_cordoned: Boolean = field("5+", default=False)  # no new partitions are put there (KIP-1066)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("3+", default=0)
    results: list[Result]


@request(api=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    """Change the finalized versions of features (KIP-584, KIP-1022)."""

    @struct
    class Update:
        feature: String
        max_version_level: Int16
        allow_downgrade: Boolean = field("0", default=False)
        upgrade_type: Int8 = field("1+", default=1)  # 1 upgrade, 2 safe downgrade, 3 unsafe downgrade

    timeout_ms: Int32 = 60000
    feature_updates: list[Update]
    validate_only: Boolean = field("1+", default=False)


@response(to=UpdateFeaturesRequest)
class UpdateFeaturesResponse:
    """An error, or one for each feature."""

    @struct
    class Result:
        feature: String
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    results: list[Result] = field("0-1", factory=list)

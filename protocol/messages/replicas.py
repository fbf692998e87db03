"""Where replicas are and who leads: asked and changed by tools for clusters, answered for one broker.

Sources: KIP-183 (ElectLeaders), 455 (reassignments), 113 (AlterReplicaLogDirs), 595, 836 and 853 (DescribeQuorum).
"""

from ..schema import Boolean, Int8, Int16, Int32, Int64, String, Uint16, Uuid, field, request, response, struct


@request(api=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """Elect the preferred leader of these partitions, or any."""

    @struct
    class Topic:
        topic: String
        partitions: list[Int32]

    election_type: Int8 = field("1+", default=0)  # 0 preferred, 1 unclean
    topic_partitions: list[Topic] | None = None  # null: all
    timeout_ms: Int32 = 60000


@response(to=ElectLeadersRequest)
class ElectLeadersResponse:
    """An error for each partition."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_id: Int32
            error_code: Int16 = 0
            error_message: String | None = None

        topic: String
        partition_result: list[Partition]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("1+", default=0)
    replica_election_results: list[Topic] = field(factory=list)


@request(api=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """Move partitions to these brokers, or cancel such a move."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            replicas: list[Int32] | None = None  # null: cancel

        name: String
        partitions: list[Partition]

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Boolean = field("1+", default=True)
    topics: list[Topic]


@response(to=AlterPartitionReassignmentsRequest)
class AlterPartitionReassignmentsResponse:
    """An error code for each partition; 0: its move was begun or cancelled."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = None

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Boolean = field("1+", default=True)
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[Topic] = field(factory=list)


@request(api=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """Ask which partitions are being moved to other brokers (KIP-455)."""

    @struct
    class Topic:
        name: String
        partition_indexes: list[Int32]

    timeout_ms: Int32 = 60000
    topics: list[Topic] | None = None  # null: all


@response(to=ListPartitionReassignmentsRequest)
class ListPartitionReassignmentsResponse:
    """The replicas of each moving partition, and which are being added and removed."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            replicas: list[Int32]
            adding_replicas: list[Int32]
            removing_replicas: list[Int32]

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    topics: list[Topic] = field(factory=list)


@request(api=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """Move replicas to these directories of the broker."""

    @struct
    class Directory:
        @struct
        class Topic:
            name: String
            partitions: list[Int32]

        path: String
        topics: list[Topic]

    dirs: list[Directory]


@response(to=AlterReplicaLogDirsRequest)
class AlterReplicaLogDirsResponse:
    """An error code for each partition; 0: its move was begun."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0

        topic_name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    results: list[Topic]


@struct
class ReplicaState:
    """The position of a voter or observer in the metadata log."""

    replica_id: Int32
    replica_directory_id: Uuid = field("2+", default=bytes(16))
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field("1+", default=-1)
    last_caught_up_timestamp: Int64 = field("1+", default=-1)


@request(api=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    """Ask for the voters and observers of metadata logs."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32

        topic_name: String
        partitions: list[Partition]

    topics: list[Topic]


@response(to=DescribeQuorumRequest)
class DescribeQuorumResponse:
    """The voters and observers of each metadata log, and where to reach them."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = field("2+", default=None)
            leader_id: Int32 = 0
            leader_epoch: Int32 = 0
            high_watermark: Int64 = 0
            current_voters: list[ReplicaState] = field(factory=list)
            observers: list[ReplicaState] = field(factory=list)

        topic_name: String
        partitions: list[Partition]

    @struct
    class Node:
        @struct
        class Listener:
            name: String
            host: String
            port: Uint16

        node_id: Int32
        listeners: list[Listener]

    error_code: Int16 = 0
    error_message: String | None = field("2+", default=None)
    topics: list[Topic] = field(factory=list)
    nodes: list[Node] = field("2+", factory=list)

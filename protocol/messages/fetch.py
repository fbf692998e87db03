"""Fetch: batches of records out of partitions, as they lie in the log.

Sessions from version 7 on (KIP-227), topic ids instead of names from 13 on (KIP-516).
"""

from ..primitives import ZERO_UUID
from ..schema import Boolean, Int8, Int16, Int32, Int64, RecordSlices, String, Uuid, field, request, response, struct


@request(api=1, versions="4-18", flexible="12+")
class FetchRequest:
    """Ask for batches: from which offsets, how many bytes, and how long to wait for them."""

    @struct
    class ReplicaState:
        replica_id: Int32 = -1
        replica_epoch: Int64 = -1

    @struct
    class Topic:
        @struct
        class Partition:
            partition: Int32
            current_leader_epoch: Int32 = field("9+", default=-1)
            fetch_offset: Int64
            last_fetched_epoch: Int32 = field("12+", default=-1)
            log_start_offset: Int64 = field("5+", default=-1)  # a follower's own
            partition_max_bytes: Int32
            replica_directory_id: Uuid = field("17+", tag=0, default=ZERO_UUID)
            high_watermark: Int64 = field("18+", tag=1, default=2**63 - 1)  # the one that a follower knows

        topic: String = field("0-12", default="")
        topic_id: Uuid = field("13+", default=ZERO_UUID)
        partitions: list[Partition]

    @struct
    class ForgottenTopic:
        topic: String = field("7-12", default="")
        topic_id: Uuid = field("13+", default=ZERO_UUID)
        partitions: list[Int32]

    cluster_id: String | None = field("12+", tag=0, default=None)
    replica_id: Int32 = field("0-14", default=-1)  # -1: a consumer
    replica_state: ReplicaState | None = field("15+", tag=1, default=None)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0  # 0 read_uncommitted, 1 read_committed
    session_id: Int32 = field("7+", default=0)
    session_epoch: Int32 = field("7+", default=-1)
    topics: list[Topic]
    forgotten_topics_data: list[ForgottenTopic] = field("7+", factory=list)
    rack_id: String = field("11+", default="")
    raw: Boolean = field("12+", tag=10_000, default=False)  # of our own: whatever the topic's least isolation level is


@response(to=FetchRequest)
class FetchResponse:
    """The batches, and the aborted transactions whose records a read_committed reader has to skip."""

    @struct
    class Topic:
        @struct
        class Partition:
            @struct
            class EpochEndOffset:
                epoch: Int32 = -1
                end_offset: Int64 = -1

            @struct
            class Leader:
                leader_id: Int32 = -1
                leader_epoch: Int32 = -1

            @struct
            class SnapshotId:
                end_offset: Int64 = -1
                epoch: Int32 = -1

            @struct
            class AbortedTransaction:
                producer_id: Int64
                first_offset: Int64

            partition_index: Int32
            error_code: Int16 = 0
            high_watermark: Int64 = -1
            last_stable_offset: Int64 = -1
            log_start_offset: Int64 = field("5+", default=-1)
            diverging_epoch: EpochEndOffset | None = field("12+", tag=0, default=None)
            current_leader: Leader | None = field("12+", tag=1, default=None)
            snapshot_id: SnapshotId | None = field("12+", tag=2, default=None)
            aborted_transactions: list[AbortedTransaction] | None = None
            preferred_read_replica: Int32 = field("11+", default=-1)
            records: RecordSlices | None  # no records: an empty list, not null

        topic: String = field("0-12", default="")
        topic_id: Uuid = field("13+", default=ZERO_UUID)
        partitions: list[Partition]

    @struct
    class NodeEndpoint:
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("7+", default=0)
    session_id: Int32 = field("7+", default=0)
    responses: list[Topic]
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0, factory=list)

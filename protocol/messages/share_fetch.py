"""ShareFetch and ShareAcknowledge: records of a share group, and what became of them (KIP-932, KIP-1206, KIP-1222).

Both go over a share session: epoch 0 opens it, each request counts it up by one, -1 ends it. Ranges of offsets have
their last one in them. Their versions 0 were for trying out and are in no release.
"""

from ..schema import Boolean, Int8, Int16, Int32, Int64, RecordSlices, String, Uuid, field, request, response, struct


@struct
class AcknowledgementBatch:
    """A range of offsets and what became of it: one type for all of them, or one for each."""

    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]  # 0 gap, 1 accept, 2 release, 3 reject; from version 2 on 4 renew


@struct
class Leader:
    """The leader of a partition, in an answer that this broker does not lead it."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@struct
class NodeEndpoint:
    """The address of a leader."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = None


@request(api=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    """Acquires records for a member, and acknowledges those that it acquired before."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            acknowledgement_batches: list[AcknowledgementBatch] = field(factory=list)

        topic_id: Uuid
        partitions: list[Partition]

    @struct
    class ForgottenTopic:
        topic_id: Uuid
        partitions: list[Int32]

    group_id: String | None = None
    member_id: String | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    max_records: Int32 = field("1+", default=0)
    batch_size: Int32 = field("1+", default=0)  # of the ranges in the answer
    share_acquire_mode: Int8 = field("2+", default=0)  # 0 whole batches, 1 max_records exactly
    is_renew_ack: Boolean = field("2+", default=False)
    topics: list[Topic]
    forgotten_topics_data: list[ForgottenTopic] = field(factory=list)


@response(to=ShareFetchRequest)
class ShareFetchResponse:
    """The batches, the ranges of them that the member has acquired, and the results of its acknowledgements."""

    @struct
    class Topic:
        @struct
        class Partition:
            @struct
            class AcquiredRecords:
                first_offset: Int64
                last_offset: Int64
                delivery_count: Int16

            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = None
            acknowledge_error_code: Int16 = 0
            acknowledge_error_message: String | None = None
            current_leader: Leader = field(factory=Leader)
            records: RecordSlices = field(factory=list)
            acquired_records: list[AcquiredRecords] = field(factory=list)

        topic_id: Uuid
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32 = field("1+", default=0)
    responses: list[Topic] = field(factory=list)
    node_endpoints: list[NodeEndpoint] = field(factory=list)


@request(api=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    """Acknowledges records that a member acquired before, without fetching."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            acknowledgement_batches: list[AcknowledgementBatch]

        topic_id: Uuid
        partitions: list[Partition]

    group_id: String | None = None
    member_id: String | None
    share_session_epoch: Int32
    is_renew_ack: Boolean = field("2+", default=False)
    topics: list[Topic]


@response(to=ShareAcknowledgeRequest)
class ShareAcknowledgeResponse:
    """The result for each partition."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = None
            current_leader: Leader = field(factory=Leader)

        topic_id: Uuid
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32 = field("2+", default=0)
    responses: list[Topic] = field(factory=list)
    node_endpoints: list[NodeEndpoint] = field(factory=list)

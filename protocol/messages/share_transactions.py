"""TxnShareAcknowledge, an API of our own: what was read from a share group is acknowledged inside a transaction.

Its fields are those that KIP-1289 has in its draft. Not listed in ApiVersions, found by the feature fencepost.version;
byte by byte in docs/apis.md.
"""

from ..schema import Int16, Int32, Int64, String, Uuid, field, request, response, struct
from .share_fetch import AcknowledgementBatch


@request(api=20007, versions="0", flexible="0+", since=3)
class TxnShareAcknowledgeRequest:
    """Acknowledges records in a transaction: a commit completes them, an abort makes them available. All or none."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            acknowledgement_batches: list[AcknowledgementBatch]  # 1 accept, 3 reject

        topic_id: Uuid
        partitions: list[Partition]

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    member_id: String  # who has acquired them
    topics: list[Topic]


@response(to=TxnShareAcknowledgeRequest)
class TxnShareAcknowledgeResponse:
    """An error of a partition, if that is the reason; then the others have OPERATION_NOT_ATTEMPTED."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = None

        topic_id: Uuid
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    topics: list[Topic] = field(factory=list)

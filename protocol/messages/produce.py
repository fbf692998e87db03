"""Produce: batches of records into partitions.

Topics are named up to version 12 and identified from 13 on (KIP-516). The list of versions begins at 0 although the
first three are never answered: librdkafka 2.0, which is in much use, sends its batches uncompressed to a broker that
has 3 (KAFKA-18659).
"""

from ..primitives import ZERO_UUID
from ..schema import Int16, Int32, Int64, Records, String, Uuid, field, request, response, struct


@request(api=0, versions="3-13", flexible="9+", listed_from=0)
class ProduceRequest:
    """Append one batch to each partition named."""

    @struct
    class Topic:
        @struct
        class Partition:
            index: Int32
            records: Records | None

        name: String = field("0-12", default="")
        topic_id: Uuid = field("13+", default=ZERO_UUID)
        partition_data: list[Partition]

    transactional_id: String | None = None
    acks: Int16  # -1 all, 1 the leader, 0 none and no answer
    timeout_ms: Int32
    topic_data: list[Topic]


@response(to=ProduceRequest)
class ProduceResponse:
    """The base offset of each batch, or the error for which it was refused."""

    @struct
    class Topic:
        @struct
        class Partition:
            @struct
            class RecordError:
                batch_index: Int32
                batch_index_error_message: String | None = None

            @struct
            class Leader:
                leader_id: Int32 = -1
                leader_epoch: Int32 = -1

            index: Int32
            error_code: Int16 = 0
            base_offset: Int64 = -1
            log_append_time_ms: Int64 = -1  # -1 where the records keep their own timestamps
            log_start_offset: Int64 = field("5+", default=-1)
            record_errors: list[RecordError] = field("8+", factory=list)
            error_message: String | None = field("8+", default=None)
            current_leader: Leader | None = field("10+", tag=0, default=None)

        name: String = field("0-12", default="")
        topic_id: Uuid = field("13+", default=ZERO_UUID)
        partition_responses: list[Partition]

    @struct
    class NodeEndpoint:
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None

    responses: list[Topic]
    throttle_time_ms: Int32 = 0
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0, factory=list)

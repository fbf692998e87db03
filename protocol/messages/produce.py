"""Produce: batches of records into partitions.

Topics are named up to version 12 and identified from 13 on (KIP-516). The list of versions begins at 0 although the
first three are never answered: librdkafka 2.0, which is in much use, sends its batches uncompressed to a broker that
has 3 (KAFKA-18659). The fields with the tag 10000 are ours: what a named producer adds (docs/apis.md).
"""

from ..primitives import ZERO_UUID
from ..schema import Boolean, Int16, Int32, Int64, Records, String, Uuid, field, request, response, struct


@struct
class ProducerName:
    """Who writes: a name, and the epoch that opening it gave out."""

    name: String
    epoch: Int64


@request(api=0, versions="3-13", flexible="9+", listed_from=0)
class ProduceRequest:
    """Append one batch to each partition named."""

    @struct
    class Topic:
        @struct
        class Partition:
            @struct
            class Sequences:
                first: Int64  # of the batch's first record
                last: Int64

            index: Int32
            records: Records | None
            sequences: Sequences | None = field("9+", tag=10_000, default=None)

        name: String = field("0-12", default="")
        topic_id: Uuid = field("13+", default=ZERO_UUID)
        partition_data: list[Partition]

    transactional_id: String | None = None
    acks: Int16  # -1 all, 1 the leader, 0 none and no answer
    timeout_ms: Int32
    topic_data: list[Topic]
    producer: ProducerName | None = field("9+", tag=10_000, default=None)


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

            @struct
            class Named:
                duplicate: Boolean = False  # all of the batch is at or below the highest
                highest: Int64 = -1  # of this name in this partition

            index: Int32
            error_code: Int16 = 0
            base_offset: Int64 = -1
            log_append_time_ms: Int64 = -1  # -1 where the records keep their own timestamps
            log_start_offset: Int64 = field("5+", default=-1)
            record_errors: list[RecordError] = field("8+", factory=list)
            error_message: String | None = field("8+", default=None)
            current_leader: Leader | None = field("10+", tag=0, default=None)
            named: Named | None = field("9+", tag=10_000, default=None)

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

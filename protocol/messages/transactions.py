"""Producer ids, and who is using them.

The requests that begin, fill and end a transaction belong here too, once there are transactions.
"""

from ..schema import Int16, Int32, Int64, String, field, request, response, struct


@request(api=22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    """A producer id: a new one, or with a transactional id the one it has, at a new epoch."""

    transactional_id: String | None = None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field("3+", default=-1)  # KIP-360
    producer_epoch: Int16 = field("3+", default=-1)


@response(to=InitProducerIdRequest)
class InitProducerIdResponse:
    """The id and the epoch to produce with."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1


@request(api=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    """Which producers does each partition remember? (KIP-664)"""

    @struct
    class Topic:
        name: String
        partition_indexes: list[Int32]

    topics: list[Topic]


@response(to=DescribeProducersRequest)
class DescribeProducersResponse:
    """The producers, each with its last sequence and the start of its open transaction."""

    @struct
    class Topic:
        @struct
        class Partition:
            @struct
            class Producer:
                producer_id: Int64
                producer_epoch: Int32
                last_sequence: Int32 = -1
                last_timestamp: Int64 = -1
                coordinator_epoch: Int32
                current_txn_start_offset: Int64 = -1

            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = None
            active_producers: list[Producer] = field(factory=list)

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    topics: list[Topic]

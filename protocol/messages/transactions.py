"""Producer ids and transactions: beginning, filling and ending one, and looking after those of others."""

from ..primitives import ZERO_UUID
from ..schema import Boolean, Int8, Int16, Int32, Int64, String, Uuid, field, request, response, struct


@request(api=22, versions="0-6", flexible="2+", serves="0-5")
class InitProducerIdRequest:
    """Ask for a producer id: a new one, or that of a transactional id, with a new epoch.

    Version 6 (KIP-939: transactions that somebody else decides) is listed by no Kafka yet.
    """

    transactional_id: String | None = None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field("3+", default=-1)  # KIP-360
    producer_epoch: Int16 = field("3+", default=-1)
    enable2_pc: Boolean = field("6+", default=False)
    keep_prepared_txn: Boolean = field("6+", default=False)


@response(to=InitProducerIdRequest)
class InitProducerIdResponse:
    """The producer id and epoch to produce with, and those of a transaction that is still prepared."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = -1
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)


# ---- Filling and ending a transaction ------------------------------------------------------------------------


@struct
class TxnTopic:
    """Partitions of one topic that belong to a transaction."""

    name: String
    partitions: list[Int32]


@struct
class TxnTopicResult:
    """An error for each partition."""

    @struct
    class Partition:
        partition_index: Int32
        partition_error_code: Int16 = 0

    name: String
    results_by_partition: list[Partition]


@request(api=24, versions="0-5", flexible="3+", serves="0-3")
class AddPartitionsToTxnRequest:
    """Add partitions to the producer's transaction.

    From version 4 on brokers ask it of each other, for many transactions, to verify them (KIP-890).
    """

    @struct
    class Transaction:
        transactional_id: String = field("4+", default="")
        producer_id: Int64 = field("4+", default=-1)
        producer_epoch: Int16 = field("4+", default=-1)
        verify_only: Boolean = field("4+", default=False)
        topics: list[TxnTopic] = field("4+", factory=list)

    transactions: list[Transaction] = field("4+", factory=list)
    v3_and_below_transactional_id: String = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=-1)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=-1)
    v3_and_below_topics: list[TxnTopic] = field("0-3", factory=list)


@response(to=AddPartitionsToTxnRequest)
class AddPartitionsToTxnResponse:
    """An error for each partition. If one cannot be added none is: the others get OPERATION_NOT_ATTEMPTED."""

    @struct
    class Result:
        transactional_id: String = field("4+", default="")
        topic_results: list[TxnTopicResult] = field("4+", factory=list)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("4+", default=0)
    results_by_transaction: list[Result] = field("4+", factory=list)
    results_by_topic_v3_and_below: list[TxnTopicResult] = field("0-3", factory=list)


@request(api=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """Add to the producer's transaction that it will commit offsets of this group."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


@response(to=AddOffsetsToTxnRequest)
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


@request(api=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    """Commit a group's offsets in a transaction; from version 3 on with the member's identity (KIP-447)."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Int32 = field("2+", default=-1)
            committed_metadata: String | None = None

        name: String
        partitions: list[Partition]

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None)
    topics: list[Topic]


@response(to=TxnOffsetCommitRequest)
class TxnOffsetCommitResponse:
    """An error for each partition."""

    @struct
    class Topic:
        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0

        name: String
        partitions: list[Partition]

    throttle_time_ms: Int32 = 0
    topics: list[Topic]


@request(api=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    """Commit or abort the transaction. From version 5 on the response has a new epoch for the producer (KIP-890)."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Boolean


@response(to=EndTxnRequest)
class EndTxnResponse:
    """An error code; from version 5 on also the producer id and epoch for the next transaction."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = field("5+", default=-1)
    producer_epoch: Int16 = field("5+", default=-1)


# ---- Looking after transactions ------------------------------------------------------------------------------


@request(api=27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    """Write markers that end transactions in partitions: sent by coordinators, and by operators for hanging ones."""

    @struct
    class Marker:
        @struct
        class Topic:
            name: String
            partition_indexes: list[Int32]

        producer_id: Int64
        producer_epoch: Int16
        transaction_result: Boolean  # true: committed
        topics: list[Topic]
        coordinator_epoch: Int32
        transaction_version: Int8 = field("2+", default=0)  # KIP-1228: from 2 on the epoch must be a new one

    markers: list[Marker]


@response(to=WriteTxnMarkersRequest)
class WriteTxnMarkersResponse:
    """An error for each partition of each marker."""

    @struct
    class Marker:
        @struct
        class Topic:
            @struct
            class Partition:
                partition_index: Int32
                error_code: Int16 = 0

            name: String
            partitions: list[Partition]

        producer_id: Int64
        topics: list[Topic]

    markers: list[Marker]


@request(api=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """Ask for the state of transactional ids (KIP-664)."""

    transactional_ids: list[String]


@response(to=DescribeTransactionsRequest)
class DescribeTransactionsResponse:
    """Each id asked for, with the partitions of its open transaction."""

    @struct
    class TransactionState:
        @struct
        class Topic:
            topic: String
            partitions: list[Int32]

        error_code: Int16 = 0
        transactional_id: String
        transaction_state: String
        transaction_timeout_ms: Int32
        transaction_start_time_ms: Int64
        producer_id: Int64
        producer_epoch: Int16
        topics: list[Topic]
        transaction_id: Uuid = field("0+", tag=10_000, default=ZERO_UUID)  # of our own: of the last transaction

    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState]


@request(api=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """List transactional ids: all, or by state, producer id, age of the transaction, or pattern."""

    state_filters: list[String] = field(factory=list)
    producer_id_filters: list[Int64] = field(factory=list)
    duration_filter: Int64 = field("1+", default=-1)  # milliseconds; KIP-994
    transactional_id_pattern: String | None = field("2+", default=None)  # KIP-1152


@response(to=ListTransactionsRequest)
class ListTransactionsResponse:
    """The ids, and which of the states in the request are unknown."""

    @struct
    class TransactionState:
        transactional_id: String
        producer_id: Int64
        transaction_state: String
        transaction_id: Uuid = field("0+", tag=10_000, default=ZERO_UUID)  # of our own: of the last transaction

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[String] = field(factory=list)
    transaction_states: list[TransactionState]


# ---- Looking after producers ---------------------------------------------------------------------------------


@request(api=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    """Ask which producers each partition knows (KIP-664)."""

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

"""The APIs of our own: transactions that wait for a decision, decided many at once and recorded once.

Kafka has no such thing. Keys from 20000 on, not listed in ApiVersions, found by the feature fencepost.version; byte by
byte in docs/apis.md.
"""

from ..schema import Boolean, Bytes, Int16, Int32, Int64, String, field, request, response, struct

NEVER_MS = -1


@request(api=20000, versions="0", flexible="0+", since=1)
class PrepareTxnRequest:
    """Prepare the transaction: from now on only decision `number` under this ledger key ends it."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    ledger_key: String
    number: Int64
    prepared_timeout_ms: Int32 = 3_600_000  # then it is aborted; -1 never
    hold: Boolean = field(tag=0, default=False)  # only EndTxn and EndTxns with this pair end it, or the timeout


@response(to=PrepareTxnRequest)
class PrepareTxnResponse:
    """An error, or none: then the transaction is prepared. ledger_number: the number of the key's entry, if that is the
    reason for the refusal; else -1.
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    ledger_number: Int64 = -1


@struct
class LedgerEntry:
    """The last decision recorded under a key."""

    number: Int64
    owner: String
    digest: Bytes
    committed: Boolean
    decided_ms: Int64  # wall time


@request(api=20001, versions="0", flexible="0+", since=1)
class EndTxnsRequest:
    """Record decision `number` under this key: end these transactions, all or none; abort others that wait for it."""

    @struct
    class Transaction:
        transactional_id: String
        producer_id: Int64
        producer_epoch: Int16

    ledger_key: String
    number: Int64
    owner: String
    digest: Bytes
    committed: Boolean
    takeover: Boolean = False
    transactions: list[Transaction] = field(factory=list)


@response(to=EndTxnsRequest)
class EndTxnsResponse:
    """The entry as it is now, and on an error the transactions that caused it.

    ended: for each transaction of the request, the producer id and epoch that its producer uses next. deleted:
    partitions that were deleted while a held transaction that wrote to them waited; the rest of it was committed.
    """

    @struct
    class Transaction:
        transactional_id: String
        error_code: Int16

    @struct
    class Ended:
        transactional_id: String
        producer_id: Int64
        producer_epoch: Int16

    @struct
    class Topic:
        name: String
        partitions: list[Int32]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    already_decided: Boolean = False
    aborted: Int32 = 0  # how many others were
    entry: LedgerEntry | None = field(nullable="0+", default=None)
    refused: list[Transaction] = field(factory=list)
    ended: list[Ended] = field(tag=0, factory=list)
    deleted: list[Topic] = field(tag=1, factory=list)


@request(api=20002, versions="0", flexible="0+", since=1)
class DescribeLedgerRequest:
    """Ask for the entries under these keys; null: under all keys, or under those that begin with `prefix`."""

    keys: list[String] | None = None
    prefix: String | None = field(tag=0, default=None)


@response(to=DescribeLedgerRequest)
class DescribeLedgerResponse:
    """For each key its entry, if there is one, and the transactions that wait for its next decisions."""

    @struct
    class Key:
        @struct
        class Waiting:
            transactional_id: String
            producer_id: Int64
            producer_epoch: Int16
            number: Int64
            waits_for_ms: Int64  # so far
            timeout_ms: Int64
            held: Boolean = field(tag=0, default=False)

        key: String
        error_code: Int16 = 0
        entry: LedgerEntry | None = field(nullable="0+", default=None)
        waiting: list[Waiting] = field(factory=list)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    keys: list[Key] = field(factory=list)


@request(api=20003, versions="0", flexible="0+", since=1)
class RemoveLedgerEntriesRequest:
    """Remove the entries of keys that are not used any more."""

    keys: list[String]


@response(to=RemoveLedgerEntriesRequest)
class RemoveLedgerEntriesResponse:
    """An error for each key."""

    @struct
    class Key:
        key: String
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    keys: list[Key] = field(factory=list)

"""The state of one transactional id, and the result of a decision about it.

The rule: a state is an immutable value. It is replaced by another one only after that is logged, so a replay and a
decision lead to the same values. Durations are measured in the store's age, which no change of the wall clock and no
restart sets back. Wall times are only in the fields that Kafka's tools read. Source: Kafka's TransactionMetadata and
TransactionState.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ....protocol.errors import ErrorCode
from ....storage.producers.producers import RETIRED_EPOCH

NO_ID = -1
NO_EPOCH = -1
NO_OFFSET = -1
NO_TRANSACTION_ID = bytes(16)
LAST_EPOCH = RETIRED_EPOCH - 1  # the highest that a producer is given: the one above is for the marker that ends it
NEVER_MS = -1
TWO_PHASE_TIMEOUT_MS = 0x7FFF_FFFF  # KIP-939: in records of transactions that only a decision ends

PartitionKey = tuple[str, int]
"""A topic's name and a partition's index."""

Partitions = Mapping[PartitionKey, int]
"""Partitions of a transaction, each with the id of its log: a topic made again is another one."""


class Status(IntEnum):
    """Kafka's numbers. PREPARED (of PrepareTxn) is ONGOING with `Transaction.prepared` set."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The name of the state in ListTransactions and DescribeTransactions."""
        return _TEXTS[self]


_TEXTS = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


class Prepared(NamedTuple):
    """What a PrepareTxn has set: the transaction waits for decision `number` under a ledger key.

    timeout_ms: counted from since_age_ms (the store's age) on; -1: no timeout.

    hold: nobody but the decision that names its producer id and epoch, or its timeout, ends it (docs/apis.md).
    """

    ledger_key: str
    number: int
    timeout_ms: int
    since_age_ms: int
    hold: bool = False


class Transaction(NamedTuple):
    """A transactional id's state.

    last_producer_epoch: the epoch before the last bump, where its producer may not have heard of the bump yet and may
        come again with it (KIP-360, KIP-890); it belongs to previous_producer_id if producer_epoch is 0.
    next_producer_id, next_producer_epoch: what the producer goes on with once PREPARE_x is done; -1 as it is.
    start_ms, last_update_ms: wall time, as Kafka stores them; start_ms -1 before the first partition.
    client_version: 0, 1 or 2 (KIP-890), of the request that changed the state last.
    enable_2pc: only a decision ends its transactions, no timeout (KIP-939).
    opened_at: offset, in the id's partition of __transaction_state, of the record that opened the last transaction:
        the two together name it (transaction_id()). -1: none was opened since InitProducerId, or an earlier version
        or Kafka wrote it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: Status = Status.EMPTY
    partitions: Partitions = {}  # noqa: RUF012 - a Mapping: nobody writes into it
    start_ms: int = -1
    last_update_ms: int = -1
    started_age_ms: int = -1
    updated_age_ms: int = 0
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    next_producer_epoch: int = NO_EPOCH
    client_version: int = 0
    enable_2pc: bool = False
    prepared: Prepared | None = None
    opened_at: int = NO_OFFSET

    @property
    def exhausted(self) -> bool:
        """Whether the producer id has no epoch left to give to a producer."""
        return self.producer_epoch >= LAST_EPOCH

    def writes_to(self, key: PartitionKey, log_id: int) -> bool:
        """Return whether the transaction is open, not prepared, and contains this partition with this log id."""
        return self.status is Status.ONGOING and self.prepared is None and self.partitions.get(key) == log_id

    def is_last(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether this producer id and epoch are those that the last change of epoch replaced, so that the
        request may be a retry of the one that caused the change.
        """
        if producer_epoch != self.last_producer_epoch or producer_epoch == NO_EPOCH:
            return False
        return producer_id == (self.producer_id if self.producer_epoch else self.previous_producer_id)


class MarkerOrder(NamedTuple):
    """The markers that end a transaction: one for each partition. producer_epoch: the one to write into them."""

    commit: bool
    producer_id: int
    producer_epoch: int
    partitions: Partitions


class Decision(NamedTuple):
    """What becomes of a request. Whatever is in `states`, `marker` and `gone` is one unit, also where `error` is set.

    states: to be logged in this order; the last one holds from now on. Empty: nothing to log.
    marker: for the partitions' logs, in the same unit. None if there is no partition to mark.
    gone: an ephemeral id: after the states a null value is logged, and the id is forgotten.
    producer_id, producer_epoch: of the answer; -1 where it carries none.
    """

    error: ErrorCode = ErrorCode.NONE
    states: tuple[Transaction, ...] = ()
    marker: MarkerOrder | None = None
    producer_id: int = NO_ID
    producer_epoch: int = NO_EPOCH
    gone: bool = False


class Inputs(NamedTuple):
    """What a decision needs from outside.

    now_ms: wall time, for Kafka's fields. age_ms: of the store, for durations.
    new_producer_id: an id that nobody had; called only where one is needed. May raise KafkaError: nothing is changed.
    next_offset: the offset of the record that is logged next for this id; called when a transaction is opened. May
        raise KafkaError: nothing is changed.
    ephemeral: the id begins with transactional.id.ephemeral.prefix: it goes with the end of its transaction.
    """

    now_ms: int
    age_ms: int
    new_producer_id: Callable[[], int]
    next_offset: Callable[[str], int]
    ephemeral: bool = False


def transaction_id(partition: int, opened_at: int) -> bytes:
    """Return 16 bytes that identify one transaction: the partition of __transaction_state in 16 bits, 16 zero bits, and
    the offset of the record that opened it in 96 bits.

    No two transactions have the same, since no offset is given out twice. All bytes are zero if opened_at is -1, which
    means unknown. (No transaction is opened at offset 0, because the record of its InitProducerId comes before.)
    """
    if opened_at == NO_OFFSET:
        return NO_TRANSACTION_ID
    return partition.to_bytes(2, "big") + bytes(2) + opened_at.to_bytes(12, "big")

"""What a partition remembers of each producer, and whether it accepts the producer's next batch. Pure.

The rules: `judge` may refuse a batch and changes nothing. `apply` and `go_on` cannot fail, and are the only way to
change the state, in service and in recovery. A producer's last epoch, next sequence and last five batches are
remembered. A repetition of one of these batches is a duplicate and gets the same offset again; any other batch out of
order is refused. Sequence 0 comes after 2**31 - 1.

Ages are by the store's clock, which is independent of the wall clock and continues after a restart. A producer is
forgotten after a time without batches on that clock, but never while it has an open transaction. A marker of the
highest possible epoch is the last that a producer writes, so the producer is forgotten at once. A marker of an unknown
producer ends nothing, and makes no entry.

Forgetting (expire, evict) is not logged. So a recovery may know more producers than the broker that was killed, and
never fewer. That does no harm, because readers see no difference: open and aborted transactions are the same in both
cases, and `apply` accepts any batch of the log.

Source: KIP-98, KIP-360, KIP-890; Kafka's ProducerStateManager, ProducerAppendInfo, ProducerStateEntry.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from itertools import starmap
from typing import NamedTuple

from ...protocol.batches import CONTROL_BIT, SEQUENCE_MASK, TRANSACTIONAL_BIT, Batch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import Marker, read_marker
from . import encoding
from .aborted import AbortedTransaction
from .encoding import ANY_SEQUENCE, NONE_OPEN, Producer, SnapshotInSlices

REMEMBERED_BATCHES = 5  # a client may keep five requests in flight
REMEMBERED_REFUSALS = 1000

RETIRED_EPOCH = 2**15 - 1  # no producer is ever given it: a marker that bears it ends its producer id for good

_IN_ORDER = SEQUENCE_MASK >> 1  # the later of two sequences is ahead of the other by less than this


class Duplicate(NamedTuple):
    """Where a repeated batch was written the first time. timestamp: the highest one of the batch, as stored then."""

    base_offset: int
    last_offset: int
    timestamp: int


class ProducerDescription(NamedTuple):
    """A producer's state as DescribeProducers returns it; -1 for a missing number."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class ProducerStates:
    """All producers of one partition. len() is how many are remembered."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._idle: OrderedDict[int, Producer] = OrderedDict()  # no transaction is open; the longest silent first
        self._open: OrderedDict[int, int] = OrderedDict()  # first offset → producer id, of open transactions, ascending
        self._refused: dict[int, tuple[int, int]] = {}  # unknown producer → (epoch, lowest sequence) turned away
        self._snapshot: SnapshotInSlices | None = None
        self._snapshots = 0  # begun so far
        self.emptied = 0  # how often the last remembered producer was forgotten

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    @property
    def idle_since_ms(self) -> int | None:
        """When the longest idle producer without an open transaction last wrote; None if there is none."""
        for producer in self._idle.values():
            return producer.age_ms
        return None

    # Verdicts

    def judge(self, batch: Batch, refuse_unknown_with: ErrorCode | None = None) -> Duplicate | None:
        """Check a valid batch. Returns None if it may be appended, or where it was written already if it is a
        duplicate.

        refuse_unknown_with: the error for a producer that is not known and whose first sequence here is not 0. None:
        such a producer is accepted, because retention or expiry may have removed it. Strict brokers give
        UNKNOWN_PRODUCER_ID, and transactions of version 2 OUT_OF_ORDER_SEQUENCE_NUMBER.

        Raises: KafkaError INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE; for a marker also
        TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self._producers.get(batch.producer_id)
        if (
            producer is not None
            and batch.base_sequence == producer.next_sequence
            and batch.producer_epoch == producer.epoch
            and producer.first_open < 0
        ):
            return None
        if batch.producer_id < 0:
            return None
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None:
                self.judge_marker(batch.producer_id, batch.producer_epoch, marker[1])
            return None
        if producer is None:
            self._judge_unknown(batch, refuse_unknown_with)
            return None
        return self._judge_known(producer, batch, refuse_unknown_with)

    def find_repeated(self, batch: Batch) -> Duplicate | None:
        """Return where this batch was written already; None if it was not, or is forgotten. Raises nothing."""
        producer = self._producers.get(batch.producer_id)
        return None if producer is None or producer.epoch != batch.producer_epoch else _find(producer, batch)

    def _judge_known(self, producer: Producer, batch: Batch, refuse_unknown_with: ErrorCode | None) -> Duplicate | None:
        """Check a batch of a known producer, by epoch, sequence and transaction. Returns what judge() returns for it,
        and raises the same errors.
        """
        expected = producer.next_sequence
        if batch.producer_epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {batch.producer_id} comes with epoch {batch.producer_epoch}, the last was {producer.epoch}",
            )
        if batch.producer_epoch > producer.epoch:
            expected = 0
        elif duplicate := _find(producer, batch):
            return duplicate
        if expected == ANY_SEQUENCE:
            self._judge_unknown(batch, refuse_unknown_with)
        elif batch.base_sequence != expected:
            raise _out_of_order(batch, f"the next is {expected}")
        if producer.first_open >= 0 and not batch.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has a transaction open since offset {producer.first_open}",
            )
        return None

    def _judge_unknown(self, batch: Batch, refuse_with: ErrorCode | None) -> None:
        """Check the first batch of an unknown producer. Any first sequence is accepted, except one that comes after
        another that was refused a moment ago: that one must come first.

        refuse_with: as refuse_unknown_with in judge(). Raises KafkaError.
        """
        sequence = batch.base_sequence
        if refuse_with is not None and sequence != 0:
            raise KafkaError(
                refuse_with, f"producer {batch.producer_id} is not known here and comes with sequence {sequence}"
            )
        epoch, lowest = self._refused.get(batch.producer_id, (-1, 0))
        if epoch == batch.producer_epoch and 0 < (sequence - lowest & SEQUENCE_MASK) < _IN_ORDER:
            raise _out_of_order(batch, f"sequence {lowest} was turned away and has to come first")

    def judge_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, epoch_moves: bool = False
    ) -> None:
        """Check that this marker may end the producer's transaction here. A marker of an unknown producer may.

        epoch_moves: each transaction ends with a new epoch (transaction version 2), so a marker of the current epoch is
        too late; if no transaction is open, it is the same marker again and is accepted (KAFKA-19999).

        Raises: KafkaError INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        late = producer_epoch == producer.epoch and epoch_moves and producer.first_open >= 0
        if producer_epoch < producer.epoch or late:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"the marker has epoch {producer_epoch}, and producer {producer_id} has epoch {producer.epoch}",
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker has coordinator epoch {coordinator_epoch}, after one with {producer.coordinator_epoch}",
            )

    def is_next(self, producer_id: int, producer_epoch: int, sequence: int, transactional: bool = False) -> bool:
        """Return whether this is exactly the next sequence of a known producer that has no other transaction open.

        transactional: the batch is in a transaction, which may be open in this partition or begin with the batch. If
        not, the producer must never have had a transaction here. judge() would return None for such a batch; this is
        the cheaper check, which needs no Batch.
        """
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.next_sequence == sequence >= 0
            and producer.epoch == producer_epoch
            and (transactional or producer.first_open < 0 > producer.coordinator_epoch)
        )

    def turned_away(self, batch: Batch) -> None:
        """Note that a batch was refused after judge() had accepted it: disk full, too large, transaction not ready.

        The client sends that batch again, but has already sent later ones. Those of a known producer are refused as out
        of order. Of an unknown producer, a later one would be accepted as its first batch, and the refused one could
        then never be written (KAFKA-14904). The note prevents that.
        """
        producer_id, sequence = batch.producer_id, batch.base_sequence
        producer = self._producers.get(producer_id)
        if producer_id < 0 or sequence < 0 or (producer is not None and producer.next_sequence != ANY_SEQUENCE):
            return
        epoch, lowest = self._refused.pop(producer_id, (-1, 0))
        if epoch != batch.producer_epoch or (lowest - sequence & SEQUENCE_MASK) < _IN_ORDER:
            lowest = sequence
        while len(self._refused) >= REMEMBERED_REFUSALS:
            del self._refused[next(iter(self._refused))]
        self._refused[producer_id] = batch.producer_epoch, lowest

    # What was appended

    def apply(self, batch: Batch, now_ms: int) -> AbortedTransaction | None:
        """Update the state by a batch that is in the log at its final offset. Returns the transaction that it aborts,
        or None.

        now_ms: the store's age. Batches come in the order of the log.
        """
        producer_id = batch.producer_id
        producer = self._producers.get(producer_id)
        sequence = batch.base_sequence
        attributes = batch.attributes
        if self._snapshot is not None and producer is not None:
            self._snapshot.keep(producer_id, producer)
        if (
            producer is None
            or sequence != producer.next_sequence
            or batch.producer_epoch != producer.epoch
            or (attributes & _TRANSACTION_BITS and (attributes & CONTROL_BIT or producer.first_open < 0))
        ):
            return self._apply_unusual(producer, batch, now_ms)
        timestamp = batch.max_timestamp
        producer.next_sequence = sequence + batch.last_offset_delta + 1 & SEQUENCE_MASK
        producer.last_timestamp = timestamp
        producer.age_ms = now_ms
        window = producer.window
        window.append((sequence, batch.base_offset, timestamp))
        if len(window) > REMEMBERED_BATCHES:
            del window[0]
        if producer.first_open < 0:
            self._idle.move_to_end(producer_id)
        return None

    def go_on(
        self,
        producer_id: int,
        sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp: int,
        now_ms: int,
        transactional: bool = False,
    ) -> None:
        """Update the state by a batch for which is_next() is true. Faster than apply(), which needs a Batch. now_ms:
        the store's age.
        """
        producer = self._producers[producer_id]
        if self._snapshot is not None:
            self._snapshot.keep(producer_id, producer)
        if producer.first_open < 0:
            if transactional:
                self._begin(producer_id, producer, base_offset)
            else:
                self._idle.move_to_end(producer_id)
        producer.next_sequence = sequence + last_offset - base_offset + 1 & SEQUENCE_MASK
        producer.last_timestamp = timestamp
        producer.age_ms = now_ms
        window = producer.window
        window.append((sequence, base_offset, timestamp))
        if len(window) > REMEMBERED_BATCHES:
            del window[0]

    def _apply_unusual(self, producer: Producer | None, batch: Batch, now_ms: int) -> AbortedTransaction | None:
        """Apply a batch that is not simply the producer's next: its first batch, one of a new epoch, one that begins or
        ends a transaction, or one after a gap in the sequence during recovery. Returns like apply().
        """
        producer_id = batch.producer_id
        if producer_id < 0 or (producer is None and batch.is_control and batch.record_count):
            return None  # an empty marker was left by compaction, for the epoch
        if producer is None:
            producer = self._producers[producer_id] = Producer(batch.producer_epoch, self._snapshots)
        if producer.first_open < 0:
            self._idle.pop(producer_id, None)
            self._idle[producer_id] = producer
        producer.age_ms = now_ms
        producer.last_timestamp = batch.max_timestamp
        if batch.is_control:
            return self._apply_marker(producer, batch)
        if batch.producer_epoch != producer.epoch or batch.base_sequence != producer.next_sequence:
            producer.epoch = batch.producer_epoch
            producer.window.clear()
            self._refused.pop(producer_id, None)
        _remember(producer, batch)
        # Cleaning empties batches of decided transactions only, so an empty one opens none.
        if batch.is_transactional and producer.first_open < 0 and batch.record_count:
            self._begin(producer_id, producer, batch.base_offset)
        return None

    def _begin(self, producer_id: int, producer: Producer, first_offset: int) -> None:
        """Note that a transaction begins. Until its marker the producer is not forgotten."""
        producer.first_open = first_offset
        self._open[first_offset] = producer_id
        del self._idle[producer_id]

    def _apply_marker(self, producer: Producer, batch: Batch) -> AbortedTransaction | None:
        """Apply a control batch: it has no sequence, ends the open transaction, and may have a new epoch.

        Returns the transaction that it aborts, or None.
        """
        if batch.producer_epoch > producer.epoch:
            producer.epoch = batch.producer_epoch
            producer.window.clear()
            producer.next_sequence = 0
        marker = read_marker(batch)
        if marker is None:
            return None
        kind, producer.coordinator_epoch = marker
        first_offset = producer.first_open
        if first_offset >= 0:
            producer.first_open = NONE_OPEN
            del self._open[first_offset]
            self._idle[batch.producer_id] = producer
        if batch.producer_epoch == RETIRED_EPOCH:
            self._forget(batch.producer_id)
        if first_offset < 0 or kind is Marker.COMMIT:
            return None
        last_offset = batch.last_offset
        stable = self.first_open_offset()
        return AbortedTransaction(
            batch.producer_id, first_offset, last_offset, last_offset + 1 if stable is None else stable
        )

    # Open transactions

    def first_offset_of(self, producer_id: int) -> int | None:
        """Return the first offset of the producer's open transaction; None if it has none."""
        producer = self._producers.get(producer_id)
        return None if producer is None or producer.first_open < 0 else producer.first_open

    def first_open_offset(self, besides: int | None = None) -> int | None:
        """Return the first offset of the earliest open transaction; None if none is open. besides: a producer to
        ignore.

        PartitionLog.last_stable_offset is this, or the high watermark if that is lower. There a transaction counts as
        open until its marker is below the high watermark.
        """
        if not self._open:
            return None
        for first_offset, producer_id in self._open.items():
            if producer_id != besides:
                return first_offset
        return None

    # Forgetting

    def expire(self, now_ms: int, expiration_ms: int, at_most: int = 1000) -> bool:
        """Remove producers that were idle for this long, beginning with the one idle longest. Returns whether there may
        be more.

        Removing `at_most` takes well under a millisecond. A producer with an open transaction is never removed.
        """
        idle = self._idle
        for _ in range(at_most):
            producer_id = next(iter(idle), None)
            if producer_id is None or now_ms - idle[producer_id].age_ms < expiration_ms:
                return False
            self._forget(producer_id)
        return True

    def evict(self, count: int = 1) -> int:
        """Remove the `count` producers without an open transaction that have been idle longest. Returns how many were
        removed.
        """
        count = min(count, len(self._idle))
        for _ in range(count):
            self._forget(next(iter(self._idle)))
        return count

    def _forget(self, producer_id: int) -> None:
        """Remove a producer's state."""
        producer = self._producers.pop(producer_id)
        del self._idle[producer_id]
        self.emptied += not self._producers
        if self._snapshot is not None:
            self._snapshot.keep(producer_id, producer)

    # Snapshots

    def snapshot(self) -> bytes:
        """Return the whole state as of the last applied batch, encoded."""
        return encoding.pack(dict(self._by_silence()))

    def begin_snapshot(self) -> None:
        """Begin a snapshot of the present state, taken in slices while batches are applied. Replaces an earlier one."""
        self._snapshots += 1
        self._snapshot = SnapshotInSlices(self._producers, self._snapshots)

    def advance_snapshot(self, at_most: int = 500) -> list[bytes] | None:
        """Encode up to at_most more producers of the snapshot that was begun. Returns all its pieces once it is
        complete; else None. Raises ValueError if none was begun.
        """
        if self._snapshot is None:
            raise ValueError("no snapshot was begun")
        pieces = self._snapshot.advance(at_most)
        if pieces is not None:
            self._snapshot = None
        return pieces

    def restore(self, payload: bytes, now_ms: int | None = None) -> None:
        """Load a snapshot. Raises ValueError if it cannot be parsed; nothing is changed then.

        now_ms: the store's age; ages above it are reduced to it, because a crash may have set it back a little. None:
        ages stay as they are.
        """
        found = encoding.unpack(payload)
        if now_ms is not None:
            for producer in found.values():
                producer.age_ms = min(producer.age_ms, now_ms)
        self._producers = dict(sorted(found.items(), key=_age))
        self._idle = OrderedDict(each for each in self._producers.items() if each[1].first_open < 0)
        self._open = OrderedDict(
            sorted((each.first_open, producer_id) for producer_id, each in found.items() if each.first_open >= 0)
        )
        self._refused.clear()
        self._snapshot = None

    def describe(self) -> Iterator[ProducerDescription]:
        """Yield every known producer, the one idle longest first, each in its state at the moment when it is
        yielded.
        """
        return starmap(_describe, self._by_silence())

    def _by_silence(self) -> Iterator[tuple[int, Producer]]:
        """Return all producers with their ids, the one idle longest first."""
        busy = [(producer_id, self._producers[producer_id]) for producer_id in self._open.values()]
        idle = zip(list(self._idle), list(self._idle.values()), strict=True)  # it may change before all are taken
        return heapq.merge(idle, sorted(busy, key=_age), key=_age)


def _describe(producer_id: int, each: Producer) -> ProducerDescription:
    """Return a producer's state for DescribeProducers."""
    last_sequence = each.next_sequence - 1 & SEQUENCE_MASK if each.window else -1
    return ProducerDescription(
        producer_id, each.epoch, last_sequence, each.last_timestamp, each.coordinator_epoch, each.first_open
    )


_TRANSACTION_BITS = TRANSACTIONAL_BIT | CONTROL_BIT


def _find(producer: Producer, batch: Batch) -> Duplicate | None:
    """Return where a remembered batch with exactly the same first and last sequence was written; None if there is
    none.
    """
    after = producer.next_sequence
    sequence = batch.base_sequence
    for first, base_offset, timestamp in reversed(producer.window):
        if first == sequence:
            if after != batch.last_sequence + 1 & SEQUENCE_MASK:
                return None
            return Duplicate(base_offset, base_offset + batch.last_offset_delta, timestamp)
        after = first
    return None


def _remember(producer: Producer, batch: Batch) -> None:
    """Add the batch to the producer's last five, so that it is recognised if it is sent again."""
    if batch.base_sequence < 0:  # offsets that a group coordinator wrote on the producer's behalf
        producer.next_sequence = ANY_SEQUENCE
        return
    producer.next_sequence = batch.last_sequence + 1 & SEQUENCE_MASK
    producer.window.append((batch.base_sequence, batch.base_offset, batch.max_timestamp))
    if len(producer.window) > REMEMBERED_BATCHES:
        del producer.window[0]


def _out_of_order(batch: Batch, why: str) -> KafkaError:
    """Return the error OUT_OF_ORDER_SEQUENCE_NUMBER with the producer's numbers."""
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {batch.producer_id}, epoch {batch.producer_epoch}, comes with sequence {batch.base_sequence}, {why}",
    )


def _age(item: tuple[int, Producer]) -> int:
    """Return when the producer last wrote (the store's age in ms), as a sort key."""
    return item[1].age_ms

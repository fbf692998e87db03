"""Sequence numbers: which batch of a partition may be sent next, and what a response means for the batches after it.

The rules: a sequence number belongs to one batch for ever. The batch is sent again, byte for byte, until a response
shows its result; only a batch that is known not to be in the log gets a new number, and then under a new epoch, which
fences late copies. A batch is never more than four behind the newest, because a broker remembers five batches. Until
the first batch under an identity is acknowledged, only that one is sent, because a broker accepts any sequence from a
producer that it does not know.

A *gap* is the number of a batch that will never be sent again, or that the broker did not expect. While there is one,
no new numbers are assigned. Batches that may have been written are sent again first, one by one, to learn their result;
one that is not expected any more has failed, and may have been written. After that the rest starts at 0 in a new epoch
(idempotent producer), or the transaction must be aborted.
Source: KIP-98, KIP-360; Kafka's TransactionManager and TxnPartitionEntry. Kafka also renumbers batches that may have
been written, which caused duplicates in librdkafka (fixed in 2.5); here that is never done. Pure.
"""

from collections.abc import Iterable
from enum import Enum

from ...protocol.batches import SEQUENCE_MASK
from ...protocol.errors import ErrorCode
from ..values import ProducerIdentity

WINDOW = 5  # batches of one producer that a broker remembers in a partition
_AHEAD = SEQUENCE_MASK >> 1  # a sequence is later than another if it is ahead by less than this (they wrap around)
LAST_EPOCH = 32_766  # the broker uses 32,767 for fencing

_UNEXPECTED = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_OUTDATED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_MAYBE_WRITTEN = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
# The broker's answer to the same bytes is always the same, so no earlier attempt was written either. Not so an
# unexpected sequence: a broker that has forgotten the producer since may find the batch unexpected that it has written.
_NEVER_WRITTEN = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD})


class Verdict(Enum):
    """What a response means for its batch."""

    WRITTEN = "written"
    DUPLICATE = "duplicate"  # written before, at an unknown offset
    AGAIN = "again"  # send the same bytes again after a backoff
    SPLIT = "split"  # send it in smaller parts
    FAILED = "failed"


class Numbered:
    """A batch, as far as sequence numbers concern it. sequence: of its first record, -1 until it has one. identity:
    the producer id and epoch to which the sequence belongs.
    """

    __slots__ = ("_maybe_before", "count", "identity", "maybe_written", "on_the_way", "ordinal", "sequence")

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.sequence = -1
        self.ordinal = 0  # its number among the batches of its partition
        self.identity: ProducerIdentity | None = None
        self.maybe_written = False  # it was sent, and no response has shown whether it was written
        self._maybe_before = False  # maybe_written before the last attempt
        self.on_the_way = False

    def leave(self) -> None:
        """Note that the batch is being sent, so that it may have been written until a response shows the opposite."""
        self._maybe_before = self.maybe_written
        self.on_the_way = self.maybe_written = True

    def come_back(self, *, maybe_written: bool) -> None:
        """Note that the request with the batch has ended. maybe_written: whether this attempt may have written it; if
        an earlier one may have, the batch stays marked.
        """
        self.on_the_way = False
        self.maybe_written = self._maybe_before or maybe_written

    @property
    def after(self) -> int:
        """Return the sequence after the batch's last record."""
        return self.sequence + self.count & SEQUENCE_MASK


class PartitionEntry:
    """The sequence numbers of one partition. `window`: sent batches without a final result, oldest first.

    Source: Kafka's TxnPartitionEntry.
    """

    __slots__ = ("acked", "gap", "identity", "is_known", "next_sequence", "numbered", "window")

    def __init__(self) -> None:
        self.identity: ProducerIdentity | None = None
        self.next_sequence = 0
        self.acked = 0  # the sequence after the last one acknowledged
        self.gap = False
        self.numbered = 0  # batches so far
        self.is_known = False  # the broker has acknowledged something under this identity
        self.window: list[Numbered] = []

    def begin(self, identity: ProducerIdentity | None) -> None:
        """Start at sequence 0 under this identity."""
        self.identity = identity
        self.next_sequence = self.acked = 0
        self.gap = self.is_known = False

    @property
    def is_waiting(self) -> bool:
        """Return whether a batch must be sent again."""
        return any(not one.on_the_way for one in self.window)

    @property
    def is_busy(self) -> bool:
        """Return whether a batch is in a request that has no response yet."""
        return any(one.on_the_way for one in self.window)


class Sequences:
    """The sequence numbers of one producer. idempotent False: no numbers, only the window and the order.

    identity: for new entries; None until there is one, and while a new one is needed.
    wants_identity: a new producer id is needed: the epochs are used up, or the broker no longer accepts this id.
    is_broken: a transactional producer has a gap; its next transaction needs a new epoch.
    """

    __slots__ = ("_window", "idempotent", "identity", "is_broken", "transactional", "wants_identity")

    def __init__(self, *, idempotent: bool = True, transactional: bool = False, window: int = WINDOW) -> None:
        self.idempotent = idempotent
        self.transactional = transactional
        self.identity: ProducerIdentity | None = None
        self.wants_identity = False
        self.is_broken = False
        self._window = window

    def begin(self, identity: ProducerIdentity, entries: Iterable[PartitionEntry] = ()) -> None:
        """Set a new identity. With transactions, all entries start at 0; else they continue under their old one."""
        self.identity = identity
        self.wants_identity = False
        if self.transactional:
            self.is_broken = False
            for entry in entries:
                entry.begin(None)
                entry.window.clear()

    # ---- what may be sent ------------------------------------------------------------------------------------------

    def again(self, entry: PartitionEntry) -> Numbered | None:
        """Return the batch to send again now; None if there is none, or it must wait for pending responses. With
        idempotence, batches are sent again one at a time, in the order of their numbers; if a batch before them was
        given up, and none of them may be in the log, they get new numbers first.
        """
        window = entry.window
        if not window:
            return None
        if not self.idempotent:
            return next((one for one in window if not one.on_the_way), None)
        if entry.is_busy:  # pending responses may change what this batch needs
            return None
        if entry.gap:
            return next((one for one in window if one.maybe_written), None) or self._restart(entry)
        return window[0]

    def may_take_new(self, entry: PartitionEntry) -> bool:
        """Return whether a batch that was never sent may get its sequence number now. Batches to be sent again go
        first.
        """
        if entry.gap and not self._try_close_gap(entry):
            return False
        if len(entry.window) >= self._window or entry.is_waiting:
            return False
        if self.idempotent and entry.window:
            if entry.numbered - entry.window[0].ordinal >= self._window:
                return False  # acknowledged ones after the oldest count, too: the broker would forget the oldest
            if not self.transactional and not entry.is_known:
                return False  # in a transaction a batch that overtakes the first one only causes an abort
        return not self.idempotent or (entry.identity or self.identity) is not None

    def take(self, entry: PartitionEntry, batch: Numbered) -> None:
        """Add a batch to the window when it is first sent; an idempotent producer gives it its sequence number."""
        if self.idempotent:
            if entry.identity is None:
                assert self.identity is not None
                entry.begin(self.identity)
            self._number(entry, batch)
        entry.window.append(batch)

    def _number(self, entry: PartitionEntry, batch: Numbered) -> None:
        """Give the batch the partition's next sequence number and producer epoch."""
        batch.identity = entry.identity
        batch.sequence = entry.next_sequence
        batch.ordinal = entry.numbered
        entry.numbered += 1
        entry.next_sequence = batch.after

    # ---- results ---------------------------------------------------------------------------------------------------

    def judge(self, entry: PartitionEntry, batch: Numbered, code: ErrorCode) -> Verdict:
        """Return what the error code of a response means for its batch, and apply it to the window and the sequences.
        A final verdict removes the batch from the window.
        """
        batch.come_back(maybe_written=code in _MAYBE_WRITTEN)
        if code == ErrorCode.NONE or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._acknowledge(entry, batch)
            return Verdict.WRITTEN if code == ErrorCode.NONE else Verdict.DUPLICATE
        if batch not in entry.window:  # it was given up before its response came
            return Verdict.FAILED
        if code in _NEVER_WRITTEN:
            batch.maybe_written = False
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            return Verdict.SPLIT
        if self.idempotent and code in _UNEXPECTED:
            return self._handle_unexpected(entry, batch)
        if self.idempotent and not self.transactional and code in _OUTDATED:
            self._give_up_id(entry)
            return Verdict.AGAIN
        if code.retriable:
            return Verdict.AGAIN
        self.dropped(entry, batch)
        return Verdict.FAILED

    def _acknowledge(self, entry: PartitionEntry, batch: Numbered) -> None:
        """Remove a written batch from the window, and advance the acknowledged sequence to its end."""
        batch.maybe_written = False
        if batch in entry.window:
            entry.window.remove(batch)
        entry.is_known = entry.is_known or batch.identity == entry.identity
        if self.idempotent and batch.identity == entry.identity and batch.after - entry.acked & SEQUENCE_MASK < _AHEAD:
            entry.acked = batch.after

    def _handle_unexpected(self, entry: PartitionEntry, batch: Numbered) -> Verdict:
        """Return what to do after OUT_OF_ORDER_SEQUENCE_NUMBER: send again, restart under a new epoch, or fail."""
        if entry.window and entry.window[0] is not batch and not entry.gap:
            return Verdict.AGAIN  # an earlier batch must be sent again first; then this one is expected
        if self.transactional or batch.maybe_written:
            self.dropped(entry, batch)
            return Verdict.FAILED
        entry.gap = True
        return Verdict.AGAIN

    def _give_up_id(self, entry: PartitionEntry) -> None:
        """Request a new producer id, because the broker no longer accepts this one."""
        entry.gap = True
        current, ours = self.identity, entry.identity
        if current is not None and ours is not None and current.producer_id == ours.producer_id:
            self.identity, self.wants_identity = None, True

    def dropped(self, entry: PartitionEntry, batch: Numbered) -> None:
        """Note that a batch was given up without an acknowledgement: if it had a number, that is a gap."""
        if batch not in entry.window:
            return
        entry.window.remove(batch)
        if self.idempotent and batch.sequence >= 0:
            entry.gap = True
            if self.transactional:
                self.is_broken = True

    def split(self, entry: PartitionEntry, batch: Numbered, parts: list[Numbered]) -> None:
        """Replace a batch that was not written by its parts in the window; they share its sequence numbers."""
        sequence = batch.sequence
        for part in parts:
            part.identity, part.ordinal = batch.identity, batch.ordinal
            if sequence >= 0:
                part.sequence = sequence
                sequence = part.after
        at = entry.window.index(batch)
        entry.window[at : at + 1] = parts

    # ---- gaps ------------------------------------------------------------------------------------------------------

    def _try_close_gap(self, entry: PartitionEntry) -> bool:
        """Close the gap that a given-up batch left: either that batch was written after all, or the entry restarts at
        sequence 0. Returns whether the gap is closed now.
        """
        if entry.window:
            return False
        if entry.acked == entry.next_sequence:  # a later batch was accepted, so the given-up one was written
            entry.gap = False
            return True
        return self._begin_anew(entry)

    def _restart(self, entry: PartitionEntry) -> Numbered | None:
        """Restart the entry and renumber all batches of its window, none of which is in the log. Returns the first of
        them; None if a restart is not possible now.
        """
        if not self._begin_anew(entry):
            return None
        for one in entry.window:
            self._number(entry, one)
        return entry.window[0]

    def _begin_anew(self, entry: PartitionEntry) -> bool:
        """Restart the partition at sequence 0 in a new epoch. Returns whether that is possible now."""
        if self.transactional:  # the whole transaction fails; `begin` clears its entries
            return False
        identity = self.identity
        if identity is not None and entry.identity is not None and identity.producer_id == entry.identity.producer_id:
            # Every epoch is used for one restart only, so this partition has seen none of its numbers.
            if identity.epoch >= LAST_EPOCH:
                self.identity, self.wants_identity = None, True
                return False
            identity = self.identity = ProducerIdentity(identity.producer_id, identity.epoch + 1)
        if identity is None:
            return False
        entry.begin(identity)
        return True

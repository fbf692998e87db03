"""Sequences: which batch of a partition may be sent next, and what its answer means for those behind it.

The rules: a batch under a number is that batch for ever. It is sent again byte for byte until somebody says what became
of it; only what is known not to be in the log is ever numbered anew, and then under a new epoch, which shuts out late
copies. It is never more than four behind the newest, because a broker remembers five batches. Until the first under an
identity is acknowledged there is only that one, because a broker that knows nothing of a producer takes any sequence.

A *gap* is a number given to a batch that will never be sent again, or one that the broker did not expect. While there
is one, no new numbers are given. Batches that may have been written are asked after first, one by one; once none is
left, the rest begins again at 0 in a new epoch (an idempotent producer), or the transaction is to be aborted.
Source: KIP-98, KIP-360; Kafka's TransactionManager and TxnPartitionEntry. Kafka renumbers also what may have been
written, which librdkafka found to duplicate (its release 2.5); here it is never done.
"""

from collections.abc import Iterable
from enum import Enum

from ...protocol.batches import SEQUENCE_MASK
from ...protocol.errors import ErrorCode
from ..values import ProducerIdentity

WINDOW = 5  # batches of one producer that a broker remembers in a partition
_AHEAD = SEQUENCE_MASK >> 1  # of two sequences, the one less than this ahead of the other is the later
LAST_EPOCH = 32_766  # 32,767 is the broker's own, to fence with

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
# What a broker says of these bytes whenever it gets them, so that no earlier attempt was written either.
_NEVER_WRITTEN = _UNEXPECTED | {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD}


class Verdict(Enum):
    """What an answer means for its batch."""

    WRITTEN = "written"
    DUPLICATE = "duplicate"  # written before, at an offset nobody remembers
    AGAIN = "again"  # the same bytes, after a back-off
    SPLIT = "split"  # in smaller parts
    FAILED = "failed"


class Numbered:
    """A batch, for its partition's entry. sequence: -1 until it has one. identity: the one it is numbered under."""

    __slots__ = ("_maybe_before", "count", "identity", "maybe_written", "on_the_way", "ordinal", "sequence")

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.sequence = -1
        self.ordinal = 0  # which batch of its partition it is
        self.identity: ProducerIdentity | None = None
        self.maybe_written = False  # sent, and no answer has shown since whether it was written
        self._maybe_before = False  # as it was before the last attempt
        self.on_the_way = False

    def leave(self) -> None:
        """It is being sent."""
        self._maybe_before = self.maybe_written
        self.on_the_way = self.maybe_written = True

    def come_back(self, *, maybe_written: bool) -> None:
        """Whether this attempt was carried out; an earlier one may have been all the same."""
        self.on_the_way = False
        self.maybe_written = self._maybe_before or maybe_written

    @property
    def after(self) -> int:
        """The sequence that comes after its last record."""
        return self.sequence + self.count & SEQUENCE_MASK


class PartitionEntry:
    """The sequence numbers of one partition. `window`: batches sent and not done with, oldest first.

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
        """At 0, under this identity."""
        self.identity = identity
        self.next_sequence = self.acked = 0
        self.gap = self.is_known = False

    @property
    def is_waiting(self) -> bool:
        """Whether a batch is to be sent again."""
        return any(not one.on_the_way for one in self.window)

    @property
    def is_busy(self) -> bool:
        return any(one.on_the_way for one in self.window)


class Sequences:
    """The sequence numbers of one producer. idempotent False: no numbers; only the window and the order are kept.

    identity: what new entries begin under; None until there is one, and while a new one is needed.
    wants_identity: an id's epochs are used up, or the broker no longer takes ours: a new id has to be asked for.
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
        """A new identity. Entries under an older one begin at 0 if it is transactional; else they go on as they are."""
        self.identity = identity
        self.wants_identity = False
        if self.transactional:
            self.is_broken = False
            for entry in entries:
                entry.begin(None)
                entry.window.clear()

    # ---- what may be sent ------------------------------------------------------------------------------------------

    def again(self, entry: PartitionEntry) -> Numbered | None:
        """The batch to be sent again next, if it may go now: one at a time, in the order of their numbers."""
        window = entry.window
        if not window:
            return None
        if not self.idempotent:
            return next((one for one in window if not one.on_the_way), None)
        if entry.is_busy:  # their answers may change what this one is worth
            return None
        if entry.gap:
            return next((one for one in window if one.maybe_written), None) or self._restarted(entry)
        return window[0]

    def may_take_new(self, entry: PartitionEntry) -> bool:
        """Whether a batch without a number may get one now. Retries go first."""
        if entry.gap and not self._is_settled(entry):
            return False
        if len(entry.window) >= self._window or entry.is_waiting:
            return False
        if self.idempotent and entry.window:
            if entry.numbered - entry.window[0].ordinal >= self._window:
                return (
                    False  # those since the oldest count even if they are acknowledged: the broker forgets the oldest
                )
            if not self.transactional and not entry.is_known:
                return False  # in a transaction, what overtakes the first batch only makes it abort
        return not self.idempotent or (entry.identity or self.identity) is not None

    def take(self, entry: PartitionEntry, batch: Numbered) -> None:
        """Give the batch its number, at the moment of its first sending."""
        if self.idempotent:
            if entry.identity is None:
                assert self.identity is not None
                entry.begin(self.identity)
            self._number(entry, batch)
        entry.window.append(batch)

    def _number(self, entry: PartitionEntry, batch: Numbered) -> None:
        batch.identity = entry.identity
        batch.sequence = entry.next_sequence
        batch.ordinal = entry.numbered
        entry.numbered += 1
        entry.next_sequence = batch.after

    # ---- what came of it -------------------------------------------------------------------------------------------

    def judge(self, entry: PartitionEntry, batch: Numbered, code: ErrorCode) -> Verdict:
        """What the broker's answer means; the batch is out of the window if the verdict ends it."""
        batch.come_back(maybe_written=code in _MAYBE_WRITTEN)
        if code == ErrorCode.NONE or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._acked(entry, batch)
            return Verdict.WRITTEN if code == ErrorCode.NONE else Verdict.DUPLICATE
        if batch not in entry.window:  # given up before its answer came
            return Verdict.FAILED
        if code in _NEVER_WRITTEN:
            batch.maybe_written = False
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            return Verdict.SPLIT
        if self.idempotent and code in _UNEXPECTED:
            return self._unexpected(entry, batch)
        if self.idempotent and not self.transactional and code in _OUTDATED:
            self._give_up_id(entry)
            return Verdict.AGAIN
        if code.retriable:
            return Verdict.AGAIN
        self.dropped(entry, batch)
        return Verdict.FAILED

    def _acked(self, entry: PartitionEntry, batch: Numbered) -> None:
        batch.maybe_written = False
        if batch in entry.window:
            entry.window.remove(batch)
        entry.is_known = entry.is_known or batch.identity == entry.identity
        if self.idempotent and batch.identity == entry.identity and batch.after - entry.acked & SEQUENCE_MASK < _AHEAD:
            entry.acked = batch.after

    def _unexpected(self, entry: PartitionEntry, batch: Numbered) -> Verdict:
        if entry.window and entry.window[0] is not batch and not entry.gap:
            return Verdict.AGAIN  # an earlier one is in the way: this one is in line once that has been sent again
        if self.transactional:
            self.dropped(entry, batch)
            return Verdict.FAILED
        entry.gap = True
        return Verdict.AGAIN

    def _give_up_id(self, entry: PartitionEntry) -> None:
        """Another producer has taken over this id: nothing but a new one helps."""
        entry.gap = True
        current, ours = self.identity, entry.identity
        if current is not None and ours is not None and current.producer_id == ours.producer_id:
            self.identity, self.wants_identity = None, True

    def dropped(self, entry: PartitionEntry, batch: Numbered) -> None:
        """The batch is given up without having been acknowledged: if it had a number, that is a gap."""
        if batch not in entry.window:
            return
        entry.window.remove(batch)
        if self.idempotent and batch.sequence >= 0:
            entry.gap = True
            if self.transactional:
                self.is_broken = True

    def split(self, entry: PartitionEntry, batch: Numbered, parts: list[Numbered]) -> None:
        """The parts take the place of the batch, which was not written, and share its numbers out among themselves."""
        sequence = batch.sequence
        for part in parts:
            part.identity, part.ordinal = batch.identity, batch.ordinal
            if sequence >= 0:
                part.sequence = sequence
                sequence = part.after
        at = entry.window.index(batch)
        entry.window[at : at + 1] = parts

    # ---- gaps ------------------------------------------------------------------------------------------------------

    def _is_settled(self, entry: PartitionEntry) -> bool:
        """Whether the gap is none any more: all was written after all, or the entry has begun anew."""
        if entry.window:
            return False
        if entry.acked == entry.next_sequence:  # what was given up had been written: a later batch was accepted
            entry.gap = False
            return True
        return self._begin_anew(entry)

    def _restarted(self, entry: PartitionEntry) -> Numbered | None:
        """The first of the window, after all of it was numbered anew; none of it is in the log."""
        if not self._begin_anew(entry):
            return None
        for one in entry.window:
            self._number(entry, one)
        return entry.window[0]

    def _begin_anew(self, entry: PartitionEntry) -> bool:
        if self.transactional:  # the transaction fails as a whole; `begin` clears its entries
            return False
        identity = self.identity
        if identity is not None and entry.identity is not None and identity.producer_id == entry.identity.producer_id:
            # Every epoch is used by one restart only, so none of its numbers were ever seen in this partition.
            if identity.epoch >= LAST_EPOCH:
                self.identity, self.wants_identity = None, True
                return False
            identity = self.identity = ProducerIdentity(identity.producer_id, identity.epoch + 1)
        if identity is None:
            return False
        entry.begin(identity)
        return True

"""The changes of one request in one share partition, decided in portions of a few runs (ranges of records in the same
state). Pure.

The rules: nothing changes before the unit of the request is committed. Other requests are served between two portions:
locks and transactions end, members acquire and acknowledge, an admin resets the offset. They need not wait for a
request that is being decided. Instead each portion stores the runs about which it has decided, and is decided again if
these have changed. finish() does that for all portions, so the result is right whatever has happened; decide_ahead()
only leaves it less to do. Comparing and replacing runs takes little time even for many. A portion is limited by the
number of runs that it covers, so a range of the request that covers many runs is cut.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from .machine import Ack, Decision, Range, SharePartition
from .records import EncodedStates, encode_states
from .runs import Change, Columns, Runs, Transaction
from .values import AckRange, AckType, State, StateBatch

RUNS = 100  # the most that one portion covers; each acknowledged range counts as at least one
NOTHING_BEFORE = -2  # an offset below all that a request can name

_KINDS = frozenset(int(kind) for kind in AckType)

Decide = Callable[[Sequence[Ack], int], Decision]
"""Decides some acknowledgements. The number: the last offset acknowledged before them."""


class _Portion:
    """A few acknowledged ranges of a request, and the changes decided for them. touched: how many runs (ranges of
    records in the same state) they cover.
    """

    __slots__ = (
        "above",
        "acks",
        "archived",
        "before",
        "change",
        "decision",
        "freed",
        "ranges",
        "records",
        "rows",
        "state_epoch",
        "touched",
    )

    def __init__(self, acks: Sequence[Ack], above: int) -> None:
        """acks: (first, last, type), in order. above: the last offset acknowledged before them, which they must
        exceed.
        """
        self.acks = acks
        self.above = above
        self.touched = 0
        self.records = Counter[int]()
        for first, last, kind in acks:
            self.records[kind] += last - first + 1

    def decide(self, machine: SharePartition, decide: Decide) -> None:
        """Decide the changes of these ranges in the present state, and encode them. Raises KafkaError."""
        first = self.acks[0][0] if self.above == NOTHING_BEFORE else self.above + 1
        last = self.acks[-1][1]
        self.decision = decide(self.acks, self.above)
        self.before: Columns = machine.runs.part(first, last)
        before = Runs.of(self.before)
        self.touched = max(len(before), len(self.acks))
        after = before.copy()
        after.put_all(self.decision.runs)
        self.change = Change(first, last, before, after)
        self.rows = encode_states(self.decision.batches)
        self.ranges = {batch[:2] for batch in self.decision.batches}
        archived = [batch for batch in self.decision.batches if batch.state is State.ARCHIVED]
        self.archived = sum(batch.last - batch.first + 1 for batch in archived)
        available = (batch.first for batch in self.decision.batches if batch.state is State.AVAILABLE)
        self.freed = next(available, None)  # the first offset that becomes available
        self.state_epoch = machine.state_epoch

    def is_up_to_date(self, machine: SharePartition) -> bool:
        """Return whether the states of the portion's records have not changed since decide()."""
        first, last, *_ = self.change
        return self.state_epoch == machine.state_epoch and machine.runs.part(first, last) == self.before


class Portions:
    """The acknowledgements of one request in one share partition."""

    def __init__(self, machine: SharePartition, acks: Sequence[AckRange], decide: Decide) -> None:
        """decide: returns the changes for some ranges, given the last offset before them; raises KafkaError."""
        self.machine = machine
        self._acks = _by_kind(acks)
        self._rest: Ack | None = None  # of a range that was cut
        self._decide = decide
        self._portions: list[_Portion] = []

    # ---- deciding: nothing changes ---------------------------------------------------------------------------

    def decide_ahead(self) -> Iterator[int]:
        """Decide the acknowledgements portion by portion. Yields after each portion how many runs (ranges of records in
        the same state) it covers. Raises KafkaError.
        """
        while (touched := self._decide_next()) > 0:
            yield touched

    def decide_again(self) -> Iterator[int]:
        """Decide again those portions whose records others have changed since. Yields after each portion how many runs
        (ranges of records in the same state) it covers. Raises KafkaError.
        """
        for portion in [each for each in self._portions if not each.is_up_to_date(self.machine)]:
            portion.decide(self.machine, self._decide)
            yield portion.touched

    def finish(self) -> None:
        """Decide the ranges that are left, and decide again those whose records have changed since. Raises KafkaError.

        The caller must commit, and call apply() or apply_pending(), before anything else changes.
        """
        for _ in self.decide_again():
            pass
        for _ in self.decide_ahead():
            pass

    def _decide_next(self) -> int:
        """Decide the next portion. Returns how many runs (ranges of records in the same state) it covers; 0 if all are
        decided.
        """
        acks = self._next_acks()
        if not acks:
            return 0
        above = self._portions[-1].acks[-1][1] if self._portions else NOTHING_BEFORE
        portion = _Portion(acks, above)
        portion.decide(self.machine, self._decide)
        self._portions.append(portion)
        return portion.touched

    def _next_acks(self) -> list[Ack]:
        """Return the next acknowledged ranges, which cover about RUNS runs at most. The last one is cut at the end of a
        run if it is too long.
        """
        runs, start = self.machine.runs, self.machine.start
        acks: list[Ack] = []
        left = RUNS
        while left > 0:
            ack, self._rest = self._rest or next(self._acks, None), None
            if ack is None:
                break
            first, last, kind = ack
            ends = runs.last_of(max(first, start), left)
            if ends is not None and first <= ends < last <= self.machine.end:  # above the window it is refused whole
                self._rest = ends + 1, last, kind
                last = ends
            acks.append((first, last, kind))
            left -= max(1, runs.count(first, last))
        return acks

    # ---- once it is finished ---------------------------------------------------------------------------------

    @property
    def batches(self) -> list[StateBatch]:
        """The states to be logged."""
        return [batch for portion in self._portions for batch in portion.decision.batches]

    def encoded(self) -> EncodedStates:
        """Return the states to be logged, as bytes."""
        count = sum(len(portion.decision.batches) for portion in self._portions)
        return EncodedStates(count, b"".join([portion.rows for portion in self._portions]))

    def position(self) -> tuple[int, int]:
        """Return (start, complete) after the changes: the window's first offset, and how many records from there on are
        acknowledged or archived.
        """
        machine, changes = self.machine, self._changes
        start = machine.start_with(changes)
        more = sum(change.after.complete - change.before.complete for change in changes)
        return start, machine.runs.complete + more - (start - machine.start)

    @property
    def more_runs(self) -> int:
        """By how many the changes increase the number of runs (ranges of records in the same state); negative if they
        decrease it.
        """
        return sum(len(change.after) - len(change.before) for change in self._changes)

    @property
    def _changes(self) -> list[Change]:
        """The changes, one for each portion."""
        return [portion.change for portion in self._portions]

    def apply(self) -> None:
        """Apply the changes to the share partition. Call it after finish() and the commit."""
        freed = [portion.freed for portion in self._portions if portion.freed is not None]
        self.machine.apply_decided(self._changes, freed[0] if freed else None)
        for portion in self._portions:
            if portion.decision.renewed_until_ms is not None:
                self.machine.set_alarm((portion.decision.renewed_until_ms, *portion.change[:2]))

    def apply_pending(self, transaction: Transaction, position: int) -> None:
        """Make the changes pending in the transaction. position: the offset of their record in the log."""
        ranges: set[Range] = set()
        for portion in self._portions:
            ranges |= portion.ranges
        self.machine.apply_decided_pending(transaction, position, self._changes, ranges)

    # ---- what is counted -------------------------------------------------------------------------------------

    def records_by_type(self) -> Counter[int]:
        """Return how many records are acknowledged with each type."""
        found = Counter[int]()
        for portion in self._portions:
            found.update(portion.records)
        return found

    @property
    def archived(self) -> int:
        """The number of records that the changes archive."""
        return sum(portion.archived for portion in self._portions)


def _by_kind(acks: Iterable[AckRange]) -> Iterator[Ack]:
    """Yield (first, last, type) for each range of offsets with one type of acknowledgement. Raises INVALID_REQUEST for
    ranges that are out of order, or have unknown types.
    """
    before = -1
    for first, last, types in acks:
        if first > last or first < before:  # as in Kafka, a range may begin with the last offset of the one before
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"offsets {first} to {last} are out of order")
        before = last
        if not types or not _KINDS.issuperset(types):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"offsets {first} to {last} have unknown types")
        if len(types) == 1:
            yield first, last, types[0]
            continue
        if len(types) != last - first + 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{len(types)} types for {last - first + 1} offsets")
        begins = 0
        for index in range(1, len(types) + 1):
            if index == len(types) or types[index] != types[begins]:
                yield first + begins, first + index - 1, types[begins]
                begins = index

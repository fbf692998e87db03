"""The states of the records of a share partition, as runs: ranges of consecutive offsets with the same state. Pure.

The rules: runs are in order and do not overlap. Adjacent runs with the same state are merged into one. Offsets without
a known state have no run. A change costs a search and the runs that it touches, no matter how many records there are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import compress, repeat
from operator import add, and_, eq, is_, itemgetter, sub
from typing import Any, NamedTuple

from .values import State, StateBatch

Transaction = tuple[int, int]
"""A partition of __share_group_state, and the id of the producer whose marker there ends the transaction."""


class Standing(NamedTuple):
    """The state of a record.

    deliveries: how often it was delivered. member, deadline_ms: of an ACQUIRED record, who has it and until when.
    transaction: of a PENDING record, the transaction whose end decides about it. becomes: its state if that transaction
    commits.
    """

    state: State
    deliveries: int
    member: str = ""
    deadline_ms: int = 0
    transaction: Transaction | None = None
    becomes: State = State.AVAILABLE


@cache
def standing_of(state: int, deliveries: int) -> Standing:
    """Return the Standing with this state and number of deliveries. It is cached, because thousands of runs have the
    same.
    """
    return Standing(State(state), deliveries)


class StateColumns(Sequence[StateBatch]):
    """States of ranges as columns, without members. Thousands of them can be read from the log in little time.

    firsts, lasts: the offsets, in order and without overlaps. standings: the state of each range, made by
    standing_of(); all of these records were delivered or are done. complete: how many of the records are acknowledged
    or archived.
    """

    __slots__ = ("complete", "firsts", "lasts", "standings")

    def __init__(
        self, firsts: Sequence[int], lasts: Sequence[int], standings: Sequence[Standing], complete: int
    ) -> None:
        self.firsts, self.lasts, self.standings, self.complete = firsts, lasts, standings, complete

    @property
    def has_no_gaps(self) -> bool:
        """Whether every offset from the first to the last has a state."""
        with_state = sum(self.lasts) - sum(self.firsts) + len(self)  # the lengths of all ranges
        return with_state == self.lasts[-1] - self.firsts[0] + 1

    def __len__(self) -> int:
        return len(self.firsts)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[StateBatch]:
        for first, last, standing in zip(self.firsts, self.lasts, self.standings, strict=True):
            yield StateBatch(first, last, standing.state, standing.deliveries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


Run = tuple[int, int, Standing]
Piece = tuple[int, int, Standing | None]

BLOCK = 64  # runs that _skip_final() examines in one step
MANY = 32  # pieces: setting so many takes less time by rebuilding all runs than by one search for each

_FINAL = (State.ACKNOWLEDGED, State.ARCHIVED)
_state_of = itemgetter(0)  # of a standing

Columns = tuple[list[int], list[int], list[Standing]]
"""The first offsets, last offsets and standings of runs."""


class Change(NamedTuple):
    """The runs from `first` to `last` (inclusive) before and after a change."""

    first: int
    last: int
    before: "Runs"
    after: "Runs"


def is_final(standing: Standing | None) -> bool:
    """Return whether the record is acknowledged or archived."""
    return standing is not None and standing.state in _FINAL


class Runs:
    """The states of one share partition's records, as runs: ranges of offsets with the same state. complete: how many
    records in them are acknowledged or archived.
    """

    __slots__ = ("_firsts", "_lasts", "_standings", "complete")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        """runs: in order, without overlaps."""
        columns = list(zip(*runs, strict=True)) or ((), (), ())
        self._firsts: list[int] = list(columns[0])
        self._lasts: list[int] = list(columns[1])
        self._standings: list[Standing] = list(columns[2])
        self.complete = _count_final(self._firsts, self._lasts, self._standings)
        self._merge_if_alike()

    def _merge_if_alike(self) -> None:
        """Merge adjacent runs with the same state, if there are such runs."""
        are_adjacent = map(eq, map(add, self._lasts, repeat(1)), self._firsts[1:])
        are_alike = map(eq, self._standings, self._standings[1:])
        if any(map(and_, are_adjacent, are_alike)):
            self._merge()

    def _merge(self) -> None:
        """Merge all adjacent runs with the same state."""
        runs, self._firsts, self._lasts, self._standings = list(self), [], [], []
        for first, last, standing in runs:
            if self._lasts and self._lasts[-1] + 1 == first and self._standings[-1] == standing:
                self._lasts[-1] = last
            else:
                self._firsts.append(first)
                self._lasts.append(last)
                self._standings.append(standing)

    @classmethod
    def of(cls, columns: Columns) -> "Runs":
        """Return runs made of these columns, which are in order and do not overlap."""
        made = cls()
        made._firsts, made._lasts, made._standings = columns
        made.complete = _count_final(*columns)
        made._merge_if_alike()
        return made

    @classmethod
    def of_states(cls, states: Sequence[StateBatch]) -> "Runs":
        """Return runs with these states. Records that were never delivered and are available need no run."""
        if not isinstance(states, StateColumns):
            return cls(
                [
                    (first, last, standing_of(state, deliveries))
                    for first, last, state, deliveries, _ in states
                    if deliveries or state is not State.AVAILABLE
                ]
            )
        made = cls()
        made._firsts, made._lasts = list(states.firsts), list(states.lasts)
        made._standings, made.complete = list(states.standings), states.complete
        if any(map(is_, made._standings, made._standings[1:])):  # the same state is the same object: standing_of()
            made._merge_if_alike()
        return made

    def copy(self) -> "Runs":
        """Return a copy that can be changed independently."""
        made = Runs()
        made._firsts, made._lasts, made._standings = self._firsts[:], self._lasts[:], self._standings[:]
        made.complete = self.complete
        return made

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[Run]:
        return zip(self._firsts, self._lasts, self._standings, strict=True)

    @property
    def last(self) -> int | None:
        """The last offset with a known state; None if there is none."""
        return self._lasts[-1] if self._lasts else None

    def at(self, offset: int) -> Run | None:
        """Return the run that contains this offset; None if there is none."""
        index = bisect_left(self._lasts, offset)
        if index == len(self._firsts) or self._firsts[index] > offset:
            return None
        return self._firsts[index], self._lasts[index], self._standings[index]

    def pieces(self, first: int, last: int) -> Iterator[Piece]:
        """Yield (first, last, state) of each run from `first` to `last`, cut at both ends, and with state None for each
        gap between runs.

        Do not change the runs while iterating.
        """
        if first > last:
            return
        firsts, lasts, standings = self._firsts, self._lasts, self._standings
        at = first
        for index in range(bisect_left(lasts, first), bisect_right(firsts, last)):
            begins, ends = max(firsts[index], first), min(lasts[index], last)
            if begins > at:
                yield at, begins - 1, None
            yield begins, ends, standings[index]
            at = ends + 1
        if at <= last:
            yield at, last, None

    def count(self, first: int, last: int) -> int:
        """Return how many runs have records from `first` to `last`."""
        return max(0, bisect_right(self._firsts, last) - bisect_left(self._lasts, first))

    def last_of(self, offset: int, count: int) -> int | None:
        """Return the last offset of the `count`-th run that ends at this offset or later; None if there are
        fewer runs.
        """
        index = bisect_left(self._lasts, offset) + count - 1
        return self._lasts[index] if index < len(self._lasts) else None

    def part(self, first: int, last: int) -> Columns:
        """Return the runs from `first` to `last`, cut at both ends, as columns: first offsets, last offsets, states."""
        begin, end = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        firsts, lasts = self._firsts[begin:end], self._lasts[begin:end]
        if firsts:
            firsts[0] = max(firsts[0], first)
            lasts[-1] = min(lasts[-1], last)
        return firsts, lasts, self._standings[begin:end]

    def next_part(self, offset: int, count: int) -> Columns:
        """Return the next `count` runs from this offset on, as columns; fewer at the end."""
        begin = bisect_left(self._lasts, offset)
        firsts = self._firsts[begin : begin + count]
        if firsts:
            firsts[0] = max(firsts[0], offset)
        return firsts, self._lasts[begin : begin + count], self._standings[begin : begin + count]

    def final_until(self, offset: int) -> int:
        """Return the first offset from this one on that is neither acknowledged nor archived."""
        lasts, standings = self._lasts, self._standings
        begin = bisect_left(lasts, offset)
        if begin + BLOCK < len(lasts):
            begin, offset = self._skip_final(begin, offset)
        for index in range(begin, len(lasts)):
            if self._firsts[index] > offset or standings[index].state not in _FINAL:
                break
            offset = lasts[index] + 1
        return offset

    def _skip_final(self, begin: int, offset: int) -> tuple[int, int]:
        """Skip blocks of adjacent runs that are all acknowledged or archived, which is faster than run by run.

        begin: the index of the first run. Returns the index and the offset after the skipped blocks.
        """
        while begin + BLOCK <= len(self._lasts):
            end = begin + BLOCK
            firsts, lasts = self._firsts[begin:end], self._lasts[begin:end]
            is_whole = firsts[0] <= offset and all(map(eq, firsts[1:], map(add, lasts, repeat(1))))
            if not (is_whole and all(map(_FINAL.__contains__, map(_state_of, self._standings[begin:end])))):
                break
            begin, offset = end, lasts[-1] + 1
        return begin, offset

    def first_open(self, offset: int) -> int:
        """Return the first offset, from this one on, that is available or has no known state."""
        firsts, lasts, standings = self._firsts, self._lasts, self._standings
        for index in range(bisect_left(lasts, offset), len(firsts)):
            if firsts[index] > offset or standings[index].state is State.AVAILABLE:
                break
            offset = lasts[index] + 1
        return offset

    def put(self, first: int, last: int, standing: Standing | None) -> None:
        """Set the state of the records from `first` to `last`. standing None: their state is unknown from now on."""
        firsts, lasts, standings = self._firsts, self._lasts, self._standings
        begin, end = bisect_left(lasts, first), bisect_right(firsts, last)
        self.complete += (last - first + 1 if is_final(standing) else 0) - _count_final(*self.part(first, last))
        new: list[Run] = []
        if begin < end and firsts[begin] < first:
            new.append((firsts[begin], first - 1, standings[begin]))
        elif standing is not None and begin and lasts[begin - 1] == first - 1 and standings[begin - 1] == standing:
            begin -= 1
            new.append((firsts[begin], lasts[begin], standing))
        after: Run | None = None
        if begin < end and lasts[end - 1] > last:
            after = last + 1, lasts[end - 1], standings[end - 1]
        elif standing is not None and end < len(firsts) and firsts[end] == last + 1 and standings[end] == standing:
            after = firsts[end], lasts[end], standing
            end += 1
        if standing is not None:
            if new and new[-1][2] == standing:
                first = new.pop()[0]
            if after is not None and after[2] == standing:
                last, after = after[1], None
            new.append((first, last, standing))
        if after is not None:
            new.append(after)
        firsts[begin:end] = [run[0] for run in new]
        lasts[begin:end] = [run[1] for run in new]
        standings[begin:end] = [run[2] for run in new]

    def put_all(self, pieces: Sequence[Piece]) -> None:
        """Set the states of these pieces, which are in order and do not overlap."""
        if len(pieces) < MANY:
            for piece in pieces:
                self.put(*piece)
        else:
            self.overlay(pieces)

    def overlay(self, pieces: Sequence[Piece]) -> None:
        """Set the states of these pieces by rebuilding all runs in one pass, which is faster than put() for many
        pieces.
        """
        made: list[Run] = []
        runs = iter(self)
        run = next(runs, None)
        for first, last, standing in pieces:
            while run is not None and run[1] < first:
                made.append(run)
                run = next(runs, None)
            if run is not None and run[0] < first:
                made.append((run[0], first - 1, run[2]))
            while run is not None and run[1] <= last:
                run = next(runs, None)
            if run is not None and run[0] <= last:
                run = last + 1, run[1], run[2]
            if standing is not None:
                made.append((first, last, standing))
        if run is not None:
            made += (run, *runs)
        fresh = Runs(made)
        self._firsts, self._lasts, self._standings = fresh._firsts, fresh._lasts, fresh._standings
        self.complete = fresh.complete

    def replace(self, changes: Sequence[Change]) -> None:
        """Make these changes, which are in order and adjacent.

        For many runs this is much faster than put(), because the new runs are already made.
        """
        if not changes:
            return
        first, last = changes[0].first, changes[-1].last
        begin, end = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        if begin and self._lasts[begin - 1] == first - 1:
            begin -= 1  # the run before may have the same state as the first new one: they are merged then
        if end < len(self._firsts) and self._firsts[end] == last + 1:
            end += 1
        new = Runs()
        if begin < end and self._firsts[begin] < first:
            new._extend(self.part(self._firsts[begin], first - 1))
        for change in changes:
            new._extend((change.after._firsts, change.after._lasts, change.after._standings))
        if begin < end and self._lasts[end - 1] > last:
            new._extend(self.part(last + 1, self._lasts[end - 1]))
        self.complete += sum(change.after.complete - change.before.complete for change in changes)
        self._firsts[begin:end], self._lasts[begin:end] = new._firsts, new._lasts
        self._standings[begin:end] = new._standings

    def exchange(self, other_of: Callable[[Standing], Standing]) -> None:
        """Replace the state of each run by what other_of() returns for it."""
        keys = list(map(id, self._standings))
        own = dict(zip(keys, self._standings, strict=True))
        others = {key: other_of(standing) for key, standing in own.items()}  # thousands of runs share a few states
        self._standings = list(map(others.__getitem__, keys))
        self.complete = _count_final(self._firsts, self._lasts, self._standings)
        self._merge_if_alike()

    def records_where(self, is_counted: Callable[[Standing], bool]) -> int:
        """Return how many records have a state for which is_counted() returns true."""
        keys = list(map(id, self._standings))
        own = dict(zip(keys, self._standings, strict=True))
        counted = {key for key, standing in own.items() if is_counted(standing)}  # thousands of runs share a few states
        return count_records(self._firsts, self._lasts, list(map(counted.__contains__, keys))) if counted else 0

    def _extend(self, columns: Columns) -> None:
        """Append these runs. The first one is merged with the last one here if they are adjacent and have the same
        state. Does not update `complete`.
        """
        firsts, lasts, standings = columns
        if not firsts:
            return
        is_longer = self._lasts and self._lasts[-1] + 1 == firsts[0] and self._standings[-1] == standings[0]
        if is_longer:
            self._lasts[-1] = lasts[0]
        skip = 1 if is_longer else 0
        self._firsts += firsts[skip:]
        self._lasts += lasts[skip:]
        self._standings += standings[skip:]

    def cut(self, offset: int) -> None:
        """Remove the states of all records below this offset."""
        end = bisect_left(self._lasts, offset)
        gone = self._firsts[:end], self._lasts[:end], self._standings[:end]
        self.complete -= _count_final(*gone)
        del self._firsts[:end], self._lasts[:end], self._standings[:end]
        if self._firsts and self._firsts[0] < offset:
            self.complete -= _count_final([self._firsts[0]], [offset - 1], self._standings[:1])
            self._firsts[0] = offset


def _count_final(firsts: Sequence[int], lasts: Sequence[int], standings: Sequence[Standing]) -> int:
    """Return how many records in these runs are acknowledged or archived."""
    return count_records(firsts, lasts, list(map(_FINAL.__contains__, map(_state_of, standings))))


def count_records(firsts: Sequence[int], lasts: Sequence[int], are_counted: Sequence[bool]) -> int:
    """Return how many records are in the ranges for which are_counted is true."""
    count: int = sum(compress(map(sub, lasts, firsts), are_counted)) + sum(are_counted)
    return count

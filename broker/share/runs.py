"""What is known of the records of a share partition, as runs of offsets that are alike. Pure.

The rules: runs are in order and do not overlap; neighbours that are alike are one; where nothing is known is none. An
event costs the runs it touches and a search, and nothing for each record.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .values import State

Transaction = tuple[int, int]
"""A partition of the state's log, and the id of the producer whose marker there decides."""


class Standing(NamedTuple):
    """What is known of a record.

    deliveries: how often it was given out. member, deadline_ms: whose it is while it is ACQUIRED, and until when.
    transaction: which one's end decides while it is PENDING, and what it becomes where that commits.
    """

    state: State
    deliveries: int
    member: str = ""
    deadline_ms: int = 0
    transaction: Transaction | None = None
    becomes: State = State.AVAILABLE


Run = tuple[int, int, Standing]
Piece = tuple[int, int, Standing | None]

_FINAL = (State.ACKNOWLEDGED, State.ARCHIVED)


def is_final(standing: Standing | None) -> bool:
    """Whether the record is done with, for this group."""
    return standing is not None and standing.state in _FINAL


class Runs:
    """All runs of one share partition. complete: how many records in them are acknowledged or archived."""

    __slots__ = ("_firsts", "_lasts", "_standings", "complete")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        """runs: in order, without overlaps."""
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._standings: list[Standing] = []
        self.complete = 0
        before: Standing | None = None
        for first, last, standing in runs:
            if standing.state in _FINAL:
                self.complete += last - first + 1
            if standing == before and self._lasts[-1] + 1 == first:
                self._lasts[-1] = last
                continue
            self._firsts.append(first)
            self._lasts.append(last)
            self._standings.append(standing)
            before = standing

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[Run]:
        return zip(self._firsts, self._lasts, self._standings, strict=True)

    @property
    def last(self) -> int | None:
        """The last offset that anything is known of."""
        return self._lasts[-1] if self._lasts else None

    def at(self, offset: int) -> Run | None:
        """The run with this offset in it."""
        index = bisect_left(self._lasts, offset)
        if index == len(self._firsts) or self._firsts[index] > offset:
            return None
        return self._firsts[index], self._lasts[index], self._standings[index]

    def pieces(self, first: int, last: int) -> Iterator[Piece]:
        """What lies from `first` to `last`, all of it: runs, cut at both ends, and None where nothing is known.

        Not while runs are changed.
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

    def first_open(self, offset: int) -> int:
        """The first offset from this one on that is available, or of which nothing is known."""
        firsts, lasts, standings = self._firsts, self._lasts, self._standings
        for index in range(bisect_left(lasts, offset), len(firsts)):
            if firsts[index] > offset or standings[index].state is State.AVAILABLE:
                break
            offset = lasts[index] + 1
        return offset

    def put(self, first: int, last: int, standing: Standing | None) -> None:
        """From `first` to `last` this is known from now on; None: nothing."""
        firsts, lasts, standings = self._firsts, self._lasts, self._standings
        begin, end = bisect_left(lasts, first), bisect_right(firsts, last)
        self.complete += (last - first + 1 if is_final(standing) else 0) - self._count_final(begin, end, first, last)
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

    def _count_final(self, begin: int, end: int, first: int, last: int) -> int:
        """How many records from `first` to `last`, in these runs, are done with."""
        count = 0
        for index in range(begin, end):
            if self._standings[index].state in _FINAL:
                count += min(self._lasts[index], last) - max(self._firsts[index], first) + 1
        return count

    def cut(self, offset: int) -> None:
        """Forget all that lies below."""
        if self._firsts and self._firsts[0] < offset:
            self.put(self._firsts[0], offset - 1, None)

"""Decides which records of the batches that were read a member acquires, and which are archived. Pure.

The rules: whole batches are delivered, even if that is more than was asked for or than the window has room for, unless
an exact number of records is wanted. Records that are delivered again need no additional room in the window. Offsets
between batches were compacted away. They, and batches without data for members, are archived: those before the last
record that is delivered, and those directly after it. Records that failed often are delivered alone (bad_records.py).

Source: Kafka's SharePartition.acquire, lastOffsetAndMaxRecordsToAcquire, maybeArchiveStaleBatches; KAFKA-19555, 19808.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from . import bad_records
from .runs import Runs
from .values import AcquiredRange, Found, State, StateBatch, Wanted, append_or_extend


class Limits(NamedTuple):
    """The limits of an acquisition. deliveries: how often a record is delivered at most. room: by how many records the
    window may grow.
    """

    deliveries: int
    room: int


class Taken(NamedTuple):
    """The result of take(): the ranges that the member acquires, and the ranges without data, which the caller has to
    log as archived before the member acquires anything.
    """

    acquired: list[AcquiredRange]
    archived: list[StateBatch]


def take(
    runs: Runs, window: tuple[int, int], offset: int, found: Sequence[Found], wanted: Wanted, limits: Limits
) -> Taken:
    """Decide which records a member acquires, and which are archived. Changes nothing.

    window: its first and last offset, both inclusive. offset: where the read began. found: the batches that were read,
    in order.
    """
    return _Taking(runs, window, wanted, limits).go_through(offset, found)


class _Taking:
    """One decision of take(), while it goes through the batches."""

    def __init__(self, runs: Runs, window: tuple[int, int], wanted: Wanted, limits: Limits) -> None:
        """window: its first and last offset, both inclusive. wanted: how many records the member asks for."""
        self._runs = runs
        self._start, self._end = window
        self._wanted = wanted
        self._limits = limits
        self._count = 0  # of records taken
        self._begins_batch = False
        self._acquired: list[AcquiredRange] = []
        self._archived: list[StateBatch] = []

    def go_through(self, offset: int, found: Sequence[Found]) -> Taken:
        """Decide about the batches in order, until the member has enough records.

        Archives gaps between batches (their records were compacted away), and batches without data.
        """
        at = max(offset, self._start)
        for batch in found:
            if batch.last < self._start:
                continue
            if batch.first > self._end and self._limits.room <= 0:
                break
            self._archive(at, batch.first - 1)
            at = max(at, batch.last + 1)
            if not batch.is_data:
                self._archive(max(batch.first, self._start), batch.last)
                continue
            if self._is_full(batch.first) or not self._take_from(max(batch.first, self._start), batch.last):
                break
        return Taken(self._acquired, self._archived)

    def _is_full(self, offset: int) -> bool:
        """Return whether the member has enough records, or the window may not grow as far as this offset."""
        return self._count >= self._wanted.max_records or offset > max(self._end, self._end + self._limits.room)

    def _archive(self, first: int, last: int) -> None:
        """Archive the available records in this range, because they have no data for members."""
        for begins, ends, deliveries, _ in self._available_in(first, last):
            append_or_extend(self._archived, begins, ends, State.ARCHIVED, deliveries)

    def _available_in(self, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (first, last, deliveries so far, length of the whole run) of the available records in this range. A run
        is a range of records in the same state.
        """
        for begins, ends, standing in self._runs.pieces(first, last):
            if standing is None:
                yield begins, ends, 0, ends - begins + 1
            elif standing.state is State.AVAILABLE:
                run = self._runs.at(begins)
                assert run is not None
                yield begins, ends, standing.deliveries, run[1] - run[0] + 1

    def _take_from(self, first: int, last: int) -> bool:
        """Let the member acquire the available records of a batch, as far as allowed. Returns whether it may acquire
        more after them.
        """
        if self._limits.room <= 0:
            last = min(last, self._end)
        self._begins_batch = True
        for begins, ends, deliveries, size in self._available_in(first, last):
            together = bad_records.max_together(deliveries, self._limits.deliveries, size)
            if together is not None and self._count:  # records that failed often are delivered without others
                return False
            allowed = self._allowed(begins, ends) if self._wanted.exact else ends - begins + 1
            if together is not None:
                allowed = min(allowed, together)
            if allowed > 0:
                self._add(begins, begins + allowed - 1, deliveries + 1)
            if together is not None or allowed < ends - begins + 1:
                return False
        return True

    def _allowed(self, begins: int, ends: int) -> int:
        """Return how many of these records the member may acquire if it must not get more than max_records. The window
        of the share partition may not grow by more records than it has room for, either.
        """
        wanted = min(ends - begins + 1, self._wanted.max_records - self._count)
        return min(wanted, max(0, min(ends, self._end + max(0, self._limits.room)) - begins + 1))

    def _add(self, first: int, last: int, deliveries: int) -> None:
        """Let the member acquire this range. It is joined with the range before if they are adjacent and were delivered
        equally often, unless a new range has to begin (see _ends_range).
        """
        self._count += last - first + 1
        before = self._acquired[-1] if self._acquired else None
        goes_on = before is not None and before.last + 1 == first and before.deliveries == deliveries
        if goes_on and before is not None and not self._ends_range(before.first, first):
            self._acquired[-1] = before._replace(last=last)
        else:
            self._acquired.append(AcquiredRange(first, last, deliveries))
        self._begins_batch = False

    def _ends_range(self, begins: int, at: int) -> bool:
        """Return whether to begin a new range at this offset: a new batch begins there, and the range before has at
        least batch_size records. If exactly max_records are wanted, batch_size does not count.
        """
        return self._begins_batch and not self._wanted.exact and at - begins >= self._wanted.batch_size

"""Where a group goes on at the target: its offset in the source's partition, through the map, exactly. Pure.

A mirror writes the records of a partition in their order, and what it leaves out (markers, records of aborted
transactions, what compaction took) has no record at the target. So a source offset s means the first mirrored record at
or above s, and where there is none, the end: whoever goes on there reads exactly what it would have read at the source.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from .offset_map import Run


class MapDamaged(Exception):
    """Raised for runs that cannot be the map of one partition: they overlap, or the target's offsets go back."""


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Return the runs of one partition (each maps consecutive offsets) sorted by offset, with adjoining ones joined and
    repeated ones once.

    A run may be named again, as a whole or in part, because a compacted topic may be read while it is written. Raises
    MapDamaged.
    """
    found: list[Run] = []
    for run in sorted(set(runs)):
        if run.source < 0 or run.target < 0 or run.count < 1:
            raise MapDamaged(f"{run} maps nothing")
        last = found[-1] if found else Run(0, 0, 0)
        further, further_there = run.source - last.source, run.target - last.target
        if found and further == further_there <= last.count:  # it repeats the last, or follows it without a gap
            found[-1] = last._replace(count=max(last.count, further + run.count))
        elif further >= last.count and further_there >= last.count:
            found.append(run)
        else:
            raise MapDamaged(f"{last} and {run} contradict each other: two records at one offset, or in another order")
    return found


class PartitionMap:
    """The map of one partition's offsets, source to target."""

    def __init__(self, runs: Iterable[Run], *, first: int = 0) -> None:
        """runs: in any order. first: entries below this source offset are lost, so the map does not answer for it.
        Raises MapDamaged.
        """
        self.runs: Sequence[Run] = in_order(runs)
        self.first = first
        self._sources = [run.source for run in self.runs]

    @property
    def source_end(self) -> int:
        """The source offset after the last mirrored record; 0 if there is none."""
        return _empty_run_after(self.runs[-1]).source if self.runs else 0

    @property
    def target_end(self) -> int:
        """The target offset after the last mirrored record; 0 if there is none."""
        return _empty_run_after(self.runs[-1]).target if self.runs else 0

    def target_of(self, source: int, end: int) -> int:
        """Return the target offset of the first mirrored record at or above this source offset; `end` if there is none.

        end: the end offset of the target's partition, which has mirrored records only. Raises MapDamaged if it is below
        target_end, or the source offset is below `first`.
        """
        if source < self.first:
            raise MapDamaged(
                f"it does not say where source offset {source} went, and begins at {self.first}: its topic was deleted,"
                " or cut"
            )
        if end < self.target_end:
            raise MapDamaged(f"the target ends at {end}, before the last mirrored record: it was cut or made again")
        index = bisect_right(self._sources, source) - 1
        if index >= 0 and source < _empty_run_after(self.runs[index]).source:
            return self.runs[index].target + source - self.runs[index].source
        return self.runs[index + 1].target if index + 1 < len(self.runs) else end


def _empty_run_after(run: Run) -> Run:
    """Return the empty run that begins after this one: the offsets after its last record."""
    return Run(run.source + run.count, run.target + run.count, 0)

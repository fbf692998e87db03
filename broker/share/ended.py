"""Finds the acquisition locks of a share partition that have ended, some runs at a time, and what their end changes.
Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .machine import Alarm, SharePartition
from .portions import Portions
from .runs import Run
from .values import AckRange, AckType, State

_RELEASE = (AckType.RELEASE,)


class Acquired(NamedTuple):
    """Some of the runs (ranges of records in the same state) that a member has acquired.

    looked_at: how many runs were examined. go_on: the offset at which to continue; None at the end of the runs.
    """

    runs: list[Run]
    looked_at: int
    go_on: int | None


def find_acquired(machine: SharePartition, member: str, offset: int, max_runs: int) -> Acquired:
    """Examine at most max_runs runs (ranges of records in the same state) from this offset on. Returns those that the
    member has acquired.
    """
    columns = machine.runs.next_part(offset, max_runs)
    found = [
        (first, last, standing)
        for first, last, standing in zip(*columns, strict=True)
        if standing.state is State.ACQUIRED and standing.member == member
    ]
    looked_at = len(columns[0])
    return Acquired(found, looked_at, columns[1][-1] + 1 if looked_at == max_runs else None)


def find_expired(machine: SharePartition, due: Sequence[Alarm]) -> list[Run]:
    """Return the acquired runs whose deadline has passed, among the ranges of the alarms that are due."""
    horizon_ms = max((deadline_ms for deadline_ms, _, _ in due), default=0)
    found: list[Run] = []
    at = machine.start
    for first, last in sorted((first, last) for _, first, last in due):
        found += [
            (begins, ends, standing)
            for begins, ends, standing in machine.runs.pieces(max(first, at), last)
            if standing is not None and standing.state is State.ACQUIRED and standing.deadline_ms <= horizon_ms
        ]
        at = max(at, last + 1)
    return found


def decide_releases(machine: SharePartition, runs: Iterable[Run], limit: int) -> Portions:
    """Return the release of these acquired runs, which are in offset order. Nothing is decided or changed yet. limit:
    how often a record is delivered at most.
    """
    acks = [AckRange(first, last, _RELEASE) for first, last in _joined(runs)]
    return Portions(machine, acks, lambda ranges, above: machine.decide_release(ranges, limit))


def _joined(runs: Iterable[Run]) -> Iterator[tuple[int, int]]:
    """Yield the ranges (first, last) of these runs. Adjacent runs become one range."""
    begins, ends = 0, -1
    for first, last, _ in runs:
        if first == ends + 1:
            ends = last
            continue
        if begins <= ends:
            yield begins, ends
        begins, ends = first, last
    if begins <= ends:
        yield begins, ends

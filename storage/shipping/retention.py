"""Decides which points are kept, and which objects nobody needs any more. Pure.

The rules: the two newest points are always kept, so that one remains if the other is damaged. An older point is kept if
it is needed to restore some moment of the last `keep_ms`: a point may be deleted once a later one was taken before that
time. A part is kept as long as a kept point names it. A point is deleted before its rounds and parts: a reader that
does not find one of these does not find the point either, and takes a newer one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .names import Place

LEAST_POINTS = 2


class Known(NamedTuple):
    """What retention needs to know of a point. parts: the names of the parts that it needs."""

    taken_ms: int
    parts: frozenset[str]


def unneeded_points(points: Mapping[Place, Known], now_ms: int, keep_ms: int) -> list[Place]:
    """Return the points that may be deleted, oldest first. keep_ms: every moment in the last keep_ms must be
    restorable.
    """
    places = sorted(points)
    covering = [each for each in places if points[each].taken_ms <= now_ms - keep_ms]
    if not covering:
        return []
    newest_needed = min(covering[-1], places[max(0, len(places) - LEAST_POINTS)])
    return [each for each in places if each < newest_needed]


def unneeded_parts(going: Iterable[str], kept: Iterable[Known]) -> list[str]:
    """Return the parts among `going` that no kept point needs."""
    needed: set[str] = set()
    for each in kept:
        needed |= each.parts
    return sorted(set(going) - needed)


def choose(taken_ms: Sequence[int], at_ms: int | None) -> int | None:
    """Return the index of the newest point taken by at_ms (None: of the newest). None if all were taken later."""
    for number in range(len(taken_ms) - 1, -1, -1):
        if at_ms is None or taken_ms[number] <= at_ms:
            return number
    return None

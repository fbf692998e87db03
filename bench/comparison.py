"""Compares two runs, figure by figure: how much each figure changed, and whether the change is larger than the
differences between rounds. Pure.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from .measured import FIGURES, MORE, Measured, figure

WORSE = 0.1  # a median that is worse by at most this is no regression, even if the rounds do not overlap
OURS = "fencepost"

# MB/s follows from the rate, and CPU per MB from CPU per request, so each change is listed once. The 99.9th percentile
# of a few seconds differs from run to run: the files have it, but it does not make a run worse.
_SAME = {"mb_per_second": "rate", "cpu_ms_per_mb": "cpu_us"}
_LEFT_OUT = {"p999_ms"}


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of one scenario on one peer in two runs. before, after: medians. ratio: after / before. low, high:
    the least and greatest ratio of any two rounds.
    """

    scenario: str
    unit: str
    peer: str
    figure: str
    before: float
    after: float
    ratio: float
    low: float
    high: float
    apart: bool  # the ranges of the rounds of both runs do not overlap; False for a single round

    @property
    def worse(self) -> bool:
        """Return whether the median became worse by more than WORSE, and the rounds of both runs do not overlap."""
        return self.apart and (self.ratio < 1 - WORSE if figure(self.figure).better == MORE else self.ratio > 1 + WORSE)

    @property
    def better(self) -> bool:
        """Return whether the median became better by more than WORSE, and the rounds of both runs do not overlap."""
        return self.apart and (self.ratio > 1 + WORSE if figure(self.figure).better == MORE else self.ratio < 1 - WORSE)

    @property
    def regression(self) -> bool:
        """Return whether this is a figure of fencepost that became worse. A worse figure of another peer is none: it
        shows that the machine has changed.
        """
        return self.worse and self.peer.startswith(OURS)


def compare(before: Iterable[Measured], after: Iterable[Measured]) -> list[Change]:
    """Return the change of each figure that both runs measured, in the order of `after`."""
    old = {(each.scenario, each.peer): each for each in before}
    found: list[Change] = []
    for other in after:
        one = old.get((other.scenario, other.peer))
        if one is not None:
            found.extend(change for name in _names(one, other) if (change := _change(one, other, name)))
    return found


def missing(before: Iterable[Measured], after: Iterable[Measured]) -> list[str]:
    """Return "scenario, peer" for each result of fencepost that only `before` has: it may have failed in the second
    run.
    """
    there = {(each.scenario, each.peer) for each in after}
    ours = [each for each in before if each.peer.startswith(OURS) and (each.scenario, each.peer) not in there]
    return [f"{each.scenario}, {each.peer}" for each in ours]


def _names(one: Measured, other: Measured) -> list[str]:
    """Return the names of the figures to compare: those that both runs measured, in the table's order."""
    both = [name for name in one.figures if name in other.figures and name not in _LEFT_OUT]
    known = sorted((name for name in both if name in FIGURES), key=list(FIGURES).index)
    listed = [*known, *(name for name in both if name not in FIGURES)]
    return [name for name in listed if _SAME.get(name) not in both]


def _change(one: Measured, other: Measured, name: str) -> Change | None:
    """Return how this figure changed between two runs; None if it cannot be compared, because a value is missing
    or 0.
    """
    before, after = one.figures[name], other.figures[name]
    if not before or not after or min(before) <= 0:
        return None
    middle, now = statistics.median(before), statistics.median(after)
    apart = min(len(before), len(after)) > 1 and (min(after) > max(before) or max(after) < min(before))
    low, high = min(after) / max(before), max(after) / min(before)
    return Change(one.scenario, other.unit, one.peer, name, middle, now, now / middle, low, high, apart)

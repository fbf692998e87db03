"""An aim, and how far a run has reached it: the values that a result file keeps. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from .measured import FIGURES, MORE

SHORT = 0.25  # the share of an aim by which a run may fall short of it


class Outcome(StrEnum):
    """How the measurements of one run compare with an aim."""

    MET = "met"  # in every round
    MUST = "must"  # the aim was not met in every round, but its lower bar (Aim.must) was
    MISSED = "missed"  # the lower bar was not met in any round
    UNDECIDED = "undecided"  # the rounds differ, or there was only one
    ABSENT = "absent"  # one of the two peers was not measured


@dataclass(frozen=True, slots=True)
class Aim:
    """An aim: the ratio of a figure of `ours` to that of `theirs`; theirs None: the figure itself."""

    row: str
    scenario: str
    figure: str
    ours: str
    theirs: str | None
    aim: float
    short: float = SHORT

    @property
    def sense(self) -> str:
        return FIGURES[self.figure].better

    @property
    def must(self) -> float:
        """Return the value that must be reached; below it (or above, for costs) the aim is missed."""
        return round(self.aim * (1 - self.short if self.sense == MORE else 1 + self.short), 9)

    def holds(self, ratio: float, bar: float) -> bool:
        return ratio >= bar if self.sense == MORE else ratio <= bar


@dataclass(frozen=True, slots=True)
class Verdict:
    """ratio: of the medians; low, high: of the rounds. The values are medians; p99 in ms, None where not measured.

    full: peers whose client was the bottleneck, so that the rate is not the broker's. cold: peers that were not steady.
    """

    aim: Aim
    outcome: Outcome
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    our_value: float | None = None
    their_value: float | None = None
    our_p99_ms: float | None = None
    their_p99_ms: float | None = None
    full: tuple[str, ...] = ()
    cold: tuple[str, ...] = ()

    @property
    def p99_above(self) -> bool:
        """Whether our p99 is longer than theirs, which needs an explanation."""
        return self.our_p99_ms is not None and self.their_p99_ms is not None and self.our_p99_ms > self.their_p99_ms

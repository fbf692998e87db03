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
    """An aim for the ratio of a figure of `ours` to the same figure of `theirs`; if `theirs` is None, for the figure
    of `ours` itself. row: the label of the aim's row. aim: the value to reach. short: the share of this value by
    which the aim may be missed.
    """

    row: str
    scenario: str
    figure: str
    ours: str
    theirs: str | None
    aim: float
    short: float = SHORT

    @property
    def sense(self) -> str:
        """Return whether MORE or LESS of this figure is better."""
        return FIGURES[self.figure].better

    @property
    def must(self) -> float:
        """Return the value that must be reached: the aim, less the share by which it may be missed; for costs, plus
        this share.
        """
        return round(self.aim * (1 - self.short if self.sense == MORE else 1 + self.short), 9)

    def holds(self, ratio: float, bar: float) -> bool:
        """Return whether a ratio is as good as `bar` or better."""
        return ratio >= bar if self.sense == MORE else ratio <= bar


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far one aim was reached. ratio: the ratio of the medians; low, high: the least and greatest ratio of a round.
    our_value, their_value: the medians. None: not measured.

    full: the peers whose client was the bottleneck, so that the rate is not the broker's. cold: the peers that were not
    steady.
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
        """Return whether our p99 is longer than theirs, which needs an explanation."""
        return self.our_p99_ms is not None and self.their_p99_ms is not None and self.our_p99_ms > self.their_p99_ms

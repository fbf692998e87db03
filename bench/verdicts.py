"""An aim, and how far a run has reached it: the values that a result file keeps. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from .measured import FIGURES, MORE

SHORT = 0.25  # the share of an aim by which a run may fall short of it


class Outcome(StrEnum):
    """Of an aim in one run."""

    MET = "met"  # in every round
    MUST = "must"  # what must hold does, in every round; the aim does not, or not in all
    MISSED = "missed"  # not even that, in any round
    UNDECIDED = "undecided"  # some rounds this, some that; or a single round
    ABSENT = "absent"  # one of the two was not measured


@dataclass(frozen=True, slots=True)
class Aim:
    """ours: a figure of a peer (fencepost) over the same of another; theirs None: the figure itself."""

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
        """The bar below (or above) which it is missed."""
        return round(self.aim * (1 - self.short if self.sense == MORE else 1 + self.short), 9)

    def holds(self, ratio: float, bar: float) -> bool:
        return ratio >= bar if self.sense == MORE else ratio <= bar


@dataclass(frozen=True, slots=True)
class Verdict:
    """ratio: of the medians; low, high: of the rounds. The values are medians; p99 in ms, None where not measured.

    full: the peers whose client was at its end, so that a rate says less about the broker. cold: those not steady.
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
        """Whether our p99 is the longer one, which wants an explanation."""
        return self.our_p99_ms is not None and self.their_p99_ms is not None and self.our_p99_ms > self.their_p99_ms

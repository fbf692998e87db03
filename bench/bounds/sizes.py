"""Says how much is measured for a bound (rounds, seconds and counts), and runs measurements alternately."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
Say = Callable[[str], None]
"""Prints a line about the progress."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. rounds: how often each measurement is repeated. seconds: how long one measurement lasts.
    share: the factor for counts, 1 for a full run.
    """

    rounds: int
    seconds: float
    share: float

    def count(self, whole: int) -> int:
        """Return `whole` times `share`, at least 1."""
        return max(1, int(whole * self.share))


FULL = Size(3, 4.0, 1.0)
QUICK = Size(1, 0.5, 0.01)


def in_turns(rounds: int, *measurements: Callable[[], T]) -> list[list[T]]:
    """Run each measurement once a round; the order is reversed in every other round. Returns, for each measurement,
    the results of its rounds.
    """
    found: list[list[T]] = [[] for _ in measurements]
    for number in range(rounds):
        pairs = list(zip(measurements, found, strict=True))
        for measure, values in pairs if number % 2 == 0 else reversed(pairs):
            values.append(measure())
    return found


def by_figure(rounds: Sequence[dict[str, float]]) -> dict[str, tuple[float, ...]]:
    """Convert a dict of figures for each round to a tuple of rounds for each figure, as a Measured has them."""
    return {name: tuple(each[name] for each in rounds) for name in rounds[0]} if rounds else {}

"""How often, how long and how much: what every bound is measured by, and measurements in turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
Say = Callable[[str], None]
"""Takes a line for somebody who waits."""


@dataclass(frozen=True, slots=True)
class Size:
    """rounds: of every measurement. seconds: of a window. share: of the counts, 1 for all."""

    rounds: int
    seconds: float
    share: float

    def count(self, whole: int) -> int:
        """Return this size's share of a count, at least one."""
        return max(1, int(whole * self.share))


FULL = Size(3, 4.0, 1.0)
QUICK = Size(1, 0.5, 0.01)


def in_turns(rounds: int, *measurements: Callable[[], T]) -> list[list[T]]:
    """Run each measurement once a round, in alternating order. Returns: for each, the results of its rounds."""
    found: list[list[T]] = [[] for _ in measurements]
    for number in range(rounds):
        pairs = list(zip(measurements, found, strict=True))
        for measure, values in pairs if number % 2 == 0 else reversed(pairs):
            values.append(measure())
    return found


def by_figure(rounds: Sequence[dict[str, float]]) -> dict[str, tuple[float, ...]]:
    """Group the figures of all rounds by name, as a result holds them."""
    return {name: tuple(each[name] for each in rounds) for name in rounds[0]} if rounds else {}

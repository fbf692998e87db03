"""The rows of the table that `make bench-bars` prints: a bar each, met or missed."""

from dataclasses import dataclass

ROUNDS = 3  # of every measurement; the median counts


@dataclass(frozen=True, slots=True)
class Row:
    """One bar. value: ours over the peer's (or ours alone); sense: '<=' or '>='."""

    name: str
    value: float
    sense: str
    bar: float
    ours: str
    against: str

    @property
    def met(self) -> bool:
        return self.value <= self.bar if self.sense == "<=" else self.value >= self.bar


def line(row: Row) -> str:
    """One row of the table."""
    mark = "met " if row.met else "MISS"
    return f"{mark} {row.name:58} {row.value:8.2f} {row.sense} {row.bar:<5g} {row.ours:>14}   {row.against}"

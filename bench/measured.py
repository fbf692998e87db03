"""The results of a run as plain values: every figure of a scenario on a peer, with a value for each round. Pure.

Aims, comparisons, tables, plots and the JSON of a run use only these values, so a result that was read from a file
gives the same as one that was just measured.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

MORE, LESS = ">=", "<="


@dataclass(frozen=True, slots=True)
class Figure:
    """The name of a figure; {unit} in it is replaced by the scenario's unit. better: MORE or LESS."""

    title: str
    better: str


FIGURES = {
    "rate": Figure("{unit}s/s", MORE),
    "mb_per_second": Figure("MB/s", MORE),
    "cpu_us": Figure("CPU per {unit}, µs", LESS),
    "cpu_ms_per_mb": Figure("CPU per MB, ms", LESS),
    "p50_ms": Figure("p50, ms", LESS),
    "p99_ms": Figure("p99, ms", LESS),
    "p999_ms": Figure("p99.9, ms", LESS),
    "p99_over_p50": Figure("p99 over p50", LESS),
    "rss_mb": Figure("memory, MB", LESS),
    "ready_s": Figure("ready, s", LESS),
    "idle_mb": Figure("idle memory, MB", LESS),
    "s_per_gb": Figure("recovery, s per GB", LESS),
    "window_s": Figure("loss window, s", LESS),
    "growth": Figure("CPU per request, most over fewest", LESS),
    "connections_mb": Figure("memory of idle connections, MB", LESS),
    "idle_cpu": Figure("CPU of idle partitions, %", LESS),
    "stall_ms": Figure("longest stall, ms", LESS),
    "took_ms": Figure("time, ms", LESS),
    "puts": Figure("PUTs/s", LESS),
    "first_commit_s": Figure("until the first commit, s", LESS),
}

SHARES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1.0)  # of the latencies, that a result keeps


@dataclass(frozen=True, slots=True)
class Measured:
    """One scenario on one peer. figures: for each figure's name a value for each round, in the order of the rounds.

    saturated: the client, not the broker, was the bottleneck. warm: False for a JVM that never became steady.
    quantiles: for each share of all latencies, the ms below which this share lies. others_cpu: the largest share of a
    processor that the idle peers used during a round.
    """

    scenario: str
    unit: str
    peer: str
    figures: Mapping[str, tuple[float, ...]]
    saturated: bool = False
    warm: bool = True
    client_share: float = 0.0
    others_cpu: float = 0.0
    quantiles: Mapping[float, float] = field(default_factory=dict)
    histogram: str = ""

    def values(self, figure: str) -> tuple[float, ...]:
        """Return the values of a figure, one for each round; empty if it was not measured. p99_over_p50 is computed
        from both, since no result has it.
        """
        if figure != "p99_over_p50":
            return self.figures.get(figure, ())
        pairs = zip(self.figures.get("p99_ms", ()), self.figures.get("p50_ms", ()), strict=False)
        return tuple(p99 / p50 for p99, p50 in pairs if p50 > 0)

    def median(self, figure: str) -> float | None:
        """Return the median over the rounds; None if it was not measured."""
        values = self.figures.get(figure)
        return statistics.median(values) if values else None

    def spread(self, figure: str) -> tuple[float, float] | None:
        """Return the least and the greatest value over the rounds; None if it was not measured."""
        values = self.figures.get(figure)
        return (min(values), max(values)) if values else None


def figure(name: str) -> Figure:
    """Return the figure of this name. For one that is not in the table, less is better."""
    return FIGURES.get(name) or Figure(name, LESS)


def format_value(value: float | None) -> str:
    """Return the value as text, with fewer decimals the larger it is; a dash for None."""
    if value is None:
        return "–"
    for least, form in ((100, ",.0f"), (10, ".1f"), (1, ".2f"), (0.01, ".3f")):
        if abs(value) >= least:
            return format(value, form)
    return format(value, ".2g")


def title(name: str, unit: str) -> str:
    """Return the title of a figure for people. unit: the scenario's, such as "record"."""
    return figure(name).title.format(unit=unit)

"""The figures of one run of `fencepost bench`, and how they are shown: a table for people, JSON for programs."""

from array import array
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run measured. work: the name of the load. Latencies in ms; CPU and memory of the broker are None if its
    process cannot be seen.
    """

    work: str
    requests: int
    records: int
    bytes: int
    seconds: float
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    broker_cpu_us_per_request: float | None = None
    broker_cpu_ms_per_mb: float | None = None
    broker_rss_mb: float | None = None

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds

    @property
    def mb_per_second(self) -> float:
        """Return payload per second, in MB of 10^6 bytes."""
        return self.bytes / self.seconds / 1e6

    def as_json(self) -> dict[str, Any]:
        """Return all fields, and the rates, as JSON."""
        rates = {"records_per_second": self.records_per_second, "mb_per_second": self.mb_per_second}
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in (asdict(self) | rates).items()}

    def lines(self) -> list[tuple[str, str]]:
        """Return (label, value) pairs for people; figures that were not measured are left out."""
        request = "transaction" if self.work == "txn" or self.work.endswith("transaction") else "request"
        rows: list[tuple[str, float | None, str]] = [
            ("records/s", self.records_per_second, ",.0f"),
            ("MB/s", self.mb_per_second, ",.1f"),
            (f"{request}s/s", self.requests / self.seconds if self.requests else None, ",.0f"),
            ("p50 ms", self.p50_ms, ".3f"),
            ("p99 ms", self.p99_ms, ".3f"),
            ("p99.9 ms", self.p999_ms, ".3f"),
            (f"broker CPU us per {request}", self.broker_cpu_us_per_request, ".2f"),
            ("broker CPU ms per MB", self.broker_cpu_ms_per_mb, ".3f"),
            ("broker memory MB", self.broker_rss_mb, ".1f"),
        ]
        return [(label, format(value, spec)) for label, value, spec in rows if value is not None]


def percentile(sorted_values: "array[float]", share: float) -> float:
    """Return the value below which `share` (0 to 1) of the sorted values lie; by nearest rank."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]

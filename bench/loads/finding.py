"""The result of one load on one server: all rounds together."""

import statistics
from dataclasses import dataclass

from ..measured import FIGURES, SHARES, Measured
from .window import Latencies, Sample

SATURATED = 0.95


@dataclass(frozen=True, slots=True)
class Finding:
    """What was measured in one scenario on one peer: a sample for each round.

    warm: False for a JVM that was not yet steady when its time to warm up was over.
    """

    scenario: str
    unit: str
    peer: str
    samples: list[Sample]
    client_threads: int = 1
    warm: bool = True

    @property
    def client_share(self) -> float:
        """Return how much of a processor the client used, 1.0 for all of it: the median of the rounds."""
        return statistics.median(sample.client_share for sample in self.samples)

    @property
    def saturated(self) -> bool:
        """Return whether the client was the bottleneck, so that the rate is the client's limit and not the broker's."""
        return self.client_share >= SATURATED * self.client_threads

    @property
    def latencies(self) -> Latencies:
        """Return the latencies of all rounds in one histogram."""
        merged = Latencies()
        for sample in self.samples:
            merged.add(sample.latencies)
        return merged

    def as_measured(self) -> Measured:
        """Return the finding as plain values, which a result file can contain."""
        rounds = [sample.figures() for sample in self.samples]
        names = [name for name in FIGURES if any(name in each for each in rounds)]
        latencies = self.latencies
        some = latencies.count > 0
        return Measured(
            self.scenario,
            self.unit,
            self.peer,
            {name: tuple(each[name] for each in rounds if name in each) for name in names},
            bool(self.saturated),
            self.warm,
            self.client_share,
            max((sample.others_cpu for sample in self.samples), default=0.0),
            {share: latencies.percentile_ms(share) for share in SHARES} if some else {},
            latencies.encode() if some else "",
        )

"""The row types of the table of metrics (exported_metrics.py), and the sums that their samples are read from."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...protocol.messages.monitoring import DescribeMetricsResponse
from ..metrics import Histogram
from .services import Services

Family = DescribeMetricsResponse.Family
Sample = Family.Sample
Samples = Iterable[tuple[tuple[str, ...], float]]


@dataclass(slots=True)
class TopicSums:
    """Sums over all partitions of one topic."""

    records: int = 0
    appended_bytes: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class Seen:
    """Sums that are collected by going through all topics, transactions and share partitions, for several metrics.

    oldest_ms: for how long the oldest transaction has been open; 0 without one. held_ms: for how long the oldest held
    transaction has waited for its decision. open_ms: by producer id, for how long its transaction has been open. Of all
    share partitions: in_flight_records and in_flight_runs, the records and runs (ranges in the same state) in all
    windows; without_memory, how many lack memory for more runs; pending_records, acknowledged in open transactions;
    pending_oldest_ms, for how long the oldest of these transactions has been open.
    """

    topics: dict[str, TopicSums] = field(default_factory=dict[str, TopicSums])
    by_state: dict[str, int] = field(default_factory=dict[str, int])
    oldest_ms: int = 0
    held_ms: int = 0
    open_ms: dict[int, int] = field(default_factory=dict[int, int])
    in_flight_records: int = 0
    in_flight_runs: int = 0
    without_memory: int = 0
    pending_records: int = 0
    pending_oldest_ms: int = 0


class Exported(NamedTuple):
    """One metric family. read: returns its samples.

    A histogram has `counted` instead, which returns histograms by label values; their numbers are multiplied by
    `scale`.
    """

    name: str
    kind: int
    labels: tuple[str, ...]
    help: str
    read: Callable[[Services, Seen], Samples] | None = None
    counted: Callable[[Services], Mapping[tuple[str, ...], Histogram]] | None = None
    scale: float = 1.0
    lowest: int = 0  # powers of two between which buckets are given out
    highest: int = 0


def one(value: Callable[[Services], float]) -> Callable[[Services, Seen], Samples]:
    """Return a function that reads one sample without labels."""
    return lambda broker, seen: [((), value(broker))]


def by(values: Callable[[Services], Mapping[str, float]]) -> Callable[[Services, Seen], Samples]:
    """Return a function that reads a sample for each entry of a mapping, with its key as the one label."""
    return lambda broker, seen: [((label,), value) for label, value in values(broker).items()]

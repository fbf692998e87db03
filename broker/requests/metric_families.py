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
    """What takes a walk over many things to know. oldest_ms: how long the oldest transaction is open; 0 without one.
    held_ms: the same of those that are held until their decision, from PrepareTxn on.

    open_ms: how long each producer's transaction is open. Of all share partitions: in_flight, from the first record
    that is not done to the last that was delivered; pending, in transactions; pending_oldest_ms, how long the oldest
    of these is open. without_memory: share partitions that lack it for more runs.
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

    A histogram has `counted` instead, which returns histograms by label values; its numbers are multiplied by `scale`.
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
    """Return a function that reads a single sample without labels."""
    return lambda broker, seen: [((), value(broker))]


def by(values: Callable[[Services], Mapping[str, float]]) -> Callable[[Services, Seen], Samples]:
    """Return a function that reads a sample for each entry of a mapping, with its key as the one label."""
    return lambda broker, seen: [((label,), value) for label, value in values(broker).items()]

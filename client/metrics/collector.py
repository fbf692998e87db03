"""A ClientMetrics as a collector of prometheus_client; imported only where one is asked for.

The rule: names begin with fencepost_client_, units are seconds and bytes. Topics are the only label without a bound.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ..snapshots import ClientMetricsSnapshot, DurationsSnapshot

PREFIX = "fencepost_client_"


class ClientCollector(Collector):
    """A collector of what clients count, for `prometheus_client.REGISTRY.register(metrics.collector())`."""

    def __init__(self, snapshot: Callable[[], ClientMetricsSnapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of one snapshot."""
        now = self._snapshot()
        yield _by("sent_records", "Records that were acknowledged.", "topic", now.sent_records)
        yield _counter("sent_batches", "Batches that were acknowledged.", now.sent_batches)
        yield _counter("sent_bytes", "Bytes of these batches, compressed.", now.sent_bytes)
        yield _by("failed_records", "Records that were not.", "error", now.failed_records)
        yield _counter("retries", "Batches that were sent again.", now.retries)
        yield _histogram("batch_duration", "From a batch's first record to its acknowledgement.", now.batch_durations)
        yield _by("transactions", "Transactions that ended.", "outcome", now.transactions)
        yield _histogram("transaction_duration", "From begin to end.", now.transaction_durations)
        yield _by("received_records", "Records returned to the application.", "topic", now.received_records)
        yield _by("acknowledged_records", "Records of share groups, acknowledged.", "type", now.acknowledged_records)
        yield _counter("failed_acknowledgements", "Those that were not taken.", now.failed_acknowledgements)
        yield _counter("undecided_decisions", "Prepared transactions left waiting.", now.undecided_decisions)
        yield _counter("diverged_decisions", "Contradictions of broker and database.", now.diverged_decisions)
        yield GaugeMetricFamily(f"{PREFIX}requests_in_flight", "Produce requests without a response.", now.in_flight)
        yield GaugeMetricFamily(f"{PREFIX}buffered_bytes", "Records that are not acknowledged.", now.buffered_bytes)
        labels = "topic", "partition"
        stable = GaugeMetricFamily(f"{PREFIX}lag_stable", "Offsets to the last stable offset.", labels=labels)
        high = GaugeMetricFamily(f"{PREFIX}lag_high_watermark", "Offsets to the high watermark.", labels=labels)
        for (topic, partition), lag in now.lag.items():
            stable.add_metric([topic, str(partition)], lag.to_stable)
            high.add_metric([topic, str(partition)], lag.to_high_watermark)
        yield stable
        yield high


def _counter(name: str, text: str, value: int) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value)


def _by(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    """Return a counter with one label. values: by the label's value."""
    family = CounterMetricFamily(PREFIX + name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _histogram(name: str, text: str, durations: DurationsSnapshot) -> Metric:
    buckets = [("+Inf" if bound == float("inf") else repr(bound / 1000), count) for bound, count in durations.buckets]
    return HistogramMetricFamily(f"{PREFIX}{name}_seconds", text, buckets, durations.total_ms / 1000)

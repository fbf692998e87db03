"""Metrics of a mirror's task for Prometheus, on a page of its own: `fencepost mirror --metrics HOST:PORT`.

The rule: names begin with fencepost_mirror_; the topic is the only label. A thread serves the page; it only reads plain
attributes of the task.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..output.failures import WRONG_USAGE, Failure

if TYPE_CHECKING:
    from ...client.mirror.task import MirrorTask

PREFIX = "fencepost_mirror_"


class MirrorCollector(Collector):
    """Collects the counts and the lag of one task for the Prometheus library."""

    def __init__(self, task: "MirrorTask") -> None:
        self._task = task

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        counts, lags = self._task.counts, self._task.lags
        yield CounterMetricFamily(f"{PREFIX}records", "Records that were copied.", counts.records)
        yield CounterMetricFamily(f"{PREFIX}bytes", "Keys and values of these records.", counts.bytes)
        yield CounterMetricFamily(f"{PREFIX}cycles", "Transactions on the target.", counts.cycles)
        yield CounterMetricFamily(f"{PREFIX}divided", "Cuts that divide transactions.", counts.divided)
        yield CounterMetricFamily(f"{PREFIX}doubts", "Transactions that were aborted, or in doubt.", counts.doubts)
        yield GaugeMetricFamily(f"{PREFIX}partitions", "Partitions that this task copies.", len(lags))
        by_topic = dict[str, int]()
        for tp, lag in lags.items():
            by_topic[tp.topic] = by_topic.get(tp.topic, 0) + lag
        lag_of = GaugeMetricFamily(f"{PREFIX}lag", "Offsets that are still to be copied.", labels=["topic"])
        for topic, lag in by_topic.items():
            lag_of.add_metric([topic], lag)
        yield lag_of
        stopped = GaugeMetricFamily(f"{PREFIX}stopped", "1: the topic cannot go on.", labels=["topic"])
        for topic in list(counts.stopped):
            stopped.add_metric([topic], 1)
        yield stopped


def export(task: "MirrorTask", address: str) -> None:
    """Serve the task's metrics at HOST:PORT until the process ends. Raises Failure."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise Failure(f"--metrics {address} is not HOST:PORT", "for example 127.0.0.1:9400", WRONG_USAGE)
    registry = CollectorRegistry()
    registry.register(MirrorCollector(task))
    try:
        start_http_server(int(port), addr=host, registry=registry)
    except OSError as error:
        raise Failure(f"--metrics {address}: {error.strerror or error}", "choose another address") from None

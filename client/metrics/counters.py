"""ClientMetrics: what producers and consumers count of themselves, for those that are given one as `metrics=`.

The rules: without one a client does nothing for it but test an attribute for each batch; with one it adds integers, for
each batch and not for each record. What a client knows anyway (requests in flight, positions) is read when it is asked
for, also from another thread: only plain attributes are read, and nothing is changed. Pure.
"""

from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

from ..errors import InvalidConfigurationError
from ..snapshots import ClientMetricsSnapshot, DurationsSnapshot, PartitionLag
from ..values import TopicPartition


class Durations:
    """A histogram of durations, by powers of two of milliseconds."""

    __slots__ = ("_counts", "_total_ms")

    def __init__(self) -> None:
        self._counts = [0] * 19  # the last one: above two minutes
        self._total_ms = 0

    def add(self, ms: int) -> None:
        """Count a duration in the bucket of its power of two of milliseconds."""
        ms = max(0, ms)
        self._counts[min(18, (ms - 1).bit_length() if ms else 0)] += 1
        self._total_ms += ms

    def snapshot(self) -> DurationsSnapshot:
        """Return the number of durations, their sum in milliseconds, and for each bucket its upper limit in
        milliseconds with the number of durations up to it (cumulative, the last limit is infinite).
        """
        counts, buckets, count = list(self._counts), list[tuple[float, int]](), 0
        for power, more in enumerate(counts):
            count += more
            buckets.append((float(1 << power) if power < len(counts) - 1 else float("inf"), count))
        return DurationsSnapshot(count, self._total_ms, tuple(buckets))


class Living:
    """Weak references to objects. Other threads may iterate: the tuple is replaced, never changed."""

    def __init__(self) -> None:
        self._refs: tuple[ref[Any], ...] = ()

    def add(self, what: Any) -> None:
        self._refs = (*(each for each in self._refs if each() is not None), ref(what))

    def __iter__(self) -> Iterator[Any]:
        return (found for each in self._refs if (found := each()) is not None)


class ClientMetrics:
    """`metrics = fp.ClientMetrics()`, then `fp.Producer(..., metrics=metrics)`; several clients may share one."""

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}
        self._failed: dict[str, int] = {}
        self._received: dict[str, int] = {}
        self._transactions: dict[str, int] = {}
        self._acknowledged: dict[str, int] = {}
        self._unacknowledged = 0
        self._not_ended = {"undecided": 0, "diverged": 0}
        self._sent_batches = self._sent_bytes = self._retries = 0
        self._batches = Durations()
        self._ended = Durations()
        self._producers = Living()
        self._consumers = Living()  # what each reads from
        self._readings = Living()

    def snapshot(self) -> ClientMetricsSnapshot:
        """Return all counts as they are now. May be called from any thread."""
        senders = list(self._producers)
        return ClientMetricsSnapshot(
            dict(self._sent),
            self._sent_batches,
            self._sent_bytes,
            dict(self._failed),
            self._retries,
            self._batches.snapshot(),
            dict(self._transactions),
            self._ended.snapshot(),
            self._all_received(),
            sum(each.in_flight for each in senders),
            sum(each.buffered_bytes for each in senders),
            {tp: lag for each in self._consumers for tp, lag in _lags(each).items()},
            dict(self._acknowledged),
            self._unacknowledged,
            self._not_ended["undecided"],
            self._not_ended["diverged"],
        )

    def _all_received(self) -> dict[str, int]:
        """Return the counts of received records by topic, including those that `async for` has returned and not yet
        counted.
        """
        received = dict(self._received)
        for reading in self._readings:
            if (given := reading.given_of_run()) is not None:
                (topic, _), records = given
                received[topic] = received.get(topic, 0) + records
        return received

    def collector(self) -> Any:
        """Return a collector for prometheus_client, which the extra fencepost[metrics] installs.

        Raises InvalidConfigurationError without it.
        """
        try:
            from .collector import ClientCollector
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.partition(".")[0] != "prometheus_client":
                raise
            raise InvalidConfigurationError(
                "a collector needs prometheus-client, which is not installed", hint='pip install "fencepost[metrics]"'
            ) from None
        return ClientCollector(self.snapshot)

    # ---- called by clients -----------------------------------------------------------------------------------

    def watch_producer(self, sender: Any, accumulator: Any, driver: Any, now_ms: Callable[[], int]) -> None:
        """Count what this producer does. driver: of its transactions; None without transactions."""

        def finished(batch: Any, error: Exception | None) -> None:
            """Count a batch that was acknowledged, or failed with `error`."""
            topic, records = batch.partition.topic_partition.topic, len(batch.timestamps)
            self._retries += max(0, batch.attempts - 1)
            if error is not None:
                name = type(error).__name__
                self._failed[name] = self._failed.get(name, 0) + records
                return
            self._sent[topic] = self._sent.get(topic, 0) + records
            self._sent_batches += 1
            self._sent_bytes += len(batch.records)
            self._batches.add(now_ms() - batch.created_ms)

        accumulator.on_finished = finished
        self._producers.add(sender)
        if driver is not None:
            machine = driver.machine

            def ended(outcome: str) -> None:
                self._count_end(outcome, now_ms() - machine.began_ms)

            machine.on_outcome, driver.databases.steps.on_not_ended = ended, self._count_not_ended

    def _count_end(self, outcome: str, ms: int) -> None:
        """Count a transaction that has ended. outcome: "committed", for example. ms: from its begin to its end."""
        self._transactions[outcome] = self._transactions.get(outcome, 0) + 1
        self._ended.add(ms)

    def _count_not_ended(self, why: str) -> None:
        """Count a transaction with a database that could not be ended. why: "undecided" or "diverged"."""
        self._not_ended[why] += 1

    def watch_consumer(self, reading: Any, subscription: Any) -> None:
        """Count the records that this consumer returns, and read its lag for each snapshot."""

        def given(state: Any, records: int) -> None:
            topic = state.tp.topic
            self._received[topic] = self._received.get(topic, 0) + records

        reading.on_given = given
        self._consumers.add(subscription)
        self._readings.add(reading)

    def watch_share_consumer(self, arrivals: Any, held: Any) -> None:
        """Count what this consumer of a share group returns and acknowledges."""

        def given(topic: str, records: int) -> None:
            self._received[topic] = self._received.get(topic, 0) + records

        def acknowledged(kind: str, records: int) -> None:
            self._acknowledged[kind] = self._acknowledged.get(kind, 0) + records

        def failed(records: int) -> None:
            self._unacknowledged += records

        arrivals.on_given, held.on_acknowledged, held.on_failed = given, acknowledged, failed


def _lags(subscription: Any) -> dict[TopicPartition, PartitionLag]:
    """Return the lag in records of each partition whose position and high watermark are known: to the last stable
    offset, if known, and to the high watermark.
    """
    found: dict[TopicPartition, PartitionLag] = {}
    for tp, state in list(subscription.assigned.items()):
        position, high, stable = state.position, state.high_watermark, state.last_stable_offset
        if position >= 0 and high >= 0:
            found[tp] = PartitionLag(max(0, (stable if stable >= 0 else high) - position), max(0, high - position))
    return found

"""/metrics: the metrics of kafka_exporter, read through Admin, and, from fencepost, the broker's own counters.

The rules: a request that comes while another is answered gets the same result. A part that fails is left out and
counted, so that one forbidden API does not hide the rest; only a broker that cannot be reached is an error. At most
MAX_PARTITIONS partitions and MAX_GROUPS groups have series of their own, and never more than MAX_BYTES of text,
because names may be long; how many were left out is a metric, too. The text is made outside the loop, which serves
browsers meanwhile.

Sources: danielqsj/kafka_exporter for names and labels, Prometheus' text format 0.0.4.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from ..client.admin.admin import Admin
from ..client.admin.values import (
    ClusterDescription,
    GroupDescription,
    GroupListing,
    HeldOffsets,
    MetricFamily,
    TopicDescription,
)
from ..client.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    KafkaError,
    RetriableError,
    UnsupportedVersionError,
)
from ..client.values import TopicPartition
from ..effects.threads import MORE_THREADS, CannotStartThread, call_in_thread
from .model.offsets import read_offsets

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_PARTITIONS = 20_000
MAX_GROUPS = 2_000
MAX_BYTES = 32 << 20  # of all series with names of topics or groups
SERIES_OF_PARTITION, SERIES_OF_GROUP = 9, 3  # series of a partition; of a group in each partition
SERIES_BYTES = 90  # of one series, without these names
GROUPS_AT_ONCE = 20

TOPIC, PARTITION, GROUP = "topic", "partition", "consumergroup"


class Exported(NamedTuple):
    """A metric that the console computes from what Admin reads: name, label names and help text."""

    name: str
    labels: tuple[str, ...]
    help: str


READ = (
    Exported("kafka_brokers", (), "Brokers of the cluster."),
    Exported("kafka_broker_info", ("id", "address"), "Always 1."),
    Exported("kafka_topic_partitions", (TOPIC,), "Partitions of the topic."),
    Exported("kafka_topic_partition_current_offset", (TOPIC, PARTITION), "High watermark."),
    Exported("kafka_topic_partition_oldest_offset", (TOPIC, PARTITION), "First offset."),
    Exported("kafka_topic_partition_leader", (TOPIC, PARTITION), "Broker that leads the partition; -1 without one."),
    Exported("kafka_topic_partition_leader_is_preferred", (TOPIC, PARTITION), "1 if that is the first replica."),
    Exported("kafka_topic_partition_replicas", (TOPIC, PARTITION), "Replicas."),
    Exported("kafka_topic_partition_in_sync_replica", (TOPIC, PARTITION), "Replicas that are in sync."),
    Exported("kafka_topic_partition_under_replicated_partition", (TOPIC, PARTITION), "1 unless all are in sync."),
    Exported("kafka_consumergroup_members", (GROUP,), "Members."),
    Exported("kafka_consumergroup_current_offset", (GROUP, TOPIC, PARTITION), "Committed offset, or start offset."),
    Exported("kafka_consumergroup_current_offset_sum", (GROUP, TOPIC), "These, of all partitions."),
    Exported("kafka_consumergroup_lag", (GROUP, TOPIC, PARTITION), "To the high watermark, less records done."),
    Exported("kafka_consumergroup_lag_sum", (GROUP, TOPIC), "That, of all partitions."),
    Exported("fencepost_consumergroup_lag_stable", (GROUP, TOPIC, PARTITION),
             "From the committed offset to the last stable offset: what a read_committed consumer can read now."),
    Exported("fencepost_consumergroup_offsets_held", (GROUP,),
             "Partitions whose committed offsets an open transaction holds: a member that starts there waits."),
    Exported("fencepost_partition_high_watermark", (TOPIC, PARTITION), "High watermark."),
    Exported("fencepost_partition_last_stable_offset", (TOPIC, PARTITION), "Where read_committed consumers stop."),
    Exported("fencepost_scrape_errors", ("part",), "1 for each part of this scrape that failed."),
    Exported("fencepost_scrape_left_out", ("what",), "Partitions and groups beyond the limits of a scrape."),
)  # fmt: skip


class _Samples:
    """The metrics of one scrape by name, and how many bytes their text may still have."""

    def __init__(self) -> None:
        self.families = {each.name: GaugeMetricFamily(each.name, each.help, labels=each.labels) for each in READ}
        self._left_bytes = MAX_BYTES

    def has_room(self, series: Iterable[tuple[int, tuple[str, ...]]]) -> bool:
        """Reserve bytes of the answer for series: each entry is a number of series and the names in their labels.
        Returns False, and reserves none, if they would exceed MAX_BYTES.
        """
        size = sum(count * (SERIES_BYTES + sum(map(_written_bytes, names))) for count, names in series)
        if size > self._left_bytes:
            return False
        self._left_bytes -= size
        return True

    def add(self, name: str, value: float, *labels: object) -> None:
        """Add one value to a metric. labels: the label values, in the order of the metric's label names."""
        self.families[name].add_metric([str(each) for each in labels], value)


def _written_bytes(name: str) -> int:
    """Return the size of a name in the text format, which escapes three characters."""
    return len(name.encode("utf-8", "replace")) + sum(map(name.count, '\\"\n'))


class _Once(Collector):
    """A collector that passes the metrics of one scrape to prometheus_client, which makes the text."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


class Scraper:
    """Answers /metrics for one cluster. admin: returns a connected Admin, or raises KafkaError."""

    def __init__(self, admin: Callable[[], Awaitable[Admin]]) -> None:
        self._admin = admin
        self._running: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        """Return the metrics in Prometheus' text format. Callers at the same time share one scrape. Raises KafkaError
        if the broker cannot be reached.
        """
        if self._running is None or self._running.done():
            self._running = asyncio.ensure_future(metrics_text(await self._admin()))
        return await asyncio.shield(self._running)


async def metrics_text(admin: Admin) -> bytes:
    """Read the cluster once and return its metrics in Prometheus' text format. A part that the broker refuses is left
    out, and a metric reports that. Raises KafkaError if the broker cannot be reached or no thread can be started.
    """
    cluster = await admin.describe_cluster()
    samples = _Samples()
    _add_brokers(samples, cluster)
    failed: dict[str, bool] = {}
    own: list[MetricFamily] = []
    topics: dict[str, TopicDescription] = {}
    ends = _Ends({}, {}, {})
    try:
        topics = _take_fitting(await admin.describe_topics(), samples)
        _add_topics(samples, topics)
        ends = await _read_ends(admin, topics)
        _add_ends(samples, ends)
    except BrokerUnreachableError:
        raise
    except KafkaError:
        failed["topics"] = True
    try:
        await _add_groups(samples, admin, ends)
    except BrokerUnreachableError:
        raise
    except KafkaError:
        failed["groups"] = True
    with suppress(UnsupportedVersionError, AuthorizationError):  # an older broker, or a login that may not see it
        _add_held(samples, await admin.find_held_offsets())
    try:
        own = await admin.describe_metrics()
    except UnsupportedVersionError:
        pass  # not fencepost: these metrics are absent
    except BrokerUnreachableError:
        raise
    except KafkaError:
        failed["broker"] = True
    for part in ("topics", "groups", "broker"):
        samples.add("fencepost_scrape_errors", part in failed, part)
    families = [each for each in samples.families.values() if each.samples]
    once = _Once([*families, *map(_family, own)])
    try:
        # generate_latest() only calls collect() of `once`.
        return await call_in_thread(lambda: bytes(generate_latest(once)), "metrics")
    except CannotStartThread as error:
        raise RetriableError(str(error), hint=MORE_THREADS) from None


def _add_brokers(samples: _Samples, cluster: ClusterDescription) -> None:
    """Add the metrics of the brokers: their number, and one with the address of each."""
    samples.add("kafka_brokers", len(cluster.nodes))
    for node in cluster.nodes:
        samples.add("kafka_broker_info", 1, node.node_id, f"{node.host}:{node.port}")


def _take_fitting(topics: dict[str, TopicDescription], samples: _Samples) -> dict[str, TopicDescription]:
    """Return as many topics, by name, as the limits on partitions and bytes allow, each with all of its partitions.
    Adds a metric with how many partitions were left out.
    """
    fitting, partitions, left_out = dict[str, TopicDescription](), 0, 0
    for name in sorted(topics):
        count = len(topics[name].partitions)
        if partitions + count > MAX_PARTITIONS or not samples.has_room([(count * SERIES_OF_PARTITION + 1, (name,))]):
            left_out += count
            continue
        partitions += count
        fitting[name] = topics[name]
    samples.add("fencepost_scrape_left_out", left_out, "partitions")
    return fitting


def _add_topics(samples: _Samples, topics: dict[str, TopicDescription]) -> None:
    """Add the metrics of topics and partitions: leaders, replicas, in-sync replicas."""
    for name, topic in topics.items():
        samples.add("kafka_topic_partitions", len(topic.partitions), name)
        for each in topic.partitions:
            here = name, each.partition
            preferred = bool(each.replicas) and each.leader == each.replicas[0]
            samples.add("kafka_topic_partition_leader", each.leader, *here)
            samples.add("kafka_topic_partition_leader_is_preferred", preferred, *here)
            samples.add("kafka_topic_partition_replicas", len(each.replicas), *here)
            samples.add("kafka_topic_partition_in_sync_replica", len(each.isr), *here)
            under = len(each.isr) < len(each.replicas)
            samples.add("kafka_topic_partition_under_replicated_partition", under, *here)


class _Ends(NamedTuple):
    """Offsets by partition: the first offset, the last stable offset and the high watermark."""

    oldest: dict[TopicPartition, int]
    stable: dict[TopicPartition, int]
    high: dict[TopicPartition, int]


async def _read_ends(admin: Admin, topics: dict[str, TopicDescription]) -> _Ends:
    """Read the first offset, last stable offset and high watermark of all partitions that have a leader."""
    led = [each for topic in topics.values() for each in topic.led]
    if not led:
        return _Ends({}, {}, {})
    found = await read_offsets(admin, led)
    return _Ends(
        {at: each.start for at, each in found.items()},
        {at: each.stable for at, each in found.items()},
        {at: each.end for at, each in found.items()},
    )


def _add_ends(samples: _Samples, ends: _Ends) -> None:
    """Add the metrics of the partitions' offsets."""
    for name, offsets in (
        ("kafka_topic_partition_oldest_offset", ends.oldest),
        ("kafka_topic_partition_current_offset", ends.high),
        ("fencepost_partition_high_watermark", ends.high),
        ("fencepost_partition_last_stable_offset", ends.stable),
    ):
        for partition, offset in offsets.items():
            samples.add(name, offset, *partition)


async def _add_groups(samples: _Samples, admin: Admin, ends: _Ends) -> None:
    """Add the metrics of up to MAX_GROUPS consumer groups, and one with how many groups were left out."""
    listed = await admin.list_groups()
    left_out = max(0, len(listed) - MAX_GROUPS)
    for start in range(0, min(len(listed), MAX_GROUPS), GROUPS_AT_ONCE):
        some = listed[start : min(start + GROUPS_AT_ONCE, MAX_GROUPS)]
        described = await admin.describe_groups([each.group_id for each in some])
        for each in some:
            places = await _places_of(admin, each)
            left_out += not _add_group(samples, each.group_id, described.get(each.group_id), places, ends)
    samples.add("fencepost_scrape_left_out", left_out, "groups")


def _add_held(samples: _Samples, found: Iterable[HeldOffsets]) -> None:
    """Add for each group in how many partitions an open transaction blocks its committed offsets."""
    held: dict[str, set[TopicPartition]] = {}
    for each in found:
        held.setdefault(each.group_id, set()).update(each.partitions)
    for name, partitions in held.items():
        if samples.has_room([(1, (name,))]):
            samples.add("fencepost_consumergroup_offsets_held", len(partitions), name)


class _Place(NamedTuple):
    """Where a group stands in a partition: its offset, and how many records from there on it has not done; None if
    those are all.
    """

    offset: int
    lag: int | None


async def _places_of(admin: Admin, group: GroupListing) -> dict[TopicPartition, _Place]:
    """Return where the group stands: the committed offsets of a consumer group, the start offsets of a share group,
    which may have done records above them.
    """
    if group.group_type.lower() == "share":
        starts = await admin.list_share_group_offsets(group.group_id)
        return {at: _Place(each.start_offset, each.lag) for at, each in starts.items()}
    committed = await admin.list_group_offsets(group.group_id)
    return {at: _Place(each.offset, None) for at, each in committed.items()}


def _add_group(
    samples: _Samples,
    name: str,
    group: GroupDescription | None,
    places: dict[TopicPartition, _Place],
    ends: _Ends,
) -> bool:
    """Add the members, offsets and lags of a group. group: its description; None if there is none. Returns False, and
    adds none, if the limit on bytes does not allow it.
    """
    counts = Counter(partition.topic for partition in places)
    series = [(1, (name,)), *((count * SERIES_OF_GROUP + 2, (name, topic)) for topic, count in counts.items())]
    if not samples.has_room(series):
        return False
    if group is not None:  # else one of a protocol that the classic API does not describe
        samples.add("kafka_consumergroup_members", len(group.members), name)
    sums: dict[str, list[int]] = {}
    for partition, place in places.items():
        samples.add("kafka_consumergroup_current_offset", place.offset, name, *partition)
        if partition not in ends.high:
            continue  # deleted, without a leader, or left out
        lag = ends.high[partition] - place.offset if place.lag is None else place.lag
        samples.add("kafka_consumergroup_lag", lag, name, *partition)
        stable = min(max(0, lag), max(0, ends.stable[partition] - place.offset))
        samples.add("fencepost_consumergroup_lag_stable", stable, name, *partition)
        of_topic = sums.setdefault(partition.topic, [0, 0])
        of_topic[0] += place.offset
        of_topic[1] += lag
    for topic, (committed_sum, lags) in sums.items():
        samples.add("kafka_consumergroup_current_offset_sum", committed_sum, name, topic)
        samples.add("kafka_consumergroup_lag_sum", lags, name, topic)
    return True


def _family(family: MetricFamily) -> Metric:
    """Convert one of the broker's own metrics to prometheus_client's class."""
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for sample in family.samples:
            buckets = [("+Inf" if bound == float("inf") else repr(bound), count) for bound, count in sample.buckets]
            histogram.add_metric(sample.labels, buckets, sample.value)
        return histogram
    made: CounterMetricFamily | GaugeMetricFamily
    if family.kind == "counter":
        made = CounterMetricFamily(family.name, family.help, labels=family.labels)
    else:
        made = GaugeMetricFamily(family.name, family.help, labels=family.labels)
    for sample in family.samples:
        made.add_metric(sample.labels, sample.value)
    return made

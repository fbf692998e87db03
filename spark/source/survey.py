"""Reads the selected topics from the cluster: their ids, and where their logs start and end.

The rule: the end of a log is the offset up to which this isolation level may read. Below the last stable offset every
transaction has ended, so a range that ends there always contains the same records. A topic counts as missing only if it
was not found for some seconds. A pattern does not select internal topics. Source: Spark's KafkaOffsetReaderAdmin.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping

from ...client.consumer.list_offsets import READ_UNCOMMITTED, list_offsets
from ...client.errors import InvalidConfigurationError, UnknownTopicError, error_of, is_retriable
from ...client.net.cluster import Cluster
from ...client.net.retry import Deadline
from ...client.net.topology import Topic
from ...client.records.whole_batches import WholeBatches
from ...client.values import TopicPartition
from ...protocol.errors import ErrorCode, KafkaError
from ..options import EARLIEST, LATEST, Bound, Selection, SourceOptions
from .offsets import Log, Offsets, Range, Seen, id_text
from .reading import fetch_once

MISSING_MS = 5_000
_LIST_MS = 15_000
_PAUSE_S = 0.2
_SAMPLE_BYTES = 64 << 10
_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_ID)


async def look(cluster: Cluster, options: SourceOptions, expected: Collection[str] = ()) -> Seen:
    """Return the selected partitions as they are now. expected: topics to wait for, for MISSING_MS, if they are
    missing.

    Raises the broker's errors, or RequestTimedOutError.
    """
    clock = cluster.environment.clock
    awaited = {name for name in expected if options.selection.selects(name)}
    missed, failing = Deadline(clock, MISSING_MS), Deadline(clock, options.fetch.default_api_timeout_ms)
    while True:
        try:
            topics = await _topics(cluster, options.selection)
            if not awaited - set(topics) or missed.passed():
                return await _logs(cluster, options, topics)
        except UnknownTopicError:  # it was deleted in the meantime
            if missed.passed():
                raise
        except KafkaError as error:  # for example a broker that is restarting
            if not is_retriable(error) or failing.passed():
                raise
        await asyncio.sleep(_PAUSE_S)


async def _topics(cluster: Cluster, selection: Selection) -> dict[str, Topic]:
    """Return the selected topics that exist, by name. Raises the broker's error for one that may not be read."""
    if selection.pattern:
        metadata = await cluster.refresh(all_topics=True)
    else:
        metadata = await cluster.refresh(selection.named)
    found: dict[str, Topic] = {}
    for name, topic in metadata.topics.items():
        if not selection.selects(name) or (selection.pattern and topic.is_internal):
            continue
        if topic.error and topic.error not in _MISSING:
            raise error_of(topic.error, f"topic {name!r}: {error_of(topic.error).code.text}")
        if not topic.error:
            found[name] = topic
    return found


async def _logs(cluster: Cluster, options: SourceOptions, topics: Mapping[str, Topic]) -> Seen:
    """Return the offsets of the selected partitions of these topics."""
    selects = options.selection.has
    parts = [
        tp
        for name, topic in topics.items()
        for number in topic.partitions
        if selects(tp := TopicPartition(name, number))
    ]
    ids = {name: text for name, topic in topics.items() if (text := id_text(topic.topic_id))}
    if not parts:
        return Seen({}, ids, selects)
    begins, ends, highest = await asyncio.gather(
        _edges(cluster, parts, EARLIEST, READ_UNCOMMITTED),
        _edges(cluster, parts, LATEST, options.isolation),
        _edges(cluster, parts, LATEST, READ_UNCOMMITTED),
    )
    return Seen({tp: Log(begins[tp], ends[tp], max(highest[tp], ends[tp])) for tp in parts}, ids, selects)


async def _edges(cluster: Cluster, parts: Iterable[TopicPartition], which: int, isolation: int) -> Offsets:
    """Return the first or the last offset of each partition. which: EARLIEST or LATEST."""
    found = await list_offsets(cluster, dict.fromkeys(parts, which), isolation, timeout_ms=_LIST_MS)
    return {tp: each.offset for tp, each in found.items()}


async def resolve(cluster: Cluster, options: SourceOptions, bound: Bound, seen: Seen, name: str) -> Offsets:
    """Return the offset of each partition for a bound. name: of the option, for errors.

    Raises UnknownTopicError, InvalidConfigurationError.
    """
    for topic in options.selection.named:
        if not any(tp.topic == topic for tp in seen.logs):
            raise UnknownTopicError(f"there is no topic {topic!r}", hint="create the topic first")
    for tp in options.selection.partitions:
        if tp not in seen.logs:
            raise UnknownTopicError(f"there is no partition {tp}")
    if bound.edge is not None:
        return {tp: _edge(log, bound.edge) for tp, log in seen.logs.items()}
    if bound.offsets is not None:
        _check_all(name, bound.offsets, seen)
        return {tp: _edge(log, bound.offsets[tp]) for tp, log in seen.logs.items()}
    if bound.timestamps is not None:
        _check_all(name, bound.timestamps, seen)
        times = {tp: bound.timestamps[tp] for tp in seen.logs}
    else:
        assert bound.timestamp is not None
        times = dict.fromkeys(seen.logs, bound.timestamp)
    if not times:
        return {}
    found = await list_offsets(cluster, times, options.isolation, timeout_ms=_LIST_MS)
    for tp, each in found.items():
        if each.offset < 0 and not bound.latest_if_none:
            raise InvalidConfigurationError(
                f"{tp} has no record with timestamp {times[tp]} or later",
                hint="with startingOffsetsByTimestampStrategy=latest such a partition starts at its end",
            )
    ends = {tp: seen.logs[tp].end for tp in found}  # records after it are for the next batch
    return {tp: min(each.offset, ends[tp]) if each.offset >= 0 else ends[tp] for tp, each in found.items()}


def _edge(log: Log, offset: int) -> int:
    """Return the offset that EARLIEST or LATEST means in this log; any other offset unchanged."""
    return {EARLIEST: log.start, LATEST: log.end}.get(offset, offset)


def _check_all(name: str, given: Offsets, seen: Seen) -> None:
    """Raise InvalidConfigurationError unless the offsets name exactly the selected partitions, as in Spark's Kafka
    source. name: the option.
    """
    left_out = sorted(set(seen.logs) - set(given))
    unknown = sorted(set(given) - set(seen.logs))
    if left_out or unknown:
        if left_out:
            which = f"does not list {left_out[0]}"
        else:
            which = f"lists {unknown[0]}, which {'does not exist' if seen.selects(unknown[0]) else 'is not selected'}"
        raise InvalidConfigurationError(
            f"{name} {which}", hint="list every selected partition; -1 is the latest offset, -2 the earliest"
        )


async def densities(cluster: Cluster, options: SourceOptions, begins: Offsets) -> dict[TopicPartition, float]:
    """Return bytes per record for each partition, from a sample at these offsets; a partition without records is left
    out.
    """
    found = await asyncio.gather(*[_density(cluster, options, tp, at) for tp, at in begins.items()])
    return {tp: each for tp, each in zip(begins, found, strict=True) if each is not None}


async def _density(cluster: Cluster, options: SourceOptions, tp: TopicPartition, at: int) -> float | None:
    """Estimate bytes per record from one small fetch at an offset; None if nothing could be read."""
    try:
        part = await fetch_once(cluster, options, tp, at, max_bytes=_SAMPLE_BYTES, max_wait_ms=0)
    except KafkaError:
        return None  # reading the batch raises the error again
    if part.error_code or not part.records:
        return None
    sample = WholeBatches(at, part.records).batches
    offsets = sum(batch.last_offset_delta + 1 for batch in sample)
    return sum(batch.size for batch in sample) / offsets if offsets else None


def spread(found: Mapping[TopicPartition, float], parts: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
    """Return bytes per record for each partition; one without a sample gets the mean of the samples."""
    mean = sum(found.values()) / len(found) if found else 1.0
    return {tp: found.get(tp, mean) for tp in parts}


def starts_of(found: Iterable[Range]) -> dict[TopicPartition, int]:
    """Return the start offset of each partition's range."""
    return {each.topic_partition: each.start for each in found}

"""A query's position, and what its next batch reads: offsets as JSON, loss, limits, splits. Pure.

The rule: a batch is defined by its start and end offsets alone, so each process that reads it reads the same. Start
offsets that Spark does not store are in the *end* offset (`starts`): the initial offset, for which Spark asks again
when it restarts within the first batch; the start of a partition that was found later; and the next offset after a
loss. A loss is detected from the log's offsets and the topic's id, not from a gap between offsets, which can have other
reasons. JSON keys have a fixed order, because Spark compares the texts.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from ...client.errors import InvalidConfigurationError, OffsetOutOfRangeError
from ...client.values import TopicPartition
from ...protocol.primitives import ZERO_UUID

MARK = "@fencepost"
"""A key among the topics: no topic can have this name."""

VERSION = 1
Json = dict[str, Any]
Offsets = Mapping[TopicPartition, int]


class DataLost(OffsetOutOfRangeError):
    """Records that the batch should read do not exist any more, or may not."""

    default_hint = (
        "set option failOnDataLoss to false to continue without them, or start a new query with startingOffsets"
    )


class Log(NamedTuple):
    """The current offsets of a partition. end: the offset up to which (exclusive) this isolation level may read."""

    start: int
    end: int
    high_watermark: int


def _everything(_: TopicPartition) -> bool:
    """Return True: every partition is selected."""
    return True


@dataclass(frozen=True, slots=True)
class Seen:
    """The current state of the selected topics. ids: topic ids, of topics that have one. selects: tells whether a
    partition is selected.
    """

    logs: Mapping[TopicPartition, Log]
    ids: Mapping[str, str] = field(default_factory=dict)
    selects: Callable[[TopicPartition], bool] = field(default=_everything, compare=False)


@dataclass(frozen=True, slots=True)
class Position:
    """How far a query has read. offsets: the next offset of each partition. ids: topic ids.

    starts: for the batch that ends here, the start offsets of the partitions for which its start position has no valid
    one. is_initial: no batch was planned yet, and the next call may return another position.
    """

    offsets: Offsets
    ids: Mapping[str, str] = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)
    is_initial: bool = False


class Range(NamedTuple):
    """Offsets of one partition from start to end (exclusive). topic_id: empty if the broker has no ids."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    @property
    def size(self) -> int:
        """Return the number of offsets in the range."""
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Limits(NamedTuple):
    """The limits of one micro-batch; None: no limit."""

    offsets: int | None = None
    payload_bytes: int | None = None


NO_LIMITS = Limits()


# ---- JSON ----------------------------------------------------------------------------------------------------------


def id_text(topic_id: bytes) -> str:
    """Return a topic id as Kafka's tools print it; empty for the zero id, which means none."""
    return "" if topic_id == ZERO_UUID else urlsafe_b64encode(topic_id).decode().rstrip("=")


def to_json(position: Position) -> Json:
    """Return the JSON for Spark's checkpoint: that of Spark's Kafka source, with one more key."""
    own: Json = {"v": VERSION}
    if position.ids:
        own["ids"] = dict(sorted(position.ids.items()))
    if position.starts:
        own["init"] = nest(position.starts)
    if position.is_initial:
        own["initial"] = True
    return {MARK: own, **nest(position.offsets)}


def nest(offsets: Offsets) -> Json:
    """Return the offsets as nested JSON, {"topic": {"0": 23}}, sorted."""
    found: Json = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(found: Mapping[str, Any]) -> Position:
    """Parse a position, also an offset of Spark's Kafka source. Raises InvalidConfigurationError."""
    own = found.get(MARK, {})
    try:
        version = own.get("v", VERSION)
        offsets = _flat({topic: each for topic, each in found.items() if topic != MARK})
        position = Position(offsets, dict(own.get("ids", {})), _flat(own.get("init", {})), bool(own.get("initial")))
    except (AttributeError, TypeError, ValueError):
        raise InvalidConfigurationError(f"invalid offset in the checkpoint: {found!r:.200}") from None
    if not isinstance(version, int) or version > VERSION:
        raise InvalidConfigurationError(
            f"the checkpoint was written by a newer fencepost (offsets of version {version})", hint="upgrade fencepost"
        )
    return position


def _flat(found: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Convert topic → partition → offset to one mapping by TopicPartition."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, each in found.items()
        for partition, offset in each.items()
    }


# ---- planning ------------------------------------------------------------------------------------------------------


def initial(begins: Offsets, ids: Mapping[str, str]) -> Position:
    """Return the position of a new query. begins: its start offsets. ids: topic ids."""
    return Position(dict(begins), dict(ids), is_initial=True)


def begins_of(start: Position, seen: Seen) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return (the offset at which each existing partition continues, a text for each loss of records). A deleted
    partition has a text but no offset.
    """
    begins: dict[TopicPartition, int] = {}
    lost: list[str] = []
    topics = {tp.topic for tp in start.offsets}
    for tp, log in sorted(seen.logs.items()):
        at = start.offsets.get(tp)
        if at is not None and is_another(start.ids, seen.ids, tp.topic):
            lost.append(_recreated_text(tp, at))
            at = log.start
        elif at is None:
            if tp.topic in topics and log.start > 0:
                lost.append(f"partition {tp} was added, and its log starts only at offset {log.start}")
            at = log.start
        else:
            at, losses = _within(tp, at, log, tp.topic in start.ids)
            lost += losses
        begins[tp] = at
    lost += [
        f"{_missing_text(tp, seen)}, with its records from offset {at} on"
        for tp, at in sorted(start.offsets.items())
        if tp not in seen.logs
    ]
    return begins, lost


def is_another(before: Mapping[str, str], now: Mapping[str, str], topic: str) -> bool:
    """Return whether the topic was deleted and created again: both ids are known and differ. Without ids this cannot
    be seen, and the result is False.
    """
    one, other = before.get(topic), now.get(topic)
    return bool(one) and bool(other) and one != other


def _recreated_text(tp: TopicPartition, at: int) -> str:
    """Return the message about a topic that was deleted and created again. at: the offset that the query
    had reached.
    """
    return f"topic {tp.topic} was deleted and created again: offset {at} of {tp} belongs to the deleted topic"


def _missing_text(tp: TopicPartition, seen: Seen) -> str:
    """Return the message about a partition that cannot be read any more."""
    return f"partition {tp} " + ("does not exist any more" if seen.selects(tp) else "is not selected any more")


def _within(tp: TopicPartition, at: int, log: Log, is_identified: bool) -> tuple[int, list[str]]:
    """Move an offset into the log's range. Returns it, and a message if records were lost. is_identified: the topic
    has an id, so it is known to be the same topic as before.
    """
    if at < log.start:
        return log.start, [
            f"the records of {tp} from offset {at} to {log.start - 1} were deleted: its log starts at {log.start} now"
        ]
    if at > log.high_watermark:
        text = f"the log of {tp} ends at offset {log.high_watermark} now, but was read up to {at}"
        # The log was truncated, or the topic is another of the same name: only an id distinguishes these.
        return (log.high_watermark if is_identified else log.start), [text]
    return at, []


def plan_batch(
    start: Position, seen: Seen, limits: Limits = NO_LIMITS, density: Mapping[TopicPartition, float] | None = None
) -> tuple[Position, list[str]]:
    """Return (the position at which the next batch ends, a text for each loss). The position is `start` itself if
    there is nothing new. density: bytes of a record, by partition; needed if bytes are limited.
    """
    begins, lost = begins_of(start, seen)
    latest = {tp: max(at, seen.logs[tp].end) for tp, at in begins.items()}
    ends = limit(begins, latest, limits, density or {})
    ids = {tp.topic: one for tp in begins if (one := seen.ids.get(tp.topic) or start.ids.get(tp.topic))}
    starts = {tp: at for tp, at in begins.items() if start.is_initial or start.offsets.get(tp) != at}
    starts |= {tp: at for tp, at in begins.items() if is_another(start.ids, ids, tp.topic)}
    if not start.is_initial and not starts and ends == start.offsets and ids == start.ids:
        return start, lost
    return Position(ends, ids, starts), lost


def new_records(start: Position, seen: Seen) -> int:
    """Return how many offsets can be read now from `start` on, over all partitions."""
    begins, _ = begins_of(start, seen)
    return sum(max(0, seen.logs[tp].end - at) for tp, at in begins.items())


def up_to(seen: Seen, target: Offsets) -> Seen:
    """Return `seen` cut off at the target: without records after its offsets, and without partitions that it does not
    have.
    """
    logs = {tp: log._replace(end=min(log.end, target[tp])) for tp, log in seen.logs.items() if tp in target}
    return replace(seen, logs=logs)


def limit(
    begins: Offsets, latest: Offsets, limits: Limits, density: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Return an end offset (exclusive) for each partition, such that all together are within the limits: each gets the
    same share of its new records, at least one. density: bytes of a record, by partition.

    So a limit may be exceeded by one record of each partition. Source: Spark's KafkaMicroBatchStream.rateLimit.
    """
    sizes = {tp: latest[tp] - at for tp, at in begins.items()}
    share = 1.0
    total = sum(sizes.values())
    if limits.offsets is not None and total > limits.offsets:
        share = limits.offsets / total
    if limits.payload_bytes is not None:
        weight = sum(size * density.get(tp, 1.0) for tp, size in sizes.items())
        if weight > limits.payload_bytes:
            share = min(share, limits.payload_bytes / weight)
    if share == 1.0:
        return dict(latest)
    return {tp: at + min(sizes[tp], max(1, int(sizes[tp] * share))) for tp, at in begins.items()}


def ranges(start: Position, end: Position, seen: Seen) -> tuple[list[Range], list[str]]:
    """Return (the ranges that the batch between two positions reads, a text for each loss of records in them)."""
    found: list[Range] = []
    lost: list[str] = []
    for tp, to in sorted(end.offsets.items()):
        log = seen.logs.get(tp)
        at = end.starts.get(tp, start.offsets.get(tp, log.start if log is not None else 0))
        if tp not in end.starts and is_another(start.ids, end.ids, tp.topic):  # the end was planned without its start
            lost.append(_recreated_text(tp, at))
            at = 0 if log is None else log.start
        if at >= to:
            if log is not None and at > log.high_watermark:
                lost.append(f"the log of {tp} ends at offset {log.high_watermark}, but the batch starts at {at}")
            continue
        if log is None:
            lost.append(f"{_missing_text(tp, seen)}, with its offsets {at} to {to - 1}")
            continue
        if is_another(end.ids, seen.ids, tp.topic):
            lost.append(_recreated_text(tp, at))
            continue
        if at < log.start:
            lost.append(f"the records of {tp} from offset {at} to {min(log.start, to) - 1} were deleted")
            at = log.start
        if to > log.high_watermark:
            lost.append(f"the log of {tp} ends at offset {log.high_watermark}, but the batch ends at {to}")
            to = log.high_watermark
        if at < to:
            found.append(Range(tp.topic, tp.partition, at, to, end.ids.get(tp.topic) or seen.ids.get(tp.topic, "")))
    return found, lost


# ---- splits --------------------------------------------------------------------------------------------------------


def split(
    whole: Iterable[Range],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
    max_bytes: int | None = None,
    density: Mapping[TopicPartition, float] | None = None,
) -> list[Range]:
    """Return the ranges that tasks read, the largest first: a partition is one range, or several if the arguments
    demand it. density: bytes of a record, by partition.

    The arguments are the options minPartitions, maxRecordsPerPartition and maxBytesPerPartition. Source: Spark's
    KafkaOffsetRangeCalculator, extended by bytes.
    """
    parts: list[Range] = []
    for each in whole:
        count = 1 if max_records is None else -(-each.size // max_records)
        if max_bytes is not None:
            weight = each.size * (density or {}).get(each.topic_partition, 1.0)
            count = max(count, -int(-weight // max_bytes))
        parts += _split_range(each, count)
    if min_partitions is not None and 0 < len(parts) < min_partitions:
        total = sum(each.size for each in parts)
        parts = [piece for each in parts for piece in _split_range(each, round(each.size / total * min_partitions))]
    return sorted(parts, key=lambda each: (-each.size, each))


def _split_range(whole: Range, count: int) -> list[Range]:
    """Split a range into `count` ranges of nearly the same size, but not more than it has offsets."""
    count = max(1, min(count, whole.size))
    at = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [whole._replace(start=first, end=last) for first, last in pairwise(at)]

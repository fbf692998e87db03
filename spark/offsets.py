"""A query's position, and what its next batch reads: offsets as JSON, loss, limits, splits. Pure.

The rule: a batch is defined by its start and end offsets, whichever process reads it and how often. Starts that Spark
does not keep are in the *end* offset (`starts`): Spark does not store the initial offset and asks for it again when it
restarts within the first batch; the same holds for partitions found later, and for those where records were lost. Loss
is decided by the log and the topic's id, never by a gap between offsets. JSON keys have a fixed order, because Spark
compares the texts.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from ..client.errors import InvalidConfigurationError, OffsetOutOfRangeError
from ..client.values import TopicPartition
from ..protocol.primitives import ZERO_UUID

MARK = "@fencepost"
"""A key among the topics: no topic can have this name."""

VERSION = 1
Json = dict[str, Any]
Offsets = Mapping[TopicPartition, int]


class DataLost(OffsetOutOfRangeError):
    """Records that the batch should read are gone, or may be."""

    default_hint = (
        "set option failOnDataLoss to false to go on without them, or start a new query from where it is to begin"
    )


class Log(NamedTuple):
    """A partition now. end: how far this isolation level may read; high_watermark: the end of the log."""

    start: int
    end: int
    high_watermark: int


def _everything(_: TopicPartition) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Seen:
    """The selected topics now. ids: of topics that have one. selects: whether a partition is selected."""

    logs: Mapping[TopicPartition, Log]
    ids: Mapping[str, str] = field(default_factory=dict)
    selects: Callable[[TopicPartition], bool] = field(default=_everything, compare=False)


@dataclass(frozen=True, slots=True)
class Position:
    """offsets: the next of each partition. starts: the start of the batch that ends here, for partitions not in its
    start.

    is_initial: no batch was planned yet, and the next call may return another position.
    """

    offsets: Offsets
    ids: Mapping[str, str] = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)
    is_initial: bool = False


class Range(NamedTuple):
    """Offsets of one partition, the last one excluded. topic_id: empty if the broker gives none."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Limits(NamedTuple):
    """Of one batch; None: no limit."""

    offsets: int | None = None
    payload_bytes: int | None = None


NO_LIMITS = Limits()


# ---- JSON ----------------------------------------------------------------------------------------------------------


def id_text(topic_id: bytes) -> str:
    """As Kafka's tools write it; empty for none."""
    return "" if topic_id == ZERO_UUID else urlsafe_b64encode(topic_id).decode().rstrip("=")


def to_json(position: Position) -> Json:
    """What Spark writes into its checkpoint: the JSON of its Kafka source, with one more key."""
    own: Json = {"v": VERSION}
    if position.ids:
        own["ids"] = dict(sorted(position.ids.items()))
    if position.starts:
        own["init"] = nested(position.starts)
    if position.is_initial:
        own["initial"] = True
    return {MARK: own, **nested(position.offsets)}


def nested(offsets: Offsets) -> Json:
    """{"topic": {"0": 23}}, in order."""
    found: Json = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(found: Mapping[str, Any]) -> Position:
    """Also of Spark's Kafka source. Raises InvalidConfigurationError."""
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
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, each in found.items()
        for partition, offset in each.items()
    }


# ---- planning ------------------------------------------------------------------------------------------------------


def initial(begins: Offsets, ids: Mapping[str, str]) -> Position:
    """Where a new query begins."""
    return Position(dict(begins), dict(ids), is_initial=True)


def begins_of(start: Position, seen: Seen) -> tuple[dict[TopicPartition, int], list[str]]:
    """(where each partition continues, what was lost). A partition that is gone has no entry."""
    begins: dict[TopicPartition, int] = {}
    lost: list[str] = []
    topics = {tp.topic for tp in start.offsets}
    for tp, log in sorted(seen.logs.items()):
        at = start.offsets.get(tp)
        if at is not None and is_another(start.ids, seen.ids, tp.topic):
            lost.append(_made_again(tp, at))
            at = log.start
        elif at is None:
            if tp.topic in topics and log.start > 0:
                lost.append(f"partition {tp} was added and begins at offset {log.start} already")
            at = log.start
        else:
            at, said = _within(tp, at, log, tp.topic in start.ids)
            lost += said
        begins[tp] = at
    lost += [
        f"{_missing(tp, seen)}, with what it had from offset {at} on"
        for tp, at in sorted(start.offsets.items())
        if tp not in seen.logs
    ]
    return begins, lost


def is_another(before: Mapping[str, str], now: Mapping[str, str], topic: str) -> bool:
    """Whether the topic was deleted and created again; without ids, topics of the same name count as the same."""
    one, other = before.get(topic), now.get(topic)
    return bool(one) and bool(other) and one != other


def _made_again(tp: TopicPartition, at: int) -> str:
    return f"topic {tp.topic} was deleted and made again: offset {at} of {tp} was one of the topic before"


def _missing(tp: TopicPartition, seen: Seen) -> str:
    return f"partition {tp} is " + ("gone" if seen.selects(tp) else "not selected any more")


def _within(tp: TopicPartition, at: int, log: Log, is_identified: bool) -> tuple[int, list[str]]:
    if at < log.start:
        return log.start, [
            f"the records of {tp} from offset {at} to {log.start - 1} are gone: its log begins later now"
        ]
    if at > log.high_watermark:
        text = f"the log of {tp} ends at offset {log.high_watermark} now, and was read up to {at}"
        # truncated, or another topic of the same name: only an id distinguishes them
        return (log.high_watermark if is_identified else log.start), [text]
    return at, []


def planned(
    start: Position, seen: Seen, limits: Limits = NO_LIMITS, density: Mapping[TopicPartition, float] | None = None
) -> tuple[Position, list[str]]:
    """(the end of the next batch, what was lost): `start` itself if there is nothing new.

    density: bytes of a record, by partition, where bytes are limited.
    """
    begins, lost = begins_of(start, seen)
    latest = {tp: max(at, seen.logs[tp].end) for tp, at in begins.items()}
    ends = limited(begins, latest, limits, density or {})
    ids = {tp.topic: one for tp in begins if (one := seen.ids.get(tp.topic) or start.ids.get(tp.topic))}
    starts = {tp: at for tp, at in begins.items() if start.is_initial or start.offsets.get(tp) != at}
    starts |= {tp: at for tp, at in begins.items() if is_another(start.ids, ids, tp.topic)}
    if not start.is_initial and not starts and ends == start.offsets and ids == start.ids:
        return start, lost
    return Position(ends, ids, starts), lost


def new_records(start: Position, seen: Seen) -> int:
    """How many offsets may be read now."""
    begins, _ = begins_of(start, seen)
    return sum(max(0, seen.logs[tp].end - at) for tp, at in begins.items())


def up_to(seen: Seen, target: Offsets) -> Seen:
    """The same without anything after the target: no later records and no later partitions."""
    logs = {tp: log._replace(end=min(log.end, target[tp])) for tp, log in seen.logs.items() if tp in target}
    return replace(seen, logs=logs)


def limited(
    begins: Offsets, latest: Offsets, limits: Limits, density: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Ends within the limits, each partition by its share, and at least one record for each partition with new ones.

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
    """(the ranges that the batch between the two offsets reads, what is lost of them)."""
    found: list[Range] = []
    lost: list[str] = []
    for tp, to in sorted(end.offsets.items()):
        log = seen.logs.get(tp)
        at = end.starts.get(tp, start.offsets.get(tp, log.start if log is not None else 0))
        if tp not in end.starts and is_another(start.ids, end.ids, tp.topic):  # the end was found without its start
            lost.append(_made_again(tp, at))
            at = 0 if log is None else log.start
        if at >= to:
            if log is not None and at > log.high_watermark:
                lost.append(f"the log of {tp} ends at offset {log.high_watermark}, and is to be read from {at} on")
            continue
        if log is None:
            lost.append(f"{_missing(tp, seen)}, and with it its offsets {at} to {to - 1}")
            continue
        if is_another(end.ids, seen.ids, tp.topic):
            lost.append(_made_again(tp, at))
            continue
        if at < log.start:
            lost.append(f"the records of {tp} from offset {at} to {min(log.start, to) - 1} are gone")
            at = log.start
        if to > log.high_watermark:
            lost.append(f"the log of {tp} ends at offset {log.high_watermark}, and is to be read up to {to}")
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
    """One task for each partition, or more with the options minPartitions, maxRecordsPerPartition or
    maxBytesPerPartition; the largest first.

    Source: Spark's KafkaOffsetRangeCalculator, with bytes beside it.
    """
    parts: list[Range] = []
    for each in whole:
        count = 1 if max_records is None else -(-each.size // max_records)
        if max_bytes is not None:
            weight = each.size * (density or {}).get(each.topic_partition, 1.0)
            count = max(count, -int(-weight // max_bytes))
        parts += _cut(each, count)
    if min_partitions is not None and 0 < len(parts) < min_partitions:
        total = sum(each.size for each in parts)
        parts = [piece for each in parts for piece in _cut(each, round(each.size / total * min_partitions))]
    return sorted(parts, key=lambda each: (-each.size, each))


def _cut(whole: Range, count: int) -> list[Range]:
    count = max(1, min(count, whole.size))
    at = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [whole._replace(start=first, end=last) for first, last in pairwise(at)]

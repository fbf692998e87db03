"""The options of the source and of the sink: their names, meanings and error messages. Pure.

The rule: names and meanings are those of Spark's Kafka connector, so that changing the format is enough to move a
query. An unknown name is refused, with the most similar one as a hint. `kafka.*` goes to the client, which checks it.
No secret is printed. Source: Spark's KafkaSourceProvider; docs "Structured Streaming + Kafka".
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from ..client.config_names import settings_from
from ..client.consumer.list_offsets import READ_COMMITTED, READ_UNCOMMITTED
from ..client.errors import InvalidConfigurationError
from ..client.settings import AdminSettings, ConnectionSettings, ConsumerSettings, nearest
from ..client.values import TopicPartition

EARLIEST, LATEST = -2, -1
"""In JSON offsets and in ListOffsets."""

_MAX = 2**63 - 1
"""The largest offset, time and amount in the protocol and in Spark."""

Offsets = Mapping[TopicPartition, int]

KAFKA = "kafka."
SELECTS = ("subscribe", "subscribePattern", "assign")
STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay")
SOURCE_NAMES = (
    *SELECTS,
    *STARTS,
    *ENDS,
    *LIMITS,
    "startingOffsetsByTimestampStrategy",
    "isolationLevel",
    "includeHeaders",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerPartition",
    "commitGroup",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
)
UNUSED = ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix", "kafka.group.id")
"""Accepted so that a query can move unchanged, but ignored."""

_REFUSED = {
    "kafka.auto.offset.reset": "startingOffsets sets where a query starts",
    "kafka.key.deserializer": "keys are binary: cast the column",
    "kafka.value.deserializer": "values are binary: cast the column",
    "kafka.key.serializer": "keys are string or binary columns",
    "kafka.value.serializer": "values are string or binary columns",
    "kafka.enable.auto.commit": "Spark keeps the offsets in its checkpoint; commitGroup shows them to lag tools",
    "kafka.interceptor.classes": "there is no JVM client here",
}
_SECRET = re.compile(r"password|secret|jaas|token|ssl\.(keystore\.)?key\b|\.pem\b|credential", re.IGNORECASE)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "us": 0.001}
_UNITS_BYTES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_CLASS_IN_CLASS = re.compile(r"(?<!\\)\[[^]\\]*(?:\\.[^]\\]*)*(?:\[|&&)")
"""A union or intersection of classes in Java. Python reads it as a literal "[" or "&", which no topic name has."""
_AMOUNT = re.compile(r"(\d+)\s*([a-z]*)")
FETCH_BYTES = 4 << 20
"""The default of kafka.max.partition.fetch.bytes."""


# ---- for source and sink -------------------------------------------------------------------------------------------


def read_names(
    given: Mapping[str, str], known: Iterable[str], tolerated: Iterable[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """Return (the options that are not `kafka.*`, by their proper names; the `kafka.*` ones without the prefix).
    known: the proper names. tolerated: further names that are ignored. Upper and lower case are the same.

    Raises InvalidConfigurationError for an unknown name, with the nearest known one.
    """
    names = {name.lower(): name for name in known}
    ignored = {name.lower() for name in tolerated}
    own: dict[str, str] = {}
    kafka: dict[str, str] = {}
    for key, value in given.items():
        low = key.lower()
        if low in _REFUSED:
            raise InvalidConfigurationError(f"option {key!r} is not supported", hint=_REFUSED[low])
        if low.startswith(KAFKA):
            kafka[low.removeprefix(KAFKA)] = value
        elif low in names:
            own[names[low]] = value
        elif low not in ignored:
            raise InvalidConfigurationError(f"there is no option {key!r}{_nearest(low, names)}")
    if not kafka.get("bootstrap.servers", "").strip():
        raise InvalidConfigurationError(
            "option 'kafka.bootstrap.servers' is missing", hint='.option("kafka.bootstrap.servers", "host:9092")'
        )
    return own, kafka


def _nearest(low: str, names: Mapping[str, str]) -> str:
    """Return the end of an error message that suggests the most similar name; empty if none is similar. low: the
    unknown name in lower case. names: the proper names by their lower-case form.
    """
    if low in ("bootstrap.servers", "bootstrapservers", "bootstrap_servers", "brokers"):
        return "; did you mean 'kafka.bootstrap.servers'?"
    text = nearest(low, names)
    for key, name in names.items():
        text = text.replace(repr(key), repr(name))
    return text


def connection_of(settings: ConnectionSettings) -> AdminSettings:
    """Return only the settings of the connection. Those with the same servers and security are equal, so they share a
    connection.
    """
    kept = {one.name: getattr(settings, one.name) for one in fields(AdminSettings)}
    return AdminSettings(**{**kept, "allow_auto_create_topics": False})


def redact(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options with `***` in place of passwords and the like, for display."""
    return {name: "***" if _SECRET.search(name) else value for name, value in given.items()}


def truth(name: str, value: str) -> bool:
    """Parse "true" or "false". name: of the option, for the error. Raises InvalidConfigurationError."""
    found = {"true": True, "false": False}.get(value.strip().lower())
    if found is None:
        raise _wrong(name, value, "true or false")
    return found


def whole(name: str, value: str, least: int = 1) -> int:
    """Parse a whole number of at least `least`. Raises InvalidConfigurationError."""
    text = value.strip()
    if not re.fullmatch(r"-?\d{1,18}", text) or int(text) < least:
        raise _wrong(name, value, f"a whole number, at least {least}")
    return int(text)


def amount_of_bytes(name: str, value: str) -> int:
    """Parse a size such as "64m" or "1g", or a plain number. Raises InvalidConfigurationError."""
    return int(_amount(name, value, _UNITS_BYTES, "bytes, as in 64m or 1g"))


def duration_ms(name: str, value: str) -> int:
    """Parse a duration such as "15m" or "500ms"; a plain number is milliseconds. Raises InvalidConfigurationError."""
    return int(_amount(name, value, _UNITS_MS | {"": 1}, "a time, as in 30s or 15m"))


def _amount(name: str, value: str, units: Mapping[str, float], words: str) -> float:
    """Parse a number with a unit such as `20k` or `5m`. words: what the value must be, for the error. Raises:
    InvalidConfigurationError.
    """
    found = _AMOUNT.fullmatch(value.strip().lower())
    if found is None or found[2] not in units or len(found[1]) > len(str(_MAX)) or not int(found[1]):
        raise _wrong(name, value, words)
    amount = int(found[1]) * units[found[2]]
    if amount > _MAX:
        raise _wrong(name, value, words)
    return amount


def _wrong(name: str, value: str, wanted: str) -> InvalidConfigurationError:
    """Return the error for an option with a wrong value. wanted: what the value must be, as words."""
    shown = "***" if _SECRET.search(name) else repr(value)
    return InvalidConfigurationError(f"option {name!r} must be {wanted}, not {shown}")


# ---- the source ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """What to read. Exactly one is set: topics by name, topics by a pattern, or partitions."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()

    def selects(self, topic: str) -> bool:
        """Return whether at least one partition of this topic is selected."""
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or any(each.topic == topic for each in self.partitions)

    def has(self, tp: TopicPartition) -> bool:
        """Return whether a partition is selected."""
        return tp in self.partitions if self.partitions else self.selects(tp.topic)

    @property
    def named(self) -> tuple[str, ...]:
        """Return the topics that must exist; empty if a pattern selects them."""
        return self.topics or tuple(sorted({each.topic for each in self.partitions}))


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to start or end. One of: an edge (EARLIEST, LATEST) for all partitions, an offset for each (which may be
    an edge), a time in ms for each, or one time in ms for all.
    """

    edge: int | None = None
    offsets: Offsets | None = None
    timestamps: Offsets | None = None
    timestamp: int | None = None
    latest_if_none: bool = False  # if no record is at or after a time: the end, instead of an error


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of the source. Times are milliseconds, sizes bytes; None: no limit. fetch: the client's settings for
    reading. max_offsets, min_offsets, max_bytes, max_delay_ms: of a micro-batch. …_each: of a Spark partition.
    """

    connection: AdminSettings
    fetch: ConsumerSettings
    selection: Selection
    starting: Bound
    ending: Bound
    isolation: int = READ_COMMITTED
    include_headers: bool = False
    fail_on_loss: bool = True
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_bytes: int | None = None
    max_delay_ms: int = 900_000
    min_partitions: int | None = None
    max_records_each: int | None = None
    max_bytes_each: int | None = None
    commit_group: str | None = None
    patience_ms: int = 120_000  # without progress
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def reads_committed(self) -> bool:
        """Return whether records of open and aborted transactions are left out."""
        return self.isolation == READ_COMMITTED


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse the options of the source. streaming: for a stream, which has limits but no end, or else a batch. Raises
    InvalidConfigurationError.
    """
    own, kafka = read_names(given, SOURCE_NAMES)
    notes = [
        f"option {name!r} has no effect here and is ignored"
        for name in UNUSED
        if name in own or name.removeprefix(KAFKA) in kafka
    ]
    kafka.pop("group.id", None)
    isolation = _isolation(own.get("isolationLevel"), kafka.pop("isolation.level", None))
    kafka.setdefault("max.partition.fetch.bytes", str(FETCH_BYTES))
    fetch = settings_from(ConsumerSettings, kafka)
    if streaming:
        _refuse_ends(own)
    else:
        notes += [f"option {name!r} is for streams and is ignored in a batch" for name in LIMITS if name in own]
    selection = _selection(own)
    most, least = _number(own, "maxOffsetsPerTrigger"), _number(own, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise InvalidConfigurationError("minOffsetsPerTrigger is greater than maxOffsetsPerTrigger")
    return SourceOptions(
        connection=connection_of(fetch),
        fetch=fetch,
        selection=selection,
        starting=_starting(own, streaming),
        ending=_ending(own),
        isolation=isolation,
        include_headers=truth("includeHeaders", own.get("includeHeaders", "false")),
        fail_on_loss=truth("failOnDataLoss", own.get("failOnDataLoss", "true")),
        max_offsets=most,
        min_offsets=least,
        max_bytes=_bytes(own, "maxBytesPerTrigger"),
        max_delay_ms=duration_ms("maxTriggerDelay", own.get("maxTriggerDelay", "15m")),
        min_partitions=_number(own, "minPartitions"),
        max_records_each=_number(own, "maxRecordsPerPartition"),
        max_bytes_each=_bytes(own, "maxBytesPerPartition"),
        commit_group=own.get("commitGroup") or None,
        patience_ms=whole("kafkaConsumer.pollTimeoutMs", own.get("kafkaConsumer.pollTimeoutMs", "120000")),
        notes=tuple(notes),
    )


def includes_headers(given: Mapping[str, str]) -> bool:
    """Return whether rows have headers. Spark asks for the schema before other options are checked."""
    found = {name.lower(): value for name, value in given.items()}.get("includeheaders", "false")
    return truth("includeHeaders", found)


def _isolation(own: str | None, alias: str | None) -> int:
    """Return the isolation level, by default read_committed. own, alias: the values of isolationLevel and
    kafka.isolation.level; None: not set. Raises InvalidConfigurationError if both are set and differ.
    """
    if own is not None and alias is not None and own.lower() != alias.lower():
        raise InvalidConfigurationError(f"isolationLevel is {own!r} but kafka.isolation.level is {alias!r}")
    name, value = ("isolationLevel", own) if own is not None else ("kafka.isolation.level", alias)
    level: Literal["read_committed", "read_uncommitted"] | str = (value or "read_committed").strip().lower()
    levels = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}
    if level not in levels:
        raise _wrong(name, str(value), "read_committed or read_uncommitted")
    return levels[level]


def _number(own: Mapping[str, str], name: str) -> int | None:
    """Parse an option that is a whole number; None if it is not set."""
    return whole(name, own[name]) if name in own else None


def _bytes(own: Mapping[str, str], name: str) -> int | None:
    """Parse an option that is a size; None if it is not set."""
    return amount_of_bytes(name, own[name]) if name in own else None


def _refuse_ends(own: Mapping[str, str]) -> None:
    """Raise InvalidConfigurationError if a stream has an option that sets an end."""
    for name in ENDS:
        if name in own:
            raise InvalidConfigurationError(f"option {name!r} is for batch queries: a stream has no end")


def _selection(own: Mapping[str, str]) -> Selection:
    """Parse which topics or partitions to read. Raises InvalidConfigurationError unless exactly one such option is
    set.
    """
    given = [name for name in SELECTS if name in own]
    if len(given) != 1:
        named = " and ".join(given) if given else "none"
        raise InvalidConfigurationError(f"exactly one of {', '.join(SELECTS)} must be set, not {named}")
    name, value = given[0], own[given[0]]
    if name == "subscribePattern":
        problem = _why_no_pattern(value)
        if problem:
            raise InvalidConfigurationError(
                f"option {name!r}: {value!r} is not a Python regular expression: {problem}",
                hint="some Java syntax is not supported: [a-z&&[^x]], \\p{Alpha}, \\Q…\\E",
            )
        if not value:
            raise _wrong(name, value, "a pattern")
        return Selection(pattern=value)
    if name == "subscribe":
        topics = tuple(sorted({topic.strip() for topic in value.split(",")} - {""}))
        if not topics:
            raise _wrong(name, value, "topics, as in a,b")
        return Selection(topics=topics)
    form = '{"topic":[0,1]}'
    found = _json(name, value, form)
    partitions: set[TopicPartition] = set()
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not all(_is_count(each) for each in numbers):
            raise _wrong(name, value, f"partitions, as in {form}")
        partitions.update(TopicPartition(topic, each) for each in numbers)
    if not partitions:
        raise _wrong(name, value, f"partitions, as in {form}")
    return Selection(partitions=tuple(sorted(partitions)))


def _why_no_pattern(text: str) -> str:
    """Return why Python cannot use the regular expression; empty if it can."""
    if _CLASS_IN_CLASS.search(text):
        return "a character class within a character class"
    try:
        re.compile(text)
    except re.error as error:
        return str(error)
    return ""


def _starting(own: Mapping[str, str], streaming: bool) -> Bound:
    """Parse where to start. Raises InvalidConfigurationError if a batch would start at the latest offset."""
    strategy = own.get("startingOffsetsByTimestampStrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise _wrong("startingOffsetsByTimestampStrategy", strategy, "error or latest")
    bound = _bound(own, *STARTS, default="latest" if streaming else "earliest", lenient=strategy == "latest")
    if not streaming and (bound.edge == LATEST or LATEST in (bound.offsets or {}).values()):
        raise InvalidConfigurationError("a batch query cannot start at the latest offset: nothing would be read")
    return bound


def _ending(own: Mapping[str, str]) -> Bound:
    """Parse where a batch ends. Raises InvalidConfigurationError if it would end at the earliest offset."""
    bound = _bound(own, *ENDS, default="latest", lenient=True)
    if bound.edge == EARLIEST or EARLIEST in (bound.offsets or {}).values():
        raise InvalidConfigurationError("a batch query cannot end at the earliest offset: nothing would be read")
    return bound


def _bound(own: Mapping[str, str], time: str, times: str, offsets: str, *, default: str, lenient: bool) -> Bound:
    """Parse the first of three options that is set, in the order in which Spark checks them. time, times, offsets:
    their names. default: for `offsets`. lenient: a time after the last record means the end, and is no error.
    """
    if time in own:
        return Bound(timestamp=whole(time, own[time], 0), latest_if_none=lenient)
    if times in own:
        found = _by_partition(times, own[times], '{"topic":{"0":1700000000000}}', 0)
        return Bound(timestamps=found, latest_if_none=lenient)
    value = own.get(offsets, default).strip()
    edge = {"earliest": EARLIEST, "latest": LATEST}.get(value.lower())
    if edge is not None:
        return Bound(edge=edge)
    return Bound(
        offsets=_by_partition(offsets, value, 'earliest, latest, or {"topic":{"0":23,"1":-1,"2":-2}}', EARLIEST)
    )


def _by_partition(name: str, value: str, form: str, least: int) -> Offsets:
    """Parse JSON of topic → partition → number. form: an example for the error. least: the smallest number that is
    allowed. Raises InvalidConfigurationError.
    """
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json(name, value, form).items():
        if topic.startswith("@"):  # a key that fencepost adds to the offsets of a checkpoint
            continue
        if not isinstance(numbers, dict):
            raise _wrong(name, value, form)
        for partition, offset in numbers.items():
            if not partition.isascii() or not partition.isdigit() or not _is_count(offset, least):
                raise _wrong(name, value, form)
            found[TopicPartition(topic, int(partition))] = offset
    if not found:
        raise _wrong(name, value, form)
    return found


def _json(name: str, value: str, form: str) -> dict[str, Any]:
    """Parse a JSON object. form: an example for the error. Raises InvalidConfigurationError."""
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _wrong(name, value, f"as in {form}")
    return found


def _is_count(value: object, least: int = 0) -> bool:
    """Return whether the value is an integer, at least `least`, that fits in 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MAX

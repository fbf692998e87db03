"""The records of a consumer group in __consumer_offsets, in Kafka's formats: keys 3 to 8 and 16. Pure.

A group's state is the newest record of each key. A Change is one record, or with no value its tombstone; what a group
does is a list of changes, and a restart applies the same changes again. All values have version 0. What was written
by Kafka before 4.1 under key 4 is read over, as by Kafka 4.3, which writes tombstones of it alone.
Sources: Kafka's ConsumerGroup*Key.json, ConsumerGroup*Value.json, GroupCoordinatorRecordHelpers; docs/formats.md.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from struct import Struct, error
from typing import Any, NamedTuple

from ....protocol.errors import MalformedFrame
from ....protocol.primitives import read_uvarint, uvarint
from ..group_records import AGE_TAG
from .assignors import NOTHING, Partitions, TopicId

Held = Mapping[TopicId, Mapping[int, int]]
"""Partitions of a member, each with the epoch in which it got it, by topic."""

NONE_HELD: Held = {}
_INT8, _INT16, _INT32, _INT64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q")
_VERSION = _INT16.pack(0)
_NO_TAGS = b"\x00"


class UnreadableRecord(ValueError):
    """A record of a consumer group that does not have the layout of its version."""


class Kind(IntEnum):
    """What a record is of: the number that its key begins with."""

    CLASSIC_GROUP = 2  # only without a value: the end of the classic group that was here (group_records.py)
    EPOCH = 3
    PARTITION_METADATA = 4
    SUBSCRIPTION = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


KINDS = frozenset(Kind) - {Kind.CLASSIC_GROUP}
OF_THE_GROUP = frozenset({Kind.CLASSIC_GROUP, Kind.EPOCH, Kind.PARTITION_METADATA, Kind.TARGET_EPOCH})
"""Of these there is one for a group; of the others one for each member, or each regular expression."""


class MemberState(IntEnum):
    """How far a member is on the way to what it is to read."""

    STABLE = 0
    UNREVOKED = 1  # it has to give up partitions first
    UNRELEASED = 2  # it waits for partitions that others have to give up


class GroupEpoch(NamedTuple):
    """The epoch of the group, which grows with each change. metadata_hash: of the topics that it subscribes to.

    empty_since_ms: since when nobody is in it, by the age of the store, which is a field of our own.
    """

    epoch: int
    metadata_hash: int = 0
    empty_since_ms: int | None = None


class Classic(NamedTuple):
    """What a member that speaks the classic protocol sent. protocols: (name, metadata), in its order of preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Subscription(NamedTuple):
    """What a member reports about itself. topics: sorted. regex: empty where it has none."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str | None = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: Classic | None = None


class TargetEpoch(NamedTuple):
    """The group's epoch that the target assignment was made for. made_ms: when, by the wall."""

    epoch: int
    made_ms: int = 0


class Target(NamedTuple):
    """What a member is to read, once others have given it up."""

    partitions: Partitions = NOTHING


class Current(NamedTuple):
    """Where a member is. assigned: what it may read; revoking: what it may read no more, and has not given up yet."""

    epoch: int
    previous_epoch: int
    state: MemberState = MemberState.STABLE
    assigned: Held = NONE_HELD
    revoking: Held = NONE_HELD


class Resolved(NamedTuple):
    """The topics that a regular expression matched. version: of all topics, then."""

    topics: tuple[str, ...]
    version: int
    resolved_ms: int


Value = GroupEpoch | Subscription | TargetEpoch | Target | Current | Resolved


class Change(NamedTuple):
    """A record. name: the member's id, or the regular expression. value: None for a tombstone."""

    kind: Kind
    name: str
    value: Value | None


# ---- writing -------------------------------------------------------------------------------------------------


def key(group_id: str, kind: Kind, name: str) -> bytes:
    """The key of a record."""
    head = _INT16.pack(kind) + _short_text(group_id)
    return head if kind in OF_THE_GROUP else head + _short_text(name)


def record(group_id: str, change: Change) -> tuple[bytes, bytes | None]:
    """The key and the value of a change."""
    found = change.value
    written = None if found is None else _VERSION + _WRITERS[change.kind](found)
    return key(group_id, change.kind, change.name), written


def _short_text(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _text(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


def _tag(number: int, content: bytes) -> bytes:
    return uvarint(number) + uvarint(len(content)) + content


def _numbers(numbers: Any) -> bytes:
    return uvarint(len(numbers) + 1) + b"".join(map(_INT32.pack, numbers))


def _texts(texts: Any) -> bytes:
    return uvarint(len(texts) + 1) + b"".join(map(_text, texts))


def _write_epoch(found: GroupEpoch) -> bytes:
    tags = [_tag(0, _INT64.pack(found.metadata_hash))] if found.metadata_hash else []
    if found.empty_since_ms is not None:
        tags.append(_tag(AGE_TAG, _INT64.pack(found.empty_since_ms)))
    return _INT32.pack(found.epoch) + uvarint(len(tags)) + b"".join(tags)


def _write_subscription(found: Subscription) -> bytes:
    return b"".join(
        (
            _text(found.instance_id),
            _text(found.rack_id),
            _text(found.client_id),
            _text(found.client_host),
            _texts(found.topics),
            _text(found.regex),
            _INT32.pack(found.rebalance_timeout_ms),
            _text(found.assignor),
            b"\x01" + _tag(0, _write_classic(found.classic)),
        )
    )


def _write_classic(found: Classic | None) -> bytes:
    """A struct that may be null, after a byte that is 0 for null and 1 otherwise; Kafka writes the null too."""
    if found is None:
        return b"\x00"
    protocols = (_text(name) + uvarint(len(metadata) + 1) + metadata + _NO_TAGS for name, metadata in found.protocols)
    head = b"\x01" + _INT32.pack(found.session_timeout_ms) + uvarint(len(found.protocols) + 1)
    return head + b"".join(protocols) + _NO_TAGS


def _write_target_epoch(found: TargetEpoch) -> bytes:
    tags = b"\x01" + _tag(0, _INT64.pack(found.made_ms)) if found.made_ms else _NO_TAGS
    return _INT32.pack(found.epoch) + tags


def _write_target(found: Target) -> bytes:
    topics = (topic_id + _numbers(sorted(partitions)) + _NO_TAGS for topic_id, partitions in found.partitions.items())
    return uvarint(len(found.partitions) + 1) + b"".join(topics) + _NO_TAGS


def _write_current(found: Current) -> bytes:
    head = _INT32.pack(found.epoch) + _INT32.pack(found.previous_epoch) + _INT8.pack(found.state)
    return head + _encode_held(found.assigned) + _encode_held(found.revoking) + _NO_TAGS


def _encode_held(held: Held) -> bytes:
    parts = [uvarint(len(held) + 1)]
    for topic_id, epochs in held.items():
        partitions = sorted(epochs)
        parts += topic_id, _numbers(partitions), b"\x01", _tag(0, _numbers([epochs[each] for each in partitions]))
    return b"".join(parts)


def _write_resolved(found: Resolved) -> bytes:
    return _texts(found.topics) + _INT64.pack(found.version) + _INT64.pack(found.resolved_ms) + _NO_TAGS


_WRITERS: Mapping[Kind, Callable[[Any], bytes]] = {
    Kind.EPOCH: _write_epoch,
    Kind.SUBSCRIPTION: _write_subscription,
    Kind.TARGET_EPOCH: _write_target_epoch,
    Kind.TARGET: _write_target,
    Kind.CURRENT: _write_current,
    Kind.REGEX: _write_resolved,
}


# ---- reading -------------------------------------------------------------------------------------------------


def read(record_key: bytes, value: bytes | None) -> tuple[str, Change]:
    """The group and the change of a record. Raises UnreadableRecord."""
    try:
        reader = _Reader(record_key, 0)
        kind = Kind(reader.number(_INT16))
        if kind is Kind.CLASSIC_GROUP:
            raise UnreadableRecord("the key of a classic group")
        group_id = reader.short_text()
        name = "" if kind in OF_THE_GROUP else reader.short_text()
        if value is None or kind is Kind.PARTITION_METADATA:
            return group_id, Change(kind, name, None)
        version = _INT16.unpack_from(value)[0]
        if version != 0:
            raise UnreadableRecord(f"version {version} of a record of kind {kind}, where 0 is the newest known")
        return group_id, Change(kind, name, _READERS[kind](_Reader(value, 2)))
    except (error, ValueError, IndexError, MalformedFrame) as wrong:
        if isinstance(wrong, UnreadableRecord):
            raise
        raise UnreadableRecord(f"a record of a consumer group: {wrong}") from wrong


class _Reader:
    """Steps through a record."""

    def __init__(self, buffer: bytes, position: int) -> None:
        self._buffer = buffer
        self._position = position

    def number(self, kind: Struct) -> int:
        found: int = kind.unpack_from(self._buffer, self._position)[0]
        self._position += kind.size
        return found

    def uvarint(self) -> int:
        found, self._position = read_uvarint(self._buffer, self._position)
        return found

    def bytes(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._buffer):
            raise UnreadableRecord(f"{length} bytes at {self._position} of {len(self._buffer)}")
        found = self._buffer[self._position : end]
        self._position = end
        return bytes(found)

    def short_text(self) -> str:
        return self.bytes(self.number(_INT16)).decode()

    def nullable(self) -> str | None:
        length = self.uvarint()
        return None if length == 0 else self.bytes(length - 1).decode()

    def text(self) -> str:
        found = self.nullable()
        if found is None:
            raise UnreadableRecord("no text where one must be")
        return found

    def count(self) -> int:
        """Read the number of items of an array. Raises UnreadableRecord if there are fewer bytes left than items."""
        found = self.uvarint() - 1
        if not 0 <= found <= len(self._buffer) - self._position:
            raise UnreadableRecord(f"{found} items in {len(self._buffer) - self._position} bytes")
        return found

    def numbers(self) -> list[int]:
        return [self.number(_INT32) for _ in range(self.count())]

    def texts(self) -> tuple[str, ...]:
        return tuple(self.text() for _ in range(self.count()))

    def tags(self) -> dict[int, "_Reader"]:
        """The tagged fields that follow, by tag."""
        found: dict[int, _Reader] = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            found[tag] = _Reader(self.bytes(self.uvarint()), 0)
        return found


def _read_epoch(reader: _Reader) -> GroupEpoch:
    epoch, tags = reader.number(_INT32), reader.tags()
    empty_since_ms = tags[AGE_TAG].number(_INT64) if AGE_TAG in tags else None
    return GroupEpoch(epoch, tags[0].number(_INT64) if 0 in tags else 0, empty_since_ms)


def _read_subscription(reader: _Reader) -> Subscription:
    instance_id, rack_id, client_id, client_host = reader.nullable(), reader.nullable(), reader.text(), reader.text()
    topics, regex, timeout_ms = reader.texts(), reader.nullable(), reader.number(_INT32)
    assignor, tags = reader.nullable(), reader.tags()
    classic = _read_classic(tags[0]) if 0 in tags else None
    return Subscription(instance_id, rack_id, client_id, client_host, topics, regex, timeout_ms, assignor, classic)


def _read_classic(reader: _Reader) -> Classic | None:
    if reader.uvarint() == 0:
        return None
    timeout_ms, protocols = reader.number(_INT32), []
    for _ in range(reader.count()):
        protocols.append((reader.text(), reader.bytes(reader.uvarint() - 1)))
        reader.tags()
    reader.tags()
    return Classic(timeout_ms, tuple(protocols))


def _read_target_epoch(reader: _Reader) -> TargetEpoch:
    epoch, tags = reader.number(_INT32), reader.tags()
    return TargetEpoch(epoch, tags[0].number(_INT64) if 0 in tags else 0)


def _read_target(reader: _Reader) -> Target:
    found = {}
    for _ in range(reader.count()):
        topic_id = reader.bytes(16)
        found[topic_id] = frozenset(reader.numbers())
        reader.tags()
    reader.tags()
    return Target(found)


def _read_current(reader: _Reader) -> Current:
    epoch, previous_epoch, state = reader.number(_INT32), reader.number(_INT32), MemberState(reader.number(_INT8))
    found = Current(epoch, previous_epoch, state, _read_held(reader, epoch), _read_held(reader, epoch))
    reader.tags()
    return found


def _read_held(reader: _Reader, epoch: int) -> Held:
    """Without the epochs of the partitions, which Kafka before 4.3 did not write, that of the member counts."""
    found = {}
    for _ in range(reader.count()):
        topic_id, partitions = reader.bytes(16), reader.numbers()
        tags = reader.tags()
        epochs = tags[0].numbers() if 0 in tags else []
        if len(epochs) != len(partitions):
            epochs = [max(epoch, 0)] * len(partitions)
        found[topic_id] = dict(zip(partitions, epochs, strict=True))
    return found


def _read_resolved(reader: _Reader) -> Resolved:
    found = Resolved(reader.texts(), reader.number(_INT64), reader.number(_INT64))
    reader.tags()
    return found


_READERS: Mapping[Kind, Callable[[_Reader], Value]] = {
    Kind.EPOCH: _read_epoch,
    Kind.SUBSCRIPTION: _read_subscription,
    Kind.TARGET_EPOCH: _read_target_epoch,
    Kind.TARGET: _read_target,
    Kind.CURRENT: _read_current,
    Kind.REGEX: _read_resolved,
}

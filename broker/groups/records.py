"""The records of committed offsets in __consumer_offsets, byte for byte Kafka's. Pure.

A key begins with an int16, the type of the record: 0 and 1 a committed offset, 2 a group. Values are written in
version 4, where tagged fields carry what Kafka has no field for. All versions are read; unknown tagged fields are
skipped. Source: Kafka's OffsetCommitKey.json, OffsetCommitValue.json, GroupCoordinatorRecordHelpers; docs/formats.md.
"""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ...protocol.errors import MalformedFrame
from ...protocol.primitives import ZERO_UUID, read_uvarint, uvarint

OFFSET_KEYS = (0, 1)
GROUP_KEY = 2
OWN_TAGS = 10_000  # lower numbers are left to Kafka
UNKNOWN_AGE = -1
NO_LIMIT = -1

_KEY_VERSION = 1
_VERSION = 4
_TOPIC_ID = 0
_AGE = OWN_TAGS
_RETENTION = OWN_TAGS + 1

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_HEAD = Struct(">hqi")  # version, offset, leader epoch
_TOPIC_ID_HEAD = uvarint(_TOPIC_ID) + uvarint(16)
_AGE_HEAD = uvarint(_AGE) + uvarint(8)
_RETENTION_HEAD = uvarint(_RETENTION) + uvarint(8)
_LONGEST_MS = 2**63 - 1
_LEGACY = {0: ">q", 1: ">q", 2: ">q", 3: ">qi"}  # the fields before the metadata, by version


class UnreadableRecord(ValueError):
    """Raised for a record of __consumer_offsets that does not have the layout of its version."""


class Place(NamedTuple):
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


class Committed(NamedTuple):
    """An offset that a group has committed. position: of its record in the log; of two records the later one counts.

    commit_ms: wall time, for other brokers that read the record. age_ms: time on the data directory's clock, which runs
    only while the broker does, and from which the commit's age is computed; UNKNOWN_AGE if another broker wrote it.
    retention_ms: its own time to live (OffsetCommit v2 to 4), or NO_LIMIT.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    age_ms: int
    topic_id: bytes = ZERO_UUID
    retention_ms: int = NO_LIMIT
    position: int = -1


def key_kind(key: bytes) -> int:
    """Return the type of a record (0 and 1: an offset, 2: a group), from its key. Raises UnreadableRecord."""
    if len(key) < 2:
        raise UnreadableRecord(f"the key has {len(key)} bytes, at least 2 are needed")
    return int.from_bytes(key[:2], "big", signed=True)


def offset_key(place: Place) -> bytes:
    """Return the key of the record for one partition of one group."""
    group, topic = place.group.encode(), place.topic.encode()
    parts = _INT16.pack(_KEY_VERSION), _INT16.pack(len(group)), group, _INT16.pack(len(topic)), topic
    return b"".join((*parts, _INT32.pack(place.partition)))


def read_offset_key(key: bytes) -> Place:
    """Decode the key of a committed offset's record. Raises UnreadableRecord."""
    try:
        group, position = _short_text(key, 2)
        topic, position = _short_text(key, position)
        (partition,) = _INT32.unpack_from(key, position)
    except (StructError, UnicodeDecodeError, IndexError) as error:
        raise UnreadableRecord(f"the key of a committed offset cannot be decoded: {error}") from error
    return Place(group, topic, partition)


def offset_value(committed: Committed) -> bytes:
    """Encode a committed offset as the value of its record."""
    metadata = committed.metadata.encode("utf-8", "surrogatepass")
    parts = [
        _HEAD.pack(_VERSION, committed.offset, committed.leader_epoch),
        uvarint(len(metadata) + 1),
        metadata,
        _INT64.pack(committed.commit_ms),
    ]
    tags = []
    if committed.topic_id != ZERO_UUID:
        tags.append(_TOPIC_ID_HEAD + committed.topic_id)
    if committed.age_ms != UNKNOWN_AGE:
        tags.append(_AGE_HEAD + _INT64.pack(committed.age_ms))
    if committed.retention_ms != NO_LIMIT:
        tags.append(_RETENTION_HEAD + _INT64.pack(committed.retention_ms))
    return b"".join((*parts, uvarint(len(tags)), *tags))


def read_offset_value(value: bytes, position: int = -1) -> Committed:
    """Decode a committed offset, as offset_value() or Kafka wrote it. Raises UnreadableRecord.

    position: of the record in the log.
    """
    try:
        version = int.from_bytes(value[:2], "big", signed=True)
        found = _read_flexible(value) if version >= _VERSION else _read_legacy(value, version)
    except (StructError, UnicodeDecodeError, IndexError, KeyError, MalformedFrame) as error:
        raise UnreadableRecord(f"the value of a committed offset cannot be decoded: {error!r}") from error
    return found._replace(position=position)


def _read_legacy(value: bytes, version: int) -> Committed:
    """Decode a committed offset in Kafka's versions 0 to 3, without tagged fields."""
    layout = Struct(_LEGACY[version])
    offset, *epoch = layout.unpack_from(value, 2)
    metadata, position = _short_text(value, 2 + layout.size)
    (commit_ms,) = _INT64.unpack_from(value, position)
    retention_ms = NO_LIMIT
    if version == 1:
        (expire_ms,) = _INT64.unpack_from(value, position + 8)
        retention_ms = NO_LIMIT if expire_ms < 0 else min(max(0, expire_ms - commit_ms), _LONGEST_MS)
    return Committed(offset, epoch[0] if epoch else -1, metadata, commit_ms, UNKNOWN_AGE, retention_ms=retention_ms)


def _read_flexible(value: bytes) -> Committed:
    """Decode a committed offset in version 4, with tagged fields. Raises IndexError if it is cut short."""
    _, offset, leader_epoch = _HEAD.unpack_from(value)
    length, position = read_uvarint(value, _HEAD.size)
    end = position + max(0, length - 1)
    metadata = value[position:end].decode("utf-8", "surrogatepass")
    (commit_ms,) = _INT64.unpack_from(value, end)
    tags = _read_tags(value, end + 8)
    topic_id = tags.get(_TOPIC_ID, ZERO_UUID)
    if len(topic_id) != len(ZERO_UUID):
        raise IndexError(f"the topic id has {len(topic_id)} bytes instead of {len(ZERO_UUID)}")
    return Committed(
        offset,
        leader_epoch,
        metadata,
        commit_ms,
        _INT64.unpack(tags[_AGE])[0] if _AGE in tags else UNKNOWN_AGE,
        topic_id,
        _INT64.unpack(tags[_RETENTION])[0] if _RETENTION in tags else NO_LIMIT,
    )


def _read_tags(value: bytes, position: int) -> dict[int, bytes]:
    """Read the tagged fields at this position. Returns their contents by number. Raises IndexError if one is
    cut short.
    """
    count, position = read_uvarint(value, position)
    tags: dict[int, bytes] = {}
    for _ in range(count):
        tag, position = read_uvarint(value, position)
        size, position = read_uvarint(value, position)
        if position + size > len(value):
            raise IndexError(f"tag {tag} is cut short")
        tags[tag] = value[position : position + size]
        position += size
    return tags


def _short_text(data: bytes, position: int) -> tuple[str, int]:
    """Read a text with a 16-bit length; null is read as an empty text. Returns the text and the position after it.
    Raises IndexError if the text is cut short.
    """
    (length,) = _INT16.unpack_from(data, position)
    end = position + 2 + max(0, length)
    if end > len(data):
        raise IndexError("a text is cut short")
    return data[position + 2 : end].decode("utf-8", "surrogatepass"), end

"""The record of a classic group in __consumer_offsets, byte for byte as in Kafka; written in version 3 and read in all
versions. Pure.

Key: version 2 and the group id. A null value means that the group is deleted. Two things for which Kafka has no
field are kept as tagged fields, in version 4: the store's age when a group lost its last member; and whether all
members of a former consumer group must join again.

Sources: Kafka's GroupMetadataKey.json, GroupMetadataValue.json, GroupCoordinatorRecordHelpers; docs/formats.md.
"""

from collections.abc import Mapping
from struct import Struct, error
from typing import NamedTuple

from ...protocol.errors import MalformedFrame
from ...protocol.primitives import read_uvarint, uvarint

GROUP_KEY = 2
VERSION = 3
FLEXIBLE = 4
AGE_TAG, REBALANCE_TAG = 10_000, 10_001  # lower numbers are left to Kafka
UNKNOWN_AGE = -1

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


class UnreadableGroup(ValueError):
    """Raised for a record of a group that does not have the layout of its version."""


class KeptMember(NamedTuple):
    """A member, with the fields that the group's record has for it. Timeouts in milliseconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class KeptGroup(NamedTuple):
    """A group, with the fields of its record. Its state is Empty if it has no members, else Stable.

    since_ms, since_age_ms: when it entered that state, by the wall clock and by the data directory's clock, which runs
    only while the broker does. must_rebalance: whether its members must join again after a restart.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[KeptMember, ...]
    since_ms: int = -1
    since_age_ms: int = UNKNOWN_AGE
    must_rebalance: bool = False


def key(group_id: str) -> bytes:
    """Return the key of a group's record."""
    return _INT16.pack(GROUP_KEY) + _text(group_id)


def value(group: KeptGroup) -> bytes:
    """Encode a group as the value of its record: in version 3, or in version 4 if it needs one of our tagged fields."""
    tags = {}
    if not group.members and group.since_age_ms != UNKNOWN_AGE:
        tags[AGE_TAG] = _INT64.pack(group.since_age_ms)
    if group.must_rebalance:
        tags[REBALANCE_TAG] = b""
    if tags:
        return _flexible_value(group, tags)
    parts = [
        _INT16.pack(VERSION),
        _text(group.protocol_type),
        _INT32.pack(group.generation),
        _nullable(group.protocol),
        _nullable(group.leader),
        _INT64.pack(group.since_ms),
        _INT32.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            _text(member.member_id),
            _nullable(member.instance_id),
            _text(member.client_id),
            _text(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _blob(member.subscription),
            _blob(member.assignment),
        )
    return b"".join(parts)


def _flexible_value(group: KeptGroup, tags: Mapping[int, bytes]) -> bytes:
    """Encode a group in version 4, which has tagged fields. tags: their contents, by number."""
    parts = [
        _INT16.pack(FLEXIBLE),
        _compact(group.protocol_type.encode()),
        _INT32.pack(group.generation),
        _compact_text(group.protocol),
        _compact_text(group.leader),
        _INT64.pack(group.since_ms),
        uvarint(len(group.members) + 1),
    ]
    for member in group.members:
        parts += (
            _compact(member.member_id.encode()),
            _compact_text(member.instance_id),
            _compact(member.client_id.encode()),
            _compact(member.client_host.encode()),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _compact(member.subscription),
            _compact(member.assignment),
            b"\x00",  # no tags
        )
    parts.append(uvarint(len(tags)))
    for tag, content in sorted(tags.items()):
        parts += uvarint(tag), uvarint(len(content)), content
    return b"".join(parts)


def _compact(content: bytes) -> bytes:
    """Encode bytes with a compact length (a varint, one more than the length)."""
    return uvarint(len(content) + 1) + content


def _compact_text(text: str | None) -> bytes:
    """Encode a nullable text with a compact length."""
    return b"\x00" if text is None else _compact(text.encode())


def read_key(record_key: bytes) -> str:
    """Decode the key of a group's record. Returns the group's id. Raises UnreadableGroup."""
    try:
        reader = _Reader(record_key, flexible=False)
        if reader.int16() != GROUP_KEY:
            raise UnreadableGroup("the key is not a group's")
        return reader.text()
    except (error, IndexError, UnicodeDecodeError, MalformedFrame) as wrong:
        raise UnreadableGroup(f"the key of {len(record_key)} bytes cannot be decoded: {wrong}") from wrong


def read_value(record_value: bytes) -> KeptGroup:
    """Decode the value of a group's record, of any version. Raises UnreadableGroup."""
    try:
        version = _INT16.unpack_from(record_value)[0]
        if not 0 <= version <= FLEXIBLE:
            raise UnreadableGroup(f"the value has version {version}, 0 to {FLEXIBLE} are known")
        return _read_group(_Reader(record_value, flexible=version >= FLEXIBLE, position=2), version)
    except (error, IndexError, UnicodeDecodeError, MalformedFrame) as wrong:
        raise UnreadableGroup(f"the value of {len(record_value)} bytes cannot be decoded: {wrong}") from wrong


def _read_group(reader: "_Reader", version: int) -> KeptGroup:
    """Decode a group, in this version of its record."""
    protocol_type, generation = reader.text(), reader.int32()
    protocol, leader = reader.nullable(), reader.nullable()
    since_ms = reader.int64() if version >= 2 else -1
    members = tuple(_read_member(reader, version) for _ in range(reader.count()))
    tags = reader.tags()
    age, must_rebalance = tags.get(AGE_TAG), REBALANCE_TAG in tags
    since_age_ms = _INT64.unpack(age)[0] if age is not None else UNKNOWN_AGE
    return KeptGroup(protocol_type, generation, protocol, leader, members, since_ms, since_age_ms, must_rebalance)


def _read_member(reader: "_Reader", version: int) -> KeptMember:
    """Decode a member, in this version of the group's record."""
    member_id = reader.text()
    instance_id = reader.nullable() if version >= 3 else None
    client_id, client_host = reader.text(), reader.text()
    rebalance_ms = reader.int32() if version >= 1 else None
    session_ms = reader.int32()
    subscription, assignment = reader.blob(), reader.blob()
    reader.tags()
    rebalance_ms = session_ms if rebalance_ms is None else rebalance_ms
    return KeptMember(
        member_id, instance_id, client_id, client_host, rebalance_ms, session_ms, subscription, assignment
    )


def _text(text: str) -> bytes:
    """Encode a text with a length of 16 bits."""
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _nullable(text: str | None) -> bytes:
    """Encode a nullable text with a length of 16 bits, -1 for None."""
    return _INT16.pack(-1) if text is None else _text(text)


def _blob(content: bytes) -> bytes:
    """Encode bytes with a length of 32 bits."""
    return _INT32.pack(len(content)) + content


class _Reader:
    """Decodes a record field by field. flexible: whether lengths are compact (varints) and there are tagged fields."""

    def __init__(self, buffer: bytes, *, flexible: bool, position: int = 0) -> None:
        self._buffer = buffer
        self._flexible = flexible
        self._position = position

    def _read_fixed(self, kind: Struct) -> int:
        number: int = kind.unpack_from(self._buffer, self._position)[0]
        self._position += kind.size
        return number

    def int16(self) -> int:
        return self._read_fixed(_INT16)

    def int32(self) -> int:
        return self._read_fixed(_INT32)

    def int64(self) -> int:
        return self._read_fixed(_INT64)

    def _uvarint(self) -> int:
        number, self._position = read_uvarint(self._buffer, self._position)
        return number

    def count(self) -> int:
        """Read the number of items of an array; below 0 for null."""
        return self._uvarint() - 1 if self._flexible else self.int32()

    def nullable(self) -> str | None:
        """Read a text; None if it is null."""
        length = self._uvarint() - 1 if self._flexible else self.int16()
        return None if length < 0 else self._bytes(length).decode()

    def text(self) -> str:
        """Read a text. Raises UnreadableGroup if it is null."""
        text = self.nullable()
        if text is None:
            raise UnreadableGroup("a text that must not be null is null")
        return text

    def blob(self) -> bytes:
        """Read a length and that many bytes."""
        return self._bytes(self.count())

    def _bytes(self, length: int) -> bytes:
        """Read this number of bytes. Raises UnreadableGroup if the record is shorter."""
        end = self._position + length
        if length < 0 or end > len(self._buffer):
            raise UnreadableGroup(
                f"{length} bytes are announced at position {self._position}, and the record ends at {len(self._buffer)}"
            )
        found = self._buffer[self._position : end]
        self._position = end
        return found

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields. Returns their contents by number; empty if the version has no tagged fields."""
        found: dict[int, bytes] = {}
        for _ in range(self._uvarint() if self._flexible else 0):
            tag = self._uvarint()
            found[tag] = self._bytes(self._uvarint())
        return found

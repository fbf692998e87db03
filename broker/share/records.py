"""Encodes and decodes the records of share partitions in __share_group_state, byte for byte as Kafka does. Pure.

A key begins with an int16, the type of the record: 0 for a ShareSnapshot, 1 for a ShareUpdate, which contains the
changes since the last record of either type. The topic is not compacted, because the newest update is not the whole
state. A snapshot with a null value means that the share partition is deleted. Values have version 0. A tagged field
carries what Kafka has no field for: in an update of a transaction, the member that had a range.

Sources: Kafka's ShareSnapshotKey.json, ShareSnapshotValue.json, ShareUpdateValue.json; docs/formats.md.
"""

from base64 import urlsafe_b64encode
from collections.abc import Collection, Sequence
from enum import IntEnum
from operator import itemgetter, le, lt
from struct import Struct, calcsize, pack, unpack
from typing import NamedTuple

from ...protocol.primitives import MAX_TAGS, read_uvarint, uvarint
from ...protocol.record_fields import INT16, INT32, NOT_READABLE, Reader, UnreadableRecord
from .runs import Standing, StateColumns, count_records, is_final, standing_of
from .values import UNCHANGED, SharePartitionKey, Snapshot, State, StateBatch, Update

LEADER_EPOCH = 0  # it never changes, because there is only one broker
MEMBER_TAG = 10_000  # lower numbers are left to Kafka

_COMPLETE_TAG = 0
_COMPLETE_HEAD = b"\x01" + uvarint(_COMPLETE_TAG) + uvarint(4)
_UPDATE_HEAD = Struct(">hiiq")  # version, snapshot epoch, leader epoch, start offset
_SNAPSHOT_HEAD = Struct(">hiiiqqq")  # version, snapshot, state and leader epoch, start offset, two times
_BATCH = Struct(">qqbhB")  # first and last offset, state, deliveries, number of tags
_WHAT = Struct(">bhB")  # the last three fields of _BATCH
_NEVER_DELIVERED = 0  # these fields of available records that were never delivered, which need no run
_member_of = itemgetter(4)
STATES = {0: State.AVAILABLE, 2: State.ACKNOWLEDGED, 3: State.ARCHIVED, 4: State.ARCHIVED}  # 3: being archived


class Kind(IntEnum):
    """The type of a record: the number that its key begins with."""

    SNAPSHOT = 0
    UPDATE = 1


class EncodedStates(NamedTuple):
    """The encoded states of ranges of records. number: how many ranges. rows: their bytes."""

    number: int
    rows: bytes


def home_name(key: SharePartitionKey) -> str:
    """Return the text whose hash selects the share partition's partition of __share_group_state."""
    return f"{key.group}:{urlsafe_b64encode(key.topic_id).decode().rstrip('=')}:{key.partition}"


def record_key(kind: Kind, key: SharePartitionKey) -> bytes:
    """Return the key of a share partition's records of this kind."""
    group = key.group.encode()
    return pack(f">hh{len(group)}s16si", kind, len(group), group, key.topic_id, key.partition)


def read_key(key: bytes) -> tuple[Kind, SharePartitionKey]:
    """Decode a key that record_key() wrote. Raises UnreadableRecord."""
    try:
        reader = Reader(key, 0)
        kind = Kind(reader.number(INT16))
        group, topic_id = reader.short_text(), reader.bytes(16)
        return kind, SharePartitionKey(group, topic_id, reader.number(INT32))
    except NOT_READABLE as error:
        raise UnreadableRecord(f"the key of a share partition cannot be decoded: {error!r}") from error


def update_value(update: Update, snapshot_epoch: int) -> bytes:
    """Encode an update. snapshot_epoch: the epoch of the share partition's last snapshot."""
    states = EncodedStates(len(update.batches), encode_states(update.batches))
    return update_of(update.start, update.complete, states, snapshot_epoch)


def update_of(start: int, complete: int, states: EncodedStates, snapshot_epoch: int) -> bytes:
    """Encode an update whose states are encoded already."""
    head = _UPDATE_HEAD.pack(0, snapshot_epoch, LEADER_EPOCH, start)
    return b"".join((head, uvarint(states.number + 1), states.rows, _complete(complete)))


def snapshot_value(snapshot: Snapshot) -> bytes:
    """Encode a snapshot."""
    return snapshot_of(snapshot, EncodedStates(len(snapshot.batches), encode_states(snapshot.batches)))


def snapshot_of(snapshot: Snapshot, states: EncodedStates) -> bytes:
    """Encode a snapshot whose states are encoded already."""
    epoch, state_epoch, start, complete, _, created_ms, written_ms = snapshot
    head = _SNAPSHOT_HEAD.pack(0, epoch, state_epoch, LEADER_EPOCH, start, created_ms, written_ms)
    return b"".join((head, uvarint(states.number + 1), states.rows, _complete(complete)))


def _complete(complete: int) -> bytes:
    """Encode the number of records that are acknowledged or archived, as a tagged field. There is no field if the
    number is UNCHANGED.
    """
    return b"\x00" if complete == UNCHANGED else _COMPLETE_HEAD + INT32.pack(complete)


def encode_states(batches: Sequence[StateBatch]) -> bytes:
    """Encode the states of ranges, but not the number of ranges, which stands before them in a record."""
    row = _BATCH.pack
    if not any(map(_member_of, batches)):  # no range names a member: the usual case
        return b"".join([row(first, last, state, deliveries, 0) for first, last, state, deliveries, _ in batches])
    parts: list[bytes] = []
    for first, last, state, deliveries, member in batches:
        parts.append(row(first, last, state, deliveries, 1 if member else 0))
        if member:
            name = member.encode()
            parts += uvarint(MEMBER_TAG), uvarint(len(name)), name
    return b"".join(parts)


def read_update(value: bytes) -> Update:
    """Decode an update, as update_value() or Kafka wrote it. Raises UnreadableRecord."""
    try:
        _, _, _, start = _unpack_head(_UPDATE_HEAD, value)
        batches, position = _read_batches(value, _UPDATE_HEAD.size)
        return Update(start, _read_complete(value, position), batches)
    except (*NOT_READABLE, KeyError) as error:
        raise UnreadableRecord(f"an update of a share partition cannot be decoded: {error!r}") from error


def read_snapshot(value: bytes) -> Snapshot:
    """Decode a snapshot, as snapshot_value() or Kafka wrote it. Raises UnreadableRecord."""
    try:
        _, epoch, state_epoch, _, start, created_ms, written_ms = _unpack_head(_SNAPSHOT_HEAD, value)
        batches, position = _read_batches(value, _SNAPSHOT_HEAD.size)
        complete = _read_complete(value, position)
        return Snapshot(epoch, state_epoch, start, complete, batches, created_ms, written_ms)
    except (*NOT_READABLE, KeyError) as error:
        raise UnreadableRecord(f"a snapshot of a share partition cannot be decoded: {error!r}") from error


def _unpack_head(head: Struct, value: bytes) -> tuple[int, ...]:
    """Decode the fields at the beginning of a value. Raises UnreadableRecord for an unknown version."""
    found = head.unpack_from(value)
    if found[0] != 0:
        raise UnreadableRecord(f"the record has version {found[0]}, 0 is known")
    return found


def _read_complete(value: bytes, position: int) -> int:
    """Return how many records are acknowledged or archived; UNCHANGED if an older broker did not write the number."""
    tags = Reader(value, position).tags()
    return tags[_COMPLETE_TAG].number(INT32) if _COMPLETE_TAG in tags else UNCHANGED


def _read_batches(value: bytes, position: int) -> tuple[Sequence[StateBatch], int]:
    """Return the states of ranges at this position, and the position after them. Raises UnreadableRecord."""
    length, position = read_uvarint(value, position)
    count = length - 1
    end = position + count * _BATCH.size
    if not position <= end <= len(value):
        raise UnreadableRecord(f"{count} ranges in {len(value) - position} bytes")
    if not count:
        return [], position
    rows = value[position:end]
    whats = _column(rows, 16, "I")  # state, deliveries, number of tags
    distinct = set(whats)
    firsts: Sequence[int]
    lasts: Sequence[int]
    if any(what & 0xFF for what in distinct):  # some have tagged fields, so rows differ in length
        batches, end = _read_tagged(value, position, count)
        firsts, lasts = [batch.first for batch in batches], [batch.last for batch in batches]
    else:
        batches, firsts, lasts = [], _column(rows, 0, "q"), _column(rows, 8, "q")
    if firsts[0] < 0 or not (all(map(lt, lasts, firsts[1:])) and all(map(le, firsts, lasts))):
        raise UnreadableRecord("ranges that are out of order or overlap")
    return batches or _states(firsts, lasts, whats, distinct), end


def _column(rows: bytes, at: int, letter: str) -> tuple[int, ...]:
    """Decode one number of each row, from its bytes in all rows. at: the position of its first byte in a row. letter:
    its type, as in struct.

    It gathers the bytes of all rows and decodes them in one call, which is faster than row by row.
    """
    size = calcsize(f">{letter}")
    count = len(rows) // _BATCH.size
    column = bytearray(size * count)
    for byte in range(size):
        column[byte::size] = rows[at + byte :: _BATCH.size]
    return unpack(f">{count}{letter}", column)


def _states(
    firsts: Sequence[int], lasts: Sequence[int], whats: Sequence[int], distinct: Collection[int]
) -> Sequence[StateBatch]:
    """Return the states of ranges that have no tagged fields.

    whats: for each range the last four bytes of its row, as a number. distinct: each of these numbers once. The result
    is a plain list if a range is available and was never delivered, because such a range needs no run.
    """
    standings = {what: _standing(what) for what in distinct}
    found = list(map(standings.__getitem__, whats))
    if _NEVER_DELIVERED in standings:
        return [StateBatch(first, last, *one[:2]) for first, last, one in zip(firsts, lasts, found, strict=True)]
    final = {what: is_final(standing) for what, standing in standings.items()}
    return StateColumns(firsts, lasts, found, count_records(firsts, lasts, list(map(final.__getitem__, whats))))


def _standing(what: int) -> Standing:
    """Return the state and the deliveries in the last four bytes of a row. Raises UnreadableRecord, KeyError."""
    state, deliveries, _ = _WHAT.unpack(what.to_bytes(_WHAT.size))
    return standing_of(STATES[state], _checked(deliveries))


def _read_tagged(value: bytes, position: int, count: int) -> tuple[list[StateBatch], int]:
    """Decode states of ranges, some of which have tagged fields. Returns them, and the position after them."""
    batches: list[StateBatch] = []
    while len(batches) < count:
        first, last, state, deliveries, tags = _BATCH.unpack_from(value, position)
        member, position = _read_member(value, position + _BATCH.size, tags)
        batches.append(StateBatch(first, last, STATES[state], _checked(deliveries), member))
    return batches, position


def _checked(deliveries: int) -> int:
    """Return this number of deliveries. Raises UnreadableRecord if it is negative."""
    if deliveries < 0:
        raise UnreadableRecord(f"ranges that were delivered {deliveries} times")
    return deliveries


def _read_member(value: bytes, position: int, tags: int) -> tuple[str, int]:
    """Return the member in the tagged fields of a range ("" without), and the position after the fields. tags: their
    number. Raises UnreadableRecord.
    """
    member = ""
    if tags > MAX_TAGS:
        raise UnreadableRecord(f"{tags} tagged fields")
    for _ in range(tags):
        tag, position = read_uvarint(value, position)
        size, position = read_uvarint(value, position)
        if position + size > len(value):
            raise UnreadableRecord(f"tagged field {tag} is cut short")
        if tag == MEMBER_TAG:
            member = value[position : position + size].decode()
        position += size
    return member, position

"""Encodes and decodes records of __transaction_state, in Kafka's format: each has the state of one transactional id.
Pure.

The rule: key version 0 and value versions 0 and 1 are read, and version 1 is written. Version 2 is for a held
transaction: an older version of fencepost, which would let others abort it, then refuses to start. Fields that Kafka
does not have are tagged fields from 10000 on, which its tools skip; unknown tags are skipped here, too. Any other
unexpected content is refused with an error that names it, because a coordinator that guesses could give out an epoch
twice. Source: Kafka's TransactionLogKey and TransactionLogValue; KIP-915; our tags: docs/formats.md.
"""

import struct
from functools import lru_cache
from struct import Struct

from ...protocol.errors import MalformedFrame
from ...protocol.primitives import Buffer, read_uvarint, skip_tags, uvarint
from .states.transaction import (
    NO_EPOCH,
    NO_ID,
    NO_OFFSET,
    TWO_PHASE_TIMEOUT_MS,
    PartitionKey,
    Prepared,
    Status,
    Transaction,
)

KEY_VERSION = 0
VALUE_VERSION = 1
HELD_VERSION = 2  # of held transactions: who does not know them must not read one as Prepared

_TAG_LOG_IDS = 10000  # int64 for each partition, in the order in which they stand
_TAG_OURS = 10001  # last producer epoch, age at the start, age at the last update
_TAG_PREPARED = 10002  # number, timeout, age when it was prepared; then the key of the ledger, to the end
_TAG_2PC = 10003  # 1 if only a decision ends its transactions, else 0; only together with KIP-939's timeout
_TAG_OPENED_AT = 10004  # int64: Transaction.opened_at, where there is one
_TAG_HOLD = 10005  # empty, beside _TAG_PREPARED: the transaction is held

_HEAD = Struct(">hqhib")  # version, producer id, its epoch, timeout, status
_ENDS = Struct(">qq")  # last update, start
_OURS = Struct(">hqq")
_PREPARED = Struct(">qqq")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_STATUSES = {status.value: status for status in Status}

_NULL_PARTITIONS = b"\x00"
_PREVIOUS_ID = b"\x00\x08"  # tag, then size
_NEXT_ID = b"\x01\x08"
_CLIENT_VERSION = {version: b"\x02\x02" + _INT16.pack(version) for version in range(3)}
_NEXT_EPOCH = b"\x03\x02"
_OURS_HEAD = uvarint(_TAG_OURS) + uvarint(_OURS.size)
OPENED_AT_HEAD = uvarint(_TAG_OPENED_AT) + uvarint(_INT64.size)


class DamagedTransactionRecord(Exception):
    """Raised for bytes that are not a record of a transactional id."""


class NewerTransactionRecord(Exception):
    """Raised for a record written by a later version of Kafka or fencepost, which may mean something unknown."""


def key(transactional_id: str) -> bytes:
    """Encode the transactional id as the key of its records."""
    name = transactional_id.encode()
    return b"\x00\x00" + _INT16.pack(len(name)) + name


def value(txn: Transaction) -> bytes:
    """Encode a transaction's state as a record's value: in version 1, or in version 2 (fencepost's own) if the
    transaction is held.
    """
    version = VALUE_VERSION
    tags = []
    if txn.previous_producer_id != NO_ID:
        tags.append(_PREVIOUS_ID + _INT64.pack(txn.previous_producer_id))
    if txn.next_producer_id != NO_ID:
        tags.append(_NEXT_ID + _INT64.pack(txn.next_producer_id))
    if txn.client_version:
        tags.append(_CLIENT_VERSION[txn.client_version])
    if txn.next_producer_epoch != NO_EPOCH:
        tags.append(_NEXT_EPOCH + _INT16.pack(txn.next_producer_epoch))
    partitions = _NULL_PARTITIONS
    if txn.status != Status.EMPTY:
        written = _remembered if len(txn.partitions) <= REMEMBERED_PARTITIONS else encode_partitions
        partitions, log_ids = written(tuple(txn.partitions.items()))
        if log_ids:
            tags.append(log_ids)
    ours = _OURS.pack(txn.last_producer_epoch, txn.started_age_ms, txn.updated_age_ms)
    tags.append(_OURS_HEAD + ours)
    if txn.prepared is not None:
        key_of_ledger, number, timeout_ms, since_age_ms, hold = txn.prepared
        content = _PREPARED.pack(number, timeout_ms, since_age_ms) + key_of_ledger.encode()
        tags.append(_tag(_TAG_PREPARED, content))
        if hold:
            version = HELD_VERSION
            tags.append(_tag(_TAG_HOLD, b""))
    if txn.timeout_ms == TWO_PHASE_TIMEOUT_MS:
        tags.append(_tag(_TAG_2PC, b"\x01" if txn.enable_2pc else b"\x00"))
    if txn.opened_at != NO_OFFSET:
        tags.append(OPENED_AT_HEAD + _INT64.pack(txn.opened_at))
    head = _HEAD.pack(version, txn.producer_id, txn.producer_epoch, txn.timeout_ms, txn.status)
    ends = _ENDS.pack(txn.last_update_ms, txn.start_ms)
    return b"".join((head, partitions, ends, uvarint(len(tags)), *tags))


def _tag(number: int, content: bytes) -> bytes:
    """Encode a tagged field: number, length, content."""
    return uvarint(number) + uvarint(len(content)) + content


def encode_partitions(partitions: tuple[tuple[PartitionKey, int], ...]) -> tuple[bytes, bytes]:
    """Encode the partitions, grouped by topic. Returns the array, and the tagged field with their log ids in the same
    order (empty if there are none).
    """
    topics: dict[str, list[int]] = {}
    logs: dict[str, list[int]] = {}
    for (topic, index), log_id in partitions:
        topics.setdefault(topic, []).append(index)
        logs.setdefault(topic, []).append(log_id)
    written = [uvarint(len(topics) + 1)]
    for topic, indexes in topics.items():
        name = topic.encode()
        count = len(indexes)
        written += (uvarint(len(name) + 1), name, uvarint(count + 1), struct.pack(f">{count}ix", *indexes))
    log_ids = [log_id for topic in logs.values() for log_id in topic]
    tag = _tag(_TAG_LOG_IDS, struct.pack(f">{len(log_ids)}q", *log_ids)) if log_ids else b""
    return b"".join(written), tag


_remembered = lru_cache(maxsize=4096)(encode_partitions)  # a transaction is written three times, and the next is alike
REMEMBERED_PARTITIONS = 8


# Reading -------------------------------------------------------------------------------------------------------------


def read(key: Buffer, value: Buffer | None, age_ms: int = 0) -> tuple[str, Transaction | None]:
    """Decode a record into the transactional id and its state, None for a tombstone.

    age_ms: the store's age, used where a record written by Kafka has none; the partitions in such a record get log id
    -1. Raises DamagedTransactionRecord, NewerTransactionRecord.
    """
    try:
        transactional_id = _read_key(bytes(key))
        return transactional_id, None if value is None else _read_value(transactional_id, bytes(value), age_ms)
    except (struct.error, IndexError, MalformedFrame, ValueError) as error:
        raise DamagedTransactionRecord(f"{bytes(key)[:80]!r}: {error}") from error


def _read_key(data: bytes) -> str:
    """Return the transactional id in a record's key. Raises NewerTransactionRecord for an unknown version, ValueError
    for damage.
    """
    version, size = struct.unpack_from(">hh", data)
    if version != KEY_VERSION:
        raise NewerTransactionRecord(f"the key has version {version}, {KEY_VERSION} is known")
    if size < 0 or len(data) != 4 + size:
        raise ValueError(f"the length of the name is {size}, and the key has {len(data)} bytes")
    return data[4:].decode()


def _read_value(transactional_id: str, data: bytes, age_ms: int) -> Transaction:
    """Decode a record's value into the transaction's state. Raises NewerTransactionRecord; ValueError, struct.error or
    IndexError for malformed bytes.
    """
    (version,) = _INT16.unpack_from(data)
    if not 0 <= version <= HELD_VERSION:
        raise NewerTransactionRecord(f"{transactional_id!r}: the value has version {version}, {HELD_VERSION} is known")
    _, producer_id, producer_epoch, timeout_ms, number = _HEAD.unpack_from(data)
    status = _STATUSES.get(number)
    if status is None:
        raise ValueError(f"{number} is not a status of a transaction")
    partitions, position = (_partitions if version else _old_partitions)(data, _HEAD.size)
    last_update_ms, start_ms = _ENDS.unpack_from(data, position)
    position += _ENDS.size
    tags: dict[int, bytes] = {}
    if version:
        tags, position = _tags(data, position)
    if (version == HELD_VERSION) != (_TAG_HOLD in tags and _TAG_PREPARED in tags):
        raise NewerTransactionRecord(f"{transactional_id!r}: version {version} of the value is another one here")
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes follow the last field")
    last_epoch, started_age_ms, updated_age_ms = NO_EPOCH, -1 if start_ms < 0 else age_ms, age_ms
    if _TAG_OURS in tags:
        last_epoch, started_age_ms, updated_age_ms = _OURS.unpack(tags[_TAG_OURS])
    return Transaction(
        transactional_id,
        producer_id,
        producer_epoch,
        timeout_ms,
        status,
        _with_logs(partitions, tags.get(_TAG_LOG_IDS)),
        start_ms,
        last_update_ms,
        started_age_ms,
        updated_age_ms,
        last_epoch,
        _int64(tags, 0),
        _int64(tags, 1),
        _int16(tags, 3, NO_EPOCH),
        _client_version(transactional_id, tags),
        timeout_ms == TWO_PHASE_TIMEOUT_MS and tags.get(_TAG_2PC, b"\x01") != b"\x00",  # without a tag: by the timeout
        _read_prepared(tags[_TAG_PREPARED], _TAG_HOLD in tags) if _TAG_PREPARED in tags else None,
        _int64(tags, _TAG_OPENED_AT, NO_OFFSET),
    )


def _tags(data: bytes, position: int) -> tuple[dict[int, bytes], int]:
    """Decode tagged fields. Returns them by number, and the position after them. Raises ValueError."""
    count, position = read_uvarint(data, position)
    tags = {}
    for _ in range(count):
        number, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        tags[number] = data[position : position + size]
        position += size
        if position > len(data):
            raise ValueError(f"a tagged field of {size} bytes runs past the end of the value")
    return tags, position


def _int64(tags: dict[int, bytes], tag: int, default: int = NO_ID) -> int:
    """Return the int64 in a tagged field, or `default` if the field is absent."""
    return int(_INT64.unpack(tags[tag])[0]) if tag in tags else default


def _int16(tags: dict[int, bytes], tag: int, default: int) -> int:
    """Return the int16 in a tagged field, or `default` if the field is absent."""
    return int(_INT16.unpack(tags[tag])[0]) if tag in tags else default


def _client_version(transactional_id: str, tags: dict[int, bytes]) -> int:
    """Return the transaction version (0, 1 or 2) in the tagged fields; 0 if there is none. Raises
    NewerTransactionRecord, ValueError.
    """
    version = _int16(tags, 2, 0)
    if version > max(_CLIENT_VERSION):
        raise NewerTransactionRecord(
            f"{transactional_id!r}: its transaction version is {version}, {max(_CLIENT_VERSION)} is known"
        )
    if version < 0:
        raise ValueError(f"its transaction version is {version}")
    return version


def _read_prepared(content: bytes, hold: bool) -> Prepared:
    """Decode the tagged field of a prepared transaction: which decision it waits for, and with what timeout. hold:
    whether the record is of a held transaction.
    """
    number, timeout_ms, since_age_ms = _PREPARED.unpack_from(content)
    return Prepared(content[_PREPARED.size :].decode(), number, timeout_ms, since_age_ms, hold)


def _with_logs(partitions: list[tuple[str, int]], log_ids: bytes | None) -> dict[tuple[str, int], int]:
    """Return the log id of each partition; -1 for all if there is no tagged field with them (log_ids None)."""
    if log_ids is None:
        return dict.fromkeys(partitions, -1)
    return dict(zip(partitions, struct.unpack(f">{len(partitions)}q", log_ids), strict=True))


def _partitions(data: bytes, position: int) -> tuple[list[tuple[str, int]], int]:
    """Decode the partitions of value version 1 or 2. Returns them and the position after them.

    Lengths are unsigned varints, one more than the count; 0 is null. Tagged fields follow each topic and are skipped.
    """
    found: list[tuple[str, int]] = []
    topics, position = read_uvarint(data, position)
    for _ in range(topics - 1):
        size, position = read_uvarint(data, position)
        topic = _name(data, position, size - 1)
        count, position = read_uvarint(data, position + size - 1)
        found += [(topic, index) for index in _indexes(data, position, count - 1)]
        position += 4 * (count - 1)
        tags, position = read_uvarint(data, position)
        position = skip_tags(data, position, tags)
    return found, position


def _old_partitions(data: bytes, position: int) -> tuple[list[tuple[str, int]], int]:
    """Decode the partitions of value version 0. Returns them and the position after them.

    An int32 stands before arrays (-1 is null), an int16 before the name.
    """
    found: list[tuple[str, int]] = []
    (topics,) = _INT32.unpack_from(data, position)
    position += 4
    for _ in range(topics):
        (size,) = _INT16.unpack_from(data, position)
        topic = _name(data, position + 2, size)
        (count,) = _INT32.unpack_from(data, position + 2 + size)
        position += 6 + size
        found += [(topic, index) for index in _indexes(data, position, count)]
        position += 4 * count
    return found, position


def _name(data: bytes, position: int, size: int) -> str:
    """Decode a name of `size` bytes at this position. Raises ValueError if it runs past the end."""
    if not 0 <= size <= len(data) - position:
        raise ValueError(f"the length of a name is {size}, and it runs past the end or is empty")
    return data[position : position + size].decode()


def _indexes(data: bytes, position: int, count: int) -> tuple[int, ...]:
    """Decode `count` partition indexes (int32) at this position. Raises ValueError if they run past the end."""
    if not 0 <= count <= (len(data) - position) // 4:
        raise ValueError(f"the count of partitions is {count}, and {len(data) - position} bytes follow")
    return struct.unpack_from(f">{count}i", data, position)

"""The records of a batch, without decoding their contents: to move records, or to find a time.

Of each record its length, deltas and, where asked for, its key are read. What is in its value and headers is not, so it
costs the same whatever it holds: a compressed batch of 1.5 KB may have one with eight million headers. What is kept is
copied unchanged. The rule of records.py holds for all that is read: the outcome is records or a KafkaError. Source:
Kafka's MemoryRecords.filterTo; layout: KIP-98.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .batches import (
    CODEC_BITS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_ENDS_AT,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    Batch,
)
from .compression import Bytes, compress
from .records import HIGHEST, LOWEST, raise_invalid, varint, with_crc, zigzag

_KNOWN_BITS = CODEC_BITS | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT


class RawRecord(NamedTuple):
    """A record's place in its payload: begin, end (exclusive), and key_at, where the length of its key is.

    timestamp: by the record's own delta, even if the batch has log append time.
    """

    offset: int
    timestamp: int
    key: bytes | None
    is_tombstone: bool
    begin: int
    key_at: int
    end: int


def times(batch: Batch, payload: bytes) -> Iterator[tuple[int, int]]:
    """Yield (offset, timestamp) of each record. payload: of the batch, decompressed. Raises KafkaError
    INVALID_RECORD.
    """
    appended_at = batch.max_timestamp if batch.is_log_append_time else None
    for offset, timestamp, _, _, _ in _walk(batch, payload):
        yield offset, timestamp if appended_at is None else appended_at


def raw_records(batch: Batch, payload: bytes) -> Iterator[RawRecord]:
    """Yield the records, in order. payload: of the batch, decompressed. Raises KafkaError INVALID_RECORD."""
    for offset, timestamp, begin, key_at, end in _walk(batch, payload):
        try:
            length, at = varint(payload, key_at)
            key = None if length == -1 else payload[at : at + length]
            value_length, value_at = varint(payload, at + max(length, 0))
            headers, at = varint(payload, value_at + max(value_length, 0))
        except IndexError:
            raise_invalid("a record is cut short")
        if length < -1 or value_length < -1 or at > end:
            raise_invalid(f"the key or value of the record at offset {offset} ends beyond it")
        if headers < 0 or (2 * headers > end - at if headers else at != end):  # each takes two bytes at least
            raise_invalid(f"{headers} headers announced in the {end - at} bytes left of the record at offset {offset}")
        yield RawRecord(offset, timestamp, key, value_length == -1, begin, key_at, end)


def _walk(batch: Batch, payload: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (offset, timestamp, begin, position of the key's length, end) of each record. Raises INVALID_RECORD."""
    base_offset, last_offset, base_timestamp = batch.base_offset, batch.last_offset, batch.base_timestamp
    size, end, previous = len(payload), 0, base_offset - 1
    checks_times = not batch.is_log_append_time
    if last_offset > HIGHEST:
        raise_invalid(f"offset {last_offset} is out of range")
    for _ in range(batch.record_count):
        begin = end
        try:
            length, at = varint(payload, begin)
            end = at + length
            delta, at = varint(payload, at + 1, 64)  # one byte of attributes, unused
            offset_delta = payload[at]
            if offset_delta & 0x81:  # of most records it takes one byte, and is not negative
                offset_delta, at = varint(payload, at)
            else:
                offset_delta, at = offset_delta >> 1, at + 1
        except IndexError:
            raise_invalid("a record is cut short")
        if length < 0 or end > size or at >= end:
            raise_invalid(f"a record announces {length} bytes")
        offset = base_offset + offset_delta
        if not previous < offset <= last_offset:
            raise_invalid(f"offset delta {offset_delta} is out of place")
        previous = offset
        timestamp = base_timestamp + delta
        if checks_times and not LOWEST <= timestamp <= HIGHEST:
            raise_invalid(f"timestamp {timestamp} is out of range")
        yield offset, timestamp, begin, at, end
    if end != size:
        raise_invalid(f"{size - end} bytes follow the last record")


def rewrite(batch: Batch, payload: bytes, kept: Sequence[int], *, delete_horizon_ms: int | None = None) -> bytes:
    """Return the batch with only the kept records, as compaction leaves it: same header, offsets and sequences.

    kept: for each record whether it stays; at least one must. delete_horizon_ms: set in the header, if that has none
    yet. Raises KafkaError INVALID_RECORD if a timestamp differs from delete_horizon_ms by more than a delta
    can encode.
    """
    moves_by = 0
    if delete_horizon_ms is not None and batch.delete_horizon_ms is None:
        moves_by = batch.base_timestamp - delete_horizon_ms
    found = bytearray()
    view = memoryview(payload)
    count, latest = 0, LOWEST
    for number, (offset, timestamp, begin, key_at, end) in enumerate(_walk(batch, payload)):
        if not kept[number]:
            continue
        count += 1
        latest = max(latest, timestamp)
        if not moves_by:
            found += view[begin:end]
            continue
        delta = timestamp - batch.base_timestamp + moves_by
        if not LOWEST <= delta <= HIGHEST:
            raise_invalid(f"timestamp {timestamp} is too far from {delete_horizon_ms}")
        head = b"\x00" + zigzag(delta) + zigzag(offset - batch.base_offset)
        found += zigzag(len(head) + end - key_at) + head
        found += view[key_at:end]
    return _frame(
        batch,
        found,
        count,
        base_timestamp=batch.base_timestamp - moves_by,
        max_timestamp=batch.max_timestamp if batch.is_log_append_time else latest,
        dated=delete_horizon_ms is not None,
    )


def drop_records(batch: Batch) -> bytes:
    """Return the batch's header without records, which keeps the producer's last sequence and the last offset."""
    return _frame(batch, b"", 0, base_timestamp=-1, max_timestamp=batch.max_timestamp, dated=False)


def _frame(batch: Batch, payload: Bytes, count: int, *, base_timestamp: int, max_timestamp: int, dated: bool) -> bytes:
    """Return a batch with this payload of `count` records, compressed as before, and a header like the batch's.

    dated: base_timestamp is the delete horizon.
    """
    attributes = batch.attributes & _KNOWN_BITS & ~(DELETE_HORIZON_BIT if not dated else 0)
    if not count:
        attributes &= ~CODEC_BITS
    elif attributes & CODEC_BITS:
        payload = compress(attributes & CODEC_BITS, payload)
    header = HEADER.pack(
        batch.base_offset,
        HEADER_BYTES - LENGTH_ENDS_AT + len(payload),
        batch.leader_epoch,
        MAGIC,
        0,
        attributes | (DELETE_HORIZON_BIT if dated else 0),
        batch.last_offset_delta,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        count,
    )
    return with_crc(header, payload)

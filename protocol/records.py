"""The records of a batch: decoded, encoded, checked.

Needed only where a batch is not opaque: compacted topics, look-ups by timestamp, recompression, tools and the client.
The rule: whatever the bytes, the outcome is records or a KafkaError: CORRUPT_MESSAGE where they do not decompress,
MESSAGE_TOO_LARGE above the bound, INVALID_RECORD where a count, a length, an offset delta or a timestamp lies. Layout:
KIP-98, Kafka's DefaultRecord. Lengths and deltas are zigzag varints, unlike those of the protocol around it.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from .batches import (
    CODEC_BITS,
    CONTROL_BIT,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_BYTES,
    LENGTH_ENDS_AT,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    SMALLEST_RECORD_BYTES,
    TRANSACTIONAL_BIT,
    Batch,
    batch_of,
)
from .compression import Bytes, compress, decompress
from .errors import ErrorCode, KafkaError

DECOMPRESSED_LIMIT_BYTES = 16 * 1_048_588  # 16 times message.max.bytes

Header = tuple[str, bytes | None]

LOWEST, HIGHEST = -(2**63), 2**63 - 1  # of timestamps, their deltas, and offsets

_CRC = Struct(">I")
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
MARKER_BYTES = 78
_MARKER_BEGINS = b"\x20\x00\x00\x00\x08"  # a record of 16 bytes, deltas 0, a key of 4
_MARKER_HEAD = Struct(">qiibI")
_CHECKED_HEAD = Struct(">hiqqqhii")  # the rest of a header, which the CRC covers
_MARKER_CHECKED = Struct(">hiqqqhii5shhbhix")  # from the attributes on: rest of the header, the one record
_MARKER_TAIL = Struct(">hb2xi")  # kind, zigzag length of the value, past the value's version: coordinator epoch


class Record(NamedTuple):
    """One record. A value of None is a tombstone. Bytes of a header key that are no UTF-8 become lone surrogates."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class Marker(IntEnum):
    """The kinds of control record that end a transaction."""

    ABORT = 0
    COMMIT = 1


class RecordsRefused(KafkaError):
    """Raised for a batch of which some records are refused. record_errors: their (index in the batch, reason).

    refused: how many there are, if not all are listed.
    """

    def __init__(self, record_errors: list[tuple[int, str]], refused: int) -> None:
        listed = len(record_errors)
        how_many = f"{refused} records" if refused == listed else f"{refused} records, of which {listed} are listed,"
        super().__init__(ErrorCode.INVALID_RECORD, f"{how_many} are refused: {record_errors[0][1]}")
        self.record_errors = record_errors


# Reading


def records(batch: Batch, *, limit: int = DECOMPRESSED_LIMIT_BYTES) -> Iterator[Record]:
    """Yield the records of the batch, in order. limit: the most bytes that they may have, decompressed.

    Raises KafkaError at the first invalid record.
    """
    payload = payload_of(batch, limit)
    appended_at = batch.max_timestamp if batch.is_log_append_time else None
    base_timestamp, base_offset, last_offset = batch.base_timestamp, batch.base_offset, batch.last_offset
    position, previous = 0, base_offset - 1
    if last_offset > HIGHEST:
        raise_invalid(f"offset {last_offset} is out of range")
    for _ in range(batch.record_count):
        try:
            delta, offset_delta, key, value, headers, position = read_record(payload, position)
        except IndexError:
            raise_invalid("a record is cut short")
        offset = base_offset + offset_delta
        if not previous < offset <= last_offset:
            raise_invalid(f"offset delta {offset_delta} is out of place")
        previous = offset
        timestamp = base_timestamp + delta if appended_at is None else appended_at
        if not LOWEST <= timestamp <= HIGHEST:
            raise_invalid(f"timestamp {timestamp} is out of range")
        yield Record(offset, timestamp, key, value, headers)
    if position != len(payload):
        raise_invalid(f"{len(payload) - position} bytes follow the last record")


def payload_of(batch: Batch, limit: int) -> bytes:
    """Return the bytes of the batch's records, decompressed. Raises KafkaError.

    limit: for compressed batches, since they may become much larger. Others are in memory already, so none is refused
    for its size: the broker's own logs are not compressed, and whatever was written to them can be read.
    """
    if batch.record_count == 0 and batch.size == HEADER_BYTES:  # emptied by compaction
        return b""
    limit = limit if batch.codec else batch.size
    payload = decompress(batch.codec, batch.buffer[HEADER_BYTES:], limit=limit)
    if batch.record_count * SMALLEST_RECORD_BYTES > len(payload):
        raise_invalid(f"{batch.record_count} records cannot fit into {len(payload)} bytes")
    return payload


def raise_invalid(detail: str) -> NoReturn:
    """Raise KafkaError INVALID_RECORD with this detail, because the bytes contradict each other."""
    raise KafkaError(ErrorCode.INVALID_RECORD, detail)


_RecordParts = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...], int]


def read_record(payload: bytes, position: int) -> _RecordParts:
    """Decode the record at `position`: return (timestamp delta, offset delta, key, value, headers, end position).

    Raises IndexError if it is cut short, KafkaError INVALID_RECORD if it is invalid.
    """
    length, position = varint(payload, position)
    end = position + length
    if length < 0 or end > len(payload):
        raise_invalid(f"a record announces {length} bytes")
    timestamp_delta, position = varint(payload, position + 1, 64)  # one byte of attributes, unused
    offset_delta, position = varint(payload, position)
    key, position = _nullable(payload, position, end)
    value, position = _nullable(payload, position, end)
    header_count, position = varint(payload, position)
    headers: tuple[Header, ...] = ()
    if header_count:
        headers, position = read_headers(payload, position, end, header_count)
    if position != end:
        raise_invalid(f"a record of {length} bytes ends {position - end:+} bytes from where it says")
    return timestamp_delta, offset_delta, key, value, headers, position


def varint(payload: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """Read the zigzag varint at `position`. Returns it and the position after it. Raises INVALID_RECORD above `bits`
    bits.
    """
    byte = payload[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = payload[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise_invalid(f"a varint is longer than {bits} bits")
    if value >> bits:
        raise_invalid(f"a varint is longer than {bits} bits")
    return (value >> 1) ^ -(value & 1), position + 1


def _nullable(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Read a length and that many bytes. Returns the bytes (None for length -1) and the position after them."""
    length, position = varint(payload, position)
    if length < 0:
        if length != -1:
            raise_invalid(f"a length of {length} bytes")
        return None, position
    after = position + length
    if after > end:
        raise_invalid(f"{length} bytes announced, {end - position} left in the record")
    return payload[position:after], after


def read_headers(payload: bytes, position: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    """Decode `count` headers. end: of the record. Returns them and the position after them. Raises INVALID_RECORD."""
    if not 0 <= count <= (end - position) // 2:  # a header takes two bytes at least
        raise_invalid(f"{count} headers announced")
    headers = []
    for _ in range(count):
        name, position = _nullable(payload, position, end)
        if name is None:
            raise_invalid("the key of a header is null")
        value, position = _nullable(payload, position, end)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


# Writing


def build(
    contents: Sequence[Record],
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    codec: int = 0,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    leader_epoch: int = -1,
) -> bytes:
    """Encode a whole batch. Offsets of records are absolute: the first is base_offset or, after compaction, above it.

    last_offset_delta: if compaction has removed the last records; by default that of the last record. log_append_time:
    sets the bit for it, and the timestamp in the header. Raises KafkaError INVALID_RECORD if timestamps differ by more
    than a delta can encode.
    """
    base_timestamp = contents[0].timestamp if contents else -1
    max_timestamp = max((record.timestamp for record in contents), default=-1)
    attributes = codec & CODEC_BITS if contents else 0
    attributes |= TRANSACTIONAL_BIT * transactional | CONTROL_BIT * control
    attributes |= LOG_APPEND_TIME_BIT * (log_append_time is not None)
    if last_offset_delta is None:
        last_offset_delta = contents[-1].offset - base_offset if contents else -1
    payload = b"".join([_encode_record(record, base_offset, base_timestamp) for record in contents])
    if codec and contents:
        payload = compress(codec, payload, level)
    header = HEADER.pack(
        base_offset,
        HEADER_BYTES - LENGTH_ENDS_AT + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp if log_append_time is None else log_append_time,
        producer_id,
        producer_epoch,
        base_sequence,
        len(contents),
    )
    return with_crc(header, payload)


def keyed_batch(
    contents: Sequence[tuple[bytes, bytes | None]],
    timestamp: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> Batch:
    """Encode a batch of (key, value) records with one timestamp, without headers, codec or sequences: for
    coordinators.

    The same bytes as build() returns, in a third of the time; several of them are made for every transaction.
    """
    payload = b"".join([keyed_record(number, key, value) for number, (key, value) in enumerate(contents)])
    return batch_of_payload(
        payload,
        len(contents),
        timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
    )


def keyed_record(number: int, key: bytes, value: bytes | None) -> bytes:
    """Encode the record with this index in a batch, with the batch's timestamp and without headers."""
    if value is None:
        body = b"".join((b"\x00\x00", zigzag(number), zigzag(len(key)), key, b"\x01\x00"))
    else:
        size = zigzag(len(value))
        body = b"".join((b"\x00\x00", zigzag(number), zigzag(len(key)), key, size, value, b"\x00"))
    return zigzag(len(body)) + body


def batch_of_payload(
    payload: bytes,
    count: int,
    timestamp: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> Batch:
    """Encode a batch of `count` records with one timestamp. payload: the records, each encoded by keyed_record(), one
    after another.
    """
    checked = _CHECKED_HEAD.pack(
        TRANSACTIONAL_BIT * transactional,
        count - 1,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        -1,
        count,
    )
    crc = crc32c(payload, crc32c(checked))
    size_bytes = HEADER_BYTES - LENGTH_ENDS_AT + len(payload)
    return batch_of(memoryview(_MARKER_HEAD.pack(0, size_bytes, -1, MAGIC, crc) + checked + payload))


def with_crc(header: bytes, payload: Bytes) -> bytes:
    """Return header and payload, joined, with the right CRC in the header."""
    crc = crc32c(payload, crc32c(header[CRC_COVERS_FROM:]))
    return b"".join((header[: CRC_COVERS_FROM - 4], _CRC.pack(crc), header[CRC_COVERS_FROM:], payload))


def recompress(batch: Batch, payload: bytes, codec: int, level: int | None = None) -> bytes:
    """Return the same batch with another codec: for topics whose `compression.type` is not `producer`.

    payload: its records, decompressed.
    """
    payload = compress(codec, payload, level)
    header = HEADER.pack(
        batch.base_offset,
        HEADER_BYTES - LENGTH_ENDS_AT + len(payload),
        batch.leader_epoch,
        MAGIC,
        0,
        batch.attributes & ~CODEC_BITS | codec,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )
    return with_crc(header, payload)


def _encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """Encode one record. Raises INVALID_RECORD if its timestamp is too far from base_timestamp."""
    timestamp_delta = record.timestamp - base_timestamp
    if not LOWEST <= timestamp_delta <= HIGHEST:
        raise_invalid(f"timestamp {record.timestamp} is too far from {base_timestamp}")
    pieces = [
        b"\x00",  # attributes, unused
        zigzag(timestamp_delta),
        zigzag(record.offset - base_offset),
        *_with_length(record.key),
        *_with_length(record.value),
        zigzag(len(record.headers)),
    ]
    for name, value in record.headers:
        pieces += (*_with_length(name.encode("utf-8", "surrogateescape")), *_with_length(value))
    body = b"".join(pieces)
    return zigzag(len(body)) + body


def _with_length(value: bytes | None) -> tuple[bytes, bytes]:
    """Return the encoded length of a key or value, and its bytes; length -1 for None."""
    return (b"\x01", b"") if value is None else (zigzag(len(value)), value)


_SHORT = [bytes((unsigned,)) for unsigned in range(0x80)]
_SHORT += [bytes((unsigned & 0x7F | 0x80, unsigned >> 7)) for unsigned in range(0x80, 0x1000)]


def zigzag(number: int) -> bytes:
    """Encode the number as a signed varint (zigzag)."""
    unsigned = number << 1 if number >= 0 else ~(number << 1)
    if unsigned < 0x1000:
        return _SHORT[unsigned]
    encoded = bytearray()
    while unsigned >= 0x80:
        encoded.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    encoded.append(unsigned)
    return bytes(encoded)


# Control batches


def control_marker(
    kind: Marker, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp: int
) -> bytes:
    """Encode the batch of 78 bytes that ends a transaction in one partition. Its offset is set when it is appended."""
    checked = _MARKER_CHECKED.pack(
        TRANSACTIONAL_BIT | CONTROL_BIT,
        0,  # last offset delta
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        -1,  # no sequence
        1,
        _MARKER_BEGINS,
        0,
        kind,
        12,  # zigzag length of the value
        0,
        coordinator_epoch,
    )
    return _MARKER_HEAD.pack(0, MARKER_BYTES - LENGTH_ENDS_AT, -1, MAGIC, crc32c(checked)) + checked


_MARKERS = {int(marker): marker for marker in Marker}


def read_marker(batch: Batch) -> tuple[Marker, int] | None:
    """Return (kind, coordinator epoch) of a control batch; None if it is no marker, or compaction has emptied it.

    The usual form of a marker is read in place, any other by records(). Raises KafkaError INVALID_RECORD.
    """
    buffer = batch.buffer
    is_usual = batch.size == MARKER_BYTES and batch.record_count == 1 and not batch.attributes & CODEC_BITS
    if is_usual and buffer[HEADER_BYTES : HEADER_BYTES + 5] == _MARKER_BEGINS and not buffer[-1]:
        kind, value_length, coordinator_epoch = _MARKER_TAIL.unpack_from(buffer, HEADER_BYTES + 7)
        marker = _MARKERS.get(kind)
        if marker is not None and value_length == 12:
            return marker, coordinator_epoch
    return _read_any_marker(batch)


def _read_any_marker(batch: Batch) -> tuple[Marker, int] | None:
    """Return (kind, coordinator epoch) of a control batch in any form; None as read_marker(). Raises INVALID_RECORD."""
    record = next(records(batch), None)
    if record is None:
        return None
    key, value = record.key or b"", record.value or b""
    if len(key) < _MARKER_KEY.size:
        raise_invalid("the key of a control record is too short")
    _, kind = _MARKER_KEY.unpack_from(key)
    if kind not in (Marker.ABORT, Marker.COMMIT):
        return None
    if len(value) < _MARKER_VALUE.size:
        raise_invalid("the value of a transaction marker is too short")
    return Marker(kind), _MARKER_VALUE.unpack_from(value)[1]

"""Record batches built field by field, so that any field may be wrong. Nothing here uses the code under test."""

import struct

from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
NOW_MS = 1_790_000_000_000


def varint(number: int) -> bytes:
    unsigned = (number << 1 ^ number >> 63) & (1 << 64) - 1
    encoded = bytearray()
    while unsigned > 0x7F:
        encoded.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    encoded.append(unsigned)
    return bytes(encoded)


def sized(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def record(
    offset_delta=0, timestamp_delta=0, key=b"k", value=b"v", headers=(), *, attributes=0, length=None, lies_by=0
) -> bytes:
    body = bytes([attributes]) + varint(timestamp_delta) + varint(offset_delta) + sized(key) + sized(value)
    body += varint(len(headers)) + b"".join(sized(name) + sized(content) for name, content in headers)
    return varint(len(body) + lies_by if length is None else length) + body


def batch(
    payload: bytes | None = None,
    *,
    records=1,
    count=None,
    last_offset_delta=None,
    base_offset=0,
    magic=2,
    attributes=0,
    base_timestamp=NOW_MS,
    max_timestamp=NOW_MS,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    crc=None,
    length=None,
    leader_epoch=-1,
) -> bytes:
    """Return a batch of `records` small records, or of `payload`. Fields that are not given have correct values."""
    payload = b"".join(record(index) for index in range(records)) if payload is None else payload
    built = bytearray(
        HEADER.pack(
            base_offset,
            49 + len(payload) if length is None else length,
            leader_epoch,
            magic,
            0,
            attributes,
            records - 1 if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            records if count is None else count,
        )
        + payload
    )
    struct.pack_into(">I", built, 17, crc32c(bytes(built[21:])) if crc is None else crc)
    return bytes(built)

"""Record batches built from words, valid or damaged on purpose; and the batches and records in what a broker sent.

Written without the broker's own batch code, so that both cannot be wrong in the same way. Layout: record batch v2,
KIP-98; `legacy=` builds a message of magic 0 or 1.
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import cramjam
from crc32c import crc32c

from .notation import BadNotation, Pair, Token, Value

HEADER = struct.Struct(">qiibIhiqqqhii")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4, "snappy-raw": 2, "lz4-linked": 3}
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd", "codec-5", "codec-6", "codec-7")
FLAGS = {"log-append-time": 0x08, "txn": 0x10, "control": 0x20, "delete-horizon": 0x40, "unknown-bit": 0x80}
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
LZ4_HEADER = bytes.fromhex("04224d18604082")  # independent blocks of at most 64 KB, and the checksum of that


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass
class Words:
    """The words that describe one batch. to_number: converts a word, which may be a `$name` or a time."""

    flags: set[str]
    values: dict[str, Value]
    to_number: Callable[[str], int]

    @staticmethod
    def of(tokens: list[Token], to_number: Callable[[str], int]) -> Words:
        words = Words(set(), {}, to_number)
        for token in tokens:
            if isinstance(token, Pair):
                words.values[token.name] = token.value
            else:
                words.flags.add(token)
        unknown = (words.flags - FLAGS.keys() - {"null", "empty"}) | (words.values.keys() - KNOWN - SPOILT)
        if unknown:
            raise BadNotation(f"a batch knows no {sorted(unknown)}")
        return words

    def number(self, name: str, default: int) -> int:
        value = self.values.get(name)
        return default if value is None else self.to_number(str(value))

    def numbers(self, name: str, default: str, count: int) -> list[int]:
        value = self.values.get(name, default)
        return [self.to_number(str(each)) for each in (value if isinstance(value, list) else [value] * count)]

    def texts(self, name: str, defaults: list[str | None]) -> list[bytes | None]:
        if name + "s" in self.values:
            given = self.values[name + "s"]
            assert isinstance(given, list)
            texts: list[Value] = given
        else:
            texts = [self.values[name]] * len(defaults) if name in self.values else list(defaults)
        return [None if text is None else str(text).encode() for text in texts]


KNOWN = frozenset(
    ("records", "key", "keys", "value", "values", "size", "headers", "ts", "pid", "epoch", "seq", "codec")
)
SPOILT = frozenset(("magic", "crc", "count", "last-delta", "length", "base-offset", "leader-epoch", "deltas", "trim"))
SPOILT |= frozenset(("codec", "pad", "payload", "legacy", "max-ts", "base-ts", "attributes"))


def build(words: Words) -> bytes | None:
    """Return the bytes of the batch that the words describe; None for the word `null`."""
    if "null" in words.flags:
        return None
    if "empty" in words.flags:
        return b""
    if "legacy" in words.values:
        batch = _legacy(words.number("legacy", 1), words)
    else:
        batch = _batch(words)
    batch = batch[: len(batch) - words.number("trim", 0)]
    return batch + bytes.fromhex(str(words.values.get("pad", "")))


def _records(words: Words) -> list[Record]:
    count = words.number("records", max((len(v) for v in words.values.values() if isinstance(v, list)), default=1))
    keys = words.texts("key", [None] * count)
    values = words.texts("value", [f"v{n}" for n in range(count)])
    if "size" in words.values:
        values = [random.Random(n).randbytes(words.number("size", 0)) for n in range(count)]
    deltas = words.numbers("deltas", "0", count) if "deltas" in words.values else list(range(count))
    headers = words.values.get("headers") or {}
    assert isinstance(headers, dict)
    pairs = tuple((name, None if value is None else str(value).encode()) for name, value in headers.items())
    times = words.numbers("ts", "now", count)
    return [Record(*fields, pairs) for fields in zip(deltas, times, keys, values, strict=True)]


def _batch(words: Words) -> bytes:
    records = _records(words)
    base = words.number("base-ts", records[0].timestamp if records else 0)
    name = str(words.values.get("codec", "none"))
    codec = CODECS[name] if name in CODECS else int(name)
    body = b"".join(_record(record, base) for record in records)
    body = _compressed(name, body) if "payload" not in words.values else bytes.fromhex(str(words.values["payload"]))
    attributes = codec | sum(FLAGS[flag] for flag in words.flags)
    rest = struct.pack(
        ">hiqqqhii",
        words.number("attributes", attributes),
        words.number("last-delta", len(records) - 1),
        base,
        words.number("max-ts", max((record.timestamp for record in records), default=-1)),
        words.number("pid", -1),
        words.number("epoch", -1),
        words.number("seq", -1),
        words.number("count", len(records)),
    )
    crc = crc32c(rest + body) ^ (1 if words.values.get("crc") == "bad" else 0)
    length = words.number("length", 9 + len(rest) + len(body))
    head = struct.pack(">qiibI", words.number("base-offset", 0), length, words.number("leader-epoch", -1), 2, crc)
    head = head[:16] + struct.pack(">b", words.number("magic", 2)) + head[17:]
    return head + rest + body


def _record(record: Record, base_timestamp: int) -> bytes:
    body = b"\x00" + _varint(record.timestamp - base_timestamp) + _varint(record.offset)
    body += _sized(record.key) + _sized(record.value) + _varint(len(record.headers))
    for name, value in record.headers:
        body += _sized(name.encode()) + _sized(value)
    return _varint(len(body)) + body


def _legacy(magic: int, words: Words) -> bytes:
    """Return one message in the format that clients wrote before KIP-98."""
    record = _records(words)[0]
    body = bytes([magic, 0]) + (struct.pack(">q", record.timestamp) if magic else b"")
    for part in (record.key, record.value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def _compressed(codec: str, body: bytes) -> bytes:
    match codec:
        case "gzip":
            return gzip.compress(body, mtime=0)
        case "snappy":
            block = bytes(cramjam.snappy.compress_raw(body))
            return XERIAL + struct.pack(">i", len(block)) + block
        case "snappy-raw":
            return bytes(cramjam.snappy.compress_raw(body))
        case "lz4":
            block = bytes(cramjam.lz4.compress_block(body, store_size=False))
            return LZ4_HEADER + struct.pack("<I", len(block)) + block + bytes(4)
        case "lz4-linked":  # each block refers to those before it: a valid frame, but Kafka's Java cannot read it
            return bytes(cramjam.lz4.compress(body))
        case "zstd":
            return bytes(cramjam.zstd.compress(body))
    return body


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out + bytes([number]))


# ------------------------------------------------------------------ reading what a broker sent


class Batch(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    body: bytes
    crc_is_right: bool


def batches(data: bytes) -> Iterator[Batch]:
    """Yield the whole batches of a Fetch answer. One that is cut short at the end is left out, as clients do."""
    position = 0
    while position + HEADER.size <= len(data):
        fields = HEADER.unpack_from(data, position)
        end = position + 12 + fields[1]
        if end > len(data):
            return
        right = crc32c(data[position + 21 : end]) == fields[4]
        yield Batch._make((*fields, data[position + HEADER.size : end], right))
        position = end


def records(batch: Batch) -> Iterator[Record]:
    """Yield the records of a batch, in order."""
    data, position = _decompressed(batch.attributes & 7, batch.body), 0
    for _ in range(batch.record_count):
        _, position = _read_varint(data, position)
        position += 1
        time, position = _read_varint(data, position)
        offset, position = _read_varint(data, position)
        key, position = _read_sized(data, position)
        value, position = _read_sized(data, position)
        count, position = _read_varint(data, position)
        headers = []
        for _ in range(count):
            name, position = _read_sized(data, position)
            content, position = _read_sized(data, position)
            headers.append(((name or b"").decode(), content))
        yield Record(batch.base_offset + offset, batch.base_timestamp + time, key, value, tuple(headers))


def _decompressed(codec: int, body: bytes) -> bytes:
    match codec:
        case 1:
            return gzip.decompress(body)
        case 2 if body.startswith(XERIAL[:8]):
            out, position = b"", 16
            while position < len(body):
                (size,) = struct.unpack_from(">i", body, position)
                out += bytes(cramjam.snappy.decompress_raw(body[position + 4 : position + 4 + size]))
                position += 4 + size
            return out
        case 2:
            return bytes(cramjam.snappy.decompress_raw(body))
        case 3:
            return bytes(cramjam.lz4.decompress(body))
        case 4:
            return bytes(cramjam.zstd.decompress(body))
    return body


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position


def _read_sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(data, position)
    if size < 0:
        return None, position
    return data[position : position + size], position + size

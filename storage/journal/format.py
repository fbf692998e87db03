"""Bytes of the journal: file headers, round headers, units. Pure.

The rule: nothing is used before its checksum was compared, and no length before it was compared with the bytes that are
left. A checksum also covers where a unit or round belongs (start of the broker, number, file and place), so an old copy
of it is never accepted. docs/formats.md describes every byte; docs/glossary.md explains the words unit, part and seal.
All integers are big-endian; every checksum is CRC-32C.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from ...protocol.batches import Batch

Buffer: TypeAlias = bytes | bytearray | memoryview

FORMAT = 1
BLOCK_BYTES = 4096

APPEND, LOG_START, CREATE, DROP = 1, 2, 3, 4

MAX_PARTS = 50_000
MAX_BYTES_BESIDE_BATCHES = 16 << 20
# If a unit's buffers are smaller than this on average, they are copied into one: that costs less than a call of crc32c
# for each.
COPIED_BELOW_BYTES = 1 << 10
MAX_COPIED_BYTES = 64 << 10  # a larger copy takes fresh pages, which cost more than the calls

_FILE_HEADER = struct.Struct(">8sIIIIQQ8sQQQ")
_FILE_MAGIC = b"FENCEJNL"
_FILE_CHECKED = 12  # the checksum covers the block from here on
_RECYCLED = 1

_ROUND_HEADER = struct.Struct(">4sIHHIQQQII")
_ROUND_CHECKED = 8
_ENDS_FILE = 1
_SEED = struct.Struct(">IQ8s")
_PLACE = struct.Struct(">Q")

_UNIT = struct.Struct(">IIIQI")
_UNIT_CHECKED = struct.Struct(">IQI")
_UNIT_PREFIX = struct.Struct(">II")
_PART = struct.Struct(">BQqI")
_BATCH_UNIT = struct.Struct(">IIIQIBQqI")

ROUND_MAGIC = b"FPRN"
ROUND_HEADER_BYTES = _ROUND_HEADER.size
PREFIX_BYTES = _UNIT_PREFIX.size  # length and checksum, in front of what the checksum covers
BATCH_UNIT_BYTES = _BATCH_UNIT.size  # what a unit of one part has before the part's data
LEAST_UNIT_BYTES = _UNIT.size + _PART.size

# What Journal.append_batch writes: all of a unit that the checksum covers, up to the 16 stamped bytes of the batch.
pack_batch_unit = struct.Struct(">IQIBQqI16s").pack
pack_prefix = _UNIT_PREFIX.pack
BATCH_HEAD_BYTES = 16
BATCH_UNIT_CHECKED_BYTES = BATCH_UNIT_BYTES - PREFIX_BYTES + BATCH_HEAD_BYTES


class JournalStart(NamedTuple):
    """Where a scan of a journal begins: the number of a file, and of the first round in it."""

    file: int
    round: int


EVERYTHING = JournalStart(0, 0)  # begin with the oldest file there is


class Malformed(Exception):
    """Raised for bytes that are not a valid header or unit. The text says what is wrong."""


class UnknownFormat(Exception):
    """Raised for a valid file header of a format that this version does not know."""

    def __init__(self, version: int) -> None:
        super().__init__(f"journal format {version}")
        self.version = version


class UnitRefused(ValueError):
    """Raised for a unit above a limit (parts, bytes beside batches, bytes of a file). Nothing was changed."""


class Part(NamedTuple):
    """One change to one log. data: bytes of the segment (APPEND), msgpack, or nothing, depending on `kind`."""

    kind: int
    log_id: int
    offset: int
    data: Sequence[Buffer]
    batch: Batch | None = None  # of an APPEND that is to be written: the data, parsed


PlacedBatch: TypeAlias = tuple[int, int, bytes, Buffer]
"""(log id, offset in the log, the batch's first 16 bytes as they will be in the segment, the bytes after them)"""

FlatPart: TypeAlias = tuple[int, int, int, int, memoryview]  # number of its unit, kind, log id, offset, data


class Unit(NamedTuple):
    """Changes that are applied together or not at all. path, position: where the unit was read."""

    number: int
    incarnation: int
    parts: list[Part]
    path: str
    position: int


class FileHeader(NamedTuple):
    """The first block of a journal file. The last four fields are the same in all files of one incarnation."""

    incarnation: int
    sequence: int
    size_bytes: int
    recycled: bool  # what follows the last round is stale, not zero
    salt: bytes
    first_file: int
    first_round: int
    first_unit: int

    @property
    def seed(self) -> int:
        """The seed of the checksums of this file's round headers: unique to the file, and unknown to clients."""
        return int(crc32c(_SEED.pack(self.incarnation, self.sequence, self.salt)))


class RoundHeader(NamedTuple):
    """The header at the block where a round begins; `length` bytes of units follow."""

    incarnation: int
    round: int
    first_unit: int
    synced_through: int
    units: int
    length: int
    ends_file: bool

    @property
    def last_unit(self) -> int:
        """The number of the round's last unit; first_unit − 1 if it has none."""
        return self.first_unit + self.units - 1


def blocks(size_bytes: int) -> int:
    """Return the size rounded up to whole blocks."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


# ---- headers -------------------------------------------------------------------------------------------------


def pack_file_header(header: FileHeader) -> bytes:
    """Encode a file header as one block."""
    flags = _RECYCLED if header.recycled else 0
    body = _FILE_HEADER.pack(
        _FILE_MAGIC,
        0,
        FORMAT,
        flags,
        header.incarnation,
        header.sequence,
        header.size_bytes,
        header.salt,
        header.first_file,
        header.first_round,
        header.first_unit,
    )[_FILE_CHECKED:]
    checked = body.ljust(BLOCK_BYTES - _FILE_CHECKED, b"\0")
    return _FILE_MAGIC + crc32c(checked).to_bytes(4, "big") + checked


def read_file_header(block: bytes) -> FileHeader:
    """Decode a file header. Raises: Malformed; UnknownFormat, only for a block whose checksum is right."""
    if len(block) < BLOCK_BYTES:
        raise Malformed(f"the file has {len(block)} bytes, its header alone takes {BLOCK_BYTES}")
    magic, crc, version, flags, *fields = _FILE_HEADER.unpack_from(block)
    if magic != _FILE_MAGIC:
        raise Malformed("the file does not begin as a journal file")
    if crc32c(block[_FILE_CHECKED:BLOCK_BYTES]) != crc:
        raise Malformed("the file header fails its checksum")
    if version != FORMAT:
        raise UnknownFormat(version)
    incarnation, sequence, size_bytes, *life = fields
    return FileHeader(incarnation, sequence, size_bytes, bool(flags & _RECYCLED), *life)


def pack_round_header(header: RoundHeader, seed: int, position: int) -> bytes:
    """Encode the header of a round at this position. seed: the checksum seed of the file (FileHeader.seed)."""
    checked = _ROUND_HEADER.pack(
        ROUND_MAGIC,
        0,
        FORMAT,
        _ENDS_FILE if header.ends_file else 0,
        header.incarnation,
        header.round,
        header.first_unit,
        header.synced_through,
        header.units,
        header.length,
    )[_ROUND_CHECKED:]
    crc = crc32c(checked, crc32c(_PLACE.pack(position), seed))
    return ROUND_MAGIC + crc.to_bytes(4, "big") + checked


def read_round_header(block: Buffer, seed: int, position: int) -> RoundHeader | None:
    """Parse the round header at the start of `block`; None if there is none.

    seed: the checksum seed of the file. It is unique to one use of the file, so a round left from an earlier use does
    not match. position: where the block is in the file.
    """
    if len(block) < ROUND_HEADER_BYTES:
        return None
    magic, crc, version, flags, *fields = _ROUND_HEADER.unpack_from(block)
    if magic != ROUND_MAGIC or version != FORMAT:
        return None
    checked = block[_ROUND_CHECKED:ROUND_HEADER_BYTES]
    if crc32c(checked, crc32c(_PLACE.pack(position), seed)) != crc:
        return None
    incarnation, number, first_unit, synced_through, units, length = fields
    return RoundHeader(incarnation, number, first_unit, synced_through, units, length, bool(flags & _ENDS_FILE))


# ---- units: writing ------------------------------------------------------------------------------------------


def unit_bytes(parts: Sequence[Part]) -> int:
    """Return the size in bytes of a unit with these parts. Raises UnitRefused if it is over the limits."""
    if not 0 < len(parts) <= MAX_PARTS:
        raise UnitRefused(f"the unit has {len(parts)} parts, 1 to {MAX_PARTS} are allowed")
    batches = beside = 0
    for part in parts:
        if part.kind == APPEND:
            batches += sum(map(len, part.data))
        else:
            beside += sum(map(len, part.data))
    if beside > MAX_BYTES_BESIDE_BATCHES:
        raise UnitRefused(f"the unit has {beside} bytes beside its batches, {MAX_BYTES_BESIDE_BATCHES} are allowed")
    return _UNIT.size + _PART.size * len(parts) + batches + beside


def frame_batches(incarnation: int, number: int, batches: Sequence[PlacedBatch]) -> list[Buffer]:
    """Encode a unit of batches only, each with the log that it is for. Returns a list of buffers; the first begins with
    length and checksum.

    Raises UnitRefused if it has too many parts.
    """
    if not 0 < len(batches) <= MAX_PARTS:
        raise UnitRefused(f"the unit has {len(batches)} parts, 1 to {MAX_PARTS} are allowed")
    buffers: list[Buffer] = [_UNIT_CHECKED.pack(incarnation, number, len(batches))]
    pack = _PART.pack
    for log_id, offset, head, rest in batches:
        buffers += (pack(APPEND, log_id, offset, len(rest) + BATCH_HEAD_BYTES), head, rest)
    return _with_checksum(buffers, sum(map(len, buffers)))


def _with_checksum(buffers: list[Buffer], length: int) -> list[Buffer]:
    """Prepend length and checksum to the buffers. Returns them, joined into one if they are small."""
    if length < min(COPIED_BELOW_BYTES * len(buffers), MAX_COPIED_BYTES):
        whole = b"".join(buffers)
        return [pack_prefix(length, crc32c(whole)) + whole]
    crc = 0
    for buffer in buffers:
        crc = crc32c(buffer, crc)
    buffers[0] = b"".join((pack_prefix(length, crc), buffers[0]))
    return buffers


def frame_unit(incarnation: int, number: int, parts: Sequence[Part]) -> list[Buffer]:
    """Encode a unit as it is in the journal. Returns a list of buffers; the first begins with length and checksum."""
    buffers: list[Buffer] = [_UNIT_CHECKED.pack(incarnation, number, len(parts))]
    for kind, log_id, offset, data, _ in parts:
        buffers.append(_PART.pack(kind, log_id, offset, sum(map(len, data))))
        buffers += data
    return _with_checksum(buffers, sum(map(len, buffers)))


# ---- units: reading ------------------------------------------------------------------------------------------


def first_fault(body: memoryview, header: RoundHeader) -> str:
    """Return why these bytes are not the units that the header announces; "" if they are.

    Zero bytes are never a unit: a length below the smallest is refused before its checksum is compared.
    """
    unpack = _UNIT.unpack_from
    incarnation = header.incarnation
    end = len(body)
    position = 0
    for number in range(header.first_unit, header.first_unit + header.units):
        if end - position < LEAST_UNIT_BYTES:
            return f"unit {number} is missing"
        length, crc, started, found, _ = unpack(body, position)
        start = position + PREFIX_BYTES
        position = start + length
        if length < LEAST_UNIT_BYTES - PREFIX_BYTES or position > end:
            return f"unit {number} has an impossible length ({length})"
        if crc32c(body[start:position]) != crc:
            return f"unit {number} fails its checksum"
        if found != number or started != incarnation:
            return f"unit {number} is another ({found} of start {started})"
    return "" if position == end else f"{end - position} bytes follow the last unit"


def highest_number(body: memoryview, incarnation: int) -> int:
    """Return the highest number of the complete units at the beginning of `body`; 0 if there is none.

    Used for a round whose header is lost: its units are discarded, but their numbers are not used again.
    """
    highest = position = 0
    while len(body) - position >= LEAST_UNIT_BYTES:
        length, crc, started, number, _ = _UNIT.unpack_from(body, position)
        start = position + PREFIX_BYTES
        position = start + length
        if length < LEAST_UNIT_BYTES - PREFIX_BYTES or position > len(body) or started != incarnation:
            break
        if crc32c(body[start:position]) != crc:
            break
        highest = max(highest, number)
    return highest


def read_parts(body: memoryview, above: int = 0) -> Iterator[FlatPart]:
    """Yield the parts of all units with a number above `above`, from a round that first_fault() found valid.

    Fast, because recovery reads millions of them. Raises Malformed if the parts do not fill their unit exactly.
    """
    unpack = _BATCH_UNIT.unpack_from
    at = 0
    end = len(body)
    while at < end:
        length, _, _, number, count, kind, log_id, offset, data_bytes = unpack(body, at)
        first = at + BATCH_UNIT_BYTES
        start = at + _UNIT.size
        at += PREFIX_BYTES + length
        if number <= above:
            continue
        if count == 1 and first + data_bytes == at:
            yield number, kind, log_id, offset, body[first:at]
        else:
            for kind, log_id, offset, data in _parts(body[start:at], count):
                yield number, kind, log_id, offset, data


def _parts(body: memoryview, count: int) -> Iterator[tuple[int, int, int, memoryview]]:
    """Yield kind, log id, offset and data of each part of a unit. Raises Malformed if a part is longer than the bytes
    left.
    """
    at = 0
    for _ in range(count):
        if len(body) - at < _PART.size:
            raise Malformed("a unit ends within its parts")
        kind, log_id, offset, data_bytes = _PART.unpack_from(body, at)
        at += _PART.size
        if data_bytes > len(body) - at:
            raise Malformed("a part is longer than its unit")
        yield kind, log_id, offset, body[at : at + data_bytes]
        at += data_bytes
    if at != len(body):
        raise Malformed("bytes follow the last part of a unit")


def read_units(body: memoryview, header: RoundHeader, path: str, position: int, above: int = 0) -> Iterator[Unit]:
    """Yield the units with a number above `above`, each with its position in the file, for tools. position: where
    `body` begins in the file.
    """
    at = 0
    while at < len(body):
        length, _, incarnation, number, count = _UNIT.unpack_from(body, at)
        start = at
        at += PREFIX_BYTES + length
        if number > above:
            parts = [
                Part(kind, log_id, offset, (data,) if data else ())
                for kind, log_id, offset, data in _parts(body[start + _UNIT.size : at], count)
            ]
            yield Unit(number, incarnation, parts, path, position + start)

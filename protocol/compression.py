"""The five codecs of record batches, with a limit on the decompressed size.

The rule: no input, however small, makes memory grow past twice `limit`. gzip, lz4 and zstd are decoded into a buffer of
a fixed size, which grows fourfold, up to the limit, only when it has really been filled; snappy states its sizes, which
are added up before anything is allocated. Formats: RFC 1952; xerial's and raw snappy; the lz4 frame, whose blocks must
be independent for Java; RFC 8878.
"""

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct

import cramjam

from .errors import ErrorCode, KafkaError

Bytes = bytes | bytearray | memoryview

_FIRST_GUESS_BYTES = 4096
_GUESSED_RATIO = 4
_FILLED = "failed to write whole buffer"  # cramjam's text for a buffer that is too small

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK_BYTES = 32 * 1024

# Version 1, independent blocks of at most 64 KiB, no checksums; the last byte is the descriptor's own checksum.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x8000_0000
_LZ4_END = bytes(4)

_BIG_LENGTH = Struct(">i")
_LITTLE_LENGTH = Struct("<I")


class Codec(IntEnum):
    """The compression codecs, by their numbers in bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, payload: Bytes, level: int | None = None) -> bytes:
    """Compress the payload as Kafka's own clients do; for codec 0 return it unchanged.

    level: for gzip and zstd; None means the default of Kafka's clients. snappy has none, and cramjam's lz4 blocks have
    only one.
    """
    match codec:
        case Codec.GZIP:
            return zlib.compress(payload, -1 if level is None else level, wbits=31)
        case Codec.SNAPPY:
            return _compress_snappy(memoryview(payload))
        case Codec.LZ4:
            return _compress_lz4(memoryview(payload))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(payload, level=3 if level is None else level))
        case _:
            return bytes(payload)


def decompress(codec: int, payload: Bytes, *, limit: int) -> bytes:
    """Return the payload decompressed. limit: the most bytes that the result may have.

    Raises KafkaError CORRUPT_MESSAGE for bytes that are not of this codec, MESSAGE_TOO_LARGE above the limit.
    """
    match codec:
        case Codec.GZIP:
            return _decompress_stream(cramjam.gzip.decompress_into, payload, limit)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(payload), limit)
        case Codec.LZ4:
            return _decompress_stream(cramjam.lz4.decompress_into, payload, limit)
        case Codec.ZSTD:
            return _decompress_stream(cramjam.zstd.decompress_into, payload, limit)
        case Codec.NONE:
            if len(payload) > limit:
                raise _too_large(limit)
            return bytes(payload)
        case _:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{codec} is no codec")


def _too_large(limit: int) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the records are larger than {limit} bytes when decompressed")


def _decompress_stream(decompress_into: Callable[[Bytes, Bytes], int], payload: Bytes, limit: int) -> bytes:
    """Decompress by this function of cramjam, with a larger buffer each time, up to `limit` bytes. Raises
    KafkaError.
    """
    size = min(limit, max(_FIRST_GUESS_BYTES, _GUESSED_RATIO * len(payload)))
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(payload, output)
        except cramjam.DecompressionError as error:
            if _FILLED not in str(error):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the records do not decompress: {error}") from None
        else:
            del output[written:]
            return bytes(output)
        if size == limit:
            raise _too_large(limit)
        size = min(limit, size * 4)


def _compress_lz4(payload: memoryview) -> bytes:
    """Compress into an LZ4 frame of independent blocks. A block that does not get smaller is stored uncompressed."""
    pieces = [_LZ4_HEADER]
    for start in range(0, len(payload), _LZ4_BLOCK_BYTES):
        block = payload[start : start + _LZ4_BLOCK_BYTES]
        packed = cramjam.lz4.compress_block(block, store_size=False)
        if len(packed) < len(block):
            pieces += (_LITTLE_LENGTH.pack(len(packed)), bytes(packed))
        else:
            pieces += (_LITTLE_LENGTH.pack(len(block) | _LZ4_STORED), bytes(block))
    pieces.append(_LZ4_END)
    return b"".join(pieces)


def _compress_snappy(payload: memoryview) -> bytes:
    """Compress into blocks with the framing of xerial's library, as Java clients do."""
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(payload), _XERIAL_BLOCK_BYTES):
        packed = bytes(cramjam.snappy.compress_raw(payload[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (_BIG_LENGTH.pack(len(packed)), packed)
    return b"".join(pieces)


def _decompress_snappy(payload: memoryview, limit: int) -> bytes:
    """Decompress either format in use: blocks in xerial's framing (Java), or one raw block (librdkafka, franz-go).
    Raises KafkaError like decompress().
    """
    try:
        blocks = list(_xerial_blocks(payload)) if payload[:8] == _XERIAL_MAGIC else [payload]
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        if sum(sizes) > limit:
            raise _too_large(limit)
        output = bytearray(sum(sizes))
        position = 0
        for block, size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, memoryview(output)[position : position + size])
            position += size
    except cramjam.DecompressionError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the records do not decompress: {error}") from None
    return bytes(output)


def _xerial_blocks(payload: memoryview) -> Iterator[memoryview]:
    """Yield the raw blocks of one or more streams in xerial's framing. Raises CORRUPT_MESSAGE if one is cut short."""
    position = 0
    while position < len(payload):
        if payload[position : position + 8] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        if position + 4 > len(payload):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a snappy block is cut short")
        (size,) = _BIG_LENGTH.unpack_from(payload, position)
        position += 4
        if not 0 <= size <= len(payload) - position:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the length of a snappy block is {size}, {len(payload) - position} bytes are left",
            )
        yield payload[position : position + size]
        position += size

"""Codecs: what goes in comes out, and never more than was allowed."""

import gzip
import os
import tracemalloc

import cramjam
import pytest
from fencepost.protocol.compression import Codec, compress, decompress
from fencepost.protocol.errors import ErrorCode, KafkaError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from long_runs import share_of

CODECS = [codec for codec in Codec if codec is not Codec.NONE]
MIB = 1 << 20
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


def refused(codec, content, limit=MIB) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, content, limit=limit)
    return caught.value.code


@given(st.sampled_from(Codec), st.binary(max_size=3000), st.integers(1, 80))
def test_decompressing_gives_the_original_bytes(codec, content, times):
    whole = content * times
    packed = compress(codec, whole)
    assert decompress(codec, packed, limit=len(whole)) == whole
    assert decompress(codec, memoryview(bytearray(packed)), limit=MIB) == whole


@pytest.mark.parametrize("codec", CODECS)
def test_incompressible_data_survives_a_compression_round_trip(codec):
    content = os.urandom(300_000)
    assert decompress(codec, compress(codec, content), limit=300_000) == content


@pytest.mark.parametrize(("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.ZSTD, 1, 19)])
def test_a_higher_compression_level_gives_fewer_bytes(codec, low, high):
    content = b"".join(b"%d," % (number * number % 7919) for number in range(20_000))
    assert len(compress(codec, content, high)) < len(compress(codec, content, low))
    assert decompress(codec, compress(codec, content, high), limit=MIB) == content


@pytest.mark.parametrize("codec", Codec)
def test_decompression_stops_exactly_at_the_size_limit(codec):
    content = b"fencepost " * 20_000
    packed = compress(codec, content)
    assert decompress(codec, packed, limit=len(content)) == content
    assert refused(codec, packed, len(content) - 1) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_data_truncated_anywhere_is_corrupt(codec):
    packed = compress(codec, b"fencepost " * 100)
    outcomes = set()
    for length in range(len(packed)):
        try:
            decompress(codec, packed[:length], limit=MIB)
        except KafkaError as error:
            outcomes.add(error.code)
    assert outcomes == {ErrorCode.CORRUPT_MESSAGE}


def test_decompressing_an_unknown_codec_number_raises_corrupt_message():
    assert refused(6, b"abc") is ErrorCode.CORRUPT_MESSAGE


# Bombs: a small input that claims or makes a large output. Memory is measured, not believed.

BOMB_BYTES = 256 * MIB


def zstd_bomb_without_size() -> bytes:
    """Return a frame that does not state its content size: 2,048 blocks of one repeated byte, each 128 KiB from four
    bytes.
    """
    block = (1 << 1 | 128 * 1024 << 3).to_bytes(3, "little") + b"a"
    last = (1 | 1 << 1 | 1 << 3).to_bytes(3, "little") + b"a"
    return b"\x28\xb5\x2f\xfd\x00\x38" + block * 2048 + last


def raw_snappy_bomb() -> bytes:
    """Return a raw block that says it holds 4 GiB - 1."""
    return b"\xff\xff\xff\xff\x0f" + b"\x00a"


def xerial_bomb() -> bytes:
    """Return sixteen thousand blocks of 48 KiB each."""
    block = bytes(cramjam.snappy.compress_raw(bytes(48 * 1024)))
    return XERIAL + (len(block).to_bytes(4, "big") + block) * 16_000


def xerial_lie() -> bytes:
    """Return blocks of six bytes that each announce 4 GiB - 1."""
    return XERIAL + (b"\0\0\0\x06" + b"\xff\xff\xff\xff\x0f" + b"a") * 1000


def lz4_bomb() -> bytes:
    """Return blocks of 4 MiB, each of which is one match of a single repeated byte."""
    block = bytes(cramjam.lz4.compress_block(bytes(4 * MIB), store_size=False))
    return b"\x04\x22\x4d\x18\x60\x70\x73" + (len(block).to_bytes(4, "little") + block) * 64 + bytes(4)


BOMBS = {
    "gzip": (Codec.GZIP, lambda: gzip.compress(bytes(BOMB_BYTES // 4), 1)),
    "gzip, 2,000 members": (Codec.GZIP, lambda: gzip.compress(bytes(100_000)) * 2_000),
    "zstd that states its size": (Codec.ZSTD, lambda: bytes(cramjam.zstd.compress(bytes(BOMB_BYTES), 1))),
    "zstd that does not": (Codec.ZSTD, zstd_bomb_without_size),
    "lz4": (Codec.LZ4, lz4_bomb),
    "snappy raw": (Codec.SNAPPY, raw_snappy_bomb),
    "snappy xerial": (Codec.SNAPPY, xerial_bomb),
    "snappy xerial that lies": (Codec.SNAPPY, xerial_lie),
}


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")


def peak_bytes() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="measures memory through Linux' /proc")
@pytest.mark.parametrize("name", BOMBS)
def test_a_decompression_bomb_gets_message_too_large_and_uses_little_memory(name):
    codec, make = BOMBS[name]
    bomb = make()
    limit = 4 * MIB
    reset_peak()
    before = resident_bytes()
    tracemalloc.start()
    try:
        code = refused(codec, bomb, limit)
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert code is ErrorCode.MESSAGE_TOO_LARGE
    assert python_peak <= 2 * limit + MIB
    assert peak_bytes() - before <= 2 * limit + 8 * MIB  # the decoders' own windows


def test_a_zstd_window_larger_than_any_client_uses_is_refused():
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([21 << 3]) + (1 | 1 << 1 | 9 << 3).to_bytes(3, "little") + b"a"
    assert refused(Codec.ZSTD, frame) is ErrorCode.CORRUPT_MESSAGE


# Framings in the wild


def test_raw_and_xerial_snappy_framings_are_decoded():
    content = b"fencepost " * 9_000
    assert compress(Codec.SNAPPY, content).startswith(XERIAL)
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(content)), limit=MIB) == content
    two_streams = compress(Codec.SNAPPY, content) + compress(Codec.SNAPPY, b"more")
    assert decompress(Codec.SNAPPY, two_streams, limit=MIB) == content + b"more"


@pytest.mark.parametrize(
    "content",
    [XERIAL[:7], XERIAL + b"\0\0", XERIAL + b"\xff\xff\xff\xff", XERIAL + b"\0\0\0\x09abc", XERIAL + b"\0\0\0\x03abc"],
)
def test_a_xerial_snappy_stream_with_false_lengths_is_corrupt(content):
    assert refused(Codec.SNAPPY, content) is ErrorCode.CORRUPT_MESSAGE


def test_lz4_blocks_are_independent_because_java_reads_no_others():
    frame = compress(Codec.LZ4, b"fencepost " * 20_000)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20
    assert bytes(cramjam.lz4.decompress(frame)) == b"fencepost " * 20_000


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_concatenated_compression_frames_decode_as_one_content(codec):
    assert decompress(codec, compress(codec, b"one") + compress(codec, b"two"), limit=MIB) == b"onetwo"


@pytest.mark.slow
@settings(max_examples=share_of(400))
@given(st.sampled_from(CODECS), st.binary(max_size=200), st.data())
@example(Codec.LZ4, b"", None)
def test_damaged_compressed_data_decodes_or_raises_an_error_code(codec, content, data):
    if data is not None and data.draw(st.booleans()):
        packed = bytearray(compress(codec, content * 9))
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
        content = bytes(packed)
    try:
        found = decompress(codec, content, limit=10_000)
    except KafkaError as error:
        code = error.code
    else:
        assert len(found) <= 10_000
        return
    # Which one depends on the bytes: they do not decompress, or to more than the limit.
    assert code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)

"""Frames out of chunks, however the chunks fall."""

import random
import struct
import tracemalloc

import pytest
from fencepost.protocol.errors import MalformedFrame
from fencepost.protocol.framing import Framer
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import share_of


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def fed(framer: Framer, *chunks: bytes) -> list[bytes]:
    return [bytes(frame) for chunk in chunks for frame in framer.feed(chunk)]


SIZES = st.sampled_from([1, 2, 3, 100, 4095, 4096, 4097, 9000, 70_000])


@pytest.mark.slow
@settings(max_examples=share_of(150), database=None, derandomize=True)
@given(st.lists(SIZES, max_size=8), st.integers(0, 1 << 32))
def test_the_framer_returns_the_same_frames_however_their_bytes_are_divided(sizes: list[int], number: int) -> None:
    rng = random.Random(number)
    bodies = [rng.randbytes(size) for size in sizes]
    stream, framer, found = framed(*bodies), Framer(), []
    while stream:
        size = rng.choice((1, 3, 4, 5, 200, 5000, 65_536, 200_000))
        found += fed(framer, stream[:size])
        stream = stream[size:]
    assert found == bodies
    assert framer.held_bytes == 0


@pytest.mark.parametrize("cut", range(1, 12))
def test_an_incomplete_frame_waits_for_its_remaining_bytes(cut: int) -> None:
    framer = Framer()
    stream = framed(b"payload!")
    assert fed(framer, stream[:cut]) == []
    assert framer.held_bytes == cut
    assert fed(framer, stream[cut:]) == [b"payload!"]


def test_a_frame_that_arrives_byte_by_byte_is_decoded() -> None:
    stream = framed(b"a" * 3000, b"b")
    framer = Framer()
    assert fed(framer, *(stream[i : i + 1] for i in range(len(stream)))) == [b"a" * 3000, b"b"]


@pytest.mark.slow
def test_a_frame_that_arrives_in_small_chunks_takes_less_than_twice_its_size() -> None:
    size = 100_000
    framer = Framer()
    chunks = [bytes([i % 256, i % 255]) for i in range(size // 2)]
    tracemalloc.start()
    try:
        framer.feed(struct.pack(">i", size + 1))
        for chunk in chunks:
            framer.feed(chunk[:1] + chunk[1:])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * size
    assert fed(framer, b"!") == [b"".join(chunks) + b"!"]


@pytest.mark.parametrize("length", [0, -1, -(1 << 31), 1001, (1 << 31) - 1])
@pytest.mark.parametrize("before", [b"", framed(b"ok")])
def test_a_frame_length_of_zero_negative_or_above_the_limit_is_malformed(length: int, before: bytes) -> None:
    with pytest.raises(MalformedFrame):
        Framer(max_bytes=1000).feed(before + struct.pack(">i", length))


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_an_invalid_frame_length_split_over_two_chunks_is_detected(cut: int) -> None:
    framer, prefix = Framer(max_bytes=1000), struct.pack(">i", 1001)
    framer.feed(prefix[:cut])
    with pytest.raises(MalformedFrame):
        framer.feed(prefix[cut:])


def test_a_frame_of_the_maximum_size_is_accepted() -> None:
    assert fed(Framer(max_bytes=1000), framed(b"x" * 1000)) == [b"x" * 1000]


def test_an_announced_frame_uses_no_memory_before_its_bytes_arrive() -> None:
    framer = Framer()
    tracemalloc.start()
    try:
        framer.feed(struct.pack(">i", framer.max_bytes) + b"x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2000  # bytes; the announced frame has as many as a frame may have


def test_a_small_frame_does_not_keep_its_chunk_in_memory() -> None:
    (small, *_rest) = Framer().feed(framed(b"s" * 4096, b"x" * 60_000))
    assert type(small) is bytes
    (alone,) = Framer().feed(framed(b"s" * 4096))
    assert type(alone) is bytes


def test_a_large_frame_is_not_copied() -> None:
    chunk = framed(b"x" * 60_000)
    (frame,) = Framer().feed(chunk)
    assert isinstance(frame, memoryview)
    assert frame.obj is chunk


def test_a_frame_that_is_less_than_a_quarter_of_its_chunk_is_copied() -> None:
    frames = Framer().feed(framed(*(b"x" * 20_000 for _ in range(5))))
    assert [len(frame.obj) for frame in frames if isinstance(frame, memoryview)] == [20_000] * 5


@pytest.mark.parametrize(("size", "is_view"), [(20_000, True), (19_999, False)])
def test_only_a_frame_of_at_least_a_quarter_of_its_chunk_is_kept_as_a_view(size: int, is_view: bool) -> None:
    chunk = framed(b"x" * size, b"y" * (80_000 - size - 8))
    assert len(chunk) == 80_000
    frame, _ = Framer().feed(chunk)
    assert isinstance(frame, memoryview)
    assert (frame.obj is chunk) == is_view


@pytest.mark.parametrize(("begun", "is_view"), [(20_000, True), (19_999, False)])
def test_a_partial_frame_of_a_quarter_of_its_chunk_or_more_is_not_copied(begun: int, is_view: bool) -> None:
    chunk = framed(b"y" * (79_996 - begun), b"x" * 100_000)[:80_000]
    framer = Framer()
    framer.feed(chunk)
    (held,) = framer._pieces
    assert (isinstance(held, memoryview) and held.obj is chunk) == is_view
    assert len(held) == begun


def test_large_frames_that_arrive_in_one_chunk_are_views_of_it_not_copies() -> None:
    chunk = framed(b"x" * 100_000, b"y" * 100_000, b"z" * 100_000)[:256_000]
    frames = Framer().feed(chunk)
    assert [frame.obj is chunk for frame in frames if isinstance(frame, memoryview)] == [True, True]


@pytest.mark.parametrize(("begun", "most"), [(10_000, 12_000), (90_000, 4 * 90_000)])
def test_a_partial_frame_keeps_at_most_four_times_its_size_in_memory(begun: int, most: int) -> None:
    framer, before = Framer(), [b"s" * 4000] * 50
    tracemalloc.start()
    try:
        framer.feed(framed(*before, b"x" * 100_000)[: 50 * 4004 + begun])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert framer.held_bytes == begun
    assert held < most
    assert fed(framer, b"x" * (100_004 - begun)) == [b"x" * 100_000]

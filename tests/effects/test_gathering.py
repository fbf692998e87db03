"""Gathering buffers: every byte in its place, few calls, and nothing large copied."""

import itertools

import pytest
from fencepost.effects.gathering import (
    BULK_BYTES,
    JOINED_BELOW_BYTES,
    SLICE_BYTES,
    join_buffers,
    join_neighbours,
    slices,
    write_gathered,
)

CONTENT = bytes(range(251)) * 1530
CUTS = [[], [1, 2, 3], [70_000, 70_001], [65_536, 131_072], [0, 300_000], list(range(0, 384_000, 999))]


class Writes:
    """A file that notes what it is told to write."""

    def __init__(self):
        self.made = []
        self.past = []

    def write(self, buffers, position):
        self.made.append((position, list(buffers)))

    def write_past_cache(self, buffers, position, *, paced=False):
        self.past.append((position, list(buffers), paced))


def pieces(cuts):
    return [memoryview(CONTENT)[a:b] for a, b in itertools.pairwise([0, *cuts, len(CONTENT)])]


@pytest.mark.parametrize("position", [0, 1, 4096, SLICE_BYTES - 1, SLICE_BYTES, SLICE_BYTES + 1])
@pytest.mark.parametrize("cuts", CUTS, ids=len)
def test_write_gathered_writes_every_byte_once_at_its_position_in_slices(cuts, position):
    file = Writes()
    write_gathered(file, pieces(cuts), position, len(CONTENT), past_cache=False)
    at = position
    for begin, buffers in file.made:
        size = sum(map(len, buffers))
        assert begin == at
        assert 0 < size <= SLICE_BYTES
        at += size
        assert at % SLICE_BYTES == 0 or at == position + len(CONTENT)
    assert b"".join(b"".join(buffers) for _, buffers in file.made) == CONTENT
    assert at == position + len(CONTENT)


@pytest.mark.parametrize("cuts", CUTS, ids=len)
def test_slices_splits_buffers_at_slice_boundaries_and_keeps_all_bytes_in_order(cuts):
    found = list(slices(pieces(cuts), 100, SLICE_BYTES))
    assert b"".join(map(b"".join, found)) == CONTENT
    assert [sum(map(len, part)) for part in found[:2]] == [SLICE_BYTES - 100, SLICE_BYTES]


def test_write_gathered_of_up_to_one_slice_is_one_write_at_any_position():
    file = Writes()
    write_gathered(file, [CONTENT[:40_000], CONTENT[40_000:SLICE_BYTES]], 5_000, SLICE_BYTES, past_cache=False)
    assert [(at, b"".join(buffers)) for at, buffers in file.made] == [(5_000, CONTENT[:SLICE_BYTES])]


def test_write_gathered_with_a_larger_slice_size_makes_larger_writes():
    file = Writes()
    write_gathered(file, [CONTENT], 1, len(CONTENT), past_cache=False, slice_bytes=4 * SLICE_BYTES)
    assert [at for at, _ in file.made] == [1, *range(4 * SLICE_BYTES, len(CONTENT) + 1, 4 * SLICE_BYTES)]
    assert b"".join(b"".join(buffers) for _, buffers in file.made) == CONTENT


@pytest.mark.parametrize("paced", [True, False])
@pytest.mark.parametrize("past_cache", [True, False])
@pytest.mark.parametrize("size", [BULK_BYTES - 1, BULK_BYTES, BULK_BYTES + 1])
def test_write_gathered_bypasses_the_page_cache_for_large_writes_with_past_cache(size, past_cache, paced):
    file = Writes()
    write_gathered(file, [bytes(size)], 7, size, past_cache=past_cache, paced=paced)
    went_past = past_cache and size >= BULK_BYTES
    assert bool(file.past) == went_past
    assert bool(file.made) != went_past
    assert all((at, sum(map(len, buffers)), how) == (7, size, paced) for at, buffers, how in file.past)


@pytest.mark.parametrize(("size", "count"), [(JOINED_BELOW_BYTES - 1, 1), (JOINED_BELOW_BYTES, 5)])
def test_join_buffers_joins_small_buffers_into_one_and_does_not_copy_large_ones(size, count):
    buffers = [bytes([number]) * size for number in range(5)]
    found = join_buffers(buffers, 5 * size)
    assert len(found) == count
    assert b"".join(found) == b"".join(buffers)
    assert count == 1 or all(one is other for one, other in zip(found, buffers, strict=True))


def test_join_neighbours_joins_small_neighbours_and_keeps_large_ones_and_file_parts():
    large, part = bytes(100), object()
    found = join_neighbours([b"a", memoryview(b"b"), large, bytearray(b"c"), part, b"d", b"", b"e"], 100)
    assert found == [b"ab", large, b"c", part, b"de"]
    assert found[1] is large
    assert join_neighbours([], 100) == []

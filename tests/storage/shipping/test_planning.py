"""Which bytes of growing files are shipped, compared with a store that keeps every byte."""

import pytest
from crc32c import crc32c
from fencepost.storage.shipping.planning import (
    LARGE_BYTES,
    MAX_SMALL_EXTENTS,
    PART_BYTES,
    Range,
    joined,
    plan,
)
from fencepost.storage.shipping.point import Extent, ShippedFile
from hypothesis import given, settings
from hypothesis import strategies as st


class Sizes:
    """A store that knows of each part only which ranges of which file it holds."""

    def __init__(self):
        self.shipped = {}
        self.parts = {}

    def take_point(self, wanted):
        """Ship what a plan says. Returns the plan."""
        planned = plan(wanted, self.shipped)
        files = dict(planned.kept)
        for ranges in planned.parts:
            name = f"part {len(self.parts)}"
            self.parts[name] = ranges
            at = 0
            for each in ranges:
                files[each.path] = joined(files[each.path], [Extent(name, at, each.length, 0)])
                at += each.length
        self.shipped = files
        return planned

    def ranges_of(self, path):
        """Return the bytes of a file that its extents hold, in order, as (from, to)."""
        found = []
        for extent in self.shipped[path].extents:
            at = 0
            for each in self.parts[extent.object]:
                if at == extent.position:
                    assert (each.path, each.length) == (path, extent.length)
                    found.append((each.position, each.position + each.length))
                at += each.length
        return found


GROWTH = st.one_of(st.integers(0, 100), st.integers(0, 2 * LARGE_BYTES), st.integers(0, 3 * PART_BYTES))
STEPS = st.lists(st.dictionaries(st.sampled_from("abcdef"), GROWTH, max_size=6), min_size=1, max_size=50)


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=40)
def test_a_backup_plan_ships_growing_files_completely_and_most_bytes_only_once(steps):
    store, sizes = Sizes(), {}
    for step in steps:
        for path, growth in step.items():
            sizes[path] = sizes.get(path, 0) + growth
        before = {path: file.shipped_bytes for path, file in store.shipped.items()}
        planned = store.take_point(sizes)
        for path, size_bytes in sizes.items():
            ranges = store.ranges_of(path)
            assert [first for first, _ in ranges] == [0, *(end for _, end in ranges)][: len(ranges)]
            assert (ranges[-1][1] if ranges else 0) == size_bytes
        added = sum(size - before.get(path, 0) for path, size in sizes.items())
        again = MAX_SMALL_EXTENTS * LARGE_BYTES * len(sizes)  # bytes shipped again of files with many small extents
        assert added <= planned.bytes_to_ship <= added + again


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=30)
def test_a_backup_plan_has_few_objects_of_limited_size_and_few_extents_per_file(steps):
    store, sizes = Sizes(), {}
    for step in steps:
        for path, growth in step.items():
            sizes[path] = sizes.get(path, 0) + growth
        planned = store.take_point(sizes)
        lengths = [sum(each.length for each in part) for part in planned.parts]
        assert all(0 < length <= PART_BYTES for length in lengths)
        assert len(lengths) <= 2 + 2 * planned.bytes_to_ship // LARGE_BYTES
        for file in store.shipped.values():
            small = [extent for extent in file.extents if extent.length < LARGE_BYTES]
            assert len(small) <= MAX_SMALL_EXTENTS + 1


def test_a_backup_plan_ships_no_bytes_of_unchanged_files():
    store = Sizes()
    store.take_point({"a": 10, "b": PART_BYTES})
    assert store.take_point({"a": 10, "b": PART_BYTES}).parts == []


def test_a_backup_plan_puts_small_ranges_of_a_thousand_files_into_one_object():
    assert len(plan({f"file {number}": 1000 for number in range(1000)}, {}).parts) == 1


def test_a_backup_plan_splits_a_large_file_into_parts_of_part_bytes():
    size_bytes = 2 * PART_BYTES + 5
    assert plan({"a": size_bytes}, {}).parts == [
        [Range("a", 0, PART_BYTES)], [Range("a", PART_BYTES, PART_BYTES)], [Range("a", 2 * PART_BYTES, 5)],
    ]  # fmt: skip


def test_a_backup_plan_reuses_no_shipped_extent_beyond_the_wanted_size():
    extents = (Extent("1", 0, 10, 0), Extent("2", 0, 10, 0))
    planned = plan({"a": 15}, {"a": ShippedFile(20, extents)})
    assert planned.kept == {"a": ShippedFile(10, extents[:1])}
    assert planned.parts == [[Range("a", 10, 5)]]


def test_a_backup_plan_keeps_no_extents_of_removed_files():
    assert plan({}, {"a": ShippedFile(5, (Extent("1", 0, 5, crc32c(b"")),))}).kept == {}

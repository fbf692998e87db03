"""A group goes on at the target with exactly the record that it would have read next at the source."""

from itertools import pairwise
from typing import NamedTuple

import pytest
from fencepost.client.mirror.group_offsets import MapDamaged, PartitionMap, in_order
from fencepost.client.mirror.offset_map import Run
from hypothesis import given
from hypothesis import strategies as st


class Logs(NamedTuple):
    """Two logs that a mirror has left: offset → the record that a read_committed reader sees there, and their ends."""

    source: dict[int, int]
    source_end: int
    target: dict[int, int]
    target_end: int
    runs: list[Run]


@st.composite
def mirrored(draw):
    """Draw the Logs of a source with markers, aborted batches and gaps of compaction, and of its target with markers
    and aborted attempts to copy.
    """
    source, offset = {}, draw(st.sampled_from([0, 0, 7]))
    for kind, length in draw(st.lists(st.tuples(st.sampled_from("rrrag"), st.integers(1, 4)), max_size=12)):
        for _ in range(length):
            if kind == "r":
                source[offset] = offset
            offset += 1  # a: records of an aborted transaction; g: compacted away, or a marker
    source_end = offset
    cuts = sorted(draw(st.sets(st.integers(0, len(source)), max_size=4)) | {len(source)})
    target, runs, at, first = {}, [], draw(st.sampled_from([0, 3])), 0
    for cut in cuts:
        for lost in draw(st.lists(st.integers(1, 3), max_size=2)):
            at += lost + 1  # a task that was killed or fenced: its records, and the abort's marker
        for record in sorted(source)[first:cut]:
            target[at] = record
            runs.append(Run(record, at, 1))
            at += 1
        at += 1  # the marker of the commit
        first = cut
    return Logs(source, source_end, target, at, draw(st.permutations(runs)))


def read(log, position):
    return [record for offset, record in sorted(log.items()) if offset >= position]


@given(mirrored(), st.data())
def test_from_each_translated_offset_the_target_has_the_records_of_the_source(logs, data):
    again = data.draw(st.lists(st.sampled_from(logs.runs), max_size=3)) if logs.runs else []
    found = PartitionMap([*logs.runs, *again])
    for position in range(logs.source_end + 2):
        there = found.target_of(position, logs.target_end)
        assert read(logs.target, there) == read(logs.source, position)
        # It is a record's own offset, or the end: so a group that has read all has no lag.
        assert there in logs.target or there == logs.target_end


@given(mirrored())
def test_ranges_of_an_offset_map_are_joined_only_if_adjacent_at_source_and_target(logs):
    runs = in_order(logs.runs)
    assert [(run.source + n, run.target + n) for run in runs for n in range(run.count)] == [
        (record, offset) for offset, record in sorted(logs.target.items())
    ]
    for before, after in pairwise(runs):
        assert (before.source + before.count, before.target + before.count) != (after.source, after.target)


def test_an_offset_without_a_record_is_translated_to_the_next_records_target_offset():
    found = PartitionMap([Run(0, 0, 3), Run(5, 4, 2), Run(10, 6, 1)])
    assert [found.target_of(each, 9) for each in (0, 2, 3, 4, 5, 6, 7, 9, 10, 11, 500)] == [
        *(0, 2),
        *(4, 4),
        *(4, 5),
        *(6, 6),
        *(6, 9),
        9,
    ]


def test_in_a_partition_without_records_offsets_are_translated_to_the_targets_end():
    assert PartitionMap([]).target_of(12, 0) == 0
    assert PartitionMap([]).target_of(0, 3) == 3


@pytest.mark.parametrize(
    "runs",
    [
        [Run(0, 0, 3), Run(2, 5, 1)],  # one record, two places
        [Run(0, 0, 3), Run(3, 2, 1)],  # two records, one place
        [Run(0, 10, 3), Run(7, 4, 1)],  # the order is another
        [Run(0, 0, 0)],
        [Run(-1, 0, 1)],
    ],
)
def test_an_offset_map_whose_ranges_contradict_each_other_raises_map_damaged(runs):
    with pytest.raises(MapDamaged):
        PartitionMap(runs)


def test_an_offset_map_that_goes_beyond_the_targets_end_raises():
    with pytest.raises(MapDamaged, match="made again"):
        PartitionMap([Run(0, 0, 3)]).target_of(0, 2)

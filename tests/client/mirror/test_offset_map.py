"""The map of offsets: its bytes, and its runs."""

import pytest
from fencepost.client.errors import IllegalStateError
from fencepost.client.mirror.offset_map import (
    FULL,
    Entry,
    EntryKey,
    Run,
    add_run,
    decode_entry,
    decode_key,
    encode_entry,
    encode_key,
    entries_of,
)
from hypothesis import given
from hypothesis import strategies as st

KEY = EntryKey("default", "orders", bytes(15) + b"\x07", 3, 41)


def runs_of(first: int, steps: list[tuple[int, int, int]]) -> tuple[Run, ...]:
    """Return the runs with these gaps before them on source and target, and these counts."""
    source, target, runs = first, 0, list[Run]()
    for source_gap, target_gap, count in steps:
        runs.append(Run(source + source_gap, target + target_gap, count))
        source, target = source + source_gap + count, target + target_gap + count
    return tuple(runs)


STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 9)))


def test_an_encoded_map_key_decodes_to_an_equal_key() -> None:
    assert decode_key(encode_key(KEY)) == KEY
    assert encode_key(KEY) == (
        b'{"mirror":"default","topic":"orders","topic_id":"00000000000000000000000000000007","partition":3,"offset":41}'
    )


@given(st.integers(0, 1 << 40), STEPS)
def test_an_encoded_map_entry_decodes_to_an_equal_entry(first: int, steps: list[tuple[int, int, int]]) -> None:
    entry = Entry(first + 1000, runs_of(first, steps))
    assert decode_entry(first, encode_entry(first, entry)) == entry


@pytest.mark.parametrize("value", [b"", b"null", b"{}", b'{"version":2,"end":1,"runs":[]}', b"\xff"])
def test_decoding_bytes_that_are_no_map_key_or_entry_raises_illegal_state(value: bytes) -> None:
    with pytest.raises(IllegalStateError):
        decode_entry(0, value)
    with pytest.raises(IllegalStateError):
        decode_key(value)


def test_records_with_consecutive_offsets_at_source_and_target_are_one_range() -> None:
    runs: list[Run] = []
    for source, target in [(4, 0), (5, 1), (7, 2), (8, 4), (9, 5)]:
        add_run(runs, source, target)
    assert runs == [Run(4, 0, 2), Run(7, 2, 1), Run(8, 4, 2)]


@pytest.mark.parametrize("count", [0, 1, FULL, FULL + 1, 3 * FULL])
def test_many_ranges_of_offsets_are_divided_into_map_entries_without_gaps(count: int) -> None:
    runs = runs_of(10, [(1, 0, 2)] * count)
    found = entries_of(10, 10_000, runs)
    assert [run for _, entry in found for run in entry.runs] == list(runs)
    assert [first for first, _ in found][1:] == [entry.end for _, entry in found][:-1]
    assert found[0][0] == 10
    assert found[-1][1].end == 10_000
    assert all(len(entry.runs) <= FULL for _, entry in found)

"""Which aborted transactions a read_committed reader must skip, compared with the definition over random histories."""

import pytest
from fencepost.protocol.batches import read
from fencepost.protocol.records import Marker, control_marker
from fencepost.storage.producers.aborted import (
    TXN_ENTRY,
    AbortedTransaction,
    TransactionSpans,
    by_first_offset,
    overlapping,
    pack,
    unpack,
)
from hypothesis import given
from hypothesis import strategies as st
from raw_batches import batch

OFFSETS = st.integers(0, 30)


def history(steps: list[tuple[int, str]]) -> list[AbortedTransaction]:
    """Return the aborted transactions after these steps: (producer, what it writes), each at the next offset from 0."""
    begun: dict[int, int] = {}
    aborted = []
    for offset, (producer, step) in enumerate(steps):
        if step == "data":
            begun.setdefault(producer, offset)
        elif producer in begun:
            first = begun.pop(producer)
            if step == "abort":
                stable = min(begun.values(), default=offset + 1)
                aborted.append(AbortedTransaction(producer, first, offset, stable))
    return aborted


HISTORIES = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["data", "data", "abort", "commit"])), max_size=30)


@given(HISTORIES.map(history), OFFSETS, st.integers(1, 60))
def test_overlapping_finds_aborted_transactions_with_an_offset_in_the_range(entries, offset, length):
    below = offset + length
    wanted = [each for each in entries if each.last_offset >= offset and each.first_offset < below]
    assert overlapping(entries, offset, below)[0] == wanted


@given(HISTORIES.map(history), OFFSETS, st.integers(1, 60), st.integers(0, 50))
def test_if_overlapping_says_it_is_over_later_entries_do_not_change_its_result(entries, offset, length, known):
    below = offset + length
    found, is_over = overlapping(entries[:known], offset, below)
    if is_over:
        assert found == overlapping(entries, offset, below)[0]


def test_overlapping_is_over_at_an_entry_whose_stable_offset_is_past_the_range():
    entries = [AbortedTransaction(7, 10, 20, 21), AbortedTransaction(8, 30, 40, 41)]
    assert overlapping(entries, 0, 21) == (entries[:1], True)
    assert overlapping(entries, 0, 5) == ([], True)
    assert overlapping(entries, 0, 22) == (entries[:1], True)
    assert overlapping(entries[:1], 0, 22) == (entries[:1], False)


def test_overlapping_finds_nested_aborted_transactions_only_if_they_meet_the_range():
    entries = [AbortedTransaction(7, 3, 5, 0), AbortedTransaction(8, 0, 9, 10)]
    assert overlapping(entries, 4, 10)[0] == entries
    assert overlapping(entries, 6, 10)[0] == entries[1:]


def test_overlapping_continues_after_an_entry_that_an_open_transaction_overlapped():
    entries = [AbortedTransaction(7, 12, 20, 10), AbortedTransaction(8, 10, 30, 31)]
    assert overlapping(entries, 0, 15) == (entries, True)
    assert overlapping(entries, 0, 11) == (entries[1:], True)
    assert overlapping(entries, 0, 10) == ([], True)
    assert overlapping(entries[1:], 0, 10) == ([], True)


def test_by_first_offset_sorts_aborted_transaction_entries_by_their_first_offset():
    entries = [AbortedTransaction(1, 30, 40, 0), AbortedTransaction(2, 20, 50, 51), AbortedTransaction(3, 0, 60, 61)]
    assert [each.producer_id for each in sorted(entries, key=by_first_offset)] == [3, 2, 1]


def test_aborted_transaction_entries_survive_a_round_trip():
    entries = [AbortedTransaction(1, 2, 3, 4), AbortedTransaction(2**40, 0, 9, 5)]
    assert unpack(pack(entries)) == entries


@pytest.mark.parametrize("version", [-1, 1, 2, 2**15 - 1])
def test_an_aborted_transaction_entry_of_another_version_is_refused(version):
    entry = TXN_ENTRY.pack(version, 1, 2, 3, 4)
    with pytest.raises(ValueError, match=f"version {version}"):
        unpack(pack([AbortedTransaction(1, 2, 3, 4)]) + entry)


def followed(*steps):
    """Return what follow() returns for each of these batches, at offsets from 0: (producer, "data" of a transaction,
    "plain" or a marker).
    """
    spans, found = TransactionSpans(), []
    for offset, (producer_id, step) in enumerate(steps):
        if isinstance(step, Marker):
            sent = bytearray(control_marker(step, producer_id, 0, 0, 1_000))
        else:
            bits = 0x10 if step == "data" else 0
            sent = bytearray(batch(attributes=bits, producer_id=producer_id, producer_epoch=0, base_sequence=0))
        sent[:8] = offset.to_bytes(8, "big")
        found.append(spans.follow(read(memoryview(sent))))
    return found


def test_an_aborted_entry_has_its_first_and_marker_offsets_and_the_new_stable_offset():
    found = followed((7, "data"), (8, "data"), (7, "data"), (7, Marker.ABORT), (8, Marker.ABORT), (7, Marker.ABORT))
    assert [each for each in found if each] == [AbortedTransaction(7, 0, 3, 1), AbortedTransaction(8, 1, 4, 5)]
    assert pack(filter(None, found))  # these entries can be packed


def test_commits_and_markers_without_records_add_no_aborted_transaction():
    found = followed((7, "data"), (7, Marker.COMMIT), (7, Marker.ABORT), (8, "plain"), (8, Marker.ABORT))
    assert found == [None] * 5

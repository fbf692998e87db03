"""What became of each record: told in order, as soon as it is known."""

from fencepost.client.records.fates import (
    ABORT,
    ABORTED,
    COMMIT,
    COMMITTED,
    MARKER,
    OPEN,
    PLAIN,
    UNDECIDED,
    Entry,
    Fates,
)
from hypothesis import given
from hypothesis import strategies as st


def fed(fates: Fates, entries: list[Entry]) -> list[tuple[int, str]]:
    return [(each.offset, each.fate) for entry in entries for each in fates.feed(entry)]


def record(offset: int, producer_id: int = -1) -> Entry:
    return Entry(offset, producer_id, 0, transactional=producer_id >= 0)


def marker(offset: int, producer_id: int, word: str) -> Entry:
    return Entry(offset, producer_id, 0, True, marker=word)


def test_the_outcome_of_a_non_transactional_record_is_known_at_once() -> None:
    assert fed(Fates(), [record(0), record(1)]) == [(0, PLAIN), (1, PLAIN)]


def test_a_marker_decides_its_producers_records_since_the_producers_last_marker() -> None:
    entries = [record(0, 7), record(1, 8), marker(2, 7, COMMIT), record(3, 7), marker(4, 8, ABORT), marker(5, 7, ABORT)]
    assert fed(Fates(), entries) == [
        (0, COMMITTED),
        (1, ABORTED),
        (2, MARKER),
        (3, ABORTED),
        (4, MARKER),
        (5, MARKER),
    ]


def test_a_record_of_a_transaction_known_to_be_open_is_returned_at_once_as_open() -> None:
    fates = Fates({7: 3})
    assert fed(fates, [record(1, 7), marker(2, 7, COMMIT), record(3, 7), record(4)]) == [
        (1, COMMITTED),
        (2, MARKER),
        (3, OPEN),
        (4, PLAIN),
    ]


def test_at_the_end_of_the_log_records_without_a_marker_are_open() -> None:
    fates = Fates()
    assert fed(fates, [record(0, 7), record(1)]) == []
    assert [(each.offset, each.fate) for each in fates.rest()] == [(0, OPEN), (1, PLAIN)]
    assert list(fates.rest()) == []


steps = st.lists(st.tuples(st.sampled_from(["record", COMMIT, ABORT]), st.integers(-1, 3)), max_size=40)


@given(steps)
def test_entries_come_in_offset_order_as_committed_or_aborted_by_the_next_marker(
    script: list[tuple[str, int]],
) -> None:
    entries = [
        record(offset, producer) if what == "record" else marker(offset, max(producer, 0), what)
        for offset, (what, producer) in enumerate(script)
    ]

    def ahead(entry: Entry) -> str:
        if entry.marker:
            return MARKER
        if not entry.transactional:
            return PLAIN
        later = [each for each in entries[entry.offset + 1 :] if each.marker and each.producer_id == entry.producer_id]
        return OPEN if not later else COMMITTED if later[0].marker == COMMIT else ABORTED

    expected = [(each.offset, ahead(each)) for each in entries]
    fates = Fates()
    reported = fed(fates, entries) + [(each.offset, each.fate) for each in fates.rest()]
    assert reported == expected


@given(steps, st.integers(0, 40))
def test_records_whose_marker_was_not_read_are_undecided_or_known_to_be_open(
    script: list[tuple[str, int]], stop: int
) -> None:
    entries = [
        record(offset, producer) if what == "record" else marker(offset, max(producer, 0), what)
        for offset, (what, producer) in enumerate(script[:stop])
    ]
    fates = Fates()
    reported = fed(fates, entries) + [(each.offset, each.fate) for each in fates.rest({1: 5}, at_end=False)]
    assert [offset for offset, _ in reported] == list(range(len(entries)))
    for entry, (_, fate) in zip(entries, reported, strict=True):
        ended = any(each.marker and each.producer_id == entry.producer_id for each in entries[entry.offset + 1 :])
        if entry.transactional and not entry.marker and not ended:
            assert fate == (OPEN if entry.producer_id == 1 and entry.offset >= 5 else UNDECIDED)
        else:
            assert fate not in (OPEN, UNDECIDED)


def test_an_entry_that_the_broker_listed_as_aborted_is_returned_as_aborted_at_once() -> None:
    entry = Entry(0, 7, 0, True, fate=ABORTED)
    assert fed(Fates(), [entry, marker(1, 7, COMMIT)]) == [(0, ABORTED), (1, MARKER)]

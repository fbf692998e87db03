"""Rounds in flight at the same time: the loop begins them, each is synced by itself, and they are finished in order.

A unit is an entry of the journal; a round is the units of one write.
"""

import errno
import os

import pytest
from fencepost.storage.journal.reading import rounds
from fencepost.storage.journal.scan import scan
from journal_driver import BLOCK, DIRECTORY, Driven, recovered
from step_writer import StepWriter


def begun(driven, writer, data):
    """Return a round of one unit that the writer has."""
    driven.append(data)
    write = driven.journal.take_round(sync=True)
    assert write.begin(writer, lambda error: None)
    return write


@pytest.fixture
def driven(disk):
    """A journal whose first file has room for several rounds."""
    return Driven(disk, first_file_bytes=16 * BLOCK, largest_file_bytes=16 * BLOCK, max_bytes=128 * BLOCK)


@pytest.fixture
def writer():
    return StepWriter()


@pytest.fixture
def three(driven, writer):
    return [begun(driven, writer, data) for data in (b"one", b"two", b"three")]


def test_journal_rounds_whose_writes_end_out_of_order_can_only_be_finished_in_order(driven, writer, three):
    journal, (one, two, three) = driven.journal, three
    writer.steps[1].end()
    assert (one.done, two.done) == (False, True)
    with pytest.raises(RuntimeError, match="cannot be released"):
        journal.finished(two)
    assert (journal.released_unit, journal.synced_unit) == (0, 0)
    writer.steps[0].end()
    journal.finished(one)
    assert (journal.released_unit, journal.synced_unit) == (1, 1)
    journal.finished(two)
    assert (journal.released_unit, journal.synced_unit) == (2, 2)
    writer.steps[2].end()
    journal.finished(three)
    assert [unit.data for unit in recovered(driven.disk.after_power_cut())] == [b"one", b"two", b"three"]


def test_finishing_a_journal_round_whose_write_was_not_reported_raises(driven, writer, three):
    writer.steps[0].write()
    writer.steps[0].sync()
    with pytest.raises(RuntimeError, match="cannot be released"):
        driven.journal.finished(three[0])


def test_taking_an_unsynced_journal_round_while_another_is_in_flight_raises(driven, writer):
    begun(driven, writer, b"synced")
    driven.append(b"written")
    with pytest.raises(RuntimeError, match="no round can begin"):
        driven.journal.take_round(sync=False)


def test_taking_a_journal_round_while_an_unsynced_one_is_in_flight_raises(driven):
    driven.append(b"written")
    driven.journal.take_round(sync=False)
    driven.append(b"synced")
    with pytest.raises(RuntimeError, match="no round can begin"):
        driven.journal.take_round(sync=True)


def test_an_unsynced_journal_round_is_not_written_by_the_async_writer(driven, writer):
    driven.append(b"written")
    assert not driven.journal.take_round(sync=False).begin(writer, lambda error: None)


def test_a_synced_journal_round_after_an_unsynced_round_syncs_both_rounds(driven, writer):
    """The async writer would sync only the bytes that it writes, so a worker writes and syncs this round."""
    driven.append(b"written")
    driven.round(sync=False)
    driven.append(b"synced")
    write = driven.journal.take_round(sync=True)
    assert not write.begin(writer, lambda error: None)
    write.run()
    driven.journal.finished(write)
    assert len(recovered(driven.disk.after_power_cut())) == 2
    begun(driven, writer, b"and then by itself")  # a round after it is written by the async writer again


def test_rounds_taken_after_an_unsynced_one_are_not_written_by_the_async_writer(driven, writer):
    driven.append(b"written")
    driven.round(sync=False)
    driven.append(b"synced")
    first = driven.journal.take_round(sync=True)
    driven.append(b"beside it")
    second = driven.journal.take_round(sync=True)
    assert not second.begin(writer, lambda error: None)
    second.run()
    first.run()
    driven.journal.finished(first)
    driven.journal.finished(second)
    assert len(recovered(driven.disk.after_power_cut())) == 3


def test_a_journal_round_that_spans_two_files_is_not_written_by_the_async_writer(driven, writer):
    while len(driven.files()) and driven.journal._room > 2 * BLOCK:
        driven.append(b"x" * 1000)
        driven.round()
    driven.append(b"the end of a file")
    driven.append(b"l" * (3 * BLOCK))
    assert not driven.journal.take_round(sync=True).begin(writer, lambda error: None)


def test_a_journal_round_smaller_than_from_bytes_is_not_written_by_the_async_writer(driven, writer):
    writer.from_bytes = BLOCK + 1
    driven.append(b"x" * 100)
    write = driven.journal.take_round(sync=True)
    assert not write.begin(writer, lambda error: None)
    write.run()
    driven.journal.finished(write)
    begun(driven, writer, b"x" * BLOCK)


@pytest.mark.parametrize("failing", range(3))
def test_after_a_failed_journal_round_neither_it_nor_a_later_round_can_be_finished(driven, writer, three, failing):
    refused = []
    writer.steps[failing].tell(OSError(errno.EIO, os.strerror(errno.EIO)))
    assert three[failing].failed
    for number in range(3):
        if number != failing:
            writer.steps[number].end()
    for write in three:
        try:
            driven.journal.finished(write)
        except RuntimeError:
            refused.append(write)
    assert refused == three[failing:]
    assert driven.journal.synced_unit == failing
    driven.append(b"more")
    with pytest.raises(RuntimeError, match="no round can begin"):
        driven.journal.take_round(sync=True)


def test_a_journal_round_header_names_no_round_still_in_flight_as_synced(driven, writer):
    driven.append(b"before")
    driven.round()
    begun(driven, writer, b"one")
    begun(driven, writer, b"two")
    for step in writer.steps:
        step.end()
    found = list(rounds(driven.disk, driven.files()[0]))
    before, one, two = (each.header for each in found)
    assert (one.synced_through, two.synced_through) == (before.round, before.round)


@pytest.mark.parametrize("kept", range(8))
def test_a_crash_with_rounds_in_flight_keeps_those_before_the_first_missing_one(driven, writer, three, kept):
    """A missing later round is not reported as damage."""
    for number in range(3):
        writer.steps[number].write()
        if kept & 1 << number:
            writer.steps[number].sync()
            writer.steps[number].tell()
    whole = next((number for number in range(3) if not kept & 1 << number), 3)
    found = scan(driven.disk.after_power_cut(), DIRECTORY)
    assert found.last_unit == whole
    assert found.highest_unit == max((number + 1 for number in range(3) if kept & 1 << number), default=found.last_unit)


def test_journal_unit_numbers_of_rounds_lost_after_a_missing_one_are_not_reused(driven, writer, three):
    writer.steps[2].end()
    again = Driven(driven.disk.after_power_cut(), fill=False)
    assert again.append(b"new") == 4


def test_a_sync_job_leaves_out_files_that_a_synced_journal_round_in_flight_covers(driven, writer):
    driven.append(b"written")
    driven.round(sync=False)
    assert driven.journal.sync_job() is not None
    driven.append(b"synced")
    first = driven.journal.take_round(sync=True)
    first.run()
    driven.append(b"beside")
    second = driven.journal.take_round(sync=True)
    assert driven.journal.sync_job() is None
    driven.journal.finished(first)
    assert driven.journal.sync_job() is None
    second.run()
    driven.journal.finished(second)
    assert driven.journal.sync_job() is None


def test_open_bytes_counts_appended_journal_units_until_their_round_is_taken(driven, writer):
    assert driven.journal.open_bytes == 0
    driven.append(b"x" * 1000)
    first = driven.journal.open_bytes
    assert first >= 1000
    driven.append(b"x" * 1000)
    assert driven.journal.open_bytes == 2 * first
    driven.journal.take_round(sync=True)
    assert driven.journal.open_bytes == 0

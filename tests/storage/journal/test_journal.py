"""The running journal: units, rounds, releases, and journal files that are prepared, reused or refused.

A unit is an entry of the journal; a round is the units of one write.
"""

import pytest
from disk_files import read
from fencepost.effects.disk import SystemDisk
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage.journal import format as journal_format
from fencepost.storage.journal.journal import APPEND, CREATE, DROP, LOG_START, Journal, Part, UnitRefused
from fencepost.storage.journal.reading import rounds
from fencepost.storage.journal.scan import scan
from journal_driver import BLOCK, DIRECTORY, HEAD, SMALL, Driven, fill_up, recovered

# ---- units ---------------------------------------------------------------------------------------------------


def test_a_journal_unit_of_several_parts_reads_back_as_it_was_written(disk, driven):
    parts = [
        Part(APPEND, 3, 40, (b"head", memoryview(b"rest"))),
        Part(LOG_START, 2**63 + 5, 12, ()),
        Part(CREATE, 9, 0, (b"msgpack",)),
        Part(DROP, 4, 0, ()),
    ]
    driven.journal.append(parts)
    driven.round()
    (unit,) = scan(disk, DIRECTORY).units()
    assert (unit.number, unit.incarnation, unit.path) == (1, 1, driven.files()[0])
    assert [(p.kind, p.log_id, p.offset, b"".join(p.data)) for p in unit.parts] == [
        (APPEND, 3, 40, b"headrest"),
        (LOG_START, 2**63 + 5, 12, b""),
        (CREATE, 9, 0, b"msgpack"),
        (DROP, 4, 0, b""),
    ]
    size = journal_format.unit_bytes(unit.parts)
    assert read(disk, unit.path)[unit.position : unit.position + 4] == (size - 8).to_bytes(4, "big")


def test_append_batch_writes_the_same_journal_bytes_as_append():
    files = []
    for fast in (True, False):
        disk = SimulatedDisk()
        driven = Driven(disk)
        if fast:
            driven.journal.append_batch(7, 99, HEAD, memoryview(b"rest"))
        else:
            driven.journal.append([Part(APPEND, 7, 99, (HEAD, b"rest"))])
        driven.round()
        files.append(read(disk, driven.files()[0]))
    assert files[0] == files[1]


def test_journal_units_are_numbered_without_gaps_also_over_a_restart(disk, driven):
    assert [driven.append(b"x") for _ in range(3)] == [1, 2, 3]
    assert driven.journal.last_unit == 3
    driven.round()
    again = Driven(disk)
    assert again.append(b"y") == 4


def test_an_empty_or_too_large_journal_unit_is_refused_and_changes_nothing(driven):
    part = Part(DROP, 1, 0, ())
    for parts in ([], [part] * 50_001, [Part(CREATE, 1, 0, (bytes(16 << 20), b"x"))]):
        with pytest.raises(UnitRefused):
            driven.journal.append(parts)
    assert not driven.journal.pending
    assert driven.journal.next_unit == 1


@pytest.mark.slow
def test_a_journal_unit_of_50_000_parts_reads_back(disk):
    driven = Driven(disk, max_bytes=8 << 20)
    driven.room(50_000 * 21 + 24)
    driven.journal.append([Part(DROP, number, 0, ()) for number in range(50_000)])
    driven.round()
    (unit,) = scan(disk, DIRECTORY).units()
    assert [part.log_id for part in unit.parts] == list(range(50_000))


# ---- rounds --------------------------------------------------------------------------------------------------


def test_a_unit_is_released_after_its_write_and_counts_as_synced_after_its_sync(driven):
    journal = driven.journal
    driven.append(b"one")
    assert (journal.released_unit, journal.synced_unit, journal.pending) == (0, 0, True)
    write = journal.take_round(sync=False)
    assert (journal.released_unit, journal.pending) == (0, False)
    write.run()
    journal.finished(write)
    assert (journal.released_unit, journal.synced_unit) == (1, 0)
    driven.round(sync=True)
    assert (journal.released_unit, journal.synced_unit) == (1, 1)


def test_journal_units_that_arrive_while_a_round_is_in_flight_form_the_next_round(driven):
    journal = driven.journal
    driven.append(b"one")
    write = journal.take_round(sync=True)
    driven.append(b"two")
    write.run()
    journal.finished(write)
    assert (journal.released_unit, journal.pending) == (1, True)
    driven.round()
    assert journal.released_unit == 2
    assert [unit.data for unit in recovered(driven.disk)] == [b"one", b"two"]


def test_finishing_a_journal_round_that_was_not_written_raises_and_releases_nothing(driven):
    driven.append(b"one")
    write = driven.journal.take_round(sync=True)
    with pytest.raises(RuntimeError, match="cannot be released"):
        driven.journal.finished(write)
    assert driven.journal.released_unit == 0


def test_take_round_without_units_returns_none_or_an_empty_round_if_sync_is_true(driven):
    assert driven.journal.take_round(sync=False) is None
    write = driven.round(sync=True)
    assert (write.size_bytes, write.through_unit) == (0, 0)


def test_each_journal_round_begins_on_a_block_and_is_written_in_whole_blocks(disk, driven):
    for size in (10, 5000, 3):
        driven.append(b"x" * size)
        done = len(disk.operations)
        write = driven.round()
        written = [len(one.data) for one in disk.operations[done:] if type(one).__name__ == "Write"]
        assert sum(written) == write.size_bytes
        assert all(length % BLOCK == 0 for length in written)
    found = [one.position for path in driven.files() for one in rounds(disk, path)]
    assert all(position % BLOCK == 0 for position in found)


def test_a_large_journal_round_without_a_sync_is_written_in_slices_of_a_mib(disk):
    driven = Driven(disk, max_bytes=64 << 20, largest_file_bytes=8 << 20)
    driven.room(5_000_000)
    data = bytes(range(256)) * 18_000
    driven.append(data)
    begun = len(disk.operations)
    driven.round(sync=False)
    writes = [one for one in disk.operations[begun:] if type(one).__name__ == "Write"]
    assert all(len(one.data) <= 1 << 20 for one in writes)
    writes = [one for one in writes if one.path == writes[-1].path]
    assert len(writes) == 5
    assert all((one.position + len(one.data)) % (1 << 20) == 0 for one in writes[:-1])
    assert [unit.data for unit in recovered(disk)] == [data]


@pytest.mark.slow
@pytest.mark.parametrize("units", [500, 2000])
def test_a_journal_round_of_many_small_units_is_one_write_and_one_sync(disk, units):
    driven = Driven(disk, max_bytes=8 << 20, first_file_bytes=1 << 20, largest_file_bytes=1 << 20)
    for number in range(units):
        driven.append(b"%d" % number)
    begun = len(disk.operations)
    driven.round()
    assert [type(one).__name__ for one in disk.operations[begun:]] == ["Write", "Sync"]
    assert len(recovered(disk)) == units


# ---- reuse ---------------------------------------------------------------------------------------------------


def test_journal_files_are_reused_once_all_their_units_were_given_to_recycle(disk, driven):
    for lap in range(8):
        fill_up(driven, 10)
        driven.journal.recycle(driven.journal.last_unit - 3)
        driven.fill()
        assert sum(disk.size(path) for path in driven.files()) <= 64 * BLOCK, lap  # max_bytes of driven
    result = scan(disk, DIRECTORY)
    assert any(found.header.recycled for found in result.files)
    numbers = [unit.number for unit in result.units()]
    assert numbers == list(range(numbers[0], 81))
    assert numbers[0] <= 78
    assert [unit.number for unit in result.units(above=77)] == [78, 79, 80]


def test_journal_files_with_units_above_the_one_given_to_recycle_are_not_reused(disk, driven):
    fill_up(driven)
    driven.journal.recycle(5)
    driven.fill()
    assert [unit.number for unit in recovered(disk)][-19:] == list(range(6, 25))


def test_journal_files_with_unsynced_units_are_not_reused(disk, driven):
    for _ in range(12):
        driven.append(b"x" * 3000)
        driven.round(sync=False)
    before = driven.files()
    driven.journal.recycle(12)
    driven.fill()
    assert driven.files()[: len(before)] == before


def test_a_journal_file_is_kept_until_the_next_one_has_a_written_round(disk, driven):
    driven.append(b"a" * 3000)
    driven.round()
    driven.append(b"b" * 3000)  # closes the first file, but its round is not even written
    driven.journal.recycle(1)
    assert driven.journal._files.held[0].sequence == 1
    driven.round()
    driven.journal.recycle(1)
    assert driven.journal._files.held[0].sequence == 2


def test_a_journal_file_is_kept_until_the_round_after_it_is_synced(driven):
    driven.append(b"a" * 3000)
    driven.round()
    driven.append(b"b" * 3000)
    driven.round(sync=False)
    driven.journal.recycle(1)
    assert driven.journal._files.held[0].sequence == 1
    driven.seal()
    driven.journal.recycle(1)
    assert driven.journal._files.held[0].sequence == 2


def test_old_units_in_a_reused_journal_file_are_not_recovered(disk, driven):
    fill_up(driven)
    driven.journal.recycle(24)
    driven.fill()
    stale = [path for path in driven.files() if b"x" * 3000 in read(disk, path)]
    assert stale
    fill_up(driven, 5)
    found = scan(disk, DIRECTORY)
    numbers = [unit.number for unit in found.units()]
    assert numbers == list(range(numbers[0], 30))
    assert found.cut_bytes == 0
    assert found.highest_unit == 29


# ---- a fresh journal -----------------------------------------------------------------------------------------


def test_creating_a_journal_removes_old_journal_files_of_its_directory_and_no_others(disk, driven):
    fill_up(driven)
    disk.open(f"{DIRECTORY}/{7:020d}.journal.preparing", create=True).close()
    disk.open(f"{DIRECTORY}/notes", create=True).close()
    again = Driven(disk, fill=False)
    first, notes = again.files()
    assert first.endswith(".journal")
    assert notes.endswith("notes")
    assert recovered(disk) == []


def test_a_new_journals_first_file_survives_a_power_cut(disk):
    disk.make_directory(DIRECTORY)
    disk.sync_directory("/")
    Journal(disk, DIRECTORY, incarnation=3, next_unit=50, next_round=20, **SMALL)
    found = scan(disk.after_power_cut(), DIRECTORY)
    assert (found.incarnation, found.highest_unit, found.highest_round) == (3, 49, 19)


def test_a_journal_on_a_real_disk_recovers_every_unit(tmp_path):
    """The files are of the real file system, and each is reused several times."""
    disk = SystemDisk()
    directory = str(tmp_path)
    journal = Journal(disk, directory, incarnation=1, next_unit=1, next_round=1, **SMALL)
    for _ in range(30):
        while not journal.admits(6016):
            journal.recycle(journal.synced_unit)
            job = journal.fill_job()
            job.run()
            journal.filled(job)
        journal.append_batch(1, 0, HEAD, memoryview(bytes(6000)))
        write = journal.take_round(sync=True)
        write.run()
        journal.finished(write)
    journal.close()
    result = scan(disk, directory)
    assert [unit.number for unit in result.units()][-1] == result.last_unit == 30
    assert result.cut_bytes == 0


def test_unit_bytes_equals_the_size_of_the_framed_journal_unit(disk, driven):
    parts = [Part(CREATE, 1, 0, (b"abc", b"de")), Part(DROP, 1, 0, ())]
    framed = journal_format.frame_unit(1, 1, parts)
    assert sum(map(len, framed)) == journal_format.unit_bytes(parts)

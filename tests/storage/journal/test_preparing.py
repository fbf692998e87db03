"""Preparing journal files: their sizes, which units they admit, a full disk, and only one preparation at a time.

A unit is an entry of the journal; a round is the units of one write. A prepared file is ready: it is filled with zeros.
"""

import pytest
from fencepost.effects.disk import DiskFull
from fencepost.storage.journal.journal import UnitRefused
from fencepost.storage.journal.scan import scan
from journal_driver import BLOCK, DIRECTORY, HEAD, Driven, fill_up, recovered


def test_journal_files_double_in_size_up_to_the_largest_within_max_bytes(disk):
    driven = Driven(disk, first_file_bytes=4 * BLOCK, largest_file_bytes=16 * BLOCK, max_bytes=128 * BLOCK)
    for _ in range(200):
        if not driven.journal.admits(3000):
            break
        driven.append(b"x" * 2900)
        driven.round()
        driven.fill()
    sizes = [disk.size(path) // BLOCK for path in driven.files()]
    assert sizes == [4, 8, *[16] * 7]
    assert sum(sizes) <= 128


def test_a_unit_larger_than_all_ready_files_is_admitted_once_a_file_is_made_for_it(disk, driven):
    """Until then it is refused and changes nothing."""
    journal = driven.journal
    large = b"l" * (20 * BLOCK)
    driven.append(b"small")
    assert not journal.admits(len(large) + 16)
    with pytest.raises(UnitRefused):
        journal.append_batch(7, 0, HEAD, memoryview(large))
    assert journal.next_unit == 2
    driven.fill()
    assert journal.admits(len(large) + 16)
    driven.append(large)
    driven.append(b"a" * BLOCK)
    driven.round()
    units = list(scan(disk, DIRECTORY).units())
    assert len({unit.path for unit in units}) == 3
    assert [unit.data for unit in recovered(disk)] == [b"small", large, b"a" * BLOCK]


def test_the_journal_admits_a_unit_that_just_fits_and_no_larger_one(disk):
    driven = Driven(disk, fill=False)
    room = driven.journal._room
    # A unit has 45 bytes before its batch; HEAD is 16 bytes of the batch.
    assert driven.journal.admits(room - 45)
    assert not driven.journal.admits(room - 44)
    driven.journal.append_batch(7, 0, HEAD, memoryview(bytes(room - 61)))
    assert not driven.journal.admits(0)
    driven.round()
    assert len(recovered(disk)) == 1


def test_a_unit_above_the_largest_possible_journal_file_is_never_admitted(driven):
    journal = driven.journal
    assert journal.largest_unit_bytes < 32 * BLOCK
    for size in (journal.largest_unit_bytes + 1, 1 << 40):
        assert not journal.admits(size)
        driven.fill()
        assert not journal.admits(size)


def test_largest_journal_units_are_admitted_repeatedly_within_max_bytes_by_recycling(disk, driven):
    journal = driven.journal
    size = journal.largest_unit_bytes
    for number in range(4):
        driven.append(b"s")
        driven.round()
        journal.recycle(journal.synced_unit)
        journal.admits(size)  # if False, it asks for a file of that size
        driven.fill()
        assert journal.admits(size)
        journal.append_batch(7, 0, HEAD, memoryview(bytes([number]) * (size - 16)))
        driven.round()
        assert sum(disk.size(path) for path in driven.files()) <= 64 * BLOCK  # max_bytes of driven
    assert recovered(disk)[-1].data == b"\3" * (size - 16)


def test_ready_files_are_replaced_by_a_larger_one_without_a_gap_in_their_numbers(disk, driven):
    journal = driven.journal
    fill_up(driven)
    journal.recycle(24)
    driven.fill()
    ready = len(journal._files.ready)
    assert not journal.admits(journal.largest_unit_bytes)
    journal.fill_job().run()
    driven.fill()
    assert len(journal._files.ready) < ready
    driven.append(b"a" * (journal.largest_unit_bytes - 16))
    driven.round()
    assert len(recovered(disk)[-1].data) == journal.largest_unit_bytes - 16
    journal.recycle(24)
    driven.fill()
    driven.append(b"b" * 3000)
    driven.round()
    assert [len(unit.data) for unit in recovered(disk)][-2:] == [journal.largest_unit_bytes - 16, 3000]
    assert sum(disk.size(path) for path in driven.files()) <= 64 * BLOCK  # max_bytes of driven


def test_small_journal_units_are_admitted_while_a_large_one_waits_for_space(driven):
    journal = driven.journal
    for _ in range(24):
        driven.append(b"x" * 3000)
        driven.round()
    assert not journal.admits(journal.largest_unit_bytes)
    driven.fill()
    assert not journal.admits(journal.largest_unit_bytes)
    assert journal.admits(100)
    assert driven.ready_bytes > 8 * BLOCK


def test_is_ready_for_is_false_only_while_a_file_of_that_size_can_still_be_made(driven):
    journal = driven.journal
    size = journal.largest_unit_bytes
    assert not journal.is_ready_for(size)
    driven.fill()
    assert journal.is_ready_for(size)
    assert journal.admits(size)
    assert journal.is_ready_for(size + 1), "it may be of many batches, each of which fits"


def test_on_a_full_disk_is_ready_for_is_true_so_that_no_request_waits(disk, driven):
    """admits() is false, so a request of that size is refused when it is appended, instead of waiting for space."""
    journal = driven.journal
    size = journal.largest_unit_bytes
    assert not journal.is_ready_for(size)
    disk.capacity_bytes = 1
    with pytest.raises(DiskFull):
        driven.fill()
    journal.fill_job()  # takes note that the job before it failed
    assert journal.is_ready_for(size)
    assert not journal.admits(size)


def test_a_max_bytes_too_small_for_a_journal_raises_value_error(disk):
    with pytest.raises(ValueError, match="too small"):
        Driven(disk, max_bytes=16 * BLOCK)


def test_on_a_full_disk_journal_units_are_admitted_only_until_the_ready_file_is_full(disk):
    """The part of the next file that was filled with zeros is used too. Once the disk has space, units are admitted
    again.
    """
    driven = Driven(disk, fill=False)
    used = sum(disk.size(path) for path in driven.files())
    disk.capacity_bytes = used + BLOCK
    job = driven.journal.fill_job()
    with pytest.raises(DiskFull):
        job.run()
    driven.journal.filled(job)
    assert len(driven.files()) == 1
    assert driven.journal.admits(100)  # the part of the file that is filled with zeros can be used
    driven.append(bytes(driven.journal._room - 61))  # 61: what the unit has besides these bytes
    driven.round()
    assert not driven.journal.admits(100)
    assert not driven.journal.nearly_full  # waiting would not help: the broker must refuse, not stop reading
    disk.capacity_bytes = None
    driven.fill()
    assert driven.journal.admits(100)
    driven.append(b"after")
    driven.round()
    assert len(recovered(disk)) == 2


def test_a_new_journal_file_that_does_not_fit_on_the_disk_is_removed(disk):
    driven = Driven(disk, fill=False)
    fault = disk.fail(lambda one: type(one).__name__ == "Write", error=28, after_bytes=100)
    job = driven.journal.fill_job()
    with pytest.raises(DiskFull):
        job.run()
    assert fault.hits == 1
    assert len(driven.files()) == 1
    driven.fill()
    assert len(driven.files()) == 3


def test_after_a_journal_file_did_not_fit_on_the_disk_the_next_is_made_smaller(disk):
    driven = Driven(disk, fill=False, first_file_bytes=4 * BLOCK, largest_file_bytes=16 * BLOCK, max_bytes=128 * BLOCK)
    disk.capacity_bytes = 9 * BLOCK
    with pytest.raises(DiskFull):
        driven.journal.fill_job().run()
    driven.journal.fill_job().run()
    assert [disk.size(path) // BLOCK for path in driven.files()] == [4, 4]


@pytest.mark.parametrize("kind", ["Rename", "Write", "Unlink"])
def test_recycled_journal_files_not_used_by_a_failed_fill_job_are_reused_by_the_next(disk, driven, kind):
    fill_up(driven)
    driven.journal.recycle(24)
    disk.fail(lambda one: type(one).__name__ == kind, error=28)
    job = driven.journal.fill_job()
    with pytest.raises(DiskFull if kind == "Write" else OSError):
        job.run()
    driven.journal.filled(job)
    driven.fill()
    driven.append(b"after")
    driven.round()
    assert recovered(disk)[-1] == (25, b"after")
    assert sum(found.header.recycled for found in scan(disk, DIRECTORY).files) >= 3  # 3 to 5, by kind


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Rename", "Write"])
def test_a_crash_in_the_fill_after_a_failed_one_leaves_no_gap_in_file_numbers(disk, driven, kind):
    """Files are reused in the order of their numbers, including those that the failed fill gave back."""
    fill_up(driven)
    driven.journal.recycle(24)
    disk.fail(lambda one: type(one).__name__ == kind, error=28)
    job = driven.journal.fill_job()
    with pytest.raises(OSError, match="space"):
        job.run()
    driven.journal.filled(job)
    first = len(disk.operations)
    driven.fill()
    assert len(disk.operations) > first
    for number in range(first, len(disk.operations) + 1):
        assert scan(disk.killed_at(number), DIRECTORY).last_unit == 24


def test_only_one_journal_file_is_prepared_at_a_time(driven):
    driven.append(b"x" * 3000)
    driven.append(b"x" * 3000)
    job = driven.journal.fill_job()
    assert job is not None
    assert driven.journal.fill_job() is None
    job.run()
    driven.fill()  # takes over the files of a job that has ended, although filled() was not called
    assert driven.ready_bytes > 0


def test_half_used_and_nearly_full_are_true_of_a_full_journal_until_it_is_recycled(driven):
    journal = driven.journal
    seen = []
    while journal.admits(3000):
        driven.append(b"x" * 2900)
        driven.round()
        driven.fill()
        seen.append((journal.half_used, journal.nearly_full))
    assert seen[0] == (False, False)
    assert seen[-1] == (True, True)
    assert seen == sorted(seen)
    journal.recycle(journal.synced_unit)
    driven.fill()
    assert (journal.half_used, journal.nearly_full) == (False, False)
    assert journal.admits(3000)

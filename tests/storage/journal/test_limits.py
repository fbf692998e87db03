"""A unit (journal entry) is never split between journal files: for each size it is whole in one file, or refused."""

import pytest
from disk_files import read
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage.journal.format import BATCH_HEAD_BYTES, BATCH_UNIT_BYTES, PREFIX_BYTES
from fencepost.storage.journal.journal import APPEND, Part, UnitRefused
from fencepost.storage.journal.scan import scan
from journal_driver import BLOCK, DIRECTORY, HEAD, Driven, found_units

AROUND = BATCH_UNIT_BYTES + BATCH_HEAD_BYTES  # the size of a unit of one batch without `rest`


def by_batch(journal, rest):
    return journal.append_batch(7, journal.next_unit, HEAD, rest)


def by_batches(journal, rest):
    return journal.append_batches([(7, journal.next_unit, HEAD, rest)])


def by_parts(journal, rest):
    return journal.append([Part(APPEND, 7, journal.next_unit, (HEAD, rest))])


WAYS = [by_batch, by_batches, by_parts]


def assert_each_is_in_one_file(disk):
    """Check that each unit, from its length and checksum to its last byte, is in the one file it begins in."""
    for unit in scan(disk, DIRECTORY).units():
        content = read(disk, unit.path)
        length = int.from_bytes(content[unit.position : unit.position + 4], "big")
        end = unit.position + PREFIX_BYTES + length
        assert BLOCK < unit.position < end <= len(content)
        assert content[:end].endswith(b"".join(unit.parts[-1].data))


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("way", WAYS, ids=lambda one: one.__name__)
def test_a_unit_one_byte_too_large_for_a_journal_file_goes_to_the_next_file(way, more):
    disk = SimulatedDisk()
    driven = Driven(disk, first_file_bytes=8 * BLOCK)
    driven.append(b"before")
    driven.round()
    assert driven.journal._room > AROUND + 1
    rest = bytes([1]) * (driven.journal._room - AROUND + more)
    way(driven.journal, rest)
    way(driven.journal, b"after")
    driven.round()
    units = list(scan(disk.after_power_cut(), DIRECTORY).units())
    assert [unit.data for unit in found_units(scan(disk.after_power_cut(), DIRECTORY))] == [b"before", rest, b"after"]
    assert (units[1].path == units[0].path) == (more <= 0)
    assert_each_is_in_one_file(disk)


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("way", WAYS, ids=lambda one: one.__name__)
def test_a_unit_one_byte_too_large_for_any_ready_file_is_refused_until_one_is_made(way, more):
    """The refusal changes nothing in the journal; a unit that just fits is written at once."""
    disk = SimulatedDisk()
    driven = Driven(disk)
    journal = driven.journal
    driven.append(b"before")
    rest = bytes([1]) * (max(file.capacity for file in journal._files.ready) - AROUND + more)
    if more > 0:
        before = journal.next_unit, journal._room, journal.next_round, len(driven.files())
        with pytest.raises(UnitRefused):
            way(journal, rest)
        assert (journal.next_unit, journal._room, journal.next_round, len(driven.files())) == before
        driven.fill()
    way(journal, rest)
    way(journal, b"after")
    driven.round()
    found = found_units(scan(disk.after_power_cut(), DIRECTORY))
    assert [unit.data for unit in found] == [b"before", rest, b"after"]
    assert_each_is_in_one_file(disk)


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("way", WAYS, ids=lambda one: one.__name__)
def test_a_journal_unit_one_byte_above_largest_unit_bytes_is_never_admitted(way, more):
    disk = SimulatedDisk()
    driven = Driven(disk)
    journal = driven.journal
    size = journal.largest_unit_bytes + more
    rest = bytes([1]) * (size - BATCH_HEAD_BYTES)
    assert not journal.admits(size)
    driven.fill()
    assert journal.admits(size) == (more <= 0)
    if more > 0:
        with pytest.raises(UnitRefused):
            way(journal, rest)
    else:
        way(journal, rest)
    driven.round()
    driven.fill()
    way(journal, b"after")
    driven.round()
    found = found_units(scan(disk.after_power_cut(), DIRECTORY))
    assert [unit.data for unit in found] == ([rest] if more <= 0 else []) + [b"after"]
    assert_each_is_in_one_file(disk)

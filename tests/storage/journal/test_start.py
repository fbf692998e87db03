"""Where a scan begins: after the files whose units a checkpoint covers, because those may never have been synced.

A unit is an entry of the journal; a round is the units of one write.
"""

import pytest
from fencepost.storage.journal.preparing import file_name
from fencepost.storage.journal.reading import JournalDamaged, rounds
from fencepost.storage.journal.scan import scan
from journal_driver import BLOCK, DIRECTORY, Driven, patch, small_disk


@pytest.fixture
def disk():
    return small_disk()


@pytest.fixture
def driven(disk):
    return Driven(disk)


def test_unsynced_journal_files_wholly_below_the_checkpoint_are_reused(disk, driven):
    for _ in range(12):
        driven.append(b"x" * 3000)
        driven.round(sync=False)
    start = driven.journal.start_after(8)
    driven.journal.recycle(8, start)
    driven.fill()
    assert driven.files()[0] == f"{DIRECTORY}/{file_name(start.file)}"
    known = {"checkpointed_unit": 8, "start": start}
    found = scan(disk.after_power_cut(), DIRECTORY, **known)
    assert (found.last_unit, found.cut_bytes) == (8, 0)
    assert [unit.number for unit in scan(disk, DIRECTORY, **known).units(above=8)] == [9, 10, 11, 12]
    driven.append(b"synced, and so is all before it")
    driven.round()
    found = scan(disk.after_power_cut(), DIRECTORY, **known, synced_unit=13)
    assert [unit.number for unit in found.units(above=8)] == [9, 10, 11, 12, 13]


def test_a_scan_whose_first_file_was_reused_begins_with_the_next_file(disk, driven):
    driven.append(b"a" * 3000)
    driven.round()
    start = driven.journal.start_after(1)
    assert start.file == 1
    driven.append(b"b" * 3000)
    driven.round()
    driven.journal.recycle(1, start)
    driven.fill()
    found = scan(disk.after_power_cut(), DIRECTORY, checkpointed_unit=1, synced_unit=2, start=start)
    assert [unit.number for unit in found.units()] == [2]


def test_start_after_names_the_next_journal_round_if_its_file_has_none_yet(disk, driven):
    driven.append(b"a" * 3000)
    driven.round()
    driven.append(b"b" * 3000)  # which begins a file
    start = driven.journal.start_after(1)
    driven.round(sync=False)
    driven.append(b"c" * 3000)
    driven.round(sync=False)
    assert next(rounds(disk, path_of(start))).header.round == start.round
    patch(disk, path_of(start), BLOCK, bytes(BLOCK))  # it did not reach the device
    assert scan(disk, DIRECTORY, checkpointed_unit=1, synced_unit=1, start=start).last_unit == 1


@pytest.fixture
def middle(disk, driven):
    """Return arguments for scan(): what a checkpoint says of a synced journal of many files. The scan begins with a
    file that has two rounds.
    """
    return begun_in_the_middle(disk, driven, sync=True)


def begun_in_the_middle(disk, driven, *, sync):
    for number in range(12):
        driven.append(b"x" * 2000)
        driven.round(sync=sync or not number)
    if sync:
        driven.seal()
    for unit in range(3, 12):
        start = driven.journal.start_after(unit)
        found = [one.header for one in rounds(disk, path_of(start)) if one.header.units]
        if len(found) > 1 and found[0].first_unit == unit + 1:
            return {"checkpointed_unit": unit, "start": start}
    raise AssertionError("there is no such file")


def path_of(start):
    return f"{DIRECTORY}/{file_name(start.file)}"


def test_a_scan_with_a_start_reads_only_journal_units_above_the_checkpoint(disk, middle):
    found = scan(disk, DIRECTORY, **middle)
    assert (found.first_unit, found.last_unit) == (middle["checkpointed_unit"] + 1, 12)


def test_a_missing_first_journal_round_of_a_scan_is_damage_if_a_later_one_was_synced(disk, middle):
    patch(disk, path_of(middle["start"]), BLOCK, bytes(BLOCK))
    with pytest.raises(JournalDamaged, match="was synced"):
        scan(disk, DIRECTORY, **middle)


def test_an_unsynced_first_journal_round_of_a_scan_may_be_missing(disk, driven):
    """The round after it says only that an older one was synced."""
    middle = begun_in_the_middle(disk, driven, sync=False)
    patch(disk, path_of(middle["start"]), BLOCK, bytes(BLOCK))
    found = scan(disk, DIRECTORY, **middle)
    assert found.last_unit == middle["checkpointed_unit"]
    assert found.highest_unit == 12


def test_a_scan_whose_start_names_another_round_than_the_file_has_is_damage(disk, middle):
    start = middle["start"]
    with pytest.raises(JournalDamaged, match=f"and not {start.round - 1} from"):
        scan(disk, DIRECTORY, **middle | {"start": start._replace(round=start.round - 1)})

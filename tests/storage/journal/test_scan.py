"""What a scan finds in a journal: units (entries; a round is those of one write) to recover, cut bytes, and damage."""

import tracemalloc

import pytest
from disk_files import read
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage.checkpoints import NewerFormat
from fencepost.storage.journal import format as form
from fencepost.storage.journal.reading import FoundFile, read_header, round_units, rounds
from fencepost.storage.journal.scan import JournalDamaged, scan
from journal_driver import BLOCK, DIRECTORY, HEAD, Driven, Found, patch, place, recovered, spoil


@pytest.fixture
def driven(disk):
    """A sealed journal of six rounds with one unit each: three small ones, then three of 1,000 bytes in a new file."""
    driven = Driven(disk, first_file_bytes=8 * BLOCK)
    for number in range(3):
        driven.append(b"%d" % number * 10)
        driven.round()
    for number in range(3, 6):
        driven.append(b"%d" % number * 1000)
        driven.round()
    driven.seal()
    return driven


ALL = [Found(n + 1, b"%d" % n * (10 if n < 3 else 1000)) for n in range(6)]


def lay_units(header, *units):
    return b"".join(b"".join(form.frame_unit(header.incarnation, *unit)) for unit in units)


# ---- what counts ---------------------------------------------------------------------------------------------


def test_an_empty_directory_is_an_empty_journal(disk):
    disk.make_directory(DIRECTORY)
    result = scan(disk, DIRECTORY)
    assert (result.files, result.incarnation, result.highest_unit, list(result.units())) == ([], 0, 0, [])


def test_an_undamaged_journal_is_read_in_order_and_completely(disk, driven):
    result = scan(disk, DIRECTORY)
    assert recovered(disk) == ALL
    assert (result.cut_bytes, result.cut_reason) == (0, "")
    assert (result.first_unit, result.last_unit, result.highest_unit, result.highest_round) == (1, 6, 6, 8)
    assert len({unit.path for unit in result.units()}) == 2


def test_a_scan_can_skip_journal_units_up_to_a_number(disk, driven):
    assert [unit.number for unit in scan(disk, DIRECTORY).units(above=4)] == [5, 6]
    assert list(scan(disk, DIRECTORY).units(above=6)) == []


def test_a_journal_scan_changes_no_file(disk, driven):
    before = disk.fingerprint()
    done = len(disk.operations)
    recovered(disk)
    assert (disk.fingerprint(), len(disk.operations)) == (before, done)


def test_a_scan_ignores_files_that_do_not_belong_to_the_journal(disk, driven):
    disk.open(f"{DIRECTORY}/7.journal", create=True).close()
    disk.open(f"{DIRECTORY}/{99:020d}.journal.preparing", create=True).close()
    disk.open(f"{DIRECTORY}/#a note before all others", create=True).close()
    disk.make_directory(f"{DIRECTORY}/{0:020d}.journal")
    assert recovered(disk) == ALL


@pytest.mark.parametrize("size", range(BLOCK - 140, BLOCK - 60, 4))
def test_a_journal_scan_finds_the_round_after_one_that_ends_near_a_block_boundary(disk, size):
    driven = Driven(disk, first_file_bytes=16 * BLOCK, largest_file_bytes=16 * BLOCK, max_bytes=128 * BLOCK)
    for data in (b"x" * size, b"behind"):
        driven.append(data)
        driven.round()
    assert recovered(disk) == [(1, b"x" * size), (2, b"behind")]
    assert [number for number, *_ in scan(disk, DIRECTORY).parts()] == [1, 2]


# ---- torn ----------------------------------------------------------------------------------------------------


def torn_tail(disk, damage):
    """Write two synced rounds and one unsynced round, damage the unsynced one, and return the scan."""
    driven = Driven(disk)
    driven.append(b"one")
    driven.round()
    driven.append(b"two")
    driven.round()
    driven.append(b"a" * 100)
    driven.append(b"b" * 100)
    driven.round(sync=False)
    path, position = place(disk, 3)
    damage(disk, path, position - form.ROUND_HEADER_BYTES)
    return scan(disk, DIRECTORY)


DAMAGES = {
    "header": lambda disk, path, start: spoil(disk, path, start + 20),
    "header all NUL": lambda disk, path, start: patch(disk, path, start, bytes(form.ROUND_HEADER_BYTES)),
    "first unit": lambda disk, path, start: spoil(disk, path, start + 100),
    "last unit": lambda disk, path, start: spoil(disk, path, start + 300),
    "units all NUL": lambda disk, path, start: patch(disk, path, start + form.ROUND_HEADER_BYTES, bytes(1000)),
    "garbage": lambda disk, path, start: patch(disk, path, start, bytes(range(256)) * 16),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_last_journal_round_not_known_as_synced_is_dropped_and_reported(disk, damage):
    result = torn_tail(disk, DAMAGES[damage])
    assert [unit.number for unit in result.units()] == [1, 2]
    assert result.last_unit == 2
    assert result.cut_bytes > 200
    assert "round 4" in result.cut_reason
    assert result.files[1].path in result.cut_reason


def test_a_last_journal_round_that_reads_as_zeros_is_not_reported_as_dropped(disk):
    result = torn_tail(disk, lambda disk, path, start: patch(disk, path, start, bytes(BLOCK)))
    assert (result.last_unit, result.cut_bytes, result.cut_reason) == (2, 0, "")


@pytest.mark.parametrize("damage", ["header", "first unit", "last unit"])
def test_journal_unit_numbers_of_a_dropped_round_are_not_used_again(disk, damage):
    result = torn_tail(disk, DAMAGES[damage])
    assert result.highest_unit == 4
    again = Driven(disk)
    assert again.append(b"new") == 5
    assert again.scan.highest_round == (3 if damage == "header" else 4)  # a damaged header does not say its number


def test_after_a_damaged_last_journal_round_new_rounds_go_to_a_new_file(disk):
    result = torn_tail(disk, DAMAGES["last unit"])
    newest = max(found.path for found in result.files)
    again = Driven(disk)
    again.append(b"new")
    done = len(disk.operations)
    again.round()
    written = {one.path for one in disk.operations[done:] if type(one).__name__ == "Write"}
    assert all(path > newest for path in written)


def test_unsynced_journal_rounds_after_a_damaged_one_are_dropped_with_it(disk):
    driven = Driven(disk, first_file_bytes=8 * BLOCK)
    for number in range(4):
        driven.append(b"%d" % number)
        driven.round(sync=number == 0)
    path, position = place(disk, 2)
    spoil(disk, path, position)
    result = scan(disk, DIRECTORY)
    assert [unit.number for unit in result.units()] == [1]
    assert (result.highest_unit, result.highest_round) == (4, 4)
    last = form.LEAST_UNIT_BYTES + len(HEAD) + len(b"3")
    assert result.cut_bytes == 2 * BLOCK + form.ROUND_HEADER_BYTES + last


def test_a_damaged_journal_round_drops_the_unsynced_units_of_the_next_file_too(disk):
    driven = Driven(disk)
    driven.append(b"safe")
    driven.round()
    for _ in range(3):
        driven.append(b"x" * 3500)
    driven.round(sync=False)
    path, position = place(disk, 2)
    spoil(disk, path, position)
    result = scan(disk, DIRECTORY)
    assert [unit.number for unit in result.units()] == [1]
    assert result.highest_unit == 4


# ---- rotten --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("part", ["header", "unit"])
def test_a_damaged_round_that_a_later_header_says_was_synced_raises_journal_damaged(disk, driven, unit, part):
    path, position = place(disk, unit)
    spoil(disk, path, position + (8 if part == "unit" else -form.ROUND_HEADER_BYTES + 5))
    before = disk.fingerprint()
    with pytest.raises(JournalDamaged) as damage:
        scan(disk, DIRECTORY)
    assert (damage.value.path, damage.value.position) == (path, position - form.ROUND_HEADER_BYTES)
    assert "was synced" in str(damage.value)
    assert disk.fingerprint() == before


def test_any_zeroed_first_block_of_a_round_in_a_sealed_journal_is_damage(disk, driven):
    for path in driven.files():
        content = read(disk, path)
        for one in list(rounds(disk, path)):
            if one.header.units:
                patch(disk, path, one.position, bytes(BLOCK))
                with pytest.raises(JournalDamaged):
                    scan(disk, DIRECTORY)
                patch(disk, path, 0, content)


def test_a_round_header_with_torn_units_still_says_that_the_round_before_was_synced(disk):
    driven = Driven(disk, first_file_bytes=8 * BLOCK)
    driven.append(b"synced")
    driven.round()
    driven.append(b"torn" * 100)
    driven.round(sync=False)
    path, position = place(disk, 2)
    spoil(disk, path, position)
    assert recovered(disk) == [(1, b"synced")]
    spoil(disk, *place(disk, 1))
    with pytest.raises(JournalDamaged):
        scan(disk, DIRECTORY)


def test_a_damaged_last_round_without_a_seal_is_dropped_although_it_was_synced(disk):
    """No later round or seal says that the round was synced. So this concerns only the newest rounds before a crash."""
    driven = Driven(disk)
    driven.append(b"synced")
    driven.round()
    spoil(disk, *place(disk, 1))
    assert scan(disk, DIRECTORY).cut_bytes > 0


# ---- files ---------------------------------------------------------------------------------------------------


def long_journal(disk, rounds_=12):
    driven = Driven(disk)
    for _ in range(rounds_):
        driven.append(b"x" * 3000)
        driven.round()
        driven.fill()
    driven.seal()
    return driven


def test_a_journal_that_ends_before_the_checkpoints_synced_unit_is_damage(disk, driven):
    last = scan(disk, DIRECTORY).last_unit
    assert scan(disk, DIRECTORY, checkpointed_unit=last, synced_unit=last).last_unit == last
    with pytest.raises(JournalDamaged, match=f"it ends with unit {last}, and a checkpoint says that {last + 1} was"):
        scan(disk, DIRECTORY, checkpointed_unit=last - 1, synced_unit=last + 1)
    assert scan(disk, DIRECTORY, checkpointed_unit=last + 1, synced_unit=last + 1).last_unit == last  # not needed


def test_a_missing_journal_file_between_others_is_damage(disk):
    driven = long_journal(disk)
    disk.unlink(driven.files()[2])
    with pytest.raises(JournalDamaged, match="missing"):
        scan(disk, DIRECTORY)


def test_a_missing_last_journal_file_is_damage_if_the_file_before_names_it(disk):
    driven = long_journal(disk)
    last = scan(disk, DIRECTORY).last_unit
    used = next(unit.path for unit in scan(disk, DIRECTORY).units() if unit.number == last)
    for path in driven.files():
        if path >= used:
            disk.unlink(path)
    with pytest.raises(JournalDamaged, match="missing"):
        scan(disk, DIRECTORY)


def test_a_missing_first_journal_file_is_damage_if_the_checkpoint_needs_its_units(disk):
    driven = long_journal(disk)
    first = driven.files()[0]
    (unit,) = [unit for unit in scan(disk, DIRECTORY).units() if unit.path == first]
    disk.unlink(first)
    assert scan(disk, DIRECTORY, checkpointed_unit=unit.number).last_unit == 12
    with pytest.raises(JournalDamaged, match="missing"):
        scan(disk, DIRECTORY, checkpointed_unit=unit.number - 1)
    for path in sorted({unit.path for unit in scan(disk, DIRECTORY).units()})[:-1]:
        disk.unlink(path)
    first_unit = scan(disk, DIRECTORY).first_unit
    with pytest.raises(JournalDamaged, match=f"unit {first_unit - 1} is missing"):
        scan(disk, DIRECTORY, checkpointed_unit=first_unit - 2)


def test_a_gap_in_journal_unit_numbers_after_a_restart_is_not_damage(disk):
    driven = Driven(disk)
    driven.append(b"torn")
    driven.round(sync=False)
    spoil(disk, *place(disk, 1))
    again = Driven(disk)
    again.append(b"two")
    again.round()
    assert scan(disk, DIRECTORY, checkpointed_unit=0).first_unit == 2


def test_a_missing_journal_is_damage_if_the_checkpoint_needs_it(disk):
    driven = long_journal(disk)
    assert scan(disk, DIRECTORY, incarnation=1).incarnation == 1
    for path in driven.files():
        disk.unlink(path)
    with pytest.raises(JournalDamaged, match="missing"):
        scan(disk, DIRECTORY, incarnation=1)


def test_a_journal_file_renamed_to_an_earlier_number_is_damage(disk):
    first, second, *_ = long_journal(disk).files()
    content = read(disk, second)
    disk.unlink(second)
    disk.unlink(first)
    file = disk.open(first, create=True)
    file.write([content], 0)
    file.close()
    with pytest.raises(JournalDamaged, match="its header says"):
        scan(disk, DIRECTORY)


def test_a_copy_of_a_journal_file_under_another_number_is_damage(disk):
    driven = long_journal(disk)
    file = disk.open(f"{DIRECTORY}/{99:020d}.journal", create=True)
    file.write([read(disk, driven.files()[1])], 0)
    file.close()
    with pytest.raises(JournalDamaged, match="its header says"):
        scan(disk, DIRECTORY)


def test_a_journal_file_with_content_of_another_journal_is_damage(disk):
    driven = long_journal(disk)
    other = SimulatedDisk()
    Driven(other, salt=b"another!")
    file = disk.open(driven.files()[-1])
    file.write([read(other, f"{DIRECTORY}/{1:020d}.journal")[: 4 * BLOCK]], 0)
    file.close()
    with pytest.raises(JournalDamaged):
        scan(disk, DIRECTORY)


@pytest.mark.parametrize(
    "changed",
    [{"salt": b"another!"}, {"salt": b"!another"}, {"first_file": 0}, {"first_round": 2}, {"first_file": 10}],
    ids=str,
)
def test_a_journal_file_header_that_contradicts_the_other_files_is_damage(disk, changed):
    """The header of the first, second or last file has another salt, first file or first round."""
    driven = long_journal(disk)
    for path in (driven.files()[0], driven.files()[1], driven.files()[-1]):
        whole = read(disk, path)
        patch(disk, path, 0, form.pack_file_header(form.read_file_header(whole)._replace(**changed)))
        with pytest.raises(JournalDamaged, match="of another journal"):
            scan(disk, DIRECTORY)
        patch(disk, path, 0, whole)


def test_journal_files_whose_headers_all_name_a_later_first_file_are_damage(disk):
    driven = long_journal(disk)
    for path in driven.files():
        header = form.read_file_header(read(disk, path))
        patch(disk, path, 0, form.pack_file_header(header._replace(first_file=1_000)))
    with pytest.raises(JournalDamaged, match="of another journal"):
        scan(disk, DIRECTORY)


@pytest.mark.parametrize("incarnation", [1, 1_000])
def test_an_incarnation_later_than_the_checkpoints_is_not_damage(disk, incarnation):
    driven = Driven(disk)
    for path in driven.files():
        header = form.read_file_header(read(disk, path))
        patch(disk, path, 0, form.pack_file_header(header._replace(incarnation=incarnation)))
    for known in (incarnation - 1, incarnation):
        assert scan(disk, DIRECTORY, incarnation=known).incarnation == incarnation
    with pytest.raises(JournalDamaged, match="missing"):
        scan(disk, DIRECTORY, incarnation=incarnation + 1)


def test_a_journal_whose_only_file_has_a_large_number_and_no_rounds_is_empty(disk):
    """No header says that a round of this start was synced, so none is missing."""
    header = form.FileHeader(3, 1_000, 4 * BLOCK, False, b"saltsalt", 1_000, 70, 7_000)
    disk.make_directory(DIRECTORY)
    file = disk.open(f"{DIRECTORY}/{1_000:020d}.journal", create=True)
    file.write([form.pack_file_header(header), bytes(3 * BLOCK)], 0)
    file.close()
    result = scan(disk, DIRECTORY)
    assert (result.last_unit, result.highest_unit, result.highest_round) == (6_999, 6_999, 69)


def test_a_journal_file_of_an_earlier_start_after_one_of_a_later_start_is_damage(disk):
    driven = long_journal(disk)
    old = {path: read(disk, path) for path in driven.files()}
    again = Driven(disk, fill=False)
    last = int(again.files()[-1].split("/")[-1][:20])
    header = form.read_file_header(old[driven_path(old)])._replace(sequence=last + 1)
    file = disk.open(f"{DIRECTORY}/{last + 1:020d}.journal", create=True)
    file.write([form.pack_file_header(header), old[driven_path(old)][BLOCK:]], 0)
    with pytest.raises(JournalDamaged, match="older"):
        scan(disk, DIRECTORY)


def driven_path(old):
    return min(old)


def test_journal_files_of_an_earlier_start_are_ignored_once_a_later_one_has_begun(disk):
    """A crash before they were removed leaves them, or a power cut brings some of them back."""
    driven = long_journal(disk)
    old = {path: read(disk, path) for path in driven.files()}
    again = Driven(disk, fill=False)
    again.append(b"new")
    again.round()
    for path, content in list(old.items())[::2]:
        file = disk.open(path, create=True)
        file.write([content], 0)
        file.close()
    result = scan(disk, DIRECTORY)
    assert [(unit.number, unit.incarnation) for unit in result.units()] == [(13, 2)]
    assert Driven(disk, fill=False).journal.next_unit == 14


@pytest.mark.parametrize("name", ["magic", "checksum", "sequence", "size", "salt"])
def test_a_changed_byte_in_a_journal_file_header_raises_journal_damaged(disk, driven, name):
    at = {"magic": 0, "checksum": 8, "sequence": 24, "size": 32, "salt": 40}[name]
    spoil(disk, driven.files()[0], at)
    with pytest.raises(JournalDamaged):
        scan(disk, DIRECTORY)


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, 7 * BLOCK, 8 * BLOCK - 1, 8 * BLOCK + 1])
def test_a_journal_file_of_another_size_than_its_header_says_is_damage(disk, driven, size):
    file = disk.open(driven.files()[0])
    file.truncate(size)
    file.close()
    with pytest.raises(JournalDamaged):
        scan(disk, DIRECTORY)


def test_a_journal_file_of_a_newer_format_raises_newer_format(disk, driven):
    path = driven.files()[0]
    block = bytearray(read(disk, path)[:BLOCK])
    block[12:16] = (7).to_bytes(4, "big")
    block[8:12] = form.crc32c(bytes(block[12:])).to_bytes(4, "big")
    patch(disk, path, 0, bytes(block))
    with pytest.raises(NewerFormat, match="format 7"):
        scan(disk, DIRECTORY)


@pytest.mark.parametrize("part", [4, -form.ROUND_HEADER_BYTES])
def test_a_journal_file_that_changes_between_two_reads_of_a_scan_is_damage(disk, driven, part):
    result = scan(disk, DIRECTORY)
    path, position = place(disk, 5)
    spoil(disk, path, position + part)
    units = result.units()
    assert [next(units).number for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(JournalDamaged, match="two reads") as damage:
        next(units)
    assert damage.value.position == position - form.ROUND_HEADER_BYTES


def test_a_scan_raises_if_the_oldest_files_first_round_is_missing_after_file_reuse(disk):
    """Only in a new journal may the first round be missing: files are reused after later rounds were synced."""
    driven = long_journal(disk, 6)
    driven.journal.recycle(4)
    driven.fill()
    first = scan(disk, DIRECTORY).files[0].path
    patch(disk, first, BLOCK, bytes(BLOCK))
    with pytest.raises(JournalDamaged, match="was synced"):
        scan(disk, DIRECTORY)


def test_a_scan_raises_if_the_only_journal_round_is_damaged_after_file_reuse(disk):
    """No later round says that it was synced; but files are reused only after it was synced."""
    driven = Driven(disk)
    for _ in range(2):
        driven.append(b"x" * 3000)
        driven.round()
    driven.journal.recycle(1)
    driven.fill()
    (unit,) = scan(disk, DIRECTORY).units()
    spoil(disk, unit.path, unit.position)
    with pytest.raises(JournalDamaged, match="was synced"):
        scan(disk, DIRECTORY)


# ---- for people ----------------------------------------------------------------------------------------------


def test_rounds_lists_each_journal_round_of_a_file_and_says_which_is_damaged(disk, driven):
    path, position = place(disk, 2)
    spoil(disk, path, position + 8)
    found = list(rounds(disk, path))
    assert [bool(one.fault) for one in found][:3] == [False, True, False]
    assert "checksum" in found[1].fault
    one = found[0]
    header = read_header(disk, path)
    assert isinstance(header, FoundFile)
    assert [unit.number for unit in round_units(disk, header, one)] == [1]


def test_a_scan_keeps_one_round_in_memory_not_the_journal(disk):
    driven = Driven(disk, first_file_bytes=1 << 20, largest_file_bytes=2 << 20, max_bytes=64 << 20)
    for _ in range(100):
        driven.append(bytes(200_000))
        driven.round(sync=False)
        driven.fill()
    tracemalloc.start()
    count = sum(1 for _ in scan(disk, DIRECTORY).units())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 100
    assert peak < 5 << 20

"""Journal files with false content: forged or stale headers and units, records that look like rounds, flipped bits.

A unit is an entry of the journal; a round is the units of one write.
"""

import struct
import tracemalloc

import pytest
from disk_files import read
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage.checkpoints import NewerFormat
from fencepost.storage.journal import format as form
from fencepost.storage.journal.reading import read_header, rounds
from fencepost.storage.journal.scan import JournalDamaged, scan
from journal_driver import BLOCK, DIRECTORY, HEAD, Driven, patch, place, recovered, spoil


def forge(disk, driven, **changes):
    """Replace the newest round's header by one with a good checksum and other values."""
    path = max(unit.path for unit in scan(disk, DIRECTORY).units())
    one = max(one for one in rounds(disk, path) if one.header.units)
    header = read_header(disk, path).header
    patch(disk, path, one.position, form.pack_round_header(one.header._replace(**changes), header.seed, one.position))
    return one


@pytest.fixture
def unsealed(disk):
    """Return a journal of two synced rounds with one unit each. No later round says that the second was synced."""
    driven = Driven(disk)
    driven.append(b"one")
    driven.round()
    driven.append(b"two" * 10)
    driven.round()
    return driven


@pytest.mark.parametrize(
    "changes",
    [{"length": 2**32 - 1}, {"length": 5}, {"length": 200}, {"units": 2}, {"units": 2**32 - 1}, {"units": 0}],
    ids=str,
)
def test_a_journal_round_with_false_unit_count_or_size_is_dropped_in_little_memory(disk, unsealed, changes):
    forge(disk, unsealed, **changes)
    tracemalloc.start()
    result = scan(disk, DIRECTORY)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [unit.number for unit in result.units()] == [1]
    assert result.cut_bytes
    assert peak < 8 << 20


@pytest.mark.parametrize("changes", [{"round": 9}, {"first_unit": 9}, {"first_unit": 1}], ids=str)
def test_a_journal_round_with_a_number_out_of_order_is_damage(disk, unsealed, changes):
    forge(disk, unsealed, **changes)
    with pytest.raises(JournalDamaged, match="round"):
        scan(disk, DIRECTORY)


@pytest.mark.parametrize("length", [0, 1, 36, 2**31, 2**32 - 1])
def test_a_journal_unit_with_a_false_length_is_dropped_and_the_unit_before_recovered(disk, unsealed, length):
    path, position = place(disk, 2)
    patch(disk, path, position, length.to_bytes(4, "big"))
    assert recovered(disk) == [(1, b"one")]


@pytest.mark.parametrize(("number", "incarnation"), [(2, 0), (2, 2), (1, 1), (3, 1)])
def test_an_intact_journal_unit_with_another_number_or_incarnation_is_not_recovered(
    disk, unsealed, number, incarnation
):
    """An old sector of a reused file may have such a unit, with a valid checksum."""
    path, position = place(disk, 2)
    part = form.Part(form.APPEND, 7, 2, (HEAD, b"two" * 10))
    patch(disk, path, position, b"".join(form.frame_unit(incarnation, number, [part])))
    assert recovered(disk) == [(1, b"one")]


@pytest.mark.parametrize(("count", "size"), [(0, 9), (2, 9), (2**32 - 1, 9), (1, 8), (1, 2**32 - 1)])
def test_a_journal_unit_whose_parts_do_not_add_up_to_its_length_is_damage(disk, unsealed, count, size):
    path, position = place(disk, 2)
    whole = 30 + 16 + 45  # size of the second unit: its data, HEAD, and what frames them
    body = struct.pack(">IQIBQqI", 1, 2, count, 1, 7, 2, size).ljust(whole - 8, b"z")
    patch(disk, path, position, struct.pack(">II", len(body), form.crc32c(body)) + body)
    with pytest.raises(JournalDamaged, match=r"unit|part"):
        recovered(disk)


@pytest.mark.parametrize(("salt", "found"), [(b"saltsalt", "damaged"), (b"unknown.", "cut")])
def test_a_record_with_the_bytes_of_a_journal_round_is_not_recovered_as_a_round(disk, salt, found):
    """A client sends bytes of a journal as a record, at the position where they would be valid, in a round that a crash
    tears. With a salt that the client cannot know they are dropped with their round; with its own they would make the
    scan report damage.
    """
    other = SimulatedDisk()
    donor = Driven(other, first_file_bytes=8 * BLOCK, salt=b"saltsalt")
    for _ in range(4):
        donor.append(b"x")
        donor.round()
    copied = read(other, donor.files()[0])[3 * BLOCK : 6 * BLOCK]
    driven = Driven(disk, first_file_bytes=16 * BLOCK, largest_file_bytes=16 * BLOCK, max_bytes=128 * BLOCK, salt=salt)
    driven.append(b"safe")
    driven.round()
    driven.append(bytes(BLOCK - form.ROUND_HEADER_BYTES - 61) + copied)
    driven.round(sync=False)
    path, position = place(disk, 2)
    spoil(disk, path, position - form.ROUND_HEADER_BYTES)
    if found == "damaged":
        with pytest.raises(JournalDamaged):
            scan(disk, DIRECTORY)
    else:
        assert recovered(disk) == [(1, b"safe")]


# ---- every bit, every length ---------------------------------------------------------------------------------


def small_sealed_journal():
    disk = SimulatedDisk(history=False)
    driven = Driven(disk, first_file_bytes=8 * BLOCK, fill=False)
    for number in range(3):
        driven.append(b"unit %d" % number)
        driven.round()
    driven.seal()
    return disk, driven.files()[0], recovered(disk)


def judge(disk, units):
    """Scan the journal. Return "damaged" if that raises, "harmless" if every unit is still there, else what is lost."""
    try:
        found = recovered(disk)
    except (JournalDamaged, NewerFormat):
        return "damaged"
    return "harmless" if found == units else f"lost: {found}"


@pytest.mark.slow
@pytest.mark.parametrize("step", [509, pytest.param(1, marks=pytest.mark.long)])
def test_a_flipped_bit_of_a_sealed_journal_is_damage_or_changes_no_recovered_unit(step):
    """Every bit of headers and units, and of the zeros between them all bits of every step-th byte."""
    disk, path, units = small_sealed_journal()
    content = read(disk, path)
    file = disk.open(path)
    seen = set()
    positions = [position for position in range(len(content)) if position % BLOCK < 160 or position % step == 0]
    for position in positions:
        for bit in range(8):
            file.write([bytes([content[position] ^ 1 << bit])], position)
            seen.add(judge(disk, units))
        file.write([content[position : position + 1]], position)
    assert seen == {"damaged", "harmless"}


@pytest.mark.slow
def test_a_sealed_journal_truncated_at_any_length_is_damage():
    disk, path, units = small_sealed_journal()
    content = read(disk, path)
    file = disk.open(path)
    for length in range(len(content) - 1, -1, -1):
        file.truncate(length)
        assert judge(disk, units) == "damaged"


def test_512_bytes_of_nuls_or_garbage_in_a_sealed_journal_are_detected_or_harmless():
    disk, path, units = small_sealed_journal()
    content = read(disk, path)
    file = disk.open(path)
    for filler in (bytes(512), bytes(range(256)) * 2):
        for position in range(0, len(content), 512):
            file.write([filler], position)
            assert judge(disk, units) in {"damaged", "harmless"}
            file.write([content[position : position + 512]], position)

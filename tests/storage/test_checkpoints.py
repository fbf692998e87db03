"""Checkpoint files are replaced whole: a crash leaves the old or the new one; damage and newer formats are reported."""

import pytest
from crash_points import crash_images
from fencepost.effects.disk import DiskFull, SystemDisk
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.storage import checkpoints
from fencepost.storage.checkpoints import UNFINISHED, Damaged, NewerFormat, read_file, write_file

PATH = "/data/checkpoint-1"


@pytest.fixture
def disk():
    disk = SimulatedDisk()
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def content(disk, path=PATH):
    file = disk.open(path)
    found = file.read(file.size(), 0)
    file.close()
    return found


def replace(disk, found):
    file = disk.open(PATH, create=True)
    file.truncate(len(found))
    file.write([found], 0)
    file.close()


@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(256)) * 4000])
def test_a_checkpoint_file_reads_back_as_it_was_written(disk, payload):
    write_file(disk, PATH, "store", 3, payload)
    assert read_file(disk, PATH, "store", 3) == payload
    assert disk.list("/data") == ["checkpoint-1"]


def test_a_checkpoint_is_durable_when_write_file_returns(disk):
    write_file(disk, PATH, "store", 1, b"payload")
    assert read_file(disk.after_power_cut(), PATH, "store", 1) == b"payload"


def test_a_checkpoint_on_a_real_disk_reads_back_the_newest_payload(tmp_path):
    path = str(tmp_path / "snapshot")
    for payload in (b"one", b"two"):
        write_file(SystemDisk(), path, "store", 1, payload)
    assert read_file(SystemDisk(), path, "store", 1) == b"two"


def test_reading_a_missing_checkpoint_file_raises_file_not_found(disk):
    with pytest.raises(FileNotFoundError):
        read_file(disk, PATH, "store", 1)


def test_an_older_checkpoint_file_is_read_and_a_newer_one_raises_newer_format(disk):
    write_file(disk, PATH, "store", 4, b"payload")
    assert read_file(disk, PATH, "store", 5) == b"payload"
    with pytest.raises(NewerFormat, match="format 4") as refused:
        read_file(disk, PATH, "store", 3)
    assert (refused.value.path, refused.value.version) == (PATH, 4)


def test_reading_a_checkpoint_file_of_another_kind_raises_damaged(disk):
    write_file(disk, PATH, "producers", 1, b"payload")
    with pytest.raises(Damaged, match="producers"):
        read_file(disk, PATH, "store", 1)


def test_writing_a_kind_longer_than_16_bytes_raises_value_error(disk):
    with pytest.raises(ValueError, match="16 bytes"):
        write_file(disk, PATH, "a kind of seventeen", 1, b"")


def test_reading_a_checkpoint_file_with_any_flipped_bit_raises_damaged(disk):
    write_file(disk, PATH, "store", 1, b"payload")
    whole = content(disk)
    for position in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[position] ^= 1 << bit
            replace(disk, bytes(changed))
            with pytest.raises(Damaged):
                read_file(disk, PATH, "store", 1)


def test_reading_a_truncated_or_extended_checkpoint_file_raises_damaged(disk):
    write_file(disk, PATH, "store", 1, b"payload")
    whole = content(disk)
    for length in range(len(whole)):
        for found in (whole[:length], whole[:length].ljust(len(whole), b"\0")):
            replace(disk, found)
            with pytest.raises(Damaged):
                read_file(disk, PATH, "store", 1)
    for tail in (b"\0", b"x" * 5000):
        replace(disk, whole + tail)
        with pytest.raises(Damaged):
            read_file(disk, PATH, "store", 1)


def test_reading_a_checkpoint_file_above_the_maximum_size_raises_damaged(disk):
    file = disk.open(PATH, create=True)
    file.truncate(1 << 40)
    with pytest.raises(Damaged, match="size"):
        read_file(disk, PATH, "store", 1)


def test_a_crash_leaves_the_old_or_new_checkpoint_and_after_write_file_the_new_one(disk):
    versions = [b"old" * 100, b"new" * 2000, b"", b"last"]
    disk.note(-1)
    for number, payload in enumerate(versions):
        write_file(disk, PATH, "store", 1, payload)
        disk.note(number)
    images = 0
    for description, image in crash_images(disk):
        images += 1
        promised = image.notes[-1] if image.notes else -1
        if not image.exists(PATH):
            assert promised == -1, description
            continue
        found = versions.index(read_file(image, PATH, "store", 1))
        assert promised <= found <= promised + 1, description
        left = [name for name in image.list("/data") if name.endswith(UNFINISHED)]
        assert left in ([], ["checkpoint-1.writing"]), description
        write_file(image, PATH, "store", 1, b"after")  # an unfinished file that the crash left is overwritten
        assert read_file(image.after_power_cut(), PATH, "store", 1) == b"after", description
        assert image.list("/data") == ["checkpoint-1"], description
    assert images > 100


def test_without_disk_space_the_old_checkpoint_stays_and_no_file_is_left(disk):
    write_file(disk, PATH, "store", 1, b"old")
    disk.capacity_bytes = 200
    with pytest.raises(DiskFull):
        write_file(disk, PATH, "store", 1, bytes(1000))
    assert disk.list("/data") == ["checkpoint-1"]
    assert read_file(disk, PATH, "store", 1) == b"old"


def test_after_a_failed_sync_of_a_new_checkpoint_a_power_cut_leaves_the_old_one(disk):
    write_file(disk, PATH, "store", 1, b"old")
    disk.fail_sync(lambda path: "checkpoint" in path)
    with pytest.raises(OSError):
        write_file(disk, PATH, "store", 1, b"new")
    assert read_file(disk.after_power_cut(), PATH, "store", 1) == b"old"


def test_a_checkpoint_of_the_maximum_size_is_read_and_a_larger_not_written(disk, monkeypatch):
    monkeypatch.setattr(checkpoints, "LARGEST_BYTES", 1_000)
    payload = bytes(1_000 - checkpoints._HEADER.size)
    write_file(disk, "/c-1", "test", 1, payload)
    assert read_file(disk, "/c-1", "test", 1) == payload
    with pytest.raises(checkpoints.TooLarge):
        write_file(disk, "/c-1", "test", 1, payload + b"x")
    assert read_file(disk, "/c-1", "test", 1) == payload
    assert not disk.exists("/c-1" + UNFINISHED)

"""Real files with simulated power cuts: unsynced changes are undone, and synced ones stay."""

import os

import pytest
from fencepost.broker.embedded.broker import Broker
from fencepost.client import sync
from fencepost.client.admin.values import NewTopic
from fencepost.effects.disk import AlreadyLocked, direct, writing
from fencepost.effects.simulated.forgetful import DiskGone, ForgetfulDisk

SECTORS = b"".join(bytes([65 + number]) * 512 for number in range(8))


def cut(disk):
    """Simulate a power cut."""
    disk.vanish()
    disk.forget()


@pytest.fixture(params=[True, False], ids=["real syncs", "no syncs"])
def disk(request):
    return ForgetfulDisk(syncs=request.param)


def path_of(tmp_path):
    return str(tmp_path / "file")


def test_after_a_power_cut_a_forgetful_disk_has_synced_bytes_and_torn_later_writes(disk, tmp_path):
    path = path_of(tmp_path)
    file = disk.open(path, create=True)
    file.write([b"synced"], 0)
    file.sync()
    file.write([SECTORS], 6)
    cut(disk)
    left = (tmp_path / "file").read_bytes()
    assert left[:6] == b"synced"
    assert left[6:] != SECTORS
    for start in range(0, len(left) - 6, 512):
        assert left[6 + start : 6 + start + 512] in (SECTORS[start : start + 512], bytes(512))


def test_of_several_unsynced_writes_at_most_sectors_of_the_first_survive_a_power_cut(disk, tmp_path):
    path = path_of(tmp_path)
    file = disk.open(path, create=True)
    file.write([b"0" * 10], 0)
    file.sync()
    file.write([b"1"], 0)
    file.write([b"2"], 5)
    file.write([b"3" * 20], 5)
    file.truncate(3)
    cut(disk)  # the first change is in one sector, which is lost, and the later changes are all undone
    assert (tmp_path / "file").read_bytes() == b"0" * 10


@pytest.mark.parametrize("paced", [False, True])
def test_unsynced_bulk_writes_past_the_cache_are_lost_in_a_power_cut(disk, tmp_path, paced):
    file = disk.open(path_of(tmp_path), create=True)
    file.write([b"synced"], 0)
    file.sync()
    content = SECTORS * 256
    file.write_past_cache([content], 6, paced=paced)
    assert file.read(len(content), 6) == content
    disk.vanish()
    with pytest.raises(DiskGone):
        file.write_past_cache([b"late" * 4096], 8192 - 6, paced=paced)
    disk.forget()
    left = (tmp_path / "file").read_bytes()
    assert left[:6] == b"synced"
    assert left[6:] != content
    assert b"late" not in left


def test_a_write_made_while_a_sync_runs_is_not_made_durable_by_that_sync(tmp_path):
    disk = ForgetfulDisk(syncs=False)
    file = disk.open(path_of(tmp_path), create=True)
    file.write([b"before"], 0)
    disk.check_sync = lambda path: file.write([b"during"], 6)
    file.sync()
    del disk.check_sync
    cut(disk)
    assert (tmp_path / "file").read_bytes() == b"before"


def test_bytes_of_a_failed_sync_on_a_forgetful_disk_are_lost_in_a_power_cut(disk, tmp_path):
    file = disk.open(path_of(tmp_path), create=True)
    file.write([b"x"], 0)
    disk.fail_sync()
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    cut(disk)
    assert (tmp_path / "file").read_bytes() == b""


def test_two_descriptors_of_one_file_share_its_unsynced_changes(disk, tmp_path):
    path = path_of(tmp_path)
    one, other = disk.open(path, create=True), disk.open(path)
    one.write([b"x"], 0)
    one.close()
    other.sync()
    cut(disk)
    assert (tmp_path / "file").read_bytes() == b"x"


def test_unsynced_bytes_are_lost_in_a_power_cut_also_after_a_rename(disk, tmp_path):
    (tmp_path / "folder").mkdir()
    for name in ("moved", "gone"):
        disk.open(str(tmp_path / "folder" / name), create=True).write([b"x"], 0)
    disk.unlink(str(tmp_path / "folder" / "gone"))
    disk.rename(str(tmp_path / "folder"), str(tmp_path / "renamed"))
    disk.open(str(tmp_path / "renamed" / "gone"), create=True)
    cut(disk)
    assert (tmp_path / "renamed" / "moved").read_bytes() == b""
    assert (tmp_path / "renamed" / "gone").read_bytes() == b""


def test_after_vanish_disk_operations_raise_disk_gone_and_forget_ends_its_locks(disk, tmp_path):
    file = disk.open(path_of(tmp_path), create=True)
    disk.lock(str(tmp_path / "lock"))
    with pytest.raises(AlreadyLocked):
        ForgetfulDisk().lock(str(tmp_path / "lock"))
    disk.vanish()
    for call in (
        lambda: file.write([b"x"], 0),
        lambda: file.truncate(0),
        file.sync,
        lambda: disk.open(path_of(tmp_path)),
        lambda: disk.unlink(path_of(tmp_path)),
        lambda: disk.rename(path_of(tmp_path), path_of(tmp_path) + "2"),
        lambda: disk.sync_directory(str(tmp_path)),
        lambda: disk.remove_tree(str(tmp_path)),
    ):
        with pytest.raises(DiskGone):
            call()
    disk.forget()
    ForgetfulDisk().lock(str(tmp_path / "lock")).release()


def test_sync_all_of_a_forgetful_disk_makes_all_files_durable(disk, tmp_path):
    files = []
    for number in range(100):
        file = disk.open(str(tmp_path / str(number)), create=True)
        file.write([b"x"], 0)
        files.append(file)
    disk.sync_all(files, [str(tmp_path)])
    cut(disk)
    assert all((tmp_path / str(number)).read_bytes() == b"x" for number in range(100))


def test_a_forgetful_disk_never_calls_the_devices_sync(tmp_path, monkeypatch):
    def asked(*_, **__):
        raise AssertionError("a device is asked")

    for module, name in [(writing, "write_synced"), (writing, "write_past_cache"), (writing, "write_blocks_synced")]:
        monkeypatch.setattr(module, name, asked)
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, asked)
    monkeypatch.setattr(direct, "open_again", asked)
    with Broker() as broker:
        assert broker.disk.async_writer() is None
        broker.inside(lambda inner: inner.rounds.sync_soon())
        load(broker)
        broker.kill()
        broker.restart()
        assert broker.failures == []


def test_write_synced_on_a_forgetful_disk_survives_a_power_cut_as_a_write_and_a_sync(disk, tmp_path):
    file = disk.open(path_of(tmp_path), create=True)
    assert not file.write_blocks_synced([SECTORS], 0, len(SECTORS))
    file.write_synced([b"synced"], 0)
    file.write([b"not"], 0)
    cut(disk)
    assert (tmp_path / "file").read_bytes()[3:] == b"ced"


def load(broker):
    """Make the broker write records of several sizes: the size decides in which way their bytes are written."""
    with sync.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 1)])
    with sync.Producer(broker.bootstrap_servers) as producer:
        for size in (10, 40_000, 300_000, 900_000):
            producer.send_and_wait("t", bytes(size))
    broker.advance(3600)

"""The pool of open files: how many, which are closed, and that none is closed unsynced."""

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Sync
from fencepost.storage import open_files
from fencepost.storage.log_flush import SyncJob, run_syncs
from fencepost.storage.open_files import OpenFiles


class CountingDisk(SimulatedDisk):
    """Counts what has no trace in the history."""

    def __init__(self):
        super().__init__()
        self.opened = 0
        self.written_back = 0

    def open(self, path, *, create=False, read_only=False):
        self.opened += 1
        return super().open(path, create=create, read_only=read_only)

    def write_back(self, path):
        super().write_back(path)
        self.written_back += 1

    @property
    def synced(self):
        return [one.path for one in self.operations if isinstance(one, Sync)]


@pytest.fixture
def disk():
    return CountingDisk()


def write(files, path):
    with files.use(path, create=True) as file:
        files.wrote(path)
        file.write([b"x"], 0)


def touch(files, path):
    with files.use(path, create=True):
        pass


def test_a_file_is_opened_once_and_the_longest_unused_is_closed(disk):
    files = OpenFiles(disk, limit=2)
    for path in ("/a", "/b", "/a", "/c"):
        touch(files, path)
    assert (len(files), disk.opened) == (2, 3)
    assert files.use_if_open("/b") is None
    assert files.use_if_open("/a") is not None


def test_files_in_use_stay_open_and_go_when_they_are_let_go(disk):
    files = OpenFiles(disk, limit=1)
    with files.use("/a", create=True) as a, files.use("/b", create=True) as b:
        assert len(files) == 2
        assert a.read(1, 0) == b.read(1, 0) == b""
    assert len(files) == 1


def test_an_unsynced_file_is_not_closed_before_it_is_synced(disk):
    files = OpenFiles(disk, limit=1)
    for path in ("/a", "/b", "/c"):
        write(files, path)
    assert (len(files), disk.synced) == (3, [])
    files.make_room()
    assert len(files) == 1
    assert disk.synced == ["/a", "/b"]


def test_a_failed_sync_while_making_room_is_told(disk):
    files = OpenFiles(disk, limit=1)
    write(files, "/a")
    write(files, "/b")
    disk.fail_sync(lambda path: path == "/a")
    with pytest.raises(OSError):
        files.make_room()


def test_a_write_during_a_sync_leaves_the_file_unsynced(disk, monkeypatch):
    files = OpenFiles(disk, limit=1)
    write(files, "/a")
    plain = SimulatedDisk.sync

    def sync(self, file):
        plain(self, file)
        files.wrote("/a")

    monkeypatch.setattr(SimulatedDisk, "sync", sync)
    files.sync("/a")
    touch(files, "/b")
    assert files.use_if_open("/a") is not None


def test_many_unsynced_files_are_written_back_together_and_then_synced_one_by_one(disk):
    files = OpenFiles(disk, limit=2 * open_files.MANY_FILES)
    for i in range(files.limit + 1):
        write(files, f"/{i}")
    files.make_room()
    assert disk.written_back == 1
    assert files.limit // 2 < len(disk.synced) < files.limit
    write(files, "/more")
    files.make_room()
    assert disk.written_back == 1


def test_the_syncs_of_many_logs_name_each_directory_once_and_write_back_first(disk):
    files = OpenFiles(disk, limit=1000)
    jobs = []
    for i in range(open_files.MANY_FILES):
        disk.make_directory(f"/logs/{i}")
        write(files, f"/logs/{i}/log")
        jobs.append(SyncJob(files, {f"/logs/{i}/log": 1}, [f"/logs/{i}", "/logs"], []))
    before = len(disk.operations)
    run_syncs(disk, "/", jobs[:3])
    assert (disk.written_back, len(disk.operations) - before) == (0, 7)
    run_syncs(disk, "/", jobs)
    assert disk.written_back == 1
    disk.sync_directory("/")
    found = disk.after_power_cut()
    assert all(found.size(f"/logs/{i}/log") == 1 for i in range(len(jobs)))


def test_a_failed_sync_among_many_is_told(disk):
    files = OpenFiles(disk, limit=1000)
    for i in range(open_files.MANY_FILES):
        write(files, f"/{i}")
    disk.fail_sync(lambda path: path == "/7")
    with pytest.raises(OSError):
        run_syncs(disk, "/", [SyncJob(files, {f"/{i}": 1 for i in range(open_files.MANY_FILES)}, [], [])])


def test_a_forgotten_file_is_closed_when_its_last_use_ends(disk):
    files = OpenFiles(disk, limit=5)
    with files.use("/a", create=True) as file:
        files.forget("/a")
        assert len(files) == 0
        file.write([b"x"], 0)
    with pytest.raises(OSError):
        file.write([b"x"], 0)

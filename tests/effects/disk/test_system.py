import errno
import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from fencepost.effects.disk import AlreadyLocked, CannotOpen, DiskFull, SystemDisk, many_syncs
from fencepost.effects.disk import system as disk_module
from fencepost.effects.disk.writing import IOV_MAX


@pytest.fixture
def disk():
    return SystemDisk()


@pytest.fixture
def file(disk, tmp_path):
    file = disk.open(str(tmp_path / "file"), create=True)
    yield file
    file.close()


def test_buffers_are_written_one_after_another_at_a_position(file):
    file.write([b"ab", memoryview(b"xcdx")[1:3], bytearray(b"e")], 3)
    assert file.read(100, 0) == b"\0\0\0abcde"
    assert file.size() == 8


def test_more_buffers_than_one_system_call_takes_are_all_written(file):
    pieces = [bytes([i % 251]) for i in range(IOV_MAX * 2 + 7)]
    file.write(pieces, 5)
    assert file.read(10_000, 5) == b"".join(pieces)


def test_write_continues_after_a_system_call_that_wrote_only_some_of_the_bytes(file, monkeypatch):
    real, calls = os.pwritev, []

    def three_bytes_at_most(fd, buffers, position, flags):
        calls.append(position)
        return real(fd, [b"".join(buffers)[:3]], position, flags)

    monkeypatch.setattr(os, "pwritev", three_bytes_at_most)
    file.write([b"ab", b"", b"cdefg", b"h"], 10)
    assert file.read(8, 10) == b"abcdefgh"
    assert calls == [10, 10, 13, 16]


def test_a_write_that_makes_no_progress_raises_instead_of_looping(file, monkeypatch):
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, position, flags: 0)
    with pytest.raises(OSError) as raised:
        file.write([b"a"], 0)
    assert raised.value.errno == errno.EIO


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_write_on_a_full_disk_raises_disk_full_with_the_files_name(file, monkeypatch, number):
    def full(fd, buffers, position, flags):
        raise OSError(number, "full")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(DiskFull) as raised:
        file.write([b"a"], 0)
    assert raised.value.filename == file.path


def test_a_failed_sync_raises_an_error_with_the_files_name(file, monkeypatch):
    def fail(fd):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError) as raised:
        file.sync()
    assert (raised.value.errno, raised.value.filename) == (errno.EIO, file.path)


@pytest.mark.parametrize("call", ["pread", "preadv"])
def test_a_failed_read_of_a_file_raises_an_error_with_the_files_name(file, monkeypatch, call):
    def fail(*arguments):
        raise OSError(errno.EIO, "broken")

    file.write([b"bytes"], 0)
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError) as raised:
        file.read(5, 0) if call == "pread" else file.read_cached(5, 0)
    assert (raised.value.errno, raised.value.filename) == (errno.EIO, file.path)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ENOMEM, errno.ELOOP])
def test_a_path_that_cannot_be_examined_raises_instead_of_counting_as_missing(disk, tmp_path, monkeypatch, number):
    def fail(path, *arguments, **options):
        raise OSError(number, "broken", path)

    monkeypatch.setattr(os, "stat", fail)
    for look in (disk.exists, disk.is_directory, disk.size):
        with pytest.raises(OSError) as raised:
            look("somewhere")
        assert raised.value.errno == number


def test_removing_a_symbolic_link_to_a_directory_keeps_the_directory(disk, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_bytes(b"kept")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    disk.remove_tree(str(tmp_path / "link"))
    assert disk.list(str(tmp_path)) == ["elsewhere"]
    assert (tmp_path / "elsewhere" / "file").read_bytes() == b"kept"


def test_writing_an_empty_list_of_buffers_does_not_extend_the_file(file):
    file.write([], 7)
    assert file.size() == 0


@pytest.mark.parametrize("position", [0, 4, 9_999, 10_000, 20_000])
def test_reading_cached_bytes_returns_the_bytes_of_the_file(file, position):
    file.write([bytes(range(250)) * 40], 0)
    assert bytes(file.read_cached(5_000, position)) == file.read(5_000, position)


def test_read_cached_returns_none_if_only_a_part_of_the_bytes_is_cached(file, monkeypatch):
    file.write([b"x" * 100], 0)
    replies = iter([40])

    def part_of_it_is_cached(fd, buffers, position, flags):
        for count in replies:
            return count
        raise BlockingIOError(errno.EAGAIN, "would wait")

    monkeypatch.setattr(os, "preadv", part_of_it_is_cached)
    assert file.read_cached(100, 0) is None


def test_read_cached_reads_normally_on_a_file_system_without_nowait_reads(file, monkeypatch):
    file.write([b"x" * 100], 0)

    def unsupported(fd, buffers, position, flags):
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(os, "preadv", unsupported)
    assert file.read_cached(100, 50) == b"x" * 50


def test_opening_a_missing_file_without_create_raises_file_not_found(disk, tmp_path):
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "none"))


def test_a_read_only_file_cannot_be_written(disk, file):
    reader = disk.open(file.path, read_only=True)
    with pytest.raises(OSError):
        reader.write([b"a"], 0)
    reader.close()


def test_closing_a_file_twice_does_not_close_another_file_with_its_descriptor(disk, file):
    file.close()
    other = disk.open(file.path)  # most likely the same descriptor number
    file.close()
    assert other.size() == 0
    other.close()


def test_files_and_directories_are_private_to_owner_and_group(disk, tmp_path):
    disk.make_directory(str(tmp_path / "a/b"))
    disk.open(str(tmp_path / "a/b/c"), create=True).close()
    assert (tmp_path / "a/b").stat().st_mode & 0o007 == 0
    assert (tmp_path / "a/b/c").stat().st_mode & 0o137 == 0


def test_directory_listings_reflect_rename_unlink_and_remove_tree(disk, tmp_path):
    path = str(tmp_path / "d")
    disk.make_directory(path)
    for name in "bca":
        disk.open(f"{path}/{name}", create=True).close()
    assert disk.list(path) == ["a", "b", "c"]
    disk.rename(f"{path}/a", f"{path}/b")
    disk.unlink(f"{path}/c")
    disk.sync_directory(path)
    assert disk.list(path) == ["b"]
    assert disk.is_directory(path)
    assert not disk.is_directory(f"{path}/b")
    disk.remove_tree(path)
    assert not disk.exists(path)
    assert disk.free_bytes(str(tmp_path)) > 0


def test_sync_directory_calls_fsync_not_fdatasync(disk, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "fsync", calls.append)
    disk.sync_directory(str(tmp_path))
    assert len(calls) == 1


def test_locking_a_locked_directory_names_the_holders_pid(disk, tmp_path):
    path = str(tmp_path / "lock")
    lock = disk.lock(path)
    with pytest.raises(AlreadyLocked) as raised:
        disk.lock(path)
    assert raised.value.pid == os.getpid()
    assert str(os.getpid()) in str(raised.value)
    assert Path(path).stat().st_mode & 0o777 == 0o600
    lock.release()
    lock.release()
    disk.lock(path).release()


def test_a_directory_stays_locked_although_its_lock_file_was_removed(disk, tmp_path):
    path = str(tmp_path / "lock")
    lock = disk.lock(path)
    for _ in range(2):
        os.unlink(path)
        with pytest.raises(AlreadyLocked) as refused:
            disk.lock(path)
        assert refused.value.pid is None
    lock.release()
    disk.lock(path).release()


def test_a_file_can_be_created_in_a_locked_directory_that_cannot_be_examined(disk, tmp_path, monkeypatch):
    lock = disk.lock(str(tmp_path / "lock"))
    monkeypatch.setattr(os, "stat", mock.Mock(side_effect=PermissionError(errno.EACCES, "not for you")))
    disk.open(f"{tmp_path}/file", create=True).close()
    monkeypatch.undo()
    lock.release()


def test_a_locked_relative_path_still_works_after_the_working_directory_changed(disk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    disk.make_directory("data")
    lock = disk.lock("data/lock")
    os.mkdir("elsewhere")
    monkeypatch.chdir("elsewhere")
    disk.open("data/file", create=True).close()
    assert disk.list("data") == sorted(os.listdir(tmp_path / "data")) == ["file", "lock"]
    lock.release()
    assert not disk.exists("data")


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
def test_releasing_a_lock_closes_its_descriptors_although_the_file_system_fails(disk, tmp_path, monkeypatch, error):
    path = str(tmp_path / "lock")
    lock = disk.lock(path)
    monkeypatch.setattr(os, "ftruncate", mock.Mock(side_effect=OSError(error, os.strerror(error))))
    before = len(os.listdir("/proc/self/fd"))
    lock.release()
    assert len(os.listdir("/proc/self/fd")) == before - 2  # those of the directory and of its lock file
    monkeypatch.undo()
    disk.lock(path).release()


def test_a_lock_whose_pid_cannot_be_written_is_not_taken(disk, tmp_path, monkeypatch):
    path = str(tmp_path / "lock")
    before = os.listdir("/proc/self/fd")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", mock.Mock(side_effect=OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            disk.lock(path)
    assert os.listdir("/proc/self/fd") == before
    disk.lock(path).release()


def test_a_directory_is_locked_by_its_lock_file_alone_where_directories_cannot_be(disk, tmp_path, monkeypatch):
    flock = fcntl.flock

    def refuses_directories(fd, what):
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, "not for reading only")
        flock(fd, what)

    monkeypatch.setattr(fcntl, "flock", refuses_directories)
    lock = disk.lock(str(tmp_path / "lock"))
    with pytest.raises(AlreadyLocked):
        disk.lock(str(tmp_path / "lock"))
    lock.release()
    disk.lock(str(tmp_path / "lock")).release()


def test_a_released_lock_is_free_although_a_child_process_inherited_it(disk, tmp_path):
    path = str(tmp_path / "lock")
    lock = disk.lock(path)
    copies = [os.dup(fd) for fd in lock._fds]  # as a fork gives them to a child
    lock.release()
    try:
        disk.lock(path).release()
    finally:
        for copy in copies:
            os.close(copy)


def test_a_lock_ends_with_the_process_that_held_it(disk, tmp_path):
    path = str(tmp_path / "lock")
    hold = f"from fencepost.effects.disk import SystemDisk; lock = SystemDisk().lock({path!r}); print('held'); input()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        with pytest.raises(AlreadyLocked) as raised:
            disk.lock(path)
        assert raised.value.pid == holder.pid
        holder.kill()
        holder.wait()
    disk.lock(path).release()


def test_locking_a_locked_directory_whose_lock_file_is_empty_raises_without_a_pid(disk, tmp_path):
    path = tmp_path / "lock"
    lock = disk.lock(str(path))
    path.write_bytes(b"")
    with pytest.raises(AlreadyLocked) as raised:
        disk.lock(str(path))
    assert raised.value.pid is None
    lock.release()


@pytest.mark.parametrize("has_syncfs", [True, False])
@pytest.mark.parametrize("count", [1, many_syncs.MANY_SYNCS])
def test_sync_all_syncs_each_file_and_directory_with_and_without_syncfs(disk, tmp_path, monkeypatch, count, has_syncfs):
    if not has_syncfs:
        monkeypatch.setattr(many_syncs, "syncfs", lambda: None)
    synced = []
    monkeypatch.setattr(disk_module, "flush_to_device", lambda fd, flush: synced.append(os.fstat(fd).st_ino))
    files = [disk.open(str(tmp_path / f"{i}"), create=True) for i in range(count)]
    disk.sync_all(files, [str(tmp_path)])
    assert sorted(synced) == sorted(os.stat(path).st_ino for path in [tmp_path, *tmp_path.iterdir()])
    for file in files:
        file.close()


def test_sync_all_syncs_every_file_although_the_first_was_deleted_before(disk, tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(disk_module, "flush_to_device", lambda fd, flush: synced.append(fd))
    files = [disk.open(str(tmp_path / f"{i}"), create=True) for i in range(many_syncs.MANY_SYNCS)]
    disk.unlink(files[0].path)
    disk.sync_all(files)
    assert len(synced) == len(files)
    for file in files:
        file.close()


def test_many_directories_are_synced_although_the_first_open_for_syncfs_fails(disk, tmp_path, monkeypatch):
    paths = [str(tmp_path / f"{i}") for i in range(many_syncs.MANY_SYNCS)]
    for path in paths:
        disk.make_directory(path)
    synced, opened = [], os.open
    refused = [OSError(errno.EMFILE, "too many open files")]
    monkeypatch.setattr(disk_module, "flush_to_device", lambda fd, flush: synced.append(fd))

    def open_second(path, flags, **how):
        if refused:
            raise refused.pop()
        return opened(path, flags, **how)

    monkeypatch.setattr(os, "open", open_second)
    disk.sync_all([], paths)
    assert len(synced) == len(paths)


@pytest.mark.parametrize("count", [1, many_syncs.MANY_SYNCS])
def test_sync_all_raises_an_error_with_the_name_of_the_one_file_whose_sync_fails(disk, tmp_path, monkeypatch, count):
    files = [disk.open(str(tmp_path / f"{i}"), create=True) for i in range(count)]
    bad = os.stat(tmp_path / "0").st_ino

    def flush(fd, flush):
        if os.fstat(fd).st_ino == bad:
            raise OSError(errno.EIO, "failed")

    monkeypatch.setattr(disk_module, "flush_to_device", flush)
    with pytest.raises(OSError) as raised:
        disk.sync_all(files)
    assert raised.value.filename == files[0].path
    for file in files:
        file.close()


@pytest.mark.parametrize("count", [1, many_syncs.MANY_SYNCS])
def test_sync_all_raises_a_failed_sync_rather_than_a_directory_it_cannot_open(disk, tmp_path, monkeypatch, count):
    files = [disk.open(str(tmp_path / f"{i}"), create=True) for i in range(count)]
    last = os.stat(files[-1].path).st_ino

    def flush(fd, flush):
        if os.fstat(fd).st_ino == last:
            raise OSError(errno.EIO, "failed")

    def cannot(path):
        raise CannotOpen(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as patched:
        patched.setattr(SystemDisk, "sync_directory", lambda disk, path: cannot(path))
        with pytest.raises(CannotOpen):
            disk.sync_all(files, [str(tmp_path)])
        patched.setattr(disk_module, "flush_to_device", flush)
        with pytest.raises(OSError, match="failed"):
            disk.sync_all(files, [str(tmp_path)])
    for file in files:
        file.close()


def test_syncing_no_files_makes_no_system_call(disk, monkeypatch):
    calls = []
    for name in ("open", "fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda *arguments, name=name: calls.append(name))
    disk.sync_all([])
    assert calls == []


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("open", lambda disk, path: disk.open(path, create=True)),
        ("makedirs", lambda disk, path: disk.make_directory(path)),
        ("replace", lambda disk, path: disk.rename(path, path + "2")),
        ("unlink", lambda disk, path: disk.unlink(path)),
    ],
)
def test_file_and_directory_operations_without_disk_space_raise_disk_full(monkeypatch, tmp_path, function, call):
    def full(path, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(disk_module.os, function, full)
    with pytest.raises(DiskFull):
        call(SystemDisk(), str(tmp_path / "f"))


def test_unlinking_or_opening_a_missing_file_raises_file_not_found(disk, tmp_path):
    with pytest.raises(FileNotFoundError):
        disk.unlink(str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        disk.open(str(tmp_path / "none"))

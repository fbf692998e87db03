"""A locked directory is reached by its descriptor, on the machine's disk and on the simulated one."""

from collections.abc import Callable

import pytest
from fencepost.effects.disk import AlreadyLocked, DirectoryMoved, Disk, SystemDisk
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.forgetful import ForgetfulDisk

CHANGES: dict[str, Callable[[Disk, str], object]] = {
    "makes a file": lambda disk, d: disk.open(f"{d}/new", create=True),
    "opens or makes a file": lambda disk, d: disk.open(f"{d}/file", create=True),
    "makes a directory": lambda disk, d: disk.make_directory(f"{d}/a/b"),
    "renames": lambda disk, d: disk.rename(f"{d}/file", f"{d}/other"),
    "renames to": lambda disk, d: disk.rename(f"{d}/../outside", f"{d}/other"),
    "removes a file": lambda disk, d: disk.unlink(f"{d}/file"),
    "removes a tree": lambda disk, d: disk.remove_tree(f"{d}/folder"),
    "asks for room": lambda disk, d: disk.free_bytes(d),
}


class Two:
    """Two processes on one file system, and the directory that the first has locked."""

    def __init__(self, disk: Disk, other: Disk, root: str) -> None:
        self.disk, self.other = disk, other
        self.path, self.moved = f"{root}/data", f"{root}/moved"
        other.make_directory(f"{self.path}/folder/inner")
        write(other, f"{self.path}/file", b"mine")
        self.lock = disk.lock(f"{self.path}/lock")

    def replace(self) -> None:
        """Move the directory away, and put another one in its place that looks the same."""
        self.other.rename(self.path, self.moved)
        self.other.make_directory(f"{self.path}/folder/inner")
        write(self.other, f"{self.path}/file", b"theirs")


def write(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write([data], 0)
    file.close()


def read(disk: Disk, path: str) -> bytes:
    file = disk.open(path, read_only=True)
    try:
        return file.read(100, 0)
    finally:
        file.close()


def tree(disk: Disk, path: str) -> list[str]:
    found = []
    for name in disk.list(path):
        inner = f"{path}/{name}"
        found.append(inner)
        if disk.is_directory(inner):
            found += tree(disk, inner)
    return found


@pytest.fixture(params=["system", "forgetful", "simulated"])
def two(request, tmp_path):
    if request.param == "simulated":
        disk = SimulatedDisk()
        made = Two(disk, disk.beside(), "/volume")
    else:
        made = Two(SystemDisk() if request.param == "system" else ForgetfulDisk(), SystemDisk(), str(tmp_path))
    yield made
    made.lock.release()


def test_reads_in_a_locked_directory_find_its_own_files_after_its_path_was_replaced(two: Two) -> None:
    two.replace()
    assert read(two.disk, f"{two.path}/file") == b"mine"
    assert read(two.other, f"{two.path}/file") == b"theirs"
    assert two.disk.list(two.path) == ["file", "folder", "lock"]
    assert two.disk.size(f"{two.path}/file") == 4
    assert two.disk.exists(f"{two.path}/lock")
    assert two.disk.is_directory(f"{two.path}/folder")
    two.disk.sync_directory(f"{two.path}/folder")
    assert two.disk.total_bytes(two.path) > 0


@pytest.mark.parametrize("what", ["replaced", "moved", "removed"])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_in_a_locked_directory_that_was_moved_raise_directory_moved(two: Two, change: str, what: str) -> None:
    write(two.other, f"{two.path}/../outside", b"outside")
    if what == "replaced":
        two.replace()
    elif what == "moved":
        two.other.rename(two.path, two.moved)
    else:
        two.other.remove_tree(two.path)
    root = two.path.removesuffix("/data")
    before = tree(two.other, root)
    with pytest.raises(DirectoryMoved) as refused:
        CHANGES[change](two.disk, two.path)
    assert two.path in str(refused.value)
    assert tree(two.other, root) == before


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_succeeds_in_a_locked_directory_that_was_moved_away_and_back(two: Two, change: str) -> None:
    write(two.other, f"{two.path}/../outside", b"outside")
    two.other.rename(two.path, two.moved)
    two.other.rename(two.moved, two.path)
    CHANGES[change](two.disk, two.path)


def test_after_its_lock_was_released_a_directory_is_found_by_its_path_again(two: Two) -> None:
    two.replace()
    two.lock.release()
    assert read(two.disk, f"{two.path}/file") == b"theirs"
    two.disk.unlink(f"{two.path}/file")


def test_a_locked_directory_stays_locked_under_the_path_it_was_moved_to(two: Two) -> None:
    two.replace()
    with pytest.raises(AlreadyLocked):
        two.other.lock(f"{two.moved}/lock")
    two.other.lock(f"{two.path}/lock").release()
    two.lock.release()
    two.other.lock(f"{two.moved}/lock").release()


@pytest.mark.parametrize("has_file", [True, False])
def test_a_read_only_lock_writes_no_file_and_excludes_other_locks(two: Two, has_file: bool) -> None:
    two.lock.release()
    if not has_file:
        two.other.unlink(f"{two.path}/lock")
    before = two.other.list(two.path)
    lock = two.disk.lock(f"{two.path}/lock", read_only=True)
    with pytest.raises(AlreadyLocked):
        two.other.lock(f"{two.path}/lock", read_only=True)
    assert two.other.list(two.path) == before
    lock.release()
    two.other.lock(f"{two.path}/lock").release()


def test_a_held_directory_is_still_read_by_its_path_after_it_was_replaced(two: Two) -> None:
    """After hold(), reads by the path find the files of the held directory although another one took its place;
    another process may lock it.
    """
    two.lock.release()
    hold = two.disk.hold(two.path)
    two.replace()
    two.other.lock(f"{two.moved}/lock").release()
    assert read(two.disk, f"{two.path}/file") == b"mine"
    hold.release()
    assert read(two.disk, f"{two.path}/file") == b"theirs"

"""The pool of open files: bounded, and never closing what is in use or unsynced."""

import errno
from collections.abc import Iterator

import pytest
from fencepost.effects.disk import CannotOpen
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Open, SyncDirectory
from fencepost.storage.log.open_files import OpenFiles


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    for number in range(5):
        disk.open(f"/{number}", create=True).close()
    return disk


@pytest.fixture
def files(disk: SimulatedDisk) -> Iterator[OpenFiles]:
    files = OpenFiles(disk, 2)
    yield files
    files.close()


def test_two_uses_of_one_path_get_the_same_open_file(files: OpenFiles) -> None:
    with files.use("/1") as one, files.use("/1") as again:
        assert one is again
    assert len(files) == 1


def test_the_least_recently_used_file_is_closed_first(files: OpenFiles) -> None:
    for path in ("/1", "/2", "/1", "/3"):
        with files.use(path):
            pass
    assert files.use_if_open("/2") is None
    for path in ("/1", "/3"):
        entry = files.use_if_open(path)
        assert entry is not None
        with entry:
            pass


def test_open_files_closes_no_file_in_use_even_above_its_limit(files: OpenFiles) -> None:
    with files.use("/0") as a, files.use("/1") as b, files.use("/2") as c:
        assert len(files) == 3
        assert [file.size() for file in (a, b, c)] == [0, 0, 0]
    assert len(files) == 2


def test_an_unsynced_file_above_the_limit_is_closed_only_by_make_room_which_syncs_it(
    disk: SimulatedDisk, files: OpenFiles
) -> None:
    disk.sync_directory("/")
    write(files, "/0", "/1", "/2")
    assert len(files) == 3
    files.make_room()
    assert len(files) == 2
    assert files.use_if_open("/0") is None
    assert disk.after_power_cut().open("/0").read(10, 0) == b"content"


def test_a_file_written_during_its_sync_counts_as_unsynced_and_stays_open(
    disk: SimulatedDisk, files: OpenFiles
) -> None:
    with files.use("/0") as file:
        files.wrote("/0")
        real = file.sync

        def slow_sync() -> None:
            real()
            files.wrote("/0")

        file.sync = slow_sync  # type: ignore[method-assign]
        files.sync("/0")
        file.sync = real  # type: ignore[method-assign]
    for path in ("/1", "/2", "/3"):
        with files.use(path):
            pass
    assert files.use_if_open("/0") is not None


def test_syncing_a_file_that_is_not_open_does_nothing(disk: SimulatedDisk, files: OpenFiles) -> None:
    disk.fail_sync(lambda path: True)
    files.sync("/0")


def test_forget_closes_a_file_in_use_only_when_its_use_ends(files: OpenFiles) -> None:
    with files.use("/0") as file:
        files.forget("/0")
        assert len(files) == 0
        assert file.size() == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.size()


def test_forget_directory_closes_the_files_of_that_folder_and_no_others(disk: SimulatedDisk, files: OpenFiles) -> None:
    disk.make_directory("/a")
    for path in ("/a/1", "/a/2", "/ab"):
        with files.use(path, create=True):
            pass
    files.forget_directory("/a")
    assert files.use_if_open("/a/2") is None
    assert files.use_if_open("/ab") is not None


def test_open_files_does_not_create_a_missing_file(files: OpenFiles) -> None:
    with pytest.raises(FileNotFoundError):
        files.use("/nothing")
    assert len(files) == 0


def write(files: OpenFiles, *paths: str) -> None:
    for path in paths:
        with files.use(path) as file:
            files.wrote(path)
            file.write([b"content"], 0)


def test_an_open_without_free_descriptors_closes_other_files_and_is_retried(disk: SimulatedDisk) -> None:
    files = OpenFiles(disk, 100)
    paths = [f"/log-{number}" for number in range(50)]
    for path in paths:
        disk.open(path, create=True).close()
    disk.sync_directory("/")
    write(files, *paths[:40])
    with files.use(paths[40]) as in_use:
        disk.fail(lambda one: isinstance(one, Open), error=errno.EMFILE)
        with files.use(paths[41]) as file:
            assert file.size() == 0
        assert in_use.size() == 0
    assert len(files) <= 22  # the limit, and the two files that were in use
    assert files.limit == 20  # half of the files that were open
    found = disk.after_power_cut()
    assert sum(found.size(path) for path in paths) >= 20 * len(b"content")  # files are synced before they are closed


def test_a_sync_that_cannot_open_its_directory_can_be_repeated(disk: SimulatedDisk, files: OpenFiles) -> None:
    write(files, "/0")
    disk.fail(lambda one: isinstance(one, SyncDirectory), error=errno.EMFILE)
    with pytest.raises(CannotOpen):
        files.sync_all(["/0"], ["/"])
    files.sync_all(["/0"], ["/"])
    assert disk.after_power_cut().open("/0").read(10, 0) == b"content"

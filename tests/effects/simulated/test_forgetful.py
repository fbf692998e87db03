"""The real disk with a power cut: what was not synced is taken back from real files, what was synced stays."""

import pytest
from fencepost.effects.disk import AlreadyLocked
from fencepost.effects.simulated.forgetful import DiskGone, ForgetfulDisk

SECTORS = b"".join(bytes([65 + number]) * 512 for number in range(8))


def cut(disk):
    disk.vanish()
    disk.forget()


@pytest.fixture(params=[True, False], ids=["real syncs", "no syncs"])
def disk(request):
    return ForgetfulDisk(syncs=request.param)


def path_of(tmp_path):
    return str(tmp_path / "file")


def test_synced_bytes_stay_and_what_came_after_is_torn(disk, tmp_path):
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


def test_of_several_unsynced_writes_the_first_is_torn_and_the_rest_never_happened(disk, tmp_path):
    path = path_of(tmp_path)
    file = disk.open(path, create=True)
    file.write([b"0" * 10], 0)
    file.sync()
    file.write([b"1"], 0)
    file.write([b"2"], 5)
    file.write([b"3" * 20], 5)
    file.truncate(3)
    cut(disk)
    assert (tmp_path / "file").read_bytes() == b"0" * 10


def test_what_was_written_past_the_cache_is_no_safer(disk, tmp_path):
    path = path_of(tmp_path)
    file = disk.open(path, create=True)
    file.write([b"synced"], 0)
    file.sync()
    content = SECTORS * 256
    file.write_past_cache([content], 6)
    assert file.read(len(content), 6) == content
    disk.vanish()
    with pytest.raises(DiskGone):
        file.write_past_cache([b"late" * 4096], 8192 - 6)
    disk.forget()
    left = (tmp_path / "file").read_bytes()
    assert left[:6] == b"synced"
    assert left[6:] != content
    assert b"late" not in left


def test_a_write_that_comes_during_a_sync_is_not_covered_by_it(tmp_path):
    disk = ForgetfulDisk(syncs=False)
    file = disk.open(path_of(tmp_path), create=True)
    file.write([b"before"], 0)
    disk.sync_begins = lambda path: file.write([b"during"], 6)
    file.sync()
    del disk.sync_begins
    cut(disk)
    assert (tmp_path / "file").read_bytes() == b"before"


def test_a_failed_sync_covers_nothing(disk, tmp_path):
    file = disk.open(path_of(tmp_path), create=True)
    file.write([b"x"], 0)
    disk.fail_sync()
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    cut(disk)
    assert (tmp_path / "file").read_bytes() == b""


def test_two_descriptors_of_one_file_share_what_is_unsynced(disk, tmp_path):
    path = path_of(tmp_path)
    one, other = disk.open(path, create=True), disk.open(path)
    one.write([b"x"], 0)
    one.close()
    other.sync()
    cut(disk)
    assert (tmp_path / "file").read_bytes() == b"x"


def test_unsynced_bytes_follow_a_rename_and_go_with_an_unlink(disk, tmp_path):
    (tmp_path / "folder").mkdir()
    for name in ("moved", "gone"):
        disk.open(str(tmp_path / "folder" / name), create=True).write([b"x"], 0)
    disk.unlink(str(tmp_path / "folder" / "gone"))
    disk.rename(str(tmp_path / "folder"), str(tmp_path / "renamed"))
    disk.open(str(tmp_path / "renamed" / "gone"), create=True)
    cut(disk)
    assert (tmp_path / "renamed" / "moved").read_bytes() == b""
    assert (tmp_path / "renamed" / "gone").read_bytes() == b""


def test_nothing_reaches_a_disk_that_is_gone_and_its_lock_is_free(disk, tmp_path):
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


def test_syncs_of_many_files_and_directories_cover_them_all(disk, tmp_path):
    files = []
    for number in range(100):
        file = disk.open(str(tmp_path / str(number)), create=True)
        file.write([b"x"], 0)
        files.append(file)
    disk.sync_all(files, [str(tmp_path)])
    cut(disk)
    assert all((tmp_path / str(number)).read_bytes() == b"x" for number in range(100))

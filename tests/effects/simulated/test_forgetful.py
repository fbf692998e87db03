"""The real disk with a power cut: what was not synced is taken back from real files, what was synced stays."""

import asyncio
import errno

import pytest
from eventually import wait_until
from fencepost.effects import writing
from fencepost.effects.disk import AlreadyLocked, SystemFile
from fencepost.effects.simulated.forgetful import DiskGone, ForgetfulDisk
from loops import LOOPS
from this_machine import goes_past_cache

SECTORS = b"".join(bytes([65 + number]) * 512 for number in range(8))
BLOCK = len(SECTORS)


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


@pytest.mark.parametrize("paced", [False, True])
def test_what_was_written_past_the_cache_is_no_safer(disk, tmp_path, monkeypatch, paced):
    paced_seen, real = [], writing.write_past_cache

    def noted(*what, paced):
        paced_seen.append(paced)
        real(*what, paced=paced)

    monkeypatch.setattr(writing, "write_past_cache", noted)
    path = path_of(tmp_path)
    file = disk.open(path, create=True)
    file.write([b"synced"], 0)
    file.sync()
    content = SECTORS * 256
    file.write_past_cache([content], 6, paced=paced)
    assert paced_seen == [paced]
    assert file.read(len(content), 6) == content
    disk.vanish()
    with pytest.raises(DiskGone):
        file.write_past_cache([b"late" * 4096], 8192 - 6, paced=paced)
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


# Blocks that are synced in one call


def test_blocks_that_are_synced_stay_without_what_was_written_before(disk, tmp_path, file):
    file.write([b"not synced"], 0)
    assert file.write_blocks_synced([SECTORS], BLOCK, BLOCK)
    cut(disk)
    assert found(tmp_path) == [bytes(BLOCK), SECTORS, bytes(BLOCK), bytes(BLOCK)]


def test_blocks_whose_sync_fails_are_taken_back(disk, tmp_path, file):
    disk.fail_sync()
    with pytest.raises(OSError, match="Input/output"):
        file.write_blocks_synced([SECTORS], BLOCK, BLOCK)
    file.sync()
    cut(disk)
    assert_taken_back(found(tmp_path)[1])


@pytest.mark.parametrize("synced", [True, False])
def test_what_was_written_of_refused_blocks_is_safe_with_the_next_sync(tmp_path, monkeypatch, synced):
    disk = ForgetfulDisk()
    file = disk.open(path_of(tmp_path), create=True)
    file.write([bytes(2 * BLOCK)], 0)
    file.sync()
    real = SystemFile.write
    part = lambda file, buffers, position, size_bytes: real(file, [SECTORS[:1024]], position)  # noqa: E731
    monkeypatch.setattr(SystemFile, "write_blocks_synced", part)
    assert not file.write_blocks_synced([SECTORS], BLOCK, BLOCK)
    file.write([SECTORS], BLOCK)
    if synced:
        file.sync()
    cut(disk)
    if synced:
        assert found(tmp_path)[1] == SECTORS
    else:
        assert_taken_back(found(tmp_path)[1])


# What a loop begins and is told of


@pytest.fixture(params=LOOPS.values(), ids=LOOPS)
def loop(request):
    loop = request.param()
    yield loop
    loop.close()


@pytest.fixture
def file(disk, tmp_path):
    """Four blocks of NULs, on the device."""
    if not goes_past_cache(tmp_path):
        pytest.skip("NO O_DIRECT HERE (tmpfs): SYNCED WRITES OF A LOOP ARE NOT TESTED")
    file = disk.open(path_of(tmp_path), create=True)
    file.write([bytes(4 * BLOCK)], 0)
    file.sync()
    return file


@pytest.fixture
def writer(disk, loop, file):
    async def ask():
        return disk.async_writer()

    writer = loop.run_until_complete(ask())
    if writer is None:
        pytest.skip("NO NATIVE AIO HERE: SYNCED WRITES OF A LOOP ARE NOT TESTED")
    yield writer
    writer.close()


def begin(writer, file, block, told):
    return writer.begin(file, block * BLOCK, [SECTORS], BLOCK, lambda error, took_ns: told.append(error))


def wait_for(loop, told, count=1):
    wait_until(lambda: loop.run_until_complete(asyncio.sleep(0.001)) or len(told) == count)


def found(tmp_path):
    content = (tmp_path / "file").read_bytes()
    return [content[start : start + BLOCK] for start in range(0, len(content), BLOCK)]


def assert_taken_back(block):
    """But for some sectors."""
    assert block != SECTORS
    for start in range(0, BLOCK, 512):
        assert block[start : start + 512] in (bytes(512), SECTORS[start : start + 512])


def test_its_writer_is_the_systems(writer):
    assert writer.from_bytes > 0
    assert writer.at_once > 1


def test_what_was_told_stays_and_what_was_only_begun_is_taken_back_or_torn(disk, loop, writer, file, tmp_path):
    told = []
    assert begin(writer, file, 1, told)
    wait_for(loop, told)
    for block in (0, 2, 3):
        assert begin(writer, file, block, told)
    cut(disk)
    assert told == [None]
    blocks = found(tmp_path)
    assert blocks[1:] == [SECTORS, bytes(BLOCK), bytes(BLOCK)]
    assert_taken_back(blocks[0])


def test_a_write_that_is_told_before_an_earlier_one_stays_without_it(disk, loop, writer, file, tmp_path, monkeypatch):
    told, real = [], writer._writer._report
    monkeypatch.setattr(writer._writer, "_report", lambda number, result: number == 1 and real(number, result))
    assert begin(writer, file, 0, ["never told"])
    assert begin(writer, file, 1, told)
    wait_for(loop, told)
    cut(disk)
    assert told == [None]
    assert found(tmp_path)[1] == SECTORS
    assert_taken_back(found(tmp_path)[0])


def test_a_sync_of_the_file_covers_what_was_written_and_not_what_is_under_way(disk, loop, writer, file, tmp_path):
    told = []
    file.write([b"ordinary"], 3 * BLOCK)
    assert begin(writer, file, 0, told)
    file.write([SECTORS], 4 * BLOCK)  # the file grows
    file.sync()
    cut(disk)
    assert told == []
    blocks = found(tmp_path)
    assert_taken_back(blocks[0])
    assert blocks[1:] == [bytes(BLOCK), bytes(BLOCK), b"ordinary".ljust(BLOCK, b"\0"), SECTORS]


def test_a_write_that_is_told_after_a_sync_of_the_file_stays_and_covers_nothing_else(
    disk, loop, writer, file, tmp_path
):
    told = []
    assert begin(writer, file, 0, told)
    file.write([b"synced"], BLOCK)
    file.sync()
    file.write([b"not synced"], 2 * BLOCK)
    wait_for(loop, told)
    cut(disk)
    assert told == [None]
    blocks = found(tmp_path)
    assert blocks == [SECTORS, b"synced".ljust(BLOCK, b"\0"), bytes(BLOCK), bytes(BLOCK)]


def test_a_write_told_while_the_file_is_synced_stays_and_so_does_what_that_syncs(disk, loop, writer, file, tmp_path):
    told = []
    file.write([b"synced"], BLOCK)
    assert begin(writer, file, 0, told)

    def goes_on(path):
        del disk.sync_begins
        wait_for(loop, told)
        file.write([b"during"], 2 * BLOCK)

    disk.sync_begins = goes_on
    file.sync()
    cut(disk)
    assert told == [None]
    assert found(tmp_path) == [SECTORS, b"synced".ljust(BLOCK, b"\0"), bytes(BLOCK), bytes(BLOCK)]


def test_a_failed_sync_strikes_such_a_write_too_and_no_later_sync_covers_it(disk, loop, writer, file, tmp_path):
    told = []
    disk.fail_sync(lambda path: path == file.path)
    assert begin(writer, file, 0, told)
    wait_for(loop, told)
    assert begin(writer, file, 1, told)
    wait_for(loop, told, 2)
    assert [told[0].errno, told[0].filename, told[1]] == [errno.EIO, file.path, None]
    file.sync()
    cut(disk)
    assert_taken_back(found(tmp_path)[0])
    assert found(tmp_path)[1] == SECTORS


def test_an_error_of_the_device_is_told_and_the_write_taken_back(disk, loop, writer, file, tmp_path, monkeypatch):
    told, real = [], writer._writer._report
    monkeypatch.setattr(writer._writer, "_report", lambda number, result: real(number, -errno.EIO))
    assert begin(writer, file, 0, told)
    wait_for(loop, told)
    assert told[0].errno == errno.EIO
    cut(disk)
    assert_taken_back(found(tmp_path)[0])


def test_what_the_device_refuses_and_is_written_again_stays_when_it_is_told(
    disk, loop, writer, file, tmp_path, monkeypatch
):
    told, real = [], writer._writer._report

    def took_nothing(number, result):
        with (tmp_path / "file").open("r+b") as opened:
            opened.write(bytes(BLOCK))
        real(number, -errno.EINVAL)

    monkeypatch.setattr(writer._writer, "_report", took_nothing)
    assert begin(writer, file, 0, told)
    wait_for(loop, told)
    cut(disk)
    assert told == [None]
    assert found(tmp_path) == [SECTORS, *[bytes(BLOCK)] * 3]


def test_of_what_is_torn_a_sector_is_lost_however_long_the_file_is(disk, writer, file, tmp_path, monkeypatch):
    monkeypatch.setattr(disk._rng, "randrange", lambda stop: stop - 1)
    monkeypatch.setattr(disk._rng, "random", lambda: 0.0)  # every other one stays
    assert begin(writer, file, 1, [])
    cut(disk)
    assert found(tmp_path)[1] == SECTORS[:-512] + bytes(512)


def test_what_is_under_way_has_ended_before_anything_is_taken_back(disk, writer, file, monkeypatch):
    sizes, real = [], writer._writer.close
    monkeypatch.setattr(writer._writer, "close", lambda: (sizes.append(file.size()), real()))
    assert begin(writer, file, 0, [])
    cut(disk)
    assert sizes == [4 * BLOCK]  # the file was open then
    monkeypatch.undo()


def test_what_the_system_does_not_begin_is_not_remembered(disk, loop, writer, file, tmp_path):
    told = []
    assert not writer.begin(file, 1, [SECTORS], BLOCK, lambda error, took_ns: told.append(error))
    file.write([b"synced"], 0)
    file.sync()
    cut(disk)
    assert told == []
    assert found(tmp_path) == [b"synced".ljust(BLOCK, b"\0"), *[bytes(BLOCK)] * 3]


@pytest.mark.parametrize("refused", [-errno.EIO, -errno.EINVAL, BLOCK])
def test_what_ends_on_a_disk_that_is_gone_is_an_error(disk, loop, writer, file, tmp_path, monkeypatch, refused):
    told, real = [], writer._writer._report
    monkeypatch.setattr(writer._writer, "_report", lambda number, result: real(number, refused))
    assert begin(writer, file, 0, told)
    disk.vanish()
    with pytest.raises(DiskGone):
        begin(writer, file, 1, told)
    wait_for(loop, told)
    assert [type(each) for each in told] == [DiskGone]
    disk.forget()
    assert_taken_back(found(tmp_path)[0])
    assert found(tmp_path)[1:] == [bytes(BLOCK)] * 3

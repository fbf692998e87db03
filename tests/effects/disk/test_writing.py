"""Writes past the page cache, by a flag of the kernel's or by O_DIRECT."""

import errno
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from eventually import wait_until
from fencepost.effects.disk import DiskFull, SystemDisk, writing
from fencepost.effects.disk import system as disk
from fencepost.effects.disk.direct import BLOCK_BYTES, PIECE_BYTES
from fencepost.effects.disk.writing import IOV_MAX, RWF_DONTCACHE
from fencepost.effects.gathering import JOINED_BELOW_BYTES
from this_machine import bytes_in_memory, goes_past_cache

HAS_DSYNC = hasattr(os, "RWF_DSYNC")


@pytest.fixture
def file(tmp_path):
    file = SystemDisk().open(str(tmp_path / "file"), create=True)
    yield file
    file.close()


def blocks(count: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") * 1024 for number in range(count))


@pytest.fixture
def without_dontcache(monkeypatch):
    """Act as on Linux before 6.16, which has no RWF_DONTCACHE."""
    monkeypatch.setattr(writing, "HAS_DONTCACHE", False)


@pytest.fixture(params=["RWF_DONTCACHE", "O_DIRECT", "paced"])
def paced(request, tmp_path):
    """Run a test with each way of writing past the page cache. The value is the argument `paced` for that way."""
    if request.param == "O_DIRECT":
        request.getfixturevalue("without_dontcache")
    if request.param != "RWF_DONTCACHE":
        return request.param == "paced"
    with (tmp_path / "tried").open("wb") as tried:
        if not writing._write_flagged(tried.fileno(), [b"x"], 0, writing.RWF_DONTCACHE):
            pytest.skip("NO RWF_DONTCACHE HERE (Linux before 6.16, or this file system): WRITES WITH IT ARE NOT TESTED")
    return False


@pytest.fixture
def synced(monkeypatch):
    """The descriptors of the files that were synced as a whole, in order."""
    whole = []
    monkeypatch.setattr(disk, "flush_to_device", lambda fd, flush: whole.append(fd))
    return whole


@pytest.mark.skipif(not HAS_DSYNC, reason="NO RWF_DSYNC HERE: SYNCED WRITES ARE NOT TESTED")
def test_write_synced_sets_rwf_dsync_on_its_last_write_and_does_not_sync_the_file(file, monkeypatch, synced):
    given, real = [], os.pwritev

    def noted(fd, buffers, position, flags=0):
        given.append(flags)
        return real(fd, buffers, position, flags)

    monkeypatch.setattr(os, "pwritev", noted)
    file.write_synced([b"one", b"two"], 5)
    assert file.read(20, 0) == bytes(5) + b"onetwo"
    assert given == [0, os.RWF_DSYNC]
    assert not synced


@pytest.mark.parametrize("error", [OSError(errno.EOPNOTSUPP, ""), OSError(errno.EINVAL, ""), NotImplementedError()])
def test_write_synced_syncs_the_whole_file_where_rwf_dsync_is_refused(file, monkeypatch, synced, error):
    real = os.pwritev

    def refusing(fd, buffers, position, flags=0):
        if flags:
            raise error
        return real(fd, buffers, position)

    monkeypatch.setattr(os, "pwritev", refusing)
    file.write_synced([b"one"], 0)
    assert file.read(3, 0) == b"one"
    assert len(synced) == 1


@pytest.mark.skipif(not HAS_DSYNC, reason="NO RWF_DSYNC HERE: SYNCED WRITES ARE NOT TESTED")
@pytest.mark.parametrize(("fails", "kind"), [(0, DiskFull), (1, OSError)], ids=["the write", "its sync"])
def test_enospc_raises_disk_full_in_the_write_and_os_error_in_the_sync(file, monkeypatch, fails, kind):
    """The write raises DiskFull, after which it may be tried again; the sync raises OSError, after which it may not."""
    real = os.pwritev

    def full(fd, buffers, position, flags=0):
        if bool(flags) == fails:
            raise OSError(errno.ENOSPC, "full")
        return real(fd, buffers, position, flags)

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="full") as raised:
        file.write_synced([b"one"], 0)
    assert type(raised.value) is kind
    assert raised.value.filename == file.path


@pytest.fixture
def with_dontcache(monkeypatch):
    """Act as on Linux from 6.16 on: writes are tried with RWF_DONTCACHE, even if this machine refuses it."""
    monkeypatch.setattr(writing, "HAS_DONTCACHE", True)


@pytest.fixture
def flags_given(monkeypatch, with_dontcache):
    """The flags of each pwritev call. The writes themselves are made without flags, so each flag is accepted."""
    real, given = os.pwritev, []

    def noted(fd, buffers, position, flags=0):
        given.append(flags)
        return real(fd, buffers, position)

    monkeypatch.setattr(os, "pwritev", noted)
    return given


@pytest.mark.parametrize("position", [0, 1, 4_095, 4_096, 70_000])
@pytest.mark.parametrize("size", [0, 1, 4_095, 4_096, 8_191, 12_289, PIECE_BYTES - 1, 2 * PIECE_BYTES + 5_000])
def test_bytes_written_past_the_cache_read_back_the_same(file, position, size, paced):
    file.write([b"before" * 20_000], 0)
    content = blocks(600)[3 : size + 3]
    pieces = [content[:7], memoryview(content)[7:5_000], bytearray(content[5_000:])]
    file.write_past_cache(pieces, position, paced=paced)
    assert file.read(len(content), position) == content
    assert file.read(position, 0) == (b"before" * 20_000)[:position]
    after = (b"before" * 20_000)[position + len(content) :]
    assert file.read(len(after), position + len(content)) == after


def test_writes_past_the_page_cache_may_begin_and_end_in_the_middle_of_a_block(file, paced):
    content = blocks(500)
    for begin, end in itertools.pairwise([0, 300_001, 300_002, 900_000, 1_300_003, len(content)]):
        file.write_past_cache([content[begin:end]], begin, paced=paced)
        assert file.read(end, 0) == content[:end]
    assert file.size() == len(content)


def test_bytes_written_past_the_cache_are_not_in_the_page_cache_until_they_are_read(file, tmp_path, paced):
    if not goes_past_cache(tmp_path):
        pytest.skip("this file system keeps all it has in memory (tmpfs), or has no O_DIRECT")
    content = blocks(2_500)
    file.write_past_cache([content], 1_000, paced=paced)
    file.sync()
    wait_until(lambda: bytes_in_memory(file.path) < len(content) // 4)  # a page at either end, however large, may stay
    assert file.read(len(content), 1_000) == content
    assert bytes_in_memory(file.path) >= len(content)


def test_20000_small_buffers_written_past_the_page_cache_read_back_in_order(file, paced):
    pieces = [bytes([i % 251]) * (i % 97) for i in range(20_000)]
    file.write_past_cache(pieces, 5, paced=paced)
    content = b"".join(pieces)
    assert file.read(len(content) + 5, 0) == b"\0" * 5 + content


def test_a_forked_process_has_its_own_write_buffer():
    """With a shared buffer parent and child would write each other's bytes."""
    script = """
import os
from fencepost.effects.disk import direct
piece = direct.fill_piece([b"parent"], 6)
child = os.fork()
if not child:
    direct.fill_piece([b"child "], 6)
    os._exit(0)
os.waitpid(child, 0)
assert piece[:6] == b"parent", bytes(piece[:6])
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_uncached_write_uses_the_dontcache_flag(file, flags_given):
    file.write_past_cache([blocks(3)], 1_000)
    file.write([b"x"], 0)
    assert flags_given[0] == RWF_DONTCACHE == 0x80  # in the kernel's include/uapi/linux/fs.h
    assert flags_given[-1] == 0


def test_a_paced_write_goes_to_the_device_in_pieces_of_at_most_512_kib(file, monkeypatch, flags_given):
    if not goes_past_cache(Path(file.path).parent):
        pytest.skip("NO O_DIRECT HERE (tmpfs): PACED WRITES ARE NOT TESTED")
    real, sizes = os.pwrite, []

    def noted(fd, piece, position):
        sizes.append(len(piece))
        return real(fd, piece, position)

    monkeypatch.setattr(os, "pwrite", noted)
    file.write_past_cache([blocks(300)], 1_000, paced=True)
    assert file.read(5_000_000, 1_000) == blocks(300)
    assert RWF_DONTCACHE not in flags_given
    assert sizes == [PIECE_BYTES, PIECE_BYTES, 299 * BLOCK_BYTES - 2 * PIECE_BYTES]


def test_a_paced_write_without_a_free_file_descriptor_uses_the_dontcache_flag(file, monkeypatch, flags_given):
    def refused(*_):
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "open", refused)
    file.write_past_cache([blocks(300)], 1_000, paced=True)
    assert file.read(5_000_000, 1_000) == blocks(300)
    assert flags_given[0] == RWF_DONTCACHE


def test_more_buffers_than_one_system_call_takes_are_all_written_uncached(file, flags_given):
    file.write_past_cache([bytes(2 * JOINED_BELOW_BYTES)] * (IOV_MAX + 1), 0)
    assert len(flags_given) > 1
    assert set(flags_given) == {RWF_DONTCACHE}


def test_the_rest_of_a_short_uncached_write_is_also_written_uncached(file, monkeypatch, flags_given):
    noting = os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda fd, buffers, *rest: noting(fd, [b"".join(buffers)[: 200 * BLOCK_BYTES]], *rest)
    )
    file.write_past_cache([blocks(300), blocks(300)], 1_000)
    assert file.read(5_000_000, 1_000) == 2 * blocks(300)
    assert set(flags_given) == {RWF_DONTCACHE}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_uncached_write_that_fails_after_a_short_one_raises(file, monkeypatch, flags_given, number):
    noting = os.pwritev

    def a_part(fd, buffers, position, flags):
        if flags_given:
            raise OSError(number, "no")
        return noting(fd, [b"".join(buffers)[:5_000]], position, flags)

    monkeypatch.setattr(os, "pwritev", a_part)
    with pytest.raises(OSError) as raised:
        file.write_past_cache([blocks(300)], 0)
    assert raised.value.errno == number


@pytest.mark.usefixtures("with_dontcache")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failed_uncached_write_raises_and_is_not_retried_as_an_ordinary_one(file, monkeypatch, number):
    calls = []

    def failing(fd, buffers, position, flags):
        calls.append(flags)
        raise OSError(number, "no")

    monkeypatch.setattr(os, "pwritev", failing)
    with pytest.raises(OSError) as raised:
        file.write_past_cache([blocks(300)], 0)
    assert (raised.value.errno, raised.value.filename, calls) == (number, file.path, [RWF_DONTCACHE])


@pytest.mark.usefixtures("with_dontcache")
@pytest.mark.parametrize(
    "answer", [OSError(errno.EOPNOTSUPP, "unknown flag"), OSError(errno.EINVAL, "unknown flag"), NotImplementedError()]
)
def test_on_a_kernel_without_the_dontcache_flag_ordinary_writes_are_used(file, monkeypatch, answer):
    real, flags_given = os.pwritev, []

    def older(fd, buffers, position, flags):
        flags_given.append(flags)
        if flags:
            raise answer
        return real(fd, buffers, position)

    monkeypatch.setattr(os, "pwritev", older)
    file.write_past_cache([blocks(300)], 1_000)
    assert flags_given[0] == RWF_DONTCACHE
    assert file.read(5_000_000, 1_000) == blocks(300)


@pytest.mark.usefixtures("without_dontcache")
@pytest.mark.parametrize("refusing", ["open", "pwrite"])
def test_on_a_file_system_without_uncached_writes_ordinary_ones_are_used(file, monkeypatch, refusing):
    def refused(*_):
        raise OSError(errno.EINVAL, "not here")

    monkeypatch.setattr(os, refusing, refused)
    file.write_past_cache([blocks(300)], 1_000)
    assert file.read(5_000_000, 1_000) == blocks(300)


@pytest.mark.usefixtures("without_dontcache")
def test_a_short_direct_write_past_the_cache_is_completed_by_ordinary_writes(file, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, buffer, position: real(fd, buffer[: len(buffer) // 2], position))
    file.write_past_cache([blocks(300)], 1_000)
    assert file.read(5_000_000, 1_000) == blocks(300)


@pytest.mark.usefixtures("without_dontcache")
@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EIO, OSError)])
def test_an_error_of_a_write_past_the_cache_has_the_files_name(file, monkeypatch, number, kind):
    def failing(fd, buffer, position):
        raise OSError(number, "no")

    monkeypatch.setattr(os, "pwrite", failing)
    with pytest.raises(kind) as raised:
        file.write_past_cache([blocks(300)], 0)
    assert (raised.value.errno, raised.value.filename) == (number, file.path)
    monkeypatch.undo()
    open_files = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    assert sum(os.path.realpath(f"/proc/self/fd/{fd}") == file.path for fd in open_files) <= 1

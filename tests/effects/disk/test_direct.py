"""Direct writes: whole blocks that bypass the page cache and are durable when the call returns, where supported."""

import errno
import mmap
import os
import threading

import pytest
from fencepost.effects.disk import DiskFull, SystemDisk, direct, writing
from fencepost.effects.disk import system as disk
from fencepost.effects.disk.direct import BLOCK_BYTES, PIECE_BYTES
from this_machine import goes_past_cache

BEFORE = bytes(4 * BLOCK_BYTES)


@pytest.fixture(scope="module")
def has_o_direct(tmp_path_factory):
    return goes_past_cache(tmp_path_factory.getbasetemp()) and hasattr(os, "RWF_DSYNC")


@pytest.fixture
def file(tmp_path, has_o_direct):
    if not has_o_direct:
        pytest.skip("NO O_DIRECT OR NO RWF_DSYNC HERE (tmpfs): SYNCED WRITES OF BLOCKS ARE NOT TESTED")
    file = SystemDisk().open(str(tmp_path / "file"), create=True)
    file.write([BEFORE], 0)
    file.sync()
    yield file
    file.close()


@pytest.fixture
def synced(monkeypatch):
    """The descriptors of the files that were synced as a whole, in order."""
    whole = []
    monkeypatch.setattr(disk, "flush_to_device", lambda fd, flush: whole.append(fd))
    return whole


@pytest.fixture
def calls(monkeypatch):
    """A list of (descriptor, size, position, flags) of each pwritev call."""
    real, seen = os.pwritev, []

    def noted(fd, buffers, position, flags=0):
        seen.append((fd, sum(map(len, buffers)), position, flags))
        return real(fd, buffers, position, flags)

    monkeypatch.setattr(os, "pwritev", noted)
    return seen


def refuse(monkeypatch, error):
    """Let each write that syncs itself fail with this error. Returns their positions, in a list that grows."""
    real, asked = os.pwritev, []

    def refusing(fd, buffers, position, flags=0):
        if flags:
            asked.append(position)
            raise error
        return real(fd, buffers, position, flags)

    monkeypatch.setattr(os, "pwritev", refusing)
    return asked


def write(file, data=b"x" * BLOCK_BYTES, position=BLOCK_BYTES):
    return file.write_blocks_synced([data], position, len(data))


def test_a_direct_write_is_one_synced_system_call_and_does_not_sync_the_whole_file(file, synced, calls):
    pieces = [b"many ", b"small ", b"pieces".ljust(2 * BLOCK_BYTES - 11, b".")]
    assert file.write_blocks_synced(pieces, BLOCK_BYTES, 2 * BLOCK_BYTES)
    assert calls == [(file.direct_fileno(), 2 * BLOCK_BYTES, BLOCK_BYTES, os.RWF_DSYNC)]
    assert file.direct_fileno() != file.fileno()
    assert synced == []
    content = BEFORE[:BLOCK_BYTES] + b"".join(pieces) + BEFORE[:BLOCK_BYTES]
    assert file.read(5 * BLOCK_BYTES, 0) == content


def test_a_direct_write_replaces_unsynced_bytes_in_the_page_cache(file):
    file.write([b"o" * len(BEFORE)], 0)
    assert write(file, b"n" * BLOCK_BYTES)
    file.write([b"later"], BLOCK_BYTES)
    content = file.read(3 * BLOCK_BYTES, 0)
    assert content[:BLOCK_BYTES] == content[2 * BLOCK_BYTES :] == b"o" * BLOCK_BYTES
    assert content[BLOCK_BYTES : 2 * BLOCK_BYTES] == b"later" + b"n" * (BLOCK_BYTES - 5)


def test_direct_writes_that_reuse_the_buffer_write_no_bytes_of_earlier_writes(file):
    for number in range(3):
        assert write(file, bytes([number]) * (3 - number) * BLOCK_BYTES, 0)
    assert file.read(4 * BLOCK_BYTES, 0) == b"".join(bytes([n]) * BLOCK_BYTES for n in (2, 1, 0, 0))


@pytest.mark.parametrize("error", [OSError(errno.EOPNOTSUPP, ""), OSError(errno.EINVAL, ""), NotImplementedError()])
def test_direct_writes_return_false_after_a_first_refused_one_without_a_second_try(file, monkeypatch, error):
    asked = refuse(monkeypatch, error)
    assert [write(file), write(file)] == [False, False]
    assert asked == [BLOCK_BYTES]
    assert file.read(len(BEFORE), 0) == BEFORE


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOENT, errno.EMFILE])
def test_opening_a_file_for_direct_writes_is_tried_only_once_if_it_fails(file, monkeypatch, number):
    asked = []

    def refusing(fd):
        asked.append(fd)
        raise OSError(number, "no")

    monkeypatch.setattr(direct, "open_again", refusing)
    assert [write(file), write(file)] == [False, False]
    assert len(asked) == 1


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_direct_write_counts_as_a_failed_sync(file, monkeypatch, number):
    """This includes a full disk: unlike after DiskFull, nobody may try again."""
    refuse(monkeypatch, OSError(number, "no"))
    with pytest.raises(OSError, match="no") as raised:
        write(file)
    assert not isinstance(raised.value, DiskFull)
    assert (raised.value.errno, raised.value.filename) == (number, file.path)


def test_a_partial_direct_write_continues_with_the_remaining_bytes(file, monkeypatch, synced):
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, *rest: real(fd, [buffers[0][:BLOCK_BYTES]], *rest))
    assert write(file, b"x" * 2 * BLOCK_BYTES)
    assert file.read(2 * BLOCK_BYTES, BLOCK_BYTES) == b"x" * 2 * BLOCK_BYTES
    assert synced == []


def test_write_blocks_synced_returns_false_if_the_write_stops_within_a_block(file, monkeypatch):
    real = os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda fd, buffers, position, flags: min(100, real(fd, buffers, position, flags))
    )
    assert not write(file)


@pytest.mark.parametrize(("size_bytes", "position"), [(BLOCK_BYTES, 512), (512, BLOCK_BYTES)])
def test_a_direct_write_of_partial_blocks_is_refused(file, calls, size_bytes, position):
    assert not write(file, bytes(size_bytes), position)
    assert calls == []


def test_a_direct_write_larger_than_the_buffer_is_refused(file, calls):
    assert not write(file, bytes(PIECE_BYTES + BLOCK_BYTES))
    assert calls == []


def test_a_direct_write_without_memory_for_its_buffer_returns_false(file, monkeypatch):
    def refusing(*arguments, **more):
        raise OSError(errno.ENOMEM, "no")

    monkeypatch.setattr(mmap, "mmap", refusing)
    done = []
    thread = threading.Thread(target=lambda: done.append(write(file)))
    thread.start()
    thread.join()
    assert done == [False]


def test_on_a_system_without_direct_writes_no_system_call_is_made(file, monkeypatch, calls):
    monkeypatch.setattr(writing, "RWF_DSYNC", 0)
    assert [write(file), write(file)] == [False, False]
    assert calls == []


def test_the_direct_descriptor_is_closed_with_its_file(file):
    assert write(file)
    fd = file.direct_fileno()
    file.close()
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(fd)

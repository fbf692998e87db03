"""Synced writes that the event loop begins, and that call back: on real files, with asyncio's loop and with uvloop."""

import asyncio
import contextlib
import ctypes
import errno
import gc
import itertools
import os
import platform
import resource
import struct
import sys
from pathlib import Path

import pytest
from fencepost.effects.disk import SystemDisk, aio
from fencepost.effects.disk.aio import BLOCK_BYTES, LARGEST_BYTES, MAX_AT_ONCE, open_writer
from fencepost.effects.gathering import JOINED_BELOW_BYTES
from fencepost.effects.simulated.disk import SimulatedDisk
from native_aio import (
    BEFORE,
    FILE_BYTES,
    begin,
    blocks,
    one_each,
    run_until,
    wait_for_device,
    write,
)
from this_machine import bytes_in_memory

IOCB = struct.Struct("<QIiHhIQQqQII")  # include/uapi/linux/aio_abi.h


@pytest.fixture(autouse=True)
def no_call_is_slow(monkeypatch):
    """Let no submit call count as slow, as it may be on a busy machine: slow ones would disable the writer."""
    monkeypatch.setattr(aio, "QUICK_NS", 1 << 62)


def contexts() -> int:
    """Return how many contexts the kernel has for this process: each has its ring in our memory."""
    return Path("/proc/self/maps").read_text().count("[aio]")


def descriptors() -> list[str]:
    """Return the open descriptors, without sockets: threads of clients of earlier tests may open and close those."""
    gc.collect()
    found = []
    for fd in sorted(os.listdir("/proc/self/fd")):
        with contextlib.suppress(FileNotFoundError):  # the descriptor by which the folder was listed is closed by now
            if not os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                found.append(fd)
    return found


@contextlib.contextmanager
def limited(what, soft):
    before = resource.getrlimit(what)
    resource.setrlimit(what, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(what, before)


def no_descriptor_left():
    lowest_free = os.dup(0)
    os.close(lowest_free)
    return limited(resource.RLIMIT_NOFILE, lowest_free)


def answer_once(writer, number):
    """Make io_submit fail once with this error number."""
    real = writer._call

    def refuse(*arguments):
        writer._call = real
        ctypes.set_errno(number)
        return -1

    writer._call = refuse


def results(writer, *changed):
    """Make the next writes seem to end with these results instead of the device's."""
    real, left = writer._report, list(changed)
    writer._report = lambda number, result: real(number, left.pop(0) if left else result)


# What is written


@pytest.mark.parametrize(("first", "count"), [(0, 1), (1, 9), (255, 256)])
def test_an_async_write_puts_its_bytes_exactly_at_the_given_position(loop, writer, file, first, count):
    content, position, size = blocks(count), first * BLOCK_BYTES, count * BLOCK_BYTES
    assert write(loop, writer, file, position, content) is None
    assert file.read(FILE_BYTES, 0) == BEFORE[:position] + content + BEFORE[position + size :]
    assert file.size() == FILE_BYTES


@pytest.mark.parametrize("edges", [[1, 7, 8192, 40_000], [16_384, 32_768], range(0, 65_536, 13)], ids=len)
def test_an_async_write_of_many_buffers_writes_them_consecutively(loop, writer, file, edges):
    content = blocks(16)
    cuts = itertools.pairwise([0, *edges, len(content)])
    kinds = itertools.cycle([bytes, bytearray, memoryview])
    buffers = [kind(content[start:end]) for kind, (start, end) in zip(kinds, cuts, strict=False)]
    assert (len(content) < JOINED_BELOW_BYTES * len(buffers)) == (len(edges) > 10)  # joined or not
    assert write(loop, writer, file, 0, *buffers) is None
    assert file.read(len(content) + 8, 0) == content + b"before.."


def test_a_limited_number_of_async_writes_run_at_once_and_each_calls_back_once(loop, writer, file):
    assert writer.at_once == MAX_AT_ONCE
    told, size = [], 50 * BLOCK_BYTES
    for turn in range(5):
        contents = [blocks(50, 100 * turn + number) for number in range(MAX_AT_ONCE)]
        assert all(begin(writer, file, number * size, one, told=told) for number, one in enumerate(contents))
        assert not begin(writer, file, MAX_AT_ONCE * size, blocks(1), told=told)
        assert told == [None] * MAX_AT_ONCE * turn
        run_until(loop, lambda expected=MAX_AT_ONCE * (turn + 1): len(told) >= expected)
        assert file.read(MAX_AT_ONCE * size + 8, 0) == b"".join(contents) + b"before.."
    assert told == [None] * MAX_AT_ONCE * 5


def test_async_writer_without_a_loop_uses_the_running_event_loop(loop, file):
    async def ask():
        return SystemDisk().async_writer()

    writer = loop.run_until_complete(ask())
    assert write(loop, writer, file, 0, blocks(1)) is None
    writer.close()


def test_the_callback_of_an_async_write_may_begin_another_async_write(loop, writer, file):
    told = []

    def next_one(error, took_ns):
        told.append(error)
        if len(told) < 10:
            assert writer.begin(file, len(told) * BLOCK_BYTES, [blocks(1, len(told))], BLOCK_BYTES, next_one)

    for _ in range(MAX_AT_ONCE - 1):
        assert begin(writer, file, 100 * BLOCK_BYTES, blocks(1), told=[])
    assert writer.begin(file, 0, [blocks(1)], BLOCK_BYTES, next_one)
    run_until(loop, lambda: len(told) == 10)
    assert told == [None] * 10
    assert file.read(10 * BLOCK_BYTES, 0) == one_each(10)


def test_the_callers_buffers_can_be_reused_once_an_async_write_has_begun(loop, writer, file):
    buffers = [bytearray(blocks(40, salt)) for salt in range(3)]
    told = []
    for salt, buffer in enumerate(buffers):
        assert begin(writer, file, salt * 40 * BLOCK_BYTES, memoryview(buffer), told=told)
        buffer[:] = bytes(len(buffer))
    run_until(loop, lambda: len(told) == 3)
    assert file.read(120 * BLOCK_BYTES, 0) == b"".join(blocks(40, salt) for salt in range(3))


def test_a_read_after_an_async_write_returns_the_new_bytes_not_cached_ones(loop, writer, file):
    file.truncate(LARGEST_BYTES)
    assert file.read(LARGEST_BYTES, 0).startswith(b"before..")
    assert bytes_in_memory(file.path) == LARGEST_BYTES
    assert write(loop, writer, file, 0, blocks(256)) is None
    assert bytes_in_memory(file.path) == 0
    assert file.read(LARGEST_BYTES, 0) == blocks(256)


def test_the_kernel_is_asked_to_make_each_write_durable(loop, writer, file):
    real, asked = writer._call, []

    def noted(number, *arguments):
        if number.value == writer._submit.value:
            asked.append(IOCB.unpack(ctypes.string_at(arguments[2][0], IOCB.size)))
        return real(number, *arguments)

    writer._call = noted
    assert write(loop, writer, file, BLOCK_BYTES, blocks(2)) is None
    [(_, _, flags, operation, _, fd, _, size, position, _, _, _)] = asked
    assert (flags, operation, fd) == (os.RWF_DSYNC, 1, file.direct_fileno())
    assert (size, position) == (2 * BLOCK_BYTES, BLOCK_BYTES)


# What is refused


@pytest.mark.parametrize(
    ("position", "size"), [(1, 4096), (512, 4096), (0, 4095), (0, 512), (0, LARGEST_BYTES + BLOCK_BYTES)]
)
def test_an_async_write_of_partial_blocks_or_of_too_many_bytes_is_not_begun(loop, writer, file, position, size):
    assert not begin(writer, file, position, bytes(size), told=[])
    assert write(loop, writer, file, 0, blocks(1)) is None  # a write of whole blocks is begun afterwards
    assert file.read(size, BLOCK_BYTES) == BEFORE[:size]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT])
def test_a_file_system_without_o_direct_is_tried_only_once(loop, writer, file, monkeypatch, number):
    asked = []

    def refused(path, flags):
        asked.append(path)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refused)
    assert not any(begin(writer, file, 0, blocks(1), told=[]) for _ in range(3))
    assert len(asked) == 1


def test_an_async_write_to_a_file_of_a_simulated_disk_is_not_begun(loop, writer):
    disk = SimulatedDisk()
    with pytest.raises(OSError) as raised:
        disk.open("/f", create=True).direct_fileno()
    assert (raised.value.errno, raised.value.filename) == (errno.EOPNOTSUPP, "/f")
    assert not begin(writer, disk.open("/f"), 0, blocks(1), told=[])


@pytest.mark.parametrize("wanting", ["a descriptor", "memory", "a place in the kernel"])
def test_a_lack_of_memory_or_descriptors_does_not_disable_async_writes(loop, writer, file, monkeypatch, wanting):
    def no_memory(*_, **__):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    told = []
    with no_descriptor_left() if wanting == "a descriptor" else monkeypatch.context() as patched:
        for _ in range(MAX_AT_ONCE + 1):
            if wanting == "memory":
                patched.setattr(aio.mmap, "mmap", no_memory)
            elif wanting == "a place in the kernel":
                answer_once(writer, errno.EAGAIN)
            assert not begin(writer, file, 0, blocks(1), told=told)
    assert all(begin(writer, file, 0, blocks(1), told=told) for _ in range(MAX_AT_ONCE))  # no room was lost
    run_until(loop, lambda: len(told) == MAX_AT_ONCE)
    assert told == [None] * MAX_AT_ONCE


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_a_kernel_without_durable_async_writes_is_tried_only_once(loop, writer, file, number):
    told = []
    assert begin(writer, file, 0, blocks(1), told=told)
    answer_once(writer, number)
    assert not any(begin(writer, file, BLOCK_BYTES, blocks(1), told=told) for _ in range(2))
    run_until(loop, lambda: told)  # the write that was begun before still completes
    assert told == [None]
    assert file.read(2 * BLOCK_BYTES, 0) == blocks(1) + BEFORE[:BLOCK_BYTES]


# Where there is none


@pytest.mark.parametrize("refused", ["io_setup", "eventfd"])
def test_open_writer_returns_none_and_leaks_nothing_if_io_setup_or_eventfd_fails(loop, monkeypatch, refused):
    before = descriptors(), contexts()
    if refused == "io_setup":
        monkeypatch.setattr(aio, "_ALL", ctypes.c_long(1 << 30))  # no kernel has so many
    with no_descriptor_left() if refused == "eventfd" else contextlib.nullcontext():
        assert open_writer(loop) is None
    assert (descriptors(), contexts()) == before


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (platform, "machine", lambda: "riscv64"),
        (struct, "calcsize", lambda form: 4),
        (sys, "platform", "darwin"),
        (aio, "RWF_DSYNC", 0),
        (ctypes, "CDLL", lambda name, use_errno: object()),
    ],
    ids=["another processor", "32 bits", "another kernel", "no RWF_DSYNC", "no syscall in the C library"],
)
def test_open_writer_returns_none_on_an_unsupported_system_or_processor(loop, monkeypatch, module, name, value):
    before = descriptors(), contexts()
    with monkeypatch.context() as patched:
        patched.setattr(module, name, value)
        assert open_writer(loop) is None
    assert (descriptors(), contexts()) == before


# What the device says


def test_a_device_error_names_the_path_and_other_writes_continue(loop, writer, file):
    results(writer, -errno.EIO)
    error = write(loop, writer, file, 0, blocks(1))
    assert (type(error), error.errno, error.filename) == (OSError, errno.EIO, file.path)
    assert write(loop, writer, file, 0, blocks(1)) is None


@pytest.fixture
def synced(monkeypatch, file):
    """What the file had at each sync. A sync must be of this file, by a descriptor that nobody else has."""
    real, synced = os.fdatasync, []

    def noted(fd):
        real(fd)
        assert os.path.samestat(os.fstat(fd), os.fstat(file.fileno()))
        assert fd not in (file.fileno(), file.direct_fileno())
        synced.append(file.read(3 * BLOCK_BYTES, 0))

    monkeypatch.setattr(os, "fdatasync", noted)
    return synced


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_an_async_write_that_the_device_refuses_is_written_and_synced_by_a_worker(loop, writer, file, synced, number):
    """No further async write is begun; those already begun complete."""
    results(writer, -number)
    told = []
    assert begin(writer, file, 0, blocks(2), told=told)
    wait_for_device(writer, 1)
    assert begin(writer, file, 8 * BLOCK_BYTES, blocks(1, 1), told=told)
    file.write([bytes(3 * BLOCK_BYTES)], 0)  # as if the device had written nothing
    run_until(loop, lambda: len(told) == 2)
    assert told == [None, None]
    assert synced == [blocks(2) + bytes(BLOCK_BYTES)]
    assert file.read(BLOCK_BYTES, 8 * BLOCK_BYTES) == blocks(1, 1)
    assert not begin(writer, file, 0, blocks(1), told=told)


def test_a_partial_async_write_is_rewritten_whole_and_the_next_can_begin(loop, writer, file, synced):
    told = []
    with limited(resource.RLIMIT_FSIZE, BLOCK_BYTES):
        assert begin(writer, file, 0, blocks(3), told=told)
    wait_for_device(writer, 1)
    assert file.read(2 * BLOCK_BYTES, 0) == blocks(1) + BEFORE[:BLOCK_BYTES]
    run_until(loop, lambda: told)
    assert told == [None]
    assert synced == [blocks(3)]
    assert write(loop, writer, file, 0, blocks(1, 2)) is None
    assert len(synced) == 1


@pytest.mark.parametrize(("first", "count"), [(0, 3), (1, 1)], ids=["after a part", "at once"])
def test_an_error_of_a_write_carries_the_files_path(loop, writer, file, synced, first, count):
    told = []
    with limited(resource.RLIMIT_FSIZE, BLOCK_BYTES):
        assert begin(writer, file, first * BLOCK_BYTES, blocks(count), told=told)
        run_until(loop, lambda: told)
    assert [(error.errno, error.filename) for error in told] == [(errno.EFBIG, file.path)]
    assert file.read(8, BLOCK_BYTES) == b"before.."
    assert synced == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_after_an_async_write_was_rewritten_raises_with_the_files_path(
    loop, writer, file, monkeypatch, number
):
    def failing(fd):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fdatasync", failing)
    results(writer, -errno.EINVAL)
    error = write(loop, writer, file, 0, blocks(3))
    assert (error.errno, error.filename) == (number, file.path)


# The end


def test_close_waits_for_async_writes_without_callbacks_and_may_be_called_again(loop, writer, file):
    told, before, number_in_loop = [], contexts(), writer._event_fd
    for number in range(MAX_AT_ONCE // 2):
        assert begin(writer, file, number * LARGEST_BYTES, blocks(256, number), told=told)
    writer.close()
    assert (contexts(), loop.remove_reader(number_in_loop) or False) == (before - 1, False)
    assert file.read(FILE_BYTES, 0) == blocks(256, 0) + blocks(256, 1)
    loop.run_until_complete(asyncio.sleep(0.01))
    assert told == []
    assert not begin(writer, file, 0, blocks(1, 9), told=told)
    assert file.read(BLOCK_BYTES, 0) == blocks(1)
    reading, writing = os.pipe()  # the system reuses the numbers of the closed descriptors
    writer.close()
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("loop_closed_before", [False, True])
@pytest.mark.parametrize("count", [0, 2])
def test_closing_an_async_writer_leaves_no_descriptor_even_after_its_loop_closed(loop, file, loop_closed_before, count):
    before, contexts_before = descriptors(), contexts()
    writer = open_writer(loop)
    assert contexts() == contexts_before + 1
    told = []
    for number in range(count):
        assert begin(writer, file, number * BLOCK_BYTES, blocks(1, number), told=told)
    assert len(descriptors()) >= len(before) + (2 if count else 1)  # uvloop may have opened its own
    if loop_closed_before:
        loop.close()
    writer.close()
    file.close()
    assert set(descriptors()) < set(before)
    assert contexts() == contexts_before
    assert told == []
    assert Path(file.path).read_bytes()[: count * BLOCK_BYTES] == one_each(count)


def test_no_callback_runs_after_a_callback_has_closed_the_writer(loop, writer, file):
    told = []

    def close(error, took_ns):
        told.append(error)
        writer.close()

    for number in range(3):
        assert writer.begin(file, number * BLOCK_BYTES, [blocks(1, number)], BLOCK_BYTES, close)
    wait_for_device(writer, 3)
    run_until(loop, lambda: told)
    assert told == [None]
    assert file.read(3 * BLOCK_BYTES, 0) == one_each(3)


def test_an_exception_in_one_async_writes_callback_does_not_stop_other_callbacks(loop, writer, file):
    told, complaints = [], []

    def fails(error, took_ns):
        told.append(error)
        raise ValueError(len(told))

    loop.set_exception_handler(lambda loop, context: complaints.append(context["exception"]))
    for number in range(3):
        assert writer.begin(file, number * BLOCK_BYTES, [blocks(1, number)], BLOCK_BYTES, fails)
    wait_for_device(writer, 3)
    run_until(loop, lambda: complaints)
    assert told == [None] * 3
    assert [error.args for error in complaints] == [(1,), (2,), (3,)]


def test_a_file_opens_one_direct_io_descriptor_and_closes_it(loop, writer, file, tmp_path):
    before = descriptors()
    other = SystemDisk().open(file.path)
    assert write(loop, writer, other, 0, blocks(1)) is None
    assert write(loop, writer, other, 0, blocks(1)) is None
    assert len(descriptors()) == len(before) + 2  # the file's own and one for direct I/O
    other.close()
    other.close()
    assert descriptors() == before
    assert not begin(writer, other, 0, blocks(1), told=[])

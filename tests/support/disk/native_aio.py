"""What tests of native asynchronous I/O write, and how they wait; fixtures: tests/effects/disk/conftest.py."""

import asyncio
import ctypes
import platform
import struct
import sys
from pathlib import Path

from eventually import wait_until
from fencepost.effects.disk.aio import BLOCK_BYTES, LARGEST_BYTES

FILE_BYTES = 2 * LARGEST_BYTES
BEFORE = b"before.." * (FILE_BYTES // 8)
IO_SETUP, IO_DESTROY = {"x86_64": (206, 207), "aarch64": (0, 1)}.get(platform.machine(), (-1, -1))


def has_native_aio() -> bool:
    """Return whether the system lets this process create a context for native asynchronous I/O."""
    if sys.platform != "linux" or IO_SETUP < 0:
        return False
    context = ctypes.c_ulong(0)
    call = ctypes.CDLL(None).syscall
    made = call(ctypes.c_long(IO_SETUP), ctypes.c_long(1), ctypes.byref(context)) == 0
    return made and call(ctypes.c_long(IO_DESTROY), context) == 0


def blocks(count: int, salt: int = 0) -> bytes:
    """Return this many different blocks; with another salt, all are different."""
    return b"".join(struct.pack(">II", salt, number) * (BLOCK_BYTES // 8) for number in range(count))


def one_each(count: int) -> bytes:
    return b"".join(blocks(1, salt) for salt in range(count))


def begin(writer, file, position, *buffers, told):
    """Begin a write and return whether it could be begun. When it ends, its error is appended to `told`; or the time
    it took, if that is not positive.
    """
    done = lambda error, took_ns: told.append(error if took_ns > 0 else took_ns)  # noqa: E731
    return writer.begin(file, position, buffers, sum(map(len, buffers)), done)


def run_until(loop, done):
    wait_until(lambda: loop.run_until_complete(asyncio.sleep(0.001)) or done())
    loop.run_until_complete(asyncio.sleep(0.001))  # what is told twice is told by now


def write(loop, writer, file, position, *buffers):
    """Write, wait for the end, and return the error that was reported."""
    told = []
    assert begin(writer, file, position, *buffers, told=told)
    run_until(loop, lambda: told)
    assert len(told) == 1
    return told[0]


def wait_for_device(writer, count):
    """Wait until the device has finished exactly `count` writes that the loop has not noticed yet."""
    state = Path(f"/proc/self/fdinfo/{writer._event_fd}")
    wait_until(lambda: f"eventfd-count: {count:16x}\n" in state.read_text())

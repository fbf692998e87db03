"""Writes with syncs that the kernel does asynchronously: several at a time, each calls back when it is durable.

Why. A thread that writes and syncs costs the loop two switches of threads, each of which may wait for the interpreter
and for a processor, and a thread does one write at a time. Here the kernel works alone: one call begins a write, and a
descriptor in the loop becomes readable when the write has ended. Such a write bypasses the page cache (O_DIRECT) and
makes its own bytes durable (RWF_DSYNC): an error of its bytes is reported to that write, even if others run at the same
time.

The rules: a write makes only its own bytes durable. It consists of whole blocks over bytes that the file already has,
because the kernel would make the caller wait while it allocates new blocks. The bytes are copied, because the device
reads them from aligned memory. What is not possible is refused before anything is begun, so that the caller can write
in another way; what the device refuses later is written again here by ordinary calls. Some file systems do all of a
write before the call returns (btrfs; ext4 with data=journal), so the loop would wait for their device: after a few such
writes no further one is begun (decision 24). Source: Linux `io_submit(2)`, `io_getevents(2)`,
include/uapi/linux/aio_abi.h; `open(2)` on O_DIRECT.
"""

import asyncio
import ctypes
import errno
import logging
import mmap
import os
import platform
import select
import struct
import sys
import time
from collections.abc import Sequence

from ..gathering import Buffer, join_buffers
from ..threads import QUICK_NS
from .async_writer import WAITED_FOR, AsyncWriter, DirectFile, Done
from .writing import RWF_DSYNC

log = logging.getLogger("fencepost.storage")
BLOCK_BYTES = 4096
MAX_AT_ONCE = 4  # also the number of the journal's rounds in flight: broker/rounds.py asks at_once
LARGEST_BYTES = 1 << 20
FROM_BYTES = 32 << 10  # the loop had better wait for smaller writes: meanwhile requests gather (measured: decision 24)

_NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}  # io_setup, _destroy, _getevents, _submit
# data, key, rw_flags, opcode, priority, descriptor, buffer, size, position, reserved, flags, event descriptor
_IOCB = struct.Struct("<QIiHhIQQqQII")
_EVENT = struct.Struct("<QQqq")  # data, object, result, second result
_IOCB_CMD_PWRITE, _IOCB_FLAG_RESFD = 1, 1
_TRY_AGAIN = (errno.EAGAIN, errno.EINTR)
_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)
_NEVER = (*_REFUSED, errno.ENOENT)  # of an open with O_DIRECT: the file system lacks it, or there is no /proc
_ONE, _NONE, _ALL = ctypes.c_long(1), ctypes.c_long(0), ctypes.c_long(MAX_AT_ONCE)


class _Slot:
    """The buffer of one write, and the kernel's control block for it.

    view: the buffer. pointer: what io_submit takes. The other attributes belong to the write in flight. began_ns: when
    it began, by time.perf_counter_ns(). done: called when it has ended. fd: the file's descriptor with O_DIRECT.
    """

    __slots__ = ("_address", "_iocb", "began_ns", "done", "fd", "file", "pointer", "position", "size", "view")
    began_ns: int
    done: Done
    fd: int
    file: DirectFile
    position: int
    size: int

    def __init__(self) -> None:
        memory = mmap.mmap(-1, LARGEST_BYTES, flags=mmap.MAP_PRIVATE)
        self.view = memoryview(memory)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._iocb = ctypes.create_string_buffer(_IOCB.size)
        self.pointer = (ctypes.c_void_p * 1)(ctypes.addressof(self._iocb))

    def fill(self, number: int, file: DirectFile, fd: int, position: int, size: int, event_fd: int) -> None:
        """Set the control block: write this slot's buffer at `position` of the file, synced. number: identifies the
        slot.
        """
        self.file, self.fd, self.position, self.size = file, fd, position, size
        what = (number, 0, RWF_DSYNC, _IOCB_CMD_PWRITE, 0)
        where = (fd, self._address, size, position, 0)
        _IOCB.pack_into(self._iocb, 0, *what, *where, _IOCB_FLAG_RESFD, event_fd)

    def write_otherwise(self) -> OSError | None:
        """Write and sync the slot's bytes by ordinary calls. Blocks the loop, but is rarely needed. Returns the error;
        None if there is none.

        A failed write-back is reported once to each open descriptor: by the first sync or synced write on it. So the
        sync uses a descriptor of its own.
        """
        try:
            fd = os.open(f"/proc/self/fd/{self.fd}", os.O_WRONLY)
            try:
                self.file.write([self.view[: self.size]], self.position)
                os.fdatasync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            error.filename = self.file.path
            return error
        return None


class AioWriter(AsyncWriter):
    """A writer that uses Linux's native asynchronous I/O. Made by open_writer()."""

    from_bytes = FROM_BYTES
    largest_bytes = LARGEST_BYTES

    def __init__(self, loop: asyncio.AbstractEventLoop, numbers: tuple[int, int, int, int]) -> None:
        """Create the kernel's queue. numbers: of its system calls. Raises OSError if the system does not allow it."""
        self._setup, self._destroy, self._getevents, self._submit = map(ctypes.c_long, numbers)
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        if self._call(self._setup, _ALL, ctypes.byref(self._context)) != 0:
            os.close(self._event_fd)
            raise OSError(ctypes.get_errno(), "io_setup")
        self._loop = loop
        self._events = ctypes.create_string_buffer(_EVENT.size * MAX_AT_ONCE)
        self._slots: list[_Slot] = []
        self._free: list[int] = []
        self._at_once = MAX_AT_ONCE
        self._waited_for = 0  # writes in a row that made the loop wait
        self._poll_of_ends = select.poll()  # tells whether a write has ended that was not collected yet
        self._poll_of_ends.register(self._event_fd, select.POLLIN)
        loop.add_reader(self._event_fd, self._collect_ended)

    @property
    def at_once(self) -> int:
        """How many writes may be in flight; 0 once no further write will be begun."""
        return self._at_once

    def begin(self, file: DirectFile, position: int, buffers: Sequence[Buffer], size_bytes: int, done: Done) -> bool:
        """Begin a synced write; see AsyncWriter.begin. Returns False if it cannot be done this way, or not now."""
        if not self._at_once or size_bytes > LARGEST_BYTES or (position | size_bytes) % BLOCK_BYTES:
            return False
        if not self._free and not self._add_slot():
            return False
        try:
            fd = file.direct_fileno()
        except OSError as error:
            if error.errno in _NEVER:  # other errors may pass: perhaps no descriptor is left now
                self._at_once = 0
            return False
        slot = self._slots[self._free[-1]]
        at = 0
        for buffer in join_buffers(buffers, size_bytes):
            slot.view[at : at + len(buffer)] = buffer
            at += len(buffer)
        slot.fill(self._free[-1], file, fd, position, size_bytes, self._event_fd)
        slot.done, slot.began_ns = done, time.perf_counter_ns()
        if self._call(self._submit, self._context, _ONE, slot.pointer) != 1:
            # The kernel does not support such writes. An error of the device comes only when a write has ended.
            if ctypes.get_errno() not in _TRY_AGAIN:
                self._at_once = 0
            return False
        self._free.pop()
        if len(self._free) == len(self._slots) - 1:
            self._judge(time.perf_counter_ns() - slot.began_ns)
        return True

    def close(self) -> None:
        """Wait for the writes in flight, without calling back, and remove the kernel's queue. May be called again."""
        if self._event_fd < 0:
            return
        self._at_once = 0
        self._call(self._destroy, self._context)
        if not self._loop.is_closed():
            self._loop.remove_reader(self._event_fd)
        os.close(self._event_fd)
        self._event_fd = -1

    def _judge(self, took_ns: int) -> None:
        """Check whether the call that began a write made the loop wait; if that happens often, begin no more writes.

        Called after that call, when no other write is in flight. took_ns: how long the call took.
        """
        if not self._poll_of_ends.poll(0):
            self._waited_for = 0
        elif took_ns > QUICK_NS:
            self._waited_for += 1
            if self._waited_for == WAITED_FOR:
                self._at_once = 0
                log.info("%d asynchronous writes in a row made the loop wait: threads write from now on", WAITED_FOR)

    def _add_slot(self) -> bool:
        """Add a slot, whose memory is allocated now. Returns False if there are MAX_AT_ONCE, or no memory is left."""
        if len(self._slots) == MAX_AT_ONCE:
            return False
        try:
            self._slots.append(_Slot())
        except OSError:  # no memory is left
            return False
        self._free.append(len(self._slots) - 1)
        return True

    def _collect_ended(self) -> None:
        """Collect the writes that have ended, and call back for each. Called by the loop."""
        try:
            os.eventfd_read(self._event_fd)
        except BlockingIOError:
            return
        count = self._call(self._getevents, self._context, _NONE, _ALL, self._events, None)
        for place in range(count):
            number, _, result, _ = _EVENT.unpack_from(self._events, _EVENT.size * place)
            if self._event_fd < 0:  # closed by a `done`
                return
            try:
                self._report(number, result)
            except Exception as error:  # a bug in that `done`: call the others nevertheless
                self._loop.call_exception_handler({"message": "callback of an ended write", "exception": error})

    def _report(self, number: int, result: int) -> None:
        """Call back for one write that has ended. result: bytes written, or below 0 an errno.

        If the device does not support this kind of write, or wrote only a part, write it by ordinary calls first.
        """
        slot = self._slots[number]
        error = None
        if -result in _REFUSED:
            self._at_once = 0
            error = slot.write_otherwise()
        elif result < 0:
            error = OSError(-result, os.strerror(-result), slot.file.path)
        elif result != slot.size:  # only a part was written: write all again
            error = slot.write_otherwise()
        done = slot.done
        del slot.done, slot.file
        self._free.append(number)
        done(error, time.perf_counter_ns() - slot.began_ns)


def open_writer(loop: asyncio.AbstractEventLoop) -> AsyncWriter | None:
    """Return a writer; None if the system has none or does not allow it (kernel, processor, container rules,
    limits).
    """
    numbers = _NUMBERS.get(platform.machine()) if sys.platform == "linux" and struct.calcsize("P") == 8 else None
    if numbers is None or not RWF_DSYNC:
        return None
    try:
        return AioWriter(loop, numbers)
    except (OSError, AttributeError):  # a C library without `syscall`
        return None

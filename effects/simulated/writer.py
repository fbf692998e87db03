"""Asynchronous synced writes on a simulated disk: each takes effect after a latency of its own.

So writes that were begun together take effect, and become durable, in any order. A power cut may keep a later write and
lose an earlier one, as on a real device. Deterministic.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from ..disk.async_writer import WAITED_FOR, AsyncWriter, DirectFile, Done
from ..gathering import Buffer
from .executors import Latency, later


class _File(Protocol):
    def write_alone(self, data: bytes, position: int) -> Callable[[], None]:
        """Write. Returns a function that makes this write durable, and no other."""
        ...


class SimulatedWriter(AsyncWriter):
    """A writer on a simulated disk. from_bytes is 1, so that the small rounds of tests use it too."""

    from_bytes = 1
    largest_bytes = 1 << 20

    def __init__(self, at_once: int, latency: Latency | None, *, in_call: bool = False) -> None:
        """at_once: how many writes may be in flight. in_call: begin() does all of a write, as some file systems do.

        After WAITED_FOR such writes no further one is begun, as with the real writer.
        """
        self._at_once = at_once
        self._left = WAITED_FOR if in_call else None
        self._latency = latency
        self._under_way: dict[object, Callable[[], None]] = {}  # what completes each write
        self._ended = False

    @property
    def at_once(self) -> int:
        return self._at_once

    def begin(self, file: DirectFile, position: int, buffers: Sequence[Buffer], size_bytes: int, done: Done) -> bool:
        """Begin a synced write, which takes effect after its latency. Returns False if at_once of them are in
        flight.
        """
        if self._ended or len(self._under_way) >= self._at_once:
            return False
        write = _Write(cast(_File, file), b"".join(buffers), position)
        self._under_way[write] = write.complete
        before, after = self._latency() if self._latency else (0.0, 0.0)
        loop = asyncio.get_running_loop()
        if self._left is not None:
            self._do_all(loop, write, after, done)
            return True
        later(loop, before, self._write, loop, write, after, done)
        return True

    def close(self) -> None:
        """Complete all writes in flight now; their `done` is not called."""
        self._ended = True
        for complete in list(self._under_way.values()):
            complete()
        self._under_way.clear()

    def halt(self) -> None:
        """Simulate the end of the process: writes in flight have no effect any more, no `done` is called."""
        self._ended = True
        self._under_way.clear()

    def _do_all(self, loop: asyncio.AbstractEventLoop, write: "_Write", after: float, done: Done) -> None:
        """Do all of a write now, and call `done` after this many seconds."""
        write.complete()
        assert self._left is not None
        self._left -= 1
        if not self._left:
            self._at_once = 0
        later(loop, after, self._tell, write, done)

    def _tell(self, write: "_Write", done: Done) -> None:
        """Call `done` for a completed write, unless the writer was closed."""
        if self._under_way.pop(write, None):
            done(write.error, 0)

    def _write(self, loop: asyncio.AbstractEventLoop, write: "_Write", after: float, done: Done) -> None:
        """Do the write, unless the writer was closed, and sync it after this many seconds."""
        if write in self._under_way:
            write.write()
            later(loop, after, self._sync, write, done)

    def _sync(self, write: "_Write", done: Done) -> None:
        """Sync the write and call `done`, unless the writer was closed."""
        if self._under_way.pop(write, None):
            write.complete()
            done(write.error, 0)


class _Write:
    """One write, which is begun, then written, then synced. error: of one of these steps."""

    def __init__(self, file: _File, data: bytes, position: int) -> None:
        self.error: OSError | None = None
        self._file = file
        self._data = data
        self._position = position
        self._sync: Callable[[], None] | None = None
        self._done = False

    def write(self) -> None:
        """Write the data, but do not sync it. Keeps the error, if there is one."""
        try:
            self._sync = self._file.write_alone(self._data, self._position)
        except OSError as error:
            self.error = error

    def complete(self) -> None:
        """Do the remaining steps: write the data if that is not done, and sync it."""
        if self._done:
            return
        self._done = True
        if self._sync is None and self.error is None:
            self.write()
        if self._sync is not None:
            try:
                self._sync()
            except OSError as error:
                self.error = error

"""Synced writes that a loop begins, on a simulated disk: each has its effect on the disk after a latency of its own.

So those that were begun together are written, and durable, in any order. A power cut between may leave a later one and
take an earlier one, as a device may. Deterministic.
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
        """in_call: begin() does all of a write, as some file systems do; after WAITED_FOR of them none is begun."""
        self._at_once = at_once
        self._left = WAITED_FOR if in_call else None
        self._latency = latency
        self._under_way: dict[object, Callable[[], None]] = {}  # what completes each of them
        self._ended = False

    @property
    def at_once(self) -> int:
        return self._at_once

    def begin(self, file: DirectFile, position: int, buffers: Sequence[Buffer], size_bytes: int, done: Done) -> bool:
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
        """Apply all begun writes now."""
        self._ended = True
        for complete in list(self._under_way.values()):
            complete()
        self._under_way.clear()

    def halt(self) -> None:
        """End the process: begun writes have no effect any more, no callback is called."""
        self._ended = True
        self._under_way.clear()

    def _do_all(self, loop: asyncio.AbstractEventLoop, write: "_Write", after: float, done: Done) -> None:
        write.complete()
        assert self._left is not None
        self._left -= 1
        if not self._left:
            self._at_once = 0
        later(loop, after, self._tell, write, done)

    def _tell(self, write: "_Write", done: Done) -> None:
        if self._under_way.pop(write, None):
            done(write.error, 0)

    def _write(self, loop: asyncio.AbstractEventLoop, write: "_Write", after: float, done: Done) -> None:
        if write in self._under_way:
            write.write()
            later(loop, after, self._sync, write, done)

    def _sync(self, write: "_Write", done: Done) -> None:
        if self._under_way.pop(write, None):
            write.complete()
            done(write.error, 0)


class _Write:
    """One write: begun, written, synced; or with the error of one of these steps."""

    def __init__(self, file: _File, data: bytes, position: int) -> None:
        self.error: OSError | None = None
        self._file = file
        self._data = data
        self._position = position
        self._sync: Callable[[], None] | None = None
        self._done = False

    def write(self) -> None:
        try:
            self._sync = self._file.write_alone(self._data, self._position)
        except OSError as error:
            self.error = error

    def complete(self) -> None:
        """Do the remaining steps of the write."""
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

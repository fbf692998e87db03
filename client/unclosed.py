"""The end of a client: by close(), when nobody holds it any more, or when the interpreter exits.

The rule: all three do the same, as far as the client's event loop still runs, and none is silent about what is lost. At
the exit of the interpreter, or of a worker of multiprocessing, a client whose loop runs in another thread, as those of
fencepost.sync do, has EXIT_MS for it; where the loop has ended, nothing can be sent any more, and what is lost is only
logged.
"""

import asyncio
import atexit
import concurrent.futures
import os
import sys
from abc import ABC, abstractmethod
from threading import get_ident
from weakref import WeakSet

from .net.loop_affinity import LoopAffinity

EXIT_MS = 5_000
"""How long the exit of the interpreter, or the end of asyncio.run, waits for clients that were not closed."""


class Parts(ABC):
    """What must be ended of one client. Only the client refers to it, so that it outlives the client to be ended."""

    def __init__(self, affinity: LoopAffinity) -> None:
        self._affinity = affinity
        self._is_open = False
        self._ended: asyncio.Event | None = None

    def begin(self) -> None:
        """Note that the client is started and must be closed from now on."""
        self._is_open = True
        _open.add(self)
        atexit.unregister(_end_all)  # again, so that it runs before the exit of an embedded broker started by now
        atexit.register(_end_all)
        _end_with_worker()

    async def end(self, timeout_ms: float, *, extra_ms: float = 0) -> None:
        """Finish the client's work within timeout_ms, then release everything. In the client's loop.

        extra_ms: how much longer it works if it is cancelled.
        """
        if self._ended is not None:
            await asyncio.wait({asyncio.ensure_future(self._ended.wait())}, timeout=timeout_ms / 1000)
            return
        self._ended = asyncio.Event()
        try:
            try:
                await self._finish_within(timeout_ms)
            except asyncio.CancelledError:
                if not extra_ms:
                    raise
                await self._finish_within(extra_ms)
        finally:
            try:
                await self.release()
            finally:
                self._is_open = False
                self._ended.set()

    async def _finish_within(self, timeout_ms: float) -> None:
        """Run `finish` for at most timeout_ms; then cancel it, without an error."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.finish(timeout_ms)
        except TimeoutError:
            pass

    @abstractmethod
    async def finish(self, timeout_ms: float) -> None:
        """Do the client's remaining work. It is cancelled after timeout_ms, and may be called again then."""

    @abstractmethod
    async def release(self) -> None:
        """Log what was not done, and close everything. Idempotent."""

    @abstractmethod
    def abandon(self) -> None:
        """Give up the client's work, because its event loop has ended, and log what is lost. Called from any thread."""

    def abandon_once(self) -> None:
        """Call abandon(), unless the client has ended, or belongs to the parent process of this fork."""
        if self._is_open and not self._affinity.is_forked:
            self._is_open = False
            self.abandon()

    def end_elsewhere(self, timeout_ms: float) -> "concurrent.futures.Future[None] | None":
        """End the client in its loop, from another thread. Returns a future that is done when the client has ended;
        None if it cannot be ended so: its loop does not run, or this is the loop's thread or a forked child.
        """
        loop, thread = self._affinity.loop, self._affinity.thread
        if not self._is_open or loop is None or self._affinity.is_forked or not loop.is_running():
            return None
        return None if thread == get_ident() else asyncio.run_coroutine_threadsafe(self.end(timeout_ms), loop)

    async def end_from_other_loop(self, timeout_ms: float) -> None:
        """End the client in its own loop if that runs; else log what is lost."""
        ending = self.end_elsewhere(timeout_ms)
        if ending is not None:
            await asyncio.wait({asyncio.wrap_future(ending)}, timeout=timeout_ms / 1000 + 1)
        self.abandon_once()

    def end_unheld(self, timeout_ms: float) -> None:
        """End a client that nobody references any more, in the background. From any thread."""
        if self._affinity.is_elsewhere:
            self._affinity.call_soon(self._end_unheld, timeout_ms)
        else:  # at once: its first step must come before asyncio.run, which may be about to end, cancels it
            self._end_unheld(timeout_ms)

    def _end_unheld(self, timeout_ms: float) -> None:
        """End a client that was dropped without close(), in a task of its own."""
        _ending.add(task := asyncio.get_running_loop().create_task(self.end(timeout_ms, extra_ms=EXIT_MS)))
        task.add_done_callback(_ending.discard)

    def __del__(self) -> None:
        if getattr(self, "_is_open", False):  # its loop was closed before it could be ended there
            self.abandon_once()


_open: "WeakSet[Parts]" = WeakSet()
_ending: set["asyncio.Task[None]"] = set()


_worker: int | None = None


def _end_with_worker() -> None:
    """Register that a worker of multiprocessing ends all clients at its end, too.

    A worker that was forked ends by os._exit, in Python 3.11 without what atexit knows: only multiprocessing's own
    finalizers run. Those of a priority from 0 on run in time, before the worker's daemonic children are ended.
    """
    global _worker
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or _worker == os.getpid():
        return
    from multiprocessing.util import Finalize

    _worker = os.getpid()
    Finalize(None, _end_all, exitpriority=0)


def _end_all() -> None:
    """End all clients at the interpreter's or worker's exit, while threads and logging still work."""
    parts = list(_open)
    try:
        endings = [ending for one in parts if (ending := one.end_elsewhere(EXIT_MS)) is not None]
        concurrent.futures.wait(endings, EXIT_MS / 1000 + 1)
    finally:
        for one in parts:
            one.abandon_once()

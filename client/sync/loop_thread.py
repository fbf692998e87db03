"""The thread of the blocking clients: one event loop for all clients of a process, started when first needed.

The rule: it is a daemon thread of one process; after a fork, clients of the parent raise ForkedError, and the child
starts its own thread. If a caller is interrupted (Ctrl-C), its operation is cancelled, and the caller waits a bounded
time for the end of that, so that an open transaction is aborted before the interruption propagates.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from ...effects.threads import MORE_THREADS, CannotStartThread, start_thread
from ..errors import CommitOutcomeUnknownError as AsyncCommitOutcomeUnknownError
from ..errors import ForkedError, IllegalStateError, RetriableError
from .errors import CommitOutcomeUnknownError

T = TypeVar("T")

CANCEL_TIMEOUT_S = 8.0  # an abort may take 5 s of that


class LoopThread:
    """A thread that runs a loop until the process ends."""

    def __init__(self) -> None:
        """Start the thread. Raises RetriableError if the system has no thread for it now."""
        self.pid = os.getpid()
        self._loop = _new_loop()
        try:
            self._thread = start_thread(self._loop.run_forever, "fencepost-sync")
        except CannotStartThread as error:
            self._loop.close()
            raise RetriableError(str(error), hint=MORE_THREADS) from None

    def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine that `make` creates in the loop. Returns its result or raises its error.

        Raises ForkedError, and IllegalStateError if called within the loop, which would wait for itself.
        """
        self.check()
        running = _Running(make)
        try:  # from here on: a signal comes as soon as the other thread runs
            self._loop.call_soon_threadsafe(running.begin)
            result: T = running.outcome.result()
            return result
        except AsyncCommitOutcomeUnknownError as error:
            raise self._blocking(error) from error
        except BaseException:
            if not running.outcome.done():  # the wait was interrupted, not the work
                self._loop.call_soon_threadsafe(running.cancel)
                running.ended.wait(CANCEL_TIMEOUT_S)
            raise

    def _blocking(self, error: AsyncCommitOutcomeUnknownError) -> CommitOutcomeUnknownError:
        """Return the blocking form of this error; its resolve() runs in this loop, where its producer is."""
        hint = "" if error.hint == error.default_hint else error.hint.replace("await err", "err")
        return CommitOutcomeUnknownError(error.detail, code=error.code, hint=hint, ask=lambda: self.run(error.resolve))

    def call(self, call: Callable[[], T]) -> T:
        """Call a function that does not wait, in the loop, and return its result or raise its error."""

        async def now() -> T:
            return call()

        return self.run(now)

    @property
    def is_forked(self) -> bool:
        """Return whether the current process is not the one of the thread, but forked from it."""
        return self.pid != os.getpid()

    def check(self) -> None:
        """Raise ForkedError in a forked child, IllegalStateError in the thread itself."""
        if self.is_forked:
            raise ForkedError("this client was created before the process was forked")
        if threading.get_ident() == self._thread.ident:
            raise IllegalStateError("a blocking client must not be used inside a callback of its own thread")


class _Running:
    """A coroutine that runs in the loop for another thread. ended: set when `outcome` has its result or error."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.outcome: Future[Any] = Future()
        self.ended = threading.Event()
        self._make = make
        self._task: asyncio.Task[Any] | None = None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Cancel the task after its first step: cancelled before that, it would never run, and could not clean up."""
        if self._task is None:  # the caller was interrupted before it was begun
            self.ended.set()
        else:
            asyncio.get_running_loop().call_soon(self._task.cancel)

    async def _run(self) -> None:
        """Run the coroutine, and put its result or error into `outcome`."""
        try:
            result = await self._make()
        except BaseException as error:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(result)
        finally:
            self.ended.set()


_lock = threading.Lock()
_current: LoopThread | None = None


def loop_thread() -> LoopThread:
    """Return the thread of this process for blocking clients; start it at the first call."""
    global _current
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = LoopThread()
        return _current


def _after_fork() -> None:
    """Replace the lock in a forked child: a thread that does not exist there may have held it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, of uvloop if that is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()

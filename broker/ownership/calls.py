"""A broker's calls to the object store that has its journal. They block worker threads, and are repeated until the
store answers or the broker is stopped.

The rule: errors of one kind are logged once in SAID_EVERY_MS, however many threads meet one.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ...effects.clock import Clock
from ...effects.disk import Executor
from ...effects.objects import Objects, ObjectsError, Refused
from ...storage.objects.writer import pause_s
from .counted import CountedObjects
from .progress import ProgressLog

log = logging.getLogger("fencepost.broker")

T = TypeVar("T")
SAID_EVERY_MS = 60_000


class StoppedWaiting(Exception):
    """Raised if the broker is stopped before it owns the journal."""


class StoreCalls:
    """The store of one broker, and how it is called. objects: the store, which counts its calls."""

    def __init__(self, objects: Objects, clock: Clock, executor: Executor, sleep: Callable[[float], None]) -> None:
        """executor: WINDOW threads, used only for the store. sleep: called by worker threads, with seconds."""
        self.objects = CountedObjects(objects, clock)
        self.is_stopping = False
        self.sleep = sleep
        self._clock = clock
        self._executor = executor
        self._saying = threading.Lock()
        self._said_ms: dict[type[BaseException], int] = {}  # when errors were logged, by kind

    def stop(self) -> None:
        """Make the worker threads that wait for the store stop waiting. They raise StoppedWaiting."""
        self.is_stopping = True

    async def in_worker(self, job: Callable[[], T], executor: Executor | None = None) -> T:
        """Run the job in a worker thread, and return its result or raise its exception."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def ended(result: Any) -> None:
            """Pass the job's result or exception to the waiting coroutine."""
            if done.cancelled():
                return
            if isinstance(result, BaseException):
                done.set_exception(result)
            else:
                done.set_result(result)

        (executor or self._executor).submit(job, ended)
        found: T = await done
        return found

    def pause(self, error: ObjectsError, attempts: int) -> None:
        """Wait before the next attempt, longer after more of them. Blocks a worker. Raises StoppedWaiting when the
        broker stops.
        """
        if self.is_stopping:
            raise StoppedWaiting(f"stopped before {self.objects.where} had answered: {error}") from error
        if self.is_due(type(error)):
            log.warning("%s: %s; trying again", self.objects.where, advice(error))
        self.sleep(pause_s(attempts))

    def pause_unless_refused(self, error: ObjectsError, attempts: int) -> None:
        """Wait as pause() does, or raise Refused, which at a start means a mistake in the configuration."""
        if isinstance(error, Refused):
            raise error
        self.pause(error, attempts)

    def is_due(self, kind: type[BaseException]) -> bool:
        """Return whether to log errors of this kind now: once in SAID_EVERY_MS, however many workers meet one."""
        now_ms = self._clock.monotonic_ms()
        with self._saying:
            is_due = now_ms - self._said_ms.get(kind, -SAID_EVERY_MS) >= SAID_EVERY_MS
            if is_due:
                self._said_ms[kind] = now_ms
            return is_due

    def progress_log(self, what: str) -> ProgressLog:
        """Return an object that logs the progress of an operation before the broker serves, and raises StoppedWaiting
        if the broker is stopped. what: the operation, for the log.
        """
        return ProgressLog(self._clock, what, self._check_waiting)

    def _check_waiting(self) -> None:
        """Raise StoppedWaiting if the broker is stopped."""
        if self.is_stopping:
            raise StoppedWaiting("stopped while it copied data")


def advice(error: ObjectsError) -> str:
    """Return the text of a store's error, with a hint if the store refused the request."""
    return f"{error.reason}; {error.hint}" if isinstance(error, Refused) else error.reason

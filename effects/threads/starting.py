"""Threads: all threads of this package are started here, because the system may refuse to start one.

The rule: if no thread can be started, CannotStartThread is raised, and nothing was begun or queued; a caller that can
do with fewer threads goes on with those it has. Causes are limits on processes (`ulimit -u`, TasksMax of systemd, pids
of a container) and on memory (`ulimit -v`), which may end. The threads are daemons, so a call that hangs in one cannot
keep the process alive. Source: `pthread_create(3)`, EAGAIN.
"""

import asyncio
import contextvars
import errno
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from ..disk_errors import CannotOpen, TryLater

T = TypeVar("T")
MEANWHILE_S = 0.1
MORE_THREADS = (
    "raise the limit of processes and threads (ulimit -u, TasksMax= of systemd, --pids-limit of docker), or of memory"
)


class CannotStartThread(TryLater):
    """Raised if the system does not start another thread now. Nothing was begun."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.EAGAIN, f"the system gives this process no further thread (for {name})")

    def __str__(self) -> str:
        return str(self.strerror)


def start_thread(run: Callable[..., object], name: str, *arguments: Any) -> threading.Thread:
    """Start a daemon thread that runs run(*arguments). Raises: CannotStartThread."""
    thread = threading.Thread(target=run, name=name, args=arguments, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        raise CannotStartThread(name) from None
    return thread


async def call_in_thread(call: Callable[[], T], name: str) -> T:
    """Call the function in a new thread, with the caller's context, and return its result.

    Raises CannotStartThread, and what the function raises. asyncio.to_thread is not used: if no thread can be started,
    it leaves the call in a queue, and runs it at some later time.
    """
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_OneThread(name), context.run, call)


class _OneThread(Executor):
    """An executor for run_in_executor() that starts a thread for one call. A simulated loop makes the call directly."""

    def __init__(self, name: str) -> None:
        self._name = name

    def submit(self, call: Callable[..., T], /, *arguments: Any, **keywords: Any) -> "Future[T]":
        """Start a thread that makes the call; return the future of its result. Raises CannotStartThread."""
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()  # it cannot be cancelled any more; who waits for it can

        def run() -> None:
            """Make the call, and set its result or exception in the future."""
            try:
                outcome.set_result(call(*arguments, **keywords))
            except BaseException as error:
                outcome.set_exception(error)

        start_thread(run, self._name)
        return outcome


def call_all(
    calls: Iterable[Callable[[], object]], name: str, threads: int, meanwhile: Callable[[], None] | None = None
) -> None:
    """Make all calls, in up to `threads` threads, one of which is the caller's.

    meanwhile: if given, the caller's thread calls it again and again while `threads` other threads make the calls; if
    no thread can be started, the caller makes them. After an exception no further call is made, and the exception is
    raised; CannotOpen is raised only if there was no other exception.
    """
    left, errors = deque(calls), list[BaseException]()

    def work() -> None:
        """Make calls until none is left. An exception other than CannotOpen removes the calls that are left."""
        while True:
            try:
                call = left.popleft()
            except IndexError:
                return
            try:
                call()
            except CannotOpen as error:
                errors.append(error)
            except BaseException as error:
                errors.insert(0, error)
                left.clear()

    helpers = []
    try:
        for number in range(1 if meanwhile is None or threads == 1 else 0, min(threads, len(left))):
            helpers.append(start_thread(work, f"{name}-{number}"))
    except CannotStartThread:
        pass
    try:
        while meanwhile is not None and (alive := [helper for helper in helpers if helper.is_alive()]):
            meanwhile()
            alive[0].join(MEANWHILE_S)
        work()
    except BaseException:
        left.clear()
        raise
    finally:
        for helper in helpers:
            helper.join()
    if errors:
        raise errors[0]

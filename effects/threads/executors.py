"""Executors: they run blocking jobs in worker threads, or at once in the caller's thread if that is quicker.

The rules: a job uses only bytes and file descriptors, and runs in a worker; its result is handed back on the loop that
submitted it, where the state is changed. So state needs no lock (docs/ARCHITECTURE.md, threads). A job for a client has
an owner and a function that says whether it is still wanted: owners take turns, and a job that nobody wants any more is
dropped. All other jobs, such as those that make data durable, always run: an executor has a thread from its beginning,
or cannot be made.
"""

import asyncio
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from itertools import zip_longest
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from .starting import CannotStartThread, start_thread

T = TypeVar("T")
QUICK_NS = 400_000  # the way to a worker and back takes 100 to 200 us, with what two threads cost each other
LATELY = 8  # the weight of earlier jobs: one of 100 ms no longer matters after some 25 jobs
NEVER_NS = 1_000_000_000  # the average before the first job: not quick


GIVEN_WAY_S = 50e-6  # for a thread that waits to wake up in; after none, whoever gave way has the interpreter again


def give_way() -> None:
    """Sleep for a very short time, so that the event loop can run. Workers call it between parts of a computation."""
    time.sleep(GIVEN_WAY_S)


class JobDropped(Exception):
    """Passed to `done` instead of a result: the job did not run, because nobody wanted it any more or the executor
    was closed.
    """


def forget_locals(error: BaseException) -> None:
    """Release the local variables of a failed job, perhaps megabytes; its traceback still shows where it failed.

    If the error is raised again, it and the frame form a reference cycle, which the garbage collector has to find.
    """
    chain: BaseException | None = error
    while chain is not None:
        traceback.clear_frames(chain.__traceback__)
        chain = chain.__context__


class Entry:
    """One job in an executor's queue."""

    __slots__ = ("_wanted", "done", "job", "owner")

    def __init__(
        self,
        job: Callable[[], Any],
        done: Callable[[Any], None],
        owner: Hashable,
        wanted: Callable[[], bool] | None,
    ) -> None:
        self.job = job
        self.done = done
        self.owner = owner
        self._wanted = wanted

    def is_dropped(self, closed: bool) -> bool:
        """Return whether the job must not run, because nobody wants it any more. closed: whether the executor is
        closed, which drops all jobs that have a `wanted`.
        """
        return self._wanted is not None and (closed or not self._wanted())


E = TypeVar("E", bound=Entry)


class FairQueue(Generic[E]):
    """Waiting jobs. The jobs of one owner are in order; owners take turns. Pure."""

    def __init__(self) -> None:
        self._lines: OrderedDict[Hashable, deque[E]] = OrderedDict()  # by owner; the next one is first

    def __bool__(self) -> bool:
        return bool(self._lines)

    def put(self, entry: E) -> None:
        """Add a job after the others of its owner."""
        line = self._lines.get(entry.owner)
        if line is None:
            line = self._lines[entry.owner] = deque()
        line.append(entry)

    def take(self) -> E:
        """Remove and return the next job. Raises KeyError if there is none."""
        owner, line = self._lines.popitem(last=False)
        entry = line.popleft()
        if line:
            self._lines[owner] = line
        return entry

    def all(self) -> list[E]:
        """Return all waiting jobs, in the order in which they would be taken."""
        turns = zip_longest(*self._lines.values())
        return [entry for turn in turns for entry in turn if entry is not None]

    def clear(self) -> None:
        self._lines.clear()


class Executor(Protocol):
    """A queue of blocking jobs, with threads of its own. With one thread, the jobs of one owner run one after
    another, in order.
    """

    def submit(
        self,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        *,
        owner: Hashable = None,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Run `job` in a worker thread, then done(result or exception) on the event loop that is running now.

        owner: jobs of one owner are in order; owners take turns. wanted: called in the worker just before the job. If
        it returns False, or the executor was closed, `job` does not run, and `done` gets a JobDropped. None: the job
        always runs.
        """
        ...

    @property
    def quick(self) -> bool:
        """Whether recent jobs took so little time that running one in the caller's thread is faster than a callback."""
        ...

    @property
    def last_ns(self) -> int:
        """How many ns the last job took; 0 if that is not measured."""
        ...

    def run_here(self, job: Callable[[], T]) -> T:
        """Run a short job in the caller's thread, and return its result. Only while no other job runs and `quick` is
        true.
        """
        ...

    def close(self) -> None:
        """Accept no more jobs, and wait until all submitted jobs have run or are dropped.

        Their `done` may still be called after that.
        """
        ...

    def abandon(self) -> None:
        """Like close(), but do not wait for running jobs: for jobs that change nothing and may take seconds."""
        ...


class ThreadExecutor(Executor):
    """An executor with real threads. The first starts at once, others when needed, as many as the system allows."""

    def __init__(self, name: str, threads: int = 1, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        """Start the first thread. threads: how many there may be. Raises CannotStartThread."""
        self._now_ns = now_ns
        self._last_ns = 0
        self._lately_ns = NEVER_NS  # running average of a job's duration
        self._name = name
        self._limit = threads
        self._threads: list[threading.Thread] = []
        self._queue: FairQueue[Entry] = FairQueue()
        self._lock = threading.Lock()  # of the queue
        self._waiting: SimpleQueue[asyncio.AbstractEventLoop | None] = SimpleQueue()  # one for each job; None: end
        self._closed = False
        self._start_thread()

    def submit(
        self,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        *,
        owner: Hashable = None,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Run `job` in a thread, then `done` on the running loop. See Executor.submit."""
        if self._closed:
            raise RuntimeError(f"executor {self._name} is closed")
        with self._lock:
            self._queue.put(Entry(job, done, owner, wanted))
        self._waiting.put(asyncio.get_running_loop())
        if len(self._threads) < self._limit:
            try:
                self._start_thread()
            except CannotStartThread:  # the existing threads run it later
                pass

    @property
    def quick(self) -> bool:
        return self._lately_ns < QUICK_NS

    @property
    def last_ns(self) -> int:
        return self._last_ns

    def run_here(self, job: Callable[[], T]) -> T:
        """Run a short job in the caller's thread, and return its result."""
        if self._closed:
            raise RuntimeError(f"executor {self._name} is closed")
        return self._run_timed(job)

    def _run_timed(self, job: Callable[[], T]) -> T:
        """Run the job, and measure how long it takes."""
        began_ns = self._now_ns()
        try:
            return job()
        finally:
            self._last_ns = self._now_ns() - began_ns
            self._lately_ns += (self._last_ns - self._lately_ns) // LATELY

    def abandon(self) -> None:
        """Accept no more jobs, and let the threads end after the submitted jobs, without waiting for them."""
        self._closed = True
        for _ in self._threads:
            self._waiting.put(None)

    def close(self) -> None:
        """Accept no more jobs, and wait until all submitted jobs have run or are dropped."""
        self.abandon()
        for thread in self._threads:
            thread.join()

    def _start_thread(self) -> None:
        self._threads.append(start_thread(self._work, f"{self._name}-{len(self._threads)}"))

    def _work(self) -> None:
        """Run jobs until the executor is closed. The function of each thread."""
        while (loop := self._waiting.get()) is not None:
            with self._lock:
                entry = self._queue.take()
            result: Any
            try:
                result = JobDropped() if entry.is_dropped(self._closed) else self._run_timed(entry.job)
            except BaseException as error:  # also SystemExit: whoever submitted the job decides what it means
                forget_locals(error)
                result = error
            try:
                loop.call_soon_threadsafe(entry.done, result)
            except RuntimeError:  # the loop is closed: nobody waits for the result
                pass
            # An idle worker must not keep the last job's buffers alive.
            del entry, loop, result

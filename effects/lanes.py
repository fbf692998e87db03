"""Lanes: where blocking jobs run, off the loop, unless they are over sooner than they could be handed on.

The rule: a job touches bytes and file descriptors only, and runs in a worker; its result comes back on the loop that
submitted it, where state may be touched. So state needs no lock (docs/ARCHITECTURE.md, threads).
"""

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
QUICK_NS = 400_000  # the way to a worker and back takes 100 to 200 us, with what two threads cost each other
LATELY = 8  # one hiccup of 100 ms is forgiven after some 25 jobs
NEVER_NS = 1_000_000_000  # nothing is quick before it was seen to be


class Lane(Protocol):
    """A queue of blocking jobs. With one thread they run in the order given, one after another."""

    def submit(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `job` in a worker, then `done(result or exception)` on the asyncio loop that is running now."""
        ...

    @property
    def quick(self) -> bool:
        """Whether jobs lately ended so soon that to hand one over, and be told, takes longer than to wait for it."""
        ...

    def run_here(self, job: Callable[[], T]) -> T:
        """Run a job in the caller's thread, while none is under way: where the lane is quick, and the job small."""
        ...

    def close(self) -> None:
        """Take no more jobs, and wait until those taken have run. Their `done` may still be called afterwards."""
        ...


class ThreadLane(Lane):
    """Real threads, started when first needed. They are daemons: a hung device cannot keep a process alive."""

    def __init__(self, name: str, threads: int = 1, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now_ns = now_ns
        self._lately_ns = NEVER_NS  # what a job takes, the newest counting for one in LATELY
        self._name = name
        self._limit = threads
        self._threads: list[threading.Thread] = []
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None], asyncio.AbstractEventLoop] | None] = (
            SimpleQueue()
        )
        self._closed = False

    def submit(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        if self._closed:
            raise RuntimeError(f"lane {self._name} is closed")
        self._jobs.put((job, done, asyncio.get_running_loop()))
        if len(self._threads) < self._limit:
            self._start_thread()

    @property
    def quick(self) -> bool:
        return self._lately_ns < QUICK_NS

    def run_here(self, job: Callable[[], T]) -> T:
        if self._closed:
            raise RuntimeError(f"lane {self._name} is closed")
        return self._timed(job)

    def _timed(self, job: Callable[[], T]) -> T:
        began_ns = self._now_ns()
        try:
            return job()
        finally:
            self._lately_ns += (self._now_ns() - began_ns - self._lately_ns) // LATELY

    def close(self) -> None:
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, done, loop = entry
            result: Any
            try:
                result = self._timed(job)
            except BaseException as error:  # also SystemExit: whoever submitted the job decides what it means
                result = error
            try:
                loop.call_soon_threadsafe(done, result)
            except RuntimeError:  # the loop is closed: nobody is left to be told
                pass
            # An idle worker must not keep the last job's buffers alive.
            del entry, job, done, loop, result

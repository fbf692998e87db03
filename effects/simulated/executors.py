"""An executor without threads: jobs run in order, in the caller's thread, after the disk's latency has passed.

With a running asyncio loop a job takes effect in a later callback, and `done` follows in another, as with real threads.
Without one, or with `inline`, both happen inside `submit`. Either way a run repeats exactly.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from ..threads import Entry, Executor, FairQueue, JobDropped

T = TypeVar("T")
Latency = Callable[[], tuple[float, float]]  # seconds until a job takes effect, and from then until done is called


class _Entry(Entry):
    """One job: it waits, is started, takes effect on the disk, and is then reported by calling `done`."""

    __slots__ = ("has_run", "result")

    def __init__(
        self,
        job: Callable[[], Any],
        done: Callable[[Any], None],
        owner: Hashable,
        wanted: Callable[[], bool] | None,
    ) -> None:
        super().__init__(job, done, owner, wanted)
        self.has_run = False
        self.result: Any = None

    def run(self, closed: bool) -> None:
        """Run the job, or drop it if its result is not wanted any more. Does nothing the second time."""
        if not self.has_run:
            self.has_run = True
            try:
                self.result = JobDropped() if self.is_dropped(closed) else self.job()
            except BaseException as error:  # as a real executor does: `done` gets it, and decides what it means
                self.result = error


class SimulatedExecutor(Executor):
    def __init__(
        self, threads: int = 1, *, latency: Latency | None = None, inline: bool = False, quick: bool = False
    ) -> None:
        self._quick = quick
        self._threads = threads
        self._latency = latency
        self._inline = inline
        self._waiting: FairQueue[_Entry] = FairQueue()
        self._started: list[_Entry] = []  # jobs that have a thread, and whose `done` was not called yet
        self._in_turn = False  # _run_in_turn() is running
        self._closed = False
        self._halted = False

    def submit(
        self,
        job: Callable[[], T],
        done: Callable[[T | BaseException], None],
        *,
        owner: Hashable = None,
        wanted: Callable[[], bool] | None = None,
    ) -> None:
        """Run `job`, then `done` with its result: later on the running loop; at once if there is none, or `inline`.

        Raises RuntimeError if the executor is closed.
        """
        if self._closed:
            raise RuntimeError("the executor is closed")
        self._waiting.put(_Entry(job, done, owner, wanted))
        loop = None if self._inline else _running_loop()
        if loop is None:
            self._run_in_turn()
        else:
            self._start(loop)

    @property
    def quick(self) -> bool:
        return self._quick

    @property
    def last_ns(self) -> int:
        return 0

    def run_here(self, job: Callable[[], T]) -> T:
        if self._closed or self._halted:
            raise RuntimeError("the executor is closed")
        return job()

    def close(self) -> None:
        """Run the submitted jobs now, or drop those that are not wanted.

        `done` is called when it would have been called; at once if no loop runs.
        """
        self._closed = True
        for entry in self._started:
            entry.run(True)
        loop = _running_loop()
        if loop is None:
            self._run_in_turn()
        for entry in self._waiting.all():
            entry.run(True)

    def abandon(self) -> None:
        self.close()

    def halt(self) -> None:
        """Simulate the end of the process: no job runs any more, no `done` is called."""
        self._halted = True
        self._waiting.clear()

    def _run_in_turn(self) -> None:
        """Run all jobs one after another. A job submitted by a `done` is queued, and not run inside of it."""
        if self._in_turn:
            return
        self._in_turn = True
        try:
            while self._waiting:
                entry = self._waiting.take()
                entry.run(self._closed)
                entry.done(entry.result)
        finally:
            self._in_turn = False

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start waiting jobs, as many as there are simulated threads; each takes effect after its latency."""
        while self._waiting and len(self._started) < self._threads:
            entry = self._waiting.take()
            self._started.append(entry)
            before, after = self._latency() if self._latency else (0.0, 0.0)
            later(loop, before, self._take_effect, loop, entry, after)

    def _take_effect(self, loop: asyncio.AbstractEventLoop, entry: _Entry, after: float) -> None:
        """Run the job now, and report its result `after` seconds later."""
        if not self._halted:
            entry.run(self._closed)
            later(loop, after, self._report, loop, entry)

    def _report(self, loop: asyncio.AbstractEventLoop, entry: _Entry) -> None:
        """Call `done` with the job's result, and start the next job."""
        if not self._halted:
            self._started.remove(entry)
            self._start(loop)
            entry.done(entry.result)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running event loop; None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def later(loop: asyncio.AbstractEventLoop, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
    """Call the function after this number of seconds; in the loop's next turn if it is 0."""
    if seconds > 0:
        loop.call_later(seconds, call, *arguments)
    else:
        loop.call_soon(call, *arguments)

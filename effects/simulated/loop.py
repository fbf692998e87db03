"""An asyncio loop with virtual time: if nothing is ready, time jumps to the next timer, so that hours take seconds.

The rule: the loop has no file descriptors and no threads, so everything that happens follows from the program and a
seed, and happens again in the same order. A wait that would never end raises Deadlock. Timers may be late, as on a busy
machine, but never early.
"""

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context, copy_context
from heapq import heappop, heappush
from typing import Any, TypeVar, TypeVarTuple

from .clock import SimulatedClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_US_PER_S = 1_000_000
_FLOATS_ADD_US = 1e-3  # an error of floats up to this does not make a timer a microsecond late


class Deadlock(RuntimeError):
    """Raised if nothing is ready and no timer is set, so that all tasks would wait for ever."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Use it by `asyncio.Runner(loop_factory=SimulatedLoop)` or `run(main())`.

    With a `seed` each timer is late by up to `late_ms`, so that timers due together run in any order. The methods of
    BaseEventLoop that run for every callback are replaced, without file descriptors, threads and debugging: a
    simulation spends a good part of its time in them.
    """

    _ready: deque[asyncio.Handle]  # of BaseEventLoop
    _stopping: bool
    _closed: bool

    def __init__(self, seed: int | None = None, *, late_ms: float = 1.0) -> None:
        super().__init__()
        self._now_us = 0
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []  # a heap; cancelled ones leave when they are due
        self._timers_made = 0
        self._random = None if seed is None else random.Random(seed)
        self._late_s = late_ms / 1000

    def time(self) -> float:
        return self._now_us / _US_PER_S

    def pass_time(self, seconds: float) -> None:
        """Let time pass without running anything, as if the process were paused: timers due meanwhile run late."""
        self._now_us += math.ceil(seconds * _US_PER_S - _FLOATS_ADD_US)

    def clock(self, now_ms: int = 1_700_000_000_000) -> "LoopClock":
        """Return a clock that shows this loop's time. now_ms: its wall time at the loop's present time."""
        return LoopClock(self, now_ms)

    def handles(self) -> list[asyncio.Handle]:
        """Return all callbacks that are ready or wait for a timer."""
        return [*self._ready, *(handle for _, _, handle in sorted(self._timers))]

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = _Soon(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_us / _US_PER_S + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back at `when`, in virtual time; in a loop with a seed, a random time of up to late_ms later."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        if self._random is not None:
            when += self._random.random() * self._late_s
        due_us = math.ceil(when * _US_PER_S - _FLOATS_ADD_US)
        # Without this, a wait for a remaining fraction would never end.
        if due_us <= self._now_us and when > self._now_us / _US_PER_S:
            due_us = self._now_us + 1
        handle = _Timer(when, callback, args, self, context)
        self._timers_made += 1
        heappush(self._timers, (due_us, self._timers_made, handle))
        return handle

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Call the function at once, in this thread, because the order would not be deterministic with other
        threads.
        """
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _run_once(self) -> None:
        """Run the callbacks that are ready. If none is, first move the time to the next timer. Raises Deadlock."""
        ready, timers = self._ready, self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not ready and not self._stopping:
            if not timers:
                raise Deadlock("nothing is ready and no timer is set")
            if timers[0][0] > self._now_us:
                self._now_us = timers[0][0]
        now_us = self._now_us
        while timers and timers[0][0] <= now_us:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle: Any = ready.popleft()
            if handle._cancelled:
                continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": f"Exception in {handle!r}", "exception": error})

    def _write_to_self(self) -> None:
        """Do nothing: this loop never sleeps, so it need not be woken."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is dropped when it is due."""


class _Soon(asyncio.Handle):
    """A Handle that is faster to make, because it does not check the loop's debug mode."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: Any, context: Context | None) -> None:
        self._callback, self._args, self._loop = callback, args, loop
        self._context = copy_context() if context is None else context
        self._cancelled, self._source_traceback, self._repr = False, None, None


class _Timer(asyncio.TimerHandle):
    """A TimerHandle that is faster to make, because it does not check the loop's debug mode."""

    __slots__ = ()

    def __init__(self, when: float, callback: Any, args: Any, loop: Any, context: Context | None) -> None:
        self._callback, self._args, self._loop = callback, args, loop
        self._context = copy_context() if context is None else context
        self._cancelled, self._source_traceback, self._repr = False, None, None
        self._when, self._scheduled = when, True

    def cancel(self) -> None:
        self._cancelled, self._callback, self._args = True, None, ()


class LoopClock(SimulatedClock):
    """A clock that shows a simulated loop's time; its wall clock may jump."""

    def __init__(self, loop: SimulatedLoop, now_ms: int = 1_700_000_000_000) -> None:
        self._loop = loop
        super().__init__(now_ms, self.monotonic_ms())

    def monotonic_ms(self) -> int:
        return self._loop._now_us // 1000

    def now_ms(self) -> int:
        return self._loop._now_us // 1000 + self._wall_ahead_ms

    def advance(self, ms: int) -> None:
        """Let `ms` pass at once, as if the process were paused for that time."""
        if ms < 0:
            raise ValueError("a monotonic clock does not go back; jump_wall does")
        self._loop.pass_time(ms / 1000)


def run(main: Any, *, seed: int | None = None) -> Any:
    """Run a coroutine on a new simulated loop, and return its result."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(seed)) as runner:
        return runner.run(main)

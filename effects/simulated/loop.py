"""An asyncio loop under virtual time: when nothing is ready, time jumps to the next timer, so that hours take seconds.

The rule: the loop knows no file descriptors and no threads, so all that happens comes from the program and a seed, and
happens again in the same order. What would wait for ever raises Deadlock instead. Timers may be late, as on a busy
machine, but never early.
"""

import asyncio
import math
import random
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from .clock import SimulatedClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_US_PER_S = 1_000_000


class Deadlock(RuntimeError):
    """Nothing is ready, no timer is set: whoever waits now waits for ever."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """`asyncio.Runner(loop_factory=SimulatedLoop)` or `run(main())`.

    With a `seed` each timer is late by up to `late_ms`, so that timers due together run in any order.
    """

    def __init__(self, seed: int | None = None, *, late_ms: float = 1.0) -> None:
        super().__init__()
        self._now_us = 0
        self._selector = _NoSelector(self)  # what BaseEventLoop waits on
        self._clock_resolution = 0.5 / _US_PER_S  # a timer is due within this of its time
        self._random = None if seed is None else random.Random(seed)
        self._late_s = late_ms / 1000

    def time(self) -> float:
        return self._now_us / _US_PER_S

    def pass_time(self, seconds: float) -> None:
        """Time goes on without anything running, as when a process is stopped; timers are late afterwards."""
        self._now_us += math.ceil(seconds * _US_PER_S - 1e-3)  # less what floats add

    def clock(self, now_ms: int = 1_700_000_000_000) -> "LoopClock":
        """A clock that goes with this loop."""
        return LoopClock(self, now_ms)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._random is not None:
            when += self._random.random() * self._late_s
        if when > self.time():  # by whatever floats add: else who waits for what is left of a time waits without end
            when = max(when, (self._now_us + 1) / _US_PER_S)
        return super().call_at(when, callback, *args, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """At once, here: a thread would make the order depend on the machine."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody is woken."""


class _NoSelector:
    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """What would sleep: time passes instead."""
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set")
        if timeout > 0:
            self._loop.pass_time(timeout)
        return []


class LoopClock(SimulatedClock):
    """Both clocks go with a loop's time; the wall side may jump."""

    def __init__(self, loop: SimulatedLoop, now_ms: int = 1_700_000_000_000) -> None:
        self._loop = loop
        super().__init__(now_ms, self.monotonic_ms())

    def monotonic_ms(self) -> int:
        return round(self._loop.time() * _US_PER_S) // 1000

    def advance(self, ms: int) -> None:
        """As if the process had been stopped for so long."""
        if ms < 0:
            raise ValueError("a monotonic clock does not go back; jump_wall does")
        self._loop.pass_time(ms / 1000)


def run(main: Any, *, seed: int | None = None) -> Any:
    """Run a coroutine to its end on a loop of its own, and return what it returns."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(seed)) as runner:
        return runner.run(main)

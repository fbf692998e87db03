"""The machine's time, which a test may move ahead: a clock, and event loops whose timers move with it.

The rule: time runs by itself and never goes back; `advance` adds to it, and timers that have become due run at once,
late, as after a laptop's suspend. The test moves clock and loop together.
"""

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVarTuple

from ..clock import SystemClock

Ts = TypeVarTuple("Ts")

TIMER_RESOLUTION_S = 0.001  # libuv counts milliseconds
CANCELLED_KEPT = 64  # as many cancelled timers may stay in the heap, whatever its size


class MovableClock(SystemClock):
    """The machine's clocks, plus the sum of all advances."""

    __slots__ = ("_ahead_ms", "_wall_ahead_ms")

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._wall_ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self._wall_ahead_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self._ahead_ms

    def advance(self, ms: int) -> None:
        """Move both clocks forward by `ms`."""
        if ms < 0:
            raise ValueError("time does not go back")
        self._ahead_ms += ms
        self._wall_ahead_ms += ms

    def set_wall_right(self) -> None:
        """Set the wall clock back to the machine's time. The monotonic clock stays ahead."""
        self._wall_ahead_ms = 0


class MovableLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, with timers that can be moved."""

    _ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self._ahead_s

    def move(self, seconds: float) -> None:
        """Move the loop's time ahead: timers due within `seconds` are due now. To be called inside the loop."""
        self._ahead_s += seconds


class MovableTimers:
    """Timers that can be moved, for a loop whose own timers cannot (uvloop): a heap; only its first timer is set in
    the loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self._loop: Any = self
        self._ahead_s = 0.0
        self._heap: list[asyncio.TimerHandle] = []  # a heap, the earliest first
        self._cancelled = 0  # how many of them are cancelled
        self._own_timer: asyncio.TimerHandle | None = None  # the loop's own timer, for the earliest of them

    def time(self) -> float:
        return float(super().time()) + self._ahead_s  # type: ignore[misc]

    def move(self, seconds: float) -> None:
        """Move the loop's time ahead: timers due within `seconds` are due now. To be called inside the loop."""
        self._ahead_s += seconds
        self._set_again()

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self._loop, context)
        heapq.heappush(self._heap, timer)
        if self._heap[0] is timer:
            self._set_again()
        return timer

    def _timer_handle_cancelled(self, timer: asyncio.TimerHandle) -> None:
        """Count a cancelled timer; if there are many, remove them from the heap. Called by asyncio's handles."""
        self._cancelled += 1
        if self._cancelled > CANCELLED_KEPT and self._cancelled * 2 > len(self._heap):
            self._heap = [one for one in self._heap if not one.cancelled() and one is not timer]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def _set_again(self) -> None:
        """Set the loop's own timer for the earliest timer of the heap, instead of the one set before."""
        if self._own_timer is not None:
            self._own_timer.cancel()
            self._own_timer = None
        if self._heap and not self._loop.is_closed():
            delay = max(0.0, self._heap[0].when() - self.time())
            self._own_timer = super().call_later(delay, self._run_due)  # type: ignore[misc]

    def _run_due(self) -> None:
        """Run the timers that are due, then set the loop's own timer again."""
        self._own_timer = None
        end = self.time() + TIMER_RESOLUTION_S
        due = []
        while self._heap and self._heap[0].when() < end:
            due.append(heapq.heappop(self._heap))
        for timer in due:
            if timer.cancelled():
                self._cancelled = max(0, self._cancelled - 1)
            else:
                timer._run()
        self._set_again()


def new_movable_loop() -> Any:
    """Return a loop with move(): uvloop's if it can be imported. The process's loop policy is ignored."""
    try:
        import uvloop
    except ImportError:
        return MovableLoop()

    return type("MovableUvloop", (MovableTimers, uvloop.Loop), {})()

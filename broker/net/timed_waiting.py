"""Waiting requests, and the timer that ends each wait at its deadline."""

import asyncio

from ...effects.clock import Clock
from .waiting import Waiter, Waiting


class TimedWaiting(Waiting):
    """A Waiting with a timer of the event loop that calls expire() at the next deadline. (Waiting itself is pure, so it
    has no timer.)
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def park(self, waiter: Waiter) -> None:
        """Let the waiter wait until one of its logs changes, or until its deadline. May be called only within the event
        loop.
        """
        super().park(waiter)
        if self._timer is None or waiter.deadline_ms < self._timer_ms:
            self._set_timer()

    def stop(self) -> None:
        """Cancel the timer, so that waits no longer end at their deadlines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        """Set the timer for the next deadline, if anything waits."""
        self.stop()
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is not None:
            self._timer_ms = deadline_ms
            delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._look)

    def _look(self) -> None:
        """End the waits whose deadline has passed, then set the timer for the next one. Called by the timer."""
        self._timer = None
        try:
            self.expire(self._clock.monotonic_ms())
        finally:
            self._set_timer()

"""One timer for the deadlines of many: each has one time at which it is looked at; an early one does no harm."""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from ...effects.clock import Clock

NEVER = 1 << 62


class Alarms:
    """Alarms by name. ring: called with a name when its alarm is due."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop, ring: Callable[[str], None]) -> None:
        self._clock = clock
        self._loop = loop
        self._ring = ring
        self._heap: list[tuple[int, str]] = []
        self._at_ms: dict[str, int] = {}  # the alarm that counts, by name
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER

    def set(self, name: str, at_ms: int) -> None:
        """Ring for this name at `at_ms`, or earlier if an earlier time is set already."""
        if at_ms < self._at_ms.get(name, NEVER):
            self._at_ms[name] = at_ms
            heappush(self._heap, (at_ms, name))
            if at_ms < self._timer_ms:
                self._set_timer()

    def forget(self, name: str) -> None:
        """Remove the alarm of this name, if it has one."""
        self._at_ms.pop(name, None)

    def stop(self) -> None:
        """Cancel the timer: no alarm rings any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _set_timer(self) -> None:
        self.stop()
        self._timer_ms = NEVER
        if self._heap:
            self._timer_ms = self._heap[0][0]
            delay_ms = max(0, self._timer_ms - self._clock.monotonic_ms())
            self._timer = self._loop.call_later(delay_ms / 1000, self._run)

    def _run(self) -> None:
        now_ms = self._clock.monotonic_ms()
        due = []  # all of them first: whatever is done, each rings once
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, name = heappop(self._heap)
            if self._at_ms.get(name) == at_ms:
                del self._at_ms[name]
                due.append(name)
        try:
            for name in due:
                self._ring(name)
        finally:
            self._set_timer()

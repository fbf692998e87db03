"""One timer for the deadlines of many keys. Each key has one time at which it is looked at. It does no harm if a key is
looked at too early.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, TypeVar

from ..effects.clock import Clock
from .deadlines import NEVER

K = TypeVar("K")


class Alarms(Generic[K]):
    """One alarm for each key. len() is the number of entries in the heap, which includes entries that were replaced by
    an earlier alarm of the same key.
    """

    def __init__(
        self,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        ring: Callable[[list[K]], None],
        *,
        granularity_ms: int = 1,
    ) -> None:
        """ring: called with the keys whose alarms are due. granularity_ms: the timer is only set to multiples of this
        time.
        """
        self._clock = clock
        self._loop = loop
        self._ring = ring
        self._granularity_ms = granularity_ms
        self._heap: list[tuple[int, K]] = []
        self._at_ms: dict[K, int] = {}  # the alarm in effect, by key
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, key: K, at_ms: int) -> None:
        """Call ring() for this key at at_ms (monotonic), unless an earlier alarm of the key is set already."""
        if at_ms < self._at_ms.get(key, NEVER):
            self._at_ms[key] = at_ms
            heappush(self._heap, (at_ms, key))
            if at_ms < self._timer_ms:
                self._set_timer()

    def forget(self, key: K) -> None:
        """Remove the alarm of this key, if it has one."""
        self._at_ms.pop(key, None)

    def stop(self) -> None:
        """Cancel the timer, so that no alarm goes off any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _set_timer(self) -> None:
        """Set the timer for the earliest alarm, if there is one."""
        self.stop()
        self._timer_ms = NEVER
        if self._heap:
            self._timer_ms = -(-self._heap[0][0] // self._granularity_ms) * self._granularity_ms
            delay_ms = max(0, self._timer_ms - self._clock.monotonic_ms())
            self._timer = self._loop.call_later(delay_ms / 1000, self._run)

    def _run(self) -> None:
        """Call ring() with all keys that are due, each once, then set the timer again. Called by the timer."""
        now_ms = self._clock.monotonic_ms()
        due = []  # collected first, so that each key rings once
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, key = heappop(self._heap)
            if self._at_ms.get(key) == at_ms:
                del self._at_ms[key]
                due.append(key)
        try:
            self._ring(due)
        finally:
            self._set_timer()

"""Clock: the time, behind one interface, so that a test can control it.

The rule: durations and deadlines use `monotonic_ms`, never the wall clock, which people and NTP set back and forth.
`now_ms` is only for times that are stored: record timestamps, ages kept across restarts.
"""

import time
from typing import Protocol

_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """The wall clock and the monotonic clock, in whole milliseconds, and a timer that measures work."""

    def now_ms(self) -> int:
        """Return the wall clock's time, in ms since 1970, UTC. It may jump, also backwards."""
        ...

    def monotonic_ms(self) -> int:
        """Return the monotonic clock's time in ms, which never goes back. Its origin differs from start to start."""
        ...

    def work_ns(self) -> int:
        """Return a monotonic time in nanoseconds, to measure how long a piece of work takes."""
        return self.monotonic_ms() * _NS_PER_MS


class SystemClock(Clock):
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // _NS_PER_MS

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // _NS_PER_MS

    def work_ns(self) -> int:
        return time.monotonic_ns()

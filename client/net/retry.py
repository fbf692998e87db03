"""Waits between attempts, and deadlines. Pure.

The rule: waits double up to a limit and vary by a fifth in both directions, so that many clients do not retry at the
same time. Source: KIP-580.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...effects.clock import Clock

SPREAD = 0.2
_MAX_DOUBLINGS = 30


class Backoff:
    """Exponential waits between attempts. first_ms: the first wait. max_ms: the longest."""

    __slots__ = ("first_ms", "max_ms")

    def __init__(self, first_ms: int, max_ms: int) -> None:
        self.first_ms = first_ms
        self.max_ms = max(first_ms, max_ms)

    def delay_ms(self, attempt: int, random: float) -> float:
        """Return the wait after failed attempt number `attempt`, counted from 0. random: 0 up to 1."""
        full: float = min(self.first_ms * 2 ** min(attempt, _MAX_DOUBLINGS), self.max_ms)
        return full * (1 + SPREAD * (2 * random - 1))


class Deadline:
    """A point in time on the monotonic clock."""

    __slots__ = ("_clock", "at_ms", "timeout_ms")

    def __init__(self, clock: "Clock", timeout_ms: float) -> None:
        self._clock = clock
        self.timeout_ms = timeout_ms
        self.at_ms = clock.monotonic_ms() + timeout_ms

    def left_ms(self) -> float:
        """Return the ms left until the deadline; 0 when it has passed."""
        return max(0.0, self.at_ms - self._clock.monotonic_ms())

    def passed(self) -> bool:
        return self._clock.monotonic_ms() >= self.at_ms

"""A clock that a test controls: it does not move until it is advanced, and its wall clock may jump."""

from ..clock import Clock


class SimulatedClock(Clock):
    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._wall_ahead_ms = now_ms - monotonic_ms
        self._monotonic_ms = monotonic_ms

    def now_ms(self) -> int:
        return self.monotonic_ms() + self._wall_ahead_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Move both clocks forward by `ms`."""
        if ms < 0:
            raise ValueError("a monotonic clock does not go back; jump_wall does")
        self._monotonic_ms += ms

    def jump_wall(self, ms: int) -> None:
        """Move only the wall clock by `ms`, forward or back."""
        self._wall_ahead_ms += ms

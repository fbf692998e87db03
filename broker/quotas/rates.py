"""Kafka's two ways to measure a rate, windows and token buckets, and how long to wait until it is within its limit.
Pure.

The rules: a `WindowedRate` is the sum of the last windows divided by their length; windows that have not begun yet
count as empty. A `TokenBucket` fills at the rate of its limit, up to what the limit gives in all windows. While
anything is left, a request may take more than that; the bucket is overdrawn then. Each is equal to a new one (is_fresh)
when what was recorded is too old to count. Times are monotonic milliseconds. Source: Kafka's SampledStat, Rate,
TokenBucket, QuotaUtils; ControllerMutationQuotaManager (KIP-13, KIP-599).
"""

from math import floor
from typing import NamedTuple

LONGEST_MS = 2**31 - 1  # the largest throttle_time_ms of a response


class Windows(NamedTuple):
    """Number and length of the windows: `quota.window.num`, `quota.window.size.seconds`."""

    number: int
    size_ms: int

    @property
    def all_ms(self) -> int:
        return self.number * self.size_ms


class WindowedRate:
    """The average rate over the last windows.

    _windows: (begin, last record, amount) of each window, in monotonic ms, the newest last.
    """

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: list[tuple[int, int, float]] = []

    def record(self, amount: float, now_ms: int, shape: Windows) -> None:
        """Add an amount to the window that contains now_ms. A negative amount undoes what was recorded at the same
        moment.
        """
        windows = self._windows
        if windows and now_ms - windows[-1][0] < shape.size_ms:
            begun_ms, _, before = windows[-1]
            windows[-1] = begun_ms, now_ms, before + amount
        else:
            windows.append((now_ms, now_ms, amount))
            if len(windows) > shape.number + 1:
                del windows[0]

    def per_second(self, now_ms: int, shape: Windows) -> float:
        """Return the average amount per second."""
        span_ms = self.span_ms(now_ms, shape)
        return sum(amount for _, _, amount in self._windows) * 1000 / span_ms

    def span_ms(self, now_ms: int, shape: Windows) -> int:
        """Drop windows that are too old, and return the time over which the average is taken, in ms, at least 1. It is
        at least as long as all windows but one, because the ones that have not begun count as empty.
        """
        windows = self._windows
        while windows and now_ms - windows[0][1] >= shape.all_ms:
            del windows[0]
        passed_ms = now_ms - windows[0][0] if windows else 0
        missing = max(0, shape.number - 1 - passed_ms // shape.size_ms)
        return max(1, passed_ms + missing * shape.size_ms)

    def throttle_ms(self, limit: float, now_ms: int, shape: Windows) -> int:
        """Return how many ms it takes until the average is within the limit, if nothing is recorded meanwhile; 0 if it
        is within the limit now.
        """
        rate = self.per_second(now_ms, shape)
        if rate <= limit:
            return 0
        return _round((rate - limit) / limit * self.span_ms(now_ms, shape))

    def is_fresh(self, now_ms: int, shape: Windows) -> bool:
        """Return whether all that was recorded is too old to count, so that this is as good as a new object."""
        return not self._windows or now_ms - self._windows[-1][1] >= shape.all_ms


class TokenBucket:
    """How much may still be used at once. It fills again with time, up to the amount of all windows together."""

    __slots__ = ("_filled_ms", "_spent")

    def __init__(self) -> None:
        self._spent = 0.0  # how much is missing from a full bucket
        self._filled_ms = 0

    def left(self, limit: float, now_ms: int, shape: Windows) -> float:
        """Return how much is in the bucket now; negative if more was taken than there was."""
        self._fill(limit, now_ms)
        return _burst(limit, shape) - self._spent

    def record(self, amount: float, limit: float, now_ms: int) -> None:
        """Take an amount out of the bucket, even if less is left; a negative amount is put back."""
        self._fill(limit, now_ms)
        self._spent = max(0.0, self._spent + amount)

    def throttle_ms(self, limit: float, now_ms: int, shape: Windows) -> int:
        """Return how many ms it takes until the bucket's content is not negative any more; 0 if it is not
        negative now.
        """
        left = self.left(limit, now_ms, shape)
        return _round(-left / limit * 1000) if left < 0 else 0

    def is_fresh(self, limit: float, now_ms: int) -> bool:
        """Return whether the bucket is full, so that it is as good as a new one."""
        self._fill(limit, now_ms)
        return self._spent == 0

    def _fill(self, limit: float, now_ms: int) -> None:
        """Add to the bucket what the limit allows for the time since the last call."""
        if self._spent:
            self._spent = max(0.0, self._spent - limit * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms


def _burst(limit: float, shape: Windows) -> float:
    """Return how much a full bucket has: the limit times the length of all windows."""
    return limit * shape.all_ms / 1000


def _round(milliseconds: float) -> int:
    """Round milliseconds as Java's Math.round does, to LONGEST_MS at most."""
    return floor(milliseconds + 0.5) if milliseconds < LONGEST_MS else LONGEST_MS

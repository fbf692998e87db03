"""How fast a task is, how far behind, and how long it will take. Pure: time is an argument.

The rule: a rate is that of the last seconds; the time left is the lag by the rate at which the lag shrinks, and unknown
while it does not.
"""

from collections import deque
from typing import Any, NamedTuple

WINDOW_MS = 10_000
"""A rate is measured over so long."""


class _Sample(NamedTuple):
    at_ms: int
    records: int
    bytes: int
    lag: int


class Progress:
    """What was seen of one task's counts in the last seconds."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def add(self, now_ms: int, records: int, size: int, lag: int) -> None:
        """Note how many records and bytes were mirrored until now (monotonic ms), and how many offsets are left."""
        self._samples.append(_Sample(now_ms, records, size, lag))
        while len(self._samples) > 2 and self._samples[0].at_ms < now_ms - WINDOW_MS:
            self._samples.popleft()

    def facts(self) -> dict[str, Any]:
        """Return records_per_s, bytes_per_s, lag (offsets), left_s (seconds; None if that is not known)."""
        if not self._samples:
            return {"records_per_s": 0, "bytes_per_s": 0, "lag": None, "left_s": None}
        first, last = self._samples[0], self._samples[-1]
        seconds = max(1, last.at_ms - first.at_ms) / 1000
        shrinks = (first.lag - last.lag) / seconds
        left_s = 0 if not last.lag else round(last.lag / shrinks) if shrinks > 0 else None
        return {
            "records_per_s": round((last.records - first.records) / seconds),
            "bytes_per_s": round((last.bytes - first.bytes) / seconds),
            "lag": last.lag,
            "left_s": left_s,
        }

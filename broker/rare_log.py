"""Lines of the log that strangers can cause: so many in a while, and then only how many more there would have been.

The rule: whoever floods the broker with connections and failures does not fill the disk with what is said of them.
"""

import logging
from collections.abc import Callable

MOST = 20
WHILE_MS = 10_000


class RareLog:
    """Hands lines on to a logger. now_ms: monotonic."""

    __slots__ = ("_began_ms", "_count", "_log", "_now_ms")

    def __init__(self, log: logging.Logger, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._now_ms = now_ms
        self._began_ms = now_ms()
        self._count = 0

    def write(self, level: int, text: str, *parts: object) -> None:
        """A line, unless there were too many lately."""
        now_ms = self._now_ms()
        if now_ms - self._began_ms >= WHILE_MS:
            if self._count > MOST:
                self._log.log(level, "%d more lines like those before were left out", self._count - MOST)
            self._began_ms, self._count = now_ms, 0
        self._count += 1
        if self._count <= MOST:
            self._log.log(level, text, *parts)

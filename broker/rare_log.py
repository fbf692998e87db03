"""Log lines that any client can cause. In ten seconds only the first few are written, and then how many were left out.

The rule: a client that floods the broker with connections and failures cannot fill the disk with log lines.
"""

import logging
from collections.abc import Callable

from ..effects.counts import count_text

MAX_LINES = 20
WHILE_MS = 10_000


class RareLog:
    """Passes a limited number of lines to a logger. now_ms: returns the monotonic time in ms."""

    __slots__ = ("_began_ms", "_count", "_log", "_now_ms")

    def __init__(self, log: logging.Logger, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._now_ms = now_ms
        self._began_ms = now_ms()
        self._count = 0

    def write(self, level: int, text: str, *parts: object) -> None:
        """Log a line, unless there were too many in the last ten seconds. text, parts: as for a logger."""
        now_ms = self._now_ms()
        if now_ms - self._began_ms >= WHILE_MS:
            if self._count > MAX_LINES:
                lines = count_text(
                    self._count - MAX_LINES, "more line like those before was", "more lines like those before were"
                )
                self._log.log(level, "%s left out", lines)
            self._began_ms, self._count = now_ms, 0
        self._count += 1
        if self._count <= MAX_LINES:
            self._log.log(level, text, *parts)

"""Progress of a long operation of a broker on an object store, in the log."""

import logging
from collections.abc import Callable

from ...effects.clock import Clock

log = logging.getLogger("fencepost.broker")

TOLD_EVERY_MS = 10_000


class ProgressLog:
    """Logs the progress of a long operation, from time to time."""

    def __init__(self, clock: Clock, what: str, check: Callable[[], None] = lambda: None) -> None:
        """check: called with each note of progress; it may raise an exception to end the operation."""
        self._clock = clock
        self._what = what
        self._check = check
        self._said_ms = clock.monotonic_ms()

    def note(self, done: int, of: int) -> None:
        """Log that `done` of `of` bytes are done, unless progress was logged a short time ago. First calls `check`, so
        it may raise what that raises.
        """
        self._check()
        if self._clock.monotonic_ms() - self._said_ms >= TOLD_EVERY_MS:
            self._said_ms = self._clock.monotonic_ms()
            log.info("%s: %d of %d MB", self._what, done >> 20, of >> 20)

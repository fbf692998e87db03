"""The stop of a broker: a wait is logged if it takes long, and optional work has limited time.

The rule: everything that was answered is durable before any of this. Snapshots, flushes and a checkpoint only make the
next start quick. What cannot be done within TIDY_MS is left to the journal, from which the next start reads it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator

from ..effects.clock import Clock

log = logging.getLogger("fencepost.broker")

TIDY_MS = 4_000  # docker stop waits for 10 s, all in all, and a busy machine takes its part of them
SAID_AFTER_MS = 1_000


class Stopping:
    """One stop of a broker. is_used_again: whether the broker will be started again on this data directory."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop, *, is_used_again: bool) -> None:
        self._clock = clock
        self._loop = loop
        self._is_used_again = is_used_again
        self._began_ms = clock.monotonic_ms()

    def has_time(self) -> bool:
        """Return whether there is time left for optional work, which makes the next start quick."""
        return self._is_used_again and self._clock.monotonic_ms() - self._began_ms < TIDY_MS

    @contextlib.contextmanager
    def waits_for(self, what: str) -> Iterator[None]:
        """Surround a wait with this context. If the wait takes long, it logs what is waited for, and at the end how
        long it took.
        """
        began_ms = self._clock.monotonic_ms()
        said = self._loop.call_later(SAID_AFTER_MS / 1000, log.info, "stopping: waiting for %s", what)
        try:
            yield
        finally:
            said.cancel()
            took_ms = self._clock.monotonic_ms() - began_ms
            if took_ms >= SAID_AFTER_MS:
                log.info("stopping: waited %.1f s for %s", took_ms / 1000, what)

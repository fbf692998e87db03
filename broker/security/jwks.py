"""Fetches the keys that verify tokens (JWKS) regularly in a worker thread. Meanwhile logins use the keys fetched last.

The rules: only one fetch runs at a time. A token with an unknown key makes the next fetch come earlier, but at most
once in SOONEST_MS, whatever clients send. If keys cannot be fetched or parsed, the earlier ones stay in use.
"""

import asyncio
import logging
from collections.abc import Callable

from ...effects.net.fetching import CannotFetch
from ...effects.threads import Executor
from .oauth import BadKeySet, KeySet, read_key_set

log = logging.getLogger("fencepost.broker")

SOONEST_MS = 10_000


class KeyRefresher:
    """Fetches key sets regularly, and passes each to `put`."""

    def __init__(
        self,
        fetch: Callable[[], bytes],
        put: Callable[[KeySet], None],
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
        every_ms: int,
        shown: str,
    ) -> None:
        """put: called in the loop with each key set that was fetched. fetch: blocks for a limited time, and returns a
        limited number of bytes. shown: the source, for log messages.
        """
        self._fetch = fetch
        self._put = put
        self._executor = executor
        self._loop = loop
        self._every_ms = every_ms
        self._shown = shown
        self._timer: asyncio.TimerHandle | None = None
        self._is_fetching = False
        self._fetched_s: float | None = None  # when the last fetch began, by the loop's clock
        self._stopped = False

    def start(self) -> None:
        """Fetch the keys now, and again at each interval."""
        self._begin()

    def hurry(self) -> None:
        """Fetch the keys now, because a token names an unknown one; but at least SOONEST_MS after the last fetch."""
        if self._stopped or self._is_fetching:
            return
        since_ms = 0.0 if self._fetched_s is None else (self._loop.time() - self._fetched_s) * 1000
        self._again_in(max(0.0, SOONEST_MS - since_ms))

    def stop(self) -> None:
        """Stop fetching. A fetch that is under way has no effect."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _again_in(self, delay_ms: float) -> None:
        """Fetch the keys after delay_ms, unless a fetch is due earlier."""
        at_s = self._loop.time() + delay_ms / 1000
        if self._timer is not None:
            if not self._timer.cancelled() and self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._begin)

    def _begin(self) -> None:
        """Fetch the keys in a worker, unless a fetch is under way."""
        self._timer = None
        if not self._stopped and not self._is_fetching:
            self._is_fetching = True
            self._fetched_s = self._loop.time()
            self._executor.submit(
                lambda: read_key_set(self._fetch()), self._take_fetched, wanted=lambda: not self._stopped
            )

    def _take_fetched(self, outcome: KeySet | BaseException) -> None:
        """Pass on the keys that were fetched. After an error, log it and try again soon; the last keys stay in use."""
        self._is_fetching = False
        if self._stopped:
            return
        if isinstance(outcome, BaseException):
            is_known = isinstance(outcome, BadKeySet | CannotFetch)
            reason = str(outcome) if is_known else type(outcome).__name__
            log.warning("keys of tokens cannot be fetched from %s, the last ones stay in use: %s", self._shown, reason)
            self._again_in(min(SOONEST_MS, self._every_ms))
        else:
            self._put(outcome)
            self._again_in(self._every_ms)

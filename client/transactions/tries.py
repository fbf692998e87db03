"""Retries of the requests of a transaction: pauses, deadline, and the error when the time is over.

The rule: every wait has a deadline, max_block_ms after its start, and a long one is warned of, seldom.
"""

import asyncio
import logging

from ...protocol.errors import ErrorCode
from ..errors import ClientError, KafkaError, RequestTimedOutError, is_retriable
from ..net.environment import Environment
from ..net.retry import Backoff, Deadline
from ..settings import ProducerSettings

log = logging.getLogger("fencepost.client")

FOR_LONG_MS, AGAIN_MS = 5_000, 60_000
"""What is tried again for so long is warned of, and so seldom."""
_SOON = Backoff(2, 50)  # the broker ends the previous transaction within milliseconds


class Tries:
    """Retries of one producer's requests."""

    def __init__(self, settings: ProducerSettings, environment: Environment) -> None:
        self._environment = environment
        self._transactional_id = settings.transactional_id
        self._silent_until_ms = 0.0
        self._most_ms = settings.max_block_ms
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)

    def deadline(self, within_ms: float | None = None) -> Deadline:
        """Return a deadline that many milliseconds from now, by default max_block_ms. 0: for a single attempt."""
        return Deadline(self._environment.clock, self._most_ms if within_ms is None else within_ms)

    def delay_s(self, attempt: int, code: int) -> float:
        """Return the pause before the next attempt, in seconds. attempt: 0 for the first pause. code: the error code
        of the last response; 0 without one.
        """
        backoff = _SOON if code == ErrorCode.CONCURRENT_TRANSACTIONS else self._backoff
        return backoff.delay_ms(attempt, self._environment.rng.random()) / 1000

    async def pause(self, attempt: int, deadline: Deadline, error: KafkaError, code: int, what: str) -> bool:
        """Wait before the next attempt and return True; return False at once if the error is final or no time is left.

        attempt: 0 for the first pause. code: the response's error code, 0 without one. what: the request's name, for a
        warning.
        """
        if not code and not is_retriable(error):
            return False
        delay_s = self.delay_s(attempt, code)
        if deadline.left_ms() <= delay_s * 1000:
            return False
        self._warn_of_long(what, deadline, error)
        await asyncio.sleep(delay_s)
        return True

    def _warn_of_long(self, what: str, deadline: Deadline, error: KafkaError) -> None:
        """Log a warning if the attempts have lasted long, and no such warning was logged lately."""
        now_ms = self._environment.clock.monotonic_ms()
        tried_ms = deadline.timeout_ms - deadline.left_ms()
        if tried_ms >= FOR_LONG_MS and now_ms >= self._silent_until_ms:
            self._silent_until_ms = now_ms + AGAIN_MS
            text = "transactional id %r: trying %s again for %d s already, of at most %d s: %s"
            log.warning(text, self._transactional_id, what, tried_ms // 1000, deadline.timeout_ms // 1000, error)

    def late(self, what: str, error: KafkaError) -> KafkaError:
        """Return the error after the last attempt: RequestTimedOutError, or `error` if that is not retriable."""
        if not is_retriable(error):
            return error
        hint = error.hint if isinstance(error, ClientError) else ""
        late = RequestTimedOutError(f"{what} did not succeed within {self._most_ms} ms: {error}", hint=hint)
        late.__cause__ = error
        return late

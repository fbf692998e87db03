"""Counts how long quotas of brokers make a client wait (KIP-219), and logs a warning if that is long."""

from ...effects.clock import Clock
from .connection import log

FOR_LONG_MS, AGAIN_MS = 1_000, 60_000
"""The sum of waits that is logged as a warning, and the shortest time between two warnings."""


class Throttles:
    """Counts the throttle times of one client, and logs when they are long."""

    def __init__(self, client_id: str, clock: Clock) -> None:
        self._client_id = client_id
        self._clock = clock
        self._waits_ms = 0  # since the last warning
        self._silent_until_ms = 0

    def note(self, node_id: int, throttle_ms: int) -> int:
        """Count the throttle time of a response, and warn if the sum is large. Returns when the next request may be
        sent to that broker, in monotonic ms.
        """
        now_ms = self._clock.monotonic_ms()
        self._waits_ms += throttle_ms
        if self._waits_ms >= FOR_LONG_MS and now_ms >= self._silent_until_ms:
            text = (
                "a quota of broker %d holds %r back for %.1f s, all waits since the last such line together; "
                "fencepost quota list shows all quotas"
            )
            log.warning(text, node_id, self._client_id, self._waits_ms / 1000)
            self._waits_ms, self._silent_until_ms = 0, now_ms + AGAIN_MS
        return now_ms + throttle_ms

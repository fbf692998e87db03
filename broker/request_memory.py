"""Room for large requests that are being read: all of them together fit a bound, and nobody keeps room for nothing.

The rules: room is granted while anything is left, else in the order of asking; the length that a client announces is
what counts, since it may send all of it. So whoever announces much and sends little stands in the way of all others:
while others wait, it must be as fast as a slow line, or its connection is cut.
Source: Kafka's SimpleMemoryPool, which has no such end and can be blocked for ever.
"""

import asyncio
import logging
from collections import deque

from ..effects.clock import Clock
from .connection import Connection
from .metrics import Metrics

log = logging.getLogger("fencepost.broker")

JUDGED_AFTER_MS = 10_000
LEAST_BYTES_PER_S = 64 << 10
LOOK_S = 1.0


class RequestMemory:
    """What may be held by frames that are not whole yet."""

    __slots__ = ("_clock", "_holders", "_limit_bytes", "_loop", "_metrics", "_timer", "_used", "_waiting")

    def __init__(self, limit_bytes: int, clock: Clock, loop: asyncio.AbstractEventLoop, metrics: Metrics) -> None:
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._loop = loop
        self._metrics = metrics
        self._used = 0
        self._waiting: deque[tuple[Connection, int]] = deque()
        self._holders: dict[Connection, tuple[int, int]] = {}  # when last judged, and what had come by then
        self._timer: asyncio.TimerHandle | None = None

    def reserve(self, connection: Connection, size_bytes: int) -> bool:
        """Whether there is room now. If not, connection.admitted() is called when there is."""
        if not self._waiting and self._used < self._limit_bytes:
            self._grant(connection, size_bytes)
            return True
        self._waiting.append((connection, size_bytes))
        self._metrics.stalls += 1
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_S, self._look)
        return False

    def give_back(self, connection: Connection, size_bytes: int) -> None:
        """A large frame has gone; whoever is next may read theirs."""
        self._used -= size_bytes
        self._holders.pop(connection, None)
        while self._waiting and self._used < self._limit_bytes:
            waiter, wanted = self._waiting.popleft()
            if waiter.transport is not None:
                self._grant(waiter, wanted)
                waiter.admitted(wanted)

    def close(self) -> None:
        """Nobody is judged any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _grant(self, connection: Connection, size_bytes: int) -> None:
        self._used += size_bytes
        self._holders[connection] = (self._clock.monotonic_ms(), connection.large_bytes)

    def _look(self) -> None:
        self._timer = None
        self._waiting = deque(entry for entry in self._waiting if entry[0].transport is not None)
        if not self._waiting:
            return
        now_ms = self._clock.monotonic_ms()
        for connection, (since_ms, before) in list(self._holders.items()):
            took_ms = now_ms - since_ms
            if took_ms < JUDGED_AFTER_MS:
                continue
            came = connection.large_bytes - before
            self._holders[connection] = (now_ms, connection.large_bytes)
            if came * 1000 < LEAST_BYTES_PER_S * took_ms and not connection.waits_for_store:
                self._cut(connection, came, took_ms)
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def _cut(self, connection: Connection, came: int, took_ms: int) -> None:
        self._metrics.closed_slow += 1
        log.warning(
            "cutting the connection of %s (%s): %d bytes of a large request in %.0f s, while others wait for room",
            connection.client_host, connection.client_id, came, took_ms / 1000,
        )  # fmt: skip
        connection.abort()

"""Memory for large requests that are arriving: its total is limited, and slow clients may not keep it.

The rules: a request takes memory as its bytes arrive, STEP_BYTES at a time, so that a client that only announces a
large request takes none from others. Memory is given in the order in which requests began. The oldest one that is being
read always continues, even beyond the limit, so that there is always one that will be complete and release its memory.
While others wait, each connection must be as fast as a slow line, and fast enough to complete its request within a
minute; otherwise it is closed. Source: Kafka's SimpleMemoryPool, which counts what is announced and can be blocked for
ever.
"""

import asyncio
import logging
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count

from ...effects.clock import Clock
from ..metrics import Metrics
from .connection import Connection

log = logging.getLogger("fencepost.broker")

JUDGED_AFTER_MS = 10_000
LEAST_BYTES_PER_S = 64 << 10
WHOLE_WITHIN_MS = 60_000
LOOK_S = 1.0


class Holder:
    """A connection that has memory for a large request, with how many bytes had arrived when its speed was last
    checked.
    """

    __slots__ = ("came_before", "number", "since_ms")

    def __init__(self, number: int, since_ms: int, came_before: int) -> None:
        self.number = number  # lower for requests that began earlier
        self.since_ms = since_ms  # when its rate was last checked
        self.came_before = came_before  # how many bytes had arrived by then


class RequestMemory:
    """The memory that incomplete large requests take, and the connections that wait for some."""

    __slots__ = ("_clock", "_holders", "_limit_bytes", "_loop", "_metrics", "_numbers", "_timer", "_used", "_waiting")

    def __init__(self, limit_bytes: int, clock: Clock, loop: asyncio.AbstractEventLoop, metrics: Metrics) -> None:
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._loop = loop
        self._metrics = metrics
        self._used = 0
        self._numbers = count()
        self._waiting: list[tuple[int, Connection, int]] = []  # a heap of (number, connection, bytes wanted)
        self._holders: dict[Connection, Holder] = {}  # in the order of their numbers
        self._timer: asyncio.TimerHandle | None = None

    def reserve(self, connection: Connection, size_bytes: int) -> bool:
        """Reserve this many more bytes for the connection's large request, and return True, if there is room.

        If there is not, return False; connection.admitted() is called once the bytes are reserved.
        """
        holder = self._holders.get(connection)
        number = next(self._numbers) if holder is None else holder.number
        if self._may_take(number):
            self._grant(connection, number, size_bytes)
            return True
        heappush(self._waiting, (number, connection, size_bytes))
        self._metrics.stalls += 1
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK_S, self._look)
        return False

    def give_back(self, connection: Connection, size_bytes: int) -> None:
        """Release all memory of a connection's large request (size_bytes), and give it to requests that wait for
        memory.
        """
        self._used -= size_bytes
        del self._holders[connection]
        for number, waiter, wanted in self._next_waiters():
            self._grant(waiter, number, wanted)
            waiter.admitted(wanted)

    def _next_waiters(self) -> Iterator[tuple[int, Connection, int]]:
        """Yield (number, connection, bytes wanted) of each waiting connection that may have memory now, the oldest
        first.
        """
        waiting = self._waiting
        while waiting and (waiting[0][1].transport is None or self._may_take(waiting[0][0])):
            entry = heappop(waiting)
            if entry[1].transport is not None:
                yield entry

    def _may_take(self, number: int) -> bool:
        """Return whether the request with this number may have more memory now. The oldest one always may, others while
        the limit is not reached and no older one waits.
        """
        oldest = next(iter(self._holders.values()), None)
        if oldest is None or oldest.number >= number:
            return True
        return self._used < self._limit_bytes and not (self._waiting and self._waiting[0][0] < number)

    def close(self) -> None:
        """Cancel the timer, so that slow clients are no longer disconnected."""
        if self._timer is not None:
            self._timer.cancel()

    def _grant(self, connection: Connection, number: int, size_bytes: int) -> None:
        """Count these bytes as reserved by the connection. number: the lower it is, the earlier its request began."""
        now_ms = self._clock.monotonic_ms()
        if connection not in self._holders:
            self._holders[connection] = Holder(number, now_ms, connection.large_bytes)
        self._used += size_bytes

    def _look(self) -> None:
        """Close the connections of clients that send a large request too slowly while others wait for memory. Called by
        the timer.
        """
        self._timer = None
        self._waiting = [entry for entry in self._waiting if entry[1].transport is not None]
        if not self._waiting:
            return
        heapify(self._waiting)
        now_ms = self._clock.monotonic_ms()
        for connection, holder in list(self._holders.items()):
            took_ms, came = now_ms - holder.since_ms, connection.large_bytes - holder.came_before
            if connection.waits_for_broker:
                holder.since_ms, holder.came_before = now_ms, connection.large_bytes
            elif took_ms >= JUDGED_AFTER_MS:
                holder.since_ms, holder.came_before = now_ms, connection.large_bytes
                if _is_slow(came, took_ms, connection.missing_bytes):
                    self._cut(connection, came, took_ms)
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def _cut(self, connection: Connection, came: int, took_ms: int) -> None:
        """Close the connection of a client that sends too slowly. came: how many bytes arrived in the last took_ms."""
        self._metrics.closed_slow += 1
        log.warning(
            "cutting the connection of %s (%r): %d bytes of a large request in %.0f s, while others wait for room",
            connection.client_host, connection.client_id, came, took_ms / 1000,
        )  # fmt: skip
        connection.abort()


def _is_slow(came: int, took_ms: int, missing_bytes: int) -> bool:
    """Return whether a large request arrives too slowly. came: how many bytes arrived in took_ms. missing_bytes: how
    many are still to come.
    """
    return came * 1000 < LEAST_BYTES_PER_S * took_ms or missing_bytes * took_ms > came * WHOLE_WITHIN_MS

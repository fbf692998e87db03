"""Connections that are not read for some time, because their clients are over a quota (KIP-219). Pure except for the
timer.

The rule: a connection is read again after its wait; of several waits the one that ends last counts. While a connection
is not read, the loop does not notice that its client has left, so this looks for that every few seconds.
"""

from collections.abc import Callable
from typing import Protocol

from ...effects.clock import Clock

LOOKED_AT_AFTER_MS = 5_000


class Muted(Protocol):
    """The attributes of a connection that Mutes uses."""

    @property
    def transport(self) -> object | None:
        """The connection's transport; None once the connection is closed."""
        ...

    def mute(self) -> None:
        """Handle no further request until unmute(); replies are still sent."""
        ...

    def unmute(self) -> None:
        """Handle the connection's requests again."""
        ...

    def has_left(self) -> bool:
        """Return whether the client has closed the connection."""
        ...

    def abort(self) -> None:
        """Close the connection now."""
        ...


class Mutes:
    """All muted connections of one broker."""

    def __init__(self, clock: Clock, call_later: Callable[..., object]) -> None:
        """call_later: the event loop's, with seconds, a callback and its arguments."""
        self._clock = clock
        self._call_later = call_later
        self._until_ms: dict[Muted, int] = {}

    def __len__(self) -> int:
        return len(self._until_ms)

    def mute(self, connection: Muted, wait_ms: int) -> None:
        """Stop handling the connection's requests for wait_ms. If a longer wait is running, that one stays."""
        until_ms, known_ms = self._clock.monotonic_ms() + wait_ms, self._until_ms.get(connection)
        self._until_ms[connection] = until_ms if known_ms is None else max(known_ms, until_ms)
        if known_ms is None:
            connection.mute()
            self._look_after(connection, wait_ms)

    def _look_after(self, connection: Muted, left_ms: int) -> None:
        """Call _look() when the connection's wait is over, and before that every few seconds, to notice if the client
        has left.
        """
        self._call_later(min(left_ms, LOOKED_AT_AFTER_MS) / 1000, self._look, connection)

    def _look(self, connection: Muted) -> None:
        """Unmute the connection if its wait is over; close it if its client has left; else look again later."""
        left_ms = self._until_ms[connection] - self._clock.monotonic_ms()
        if left_ms > 0 and not connection.has_left():
            self._look_after(connection, left_ms)
            return
        del self._until_ms[connection]
        if left_ms <= 0:
            connection.unmute()
        elif connection.transport is not None:
            connection.abort()

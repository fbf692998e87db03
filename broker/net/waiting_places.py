"""Which fetch of each connection waits, of those of which only one may."""

from typing import Protocol

from .connection import Connection


class Waits(Protocol):
    """A fetch of which a connection has one at a time that waits."""

    def end_wait(self) -> None:
        """Answer now, as if the time to wait were over."""
        ...


class WaitingPlaces:
    """One place a connection."""

    def __init__(self) -> None:
        self._taken: dict[Connection, Waits] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, connection: Connection, fetch: Waits) -> None:
        """Let this fetch wait, and end the wait of the connection's earlier fetch."""
        if before := self._taken.get(connection):
            before.end_wait()
        self._taken[connection] = fetch

    def leave(self, connection: Connection, fetch: Waits) -> None:
        """Free the connection's place, if this fetch holds it."""
        if self._taken.get(connection) is fetch:
            del self._taken[connection]

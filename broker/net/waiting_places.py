"""For requests of which only one may wait for each connection: which one that is."""

from typing import Protocol

from .connection import Connection


class WaitingFetch(Protocol):
    """A fetch that waits for records. For each connection only one such fetch may wait."""

    def end_wait(self) -> None:
        """Answer now, as if the time to wait were over."""
        ...


class WaitingPlaces:
    """The waiting fetch of each connection."""

    def __init__(self) -> None:
        self._taken: dict[Connection, WaitingFetch] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, connection: Connection, fetch: WaitingFetch) -> None:
        """Let this fetch wait, and end the wait of the connection's earlier fetch."""
        if before := self._taken.get(connection):
            before.end_wait()
        self._taken[connection] = fetch

    def leave(self, connection: Connection, fetch: WaitingFetch) -> None:
        """Note that this fetch does not wait any more, if it is the connection's waiting one."""
        if self._taken.get(connection) is fetch:
            del self._taken[connection]

"""Clients that have not logged in: how many there may be, and which one is closed if there are too many. Pure.

The rule: their number is limited, in total and for each address. If there is one more, the oldest one is closed, of its
address or of all. So a client that logs in at once is served, no matter how many others never log in.
"""

from typing import Generic, TypeVar

C = TypeVar("C")
"""A connection or a TLS handshake."""


class UnauthenticatedClients(Generic[C]):
    """The clients that have not logged in, in the order in which they connected, each with its address and the time by
    which it has to log in.
    """

    def __init__(self) -> None:
        self._all: dict[C, tuple[str, int]] = {}
        self._by_host: dict[str, dict[C, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, connection: C) -> bool:
        return connection in self._all

    def add(self, connection: C, host: str, deadline_ms: int, most: int, most_of_host: int) -> C | None:
        """Add a connection. If there are too many now, remove the oldest and return it, so that the caller closes it;
        else return None.

        most: how many there may be. most_of_host: how many there may be of one address; at that number the oldest of
        this address is removed.
        """
        own = self._by_host.get(host, {})
        leaves = next(iter(own)) if len(own) >= most_of_host else next(iter(self._all)) if len(self) >= most else None
        if leaves is not None:
            self.remove(leaves)
        self._all[connection] = host, deadline_ms
        self._by_host.setdefault(host, {})[connection] = None
        return leaves

    def remove(self, connection: C) -> None:
        """Remove a connection that has logged in or ended. Does nothing if it was removed already."""
        if connection not in self._all:
            return
        host, _ = self._all.pop(connection)
        own = self._by_host[host]
        del own[connection]
        if not own:
            del self._by_host[host]

    def late(self, now_ms: int) -> list[C]:
        """Return the connections that have not logged in by now_ms, the oldest first. They are not removed."""
        found = []
        for connection, (_, deadline_ms) in self._all.items():
            if deadline_ms > now_ms:
                break
            found.append(connection)
        return found

    def next_deadline_ms(self) -> int | None:
        """Return the monotonic ms by which the oldest connection has to log in; None if there are no connections."""
        return next((deadline_ms for _, deadline_ms in self._all.values()), None)

"""Connections that have not logged in: how many there are, and which of them has to go. Pure.

The rule: there are so many of one address and so many in all; one more ends the oldest, of that address or of all. So a
client that logs in as fast as clients do is served however many others never do.
"""

from typing import Generic, TypeVar

C = TypeVar("C")
"""A connection."""


class Strangers(Generic[C]):
    """In the order in which they came, each with its address and the time by which it has to log in."""

    def __init__(self) -> None:
        self._all: dict[C, tuple[str, int]] = {}
        self._by_host: dict[str, dict[C, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, connection: C) -> bool:
        return connection in self._all

    def add(self, connection: C, host: str, deadline_ms: int, most: int, most_of_host: int) -> C | None:
        """One more. Returns the one that has to go for it, which is a stranger no more."""
        own = self._by_host.get(host, {})
        leaves = next(iter(own)) if len(own) >= most_of_host else next(iter(self._all)) if len(self) >= most else None
        if leaves is not None:
            self.remove(leaves)
        self._all[connection] = host, deadline_ms
        self._by_host.setdefault(host, {})[connection] = None
        return leaves

    def remove(self, connection: C) -> None:
        """It has logged in or left. Harmless if it is none of these."""
        if connection not in self._all:
            return
        host, _ = self._all.pop(connection)
        own = self._by_host[host]
        del own[connection]
        if not own:
            del self._by_host[host]

    def late(self, now_ms: int) -> list[C]:
        """Those whose time is over. All have as much of it, so the oldest come first."""
        found = []
        for connection, (_, deadline_ms) in self._all.items():
            if deadline_ms > now_ms:
                break
            found.append(connection)
        return found

    def next_deadline_ms(self) -> int | None:
        """When the first of them is late."""
        return next((deadline_ms for _, deadline_ms in self._all.values()), None)

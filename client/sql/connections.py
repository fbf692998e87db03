"""The three ways in which a user names a server: a URL, a pool of theirs, and a connection of theirs."""

from collections.abc import Awaitable, Callable

from .interfaces import Adapter, Connections


class OneConnection:
    """Keeps one connection for transactions, and opens it again when it was lost. opened: makes a new one."""

    is_shared = False

    def __init__(self, opened: Callable[[], Awaitable[Adapter]]) -> None:
        self.another = opened
        self._kept: Adapter | None = None

    async def take(self) -> Adapter:
        """Return the one connection; it is opened if it is not open."""
        if self._kept is None or self._kept.is_closed:
            self._kept = await self.another()
        return self._kept

    async def give_back(self, adapter: Adapter) -> None:
        """Keep the connection open for later use."""

    async def close(self) -> None:
        """Close the kept connection."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.close()


class FromPool:
    """Takes each connection from a pool of the user's. acquired: gets one, which its `close` gives back."""

    is_shared = False  # nobody else has the one that a block has taken

    def __init__(self, acquired: Callable[[], Awaitable[Adapter]]) -> None:
        self.take = self.another = acquired

    async def give_back(self, adapter: Adapter) -> None:
        """Give the connection back to the pool."""
        await adapter.close()

    async def close(self) -> None:
        """Do nothing: the pool is the user's."""


class OfUser:
    """Uses a connection of the user's. ask: where others come from, to ask what was decided."""

    is_shared = True

    def __init__(self, adapter: Adapter, ask: Connections) -> None:
        self._adapter = adapter
        self._ask = ask

    async def take(self) -> Adapter:
        """Return the user's connection."""
        return self._adapter

    async def give_back(self, adapter: Adapter) -> None:
        """Do nothing: the connection is the user's."""

    async def another(self) -> Adapter:
        """Return a connection from `ask`."""
        return await self._ask.another()

    async def close(self) -> None:
        """Close the connections of `ask`."""
        await self._ask.close()

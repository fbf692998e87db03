"""PostgreSQL by asyncpg: its connection as an Adapter."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import asyncpg

_untyped: Any = asyncpg


class AsyncpgAdapter:
    """An asyncpg connection as an Adapter. close: gives the connection back to its pool; None: it is closed instead."""

    def __init__(self, connection: Any, close: Callable[[], Awaitable[Any]] | None = None) -> None:
        self._connection = connection
        self._transaction: Any = None  # the block of asyncpg
        self._close = close

    @property
    def is_in_transaction(self) -> bool:
        return not self.is_closed and bool(self._connection.is_in_transaction())

    @property
    def is_closed(self) -> bool:
        return bool(self._connection.is_closed())

    async def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement and return how many rows it changed. Without values it may be several statements, separated
        by semicolons.
        """
        count = (await self._connection.execute(statement, *values)).rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def fetch(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return [tuple(row) for row in await self._connection.fetch(statement, *values)]

    async def begin(self) -> None:
        """Begin a transaction as `async with connection.transaction()` does."""
        self._transaction = self._connection.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        """Commit the transaction that `begin` has begun."""
        assert self._transaction is not None
        await self._transaction.commit()

    async def rollback(self) -> None:
        """Roll back what is open. Also works if COMMIT has failed, or if a statement of the user has already ended the
        transaction.
        """
        transaction, self._transaction = self._transaction, None
        if transaction is not None and not self.is_closed:
            try:
                await transaction.rollback()
            except asyncpg.InterfaceError:  # it has ended
                if self.is_in_transaction:
                    await self._connection.execute("rollback")

    def savepoint(self) -> AbstractAsyncContextManager[Any]:
        """Return asyncpg's own block for a savepoint."""
        block: AbstractAsyncContextManager[Any] = self._connection.transaction()
        return block

    async def close(self) -> None:
        """Close the connection, or give it back to its pool."""
        await (self._connection.close() if self._close is None else self._close())

    def drop(self) -> None:
        """Cut the connection at once, without waiting for the server."""
        self._connection.terminate()


async def connected(url: str, timeout_s: float) -> AsyncpgAdapter:
    """Connect to the database of this URL, and return the connection as an adapter. Raises asyncpg's errors, OSError,
    TimeoutError.
    """
    return AsyncpgAdapter(await _untyped.connect(url, timeout=timeout_s))


async def acquired(pool: Any, timeout_s: float) -> AsyncpgAdapter:
    """Take a connection from the pool, and return it as an adapter. Raises asyncpg's errors, OSError, TimeoutError."""
    connection = await pool.acquire(timeout=timeout_s)
    return AsyncpgAdapter(connection, lambda: pool.release(connection))


def is_pool(given: Any) -> bool:
    """Return whether the object is a pool of asyncpg, and not a connection."""
    return isinstance(given, asyncpg.Pool)


def of_user(connection: Any) -> AsyncpgAdapter:
    """Return the user's own connection as an adapter."""
    return AsyncpgAdapter(connection)

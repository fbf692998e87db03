"""PostgreSQL by psycopg 3: its asynchronous connection as an Adapter."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from psycopg import AsyncConnection, AsyncRawCursor, AsyncTransaction, BaseConnection, OperationalError, Rollback
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

_IN_TRANSACTION = (TransactionStatus.ACTIVE, TransactionStatus.INTRANS, TransactionStatus.INERROR)


def is_in_transaction(connection: BaseConnection[Any]) -> bool:
    """Return whether the server has a transaction of this connection open, failed ones included."""
    return connection.pgconn.transaction_status in _IN_TRANSACTION


class PsycopgAdapter:
    """An asynchronous psycopg connection as an Adapter. close: gives the connection back to its pool; None: it is
    closed instead.
    """

    def __init__(self, connection: AsyncConnection[Any], close: Callable[[], Awaitable[Any]] | None = None) -> None:
        self._connection = connection
        self._block: AbstractAsyncContextManager[AsyncTransaction] | None = None
        self._close = close

    @property
    def is_in_transaction(self) -> bool:
        return is_in_transaction(self._connection)

    @property
    def is_closed(self) -> bool:
        return self._connection.closed

    async def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement and return how many rows it changed. Without values it may be several statements, separated
        by semicolons.
        """
        return max(0, (await self._run(statement, values)).rowcount)

    async def fetch(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return await (await self._run(statement, values)).fetchall()

    async def _run(self, statement: str, values: Sequence[Any]) -> AsyncRawCursor[tuple[Any, ...]]:
        """Run a statement and return its cursor. Outside of a transaction the statement is committed at once."""
        cursor = AsyncRawCursor(self._connection, row_factory=tuple_row)
        is_alone = not self._connection.autocommit and not self.is_in_transaction  # psycopg would begin one
        async with self._connection.transaction() if is_alone else nullcontext():
            return await cursor.execute(statement.encode(), values or None)

    async def begin(self) -> None:
        """Begin a transaction as `async with connection.transaction()` does. psycopg refuses connection.commit() inside
        it.
        """
        self._block = self._connection.transaction()
        await self._block.__aenter__()

    async def commit(self) -> None:
        """Commit the transaction that `begin` has begun."""
        block, self._block = self._block, None
        assert block is not None
        await block.__aexit__(None, None, None)

    async def rollback(self) -> None:
        """Roll back what is open. Also works if COMMIT has failed, or if a statement of the user has already ended the
        transaction. Raises OperationalError if the transaction is still open then.
        """
        block, self._block = self._block, None
        if self.is_closed:
            return
        if block is not None:
            await block.__aexit__(Rollback, Rollback(), None)
        elif self.is_in_transaction:
            await self._connection.rollback()
        if self.is_in_transaction:  # psycopg only logs that
            raise OperationalError("it was not rolled back")

    def savepoint(self) -> AbstractAsyncContextManager[Any]:
        """Return psycopg's own block for a savepoint."""
        return self._connection.transaction()

    async def close(self) -> None:
        """Close the connection, or give it back to its pool."""
        await (self._connection.close() if self._close is None else self._close())

    def drop(self) -> None:
        """Cut the connection at once, without waiting for the server."""
        self._connection.pgconn.finish()

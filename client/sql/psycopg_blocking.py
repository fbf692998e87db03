"""PostgreSQL by psycopg 3: its blocking connection as an Adapter. Each call is made in a thread, one at a time."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from psycopg import Connection, OperationalError, RawCursor, Rollback, Transaction
from psycopg.rows import tuple_row

from .psycopg_adapter import is_in_transaction
from .threads import call_blocking, entered


class BlockingPsycopgAdapter:
    """A blocking psycopg connection as an Adapter; any thread may use it. close: gives the connection back to its pool;
    None: it is closed instead.
    """

    def __init__(self, connection: Connection[Any], close: Callable[[], object] | None = None) -> None:
        self._connection = connection
        self._close = close or connection.close
        self._block: AbstractContextManager[Transaction] | None = None

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
        return await call_blocking(lambda: max(0, self._run(statement, values).rowcount))

    async def fetch(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return await call_blocking(lambda: self._run(statement, values).fetchall())

    def _run(self, statement: str, values: Sequence[Any]) -> RawCursor[tuple[Any, ...]]:
        """Run a statement and return its cursor. Outside of a transaction the statement is committed at once."""
        cursor = RawCursor(self._connection, row_factory=tuple_row)
        is_alone = not self._connection.autocommit and not self.is_in_transaction  # psycopg would begin one
        with self._connection.transaction() if is_alone else nullcontext():
            return cursor.execute(statement.encode(), values or None)

    async def begin(self) -> None:
        """Begin a transaction as `with connection.transaction()` does. psycopg refuses
        connection.commit() inside it.
        """
        self._block = self._connection.transaction()
        await call_blocking(self._block.__enter__)

    async def commit(self) -> None:
        """Commit the transaction that `begin` has begun."""
        block, self._block = self._block, None
        assert block is not None
        await call_blocking(partial(block.__exit__, None, None, None))

    async def rollback(self) -> None:
        """Roll back what is open. Also works if COMMIT has failed, or if a statement of the user has already ended the
        transaction. Raises OperationalError if the transaction is still open then.
        """
        block, self._block = self._block, None
        if self.is_closed:
            return
        if block is not None:
            await call_blocking(partial(block.__exit__, Rollback, Rollback(), None))
        elif self.is_in_transaction:
            await call_blocking(self._connection.rollback)
        if self.is_in_transaction:  # psycopg only logs that
            raise OperationalError("it was not rolled back")

    def savepoint(self) -> AbstractAsyncContextManager[Any]:
        """Return psycopg's own block for a savepoint."""
        return entered(self._connection.transaction, call_blocking)

    async def close(self) -> None:
        """Close the connection, or give it back to its pool."""
        await call_blocking(self._close)

    def drop(self) -> None:
        """Cut the connection at once, without waiting for the server."""
        self._connection.pgconn.finish()

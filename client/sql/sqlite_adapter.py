"""SQLite by the standard library: a sqlite3 connection as an Adapter. Each call is made in a thread, one at a time."""

import asyncio
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any

from .sqlite_statements import bound, run
from .threads import OneAtATime, entered


class SqliteAdapter:
    """A sqlite3 connection as an Adapter; any thread may use it. is_own: it is ours, and not a user's."""

    def __init__(self, connection: sqlite3.Connection, *, is_own: bool) -> None:
        self._connection = connection
        self._is_own = is_own
        self._closing: asyncio.Future[None] | None = None  # after `drop`
        self._call = OneAtATime()

    @property
    def is_in_transaction(self) -> bool:
        return not self.is_closed and self._connection.in_transaction

    @property
    def is_closed(self) -> bool:
        with suppress(sqlite3.ProgrammingError):  # raised if it is
            return self._closing is not None or self._connection.total_changes < 0
        return True

    async def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement and return how many rows it changed."""
        return await self._call(lambda: self._run(statement, values)[0])

    async def fetch(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return await self._call(lambda: self._run(statement, values)[1])

    def _run(self, statement: str, values: Sequence[Any]) -> tuple[int, list[tuple[Any, ...]]]:
        """Run a statement. Returns how many rows it changed, and the rows that it returned."""
        is_alone = not self._connection.in_transaction
        cursor = run(self._connection, statement, bound(statement, values))
        rows = cursor.fetchall()
        if is_alone and self._connection.in_transaction:  # sqlite3 has begun one for a connection of the user's
            self._connection.execute("commit")
        return max(0, cursor.rowcount), rows

    async def begin(self) -> None:
        """Begin a transaction, and take the lock of the file."""
        await self._call(lambda: self._connection.execute("begin immediate"))

    async def commit(self) -> None:
        """Commit the transaction that `begin` has begun. connection.commit() does nothing in the mode autocommit."""
        await self._call(lambda: self._connection.execute("commit"))

    async def rollback(self) -> None:
        """Roll back what is open."""
        await self._call(self._roll_back)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("rollback")

    def savepoint(self) -> AbstractAsyncContextManager[Any]:
        """Return a block for a savepoint."""
        return entered(self._savepoint, self._call)

    @contextmanager
    def _savepoint(self) -> Generator[None, None, None]:
        self._connection.execute("savepoint fencepost")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # else SQLite has rolled back all of it
                self._connection.execute("rollback to fencepost")
                self._connection.execute("release fencepost")
            raise
        self._connection.execute("release fencepost")

    async def close(self) -> None:
        """Close the connection."""

        def close() -> None:
            with suppress(sqlite3.Error):  # while anything refers to a statement, its transaction would stay open
                self._roll_back()
            self._connection.close()

        await self._call(close)

    def drop(self) -> None:
        """End the statement that runs. A connection of ours is rolled back and closed after it."""
        if not self.is_closed:
            self._connection.interrupt()
            if self._is_own:
                self._closing = asyncio.ensure_future(self.close())

"""PostgreSQL or SQLite by a Session of SQLAlchemy, over psycopg or sqlite3. Each call has a thread, one at a time.

The rule: what the session has not flushed is flushed before each statement of ours, so that the decision stays the
last one. Outside of a transaction a statement has a connection of its own, and leaves the session alone.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session

from .drivers import BEGINNING, cut, has_open_transaction
from .sqlalchemy_statements import check_begun, clause, found_by, parts_of, refuse_second_database
from .threads import OneAtATime, entered


class SessionAdapter:
    """A blocking Session, or a connection of an Engine, as an Adapter. target: the user's session, or a connection of
    ours. engine: the session's, for statements outside of a transaction.
    """

    def __init__(self, target: Session | Connection, engine: Engine) -> None:
        self._target = target
        self._engine = engine
        self._transaction: Any = None  # of `begin`
        self._driver: Any = None  # the connection of psycopg or sqlite3 in it
        self._call = OneAtATime()
        if isinstance(target, Session):
            refuse_second_database(target, engine, lambda: self._transaction is not None)

    @property
    def is_in_transaction(self) -> bool:
        if self._transaction is None:
            return self._target.in_transaction()
        return bool(self._transaction.is_active) and has_open_transaction(self._driver)

    @property
    def is_closed(self) -> bool:
        return isinstance(self._target, Connection) and self._target.closed

    async def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement, or several on lines of their own, and return how many rows the last one changed."""
        return await self._call(lambda: [max(0, self._run(part, values)[0]) for part in parts_of(statement)][-1])

    async def fetch(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return await self._call(lambda: self._run(statement, values)[1])

    def _run(self, statement: str, values: Sequence[Any]) -> tuple[int, list[tuple[Any, ...]]]:
        """Run a statement. Returns how many rows it changed, and the rows that it returned."""
        if not self.is_in_transaction:
            with self._engine.begin() as alone:
                return found_by(alone.execute(clause(statement, values)))
        if isinstance(self._target, Session):
            self._target.flush()
        return found_by(self._target.execute(clause(statement, values)))

    async def begin(self) -> None:
        """Begin a transaction as `with session.begin()` does. Raises InvalidConfigurationError if the engine's
        connections commit each statement by themselves.
        """

        def begin() -> None:
            self._transaction = self._target.begin()
            own = self._target if isinstance(self._target, Connection) else self._target.connection()
            self._driver = own.connection.driver_connection
            if not has_open_transaction(self._driver):  # drivers begin with the first statement, sqlite3 with a write
                own.exec_driver_sql("begin immediate" if own.dialect.name == "sqlite" else BEGINNING)
            check_begun(self._driver)

        await self._call(begin)

    async def commit(self) -> None:
        """Commit the transaction that `begin` has begun."""
        transaction, self._transaction = self._transaction, None
        await self._call(transaction.commit)

    async def rollback(self) -> None:
        """Roll back what is open. Also works if COMMIT has failed."""

        def roll_back() -> None:
            self._transaction = None
            self._target.rollback()

        await self._call(roll_back)

    def savepoint(self) -> AbstractAsyncContextManager[Any]:
        """Return SQLAlchemy's own block for a savepoint."""
        return entered(self._target.begin_nested, self._call)

    async def close(self) -> None:
        """Give the connection back to its engine."""
        await self._call(self._target.close)

    def drop(self) -> None:
        """Cut the driver's connection at once; with sqlite3, only end the statement that runs."""
        if self._driver is not None:
            cut(self._driver)

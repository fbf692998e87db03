"""PostgreSQL by an AsyncSession of SQLAlchemy, over whichever driver its engine has.

The rule: what the session has not flushed is flushed before each statement of ours, so that the decision stays the
last one. Outside of a transaction a statement has a connection of its own, and leaves the session alone. The driver's
connection is noted at the begin, since it can be cut without waiting.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

from .drivers import BEGINNING, cut, has_open_transaction
from .sqlalchemy_statements import check_begun, clause, found_by, parts_of, refuse_second_database


class SqlalchemyAdapter:
    """An AsyncSession, or a connection of an AsyncEngine, as an Adapter. target: the user's session, or a connection of
    ours. engine: the session's, for statements outside of a transaction.
    """

    def __init__(self, target: AsyncSession | AsyncConnection, engine: AsyncEngine) -> None:
        self._target = target
        self._engine = engine
        self._transaction: Any = None  # of `begin`
        self._driver: Any = None
        if isinstance(target, AsyncSession):
            refuse_second_database(target.sync_session, engine.sync_engine, lambda: self._transaction is not None)

    @property
    def is_in_transaction(self) -> bool:
        if self._transaction is None:
            return self._target.in_transaction()
        return bool(self._transaction.is_active) and has_open_transaction(self._driver)

    @property
    def is_closed(self) -> bool:
        return isinstance(self._target, AsyncConnection) and self._target.closed

    async def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement, or several on lines of their own, and return how many rows the last one changed."""
        return [max(0, (await self._run(part, values))[0]) for part in parts_of(statement)][-1]

    async def fetch(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return (await self._run(statement, values))[1]

    async def _run(self, statement: str, values: Sequence[Any]) -> tuple[int, list[tuple[Any, ...]]]:
        """Run a statement. Returns how many rows it changed, and the rows that it returned."""
        if not self.is_in_transaction:
            async with self._engine.begin() as alone:
                return found_by(await alone.execute(clause(statement, values)))
        if isinstance(self._target, AsyncSession):
            await self._target.flush()
        return found_by(await self._target.execute(clause(statement, values)))

    async def begin(self) -> None:
        """Begin a transaction as `async with session.begin()` does. Raises InvalidConfigurationError if the engine's
        connections commit each statement by themselves.
        """
        self._transaction = await self._target.begin()
        own = self._target if isinstance(self._target, AsyncConnection) else await self._target.connection()
        self._driver = (await own.get_raw_connection()).driver_connection
        await own.exec_driver_sql(BEGINNING)
        check_begun(self._driver)

    async def commit(self) -> None:
        """Commit the transaction that `begin` has begun."""
        transaction, self._transaction = self._transaction, None
        await transaction.commit()

    async def rollback(self) -> None:
        """Roll back what is open. Also works if COMMIT has failed."""
        self._transaction = None
        await self._target.rollback()

    def savepoint(self) -> AbstractAsyncContextManager[Any]:
        """Return SQLAlchemy's own block for a savepoint."""
        return self._target.begin_nested()

    async def close(self) -> None:
        """Give the connection back to its engine."""
        await self._target.close()

    def drop(self) -> None:
        """Cut the driver's connection at once, without waiting for the server."""
        if self._driver is not None:
            cut(self._driver)

"""PostgreSQL by an AsyncSession of SQLAlchemy, over whichever driver its engine has.

The rule: what the session has not flushed is flushed before each statement of ours, so that the decision stays the
last one. The connection of the driver is noted when a transaction begins, since it can be cut without waiting.
"""

import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, cast

from sqlalchemy import CursorResult, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.types import NullType

from ..errors import InvalidConfigurationError
from .connections import FromPool, OfUser
from .interfaces import Connections


class SqlalchemyAdapter:
    """target: the user's session, or a connection of ours."""

    def __init__(self, target: AsyncSession | AsyncConnection) -> None:
        self._target = target
        self._transaction: Any = None  # of `begin`
        self._driver: Any = None

    @property
    def is_in_transaction(self) -> bool:
        if self._transaction is not None:
            return bool(self._transaction.is_active)
        return self._target.in_transaction()

    @property
    def is_closed(self) -> bool:
        return isinstance(self._target, AsyncConnection) and self._target.closed

    async def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement; without values also several, each ended by a semicolon and a line."""
        counts = [(await self._run(part, values)).rowcount for part in statement.split(";\n") if part.strip()]
        return max(0, counts[-1])

    async def fetch(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return [tuple(row) for row in await self._run(statement, values)]

    async def _run(self, statement: str, values: Sequence[Any]) -> CursorResult[Any]:
        if isinstance(self._target, AsyncSession):
            await self._target.flush()
        named = re.sub(r"\$(\d+)", r":p\1", re.sub(r"(?<!:):(?=\w)", r"\\:", statement))
        given = [bindparam(f"p{number}", value, NullType()) for number, value in enumerate(values, 1)]
        return cast("CursorResult[Any]", await self._target.execute(text(named).bindparams(*given)))

    async def begin(self) -> None:
        """Begin as `async with session.begin()` does."""
        self._transaction = await self._target.begin()
        own = self._target if isinstance(self._target, AsyncConnection) else await self._target.connection()
        self._driver = (await own.get_raw_connection()).driver_connection

    async def commit(self) -> None:
        """Commit what `begin` has begun."""
        transaction, self._transaction = self._transaction, None
        await transaction.commit()

    async def rollback(self) -> None:
        """Roll back, also after a COMMIT that failed."""
        self._transaction = None
        await self._target.rollback()

    def savepoint(self) -> AbstractAsyncContextManager[Any]:
        """Return SQLAlchemy's block."""
        return self._target.begin_nested()

    async def close(self) -> None:
        """Give the connection back to its engine."""
        await self._target.close()

    def drop(self) -> None:
        """Cut the driver's connection."""
        if self._driver is not None:
            cut = getattr(self._driver, "terminate", None) or self._driver.pgconn.finish
            cut()


async def _opened(engine: AsyncEngine) -> SqlalchemyAdapter:
    return SqlalchemyAdapter(await engine.connect())


def connections_of(session: Any, ask: Connections | None) -> Connections:
    """Return the session as connections. ask: by what the database is asked; None: by the session's own engine."""
    engine = session.bind if isinstance(session, AsyncSession) else None
    if not isinstance(engine, AsyncEngine) or engine.dialect.name != "postgresql":
        raise InvalidConfigurationError(
            f"{type(session).__qualname__} is not a session of an asynchronous engine of PostgreSQL",
            hint='AsyncSession(create_async_engine("postgresql+asyncpg://…"))',
        )
    return OfUser(SqlalchemyAdapter(session), ask or FromPool(partial(_opened, engine)))

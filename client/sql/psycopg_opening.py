"""Connections of psycopg 3, asynchronous and blocking ones, from URLs, pools and users."""

from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from psycopg import AsyncConnection, Connection

from .interfaces import Adapter
from .psycopg_adapter import PsycopgAdapter
from .psycopg_blocking import BlockingPsycopgAdapter
from .threads import call_blocking


async def connected(url: str, timeout_s: float) -> PsycopgAdapter:
    """Return a new connection to the database of this URL. Raises psycopg's errors."""
    connection = await AsyncConnection[Any].connect(url, autocommit=True, connect_timeout=int(timeout_s))
    return PsycopgAdapter(connection)


async def acquired(pool: Any, timeout_s: float) -> Adapter:
    """Return a connection of an AsyncConnectionPool or a ConnectionPool. Raises its errors."""
    if not iscoroutinefunction(pool.getconn):
        blocking = await call_blocking(partial(pool.getconn, timeout_s))
        return BlockingPsycopgAdapter(blocking, partial(pool.putconn, blocking))
    connection = await pool.getconn(timeout_s)
    return PsycopgAdapter(connection, lambda: pool.putconn(connection))


def is_pool(given: Any) -> bool:
    """Return whether it is a pool of psycopg_pool, not a connection."""
    return hasattr(given, "putconn")


def of_user(connection: AsyncConnection[Any] | Connection[Any]) -> Adapter:
    """Return the user's own connection as an adapter."""
    if isinstance(connection, Connection):
        return BlockingPsycopgAdapter(connection)
    return PsycopgAdapter(connection)

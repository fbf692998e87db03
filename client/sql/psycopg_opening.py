"""Connections of psycopg 3, asynchronous and blocking ones, from URLs, pools and users."""

from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from psycopg import AsyncConnection, Connection

from .interfaces import Adapter
from .psycopg_adapter import PsycopgAdapter
from .psycopg_blocking import BlockingPsycopgAdapter
from .threads import take_blocking


async def connected(url: str, timeout_s: float) -> PsycopgAdapter:
    """Connect to the database of this URL, and return the connection as an adapter. Raises psycopg's errors."""
    connection = await AsyncConnection[Any].connect(url, autocommit=True, connect_timeout=int(timeout_s))
    return PsycopgAdapter(connection)


async def acquired(pool: Any, timeout_s: float) -> Adapter:
    """Take a connection from an AsyncConnectionPool or a ConnectionPool, and return it as an adapter. Raises the pool's
    errors.
    """
    if not iscoroutinefunction(pool.getconn):
        blocking = await take_blocking(partial(pool.getconn, timeout_s), pool.putconn)
        return BlockingPsycopgAdapter(blocking, partial(pool.putconn, blocking))
    connection = await pool.getconn(timeout_s)
    return PsycopgAdapter(connection, lambda: pool.putconn(connection))


def is_pool(given: Any) -> bool:
    """Return whether the object is a pool of psycopg_pool, and not a connection."""
    return hasattr(given, "putconn")


def of_user(connection: AsyncConnection[Any] | Connection[Any]) -> Adapter:
    """Return the user's own connection as an adapter."""
    if isinstance(connection, Connection):
        return BlockingPsycopgAdapter(connection)
    return PsycopgAdapter(connection)

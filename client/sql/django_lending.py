"""Lends a connection of Django to a thread of ours for one call, as Django's own test server does."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.db import connections, transaction

from .sqlite_statements import bound
from .threads import OneAtATime

T = TypeVar("T")
_transaction: Any = transaction  # it has no types
CONNECTIONS: Any = connections
ATOMIC = _transaction.atomic


class Lending:
    """Makes calls with a connection, one at a time. wrapper: what `connections["default"]` is in the user's thread."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper
        self._one_at_a_time = OneAtATime()

    async def __call__(self, call: Callable[[], T]) -> T:
        """Call the function in a thread of ours, and return its result. During the call, Django uses this connection
        under its alias in that thread.
        """

        def lent() -> T:
            wrapper = self._wrapper
            before = [each for each in CONNECTIONS.all(initialized_only=True) if each.alias == wrapper.alias]
            wrapper.inc_thread_sharing()
            CONNECTIONS[wrapper.alias] = wrapper
            try:
                return call()
            finally:
                del CONNECTIONS[wrapper.alias]
                wrapper.dec_thread_sharing()
                for each in before:  # a simulation has one thread
                    CONNECTIONS[each.alias] = each

        return await self._one_at_a_time(lent)


def run(wrapper: Any, statement: str, values: Sequence[Any]) -> Any:
    """Run a statement over the driver's connection, and return its cursor. Raises Django's form of its errors."""
    wrapper.ensure_connection()
    with wrapper.wrap_database_errors:
        if wrapper.vendor == "sqlite":
            return wrapper.connection.execute(statement, bound(statement, tuple(values)))
        from psycopg import RawCursor
        from psycopg.rows import tuple_row

        cursor: Any = RawCursor(wrapper.connection, row_factory=tuple_row)
        return cursor.execute(statement.encode(), values or None)

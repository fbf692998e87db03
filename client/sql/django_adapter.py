"""PostgreSQL or SQLite by a connection of Django.

The rule: a block is an `atomic()` of Django's, so that those inside are savepoints. What was given to `on_commit` is
kept here until it is known that the block was committed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..errors import IllegalStateError
from .django_lending import ATOMIC, Lending, run
from .drivers import BEGINNING, cut, has_open_transaction
from .threads import entered


class DjangoAdapter:
    """A connection of Django as an Adapter. wrapper: what `connections["default"]` is in the user's thread. on_commit:
    the functions that the committed block has registered with Django's `on_commit`.
    """

    def __init__(self, wrapper: Any) -> None:
        self.on_commit: list[Callable[[], object]] = []
        self._wrapper = wrapper
        self._block: Any = None
        self._call = Lending(wrapper)

    @property
    def is_in_transaction(self) -> bool:
        wrapper = self._wrapper
        if self._block is None:
            return wrapper.connection is not None and (wrapper.in_atomic_block or not wrapper.autocommit)
        return bool(wrapper.in_atomic_block) and not self.is_closed and has_open_transaction(wrapper.connection)

    @property
    def is_closed(self) -> bool:
        connection = self._wrapper.connection
        return connection is None or self._wrapper.closed_in_transaction or getattr(connection, "closed", False)

    async def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement, or of PostgreSQL several, and return how many rows the last one changed."""
        return await self._call(lambda: max(0, self._run(statement, values).rowcount))

    async def fetch(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return await self._call(lambda: self._run(statement, values).fetchall())

    def _run(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement and return its cursor. Raises IllegalStateError if the block cannot be committed any more."""
        if self._block is not None and self._wrapper.closed_in_transaction:
            raise IllegalStateError("the connection was closed inside the block, which has undone it")
        if self._block is not None and self._wrapper.needs_rollback:
            raise IllegalStateError(
                "an error of the database inside the block was swallowed: nothing of it can be committed",
                hint="let it out of the block, or put what may fail into atomic()",
            )
        return run(self._wrapper, statement, values)

    async def begin(self) -> None:
        """Begin a transaction as `with atomic(durable=True)` does."""

        def begin() -> None:
            self.on_commit.clear()
            block = ATOMIC(using=self._wrapper.alias, durable=True)
            block.__enter__()
            self._block = block
            if not has_open_transaction(self._wrapper.connection):  # psycopg begins with the first statement
                self._run(BEGINNING)

        await self._call(begin)

    async def commit(self) -> None:
        """Commit the transaction that `begin` has begun, and keep the functions of Django's `on_commit` uncalled."""
        block, self._block = self._block, None

        def commit() -> None:
            self.on_commit += [each[1] for each in self._wrapper.run_on_commit]
            self._wrapper.run_on_commit.clear()
            block.__exit__(None, None, None)

        await self._call(commit)

    async def rollback(self) -> None:
        """Roll back what `begin` has begun. Does nothing after `commit`: if COMMIT fails, Django itself rolls back."""
        block, self._block = self._block, None
        if block is not None:
            await self._call(partial(block.__exit__, Exception, Exception(), None))

    def savepoint(self) -> Any:
        """Return a block for a savepoint, by Django's `atomic()`."""
        return entered(partial(ATOMIC, using=self._wrapper.alias), self._call)

    async def close(self) -> None:
        """Close the connection."""
        await self._call(self._wrapper.close)

    def drop(self) -> None:
        """Cut the driver's connection at once; with sqlite3, only end the statement that runs."""
        if self._wrapper.connection is not None:
            cut(self._wrapper.connection)

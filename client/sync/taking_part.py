"""The blocking form of a database that takes part in commits.

The rule: the database is used in the loop's thread. A connection of the user's is used there only while the user waits:
at the begin and at the end of a block.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from ..sql.interfaces import Database as AsyncDatabase
from .blocking import Blocking


class Database(Blocking[AsyncDatabase]):
    """`with sql.connect("sqlite:///orders.db") as db, producer.transaction(db=db) as tx: db.execute(…)`."""

    def start(self) -> None:
        """Connect, and read the database's settings and its id. Raises InvalidConfigurationError, and the driver's
        error.
        """
        self._wait(self._inner.open)

    open = start

    def before_block(self) -> None:
        """Raise IllegalStateError if this connection is not the one that the calling thread would write with. (Only
        Django's has such a check.)
        """

    def after_block(self, committed: bool) -> None:
        """Do what is left to do in the calling thread after its block: nothing, except for Django, whose `on_commit`
        functions are called. committed: whether the block is known to be committed.
        """

    def execute(self, statement: str, *values: Any) -> int:
        """Run a statement with values for its `$1`, `$2` …, and return how many rows it changed."""
        return self._wait(lambda: self._inner.execute(statement, *values))

    def fetch(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement like `execute`, and return its rows."""
        return self._wait(lambda: self._inner.fetch(statement, *values))

    @contextmanager
    def transaction(self) -> Generator[None, None, None]:
        """`with db.transaction():` within a producer's transaction: a savepoint. An exception rolls back to it."""
        block = self._thread.call(self._inner.transaction)
        self._wait(block.__aenter__)
        try:
            yield
        except BaseException as error:
            raised = error
            self._end(lambda: _exit(block, raised))
            raise
        self._end(lambda: _exit(block, None))

    @property
    def dialect(self) -> str:
        """Return the SQL dialect of the database, "sqlite" or "postgresql"; it decides which variant of the tables of
        `sql.schema` is used.
        """
        return self._inner.dialect

    @property
    def database_id(self) -> str:
        """Return the id of the database. It is stored in the database, so it stays if that moves to another server."""
        return self._inner.database_id


async def _exit(block: Any, error: BaseException | None) -> None:
    """End a savepoint. error: the exception because of which it is rolled back; None to keep its changes."""
    try:
        await block.__aexit__(None if error is None else type(error), error, None)
    except BaseException as raised:
        if raised is not error:  # which the caller raises
            raise

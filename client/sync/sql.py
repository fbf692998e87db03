"""Blocking databases that take part in commits: `from fencepost.sync import sql`.

The rule: the database is used in the loop's thread. A connection of the user's is used there only while the user waits:
at the begin and at the end of a block.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from ..sql import connecting
from ..sql.interfaces import Database as AsyncDatabase
from ..sql.resolving import Resolved
from ..sql.resolving import resolve as async_resolve
from ..sql.statements import schema
from .blocking import Blocking, inner_of
from .inbox import Inbox, inbox, keep_places
from .loop_thread import loop_thread

__all__ = ["Database", "Inbox", "Resolved", "connect", "inbox", "keep_places", "resolve", "schema"]


class Database(Blocking[AsyncDatabase]):
    """`with sql.connect("sqlite:///orders.db") as db, producer.transaction(db=db) as tx: db.execute(…)`."""

    def start(self) -> None:
        """Open it. Raises InvalidConfigurationError, and the driver's error."""
        self._wait(self._inner.open)

    open = start

    def execute(self, statement: str, *values: Any) -> int:
        """Run a statement with values for its `$1`, `$2` …, and return how many rows it changed."""
        return self._wait(lambda: self._inner.execute(statement, *values))

    def fetch(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement like `execute`, and return its rows."""
        return self._wait(lambda: self._inner.fetch(statement, *values))

    @contextmanager
    def transaction(self) -> Generator[None, None, None]:
        """`with db.transaction():` within a producer's transaction: a savepoint, undone by an exception."""
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
    def database_id(self) -> str:
        """Return the id of the database, which is the same wherever it is served."""
        return self._inner.database_id


async def _exit(block: Any, error: BaseException | None) -> None:
    """End a savepoint. error: the exception because of which it is rolled back; None to keep its changes."""
    try:
        await block.__aexit__(None if error is None else type(error), error, None)
    except BaseException as raised:
        if raised is not error:  # which the caller raises
            raise


def connect(given: Any, *, create: bool | None = None, ask: Any = None) -> Database:
    """Return a database that can take part in transactions. Like fencepost.sql.connect; given: also a connection or a
    pool of a blocking driver: sqlite3, psycopg; or a Session of SQLAlchemy.
    """
    own = connecting.of_this_thread(given)
    return Database(lambda: connecting.connect(own, create=create, ask=ask))


def resolve(bootstrap_servers: Any, db: Database, **options: Any) -> list[Resolved]:
    """End the prepared transactions that producers left waiting for a decision of this database. Like
    fencepost.sql.resolve.
    """
    return loop_thread().run(lambda: async_resolve(bootstrap_servers, inner_of(db), **options))

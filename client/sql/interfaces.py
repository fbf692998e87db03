"""What a database does to take part in commits, and what the driver of a server has to do for it.

The rule: `Database` is all that producers, inboxes, outboxes and `resolve` use. sqlite.py is one; postgresql.py is one
over any `Adapter`, which is one connection of a driver. Parameters are `$1`, `$2` … in each of them.
"""

from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol

from ..transactions.deciding import Row
from ..transactions.participant import DatabaseAway, DecidingDatabase


class RowHeld(DatabaseAway):
    """Another session's open transaction has the row. session: its number at the server, 0 if it is not known."""

    def __init__(self, session: int) -> None:
        super().__init__(f"session {session or 'of another program'} holds the row of the transactional id")
        self.session = session


class Database(DecidingDatabase, Protocol):
    """A database that takes part in commits: `async with sql.connect(…) as db`. It has one transaction at a time."""

    @property
    def dialect(self) -> str:
        """Return the SQL dialect of the database, "sqlite" or "postgresql"; it decides which variant of the tables of
        `sql.schema` is used.
        """
        ...

    @property
    def name(self) -> str:
        """Return how messages call the database: the path of a file, or a URL without password."""
        ...

    async def __aenter__(self) -> "Database":
        """Open the database."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Close the database."""
        ...

    async def open(self) -> None:
        """Connect, and read the database's settings and its id. Raises InvalidConfigurationError, and the driver's
        error.
        """
        ...

    async def close(self) -> None:
        """Roll back an open transaction, and give the connection back."""
        ...

    async def execute(self, statement: str, *values: Any) -> int:
        """Run a statement with values for its `$1`, `$2` …, and return how many rows it changed.

        Between `begin` and `commit` it belongs to their transaction; else it is committed at once. Raises the driver's
        error, and IllegalStateError for one that would begin or end a transaction.
        """
        ...

    async def fetch(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement like `execute`, and return its rows."""
        ...

    async def execute_last(self, statement: str, *values: Any) -> int:
        """Run a statement after those of the user, between `begin` and `commit`, and return how many rows it changed.

        Raises IllegalStateError if the user has caught an error of the database before, because COMMIT would then roll
        back without an error; else the driver's error.
        """
        ...

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """Return a block for a savepoint, `async with db.transaction():`, between `begin` and `commit`. An exception
        rolls back to it.
        """
        ...

    async def read_row(self, transactional_id: str) -> Row:
        """Return the row in which the last decision about this transactional id stands; its number is NONE_YET if there
        is none. Raises DatabaseAway.
        """
        ...

    async def run_alone(self, wanted: Sequence[tuple[str, Sequence[Any]]]) -> list[list[tuple[Any, ...]]]:
        """Run these statements, each with its values, in one transaction over another connection. They see what others
        have committed.

        Returns the rows of each statement; an empty list for one that returns none. Raises DatabaseAway, also if it
        waited too long for a row that another session has locked.
        """
        ...

    async def terminate_session(self, session: int, transactional_id: str) -> None:
        """End this session of the server if it is the one that holds the row of the id. Raises DatabaseAway."""
        ...


class Adapter(Protocol):
    """One connection of a driver to PostgreSQL."""

    @property
    def is_in_transaction(self) -> bool:
        """Return whether the server has a transaction of this connection open, failed ones included. Sends nothing to
        the server.
        """
        ...

    @property
    def is_closed(self) -> bool:
        """Return whether the connection cannot be used any more."""
        ...

    async def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement with parameters `$1` …, and return how many rows it changed. Outside a transaction it is
        committed at once.
        """
        ...

    async def fetch(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement like `execute`, and return its rows."""
        ...

    async def begin(self) -> None:
        """Begin a transaction, so that the driver's own blocks inside are savepoints."""
        ...

    async def commit(self) -> None:
        """Commit the transaction. Raises the driver's error, whether or not it was committed."""
        ...

    async def rollback(self) -> None:
        """Roll back the transaction, whatever its state is."""
        ...

    def savepoint(self) -> AbstractAsyncContextManager[Any]:
        """Return the driver's own block for a savepoint."""
        ...

    async def close(self) -> None:
        """Close the connection, or give it back to its pool."""
        ...

    def drop(self) -> None:
        """Cut the connection at once, without waiting for the server, which then rolls back."""
        ...


class Connections(Protocol):
    """Where the connections to a server come from."""

    @property
    def is_shared(self) -> bool:
        """Whether the user can run statements on the connection of a block by other ways than ours."""
        ...

    def take(self) -> Awaitable[Adapter]:
        """Return the connection for transactions and statements of the user; it is given back afterwards."""
        ...

    async def give_back(self, adapter: Adapter) -> None:
        """Take back an adapter that `take` has returned, even if its connection is closed."""
        ...

    def another(self) -> Awaitable[Adapter]:
        """Return a second connection to the same server, to ask whether the database has committed while the
        connection of `take` may hang. Its `close` ends it.
        """
        ...

    async def close(self) -> None:
        """Close the connections that are kept for later use."""
        ...

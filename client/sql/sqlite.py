"""SQLite as a database that takes part in commits.

The rules: one connection, and one call of it at a time, each in a thread, since it blocks. A call whose awaiter is
cancelled goes on; the next one waits for it. What was committed must be on disk: in WAL mode synchronous=FULL does
that, with a rollback journal only EXTRA does, since it also syncs the folder from which the journal is removed. The
block of the producer's transaction owns begin and commit.
"""

import asyncio
import os
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ...effects.threads.starting import call_in_thread
from ..errors import IllegalStateError, InvalidConfigurationError, OutcomeDivergedError
from ..transactions.deciding import NONE_YET, Row, Waiting
from ..transactions.participant import Block, DatabaseAway
from . import statements

T = TypeVar("T")
LOCK_TIMEOUT_S = 5.0
"""How long a statement waits for another connection's transaction."""

_FULL, _EXTRA = 2, 3
_NAMES = {0: "OFF", 1: "NORMAL", _FULL: "FULL", _EXTRA: "EXTRA"}
_NUMBERED = re.compile(r"\$\d")
NO_SAVEPOINT = "no such savepoint"
_ROLLED_BACK = "SQLite has rolled the transaction back: an error inside the block was ignored"


class Database:
    """`async with sql.connect("sqlite:///orders.db") as db: await db.execute("insert into orders values (?)", 42)`.

    path: of the file. create: whether to make our tables if they are missing. given: a connection of the user's to that
    file, which any thread may use; None: one of our own.
    """

    dialect = "sqlite"

    def __init__(self, path: str, *, create: bool = True, given: sqlite3.Connection | None = None) -> None:
        self.path = os.path.abspath(path)
        self._create = create
        self._given = given
        self._connection: sqlite3.Connection | None = None
        self._running: asyncio.Future[Any] | None = None
        self._is_owned = False  # by the block of a producer's transaction, or of an inbox
        self._is_checked = False  # that the transaction is still the one of the block
        self.block: Block | None = None
        self._rollback: asyncio.Task[None] | None = None  # the last one
        self._savepoints = 0
        self._id = ""

    def __repr__(self) -> str:
        return f"<Database sqlite {self.path} {'closed' if self._connection is None else 'open'}>"

    async def __aenter__(self) -> "Database":
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the file, and read its settings and its id. Raises InvalidConfigurationError, sqlite3.Error."""
        if self._connection is None:
            self._connection = await self._call(self._opened)

    async def close(self) -> None:
        """Close the connection, and roll back an open transaction."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._call(partial(_roll_back, connection) if connection is self._given else connection.close)

    # ---- for the user ----------------------------------------------------------------------------------------

    async def execute(self, statement: str, *values: Any) -> int:
        """Run a statement with values for its `?` or `$1`. Returns how many rows it changed.

        Within a producer's transaction the statement belongs to that; else it is committed at once. Raises
        sqlite3.Error.
        """
        return await self._call(partial(self._run, statement, values, lambda cursor: cursor.rowcount))

    async def execute_last(self, statement: str, *values: Any) -> int:
        """Run a statement after those of the user in the open transaction. Returns how many rows it changed."""
        return await self.execute(statement, *values)

    async def fetch(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement like `execute`. Returns its rows."""
        return await self._call(partial(self._run, statement, values, lambda cursor: cursor.fetchall()))

    def _run(self, statement: str, values: tuple[Any, ...], take: Callable[[sqlite3.Cursor], T]) -> T:
        """Run a statement of the user, and return what `take` returns for its cursor.

        Raises IllegalStateError or OutcomeDivergedError if the transaction of the block has ended, because the
        statement would be committed at once, and the block's records would be aborted.
        """
        statements.check_allowed(statement)
        connection = self._opened_connection()
        if self._is_owned and not connection.in_transaction:
            raise self._ended_error()
        was_alone = not connection.in_transaction
        found = take(run(connection, statement, bound(statement, values)))
        if was_alone and connection.in_transaction:  # begun by a connection of the user's
            connection.execute("commit")
        return found

    def _ended_error(self) -> IllegalStateError | OutcomeDivergedError:
        """Return the error for a transaction that has ended inside its block: SQLite has rolled it back, or, on a
        connection of the user's, the user may have ended it.
        """
        if self._given is None:
            return IllegalStateError(_ROLLED_BACK)
        return OutcomeDivergedError(
            f"{self.path}: the transaction was committed or rolled back inside the block, which ends it by "
            "itself: its rows may be there, and its records are aborted",
            hint="leave out the commit; async with db.transaction() is a savepoint",
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None, None]:
        """`async with db.transaction():` within a producer's transaction: a savepoint. An exception
        rolls back to it.
        """
        if not self._is_owned:
            raise IllegalStateError("a savepoint needs a transaction", hint="async with producer.transaction(db=db)")
        connection = self._opened_connection()
        self._savepoints += 1
        name = f"fencepost_{self._savepoints}"
        await self.execute(f"savepoint {name}")
        try:
            yield
        except BaseException:
            await self._call(lambda: connection.execute(f"rollback to {name}"))  # a script would commit first
            await self._call(lambda: connection.execute(f"release {name}"))
            raise
        await self._call(lambda: connection.execute(f"release {name}"))

    # ---- for the producer ------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Return how messages call the database."""
        return self.path

    @property
    def database_id(self) -> str:
        """Return the id of the database, the same wherever its file is. A copy of the file has the same one."""
        return self._id

    def check_free(self) -> None:
        """Raise IllegalStateError if the database is not open, or already in a transaction."""
        is_ending = self._rollback is not None and not self._rollback.done()
        if self._is_owned or (self._opened_connection().in_transaction and not is_ending):
            raise IllegalStateError("this database is in another transaction: one connection has one at a time")

    async def begin(self) -> None:
        """Begin the transaction of a block. Raises IllegalStateError if one is open already, InvalidConfigurationError,
        sqlite3.Error.
        """
        self.check_free()

        def begin() -> None:
            connection = self._opened_connection()
            _check_connection(connection)
            connection.execute("begin immediate")
            connection.execute(statements.MARK_SQLITE)

        self._is_owned, self._is_checked, self.block = True, False, None
        try:
            if self._rollback is not None and not self._rollback.done():
                await asyncio.wait({self._rollback})
            await self._call(begin)
        except Exception:
            self._is_owned = False
            raise

    async def decide(self, transactional_id: str, generation: int, waiting: Waiting) -> bool:
        """Write into the row of this id, as the last statement, that the decision `waiting.number` is to commit.
        Returns False, and changes nothing, if the row's generation is not `generation`, or if the number of its last
        decision is not below `waiting.number`.

        Raises IllegalStateError or OutcomeDivergedError if the transaction has ended inside the block.
        """
        connection = self._opened_connection()
        number, (producer_id, epoch) = waiting.number, waiting.identity
        values = number, producer_id, epoch, transactional_id, generation, number

        def decide() -> bool:
            self._check_marked(connection)
            return connection.execute(statements.DECIDE, values).rowcount == 1

        return await self._call(decide)

    async def commit(self) -> None:
        """Commit the open transaction. Raises sqlite3.Error; it may be committed all the same."""
        connection = self._opened_connection()

        def commit() -> None:
            self._check_marked(connection)
            connection.execute("commit")

        await self._call(commit)
        self._is_owned, self.block = False, None

    def _check_marked(self, connection: sqlite3.Connection) -> None:
        """Raise IllegalStateError or OutcomeDivergedError if the transaction of the block has ended, even if another is
        open: then the savepoint that marks it is gone.
        """
        if not connection.in_transaction:
            raise self._ended_error()
        if not self._is_checked:
            try:
                connection.execute(statements.MARKED_SQLITE)
            except sqlite3.OperationalError as error:
                if NO_SAVEPOINT not in str(error):
                    raise
                raise self._ended_error() from None
            self._is_checked = True

    async def rollback(self) -> None:
        """Roll back the open transaction, if there is one. If that fails, the connection is replaced, and if that fails
        too, the database is closed. Goes on if its awaiter is cancelled.
        """
        self._is_owned, self.block = False, None
        connection = self._connection
        if connection is not None:
            self._rollback = asyncio.get_running_loop().create_task(self._roll_back(connection))
            await asyncio.shield(self._rollback)

    async def _roll_back(self, connection: sqlite3.Connection) -> None:
        """Roll the transaction back. If the connection cannot do that, close it and open another one, which has the
        same effect.
        """
        try:
            await self._call(partial(_roll_back, connection))
        except sqlite3.Error:
            with suppress(sqlite3.Error, InvalidConfigurationError):
                await self.close()
                await self.open()

    async def claim(self, transactional_id: str, again: bool = False) -> Row:
        """Raise the generation in the row of this id by one, and return the row. again: do not raise it, only return
        the row. Waits for other writers of the file. Raises DatabaseAway, also if that takes too long.
        """
        if again:
            return await self.read_row(transactional_id)
        return await self._alone(lambda own: _row(own.execute(statements.CLAIM, (transactional_id,)).fetchone()))

    async def close_number(self, waiting: Waiting) -> Row:
        """Write "not committed" for this number over another connection, unless it or a later one is decided already.
        Returns the row as it is then. Raises DatabaseAway.
        """
        values = waiting.transactional_id, waiting.number, *waiting.identity

        def close(own: sqlite3.Connection) -> Row:
            own.execute(statements.CLOSE, values)
            return _row(_read(own, waiting.transactional_id))

        return await self._alone(close)

    async def read_row(self, transactional_id: str) -> Row:
        """Return the row of this id; its number is NONE_YET if there is none. Raises DatabaseAway."""
        return await self._alone(lambda own: _row(_read(own, transactional_id) or (0, NONE_YET, 0)))

    async def terminate_session(self, session: int, transactional_id: str) -> None:
        """Do nothing: SQLite has no sessions, only programs that have the file open."""

    async def run_alone(self, wanted: Sequence[tuple[str, Sequence[Any]]]) -> list[list[tuple[Any, ...]]]:
        """Run these statements, each with its values, in one transaction over a connection of its own. Returns the rows
        of each.

        Raises DatabaseAway, and IllegalStateError if the database is not open.
        """
        self._opened_connection()

        def run(own: sqlite3.Connection) -> list[list[tuple[Any, ...]]]:
            return [own.execute(statement, bound(statement, tuple(values))).fetchall() for statement, values in wanted]

        return await self._alone(run)

    # ---- calls -----------------------------------------------------------------------------------------------

    def _opened_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise IllegalStateError("the database is not open", hint="async with sql.connect(…) as db")
        return self._connection

    async def _alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Call `work` in a transaction of its own over a connection of its own, and return its result.

        Raises DatabaseAway, also if the file was removed, or is another database than was opened.
        """

        def run() -> T:
            with closing(_connected(self.path)) as own:
                own.execute("begin immediate")
                if own.execute(statements.IDENTIFY).fetchone() != (self._id,):
                    raise DatabaseAway(f"{self.path}: it is another database than the one that was opened")
                found = work(own)
                own.execute("commit")
                return found

        try:
            return await call_in_thread(run, "fencepost-sqlite")
        except sqlite3.Error as error:
            raise DatabaseAway(f"{self.path}: {error}") from error

    async def _call(self, call: Callable[[], T]) -> T:
        """Make the call in a thread, after the one that runs, and return its result. If the awaiter is cancelled, the
        call goes on.
        """
        while self._running is not None and not self._running.done():
            await asyncio.wait({self._running})
        made = self._running = asyncio.ensure_future(call_in_thread(call, "fencepost-sqlite"))
        return await asyncio.shield(made)

    def _opened(self) -> sqlite3.Connection:
        """Return a new connection, or the user's. Makes the tables if wanted, and reads the database's id into `_id`.
        Raises InvalidConfigurationError, IllegalStateError, sqlite3.Error.
        """
        connection = self._given or _connected(self.path, "rwc" if self._create else "rw")
        try:
            if connection.in_transaction:
                raise IllegalStateError("the connection is in a transaction already: a block begins its own")
            if not isinstance(run(connection, "select 'text'").fetchone()[0], str):
                raise InvalidConfigurationError("the connection's text_factory is not str, so its text is not text")
            _check_connection(connection)
            if self._create:
                connection.executescript(f"begin immediate; {statements.schema('sqlite')} commit;")
                connection.execute("begin immediate")
                connection.execute(statements.NAME, (os.urandom(8).hex(),))
                connection.execute("commit")
            has_table = run(
                connection, "select count(*) from sqlite_master where name = 'fencepost_database'"
            ).fetchone() != (0,)
            found = run(connection, statements.IDENTIFY).fetchone() if has_table else None
            if found is None:
                raise InvalidConfigurationError(
                    f"{self.path} has {'nothing in the' if has_table else 'no'} table fencepost_database",
                    hint="is it the database of the producers? sql.connect(…, create=True) makes the tables",
                )
        except BaseException as error:
            if connection is not self._given:
                connection.close()
            elif isinstance(error, sqlite3.ProgrammingError):  # of another thread
                raise InvalidConfigurationError(
                    f"{self.path}: {error}", hint="sqlite3.connect(…, check_same_thread=False)"
                ) from None
            raise
        self._id = found[0]
        return connection


def _connected(path: str, mode: str = "rw") -> sqlite3.Connection:
    """Return a connection to the file. mode: rwc makes it if it is missing."""
    uri = f"{Path(path).as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    connection.execute("pragma synchronous = extra")
    return connection


def run(connection: sqlite3.Connection, statement: str, values: Any = ()) -> sqlite3.Cursor:
    """Run a statement whose rows are tuples, whatever the row_factory of the user's connection is."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(statement, values)


def _roll_back(connection: sqlite3.Connection) -> None:
    """Roll back what is open, also if autocommit=True (Python 3.12) turns connection.rollback() into nothing."""
    if connection.in_transaction:
        connection.execute("rollback")


def _check_connection(connection: sqlite3.Connection) -> None:
    """Raise InvalidConfigurationError if a power cut could take back what this connection has committed."""
    (mode,) = run(connection, "pragma journal_mode").fetchone()
    (level,) = run(connection, "pragma synchronous").fetchone()
    check_durable(mode, level)


def check_durable(mode: str, level: int) -> None:
    """Raise InvalidConfigurationError if a power cut could take back commits. mode: the setting journal_mode. level:
    the setting synchronous, as a number.
    """
    mode = mode.lower()
    least = _FULL if mode == "wal" else _EXTRA
    if mode in ("off", "memory"):
        raise InvalidConfigurationError(
            f"journal_mode={mode.upper()} loses what was committed when the machine stops",
            hint="pragma journal_mode = wal",
        )
    if level < least:
        raise InvalidConfigurationError(
            f"synchronous={_NAMES[level]} with journal_mode={mode.upper()} loses committed rows at a power cut, "
            "and their records would stay",
            hint=f"pragma synchronous = {_NAMES[least].lower()}",
        )


def _read(connection: sqlite3.Connection, transactional_id: str) -> Any:
    return connection.execute(statements.READ, (transactional_id,)).fetchone()


def _row(found: Sequence[int]) -> Row:
    generation, number, committed = found
    return Row(generation, number, bool(committed))


def bound(statement: str, values: tuple[Any, ...]) -> Any:
    """Return the values in the form in which sqlite3 binds them: a mapping by number for `$1`, else a sequence."""
    if _NUMBERED.search(statement):
        return {str(number): value for number, value in enumerate(values, 1)}
    return values

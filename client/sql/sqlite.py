"""SQLite as a database that takes part in commits, by connections of ours, or by one of the user's: of sqlite3,
SQLAlchemy or Django.

The rules: the begin of a block takes the lock of the file, so nobody else writes until the block ends. What is asked
and closed goes over another connection to the same file. What was committed must be on disk: in WAL mode
synchronous=FULL does that, with a rollback journal only EXTRA does, since it also syncs the folder from which the
journal is removed.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..errors import IllegalStateError, InvalidConfigurationError, KafkaError
from ..transactions.deciding import NONE_YET, Row, Waiting
from ..transactions.participant import DatabaseAway
from . import statements
from .blocks import Blocks
from .connections import OfUser, OneConnection
from .interfaces import Adapter
from .sqlite_adapter import SqliteAdapter
from .sqlite_statements import bound
from .threads import call_blocking, take_blocking

T = TypeVar("T")
LOCK_TIMEOUT_S = 5.0
"""How long a statement waits for another connection's transaction."""

_FULL, _EXTRA = 2, 3
_NAMES = {0: "OFF", 1: "NORMAL", _FULL: "FULL", _EXTRA: "EXTRA"}
_LOCK = "update fencepost_database set id = id"
_DECIDE, _IDENTIFY = statements.numbered(statements.DECIDE), statements.IDENTIFY


class Database(Blocks):
    """`async with sql.connect("sqlite:///orders.db") as db: await db.execute("insert into orders values (?)", 42)`.

    path: of the file. create: whether to make our tables if they are missing. given: of a connection of the user's to
    that file; None: connections of our own. Raises InvalidConfigurationError if the database is not a file.
    """

    dialect = "sqlite"

    def __init__(self, path: str, *, create: bool = True, given: Adapter | None = None) -> None:
        if not path or path.startswith(("file:", ":memory:")):
            raise InvalidConfigurationError(
                f"{path!r} does not name a file: what is committed has to outlive this process",
                hint="give the path of the database's file",
            )
        self.path = os.path.abspath(path)
        own = OneConnection(self._another)
        super().__init__(own if given is None else OfUser(given, own), self.path)
        self._create = create

    def __repr__(self) -> str:
        return f"<Database sqlite {self.path} {'open' if self._is_open else 'closed'}>"

    async def open(self) -> None:
        """Open the file, and read its settings and its id. Raises InvalidConfigurationError, sqlite3.Error."""
        if self._is_open:
            return
        found = await call_blocking(self._prepared)
        try:
            adapter = await self._connections.take()
            if not adapter.is_in_transaction:
                await _check_durable(adapter)
        except BaseException as error:
            await self._connections.close()
            if not isinstance(error, sqlite3.ProgrammingError):
                raise
            hint = "sqlite3.connect(…, check_same_thread=False)"  # it is another thread's
            raise InvalidConfigurationError(f"{self.path}: {error}", hint=hint) from None
        self._id, self._is_open = found, True

    async def _another(self) -> Adapter:
        """Return a new connection of ours to the file."""
        connection = await take_blocking(partial(_connected, self.path), sqlite3.Connection.close)
        return SqliteAdapter(connection, is_own=True)

    def _prepared(self) -> str:
        """Make the tables if that is wanted, and return the database's id. Raises InvalidConfigurationError,
        sqlite3.Error.
        """
        with closing(_connected(self.path, "rwc" if self._create else "rw")) as own:
            if self._create:
                own.executescript(f"begin immediate; {statements.schema('sqlite')} commit;")
                own.execute(statements.NAME, (os.urandom(8).hex(),))
            has_table = own.execute("select 1 from sqlite_master where name = 'fencepost_database'").fetchone()
            found = own.execute(_IDENTIFY).fetchone() if has_table else None
        if found is None:
            raise InvalidConfigurationError(
                f"{self.path} has {'nothing in the' if has_table else 'no'} table fencepost_database",
                hint="is it the database of the producers? sql.connect(…, create=True) makes the tables",
            )
        return str(found[0])

    # ---- blocks ----------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Begin the transaction of a block. Raises IllegalStateError if one is open already, InvalidConfigurationError,
        and the driver's error.
        """
        await super().begin()
        adapter = self._open_adapter()
        try:
            await _check_durable(adapter)
            if self._connections.is_shared:
                await self._lock(adapter)
        except Exception:
            await self.rollback()
            raise

    async def _lock(self, adapter: Adapter) -> None:
        """Take the lock of the file, since SQLAlchemy and Django may begin without it. Raises InvalidConfigurationError
        if this connection leads to another database than was opened.
        """
        if await adapter.execute(_LOCK) != 1 or await adapter.fetch(_IDENTIFY) != [(self._id,)]:
            raise InvalidConfigurationError(f"{self.name}: it is another database than the one that was opened")

    async def decide(self, transactional_id: str, generation: int, waiting: Waiting) -> bool:
        """Write into the row of this id, as the last statement, that the decision `waiting.number` is to commit.
        Returns False, and changes nothing, if the row's generation is not `generation`, or if the number of its last
        decision is not below `waiting.number`.

        Raises IllegalStateError or OutcomeDivergedError if the transaction has ended inside the block.
        """
        number, (producer_id, epoch) = waiting.number, waiting.identity
        values = number, producer_id, epoch, transactional_id, generation, number
        return await self.execute_last(_DECIDE, *values) == 1

    def _ended_error(self) -> KafkaError:
        """Return the error for a transaction that has ended inside its block. On a connection of ours only SQLite can
        have done that.
        """
        if self._connections.is_shared:
            return super()._ended_error()
        return IllegalStateError("SQLite has rolled the transaction back: an error inside the block was ignored")

    def _may_end_unseen(self, statement: str) -> bool:
        """Return False: sqlite3 runs one statement of a text only, and one that begins a transaction is refused. So
        after whatever has ended the transaction, no other one is open.
        """
        return False

    async def _mark(self, adapter: Adapter) -> None:
        """Mark the open transaction, by a savepoint around what the user does in it."""
        await adapter.execute(statements.MARK_SQLITE)

    async def _is_marked(self, adapter: Adapter) -> bool:
        """Return whether the open transaction is the one that was marked, and release the savepoint."""
        try:
            await adapter.execute(statements.MARKED_SQLITE)
        except Exception as error:
            if "no such savepoint" in str(error):
                return False
            raise
        return True

    # ---- over another connection -----------------------------------------------------------------------------

    async def claim(self, transactional_id: str, again: bool = False) -> Row:
        """Raise the generation in the row of this id by one, and return the row. again: do not raise it, only return
        the row. Waits for other writers of the file. Raises DatabaseAway, also if that takes too long.
        """
        if again:
            return await self.read_row(transactional_id)
        return await self._alone(lambda own: _row(own.execute(statements.CLAIM, (transactional_id,)).fetchone()))

    async def close_number(self, waiting: Waiting) -> Row:
        """Write "not committed" for this number, unless it or a later one is decided already. Returns the row as it is
        then. Raises DatabaseAway.
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
        self._check_open()

        def run(own: sqlite3.Connection) -> list[list[tuple[Any, ...]]]:
            return [own.execute(statement, bound(statement, values)).fetchall() for statement, values in wanted]

        return await self._alone(run)

    async def _alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Call `work` in a transaction of its own over a connection of its own, and return its result.

        Raises DatabaseAway, also if the file was removed, or is another database than was opened.
        """

        def run() -> T:
            with closing(_connected(self.path)) as own:
                own.execute("begin immediate")
                if own.execute(_IDENTIFY).fetchone() != (self._id,):
                    raise DatabaseAway(f"{self.path}: it is another database than the one that was opened")
                found = work(own)
                own.execute("commit")
                return found

        try:
            return await call_blocking(run)
        except sqlite3.Error as error:
            raise DatabaseAway(f"{self.path}: {error}") from error


def _connected(path: str, mode: str = "rw") -> sqlite3.Connection:
    """Return a connection to the file. mode: rwc makes it if it is missing."""
    uri = f"{Path(path).as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    connection.execute("pragma synchronous = extra")
    return connection


async def _check_durable(adapter: Adapter) -> None:
    """Raise InvalidConfigurationError if a power cut could take back what this connection has committed."""
    ((mode,),) = await adapter.fetch("pragma journal_mode")
    ((level,),) = await adapter.fetch("pragma synchronous")
    mode = mode.upper()
    if mode in ("OFF", "MEMORY"):
        raise InvalidConfigurationError(
            f"journal_mode={mode} loses what was committed when the machine stops", hint="pragma journal_mode = wal"
        )
    least = _FULL if mode == "WAL" else _EXTRA
    if level < least:
        raise InvalidConfigurationError(
            f"synchronous={_NAMES[level]} with journal_mode={mode} loses committed rows at a power cut, and their "
            "records would stay",
            hint=f"pragma synchronous = {_NAMES[least].lower()}",
        )


def _read(connection: sqlite3.Connection, transactional_id: str) -> Any:
    return connection.execute(statements.READ, (transactional_id,)).fetchone()


def _row(found: Sequence[int]) -> Row:
    generation, number, committed = found
    return Row(generation, number, bool(committed))

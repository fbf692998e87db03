"""SQLite as a database that takes part in commits, by a connection of SQLAlchemy or Django.

The rule: begin takes the lock of the file, so nobody else writes until the block ends. What is asked and closed goes
over a connection of ours to the same file.
"""

from collections.abc import Sequence
from typing import Any

from ..errors import IllegalStateError, InvalidConfigurationError
from ..transactions.deciding import Row, Waiting
from . import sqlite, statements
from .blocks import Blocks
from .connections import OfUser, OneConnection
from .interfaces import Adapter

_LOCK = "update fencepost_database set id = id"
_DECIDE = statements.numbered(statements.DECIDE)


class Database(Blocks):
    """A database that takes part over the user's own connection. adapter: of that connection. path: of the file.
    create: whether to make our tables if they are missing. Raises InvalidConfigurationError if the database is not a
    file.
    """

    dialect = "sqlite"

    def __init__(self, adapter: Adapter, path: str, *, create: bool) -> None:
        if not path or path.startswith(("file:", ":memory:")):
            raise InvalidConfigurationError(
                f"{path!r} does not name a file: what is committed has to outlive this process",
                hint="give the path of the database's file",
            )
        super().__init__(OfUser(adapter, OneConnection(self._no_other)), path)
        self._file = sqlite.Database(path, create=create)

    async def _no_other(self) -> Adapter:
        """Refuse a second connection: this class has the user's alone, and asks the database through `_file`."""
        raise IllegalStateError("a connection of the user's own cannot be opened again")

    def __repr__(self) -> str:
        return f"<Database sqlite {self._file.path} {'open' if self._id else 'closed'}>"

    async def open(self) -> None:
        """Open the file, and read its settings and its id. Raises InvalidConfigurationError, sqlite3.Error."""
        await self._file.open()
        self._id = self._file.database_id

    async def close(self) -> None:
        """Roll back an open transaction, give the user's connection back, and close our own."""
        await super().close()
        await self._file.close()

    async def begin(self) -> None:
        """Begin the transaction of a block. Raises IllegalStateError if one is open already, InvalidConfigurationError,
        and the driver's error.
        """
        await super().begin()
        adapter = self._open_adapter()
        try:
            ((mode,),) = await adapter.fetch("pragma journal_mode")
            ((level,),) = await adapter.fetch("pragma synchronous")
            sqlite.check_durable(mode, level)
            if await adapter.execute(_LOCK) != 1 or await adapter.fetch(statements.IDENTIFY) != [(self._id,)]:
                raise InvalidConfigurationError(f"{self.name}: it is another database than the one that was opened")
        except Exception:
            await self.rollback()
            raise

    async def decide(self, transactional_id: str, generation: int, waiting: Waiting) -> bool:
        """Write into the row of this id, as the last statement, that the decision `waiting.number` is to commit.
        Returns False, and changes nothing, if the row's generation is not `generation`, or if the number of its last
        decision is not below `waiting.number`.

        Raises OutcomeDivergedError if the user or SQLite has ended the transaction, else the driver's error.
        """
        number, (producer_id, epoch) = waiting.number, waiting.identity
        values = number, producer_id, epoch, transactional_id, generation, number
        return await self.execute_last(_DECIDE, *values) == 1

    async def _mark(self, adapter: Adapter) -> None:
        """Mark the open transaction, by a savepoint around what the user does in it."""
        await adapter.execute(statements.MARK_SQLITE)

    async def _is_marked(self, adapter: Adapter) -> bool:
        """Return whether the open transaction is the one that was marked, and release the savepoint."""
        try:
            await adapter.execute(statements.MARKED_SQLITE)
        except Exception as error:
            if sqlite.NO_SAVEPOINT in str(error):
                return False
            raise
        return True

    async def claim(self, transactional_id: str, again: bool = False) -> Row:
        """Raise the generation in the row of this id by one, and return the row. again: do not raise it, only return
        the row. Waits for other writers of the file. Raises DatabaseAway, also if that takes too long.
        """
        return await self._file.claim(transactional_id, again)

    async def close_number(self, waiting: Waiting) -> Row:
        """Write "not committed" for this number, unless it or a later one is decided already. Returns the row as it is
        then. Raises DatabaseAway.
        """
        return await self._file.close_number(waiting)

    async def read_row(self, transactional_id: str) -> Row:
        """Return the row of this id; its number is NONE_YET if there is none. Raises DatabaseAway."""
        return await self._file.read_row(transactional_id)

    async def terminate_session(self, session: int, transactional_id: str) -> None:
        """Do nothing: SQLite has no sessions, only programs that have the file open."""

    async def run_alone(self, wanted: Sequence[tuple[str, Sequence[Any]]]) -> list[list[tuple[Any, ...]]]:
        """Run these statements, each with its values, in one transaction over a connection of its own. Returns the rows
        of each.

        Raises DatabaseAway, and IllegalStateError if the database is not open.
        """
        return await self._file.run_alone(wanted)

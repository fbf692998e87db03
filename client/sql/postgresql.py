"""PostgreSQL as a database that takes part in commits, over any driver.

The rules: what is asked and closed goes over another connection than the block's, in a transaction of its own at
READ COMMITTED, and waits for a lock for LOCK_TIMEOUT_S only. Whatever fails over that connection is an answer that did
not come, except what asking again cannot change.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from ..errors import InvalidConfigurationError, KafkaError
from ..transactions.deciding import NONE_YET, Row, Waiting
from ..transactions.participant import DatabaseAway
from ..transactions.sqlstates import sqlstate_of
from . import statements
from .blocks import Blocks
from .interfaces import Adapter, Connections, RowHeld

log = logging.getLogger("fencepost.client")
T = TypeVar("T")
CONNECT_TIMEOUT_S = 10.0
LOCK_TIMEOUT_S = 5.0
"""How long CLAIM and CLOSE wait for the transaction of another session."""
_ASK_TIMEOUT_S = 15.0
_LOCK_NOT_AVAILABLE = "55P03"
_FOREVER = ("28", "3D", "3F", "42")
"""Classes of SQLSTATE that the next attempt gets too: login, no such database or schema, no such table, no rights."""
_NO_ROW = 0, NONE_YET, 0


class Database(Blocks):
    """`async with sql.connect("postgresql://…") as db: await db.execute("insert into orders values ($1)", 42)`.

    name: how errors call the database. create: whether to make our tables if they are missing.
    """

    dialect = "postgresql"

    def __init__(self, connections: Connections, name: str, *, create: bool = False) -> None:
        super().__init__(connections, name)
        self._create = create
        self._schema = ""  # in which our tables are, quoted and with a dot

    def __repr__(self) -> str:
        return f"<Database {self.name} {'open' if self._is_open else 'closed'}>"

    async def open(self) -> None:
        """Connect, and read the database's settings and its id. Raises InvalidConfigurationError, and the driver's
        error.
        """
        if self._is_open:
            return
        adapter = await self._connections.another()
        try:
            await adapter.begin()
            if self._create:
                await adapter.execute("select pg_advisory_xact_lock(7163382)")  # "if not exists" alone would race
                await adapter.execute(statements.schema(self.dialect))
            if await adapter.fetch("select to_regclass('fencepost_database')") == [(None,)]:
                self._refuse("has no table fencepost_database")
            for (schema,) in await adapter.fetch(statements.SCHEMA_POSTGRESQL):
                self._schema = f"{schema}."
            self._id = await self._checked_id(adapter)
            await adapter.commit()
            self._is_open = True
        except BaseException:
            adapter.drop()
            raise
        finally:
            await adapter.close()

    def _refuse(self, why: str) -> NoReturn:
        """Raise InvalidConfigurationError for a database that has not what we need. why: what it lacks."""
        raise InvalidConfigurationError(
            f"{self.name} {why}",
            hint="is it the database of the producers? `fencepost sql schema --dialect postgresql` prints the tables, "
            "sql.connect(…, create=True) makes them",
        )

    async def _checked_id(self, adapter: Adapter) -> str:
        """Return the id of the database. Raises InvalidConfigurationError if it is a replica or a copy, or may lose
        commits.
        """
        found = await adapter.fetch(statements.CHECK_POSTGRESQL)
        if not found:
            self._refuse("has nothing in the table fencepost_database")
        name, is_here, is_replica, synchronous, fsync = found[0]
        if is_replica:
            raise InvalidConfigurationError(
                f"{self.name} is a replica: it decides nothing", hint="connect to the primary"
            )
        if not is_here:
            raise InvalidConfigurationError(
                f"{self.name} is a copy: its identity {name} belongs to a database of another server or another name",
                hint="docs/how-to/database.md, Copies: what to do for a copy, and for a database that was moved",
            )
        _check_synchronous(synchronous)
        if fsync != "on":
            log.warning("%s has fsync=%s: after a power cut rows are missing whose records are there", self.name, fsync)
        return str(name)

    async def decide(self, transactional_id: str, generation: int, waiting: Waiting) -> bool:
        """Write into the row of this id, as the last statement, that the decision `waiting.number` is to commit.
        Returns False, and changes nothing, if the row's generation is not `generation`, or if the number of its last
        decision is not below `waiting.number`.

        Raises IllegalStateError if the user has caught an error of the database before, OutcomeDivergedError if the
        user has ended the transaction, InvalidConfigurationError for synchronous_commit=off, else the driver's error.
        """
        number, (producer_id, epoch) = waiting.number, waiting.identity
        values = number, producer_id, epoch, transactional_id, generation, number
        statement = self._in_schema(statements.DECIDE_POSTGRESQL)
        found = await self._run_last(lambda adapter: adapter.fetch(statement, values))
        for synchronous, mark in found:
            _check_synchronous(synchronous)
            if self._must_find_mark and mark != statements.MARK:
                raise self._ended_error()
            self._must_find_mark = False
        if self._must_find_mark:
            await self._check_end()
        self._is_checked = True
        return bool(found)

    async def commit(self) -> None:
        """Commit the open transaction. Raises the driver's error or TimeoutError; it may be committed all the same."""
        if self._connections.is_shared:  # the user may have run a statement after the decision, unseen
            self._is_checked = False
        await super().commit()

    async def _mark(self, adapter: Adapter) -> None:
        """Mark the open transaction, by a setting that PostgreSQL takes back when it ends."""
        await adapter.execute(statements.MARK_POSTGRESQL)

    async def _is_marked(self, adapter: Adapter) -> bool:
        """Return whether the open transaction is the one that was marked."""
        return await adapter.fetch(statements.MARKED_POSTGRESQL) == [(statements.MARK,)]

    async def execute_last(self, statement: str, *values: Any) -> int:
        """Run a statement on our tables after the user's statements, and return how many rows it changed. The schema is
        written into it, because the user may have changed search_path. Raises like Blocks.execute_last.
        """
        return await super().execute_last(self._in_schema(statement), *values)

    def _in_schema(self, statement: str) -> str:
        """Return an update of one of our tables with the schema in which the table was when the database was opened."""
        return statement.replace("update fencepost_", f"update {self._schema}fencepost_", 1)

    # ---- over another connection -----------------------------------------------------------------------------

    async def claim(self, transactional_id: str, again: bool = False) -> Row:
        """Raise the generation in the row of this id by one, and return the row. again: do not raise it; lock the row
        and return it. Raises DatabaseAway, InvalidConfigurationError, and RowHeld if another open transaction has the
        row's lock for too long.
        """
        statement = statements.READ_LOCKED_POSTGRESQL if again else statements.CLAIM_POSTGRESQL

        async def claim(adapter: Adapter) -> Row:
            found = await adapter.fetch(statement, [transactional_id])
            return _row(found[0] if found else _NO_ROW)

        return await self._alone(claim, transactional_id)

    async def close_number(self, waiting: Waiting) -> Row:
        """Write "not committed" for this number, unless it or a later one is decided already. Returns the row as it is
        then.

        Raises DatabaseAway, InvalidConfigurationError, and RowHeld if another transaction has changed the row and is
        still open.
        """
        values = waiting.transactional_id, waiting.number, *waiting.identity

        async def close(adapter: Adapter) -> Row:
            await adapter.execute(statements.CLOSE_POSTGRESQL, values)
            return _row((await adapter.fetch(statements.READ_POSTGRESQL, values[:1]))[0])

        return await self._alone(close, waiting.transactional_id)

    async def read_row(self, transactional_id: str) -> Row:
        """Return the row of this id; its number is NONE_YET if there is none. Raises DatabaseAway,
        InvalidConfigurationError.
        """

        async def read(adapter: Adapter) -> Row:
            found = await adapter.fetch(statements.READ_POSTGRESQL, [transactional_id])
            return _row(found[0] if found else _NO_ROW)

        return await self._alone(read, transactional_id)

    async def terminate_session(self, session: int, transactional_id: str) -> None:
        """End this session of the server if it still holds the row of the id. Raises DatabaseAway,
        InvalidConfigurationError.
        """

        async def terminate(adapter: Adapter) -> None:
            if await _holder(adapter, transactional_id) == session:
                await adapter.fetch("select pg_terminate_backend($1, 5000)", [session])

        await self._alone(terminate, transactional_id)

    async def run_alone(self, wanted: Sequence[tuple[str, Sequence[Any]]]) -> list[list[tuple[Any, ...]]]:
        """Run these statements, each with its values, in one transaction over another connection. Returns the rows of
        each.

        Raises DatabaseAway, InvalidConfigurationError, and IllegalStateError if the database is not open.
        """
        self._check_open()

        async def run(adapter: Adapter) -> list[list[tuple[Any, ...]]]:
            return [await _rows_of(adapter, *each) for each in wanted]

        return await self._alone(run)

    async def _alone(self, work: Callable[[Adapter], Awaitable[T]], transactional_id: str | None = None) -> T:
        """Call `work` in a transaction of its own over another connection, and return its result.

        Raises DatabaseAway, also if that connection leads to another database than was opened. transactional_id: if
        `work` waits too long for the row of this id, RowHeld is raised.
        """
        adapter: Adapter | None = None
        try:
            async with asyncio.timeout(_ASK_TIMEOUT_S + LOCK_TIMEOUT_S):
                adapter = await self._connections.another()
                await adapter.begin()
                await adapter.execute("set transaction isolation level read committed read write")
                await adapter.execute("set local statement_timeout = 0")  # of the role: it may end before the lock's
                await adapter.execute(f"set local lock_timeout = {max(1, int(LOCK_TIMEOUT_S * 1000))}")
                if await self._checked_id(adapter) != self._id:
                    raise DatabaseAway(f"{self.name}: it is another database than the one that was opened")
                try:
                    found = await work(adapter)
                except Exception as error:
                    if sqlstate_of(error) != _LOCK_NOT_AVAILABLE:
                        raise
                    if transactional_id is None:
                        raise DatabaseAway(
                            f"{self.name}: the open transaction of another session holds a row"
                        ) from error
                    await adapter.rollback()
                    raise RowHeld(await _holder(adapter, transactional_id)) from error
                await adapter.commit()
                return found
        except (DatabaseAway, KafkaError):
            raise
        except Exception as error:
            text = f"{self.name}: {str(error) or type(error).__name__}"
            if (sqlstate_of(error) or "")[:2] in _FOREVER:
                raise InvalidConfigurationError(text) from error
            raise DatabaseAway(text) from error
        finally:
            if adapter is not None:
                await _end(adapter)


async def _rows_of(adapter: Adapter, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Run a statement, and return its rows. Only a select is asked for rows, because psycopg raises an error for
    others.
    """
    if statement.startswith("select"):
        return await adapter.fetch(statement, values)
    await adapter.execute(statement, values)
    return []


async def _end(adapter: Adapter) -> None:
    """Close a connection by which the database was asked. If it is still in a transaction it is cut, so the server is
    not waited for.
    """
    if adapter.is_in_transaction:
        adapter.drop()
    with suppress(Exception):
        await adapter.close()


async def _holder(adapter: Adapter, transactional_id: str) -> int:
    """Return the number of the session whose open transaction has changed the row of this id; 0 if there is none."""
    found = await adapter.fetch(statements.HOLDER_POSTGRESQL, [transactional_id])
    return int(found[0][0]) if found else 0


def _check_synchronous(synchronous: str) -> None:
    """Raise InvalidConfigurationError if COMMIT returns before the transaction is on disk. synchronous: the setting
    synchronous_commit.
    """
    if synchronous == "off":
        raise InvalidConfigurationError(
            "synchronous_commit=off loses committed rows when the server stops, and their records would stay",
            hint="set synchronous_commit = on, for the user or the database",
        )


def _row(found: Sequence[Any]) -> Row:
    generation, number, committed = found
    return Row(generation, number, bool(committed))

"""PostgreSQL as a database that takes part in commits, over any driver.

The rules: statements of the user go over one connection, one at a time, and belong to the transaction of the block. The
decision is its last statement: it fails where an error inside was swallowed, which COMMIT alone would not say. What is
asked and closed goes over another connection, in a transaction of its own at READ COMMITTED, and waits for a lock
for LOCK_TIMEOUT_S only. Whatever fails over that connection is an answer that did not come, except what asking again
cannot change.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from ..errors import IllegalStateError, InvalidConfigurationError, KafkaError, OutcomeDivergedError
from ..transactions.deciding import NONE_YET, Row, Waiting
from ..transactions.sql_commits import Block, DatabaseAway
from ..transactions.sqlstates import sqlstate_of
from . import statements
from .interfaces import Adapter, Connections, RowHeld

log = logging.getLogger("fencepost.client")
T = TypeVar("T")
CONNECT_TIMEOUT_S = 10.0
LOCK_TIMEOUT_S = 5.0
"""How long CLAIM and CLOSE wait for the transaction of another session."""
COMMIT_TIMEOUT_S = 30.0
"""How long COMMIT may take; after that the database is asked over another connection."""
_ASK_TIMEOUT_S = 15.0
_ROLLBACK_TIMEOUT_S = 5.0
_SWALLOWED, _LOCK_NOT_AVAILABLE = "25P02", "55P03"
_FOREVER = ("28", "3D", "3F", "42")
"""Classes of SQLSTATE that the next attempt gets too: login, no such database or schema, no such table, no rights."""


class Database:
    """`async with sql.connect("postgresql://…") as db: await db.execute("insert into orders values ($1)", 42)`.

    name: how errors call it. create: whether the tables of ours are made if they are missing.
    """

    dialect = "postgresql"

    def __init__(self, connections: Connections, name: str, *, create: bool = False) -> None:
        self._name = name
        self._connections = connections
        self._create = create
        self._id = ""
        self._is_owned = False  # by the block of a producer's transaction, or of an inbox
        self.block: Block | None = None
        self._is_decided = False
        self._adapter: Adapter | None = None  # of the block
        self._turn = asyncio.Lock()
        self._rollback: asyncio.Task[None] | None = None  # the last one

    def __repr__(self) -> str:
        return f"<Database {self.name} {'open' if self._id else 'closed'}>"

    async def __aenter__(self) -> "Database":
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, and look at settings and identity. Raises InvalidConfigurationError, and the driver's error."""
        if self._id:
            return
        adapter = await self._connections.another()
        try:
            await adapter.begin()
            if self._create:
                await adapter.execute("select pg_advisory_xact_lock(7163382)")  # "if not exists" alone would race
                await adapter.execute(statements.schema(self.dialect))
            if await adapter.fetch("select to_regclass('fencepost_database')") == [(None,)]:
                self._refuse("has no table fencepost_database")
            self._id = await self._check(adapter)
            await adapter.commit()
        except BaseException:
            adapter.drop()
            raise
        finally:
            await adapter.close()

    def _refuse(self, why: str) -> NoReturn:
        """Raise InvalidConfigurationError: this database cannot be used as it is. why: what it lacks."""
        raise InvalidConfigurationError(
            f"{self.name} {why}",
            hint="is it the database of the producers? `fencepost sql schema --dialect postgresql` prints the tables, "
            "sql.connect(…, create=True) makes them",
        )

    async def _check(self, adapter: Adapter) -> str:
        """Return the identity of the database. Raises InvalidConfigurationError if it cannot take part."""
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

    async def close(self) -> None:
        """Roll back an open transaction, and give the connection back."""
        await self.rollback()
        self._id = ""
        await self._connections.close()

    # ---- for the user ----------------------------------------------------------------------------------------

    async def execute(self, statement: str, *values: Any) -> int:
        """Run a statement with values for its `$1`, `$2` …, and return how many rows it changed.

        Within a producer's transaction it belongs to that; else it is committed at once. Raises the driver's error.
        """
        return await self._run(statement, lambda adapter: adapter.execute(statement, values))

    async def fetch(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement like `execute`, and return its rows."""
        return await self._run(statement, lambda adapter: adapter.fetch(statement, values))

    async def _run(self, statement: str, work: Callable[[Adapter], Awaitable[T]]) -> T:
        """Run `work` in the open transaction; without one, on a connection of its own. statement: checked before.
        Raises IllegalStateError.
        """
        statements.check_allowed(statement)
        self._check_open()
        async with self._turn:
            if self._is_owned:
                return await work(self._open_adapter())
            adapter = await self._connections.take()
            try:
                return await work(adapter)
            finally:
                await self._connections.give_back(adapter)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None, None]:
        """`async with db.transaction():` within a producer's transaction: a savepoint, undone by an exception."""
        if not self._is_owned:
            raise IllegalStateError("a savepoint needs a transaction", hint="async with producer.transaction(db=db)")
        async with self._open_adapter().savepoint():
            yield

    # ---- for the producer ------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """How messages call it: the URL without password."""
        return self._name

    @property
    def database_id(self) -> str:
        """What identifies the database, wherever it is served."""
        return self._id

    def check_free(self) -> None:
        """Raise IllegalStateError if it is not open, or in a transaction."""
        self._check_open()
        if self._is_owned:
            raise IllegalStateError("this database is in another transaction: one connection has one at a time")

    def _check_open(self) -> None:
        if not self._id:
            raise IllegalStateError("the database is not open", hint="async with sql.connect(…) as db")

    def _open_adapter(self) -> Adapter:
        """Return the connection of the block. Raises OutcomeDivergedError if its transaction has ended."""
        adapter = self._adapter
        if adapter is None:
            raise IllegalStateError("the transaction of the block has not begun, or has ended")
        if not adapter.is_closed and not adapter.is_in_transaction:
            raise OutcomeDivergedError(
                f"{self.name}: the transaction was committed or rolled back inside producer.transaction(db=…), which "
                "ends it by itself: its rows may be there, and its records are aborted",
                hint="leave out the commit; the driver's own blocks inside are savepoints",
            )
        return adapter

    async def begin(self) -> None:
        """Begin the transaction of a block. Raises IllegalStateError in another one, and the driver's error."""
        self.check_free()
        self._is_owned, self._is_decided, self.block = True, False, None
        try:
            if self._rollback is not None and not self._rollback.done():
                await asyncio.wait({self._rollback})
            async with self._turn:
                adapter = await self._connections.take()
                if adapter.is_in_transaction:
                    await self._connections.give_back(adapter)
                    raise IllegalStateError(
                        "the connection is in a transaction already: producer.transaction(db=…) begins its own",
                        hint="leave out the driver's own block around it, or turn autocommit on",
                    )
                self._adapter = adapter
                await adapter.begin()
        except Exception:
            await self.rollback()
            raise

    async def decide(self, transactional_id: str, generation: int, waiting: Waiting) -> bool:
        """Write the decision as the last statement of the open transaction. False: the row's condition is not met.

        Raises IllegalStateError if an error inside was swallowed, OutcomeDivergedError if the user has ended the
        transaction, InvalidConfigurationError for synchronous_commit=off, else the driver's error.
        """
        number, (producer_id, epoch) = waiting.number, waiting.identity
        values = number, producer_id, epoch, transactional_id, generation, number
        found = await self._last(lambda adapter: adapter.fetch(statements.DECIDE_POSTGRESQL, values))
        for (synchronous,) in found:
            _check_synchronous(synchronous)
        self._is_decided = True
        return bool(found)

    async def execute_last(self, statement: str, *values: Any) -> int:
        """Run a statement behind the user's in the open transaction, and return how many rows it changed. Raises
        IllegalStateError if an error inside was swallowed, else like `execute`.
        """
        count = await self._last(lambda adapter: adapter.execute(statement, values))
        self._is_decided = True
        return count

    async def _last(self, work: Callable[[Adapter], Awaitable[T]]) -> T:
        """Run the last statement of the block."""
        async with self._turn:
            try:
                return await work(self._open_adapter())
            except Exception as error:
                if sqlstate_of(error) == _SWALLOWED:
                    raise IllegalStateError(
                        "an error of the database inside the block was swallowed: nothing of it can be committed",
                        hint="let it out of the block, or put what may fail into async with db.transaction()",
                    ) from error
                raise

    async def commit(self) -> None:
        """Commit the open transaction. Raises the driver's error or TimeoutError, whether or not it was committed."""
        if not self._is_decided:
            await self._last(lambda adapter: adapter.fetch("select 1"))
        async with self._turn:
            adapter = self._open_adapter()
            async with asyncio.timeout(COMMIT_TIMEOUT_S):
                await adapter.commit()
            self._adapter, self._is_owned, self.block = None, False, None
        with suppress(Exception):  # it is committed
            await self._connections.give_back(adapter)

    async def rollback(self) -> None:
        """Roll back the open transaction, if there is one, or cut the connection. Goes on if cancelled."""
        adapter, self._adapter, self._is_owned, self.block = self._adapter, None, False, None
        if adapter is not None:
            self._rollback = asyncio.get_running_loop().create_task(self._roll_back(adapter))
            await asyncio.shield(self._rollback)

    async def _roll_back(self, adapter: Adapter) -> None:
        """Roll back, or drop the connection if that fails or takes too long. The adapter is given back in any case."""
        try:
            async with asyncio.timeout(_ROLLBACK_TIMEOUT_S):
                await adapter.rollback()
        except BaseException as error:
            adapter.drop()
            if not isinstance(error, Exception):
                raise
        finally:
            with suppress(Exception):
                await self._connections.give_back(adapter)

    # ---- over another connection -----------------------------------------------------------------------------

    async def claim(self, transactional_id: str) -> Row:
        """Take the next generation of the id, and return its row. Raises DatabaseAway, InvalidConfigurationError."""

        async def claim(adapter: Adapter) -> Row:
            return _row((await adapter.fetch(statements.CLAIM_POSTGRESQL, [transactional_id]))[0])

        return await self._alone(claim, transactional_id)

    async def close_number(self, waiting: Waiting) -> Row:
        """Write "not committed" for this number unless it or a later one is decided. Returns the row as it is then.
        Raises DatabaseAway, InvalidConfigurationError.
        """
        values = waiting.transactional_id, waiting.number, *waiting.identity

        async def close(adapter: Adapter) -> Row:
            await adapter.execute(statements.CLOSE_POSTGRESQL, values)
            return _row((await adapter.fetch(statements.READ_POSTGRESQL, values[:1]))[0])

        return await self._alone(close, waiting.transactional_id)

    async def read_row(self, transactional_id: str) -> Row:
        """Return the row of this id; number NONE_YET if there is none. Raises DatabaseAway."""

        async def read(adapter: Adapter) -> Row:
            found = await adapter.fetch(statements.READ_POSTGRESQL, [transactional_id])
            return _row(found[0] if found else (0, NONE_YET, 0))

        return await self._alone(read, transactional_id)

    async def terminate_session(self, session: int, transactional_id: str) -> None:
        """End this session if it is still the one that holds the row of the id. Raises DatabaseAway."""

        async def terminate(adapter: Adapter) -> None:
            if await _holder(adapter, transactional_id) == session:
                await adapter.fetch("select pg_terminate_backend($1, 5000)", [session])

        await self._alone(terminate, transactional_id)

    async def run_alone(self, wanted: Sequence[tuple[str, Sequence[Any]]]) -> list[list[tuple[Any, ...]]]:
        """Run these statements in one transaction, over another connection. Returns the rows of each.

        Raises DatabaseAway, InvalidConfigurationError, and IllegalStateError if it is not open.
        """
        self._check_open()

        async def run(adapter: Adapter) -> list[list[tuple[Any, ...]]]:
            return [await _rows_of(adapter, *each) for each in wanted]

        return await self._alone(run)

    async def _alone(self, work: Callable[[Adapter], Awaitable[T]], transactional_id: str | None = None) -> T:
        """Do this in a transaction of its own, over another connection. Raises DatabaseAway, also if it is another
        database now: that knows nothing of what was decided here. transactional_id: whose row it may wait for.
        """
        adapter: Adapter | None = None
        try:
            async with asyncio.timeout(_ASK_TIMEOUT_S + LOCK_TIMEOUT_S):
                adapter = await self._connections.another()
                await adapter.begin()
                await adapter.execute("set transaction isolation level read committed read write")
                await adapter.execute(f"set local lock_timeout = {max(1, int(LOCK_TIMEOUT_S * 1000))}")
                if await self._check(adapter) != self._id:
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
    """Run a statement, and return its rows; none if it is no select, as psycopg would raise an error for these."""
    if statement.startswith("select"):
        return await adapter.fetch(statement, values)
    await adapter.execute(statement, values)
    return []


async def _end(adapter: Adapter) -> None:
    """Close a connection for asking; if it is still in a transaction, without waiting for the server."""
    if adapter.is_in_transaction:
        adapter.drop()
    with suppress(Exception):
        await adapter.close()


async def _holder(adapter: Adapter, transactional_id: str) -> int:
    """Return the number of the session whose open transaction has changed the row of this id; 0 if none is found."""
    found = await adapter.fetch(statements.HOLDER_POSTGRESQL, [transactional_id])
    return int(found[0][0]) if found else 0


def _check_synchronous(synchronous: str) -> None:
    """Raise InvalidConfigurationError if COMMIT would return before it is on disk."""
    if synchronous == "off":
        raise InvalidConfigurationError(
            "synchronous_commit=off loses committed rows when the server stops, and their records would stay",
            hint="set synchronous_commit = on, for the user or the database",
        )


def _row(found: Sequence[Any]) -> Row:
    generation, number, committed = found
    return Row(generation, number, bool(committed))

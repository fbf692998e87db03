"""The blocks of a database whose connections are those of an Adapter, which may be the user's own.

The rules: statements of the user go over one connection, one at a time, and belong to the transaction of the block. The
decision is its last statement. It fails if the user has caught an error of the database before it, after which COMMIT
would roll back without an error. If another task runs a statement after it, the database is asked again. The decision
also fails in another transaction than the block has begun, as after a string of statements with `commit; begin` in it:
a mark that only lives as long as the transaction tells them apart. On a connection that only we use, the mark is set
before the first string that is not a single statement on rows, as most are. That saves a round trip or two.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from ..errors import IllegalStateError, KafkaError, OutcomeDivergedError
from ..transactions.cancellation import outlast
from ..transactions.participant import Block
from ..transactions.sqlstates import sqlstate_of
from . import statements
from .interfaces import Adapter, Connections

T = TypeVar("T")
COMMIT_TIMEOUT_S = 30.0
"""How long COMMIT may take; after that the database is asked over another connection."""
ROLLBACK_TIMEOUT_S = 5.0
_SWALLOWED = "25P02"


class Blocks(ABC):
    """What a database needs for the blocks of producers and inboxes. Subclasses add opening, the decision, and what is
    asked over other connections. connections: gives the connection of a block. name: how errors call the database.
    """

    def __init__(self, connections: Connections, name: str) -> None:
        self._name = name
        self._connections = connections
        self._id = ""  # once it was open; who asks later what it has committed needs that, too
        self._is_open = False
        self._is_owned = False  # by the block of a producer's transaction, or of an inbox
        self.block: Block | None = None
        self._must_find_mark = False  # whether the transaction was marked, and has to have the mark at its end
        self._is_checked = False  # whether a statement of ours came after the user's: none of those has failed then
        self._adapter: Adapter | None = None  # of the block
        self._turn = asyncio.Lock()
        self._rollback: asyncio.Task[None] | None = None  # the last one

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def open(self) -> None:
        """Connect, and read the database's settings and its id. Raises InvalidConfigurationError, and the driver's
        error.
        """

    async def close(self) -> None:
        """Roll back an open transaction, and give the connection back."""
        await self.rollback()
        self._is_open = False
        await self._connections.close()

    # ---- for the user ----------------------------------------------------------------------------------------

    async def execute(self, statement: str, *values: Any) -> int:
        """Run a statement with values for its `$1`, `$2` …, and return how many rows it changed.

        Within a producer's transaction the statement belongs to that; else it is committed at once. Raises the driver's
        error.
        """
        return await self._run(statement, lambda adapter: adapter.execute(statement, values))

    async def fetch(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement like `execute`, and return its rows."""
        return await self._run(statement, lambda adapter: adapter.fetch(statement, values))

    async def _run(self, statement: str, work: Callable[[Adapter], Awaitable[T]]) -> T:
        """Call `work` with the connection of the block, or outside of a block with one that is given back afterwards.
        Raises IllegalStateError if the statement would begin or end a transaction.
        """
        statements.check_allowed(statement)
        self._check_open()
        async with self._turn:
            if self._is_owned:
                adapter = self._open_adapter()
                self._is_checked = False
                if not self._must_find_mark and self._may_end_unseen(statement):
                    await self._set_mark(adapter)
                return await work(adapter)
            await self._rolled_back()
            adapter = await self._connections.take()
            try:
                return await work(adapter)
            finally:
                await self._connections.give_back(adapter)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None, None]:
        """`async with db.transaction():` within a producer's transaction: a savepoint. An exception
        rolls back to it.
        """
        if not self._is_owned:
            raise IllegalStateError("a savepoint needs a transaction", hint="async with producer.transaction(db=db)")
        was_marked = self._must_find_mark
        try:
            async with self._open_adapter().savepoint():
                yield
        except BaseException:
            self._must_find_mark = was_marked  # a mark that was set in the savepoint is undone with it
            raise

    # ---- for the producer ------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Return how messages call the database: a URL without password, or the path of a file."""
        return self._name

    @property
    def database_id(self) -> str:
        """Return the id of the database. It is stored in the database, so it stays if that moves to another server."""
        return self._id

    def check_free(self) -> None:
        """Raise IllegalStateError if the database is not open, or already in a transaction."""
        self._check_open()
        if self._is_owned:
            raise IllegalStateError("this database is in another transaction: one connection has one at a time")

    def _check_open(self) -> None:
        if not self._is_open:
            raise IllegalStateError("the database is not open", hint="async with sql.connect(…) as db")

    def _open_adapter(self) -> Adapter:
        """Return the connection of the block. Raises IllegalStateError outside of a block, OutcomeDivergedError if the
        user has ended its transaction.
        """
        adapter = self._adapter
        if adapter is None:
            raise IllegalStateError("the transaction of the block has not begun, or has ended")
        if not adapter.is_in_transaction and not adapter.is_closed:
            raise self._ended_error()
        return adapter

    def _ended_error(self) -> KafkaError:
        """Return the error for a transaction of the block that the user has ended. If one is open, only the mark of the
        block is missing.
        """
        is_open = self._adapter is not None and self._adapter.is_in_transaction
        return OutcomeDivergedError(
            f"{self.name}: the transaction {'(its mark is gone) seems to have been' if is_open else 'was'} "
            "committed or rolled back inside the block, which ends it by itself: its rows may be there, and its "
            "records are aborted",
            hint="leave out the commit; the driver's own blocks inside are savepoints",
        )

    def _may_end_unseen(self, statement: str) -> bool:
        """Return whether this text may end the transaction and begin another one, which only a missing mark shows."""
        return not statements.cannot_end(statement)

    @abstractmethod
    async def _mark(self, adapter: Adapter) -> None:
        """Mark the open transaction, so that _is_marked() finds the mark until it ends. Raises the driver's error."""

    @abstractmethod
    async def _is_marked(self, adapter: Adapter) -> bool:
        """Return whether the open transaction is the one that was marked. Called once, before the last statement.
        Raises the driver's error.
        """

    async def begin(self) -> None:
        """Begin the transaction of a block. Raises IllegalStateError if one is open already, and the driver's error."""
        self.check_free()
        self._is_owned, self._must_find_mark, self._is_checked, self.block = True, False, False, None
        try:
            await self._rolled_back()
            async with self._turn:
                adapter = await self._connections.take()
                if adapter.is_in_transaction:
                    await self._connections.give_back(adapter)
                    raise IllegalStateError(
                        "the connection is in a transaction already: producer.transaction(db=…) begins its own",
                        hint="end it before; no other block is around it, such as Django's atomic() or ATOMIC_REQUESTS",
                    )
                self._adapter = adapter
                await self._begin_on(adapter)
        except Exception:
            await self.rollback()
            raise

    async def _begin_on(self, adapter: Adapter) -> None:
        """Begin a transaction, and mark it if the user has the connection, too. If the caller is cancelled, the answer
        is waited for, at most ROLLBACK_TIMEOUT_S: drivers do not know whether a BEGIN that was cut off has begun one.
        """

        async def begin() -> None:
            await adapter.begin()
            if self._connections.is_shared:
                await self._set_mark(adapter)

        beginning = asyncio.get_running_loop().create_task(begin())
        try:
            await asyncio.shield(beginning)
        except asyncio.CancelledError:
            await outlast(beginning, ROLLBACK_TIMEOUT_S)
            if not beginning.done():
                adapter.drop()
                beginning.cancel()
            elif not beginning.cancelled():
                beginning.exception()  # nobody else asks for it
            raise

    async def _set_mark(self, adapter: Adapter) -> None:
        """Mark the open transaction. Raises the driver's error."""
        await self._mark(adapter)
        self._must_find_mark = True

    async def _rolled_back(self) -> None:
        """Wait until the last rollback has ended, which goes on when its caller is cancelled."""
        if self._rollback is not None and not self._rollback.done():
            await asyncio.wait({self._rollback})

    async def execute_last(self, statement: str, *values: Any) -> int:
        """Run a statement after those of the user in the open transaction, and return how many rows it changed. Raises
        IllegalStateError if the user has caught an error of the database before, OutcomeDivergedError if the user has
        ended the transaction, else like `execute`.
        """
        if self._must_find_mark:
            await self._check_end()
        changed = await self._run_last(lambda adapter: adapter.execute(statement, values))
        self._is_checked = True
        return changed

    async def _check_end(self) -> None:
        """Ask the database once a block, unless another statement of ours has done so, whether COMMIT would commit what
        the block has done.

        Raises OutcomeDivergedError if the open transaction was marked and has no mark any more, so that it is not the
        one that the block has begun, and IllegalStateError if a statement of the user has failed.
        """
        if self._must_find_mark or not self._is_checked:
            if not await self._run_last(self._is_marked) and self._must_find_mark:
                raise self._ended_error()
            self._must_find_mark, self._is_checked = False, True

    async def _run_last(self, work: Callable[[Adapter], Awaitable[T]]) -> T:
        """Call `work` with the connection of the block, after the statements of the user. Raises IllegalStateError if
        one of those has failed.
        """
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
        """Commit the open transaction. Raises the driver's error or TimeoutError; it may be committed all the same."""
        adapter = None
        while adapter is None:
            await self._check_end()
            async with self._turn:
                if self._is_checked:  # else another task has run a statement meanwhile
                    adapter = self._open_adapter()
                    async with asyncio.timeout(COMMIT_TIMEOUT_S):
                        await adapter.commit()
                    self._adapter, self._is_owned, self.block = None, False, None
        with suppress(Exception):  # it is committed
            await self._connections.give_back(adapter)

    async def rollback(self) -> None:
        """Roll back the open transaction, if there is one. If that fails, the connection is cut, which has the same
        effect. If the awaiter is cancelled, the rollback goes on.
        """
        adapter, self._adapter, self._is_owned, self.block = self._adapter, None, False, None
        if adapter is not None:
            self._rollback = asyncio.get_running_loop().create_task(self._roll_back(adapter))
            await asyncio.shield(self._rollback)

    async def _roll_back(self, adapter: Adapter) -> None:
        """Roll back, and give the connection back. It is cut before if the rollback fails or takes too long."""
        try:
            async with asyncio.timeout(ROLLBACK_TIMEOUT_S):
                await adapter.rollback()
        except BaseException as error:
            adapter.drop()
            if not isinstance(error, Exception):
                raise
        finally:
            with suppress(Exception):
                await self._connections.give_back(adapter)

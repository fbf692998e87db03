"""`sql.outbox(…)`: a relay that goes on until it is cancelled, or until a person is needed.

The rule: after a failure that may pass, all clients are closed and everything begins again, as after a crash. Rows that
cannot be sent, a fenced relay and contradictions end it: nothing is skipped.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol

from ....protocol.errors import ErrorCode
from ...admin.admin import Admin
from ...errors import (
    AbortableTransactionError,
    CommitOutcomeUnknownError,
    InvalidConfigurationError,
    KafkaError,
    OutboxRowError,
    ProducerFencedError,
    RetriableError,
)
from ...net.cluster import Cluster
from ...net.environment import SYSTEM, Environment
from ...producer.producer import Producer
from ...transactions.decisions import Decisions
from ...transactions.participant import DatabaseAway
from ...transactions.sqlstates import sqlstate_of
from ..interfaces import Database
from .relaying import Way
from .rows import columns_of
from .table import OutboxTable
from .ways import ByHold, ByNames, ByOffsets, Clients, Moving

log = logging.getLogger("fencepost.client")
AT_ONCE = 500
SHORTEST_MS, LONGEST_MS = 50.0, 1000.0
"""Between two looks at an empty table: it doubles from one to the other."""
ENDING_S = 5.0
"""How long a commit may go on after `run` was cancelled; then it is aborted."""
PRUNE_EVERY_MS = 60_000.0
_CLOSE_MS = 5_000.0
_PERMANENT = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.UNSUPPORTED_VERSION,
}
_FOREVER = ("0A", "22", "23", "28", "3D", "3F", "42", "55000")
"""How a SQLSTATE begins that the next attempt gets too: not possible, values, constraints, rights, names, syntax, views
from which nothing can be deleted.
"""
_DRIVERS = ("sqlite3", "asyncpg", "psycopg", "psycopg_pool", "sqlalchemy", "django")


class _Clients:
    """Makes clients with the keywords that a user gave."""

    def __init__(self, servers: Any, environment: Environment, keywords: Mapping[str, Any]) -> None:
        self._servers = servers
        self._environment = environment
        self._keywords = keywords

    def producer(self, **more: Any) -> Producer:
        """Return a producer; more: further settings."""
        return Producer(self._servers, environment=self._environment, **{**self._keywords, **more})

    def admin(self) -> Admin:
        """Return an admin client with the producer's connection settings."""
        from dataclasses import fields

        from ...settings import AdminSettings, ConnectionSettings

        given = self.producer().settings
        shared = {each.name: getattr(given, each.name) for each in fields(ConnectionSettings)}
        return Admin.of(AdminSettings(**shared), environment=self._environment)


class Trouble(Protocol):
    """A function that is called with each failure that may pass, and with None when rows are sent again."""

    def __call__(self, error: BaseException | None) -> None:
        """Take note of the failure; None: rows are sent again."""
        ...


class Outbox:
    """`async with sql.outbox("localhost:9092", db, table="outbox", to="orders") as relay: await relay.run()`.

    Sends the rows of a table as records. sent: how many rows this object has sent.
    """

    def __init__(
        self,
        clients: Clients,
        db: Database,
        table: OutboxTable,
        *,
        to: str,
        name: str,
        way: Way | None,
        keep_ms: float | None,
        resume_at: int | None,
        environment: Environment,
        at_once: int = AT_ONCE,
        create: bool = False,
    ) -> None:
        """way: how rows are sent exactly once; None for the best way that the broker supports. keep_ms: for how long
        rows stay after they were sent; None: they are deleted at once.
        """
        self.sent = 0
        self.way = way
        self.name = name
        self._clients = clients
        self._db = db
        self._table = table
        self._to = to
        self._keep_ms = keep_ms
        self._resume_at = resume_at
        self._environment = environment
        self._at_once = at_once
        self._create = create
        self._moving: Moving | None = None
        self._prune_at_ms = 0.0

    async def __aenter__(self) -> "Outbox":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def move(self) -> int:
        """Send the next rows, if there are some. Returns how many were sent; 0: the table is empty.

        Raises OutboxRowError for a row that cannot be a record; errors of producers, and of the database's driver.
        After an error the next call begins at step START, as after a crash.
        """
        try:
            moving = self._moving or await self._begin()
            if not await self._table.has_rows(self._way):
                await moving.rest()
                await self._prune()
                return 0
            count = await moving.move(self._at_once)
            if not count and (left := await self._table.check_left(None)) is not None:
                count = await moving.move(self._at_once)
                if not count:
                    await self._table.check_left(left)
        except BaseException:
            await self.close()
            raise
        self.sent += count
        return count

    async def run(
        self, *, until_empty: bool = False, moved: Callable[[int], None] | None = None, trouble: Trouble | None = None
    ) -> None:
        """Send rows as they come, until cancelled. After a failure that may pass, which is logged, it begins again at
        step START.

        until_empty: return when no row is left. moved: called with how many rows were sent. trouble: told of failures
        instead of the log. Raises what does not pass: OutboxRowError, ProducerFencedError, OutcomeDivergedError,
        UnknownTopicError, InvalidConfigurationError, and errors of the database such as a missing right.
        """
        wait_ms = SHORTEST_MS
        while True:
            try:
                count = await self._move_whole()
            except Exception as error:
                if not passes(error):
                    raise
                (trouble or _log)(error)
                wait_ms = LONGEST_MS
            else:
                if trouble is not None:
                    trouble(None)
                if count:
                    if moved is not None:
                        moved(count)
                    wait_ms = SHORTEST_MS
                    continue
                if until_empty:
                    return
            await self._wait(wait_ms)
            wait_ms = min(wait_ms * 2, LONGEST_MS)

    async def _move_whole(self) -> int:
        """Send the next rows. If this is cancelled, the commit that is under way has ENDING_S to end."""
        moving = asyncio.get_running_loop().create_task(self.move())
        try:
            return await asyncio.shield(moving)
        except asyncio.CancelledError:
            await asyncio.wait({moving}, timeout=ENDING_S)
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)
            raise

    async def _wait(self, wait_ms: float) -> None:
        """Wait this long, or until the database says that something was committed."""
        while wait_ms > 0:
            await asyncio.sleep(min(wait_ms, SHORTEST_MS) / 1000)
            wait_ms -= SHORTEST_MS
            with suppress(Exception):  # the next look tells what is wrong
                if await self._table.has_changed():
                    return

    async def close(self) -> None:
        """Close the clients. What was not committed is aborted, and its rows stay."""
        moving, self._moving = self._moving, None
        if moving is not None:
            with suppress(KafkaError):
                await moving.close(_CLOSE_MS)

    @property
    def _way(self) -> Way:
        """Return the way in which rows are sent, which has been chosen by now."""
        assert self.way is not None
        return self.way

    async def _begin(self) -> Moving:
        """Choose the way if none is chosen, check the table, and fence the earlier relay (step START). Raises
        InvalidConfigurationError if resume_at was given for another way than OFFSETS.
        """
        if self.way is None:
            self.way = await self._best_way()
        if self._resume_at is not None and self.way is not Way.OFFSETS:
            raise InvalidConfigurationError(f"only {Way.OFFSETS.value!r} has a number to resume at")
        if self._create:
            await self._table.create()
        await self._table.open(self.way)
        clients, table, name, to = self._clients, self._table, self.name, self._to
        if self.way is Way.HOLD:
            self._moving = ByHold(clients, self._db, table, name, to)
        elif self.way is Way.NAMES:
            self._moving = ByNames(clients, table, name, to)
        else:
            self._moving = ByOffsets(clients, table, name, to, self._environment, self._resume_at)
        await self._moving.start()
        self._resume_at = None
        return self._moving

    async def _best_way(self) -> Way:
        """Return HOLD if the broker can hold transactions for a database, else OFFSETS."""
        settings = self._clients.producer(transactional_id=self.name).settings
        cluster = Cluster(settings, self._environment)
        try:
            await cluster.start()
            can_hold = await Decisions(cluster, settings.request_timeout_ms).can_hold(self.name)
        finally:
            await cluster.close()
        return Way.HOLD if can_hold else Way.OFFSETS

    async def _prune(self) -> None:
        """At most every PRUNE_EVERY_MS, delete rows that were sent longer than keep_ms ago."""
        now_ms = self._environment.clock.monotonic_ms()
        if self._keep_ms is not None and now_ms >= self._prune_at_ms:
            await self._table.prune(self._keep_ms / 1000)
            self._prune_at_ms = now_ms + PRUNE_EVERY_MS


def _log(error: BaseException | None) -> None:
    """Log a failure after which the relay tries again."""
    log.warning("outbox: %s; trying again", error)


def passes(error: Exception) -> bool:
    """Return whether the relay may succeed if it begins again after this error."""
    if isinstance(error, OutboxRowError | ProducerFencedError):
        return False
    if isinstance(error, KafkaError):
        return error.code not in _PERMANENT and isinstance(
            error, RetriableError | AbortableTransactionError | CommitOutcomeUnknownError
        )
    if isinstance(error, DatabaseAway | OSError):
        return True
    state = sqlstate_of(error)
    if state is not None:
        return not state.startswith(_FOREVER)
    driver = type(error).__module__.partition(".")[0]
    return driver in _DRIVERS and "no such" not in str(error)


def outbox(
    bootstrap_servers: Any,
    db: Database,
    *,
    to: str,
    table: str = "outbox",
    by: str | None = None,
    name: str | None = None,
    columns: Mapping[str, str] | str | None = None,
    keep_ms: float | None = None,
    resume_at: int | None = None,
    at_once: int = AT_ONCE,
    create: bool = False,
    environment: Environment = SYSTEM,
    **keywords: Any,
) -> Outbox:
    """Return a relay from a table of an open database into topics: each row once, those of a key in order.

    to: the topic of rows that name none. by: "hold", "names" or "offsets"; None: "hold" if the broker can, else
    "offsets". name: of the relay, by which a newer one fences an older one; None: outbox-TABLE. columns: those of the
    table by their meaning, {"position": "id", "value": "payload"}. keep_ms: how long rows stay after they were sent;
    None: they are deleted at once. resume_at: of "offsets", the number of the last row that counts as sent. at_once:
    how many rows at most in one commit. create: make the tables if they are missing. keywords: of the producer. Raises
    InvalidConfigurationError.
    """
    clients = _Clients(bootstrap_servers, environment, keywords)
    return outbox_of(clients, db, to, table, by, name, columns, keep_ms, resume_at, at_once, create, environment)


def outbox_of(
    clients: Clients,
    db: Database,
    to: str,
    table: str,
    by: str | None,
    name: str | None,
    columns: Mapping[str, str] | str | None,
    keep_ms: float | None,
    resume_at: int | None,
    at_once: int = AT_ONCE,
    create: bool = False,
    environment: Environment = SYSTEM,
) -> Outbox:
    """Do what `outbox` does, with clients that somebody else makes. Raises InvalidConfigurationError."""
    known = [each.value for each in Way]
    if by is not None and by not in known:
        raise InvalidConfigurationError(f"rows cannot be sent by {by!r}", hint=f"one of {', '.join(known)}")
    if at_once < 1:
        raise InvalidConfigurationError(f"at_once={at_once}: at least one row is sent at once")
    rows = OutboxTable(db, table, columns_of(columns), keep_ms is not None)
    return Outbox(
        clients,
        db,
        rows,
        to=to,
        name=name or f"outbox-{table}",
        way=None if by is None else Way(by),
        keep_ms=keep_ms,
        resume_at=resume_at,
        environment=environment,
        at_once=at_once,
        create=create,
    )

"""Outbox relays, each of which may be killed at any of its calls to database and broker: in a world of virtual time, or
with a real broker.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from fates import Fate, Killed
from fencepost.client.admin.admin import Admin
from fencepost.client.errors import KafkaError
from fencepost.client.net.environment import Environment
from fencepost.client.producer.producer import Producer
from fencepost.client.sql import sqlite
from fencepost.client.sql.outbox.relay import Outbox, outbox_of
from fencepost.client.sql.outbox.statements import outbox_schema
from txn_world import BOOTSTRAP

OF_DATABASE = ["claim", "begin", "fetch", "execute", "decide", "commit", "close_number"]
OF_PRODUCER = {
    "decisions": ["look", "prepare", "end"],
    "requests": ["init", "add_offsets", "commit_offsets", "end"],
    "sender": ["flush"],
    "numbering": ["_ask"],
}


class Where(NamedTuple):
    """The broker that relays send to, the topic, and what they are called; None: by their table."""

    environment: Environment
    bootstrap: str = BOOTSTRAP
    topic: str = "t"
    name: str | None = None


class Clients:
    """The clients of one relay."""

    def __init__(self, where: Where, fate: Fate) -> None:
        self._where, self._fate = where, fate
        self.made: list[Producer] = []

    def producer(self, **more: Any) -> Producer:
        """Return a producer whose calls are watched."""
        settings = {"request_timeout_ms": 1_000, "max_block_ms": 5_000, "delivery_timeout_ms": 5_000, **more}
        producer = Producer(self._where.bootstrap, environment=self._where.environment, **settings)
        parts: dict[str, Any] = {"sender": producer._sender}
        if producer._driver is not None:
            parts |= {"decisions": producer._driver.databases._decisions, "requests": producer._driver._requests}
        elif producer._numbering is not None:
            parts["numbering"] = producer._numbering
        for name, part in parts.items():
            self._fate.watch(part, OF_PRODUCER[name])
        if producer._driver is not None:
            self._fate.watch_sending(parts["decisions"], "prepare_behind")
        self.made.append(producer)
        return producer

    def admin(self) -> Admin:
        return Admin(self._where.bootstrap, environment=self._where.environment)

    async def die(self) -> None:
        """Let the producers end as those of a killed process do: what is open stays open."""
        for producer in self.made:
            if producer._started and not producer._closed:
                producer._closed = True
                await producer._parts.release()


def outbox_at(path: str, *statements: str) -> None:
    """Make a database with an outbox, and run these statements."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(";".join(outbox_schema("sqlite", "outbox")))
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def insert(path: str, *values: bytes) -> None:
    """Insert these rows in one transaction; the first letter is the key."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executemany(
            "insert into outbox (key, value) values (?, ?)", [(value[:1], value) for value in values]
        )
        connection.commit()


def rows_left(path: str) -> int:
    """Return how many rows there are."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        count: int = connection.execute("select count(*) from outbox").fetchone()[0]
        return count


def relay_of(where: Where, db: Any, by: str, clients: Clients | None = None, **more: Any) -> Outbox:
    """Return a relay from the table outbox, two rows at once."""
    given = {"to": where.topic, "table": "outbox", "by": by, "name": where.name, "columns": None, "keep_ms": None}
    given |= {"resume_at": None, "at_once": 2, "environment": where.environment, **more}
    return outbox_of(clients or Clients(where, Fate()), db, **given)


async def relay_all(where: Where, path: str, by: str, **more: Any) -> int:
    """Send all rows that there are, and return how many."""
    async with sqlite.Database(path) as db, relay_of(where, db, by, **more) as relay:
        await relay.run(until_empty=True)
        return relay.sent


async def live(where: Where, path: str, by: str, fate: Fate) -> None:
    """Run a relay until the table is empty, until it is killed, or until it is told that another one goes on."""
    db = sqlite.Database(path)
    await db.open()
    kept: Any = await db._connections.take()
    fate.watch(db, OF_DATABASE)
    clients = Clients(where, fate)
    with contextlib.suppress(Killed, KafkaError):
        await asyncio.wait_for(relay_of(where, db, by, clients).run(until_empty=True), 600)
    fate.dead = True
    kept._roll_back()  # as SQLite does when the system has ended the process
    kept._connection.close()
    await clients.die()


async def relay_with_trouble(
    where: Where,
    path: str,
    by: str,
    at: int,
    how: str,
    values: Callable[[], Awaitable[list[bytes]]],
    *,
    pause_s: float = 10,
    patience_s: float = 30,
) -> list[str]:
    """Kill or stop a relay at call `at`, or leave that call unanswered (`how`: see Fate); let other relays go on, and
    compare the rows with what readers get. Returns the names of the first relay's calls.

    pause_s: the pause after its end. patience_s: how long another relay tries while a stopped one may hold a lock.
    """
    first, later, last = (b"a1", b"b1", b"a2"), (b"b2", b"a3"), (b"a4",)
    written = list(first)

    async def go_on() -> None:
        with contextlib.suppress(sqlite3.OperationalError, TimeoutError):  # the stopped relay has a lock
            insert(path, *later)
            written.extend(later)
            await asyncio.wait_for(relay_all(where, path, by), patience_s)

    outbox_at(path)
    insert(path, *first)
    fate = Fate(at, how, go_on)
    await live(where, path, by, fate)
    await asyncio.sleep(pause_s)
    insert(path, *last)
    await relay_all(where, path, by)
    written.extend(last)
    found = await values()
    assert sorted(found) == sorted(written), (at, fate.names[at])
    for key in (b"a", b"b"):
        assert [each for each in found if each[:1] == key] == [each for each in written if each[:1] == key], at
    assert rows_left(path) == 0
    return fate.names

"""Like test_killed_writers.py, by drivers that need the system's own loop: asyncpg, psycopg, and an AsyncSession over
each of the two. So these tests have a real broker, and real time.
"""

import contextlib
import itertools

import asyncpg
import psycopg
import pytest
import sqlalchemy
from fates import Fate
from fencepost.client.errors import KafkaError
from fencepost.client.sql import postgresql
from killed_writers import LEAST, live, write
from orders import records_of, rows_of
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from fencepost import Admin, NewTopic, Producer, sql

DRIVERS = ["asyncpg", "psycopg", "session by asyncpg", "session by psycopg"]
ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, psycopg.Error, sqlalchemy.exc.SQLAlchemyError, OSError)
NUMBERS = itertools.count()


class Orders:
    """The table of orders in PostgreSQL, by one of the drivers. gone: the error of a connection that is lost."""

    gone = ConnectionError

    def __init__(self, url, driver):
        self._url, self._driver = url, driver

    def open(self):
        url = self._url.replace("postgresql:", f"postgresql+{self._driver.rpartition(' ')[2]}:")
        if not self._driver.startswith("session"):
            return sql.connect(url, create=True)
        return sql.connect(AsyncSession(create_async_engine(url, poolclass=NullPool)), create=True)

    def cut(self, db):
        adapter = db._connections._adapter if db._connections.is_shared else db._connections._kept
        if adapter is not None:
            adapter.drop()


class Run:
    """One writer to which something happens, and whoever ends what it left. name: of the topic and the id."""

    def __init__(self, broker, orders):
        self.broker, self.orders, self.name = broker, orders, f"writer-{next(NUMBERS)}"

    def producer(self):
        return Producer(self.broker, transactional_id=self.name, request_timeout_ms=1_000, max_block_ms=1_500)

    async def end_by_successor(self, number=3):
        async with self.orders.open() as db, self.producer() as producer:
            await write(producer, db, number, topic=self.name)

    async def end_by_resolve(self, number=3):
        async with self.orders.open() as db:
            await sql.resolve(self.broker, db)

    async def compare(self, db, at, how, end):
        """Kill or stop a writer at call `at`, or leave that call unanswered (`how`: see Fate); end the transaction that
        it left by the method `end`; and compare rows with records. Returns the names of its calls.
        """
        async with Admin(self.broker) as admin:
            await admin.create_topics([NewTopic(self.name, 1)])
        await db.execute("drop table if exists orders, fencepost_writers; " + sql.schema("postgresql"))
        end = getattr(self, end)

        async def meanwhile():
            with contextlib.suppress(KafkaError):
                await end(4)

        fate = Fate(at, how, meanwhile)
        await live(await self.producer().__aenter__(), self.orders, fate, ERRORS, self.name)
        await end()
        async with self.producer():
            pass  # aborts what was not prepared
        assert sorted(await records_of(self.broker, self.name)) == await rows_of(db), (fate.names, at)
        return fate.names


@pytest.fixture(autouse=True)
def hardly_any_waiting_for_locks(monkeypatch):
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT_S", 0.05)


IN_MAKE_TEST = ("asyncpg", "killed")
LIVES = [
    pytest.param(driver, how, marks=() if (driver, how) == IN_MAKE_TEST else pytest.mark.long)
    for driver in DRIVERS
    for how in ("killed", "stopped")
]


@pytest.mark.parametrize("end", ["end_by_successor", "end_by_resolve"])
@pytest.mark.parametrize(("driver", "how"), LIVES)
@pytest.mark.slow
async def test_rows_equal_records_whatever_call_an_asyncio_writer_is_killed_or_stopped_at(
    broker, db, postgres_url, driver, how, end
):
    orders = Orders(postgres_url, driver)
    names = await Run(broker, orders).compare(db, -1, "", "end_by_successor")  # without a fault
    assert len(names) >= LEAST
    for at in range(len(names)):
        await Run(broker, orders).compare(db, at, how, end)


@pytest.mark.parametrize("end", ["end_by_successor", "end_by_resolve"])
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.slow
async def test_rows_equal_records_if_an_asyncio_writer_gets_no_answer_to_commit(broker, db, postgres_url, driver, end):
    orders = Orders(postgres_url, driver)
    names = await Run(broker, orders).compare(db, -1, "", "end_by_successor")  # without a fault
    for at in [at for at, name in enumerate(names) if name == "commit"]:
        await Run(broker, orders).compare(db, at, "unanswered", end)

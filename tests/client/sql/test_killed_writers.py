"""A writer is killed, stopped for a while or cut off at each of its calls to database and broker, and somebody ends
what it left: rows and records are the same. With each of the bugs planted at the end they are not.
"""

import asyncio
import contextlib
import sqlite3
from functools import partial

import django.db
import psycopg
import pytest
import sqlalchemy
from django_settings import settings_of
from fates import Fate
from fencepost.client.errors import KafkaError, OutcomeDivergedError, error_of
from fencepost.client.sql import connecting, django_adapter, django_opening, postgresql, psycopg_blocking, sqlite
from fencepost.client.sql.connections import OneConnection
from fencepost.client.sql.resolving import resolve
from fencepost.client.transactions import decisions, sql_commits
from fencepost.client.transactions.deciding import Row
from fencepost.client.values import NO_IDENTITY
from fencepost.protocol.errors import ErrorCode
from killed_writers import BEFORE_END, LEAST, live, write
from reading import make
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool
from txn_world import BOOTSTRAP, within

ERRORS = (sqlite3.Error, psycopg.Error, sqlalchemy.exc.SQLAlchemyError, django.db.Error)


class SqliteOrders:
    """A file. folder: where it is made."""

    kind = sqlite.Database
    gone = sqlite3.OperationalError

    def __init__(self, folder):
        self._folder, self._path = folder, ""
        self.renew("orders")

    def renew(self, name):
        self._path = str(self._folder / f"{name}.db")

    def open(self):
        return sqlite.Database(self._path)

    def cut(self, db):
        """End the connection as if its process was killed: SQLite then rolls its transaction back."""
        kept = db._connections._kept
        kept._roll_back()
        kept._connection.close()

    def rows(self):
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            return [b"%d" % number for (number,) in connection.execute("select id from orders order by id")]


class PostgresOrders:
    """A database of a real server. In virtual time its calls take none, since they block."""

    kind = postgresql.Database
    gone = psycopg.OperationalError

    def __init__(self, url):
        self._url = url

    def renew(self, name):
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("drop table if exists orders, fencepost_writers")

    def open(self):
        async def opened():
            return psycopg_blocking.BlockingPsycopgAdapter(psycopg.connect(self._url, autocommit=True))

        return postgresql.Database(OneConnection(opened), "orders", create=True)

    def cut(self, db):
        kept = db._connections._kept
        if kept is not None:
            kept.drop()

    def rows(self):
        with psycopg.connect(self._url) as connection:
            return [b"%d" % number for (number,) in connection.execute("select id from orders order by id")]


class OrdersBySession:
    """The orders of a class above, by a Session of SQLAlchemy."""

    gone = sqlalchemy.exc.DBAPIError

    def __init__(self, orders):
        self._orders = orders
        self.renew = orders.renew

    def rows(self):
        return self._orders.rows()

    def open(self):
        name = f"sqlite:///{self._orders._path}" if isinstance(self._orders, SqliteOrders) else self._orders._url
        engine = sqlalchemy.create_engine(name.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
        if name.startswith("sqlite"):
            sqlalchemy.event.listen(engine, "connect", lambda own, _: own.execute("pragma synchronous = extra"))
        return connecting.connect(Session(engine), create=True)

    def cut(self, db):
        driver = db._connections._adapter._driver
        if driver is not None:
            driver.close()


class OrdersByDjango(OrdersBySession):
    """The orders of a class above, by a connection of Django."""

    gone = django.db.OperationalError

    def __init__(self, orders):
        super().__init__(orders)
        self._wrappers = []

    def rows(self):
        for wrapper in self._wrappers:
            wrapper.close()
        return self._orders.rows()

    def open(self):
        name = f"sqlite:///{self._orders._path}" if isinstance(self._orders, SqliteOrders) else self._orders._url
        where = settings_of(name)
        handler = django.db.utils.ConnectionHandler({"default": where})
        wrapper = handler["default"]
        self._wrappers.append(wrapper)
        return django_opening.database_of(django_adapter.DjangoAdapter(wrapper), wrapper, None, True)

    def cut(self, db):
        driver = db._connections._adapter._wrapper.connection
        if driver is not None:
            driver.close()


ORDERS = {
    "sqlite": lambda request: SqliteOrders(request.getfixturevalue("tmp_path")),
    "postgresql": lambda request: PostgresOrders(request.getfixturevalue("postgres_url")),
    "sqlite by a session": lambda request: OrdersBySession(ORDERS["sqlite"](request)),
    "postgresql by a session": lambda request: OrdersBySession(ORDERS["postgresql"](request)),
    "sqlite by django": lambda request: OrdersByDjango(ORDERS["sqlite"](request)),
    "postgresql by django": lambda request: OrdersByDjango(ORDERS["postgresql"](request)),
}


@pytest.fixture(params=["sqlite", "postgresql"])
def orders(request):
    return ORDERS[request.param](request)


def each_of(*names):
    """Return a mark by which a test runs with each of these databases. Those with PostgreSQL are marked `long`."""
    marked = [pytest.param(name, marks=pytest.mark.long if "postgresql" in name else ()) for name in names]
    return pytest.mark.parametrize("orders", marked, indirect=True)


async def live_in(world, orders, fate):
    producer = await world.producer()
    world._producers.remove(producer)
    await live(producer, orders, fate, ERRORS)


async def end_by_successor(world, orders, number=3):
    async with orders.open() as db:
        await write(await world.producer(), db, number)


async def end_by_resolve(world, orders, number=3):
    async with orders.open() as db:
        await resolve(BOOTSTRAP, db, environment=world.world.environment)


def compare(orders, at, how, end):
    """Kill or stop a writer at call `at`, or leave that call unanswered (`how`: see Fate); end the transaction that it
    left by the function `end`; and compare rows with records. Returns the names of its calls.
    """

    async def main(world):
        await make(world)

        async def meanwhile():
            with contextlib.suppress(KafkaError):
                await end(world, orders, 4)

        fate = Fate(at, how, meanwhile)
        await live_in(world, orders, fate)
        await asyncio.sleep(10)
        await end(world, orders)
        await (await world.producer()).close()  # aborts what was not prepared
        assert sorted(await world.values()) == orders.rows(), (fate.names, at)
        return fate.names

    return within(main, 2, transaction_two_phase_commit_enable=True)


def names_of_calls(orders):
    """Return the names of a writer's calls, from a run without a fault."""
    orders.renew("untouched")
    names = compare(orders, -1, "", end_by_successor)
    assert len(names) >= LEAST
    return names


def compare_all(orders, names, how, end, only=()):
    """Run compare() for each of these calls of a writer; only: for those with these names."""
    for at, name in enumerate(names):
        if not only or name in only:
            orders.renew(at)
            compare(orders, at, how, end)


@pytest.fixture(autouse=True)
def no_waiting_for_locks(monkeypatch):
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # virtual time makes blocking calls in the loop's thread
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT_S", 0)
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT_S", 0)


@pytest.mark.parametrize("end", [end_by_successor, end_by_resolve])
@pytest.mark.parametrize("how", ["killed", "stopped"])
@each_of(*ORDERS)
@pytest.mark.slow
def test_rows_equal_records_whatever_call_a_writer_is_killed_or_stopped_at(orders, how, end):
    """A writer commits a row of a database and a record of Kafka in one transaction; the next writer with its id
    decides what it left open.
    """
    compare_all(orders, names_of_calls(orders), how, end)


@pytest.mark.slow
@pytest.mark.parametrize("end", [end_by_successor, end_by_resolve])
@pytest.mark.parametrize("orders", ORDERS, indirect=True)
def test_database_rows_equal_records_if_the_answer_to_commit_is_lost(orders, end):
    compare_all(orders, names_of_calls(orders), "unanswered", end, ["commit"])


# ---- bugs ------------------------------------------------------------------------------------------------------------


def who_closes_leaves_no_trace(monkeypatch, kind):
    monkeypatch.setattr(kind, "close_number", lambda self, waiting: self.read_row(waiting.transactional_id))


def the_resolver_guesses(monkeypatch, kind):
    async def guessed(self, waiting):
        return Row(0, waiting.number, False)

    monkeypatch.setattr(kind, "close_number", guessed)


def a_prepared_transaction_has_a_timeout(monkeypatch, kind):
    monkeypatch.setattr(decisions, "NEVER_MS", 1_000)


def the_database_commits_before_prepare(monkeypatch, kind):
    decide = sql_commits.DatabaseCommits._decide

    async def early(self, database, waiting):
        await decide(self, database, waiting)
        await database.commit()
        database.commit = partial(asyncio.sleep, 0)

    monkeypatch.setattr(decisions.Decisions, "prepare_behind", lambda self, waiting, node_ids: None)
    monkeypatch.setattr(sql_commits.DatabaseCommits, "_decide", early)


def a_commit_without_an_answer_is_taken_for_committed(monkeypatch, kind):
    async def guessed(self, waiting):
        return Row(0, waiting.number, True)

    monkeypatch.setattr(kind, "close_number", guessed)


def a_prepared_transaction_is_not_held(monkeypatch, kind):
    request = decisions.PrepareTxnRequest
    monkeypatch.setattr(decisions, "PrepareTxnRequest", lambda **fields: request(**{**fields, "hold": False}))


BUGS = {
    who_closes_leaves_no_trace: ("stopped", end_by_resolve, ["commit"]),
    the_resolver_guesses: ("killed", end_by_resolve, ["end"]),
    a_prepared_transaction_has_a_timeout: ("killed", end_by_resolve, ["end"]),
    the_database_commits_before_prepare: ("killed", end_by_successor, ["commit"]),
    a_commit_without_an_answer_is_taken_for_committed: ("killed", end_by_resolve, ["commit"]),
    a_prepared_transaction_is_not_held: ("killed", end_by_successor, ["end"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_each_bug_planted_in_a_writer_makes_rows_and_records_differ_or_raises(orders, monkeypatch, plant):
    how, end, only = BUGS[plant]
    names = names_of_calls(orders)
    plant(monkeypatch, orders.kind)
    with pytest.raises((AssertionError, OutcomeDivergedError)) as found:
        compare_all(orders, names, how, end, only)
    print(found.value)


@pytest.mark.slow
def test_a_producer_without_a_database_raises_naming_the_database_that_must_decide(orders):
    """Its predecessor was killed between the database's COMMIT and EndTxn: only the database knows the outcome."""

    async def main(world):
        await make(world)
        await live_in(world, orders, Fate(BEFORE_END, "killed"))
        successor = await world.producer()
        with pytest.raises(KafkaError, match="waits for number 0 of database") as refused:
            await successor.transaction().__aenter__()
        assert "fencepost txn resolve" in refused.value.hint
        async with orders.open() as db:
            assert [each.result for each in await dry(world, db)] == ["committed"]
            await write(successor, db, 3)
            assert await dry(world, db) == []
        async with successor.transaction() as tx:
            await tx.send("t", b"4")
        assert await world.values() == [b"1", b"3", b"4"]

    async def dry(world, db):
        return await resolve(BOOTSTRAP, db, dry_run=True, environment=world.world.environment)

    within(main, 2, transaction_two_phase_commit_enable=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["execute", "decide", "commit"])
def test_rows_equal_records_if_the_writer_is_cancelled_in_a_call_to_the_database(orders, name):
    async def main(world):
        await make(world)
        async with orders.open() as db:
            await db.execute("create table orders (id integer primary key)")
            inner = getattr(db, name)

            async def slowly(*arguments):
                found = await inner(*arguments)
                await asyncio.sleep(1)
                return found

            setattr(db, name, slowly)
            producer = await world.producer()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await write(producer, db, 1)
            await write(producer, db, 2)
            assert await world.values() == orders.rows() == ([b"1", b"2"] if name == "commit" else [b"2"])

    within(main, 2, transaction_two_phase_commit_enable=True)


def test_a_producer_raises_if_the_broker_refuses_to_end_its_predecessors_transaction(orders, monkeypatch):
    async def main(world):
        await make(world)
        await live_in(world, orders, Fate(BEFORE_END, "killed"))
        successor = await world.producer()
        monkeypatch.setattr(decisions.Decisions, "end", refuse)
        async with orders.open() as db:
            with pytest.raises(OutcomeDivergedError, match="the broker refuses to"):
                await write(successor, db, 3)

    async def refuse(self, waiting, committed):
        return decisions.Ended(NO_IDENTITY, -1, False, error_of(ErrorCode.LEDGER_CONFLICT, "no"))

    within(main, 2, transaction_two_phase_commit_enable=True)


def test_a_producer_with_another_database_raises_naming_its_predecessors_database(tmp_path):
    orders, other = SqliteOrders(tmp_path), SqliteOrders(tmp_path)
    other.renew("other")

    async def main(world):
        await make(world)
        await live_in(world, orders, Fate(BEFORE_END, "killed"))
        successor = await world.producer()
        async with orders.open() as db, other.open() as second:
            await second.execute("create table orders (id integer primary key)")
            with pytest.raises(KafkaError, match=f"waits for number 0 of database {db.database_id}"):
                await write(successor, second, 3)
            await write(successor, db, 4)
            await write(successor, second, 5)
        assert await world.values() == [b"1", b"4", b"5"]

    within(main, 2, transaction_two_phase_commit_enable=True)

"""SQLite takes part in a producer's transactions, at a real broker."""

import asyncio
import sqlite3
import threading
import time

import pytest
from fencepost.client.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    OutcomeDivergedError,
    ProducerFencedError,
)
from fencepost.client.sql import blocks
from fencepost.client.transactions.deciding import Waiting
from fencepost.client.transactions.participant import DatabaseAway
from fencepost.client.values import ProducerIdentity
from fencepost.protocol.errors import ErrorCode
from orders import records_of, rows_of, write

from fencepost import Broker, Producer, sql

pytestmark = pytest.mark.slow  # with a real database


@pytest.fixture
async def db(tmp_path):
    async with sql.connect(f"sqlite:///{tmp_path}/orders.db") as db:
        await db.execute("create table orders (id integer primary key, name text)")
        yield db


async def test_an_sqlite_row_and_a_record_are_committed_together(broker, db):
    async with Producer(broker, transactional_id="orders-1") as producer:
        for number in range(3):
            await write(producer, db, number)
    assert await rows_of(db) == [0, 1, 2]
    assert await records_of(broker) == [0, 1, 2]


async def test_an_exception_in_the_block_undoes_the_row_and_the_record(broker, db):
    async with Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(ValueError, match="no"):  # noqa: PT012
            async with producer.transaction(db=db) as tx:
                await db.execute("insert into orders values (?, ?)", 1, "alice")
                await tx.send("orders", b"1")
                raise ValueError("no")
        await write(producer, db, 2)
    assert await rows_of(db) == [2]
    assert await records_of(broker) == [2]


async def test_a_refused_commit_of_the_database_undoes_the_record_and_raises_its_error(broker, db):
    await db.execute("create table lines (id integer references orders (id) deferrable initially deferred)")
    await db.execute("pragma foreign_keys = on")
    async with Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(sqlite3.IntegrityError):  # noqa: PT012
            async with producer.transaction(db=db) as tx:
                await db.execute("insert into lines values (7)")
                await tx.send("orders", b"7")
        assert tx.outcome == "aborted"
        await write(producer, db, 8)
    assert await db.fetch("select * from lines") == []
    assert await records_of(broker) == [8]


async def test_a_transaction_without_records_is_committed_in_the_database_alone(broker, db):
    async with Producer(broker, transactional_id="orders-1") as producer:
        async with producer.transaction(db=db):
            await db.execute("insert into orders values (1, 'alice')")
        await write(producer, db, 2)
    assert await rows_of(db) == [1, 2]


async def test_one_producers_transactions_with_and_without_a_database_may_alternate(broker, db):
    async with Producer(broker, transactional_id="orders-1") as producer:
        for number in (1, 3):
            async with producer.transaction() as tx:
                await tx.send("orders", b"%d" % number)
            await write(producer, db, number + 1)
    assert await rows_of(db) == [2, 4]
    assert await records_of(broker) == [1, 2, 3, 4]


async def test_rolling_back_a_savepoint_of_sqlite_keeps_the_rest_of_the_transaction(broker, db):
    async with Producer(broker, transactional_id="orders-1") as producer, producer.transaction(db=db) as tx:
        await db.execute("insert into orders values (1, 'alice')")
        with pytest.raises(ValueError, match="undone"):  # noqa: PT012
            async with db.transaction():
                await db.execute("insert into orders values (2, 'bob')")
                raise ValueError("undone")
        await tx.send("orders", b"1")
    assert await rows_of(db) == [1]


async def test_a_table_made_in_a_savepoint_of_sqlite_is_committed_with_the_record(broker, db):
    async with Producer(broker, transactional_id="orders-1") as producer, producer.transaction(db=db) as tx:
        async with db.transaction():
            await db.execute("create table lines (id integer)")
        await tx.send("orders", b"1")
    assert await db.fetch("select * from lines") == []
    assert await records_of(broker) == [1]


@pytest.mark.parametrize(
    "statement",
    ["commit", " COMMIT;", "rollback", "begin", "end transaction", "-- done\n commit", "/* a\n */ /**/commit"],
)
async def test_sqlite_statements_that_would_begin_or_end_a_transaction_are_refused(db, statement):
    with pytest.raises(IllegalStateError, match="block"):
        await db.execute(statement)


async def insert_in_savepoint(db):
    async with db.transaction():
        await db.execute("insert into orders values (2, 'bob')")


@pytest.mark.parametrize(
    "go_on",
    [lambda db: db.execute("insert into orders values (2, 'bob')"), insert_in_savepoint],
    ids=["in_a_statement", "in_a_savepoint"],
)
async def test_a_transaction_that_continues_after_sqlite_rolled_it_back_leaves_no_row(broker, db, go_on):
    await db.execute("insert into orders values (1, 'alice')")
    async with Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(IllegalStateError, match="rolled the transaction back"):  # noqa: PT012
            async with producer.transaction(db=db) as tx:
                await tx.send("orders", b"2")
                with pytest.raises(sqlite3.IntegrityError):
                    await db.execute("insert or rollback into orders values (1, 'alice')")
                await go_on(db)
        assert await rows_of(db) == [1]
        await write(producer, db, 3)
    assert await records_of(broker) == [3]


async def test_an_outcome_is_not_looked_up_in_another_sqlite_database_under_the_same_path(db, tmp_path):
    waiting = Waiting("sql:db:orders-1", "orders-1", ProducerIdentity(1, 0), 7)
    (tmp_path / "orders.db").rename(tmp_path / "moved.db")
    with pytest.raises(DatabaseAway, match="unable to open"):
        await db.close_number(waiting)
    assert not (tmp_path / "orders.db").exists()
    async with sql.connect(f"sqlite:///{tmp_path}/orders.db") as other:
        with pytest.raises(DatabaseAway, match="another database"):
            await db.close_number(waiting)
        assert await other.fetch("select * from fencepost_writers") == []


async def test_without_create_a_missing_sqlite_file_or_table_raises_and_is_not_made(tmp_path):
    path = tmp_path / "other.db"
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        await sql.connect(f"sqlite:///{path}", create=False).open()
    assert not path.exists()
    path.write_bytes(b"")
    with pytest.raises(InvalidConfigurationError, match="has no table fencepost_database"):
        await sql.connect(f"sqlite:///{path}", create=False).open()
    assert path.read_bytes() == b""


async def test_a_rollback_of_sqlite_is_completed_although_its_awaiter_is_cancelled(db):
    await db.begin()
    slow = asyncio.ensure_future(db._connections._kept._call(lambda: time.sleep(0.1)))
    await asyncio.sleep(0)
    rollback = asyncio.ensure_future(db.rollback())
    await asyncio.sleep(0)
    rollback.cancel()
    await asyncio.wait({slow, rollback})
    await db.begin()  # fails if the first transaction is still open
    await db.rollback()


async def test_a_statement_of_sqlite_that_outlasts_its_cancelled_block_is_interrupted(broker, db, monkeypatch):
    monkeypatch.setattr(blocks, "ROLLBACK_TIMEOUT_S", 0.1)
    kept, has_begun = await db._connections.take(), threading.Event()
    kept._connection.create_function("begun", 0, lambda: has_begun.set() or 0)
    endless = "with recursive n(x) as (select begun() union all select x + 1 from n) select count(*) from n"
    async with Producer(broker, transactional_id="orders-1") as producer:

        async def block():
            async with producer.transaction(db=db):
                await db.execute("insert into orders values (1, 'alice')")
                await db.fetch(endless)

        running = asyncio.create_task(block())
        await asyncio.to_thread(has_begun.wait)
        running.cancel()
        await asyncio.wait({running})
        await write(producer, db, 2)
        assert kept.is_closed
    assert await rows_of(db) == await records_of(broker) == [2]


@pytest.mark.parametrize(
    ("pragmas", "name"),
    [
        (["journal_mode = wal", "synchronous = normal"], "synchronous=NORMAL with journal_mode=WAL"),
        (["synchronous = full"], "synchronous=FULL with journal_mode=DELETE"),
        (["synchronous = off"], "synchronous=OFF"),
        (["journal_mode = memory"], "journal_mode=MEMORY"),
        (["journal_mode = off"], "journal_mode=OFF"),
    ],
)
async def test_sqlite_settings_that_can_lose_committed_rows_are_refused_and_named(broker, db, pragmas, name):
    async with Producer(broker, transactional_id="orders-1") as producer:
        for pragma in pragmas:
            await db.execute(f"pragma {pragma}")
        with pytest.raises(InvalidConfigurationError, match=name):
            await write(producer, db, 1)
        await db.execute("pragma journal_mode = wal")
        await db.execute("pragma synchronous = full")
        await write(producer, db, 2)


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "sqlite:///x?mode=ro", "mysql://x/y", "sqlite://h/x"]
)
def test_urls_that_are_not_of_a_durable_sqlite_file_are_refused(url):
    with pytest.raises(InvalidConfigurationError):
        sql.connect(url)


async def test_a_database_object_with_an_open_transaction_refuses_a_second_one(broker, db):
    async with (
        Producer(broker, transactional_id="orders-1") as first,
        Producer(broker, transactional_id="orders-2") as second,
    ):
        async with first.transaction(db=db):
            with pytest.raises(IllegalStateError, match="another transaction"):
                await write(second, db, 1)
        await write(second, db, 1)


async def test_refusing_a_second_transaction_of_a_database_object_leaves_the_first_open(broker, db):
    async with (
        Producer(broker, transactional_id="orders-1") as first,
        Producer(broker, transactional_id="orders-2") as second,
    ):
        ready, go_on = asyncio.Event(), asyncio.Event()
        decisions = second._driver.databases._decisions
        look = decisions.look

        async def slowly(*arguments):  # after the database was found free
            ready.set()
            await go_on.wait()
            return await look(*arguments)

        decisions.look = slowly
        refused = asyncio.ensure_future(write(second, db, 2))
        await ready.wait()
        async with first.transaction(db=db) as tx:
            await db.execute("insert into orders values (1, 'alice')")
            go_on.set()
            with pytest.raises(IllegalStateError, match="another transaction"):
                await refused
            await db.execute("insert into orders values (3, 'alice')")
            await tx.send("orders", b"1")
            await tx.send("orders", b"3")
    assert await rows_of(db) == await records_of(broker) == [1, 3]


async def test_after_a_refused_prepare_a_producer_looks_again_who_has_its_id(db, monkeypatch):
    """At the second try it only reads its row (again: True), to see whether another producer has claimed the id."""
    claims, claim = [], db.claim

    async def noted(*arguments):
        claims.append(arguments)
        return await claim(*arguments)

    monkeypatch.setattr(db, "claim", noted)
    async with (
        Broker(transaction_two_phase_commit_enable=False) as broker,
        Producer(broker.bootstrap_servers, transactional_id="orders-1") as producer,
    ):
        for _ in range(2):
            with pytest.raises(InvalidConfigurationError):
                await write(producer, db, 1)
    assert claims == [("orders-1", False), ("orders-1", True)]


async def test_a_failed_end_at_the_broker_does_not_roll_back_the_next_sqlite_transaction(broker, db):
    async with (
        Producer(broker, transactional_id="orders-1") as first,
        Producer(broker, transactional_id="orders-2") as second,
    ):
        await write(second, db, 1)
        decisions = first._driver.databases._decisions
        began, end_now = asyncio.Event(), asyncio.Event()

        async def fail(*_):
            began.set()
            await end_now.wait()
            raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

        end, decisions.end = decisions.end, fail
        failing = asyncio.ensure_future(write(first, db, 2))
        await began.wait()  # the database has committed
        async with second.transaction(db=db) as tx:
            await db.execute("insert into orders values (3, 'alice')")
            end_now.set()
            failing.cancel()
            await asyncio.wait({failing})
            await db.execute("insert into orders values (4, 'alice')")
            await tx.send("orders", b"3")
            await tx.send("orders", b"4")
        decisions.end = end
    assert await rows_of(db) == [1, 2, 3, 4]
    assert sorted(await records_of(broker)) == [1, 2, 3, 4]


async def test_a_producer_whose_successor_has_claimed_the_id_is_fenced(broker, db, tmp_path):
    async with Producer(broker, transactional_id="orders-1") as zombie:
        await write(zombie, db, 1)
        async with (
            Producer(broker, transactional_id="orders-1") as successor,
            sql.connect(f"sqlite:///{tmp_path}/orders.db") as own,
        ):
            await write(successor, own, 2)
            with pytest.raises(ProducerFencedError):
                await write(zombie, db, 3)
            await write(successor, own, 4)
    assert await rows_of(db) == [1, 2, 4]
    assert await records_of(broker) == [1, 2, 4]


async def test_a_restored_sqlite_database_raises_an_error_calling_it_older_than_the_broker(broker, db, tmp_path):
    async with Producer(broker, transactional_id="orders-1") as producer:
        await write(producer, db, 1)
        await db.execute("update fencepost_writers set number = -1, committed = 0")  # as an old backup has it
    async with Producer(broker, transactional_id="orders-1") as successor:
        with pytest.raises(OutcomeDivergedError, match="the database is older"):
            await write(successor, db, 2)
    assert await rows_of(db) == [1]


async def test_a_restored_broker_raises_an_error_calling_it_older_than_the_database(broker, db):
    await db.execute("insert into fencepost_writers values ('orders-1', 1, 7, 1, 5, 0, current_timestamp)")
    async with Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(OutcomeDivergedError, match="the broker is older"):
            await write(producer, db, 2)
    assert await rows_of(db) == []


async def test_a_broker_without_two_phase_commit_is_refused_naming_the_setting_to_enable(db):
    async with (
        Broker(transaction_two_phase_commit_enable=False) as broker,
        Producer(broker.bootstrap_servers, transactional_id="orders-1") as producer,
    ):
        with pytest.raises(InvalidConfigurationError) as refused:
            await write(producer, db, 1)
        assert "transaction.two.phase.commit.enable" in refused.value.hint
    assert await rows_of(db) == []

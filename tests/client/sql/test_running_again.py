"""`producer.run(work, db=…)` does work again that others at the same time undid, and `wait="decided"`."""

import asyncio

import pytest
from eventually import wait_until
from fencepost.client.errors import RetriableError
from fencepost.client.transactions.sqlstates import sqlstate_of
from orders import TABLE, records_of, rows_of, write

from fencepost import Producer, sql

pytestmark = pytest.mark.slow  # with a real database


@pytest.fixture(params=["asyncpg", "psycopg"])
async def db(request, postgres_url):
    async with sql.connect(postgres_url.replace("postgresql:", f"postgresql+{request.param}:"), create=True) as db:
        await db.execute(TABLE)
        await db.execute("insert into orders values (1, 'alice')")
        yield db


async def read_name(db, tx):
    """Send a record, and return the name of order 1. From this read on (repeatable read) an update of the order fails
    with a serialization failure, if another transaction has updated it meanwhile.
    """
    await db.execute("set transaction isolation level repeatable read")
    ((name,),) = await db.fetch("select name from orders where id = 1")
    await tx.send("orders", b"1")
    return name


async def test_producer_run_repeats_rows_and_records_after_a_serialization_failure(broker, db, postgres_url):
    seen = []
    async with sql.connect(postgres_url) as other, Producer(broker, transactional_id="orders-1") as producer:

        async def work(tx):
            seen.append(await read_name(db, tx))
            if len(seen) < 3:
                await other.execute("update orders set name = $1 where id = 1", f"other {len(seen)}")
            await db.execute("update orders set name = 'ours' where id = 1")
            return len(seen)

        assert await producer.run(work, db=db) == 3
    assert seen == ["alice", "other 1", "other 2"]
    assert await db.fetch("select name from orders") == [("ours",)]
    assert await records_of(broker) == [1]


async def test_producer_run_retries_only_serialization_failures_and_then_raises_them(broker, db, postgres_url):
    seen = []
    async with sql.connect(postgres_url) as other, Producer(broker, transactional_id="orders-1") as producer:

        async def never(tx):
            seen.append(await read_name(db, tx))
            await other.execute("update orders set name = $1 where id = 1", f"other {len(seen)}")
            await db.execute("update orders set name = 'ours' where id = 1")

        async def wrong(tx):
            seen.append(None)
            await db.execute("insert into orders values (1, 'bob')")

        for work, retries, state, count in ((never, 1, "40001", 2), (wrong, 3, "23505", 1)):
            seen.clear()
            with pytest.raises(Exception) as raised:  # the driver's
                await producer.run(work, db=db, retries=retries)
            assert (sqlstate_of(raised.value), len(seen)) == (state, count)
    assert await records_of(broker) == []


async def test_a_wait_decided_transaction_ends_before_the_broker_knows_and_the_next_waits(broker, db):
    """wait="decided" ends the transaction as soon as the database has committed."""
    async with Producer(broker, transactional_id="orders-1") as producer:
        await write(producer, db, 2)
        decisions = producer._driver.databases._decisions
        end, tell = decisions.end, asyncio.Event()

        async def slowly(*arguments):
            await tell.wait()
            return await end(*arguments)

        decisions.end = slowly
        async with producer.transaction(db=db, wait="decided") as tx:
            await db.execute("insert into orders values (3, 'alice')")
            await tx.send("orders", b"3")
        assert (tx.outcome, await rows_of(db)) == ("committed", [1, 2, 3])
        next_one = asyncio.ensure_future(write(producer, db, 4))
        await asyncio.sleep(0)
        assert not next_one.done()
        tell.set()
        await next_one
    assert await records_of(broker) == [2, 3, 4]


async def test_closing_a_producer_after_a_wait_decided_transaction_tells_the_broker(broker, db):
    async with (
        Producer(broker, transactional_id="orders-1") as producer,
        producer.transaction(db=db, wait="decided") as tx,
    ):
        await db.execute("insert into orders values (2, 'alice')")
        await tx.send("orders", b"2")
    assert await records_of(broker) == [2]


async def test_after_wait_decided_an_outcome_unknown_to_the_broker_is_sent_before_the_next(broker, db, caplog):
    async with Producer(broker, transactional_id="orders-1", max_block_ms=300) as producer:
        await write(producer, db, 2)
        decisions = producer._driver.databases._decisions
        end = decisions.end

        async def fail(*arguments):
            raise RetriableError("no answer")

        decisions.end = fail
        async with producer.transaction(db=db, wait="decided") as tx:
            await db.execute("insert into orders values (3, 'alice')")
            await tx.send("orders", b"3")
        await asyncio.to_thread(wait_until, lambda: "readers wait until it is told" in caplog.text)
        decisions.end = end
        await write(producer, db, 4)
    assert await records_of(broker) == [2, 3, 4]

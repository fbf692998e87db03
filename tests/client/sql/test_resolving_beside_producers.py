"""`sql.resolve` while the producers of the transactions are alive, and end them at that moment."""

import asyncio

import pytest
from orders import TABLE, records_of, rows_of, write

from fencepost import Producer, sql

pytestmark = pytest.mark.slow  # with a real database


def hold_back(producer):
    """Have the producer wait with telling the broker its decisions. Returns the event that ends the wait."""
    may_end, end = asyncio.Event(), producer._driver.databases._decisions.end

    async def end_later(*arguments):
        await may_end.wait()
        return await end(*arguments)

    producer._driver.databases._decisions.end = end_later
    return may_end


async def leave_prepared(producer, db, number):
    """Commit a transaction in the database, and return before the broker is told: there it is prepared."""
    async with producer.transaction(db=db, wait="decided") as tx:
        await db.execute("insert into orders values ($1, 'alice')", number)
        await tx.send("orders", b"%d" % number)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_resolve_leaves_out_a_transaction_that_its_producer_ends_meanwhile(broker, tmp_path, dry_run):
    """orders-2 goes on to its next transaction after resolve has seen both waiting."""
    url = f"sqlite:///{tmp_path}/orders.db"
    async with (
        sql.connect(url) as resolver,
        sql.connect(url) as first,
        sql.connect(url) as second,
        Producer(broker, transactional_id="orders-1") as slow,
        Producer(broker, transactional_id="orders-2") as quick,
    ):
        await resolver.execute(TABLE)
        slow_may_end, quick_may_end = hold_back(slow), hold_back(quick)
        await leave_prepared(slow, first, 1)
        await leave_prepared(quick, second, 2)
        read_row = resolver.read_row

        async def read_late(transactional_id):
            if not quick_may_end.is_set():
                quick_may_end.set()
                await write(quick, second, 3)
            return await read_row(transactional_id)

        resolver.read_row = read_late
        found = await sql.resolve(broker, resolver, dry_run=dry_run)
        assert [(each.transactional_id, each.result) for each in found] == [("orders-1", "committed")]
        slow_may_end.set()
    async with sql.connect(url) as db:
        assert await rows_of(db) == sorted(await records_of(broker)) == [1, 2, 3]

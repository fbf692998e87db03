"""A consumer whose work is outside of the broker: done once, if its database keeps the place beside the work.

That is what docs/sdk.md says to do with a database that cannot take part. A crash comes before the database commits,
before the offsets are committed, or after.
"""

import sqlite3
from contextlib import closing

import pytest
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.producer.producer import Producer
from txn_world import BOOTSTRAP, within

PLACE = """
insert into places values (?, ?, ?)
on conflict (topic, partition) do update set offset = excluded.offset where excluded.offset > offset
"""
RECORDS = [b"%d" % n for n in range(6)]


class Crash(Exception):
    pass


def database():
    rows = sqlite3.connect(":memory:")
    rows.execute("create table places (topic, partition, offset, primary key (topic, partition))")
    rows.execute("create table bills (order_id)")
    return rows


async def bill(world, rows, crash="", *, keeps_place=True):
    """Bill all orders, each batch in a transaction of the database with the records' offsets (`keeps_place`), which
    refuses an offset that it has. crash: where in the first batch Crash is raised.
    """
    consumer = Consumer(
        BOOTSTRAP,
        topics=["orders"],
        group_id="billing",
        auto_offset_reset="earliest",
        environment=world.world.environment,
    )
    async with consumer:
        await consumer.assigned()
        while sum((await consumer.lag()).values()):
            batch = await anext(consumer.batches(max_records=2))
            with rows:
                for record in batch:
                    place = record.topic, record.partition, record.offset
                    if rows.execute(PLACE, place).rowcount or not keeps_place:
                        rows.execute("insert into bills values (?)", (record.value,))
                if crash == "in the work":
                    raise Crash
            if crash == "before the commit":
                raise Crash
            await consumer.commit(batch.offsets)
            if crash == "after the commit":
                raise Crash


async def write(world):
    async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
        for value in RECORDS:
            await producer.send_and_wait("orders", value)


async def billed(world, crash, **how):
    await write(world)
    with closing(database()) as rows:
        with pytest.raises(Crash):
            await bill(world, rows, crash, **how)
        await bill(world, rows, **how)
        return [value for (value,) in rows.execute("select order_id from bills")]


@pytest.mark.slow
@pytest.mark.requirement("S-137", "S-92")
@pytest.mark.parametrize("crash", ["in the work", "before the commit", "after the commit"])
def test_a_batch_whose_processing_is_interrupted_at_any_point_has_effects_once(crash):
    async def main(world):
        assert await billed(world, crash) == RECORDS

    within(main)


@pytest.mark.requirement("S-137", "S-09")
def test_without_offsets_in_the_transaction_some_records_are_processed_twice():
    """This checks that the test above can fail: without the offsets, the first two records are processed twice."""

    async def main(world):
        assert await billed(world, "before the commit", keeps_place=False) == RECORDS[:2] + RECORDS

    within(main)


@pytest.mark.requirement("S-137")
def test_a_member_unaware_of_its_removal_processes_nothing_twice():
    """Both members have read the same records. The database accepts each offset from one of them only."""

    async def main(world):
        await write(world)
        with closing(database()) as rows:
            await bill(world, rows)
            for offset, value in enumerate(RECORDS):  # the removed member, which bills what it has read before
                if rows.execute(PLACE, ("orders", 0, offset)).rowcount:
                    rows.execute("insert into bills values (?)", (value,))
            assert [value for (value,) in rows.execute("select order_id from bills")] == RECORDS

    within(main)

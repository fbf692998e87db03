"""The command, killed again and again while four writers insert into PostgreSQL: each row once, a key's in order."""

import asyncio
import random
import sys

import pytest
from fencepost.client.sql.outbox.relaying import Way
from fencepost.client.sql.outbox.statements import outbox_schema
from outbox_rows import insert_until

from fencepost import Broker, Consumer, TopicPartition, sql

KILLS = 6


async def values_of(broker, topic):
    """Return the values that a read_committed reader gets up to the last stable offset."""
    partition = TopicPartition(topic, 0)
    found = []
    async with Consumer(broker, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            found += [one.value for some in (await consumer.getmany(timeout_ms=500)).values() for one in some]
    return found


async def is_sending(db):
    """Return whether the row that is now the first one is gone after 0.1 s: a relay has sent and deleted it."""
    [(first,)] = await db.fetch("select min(position) from outbox")
    await asyncio.sleep(0.1)
    return first is not None and await db.fetch("select min(position) from outbox") != [(first,)]


@pytest.mark.long
@pytest.mark.parametrize("by", [way.value for way in Way])
async def test_killed_relays_of_postgresql_send_each_row_once_and_in_order(tmp_path, postgres_url, by):
    async with (
        Broker(data_dir=tmp_path, transaction_two_phase_commit_enable=True, num_partitions=1) as broker,
        sql.connect(postgres_url, create=True) as db,
    ):
        for statement in outbox_schema("postgresql", "outbox"):
            await db.execute(statement)
        where = ["-b", broker.bootstrap_servers, "--db", postgres_url, "--to", "orders", "--by", by, "--at-once", "20"]
        words = [sys.executable, "-m", "fencepost", "outbox", *where]
        done = asyncio.Event()
        writers = [asyncio.ensure_future(insert_until(postgres_url, key, done)) for key in b"abcd"]
        random_number = random.Random(by)
        for _ in range(KILLS):
            relay = await asyncio.create_subprocess_exec(*words)
            while relay.returncode is None and not await is_sending(db):
                pass
            assert relay.returncode is None  # it has sent rows, and still runs
            await asyncio.sleep(random_number.random() * 0.5)
            relay.kill()
            await relay.wait()
        done.set()
        written = await asyncio.gather(*writers)
        last = await asyncio.create_subprocess_exec(*words, "--until-empty")
        assert await last.wait() == 0
        found = await values_of(broker.bootstrap_servers, "orders")
        for key, rows in zip(b"abcd", written, strict=True):
            assert [value for value in found if value[0] == key] == rows
        assert len(found) == sum(map(len, written))
        assert await db.fetch("select count(*) from outbox") == [(0,)]

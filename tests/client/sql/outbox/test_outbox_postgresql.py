"""Relays from PostgreSQL, at a real broker: rows that commit late, in three ways; and the usual relays, which fail."""

import asyncio
import random

import asyncpg
import pytest
from fencepost.client.sql.outbox.relaying import Way
from fencepost.client.sql.outbox.statements import outbox_schema

from fencepost import Broker, Consumer, TopicPartition, sql

WAYS = [way.value for way in Way]


@pytest.fixture(scope="module")
def broker():
    with Broker(transaction_two_phase_commit_enable=True, num_partitions=1) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
async def db(postgres_url):
    async with sql.connect(postgres_url, create=True) as db:
        for statement in outbox_schema("postgresql", "outbox"):
            await db.execute(statement)
        yield db


@pytest.fixture
async def writers(postgres_url, db):
    """Give four connections, over which writers insert rows."""
    connections = [await asyncpg.connect(postgres_url) for _ in range(4)]
    yield connections
    for each in connections:
        each.terminate()


async def insert(connection, *values):
    await connection.executemany(
        "insert into outbox (key, value) values ($1, $2)", [(value[:1], value) for value in values]
    )


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


class Ours:
    """The relay of the SDK."""

    def __init__(self, broker, db, by):
        self._broker, self._topic = broker, f"late-{by}-{random.getrandbits(32)}"
        self._relay = sql.outbox(broker, db, to=self._topic, name=self._topic, by=by)

    async def move(self):
        await self._relay.run(until_empty=True)

    async def values(self):
        await self._relay.close()
        return await values_of(self._broker, self._topic)


class Naive:
    """A relay that others would write; its records are a list. query: the rows after its place, each with the place
    that it stands for.
    """

    def __init__(self, broker, db, query):
        self._db, self._query, self._place, self._records = db, query, (0, 0), []

    async def move(self):
        for value, *place in await self._db.fetch(self._query, *self._place):
            self._records.append(value)
            self._place = tuple(place)

    async def values(self):
        return self._records


SETTLED = "xmin::text::bigint < pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
NAIVE = {
    "the largest id": ("select value, $1::bigint, position from outbox where position > $2::bigint order by position"),
    "the id as sequence, behind xmin": (
        f"select value, $1::bigint, position from outbox where {SETTLED} and position > $2::bigint order by position"
    ),
    "by transaction id and id": (
        f"select value, xmin::text::bigint, position from outbox "
        f"where {SETTLED} and (xmin::text::bigint, position) > ($1::bigint, $2::bigint) order by 2, 3"
    ),
}


async def late_commits(relay, writers):
    """Commit rows in another order than that of their ids or transactions, in three ways; the relay runs in between."""
    one, two, three, four = writers
    first = one.transaction()
    await first.start()
    await insert(one, b"a1")  # the first id, committed late
    await insert(two, b"b1")
    await relay.move()
    await first.commit()
    await relay.move()
    first, second = three.transaction(), four.transaction()
    await first.start()
    await three.fetch("select pg_current_xact_id()")
    await second.start()
    await four.fetch("select pg_current_xact_id()")
    await insert(four, b"a2")  # the earlier id, in the later transaction
    await insert(three, b"b2")
    await first.commit()
    await relay.move()
    await second.commit()
    await relay.move()
    first, second = three.transaction(), four.transaction()
    await first.start()
    await three.fetch("select pg_current_xact_id()")
    await insert(four, b"a3")
    await insert(three, b"a4")  # after a3 was committed, in an earlier transaction
    await first.rollback()  # a gap
    await insert(four, b"a5")
    first = three.transaction()
    await first.start()
    await three.fetch("select pg_current_xact_id()")
    await insert(four, b"a6")
    await insert(three, b"a7")
    await first.commit()
    await relay.move()


def check(found):
    """Compare what readers got with the rows: each once, and those of a key in their order."""
    assert sorted(found) == [b"a1", b"a2", b"a3", b"a5", b"a6", b"a7", b"b1", b"b2"]
    assert [value for value in found if value[:1] == b"a"] == [b"a1", b"a2", b"a3", b"a5", b"a6", b"a7"]


@pytest.mark.slow
@pytest.mark.parametrize("by", WAYS)
async def test_rows_that_are_committed_late_are_sent_once_and_in_the_order_of_their_key(broker, db, writers, by):
    relay = Ours(broker, db, by)
    await late_commits(relay, writers)
    check(await relay.values())
    assert await db.fetch("select count(*) from outbox") == [(0,)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAIVE)
async def test_naive_relays_lose_rows_that_are_committed_late_or_change_their_order(broker, db, writers, name):
    """The check of the test above raises for each of them: so it can fail."""
    relay = Naive(broker, db, NAIVE[name])
    await late_commits(relay, writers)
    with pytest.raises(AssertionError):
        check(await relay.values())


async def write(connection, key, count, seed):
    """Insert rows of this key in transactions that last for a while; some are rolled back. Returns the committed rows
    in order.
    """
    random_number, written = random.Random(seed), []
    for number in range(count):
        block = connection.transaction()
        await block.start()
        rows = [b"%c%d-%d" % (key, number, each) for each in range(random_number.randrange(1, 4))]
        await insert(connection, *rows)
        await asyncio.sleep(random_number.random() * 0.01)
        if random_number.random() < 0.2:
            await block.rollback()
        else:
            await block.commit()
            written += rows
    return written


@pytest.mark.slow
@pytest.mark.parametrize("by", WAYS)
async def test_two_relays_at_once_send_rows_of_four_writers_once_and_in_order(broker, db, writers, postgres_url, by):
    topic = f"four-{by}"

    async def relay():
        """Run relays one after the other, each for at most 0.3 s. Each fences the one that the other task runs."""
        async with sql.connect(postgres_url) as own:
            while not done.is_set():
                async with sql.outbox(broker, own, to=topic, by=by, at_once=5) as one:
                    running = asyncio.ensure_future(one.run())
                    await asyncio.wait({running}, timeout=0.3)
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)

    done = asyncio.Event()
    relays = [asyncio.ensure_future(relay()) for _ in range(2)]
    written = await asyncio.gather(*(write(each, 97 + at, 60, at) for at, each in enumerate(writers)))
    done.set()
    await asyncio.gather(*relays)
    async with sql.outbox(broker, db, to=topic, by=by) as last:
        await last.run(until_empty=True)
    found = await values_of(broker, topic)
    for key, rows in enumerate(written, 97):
        assert [value for value in found if value[0] == key] == rows
    assert len(found) == sum(map(len, written))

"""The inbox: each record's effect is in the database once, whatever happens to consumers and database."""

import asyncio
import contextlib
import itertools

import pytest
from cancelled_everywhere import at_every_turn
from fencepost.client.errors import (
    AbortableTransactionError,
    CommitOutcomeUnknownError,
    IllegalStateError,
    InboxFencedError,
    InvalidConfigurationError,
    NoOffsetError,
)
from fencepost.client.transactions.participant import DatabaseAway
from reading import make, member, write

from fencepost import Admin, Broker, Consumer, NewTopic, Producer, TopicPartition, sql

pytestmark = [pytest.mark.slow, pytest.mark.sampled]  # with a real database

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
async def broker(tmp_path):
    async with Broker(data_dir=tmp_path / "broker", transaction_two_phase_commit_enable=True) as broker:
        async with Admin(broker.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("orders", 2), NewTopic("bills", 1)])
        yield broker.bootstrap_servers


@pytest.fixture(params=["sqlite", "postgresql"])
def url(tmp_path, request):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/bills.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
async def db(url):
    async with sql.connect(url, create=True) as db:
        await db.execute("create table effects (partition_number integer, value text)")
        yield db


@contextlib.asynccontextmanager
async def reading(broker, *partitions, reset="earliest"):
    async with Consumer(broker, group_id="billing", auto_offset_reset=reset) as consumer:
        consumer.assign(partitions or [FIRST])
        yield consumer


async def send(broker, *values, partition=0):
    async with Producer(broker) as producer:
        for value in values:
            await producer.send_and_wait("orders", b"%d" % value, partition=partition)


async def note(db, new):
    for record in new:
        await db.execute("insert into effects values ($1, $2)", record.partition, record.value.decode())


async def work(db, batch):
    async with sql.inbox(db, batch) as new:
        await note(db, new)


async def drain(db, consumer, count):
    """Work on batches until the table `effects` has `count` rows."""
    batches = consumer.batches()
    async with asyncio.timeout(30):
        while (await db.fetch("select count(*) from effects"))[0][0] < count:
            await work(db, await anext(batches))


async def effects(db, partition=0):
    found = await db.fetch("select value from effects where partition_number = $1", partition)
    return [int(value) for (value,) in found]


async def places(db, partition=0):
    """Return the next offset that is stored for the partition, in a list; [] if there is none."""
    found = await db.fetch("select next_offset from fencepost_places where partition = $1", partition)
    return [place for (place,) in found]


async def shown(broker):
    """Return the offset that the group has committed at the broker; None if there is none."""
    async with Consumer(broker, group_id="billing") as consumer:
        consumer.assign([FIRST])
        found = (await consumer.committed(FIRST))[FIRST]
        return None if found is None else found.offset


async def test_an_inbox_commits_rows_with_the_next_offset_where_the_next_consumer_goes_on(broker, db):
    """The next offset of a group in a partition (its "place") stands in the user's database and moves in the same
    database transaction as the effects."""
    await send(broker, 0, 1, 2)
    async with reading(broker) as consumer:
        await drain(db, consumer, 3)
    assert (await effects(db), await places(db), await shown(broker)) == ([0, 1, 2], [3], 3)
    await send(broker, 3)
    async with reading(broker) as consumer:
        await drain(db, consumer, 4)
    assert await effects(db) == [0, 1, 2, 3]


@pytest.mark.slow
async def test_an_inbox_works_with_the_psycopg_driver(broker, postgres_url):
    async with (
        sql.connect(postgres_url.replace("postgresql:", "postgresql+psycopg:"), create=True) as db,
        reading(broker) as consumer,
        Producer(broker, transactional_id="bills-1") as producer,
    ):
        await db.execute("create table effects (partition_number integer, value text)")
        await send(broker, 0, 1)
        batches = consumer.batches(1)
        await work(db, await anext(batches))
        async with producer.transaction(db=db) as tx, sql.inbox(db, await anext(batches)) as new:
            await note(db, new)
            await tx.send("bills", b"1")
        await send(broker, 2)
        batch = await anext(batches)
        await db.execute("update fencepost_places set claim = claim + 1")
        with pytest.raises(InboxFencedError):
            await work(db, batch)
        await drain(db, consumer, 3)
        assert await effects(db) == [0, 1, 2]


async def test_an_exception_in_an_inbox_undoes_its_rows_and_the_batch_can_be_used_again(broker, db):
    await send(broker, 0, 1)
    async with reading(broker) as consumer:
        batch = await anext(consumer.batches())
        with pytest.raises(ValueError, match="no"):  # noqa: PT012
            async with sql.inbox(db, batch) as new:
                await note(db, new)
                raise ValueError("no")
        assert (await effects(db), await places(db)) == ([], [0])
        await work(db, batch)  # the same batch may be tried again
        await send(broker, 2)
        await drain(db, consumer, 3)
    assert await effects(db) == [0, 1, 2]


async def test_an_inbox_applies_no_record_twice_if_committed_offsets_are_behind_or_deleted(broker, db):
    await send(broker, 0, 1, 2)
    async with reading(broker) as consumer:
        await drain(db, consumer, 3)
    async with Admin(broker) as admin:
        await admin.delete_groups(["billing"])
    await send(broker, 3)
    async with reading(broker) as consumer:
        await drain(db, consumer, 4)  # a batch of all four
        consumer.seek(FIRST, 1)  # the place decides
        await send(broker, 4)
        await drain(db, consumer, 5)
    assert await effects(db) == [0, 1, 2, 3, 4]


async def test_an_inbox_without_a_stored_offset_begins_at_the_groups_committed_offset(broker, db):
    await send(broker, 0, 1, 2)
    async with reading(broker) as consumer:
        await consumer.commit({FIRST: 2})
    async with reading(broker) as consumer:
        await drain(db, consumer, 1)
    assert await effects(db) == [2]


async def test_with_latest_an_inbox_stores_the_end_offset_before_it_reads_a_record(broker, db):
    await send(broker, 0)
    async with reading(broker, reset="latest") as consumer:
        await sql.keep_places(db, consumer)
        await consumer.position(FIRST)
    assert await places(db) == [1]
    await send(broker, 1)
    async with reading(broker, reset="latest") as consumer:
        await sql.keep_places(db, consumer)
        await drain(db, consumer, 1)
    assert await effects(db) == [1]


async def test_without_committed_offset_and_reset_policy_an_inbox_stores_no_offset(broker, db):
    async with reading(broker, reset=None) as consumer:
        await sql.keep_places(db, consumer)
        with pytest.raises(NoOffsetError):
            await consumer.position(FIRST)
    assert await places(db) == []


async def test_an_inbox_whose_partition_another_consumer_claimed_is_fenced_at_its_commit(broker, db, url):
    await send(broker, 0, 1, 2)
    async with reading(broker) as zombie, reading(broker) as owner, sql.connect(url) as own:
        batches = zombie.batches(1)
        await work(db, await anext(batches))
        await drain(own, owner, 3)
        batch = await anext(batches)
        with pytest.raises(InboxFencedError, match="orders-0"):
            await work(db, batch)
        assert await effects(db) == [0, 1, 2]
        await send(broker, 3)
        await drain(db, zombie, 4)  # it claims again
        with pytest.raises(InboxFencedError):
            await fail_until_fenced(broker, own, owner)
        await drain(own, owner, 5)
    assert await effects(db) == [0, 1, 2, 3, 4]


async def fail_until_fenced(broker, db, consumer):
    await send(broker, 4)
    await drain(db, consumer, 5)


async def test_an_inbox_fails_a_whole_batch_if_it_lost_one_of_its_two_partitions(broker, db, url):
    """The other partition's records are read again and applied, each once."""
    await send(broker, 0, 1)
    await send(broker, 10, 11, partition=1)
    async with (
        reading(broker, FIRST, SECOND) as both,
        reading(broker, SECOND) as owner,
        sql.connect(url) as own,
    ):
        batch = await anext(both.batches(max_wait_ms=500))
        assert len(batch.offsets) == 2
        await sql.keep_places(db, both)
        await drain(own, owner, 2)
        with pytest.raises(InboxFencedError, match="orders-1"):
            await work(db, batch)
        assert await effects(db) == []
        await drain(db, both, 4)
    assert (await effects(db), await effects(db, 1)) == ([0, 1], [10, 11])


async def test_inbox_batches_committed_in_another_order_than_read_apply_no_record_twice(broker, db):
    await send(broker, 0, 1, 2)
    async with reading(broker) as consumer:
        batches = consumer.batches(1)
        first, second = await anext(batches), await anext(batches)
        await work(db, second)
        await work(db, first)
        await drain(db, consumer, 3)
    assert await effects(db) == [0, 1, 2]


async def test_an_inbox_stores_a_separate_offset_for_a_topic_deleted_and_recreated(broker, db):
    await send(broker, 0, 1, 2)
    async with reading(broker) as consumer:
        await drain(db, consumer, 3)
    async with Admin(broker) as admin:
        await admin.delete_topics(["orders"])
        await admin.create_topics([NewTopic("orders", 2)])
    await send(broker, *range(10, 15))
    async with Consumer(broker, group_id="billing") as consumer:
        await consumer.commit({FIRST: 3})  # as a consumer of the old topic may do late
    async with reading(broker) as consumer:
        await drain(db, consumer, 8)
    assert await effects(db) == [0, 1, 2, *range(10, 15)]
    assert sorted(await places(db)) == [3, 5]


async def test_an_inbox_reads_a_topic_recreated_under_its_running_consumer_from_its_start(broker, db):
    await send(broker, 0, 1)
    async with reading(broker) as consumer:
        await drain(db, consumer, 2)
        async with Admin(broker) as admin:
            await admin.delete_topics(["orders"])
            await admin.create_topics([NewTopic("orders", 2)])
        await send(broker, 10, 11, 12)
        await asyncio.sleep(0)
        with contextlib.suppress(Exception):  # the first try may fail: the consumer still has the old topic's id
            await drain(db, consumer, 5)
        await drain(db, consumer, 5)
    assert await effects(db) == [0, 1, 10, 11, 12]


@pytest.mark.parametrize("reset", ["earliest", None])
async def test_an_inbox_offset_whose_records_were_deleted_is_reset_by_auto_offset_reset(broker, db, reset):
    await send(broker, 0)
    async with reading(broker) as consumer:
        await drain(db, consumer, 1)
    await send(broker, 1, 2, 3)
    async with Admin(broker) as admin:
        await admin.delete_records({FIRST: 3})
    async with reading(broker, reset=reset) as consumer:
        await sql.keep_places(db, consumer)
        if reset is None:
            with pytest.raises(Exception, match="outside the log"):
                await anext(consumer.batches())
            return
        await drain(db, consumer, 2)
        assert await places(db) == [4]
    assert await effects(db) == [0, 3]


@pytest.mark.parametrize(
    ("keywords", "name", "error"),
    [
        ({"group_id": "g", "isolation_level": "read_uncommitted"}, "read_uncommitted", InvalidConfigurationError),
        ({"group_id": "g", "enable_auto_commit": True}, "enable_auto_commit", IllegalStateError),
        ({}, "group_id", InvalidConfigurationError),
    ],
)
async def test_an_inbox_refuses_a_consumer_whose_settings_could_repeat_or_lose_records(
    broker, db, keywords, name, error
):
    await send(broker, 0)
    async with Consumer(broker, auto_offset_reset="earliest", **keywords) as consumer:
        with pytest.raises(InvalidConfigurationError, match=name):
            await sql.keep_places(db, consumer)
        consumer.assign([FIRST])
        batch = await anext(consumer.batches())
        with pytest.raises(error, match=name):
            await work(db, batch)


async def test_an_inbox_commit_without_an_answer_is_looked_up_in_the_database_as_committed(broker, db):
    await send(broker, 0, 1)
    commit = db.commit

    async def lose_answer():
        await commit()
        raise ConnectionError("gone")

    async with reading(broker) as consumer:
        batches = consumer.batches(1)
        batch = await anext(batches)
        db.commit = lose_answer
        await work(db, batch)
        db.commit = commit
        await work(db, await anext(batches))
    assert await effects(db) == [0, 1]


async def test_an_inbox_whose_commit_is_refused_raises_and_its_batch_is_read_again(broker, db):
    if db.dialect == "sqlite":
        await db.execute("pragma foreign_keys = on")
    await db.execute("create table users (id integer primary key)")
    await db.execute("create table lines (id integer references users (id) deferrable initially deferred)")
    await send(broker, 0)
    async with reading(broker) as consumer:
        batch = await anext(consumer.batches())
        with pytest.raises(Exception, match=r"(?i)foreign key"):
            async with sql.inbox(db, batch):
                await db.execute("insert into lines values (7)")
        await drain(db, consumer, 1)
    assert await effects(db) == [0]


@pytest.mark.parametrize("error", [DatabaseAway("gone"), InvalidConfigurationError("no rights")])
@pytest.mark.parametrize("did_commit", [True, False])
async def test_an_inbox_commit_without_an_answer_is_unknown_until_the_database_is_back(broker, db, did_commit, error):
    await send(broker, 0, 1)
    commit, run_alone = db.commit, db.run_alone

    async def fail():
        if did_commit:
            await commit()
        raise ConnectionError("gone")

    async def be_away(statements):
        raise error

    async with reading(broker) as consumer:
        batch = await anext(consumer.batches(1))
        await sql.keep_places(db, consumer)
        with pytest.raises(CommitOutcomeUnknownError) as unknown:  # noqa: PT012
            async with sql.inbox(db, batch) as new:
                await note(db, new)
                db.commit, db.run_alone = fail, be_away
        assert await unknown.value.resolve() == "unknown"
        db.commit, db.run_alone = commit, run_alone
        assert await unknown.value.resolve() == ("committed" if did_commit else "aborted")
        await drain(db, consumer, 2)
    assert await effects(db) == [0, 1]


async def test_an_inbox_cancelled_during_its_commit_is_committed_and_not_read_again(broker, db):
    await send(broker, 0, 1)
    commit, has_begun, may_go_on = db.commit, asyncio.Event(), asyncio.Event()

    async def be_slow():
        has_begun.set()
        await may_go_on.wait()
        await commit()

    async with reading(broker) as consumer:
        batches = consumer.batches(1)
        batch = await anext(batches)
        db.commit = be_slow
        working = asyncio.create_task(work(db, batch))
        await has_begun.wait()
        working.cancel()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await working
        db.commit = commit
        await work(db, await anext(batches))
    assert await effects(db) == [0, 1]


@pytest.mark.slow
def test_an_inbox_cancelled_at_any_await_applies_each_record_once(tmp_path):
    """The caller reads on, with the same consumer and the same database."""
    files = itertools.count()

    async def main(world, cancelling):
        await make(world)
        await write(world, b"0", b"1")
        async with sql.connect(f"sqlite:///{tmp_path}/{next(files)}.db") as db, member(world) as consumer:
            await db.execute("create table effects (partition_number integer, value text)")
            batch = await anext(consumer.batches(1))
            with contextlib.suppress(asyncio.CancelledError):
                await cancelling(work(db, batch))
            await drain(db, consumer, 2)
            assert await effects(db) == [0, 1]

    assert at_every_turn(main) > 10


async def test_reading_with_an_inbox_waits_while_the_database_is_down_and_then_goes_on(broker, db, caplog):
    await send(broker, 0)
    run_alone = db.run_alone

    async def be_away(statements):
        raise DatabaseAway("it is away")

    async with reading(broker) as consumer:
        consumer.assign([])
        await sql.keep_places(db, consumer)
        db.run_alone = be_away
        consumer.assign([FIRST])
        assert await anext(consumer.batches(timeout_ms=500), None) is None
        assert "nothing is read of orders-0 until the database says where to go on: it is away" in caplog.text
        db.run_alone = run_alone
        await drain(db, consumer, 1)
    assert await effects(db) == [0]


async def test_an_inbox_in_a_producer_transaction_commits_rows_offset_and_records_together(broker, db):
    await send(broker, 0, 1)
    async with reading(broker) as consumer, Producer(broker, transactional_id="bills-1") as producer:
        batch = await anext(consumer.batches(1))
        with pytest.raises(ValueError, match="no"):  # noqa: PT012
            async with producer.transaction(db=db) as tx, sql.inbox(db, batch) as new:
                await note(db, new)
                await tx.send("bills", b"lost")
                raise ValueError("no")
        assert (await effects(db), await places(db)) == ([], [])
        async for again in consumer.batches(1, timeout_ms=1_000):
            async with producer.transaction(db=db) as tx, sql.inbox(db, again) as new:
                await note(db, new)
                for record in new:
                    await tx.send("bills", record.value)
    assert (await effects(db), await places(db)) == ([0, 1], [2])
    async with Consumer(broker, auto_offset_reset="earliest") as bills:
        bills.assign([TopicPartition("bills", 0)])
        found = []
        async for some in bills.batches(timeout_ms=500):
            found += [record.value for record in some]
    assert found == [b"0", b"1"]


async def test_a_transaction_that_swallowed_the_error_of_an_inbox_is_aborted(broker, db):
    await send(broker, 0)
    async with reading(broker) as consumer, Producer(broker, transactional_id="bills-1") as producer:
        batch = await anext(consumer.batches())
        with pytest.raises(AbortableTransactionError, match="the inbox within it failed"):  # noqa: PT012
            async with producer.transaction(db=db) as tx:
                await tx.send("bills", b"lost")
                with contextlib.suppress(ValueError):
                    async with sql.inbox(db, batch) as new:
                        await note(db, new)
                        raise ValueError("no")
        assert await effects(db) == []
        await drain(db, consumer, 1)
    assert await effects(db) == [0]

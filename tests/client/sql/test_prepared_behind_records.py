"""A commit with a database sends PrepareTxn right after its last records, before these are acknowledged. If one of the
two is refused or gets no answer, rows and records still are the same, and nothing is left prepared.
"""

import contextlib
import itertools

import pytest
from fencepost.client.errors import AbortableTransactionError, KafkaError, ProducerFencedError
from fencepost.client.transactions.decisions import Decisions
from fencepost.client.transactions.sql_commits import DatabaseCommits
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import CreateTopicsRequest
from reading import make
from txn_world import within

from fencepost import sql


@pytest.fixture
def opened(tmp_path):
    """Give a function that opens a new database with orders."""
    files = itertools.count()

    @contextlib.asynccontextmanager
    async def opened():
        async with sql.connect(f"sqlite:///{tmp_path}/{next(files)}.db") as db:
            await db.execute("create table orders (id integer primary key)")
            yield db

    return opened


async def write(producer, db, *numbers):
    """Write rows and records in one transaction. All records but the last are acknowledged before its end."""
    async with producer.transaction(db=db) as tx:
        for number in numbers:
            await db.execute("insert into orders values ($1)", number)
            send = tx.send if number == numbers[-1] else tx.send_and_wait
            await send("t", b"%d" % number)


async def check(world, db, *numbers):
    """Assert that these are the rows and the records, and that nothing is prepared."""
    assert await world.values() == [b"%d" % number for number in numbers]
    await check_rows(world, db, *numbers)


async def check_rows(world, db, *numbers):
    """Assert that these are the rows, and that nothing is prepared."""
    assert [row[0] for row in await db.fetch("select id from orders order by id")] == list(numbers)
    assert list(world.broker.transactions.prepared.on(f"sql:{db.database_id}:x")) == []


def in_world(main, opened):
    """Run main(world, producer, db) in a world with a topic, after a first commit of number 0."""

    async def run(world):
        await make(world)
        async with opened() as db:
            producer = await world.producer()
            await write(producer, db, 0)
            await main(world, producer, db)

    within(run, 2, transaction_two_phase_commit_enable=True)


def test_one_sync_makes_the_last_record_and_the_prepared_state_durable(opened):
    async def main(world, producer, db):
        before = world.broker.rounds.finished
        await write(producer, db, 1)
        assert world.broker.rounds.finished - before == 2, "one for the record and PrepareTxn, one for EndTxns"
        await check(world, db, 0, 1)

    in_world(main, opened)


@pytest.mark.parametrize("numbers", [(1,), (1, 2)])
@pytest.mark.parametrize("api", ["Produce", "PrepareTxn"])
@pytest.mark.parametrize("when", ["before_write", "after_write"])
def test_a_connection_lost_after_the_last_record_does_not_fail_the_commit(opened, numbers, api, when):
    async def main(world, producer, db):
        world.faults.disconnect(api, when=when).on_call(len(numbers) if api == "Produce" else 1)
        await write(producer, db, *numbers)
        await check(world, db, 0, *numbers)

    in_world(main, opened)


@pytest.mark.parametrize("code", ["NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"])
def test_a_record_refused_before_anything_is_prepared_is_sent_again_and_commits(opened, code):
    async def main(world, producer, db):
        world.faults.error("Produce", code).once()
        await write(producer, db, 1)
        await check(world, db, 0, 1)

    in_world(main, opened)


@pytest.mark.parametrize("code", ["INVALID_RECORD", "MESSAGE_TOO_LARGE", "TOPIC_AUTHORIZATION_FAILED"])
def test_a_record_refused_in_front_of_prepare_txn_aborts_the_prepared_transaction(opened, code):
    async def main(world, producer, db):
        world.faults.error("Produce", code).on_call(2)
        with pytest.raises(KafkaError, match="a fault injected by the test"):
            await write(producer, db, 1, 2)
        await check(world, db, 0)
        await write(producer, db, 3)
        await check(world, db, 0, 3)

    in_world(main, opened)


@pytest.mark.parametrize("code", ["UNSUPPORTED_FOR_MESSAGE_FORMAT", "CLUSTER_AUTHORIZATION_FAILED"])
def test_a_record_whose_refusal_ends_the_producer_leaves_nothing_prepared(opened, code):
    async def main(world, producer, db):
        world.faults.error("Produce", code).on_call(2)
        with pytest.raises(KafkaError, match="a fault injected by the test"):
            await write(producer, db, 1, 2)
        await check(world, db, 0)
        await write(await world.producer(), db, 3)
        await check(world, db, 0, 3)

    in_world(main, opened)


def test_a_record_refused_for_now_in_front_of_prepare_txn_raises_an_abortable_error(opened):
    async def main(world, producer, db):
        world.faults.error("Produce", "NOT_ENOUGH_REPLICAS").on_call(2)
        with pytest.raises(AbortableTransactionError, match="was prepared before it could be sent again"):
            await write(producer, db, 1, 2)
        await check(world, db, 0)
        await write(producer, db, 3)
        await check(world, db, 0, 3)

    in_world(main, opened)


def test_run_repeats_a_transaction_whose_record_was_refused_before_prepare_txn(opened):
    async def main(world, producer, db):
        async def work(tx):
            for number in (1, 2):
                await db.execute("insert into orders values ($1)", number)
                await tx.send_and_wait("t", b"%d" % number) if number == 1 else await tx.send("t", b"2")

        world.faults.error("Produce", "NOT_ENOUGH_REPLICAS").on_call(2)
        await producer.run(work, db=db)
        await check(world, db, 0, 1, 2)

    in_world(main, opened)


def test_a_batch_that_is_too_large_for_its_topic_is_split_and_commits(opened):
    async def main(world, producer, db):
        settings = [CreateTopicsRequest.Topic.Config(name="max.message.bytes", value="2000")]
        topic = CreateTopicsRequest.Topic(name="small", num_partitions=1, replication_factor=1, configs=settings)
        cluster = await world.world.cluster()
        await cluster.ask("any", CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
        for number in (1, 2):
            async with producer.transaction(db=db) as tx:
                await db.execute("insert into orders values ($1)", number)
                await tx.send_and_wait("small", b"first")
                for _ in range(20):
                    await tx.send("small", bytes(200))
            assert len(await world.values("small")) == 21 * number
        await check_rows(world, db, 0, 1, 2)

    in_world(main, opened)


def test_a_refused_decision_aborts_what_is_prepared_already(opened):
    async def main(world, producer, db):
        await db.execute("update fencepost_writers set generation = generation + 1")  # as a successor does
        with pytest.raises(ProducerFencedError):
            await write(producer, db, 1)
        await check(world, db, 0)

    in_world(main, opened)


def test_the_ids_row_is_not_locked_while_the_records_have_no_answer(opened, monkeypatch):
    """Otherwise a successor would wait for the lock, as long as a broker that is away does not answer."""
    taken = []
    decide = DatabaseCommits._decide

    async def main(world, producer, db):
        async def note_and_decide(self, database, waiting):
            taken.append(delivery.done())
            await decide(self, database, waiting)

        monkeypatch.setattr(DatabaseCommits, "_decide", note_and_decide)
        async with producer.transaction(db=db) as tx:
            await db.execute("insert into orders values (1)")
            delivery = await tx.send("t", b"1")
        assert taken == [True]
        await check(world, db, 0, 1)

    in_world(main, opened)


def test_a_commit_with_nothing_in_flight_sends_prepare_txn_once(opened, monkeypatch):
    asked = []
    prepare = Decisions.prepare

    async def noted(self, waiting, sent=None):
        asked.append(sent is not None)
        return await prepare(self, waiting, sent)

    async def main(world, producer, db):
        monkeypatch.setattr(Decisions, "prepare", noted)
        async with producer.transaction(db=db) as tx:
            await db.execute("insert into orders values (1)")
            await tx.send_and_wait("t", b"1")
        assert asked == [True]
        await check(world, db, 0, 1)

    in_world(main, opened)


def test_prepare_txn_waits_for_records_that_went_to_another_broker(opened, monkeypatch):
    """It might overtake them, and would be sent over another connection in any case."""
    behind = []

    async def main(world, producer, db):
        decisions = producer._driver.databases._decisions
        inner = decisions.prepare_behind

        def elsewhere(waiting, node_ids):
            behind.append(inner(waiting, [*node_ids, 7]))
            return behind[-1]

        monkeypatch.setattr(decisions, "prepare_behind", elsewhere)
        await write(producer, db, 1)
        assert behind == [None]
        await check(world, db, 0, 1)

    in_world(main, opened)


def test_a_prepare_txn_refused_for_good_aborts_both_sides(opened):
    async def main(world, producer, db):
        world.faults.error("PrepareTxn", ErrorCode.POLICY_VIOLATION).every_time()
        with pytest.raises(AbortableTransactionError, match="PrepareTxn"):
            await write(producer, db, 1)
        world.faults.clear()
        await check(world, db, 0)
        await write(producer, db, 2)
        await check(world, db, 0, 2)

    in_world(main, opened)

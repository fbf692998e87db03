"""A block with a database, cancelled at every turn of the loop, once and again: rows, records and offsets are there
once, what was said of the outcome is true, and producer and database go on.
"""

import asyncio
import contextlib
import itertools
import sqlite3

import pytest
from cancelled_everywhere import at_every_turn
from fencepost.client.errors import CommitOutcomeUnknownError, IllegalStateError, RequestTimedOutError
from fencepost.client.sql import threads
from fencepost.client.transactions.participant import DatabaseAway
from reading import make, member, write
from txn_world import within

from fencepost import sql

pytestmark = [pytest.mark.slow, pytest.mark.sampled]

AWAY_S = 60


@pytest.fixture(autouse=True)
def calls_take_time(monkeypatch):
    async def call_slowly(call):
        await asyncio.sleep(0.001)
        found = call()
        await asyncio.sleep(0.001)
        return found

    async def slowly(call, name):  # a thread goes on when its awaiter is cancelled
        return await asyncio.shield(asyncio.ensure_future(call_slowly(call)))

    monkeypatch.setattr(threads, "call_in_thread", slowly)


@pytest.fixture
def opened(tmp_path):
    """Give a function that opens a new database with a table."""
    files = itertools.count()

    @contextlib.asynccontextmanager
    async def opened():
        async with sql.connect(f"sqlite:///{tmp_path}/{next(files)}.db") as db:
            await db.execute("create table copies (value text not null)")
            yield db

    return opened


async def copy(tx, db, batch):
    async with tx:
        for record in batch:
            await db.execute("insert into copies values ($1)", record.value.decode())
            await tx.send("out", record.value)


async def copy_on(producer, consumer, db):
    """Copy all batches that the consumer still returns, as a service does."""
    async for batch in consumer.batches(timeout_ms=10_000):
        await copy(producer.transaction(batch, db=db), db, batch)


async def rows_of(db):
    return [value.encode() for (value,) in await db.fetch("select value from copies order by value")]


def lose_the_answer(db):
    """Have the next COMMIT carried out without an answer, after which the database does not answer questions for
    AWAY_S. Returns a function after which COMMIT is answered.
    """
    commit, close_number, until = db.commit, db.close_number, []

    async def unanswered():
        await commit()
        db.commit = commit
        until.append(asyncio.get_running_loop().time() + AWAY_S)
        raise sqlite3.OperationalError("the connection is gone")

    async def away(waiting):
        await asyncio.sleep(0.1)
        if until and asyncio.get_running_loop().time() < until[0]:
            raise DatabaseAway("it is away")
        return await close_number(waiting)

    def answer():
        db.commit = commit

    db.commit, db.close_number = unanswered, away
    return answer


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("is_answered", [True, False])
def test_rows_records_and_offsets_are_there_once_if_cancelled_at_any_await(opened, times, is_answered):
    outcomes = set()

    async def main(world, cancelling):
        await write(world, b"a", b"b")
        producer = await world.producer()
        async with opened() as db, member(world) as consumer:
            batch = await anext(consumer.batches())
            answer = (lambda: None) if is_answered else lose_the_answer(db)
            tx = producer.transaction(batch, db=db)
            with contextlib.suppress(asyncio.CancelledError, CommitOutcomeUnknownError):
                await cancelling(copy(tx, db, batch))
            answer()
            outcomes.add(tx.outcome)
            await asyncio.sleep(AWAY_S)
            # Without an answer COMMIT was carried out: after an unknown outcome the rows are there.
            if tx.outcome == "committed" or not is_answered:
                assert bool(await rows_of(db)) == (tx.outcome in ("committed", "unknown")), tx.outcome
            await copy_on(producer, consumer, db)
            assert await rows_of(db) == await world.values("out") == [b"a", b"b"], tx.outcome

    assert at_every_turn(main, times=times, transaction_two_phase_commit_enable=True) > 40
    assert outcomes >= ({"committed", "aborted"} if is_answered else {"unknown", "aborted"})


@pytest.mark.parametrize("silent", ["database", "broker"])
def test_a_commit_without_an_answer_is_ended_without_another_transaction(opened, silent):
    async def main(world):
        await make(world)
        producer = await world.producer()
        decisions = producer._driver.databases._decisions
        end, until = decisions.end, asyncio.get_running_loop().time() + AWAY_S

        async def unanswered(*arguments):
            if asyncio.get_running_loop().time() < until:
                raise RequestTimedOutError("the broker does not answer")
            return await end(*arguments)

        async with opened() as db:
            if silent == "database":
                lose_the_answer(db)
            else:
                decisions.end = unanswered
            tx = producer.transaction(db=db)
            with pytest.raises(CommitOutcomeUnknownError) if silent == "database" else contextlib.nullcontext():
                async with tx:
                    await db.execute("insert into copies values ('a')")
                    await tx.send("t", b"a")
            assert producer._driver.databases.is_unsettled
            await asyncio.sleep(2 * AWAY_S)
            assert await rows_of(db) == await world.values() == [b"a"]
            assert await producer._driver.resolve() == "committed"

    within(main, 2, transaction_two_phase_commit_enable=True)


@pytest.mark.parametrize("swallows", [True, False])
def test_a_block_that_fails_is_aborted_even_if_cancelled_twice_at_any_await(opened, swallows):
    async def main(world, cancelling):
        await make(world)
        producer = await world.producer()

        async def fail(db):
            async with producer.transaction(db=db) as tx:
                await db.execute("insert into copies values ('a')")
                await tx.send("t", b"a")
                if not swallows:
                    raise ZeroDivisionError
                with contextlib.suppress(sqlite3.IntegrityError):  # which has rolled back all of it
                    await db.execute("insert or rollback into copies values (null)")

        async with opened() as db:
            with contextlib.suppress(asyncio.CancelledError, ZeroDivisionError, IllegalStateError):
                await cancelling(fail(db))
            async with producer.transaction(db=db) as tx:
                await db.execute("insert into copies values ('b')")
                await tx.send("t", b"b")
            assert await rows_of(db) == await world.values() == [b"b"]

    assert at_every_turn(main, times=2, transaction_two_phase_commit_enable=True) > 20


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("is_answered", [True, False])
def test_an_inbox_cancelled_at_any_await_of_a_slow_database_applies_each_record_once(opened, times, is_answered):
    async def take(db, batch):
        async with sql.inbox(db, batch) as new:
            for record in new:
                await db.execute("insert into copies values ($1)", record.value.decode())

    async def main(world, cancelling):
        await write(world, b"a", b"b")
        async with opened() as db, member(world) as consumer:
            batch = await anext(consumer.batches(1))
            answer = (lambda: None) if is_answered else lose_the_answer(db)
            with contextlib.suppress(asyncio.CancelledError):
                await cancelling(take(db, batch))
            answer()
            async for each in consumer.batches(timeout_ms=10_000):
                await take(db, each)
            assert await rows_of(db) == [b"a", b"b"]

    assert at_every_turn(main, times=times) > 20

"""A producer with a database that goes on after another one has taken over its id: it is fenced, and not the other."""

import asyncio
import contextlib

import pytest
from fencepost.client.errors import CommitOutcomeUnknownError, ProducerFencedError
from orders import TABLE, records_of, rows_of, write

from fencepost import Producer, sql

pytestmark = pytest.mark.slow  # with a real database


@pytest.fixture(params=["sqlite", "asyncpg", "psycopg"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/orders.db"
    return request.getfixturevalue("postgres_url").replace("postgresql:", f"postgresql+{request.param}:")


@pytest.fixture
async def db(url):
    async with sql.connect(url, create=True) as db:
        await db.execute(TABLE)
        yield db


@contextlib.asynccontextmanager
async def producing(broker, url):
    """Give a producer with the id orders-1, and a connection to the database of its own."""
    async with Producer(broker, transactional_id="orders-1") as producer, sql.connect(url) as db:
        yield producer, db


async def check_fenced(old, successor):
    """Assert three times that the old producer's transaction is fenced and that its successor's, after it, commits."""
    for each in (3, 4, 5):
        with pytest.raises(ProducerFencedError):
            await write(*old, 100 + each)
        await write(*successor, each)


async def test_an_overtaken_producer_that_tries_again_stays_fenced_and_fences_nobody(broker, db, url):
    async with producing(broker, url) as old:
        await write(*old, 1)
        async with producing(broker, url) as successor:
            await write(*successor, 2)
            with pytest.raises(ProducerFencedError):
                await write(*old, 103)
            await check_fenced(old, successor)
    assert await rows_of(db) == await records_of(broker) == [1, 2, 3, 4, 5]


async def test_an_overtaken_producer_whose_commit_others_have_ended_fences_nobody(broker, db, url):
    """It has committed in the database, and its successor tells the broker so before it does."""
    async with producing(broker, url) as old:
        await write(*old, 0)
        decisions = old[0]._driver.databases._decisions
        may_end, end = asyncio.Event(), decisions.end

        async def end_later(*arguments):
            await may_end.wait()
            return await end(*arguments)

        decisions.end = end_later
        async with old[0].transaction(db=old[1], wait="decided") as tx:
            await old[1].execute("insert into orders values (1, 'alice')")
            await tx.send("orders", b"1")
        try:
            async with producing(broker, url) as successor:
                await write(*successor, 2)
                may_end.set()
                await check_fenced(old, successor)
        finally:
            may_end.set()
    assert await rows_of(db) == await records_of(broker) == [0, 1, 2, 3, 4, 5]


async def test_an_overtaken_producer_whose_commit_was_not_confirmed_fences_nobody(broker, db, url):
    """Its database transaction is rolled back before COMMIT. Its successor writes "not committed" for that transaction
    number, and commits a later one.
    """
    async with producing(broker, url) as old:
        await write(*old, 1)
        async with contextlib.AsyncExitStack() as stack:
            successors = []

            async def lose_session():
                await old[1].rollback()
                successors.append(await stack.enter_async_context(producing(broker, url)))
                await write(*successors[0], 2)
                raise ConnectionError("the connection is gone")

            commit, old[1].commit = old[1].commit, lose_session
            with pytest.raises(CommitOutcomeUnknownError):
                await write(*old, 101)
            old[1].commit = commit
            await check_fenced(old, successors[0])
    assert await rows_of(db) == await records_of(broker) == [1, 2, 3, 4, 5]

"""One producer used by two tasks, each with a database of its own; ended by its own methods inside a block; and one
whose database is closed before.
"""

import pytest
from fencepost.client.errors import CommitOutcomeUnknownError, IllegalStateError
from fencepost.client.transactions.participant import DatabaseAway
from orders import TABLE, records_of, rows_of, write

from fencepost import Producer, sql

pytestmark = pytest.mark.slow  # with a real database


@pytest.fixture(params=["sqlite", "postgresql"])
async def urls(request, tmp_path):
    """Give the URLs of two databases; the second may be the first."""
    if request.param == "sqlite":
        found = [f"sqlite:///{tmp_path}/{name}.db" for name in ("orders", "others")]
    else:
        found = [request.getfixturevalue("postgres_url")] * 2
    for url in dict.fromkeys(found):
        async with sql.connect(url, create=True) as db:
            await db.execute(TABLE)
    return found


async def test_a_refused_second_transaction_with_another_database_leaves_the_first_intact(broker, urls):
    """As when two requests to a web service use one producer at the same time."""
    async with (
        sql.connect(urls[0]) as db,
        sql.connect(urls[1]) as other,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        await write(producer, db, 1)
        async with producer.transaction(db=db) as tx:
            await db.execute("insert into orders values (2, 'alice')")
            await tx.send("orders", b"2")
            with pytest.raises(IllegalStateError, match="in_transaction"):
                await write(producer, other, 3)
        await write(producer, db, 4)
        assert await rows_of(db) == await records_of(broker) == [1, 2, 4]


async def test_a_producer_commits_its_own_database_though_another_one_was_refused(broker, postgres_url):
    """The refused database is in a transaction of another producer when the first one commits."""
    async with (
        sql.connect(postgres_url, create=True) as db,
        sql.connect(postgres_url) as other,
        Producer(broker, transactional_id="orders-1") as producer,
        Producer(broker, transactional_id="orders-2") as second,
    ):
        await db.execute(TABLE)
        await write(producer, db, 1)
        await write(second, other, 2)
        first = producer.transaction(db=db)
        async with first as tx:
            await db.execute("insert into orders values (3, 'alice')")
            await tx.send("orders", b"3")
            with pytest.raises(IllegalStateError):
                await write(producer, other, 4)
            theirs = second.transaction(db=other)
            await theirs.__aenter__()
            await other.execute("insert into orders values (5, 'bob')")
            await theirs.send("orders", b"5")
        assert await rows_of(db) == [1, 2, 3]
        await theirs.__aexit__(None, None, None)
        assert await rows_of(db) == sorted(await records_of(broker)) == [1, 2, 3, 5]


@pytest.mark.parametrize("name", ["commit_transaction", "abort_transaction"])
async def test_a_users_commit_or_abort_inside_a_block_with_a_database_commits_nothing(broker, urls, name):
    async with sql.connect(urls[0]) as db, Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(IllegalStateError):  # noqa: PT012
            async with producer.transaction(db=db) as tx:
                await db.execute("insert into orders values (1, 'alice')")
                await tx.send("orders", b"1")
                await getattr(producer, name)()
        await write(producer, db, 2)
        assert await rows_of(db) == await records_of(broker) == [2]


async def test_the_outcome_of_a_commit_is_asked_after_its_database_object_is_closed(broker, urls, monkeypatch):
    """As at the end of `async with Producer(…) as producer, sql.connect(…) as db`, which closes the database first."""
    async with Producer(broker, transactional_id="orders-1", max_block_ms=1_000) as producer:
        async with sql.connect(urls[0]) as db:
            commit = db.commit

            async def lose_answer():
                await commit()
                raise ConnectionError("the connection is gone")

            async def be_away(waiting):
                raise DatabaseAway("it is away")

            with monkeypatch.context() as patch:
                patch.setattr(db, "commit", lose_answer)
                patch.setattr(db, "close_number", be_away)
                with pytest.raises(CommitOutcomeUnknownError) as unknown:
                    await write(producer, db, 1)
                await db.close()
        assert await unknown.value.resolve() == "committed"
        with pytest.raises(IllegalStateError, match="not open"):
            await write(producer, db, 2)

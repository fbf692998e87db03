"""`sql.forget`: what database and broker know of a transactional id that will not write again is removed."""

import pytest
from fencepost.client.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    ProducerFencedError,
    RequestTimedOutError,
)
from fencepost.client.transactions.deciding import ledger_key
from fencepost.client.transactions.decisions import Decisions
from orders import TABLE, records_of, rows_of, write

from fencepost import Producer, sql

pytestmark = pytest.mark.slow  # with a real database

OLD = {"sqlite": "datetime('now', '-31 days')", "postgresql": "current_timestamp - interval '31 days'"}


@pytest.fixture(params=["sqlite", "postgresql"])
async def db(request, tmp_path):
    url = f"sqlite:///{tmp_path}/orders.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    async with sql.connect(url, create=True) as db:
        await db.execute(TABLE)
        yield db


async def age(db):
    """Set the times of all last decisions to 31 days ago."""
    await db.execute(f"update fencepost_writers set decided_at = {OLD[db.dialect]}")


async def names_in(db):
    return [name for (name,) in await db.fetch("select transactional_id from fencepost_writers order by 1")]


async def test_a_transactional_id_that_was_forgotten_starts_again_at_number_0(broker, db):
    for name in ("orders-1", "orders-2"):
        async with Producer(broker, transactional_id=name) as producer:
            await write(producer, db, int(name[-1]))
    await age(db)
    assert await sql.forget(broker, db, "orders-1")
    assert await names_in(db) == ["orders-2"]
    assert not await sql.forget(broker, db, "orders-1")
    async with Producer(broker, transactional_id="orders-1") as producer:
        await write(producer, db, 3)
        standing = await producer._driver.databases._decisions.look(ledger_key(db.database_id, "orders-1"), "orders-1")
        assert (standing.number, standing.committed) == (0, True)
        await write(producer, db, 4)
    assert await rows_of(db) == await records_of(broker) == [1, 2, 3, 4]


async def test_a_transactional_id_used_recently_is_not_forgotten_unless_unused_ms_is_0(broker, db):
    async with Producer(broker, transactional_id="orders-1") as producer:
        await write(producer, db, 1)
    with pytest.raises(IllegalStateError, match="may write again"):
        await sql.forget(broker, db, "orders-1")
    assert await names_in(db) == ["orders-1"]
    assert await sql.forget(broker, db, "orders-1", unused_ms=0)
    assert await names_in(db) == []


async def test_a_producer_that_still_writes_with_a_forgotten_id_is_fenced(broker, db):
    async with Producer(broker, transactional_id="orders-1") as producer:
        await write(producer, db, 1)
        await age(db)
        assert await sql.forget(broker, db, "orders-1")
        with pytest.raises(ProducerFencedError):
            await write(producer, db, 2)
    assert await rows_of(db) == await records_of(broker) == [1]


async def test_a_transactional_id_with_an_unfinished_transaction_is_not_forgotten(broker, db, monkeypatch):
    async def away(self, waiting, committed):
        raise RequestTimedOutError("away")

    async with Producer(broker, transactional_id="orders-1", max_block_ms=500) as producer:
        await write(producer, db, 1)
        with monkeypatch.context() as patched:
            patched.setattr(Decisions, "end", away)
            await write(producer, db, 2)  # decided, and the broker is told later
        await age(db)
        with pytest.raises(IllegalStateError, match="number 1 of 'orders-1' waits") as refused:
            await sql.forget(broker, db, "orders-1")
        assert "txn resolve" in refused.value.hint
        assert await names_in(db) == ["orders-1"]
        await write(producer, db, 3)
    assert await rows_of(db) == await records_of(broker) == [1, 2, 3]


async def test_forgetting_that_was_cut_off_between_broker_and_database_can_be_repeated(broker, db, monkeypatch):
    async with Producer(broker, transactional_id="orders-1") as producer:
        await write(producer, db, 1)
    await age(db)
    inner = type(db).run_alone

    async def cut(self, wanted):
        if wanted[0][0].startswith("delete"):
            raise ConnectionError("cut")
        return await inner(self, wanted)

    with monkeypatch.context() as patched:
        patched.setattr(type(db), "run_alone", cut)
        with pytest.raises(ConnectionError):
            await sql.forget(broker, db, "orders-1")
    assert await names_in(db) == ["orders-1"]
    assert await sql.forget(broker, db, "orders-1")
    assert await names_in(db) == []


async def test_forget_keeps_the_row_of_a_transactional_id_that_commits_meanwhile(broker, db, monkeypatch):
    async with Producer(broker, transactional_id="orders-1") as producer:
        await write(producer, db, 1)
        await age(db)
        remove = Decisions.remove

        async def late(self, key, transactional_id):
            await remove(self, key, transactional_id)
            await write(producer, db, 2)

        monkeypatch.setattr(Decisions, "remove", late)
        assert await sql.forget(broker, db, "orders-1")
        assert await names_in(db) == ["orders-1"]
        await write(producer, db, 3)
    assert await rows_of(db) == await records_of(broker) == [1, 2, 3]


async def test_forgetting_needs_the_right_to_delete_and_says_so(broker, postgres_url):
    async with sql.connect(postgres_url, create=True) as db, Producer(broker, transactional_id="orders-1") as producer:
        await db.execute(TABLE)
        await write(producer, db, 1)
        await age(db)
        await db.execute("drop role if exists writer; create role writer login")
        await db.execute("grant select on fencepost_database to writer")
        await db.execute("grant select, insert, update on fencepost_writers to writer")
        async with sql.connect(postgres_url.replace("fencepost@", "writer@")) as own:
            with pytest.raises(InvalidConfigurationError, match="permission denied"):
                await sql.forget(broker, own, "orders-1")
        await db.execute("drop owned by writer; drop role writer")

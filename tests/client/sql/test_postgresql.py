"""PostgreSQL takes part in a producer's transactions, at a real broker."""

import asyncio
import subprocess
import sys

import asyncpg
import pytest
from fencepost.client.errors import IllegalStateError, InvalidConfigurationError
from fencepost.client.sql import connecting

from fencepost import Broker, Consumer, Producer, TopicPartition, sql


@pytest.fixture
async def broker(tmp_path):
    async with Broker(data_dir=tmp_path / "broker", transaction_two_phase_commit_enable=True) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
async def db(postgres_url):
    async with sql.connect(postgres_url, create=True) as db:
        await db.execute("create table orders (id integer primary key, name text)")
        yield db


async def rows_of(db):
    return [row[0] for row in await db.fetch("select id from orders order by id")]


async def records_of(broker):
    """Return what a read_committed reader sees up to the end, markers included: nothing holds it up."""
    partition = TopicPartition("orders", 0)
    found = []
    async with Consumer(broker, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            found += [int(one.value) for some in (await consumer.getmany(timeout_ms=500)).values() for one in some]
    return found


async def write(producer, db, number):
    async with producer.transaction(db=db) as tx:
        await db.execute("insert into orders values ($1, $2)", number, "alice")
        await tx.send("orders", b"%d" % number)


async def test_a_row_and_a_record_are_committed_together(broker, db):
    async with Producer(broker, transactional_id="orders-1") as producer:
        for number in range(3):
            await write(producer, db, number)
        with pytest.raises(ValueError, match="no"):  # noqa: PT012
            async with producer.transaction(db=db) as tx:
                await db.execute("insert into orders values (7, 'bob')")
                await tx.send("orders", b"7")
                raise ValueError("no")
    assert await rows_of(db) == [0, 1, 2]
    assert await records_of(broker) == [0, 1, 2]


# ---- connecting ------------------------------------------------------------------------------------------------------


def test_no_driver_is_imported_before_a_database_of_it_is_used():
    program = (
        "import sys; from fencepost import sql; assert not {'asyncpg', 'psycopg', 'sqlalchemy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_driver_that_is_not_installed_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setattr(connecting.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidConfigurationError, match="not installed") as refused:
        sql.connect("postgresql://h/x")
    assert refused.value.hint == 'pip install "fencepost[sql-asyncpg]"'


def test_errors_name_the_database_without_its_password():
    assert sql.connect("postgresql://alice:secret@h:1/x?ssl=require").name == "postgresql://h:1/x"


async def test_without_create_missing_tables_are_an_error_and_none_are_made(postgres_url):
    with pytest.raises(InvalidConfigurationError, match="has no table fencepost_database") as refused:
        await sql.connect(postgres_url).open()
    assert "fencepost sql schema --dialect postgresql" in refused.value.hint
    async with sql.connect(postgres_url, create=True) as first, sql.connect(postgres_url) as second:
        assert first.database_id == second.database_id


async def test_a_role_that_may_only_read_and_write_the_tables_is_enough(broker, db, postgres, postgres_url):
    await db.execute("drop role if exists writer; create role writer login")
    await db.execute(
        "grant select on fencepost_database to writer;"
        "grant select, insert, update on fencepost_writers to writer; grant select, insert on orders to writer"
    )
    async with (
        sql.connect(postgres_url.replace("fencepost@", "writer@")) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        await write(producer, own, 1)
    assert await rows_of(db) == await records_of(broker) == [1]


async def test_tables_made_by_two_programs_at_once_have_one_identity(postgres_url):
    several = [sql.connect(postgres_url, create=True) for _ in range(4)]
    await asyncio.gather(*(each.open() for each in several))
    assert len({each.database_id for each in several}) == 1
    for each in several:
        await each.close()


async def test_the_tables_are_the_schema_that_is_printed(postgres_url):
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(sql.schema("postgresql"))
    await connection.execute(sql.schema("postgresql"))
    await connection.close()
    async with sql.connect(postgres_url) as db:
        assert len(await db.fetch("select * from fencepost_database")) == 1


@pytest.mark.parametrize("statement", ["commit", "begin", "start transaction", "abort", "rollback work"])
async def test_statements_that_end_the_blocks_transaction_are_refused(db, statement):
    with pytest.raises(IllegalStateError, match="block"):
        await db.execute(statement)


async def test_statements_outside_a_block_are_committed_at_once_and_counted(db, postgres_url):
    assert await db.execute("insert into orders select n, 'x' from generate_series(1, $1::int) n", 3) == 3
    async with sql.connect(postgres_url) as other:
        assert await rows_of(other) == [1, 2, 3]


async def test_a_savepoint_is_undone_alone(broker, db):
    async with Producer(broker, transactional_id="orders-1") as producer, producer.transaction(db=db) as tx:
        await db.execute("insert into orders values (1, 'alice')")
        with pytest.raises(asyncpg.UniqueViolationError):
            async with db.transaction():
                await db.execute("insert into orders values (1, 'alice')")
        await tx.send("orders", b"1")
    assert await rows_of(db) == await records_of(broker) == [1]


# ---- connections of the user -----------------------------------------------------------------------------------------


async def test_a_pool_gives_a_connection_to_each_block_and_gets_it_back(broker, db, postgres_url):
    async with (
        asyncpg.create_pool(postgres_url, min_size=1, max_size=1) as pool,
        sql.connect(pool) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        await write(producer, own, 1)
        assert await pool.fetchval("select count(*) from orders") == 1
        with pytest.raises(asyncpg.UniqueViolationError):
            await write(producer, own, 1)
        assert pool.get_idle_size() == 1
    assert await records_of(broker) == [1]


async def test_a_connection_of_the_user_takes_part_and_its_own_blocks_are_savepoints(broker, db, postgres_url):
    connection = await asyncpg.connect(postgres_url)
    async with (
        sql.connect(connection, ask=postgres_url) as own,
        Producer(broker, transactional_id="orders-1") as producer,
        producer.transaction(db=own) as tx,
    ):
        async with connection.transaction():
            await connection.execute("insert into orders values (1, 'alice')")
        with pytest.raises(ValueError, match="undone"):  # noqa: PT012
            async with connection.transaction():
                await connection.execute("insert into orders values (2, 'bob')")
                raise ValueError("undone")
        await tx.send("orders", b"1")
    assert not connection.is_closed()
    await connection.close()
    assert await rows_of(db) == await records_of(broker) == [1]


async def test_a_connection_without_another_way_to_ask_is_refused(postgres_url):
    connection = await asyncpg.connect(postgres_url)
    with pytest.raises(InvalidConfigurationError, match="cannot be asked") as refused:
        sql.connect(connection)
    assert "ask=" in refused.value.hint
    await connection.close()

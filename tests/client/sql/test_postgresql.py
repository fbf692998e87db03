"""PostgreSQL takes part in a producer's transactions, at a real broker."""

import asyncio
import contextlib
import subprocess
import sys

import asyncpg
import pytest
from fencepost.client.errors import IllegalStateError, InvalidConfigurationError
from fencepost.client.sql import connecting
from orders import TABLE, records_of, rows_of, write

from fencepost import Producer, sql

pytestmark = pytest.mark.slow  # with a real database


@pytest.fixture(params=["asyncpg", "psycopg"])
def driver_url(request, postgres_url):
    return postgres_url.replace("postgresql:", f"postgresql+{request.param}:")


@pytest.fixture
async def db(driver_url):
    async with sql.connect(driver_url, create=True) as db:
        await db.execute(TABLE)
        yield db


async def test_a_postgresql_row_and_a_record_are_committed_together(broker, db):
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


def test_importing_fencepost_sql_imports_no_driver():
    program = (
        "import sys; from fencepost import sql; assert not {'asyncpg', 'psycopg', 'sqlalchemy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_missing_driver_raises_an_error_that_names_the_extra_to_install(monkeypatch):
    monkeypatch.setattr(connecting.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidConfigurationError, match="not installed") as refused:
        sql.connect("postgresql://h/x")
    assert refused.value.hint == 'pip install "fencepost[sql-asyncpg]"'


def test_the_name_of_a_database_in_errors_is_its_url_without_login_and_options():
    assert sql.connect("postgresql://alice:secret@h:1/x?ssl=require").name == "postgresql://h:1/x"


async def test_without_create_missing_tables_raise_an_error_and_are_not_made(postgres_url):
    with pytest.raises(InvalidConfigurationError, match="has no table fencepost_database") as refused:
        await sql.connect(postgres_url).open()
    assert "fencepost sql schema --dialect postgresql" in refused.value.hint
    async with sql.connect(postgres_url, create=True) as first, sql.connect(postgres_url) as second:
        assert first.database_id == second.database_id


async def test_a_role_needs_only_the_rights_to_read_and_write_the_tables(broker, db, driver_url):
    await db.execute("drop role if exists writer; create role writer login")
    await db.execute(
        "grant select on fencepost_database to writer;"
        "grant select, insert, update on fencepost_writers to writer; grant select, insert on orders to writer"
    )
    async with (
        sql.connect(driver_url.replace("fencepost@", "writer@")) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        await write(producer, own, 1)
    assert await rows_of(db) == await records_of(broker) == [1]


async def test_two_programs_that_create_the_sql_tables_at_once_find_the_same_database_id(postgres_url):
    several = [sql.connect(postgres_url, create=True) for _ in range(4)]
    await asyncio.gather(*(each.open() for each in several))
    assert len({each.database_id for each in several}) == 1
    for each in several:
        await each.close()


async def test_the_postgresql_schema_can_be_executed_twice_and_its_tables_used(postgres_url):
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(sql.schema("postgresql"))
    await connection.execute(sql.schema("postgresql"))
    await connection.close()
    async with sql.connect(postgres_url) as db:
        assert len(await db.fetch("select * from fencepost_database")) == 1


@pytest.mark.parametrize("statement", ["commit", "begin", "start transaction", "abort", "rollback work"])
async def test_postgresql_statements_that_would_end_the_transaction_are_refused(db, statement):
    with pytest.raises(IllegalStateError, match="block"):
        await db.execute(statement)


async def test_execute_outside_a_transaction_commits_at_once_and_returns_the_row_count(db, postgres_url):
    assert await db.execute("insert into orders select n, 'x' from generate_series(1, $1::int) n", 3) == 3
    async with sql.connect(postgres_url) as other:
        assert await rows_of(other) == [1, 2, 3]


async def test_rolling_back_a_savepoint_of_postgresql_keeps_the_rest_of_the_transaction(broker, db):
    async with Producer(broker, transactional_id="orders-1") as producer, producer.transaction(db=db) as tx:
        await db.execute("insert into orders values (1, 'alice')")
        with pytest.raises(Exception, match="duplicate key"):
            async with db.transaction():
                await db.execute("insert into orders values (1, 'alice')")
        await tx.send("orders", b"1")
    assert await rows_of(db) == await records_of(broker) == [1]


async def test_rolling_back_a_savepoint_with_a_changed_setting_keeps_the_rest(broker, db):
    """Before a statement that is not on rows the SDK marks the transaction, and at its end looks for the mark. The
    rollback to the savepoint removes the mark, so it must not be looked for.
    """
    async with Producer(broker, transactional_id="orders-1") as producer, producer.transaction(db=db) as tx:
        with pytest.raises(ValueError, match="undone"):  # noqa: PT012
            async with db.transaction(), db.transaction():
                await db.execute("set local lock_timeout = 100")
                raise ValueError("undone")
        await db.execute("insert into orders values (1, 'alice')")
        await tx.send("orders", b"1")
    assert await rows_of(db) == await records_of(broker) == [1]


async def test_a_savepoint_that_ends_the_transaction_and_is_rolled_back_commits_no_record(broker, db):
    """The rollback to the savepoint fails, because another transaction is open by then, which has no such savepoint."""
    async with Producer(broker, transactional_id="orders-1") as producer:
        with pytest.raises(Exception) as refused:  # noqa: PT012 (the driver's, or ours)
            async with producer.transaction(db=db) as tx:
                await tx.send("orders", b"1")
                with contextlib.suppress(Exception):  # the ValueError, or the error of the rollback
                    async with db.transaction():
                        await db.execute("select 1; commit; begin")
                        raise ValueError("undone")
                await db.execute("insert into orders values (1, 'alice')")
        print(refused.value)
        await write(producer, db, 2)
    assert await rows_of(db) == await records_of(broker) == [2]


async def test_a_transaction_that_sets_search_path_still_uses_the_tables_found_at_connect(broker, db):
    await db.execute("create schema if not exists tenant")
    await db.execute("create table if not exists tenant.fencepost_writers (like public.fencepost_writers)")
    async with Producer(broker, transactional_id="orders-1") as producer, producer.transaction(db=db) as tx:
        await db.execute("insert into orders values (1, 'alice')")
        await db.execute("set local search_path to tenant")
        await tx.send("orders", b"1")
    await db.execute("drop schema tenant cascade")
    assert await rows_of(db) == await records_of(broker) == [1]

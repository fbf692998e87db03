"""Pools and connections of the user take part in a producer's transactions."""

import asyncio
import contextlib

import asyncpg
import psycopg
import psycopg_pool
import pytest
from cutting_proxy import BEFORE, SENT, CuttingProxy
from fencepost.client.errors import IllegalStateError, InvalidConfigurationError, KafkaError, OutcomeDivergedError
from orders import records_of, rows_of, write

from fencepost import Producer, sql

pytestmark = pytest.mark.slow  # with a real database

DRIVERS = ["asyncpg", "psycopg"]


@contextlib.asynccontextmanager
async def pool_of(driver, url):
    """Give a pool of one connection, and a function that counts the idle ones."""
    if driver == "asyncpg":
        async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
            yield pool, pool.get_idle_size
    else:
        async with psycopg_pool.AsyncConnectionPool(url, min_size=1, max_size=1, open=False) as pool:
            yield pool, lambda: pool.get_stats()["pool_available"]


@contextlib.asynccontextmanager
async def connection_of(driver, url):
    if driver == "asyncpg":
        connection = await asyncpg.connect(url)
    else:
        connection = await psycopg.AsyncConnection.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_each_transaction_takes_a_connection_of_the_users_pool_and_returns_it(broker, db, postgres_url, driver):
    async with (
        pool_of(driver, postgres_url) as (pool, idle),
        sql.connect(pool) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        await write(producer, own, 1)
        assert await rows_of(own) == [1]
        with pytest.raises(Exception, match="duplicate key"):
            await write(producer, own, 1)
        assert idle() == 1
        async with sql.connect(pool) as second:
            await write(producer, second, 2)
    assert await records_of(broker) == await rows_of(db) == [1, 2]


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_users_own_transaction_blocks_become_savepoints_of_a_producer_transaction(
    broker, db, postgres_url, driver
):
    async with (
        connection_of(driver, postgres_url) as connection,
        sql.connect(connection, ask=postgres_url) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        async with producer.transaction(db=own) as tx:
            async with connection.transaction():
                await connection.execute("insert into orders values (1, 'alice')")
            with pytest.raises(ValueError, match="undone"):  # noqa: PT012
                async with connection.transaction():
                    await connection.execute("insert into orders values (2, 'bob')")
                    raise ValueError("undone")
            await tx.send("orders", b"1")
        assert await rows_of(own) == [1]
        await write(producer, own, 3)
    assert await rows_of(db) == await records_of(broker) == [1, 3]


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_users_connection_that_is_already_in_a_transaction_is_refused(broker, db, postgres_url, driver):
    async with (
        connection_of(driver, postgres_url) as connection,
        sql.connect(connection, ask=postgres_url) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        async with connection.transaction():
            await connection.execute("insert into orders values (1, 'alice')")
            with pytest.raises(IllegalStateError, match="in a transaction already"):
                await write(producer, own, 2)
        await write(producer, own, 3)
    assert await rows_of(db) == [1, 3]
    assert await records_of(broker) == [3]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("statement", ["commit", "rollback", "commit; begin", "rollback; begin", "reset all"])
async def test_a_users_own_commit_or_rollback_inside_a_producer_transaction_raises(
    broker, db, postgres_url, driver, statement
):
    """`reset all` looks like one, because it removes the mark of the transaction."""
    said = "was committed" if statement in ("commit", "rollback") else "its mark is gone"
    async with (
        connection_of(driver, postgres_url) as connection,
        sql.connect(connection, ask=postgres_url) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        with pytest.raises(OutcomeDivergedError, match=said):  # noqa: PT012
            async with producer.transaction(db=own) as tx:
                await connection.execute("insert into orders values (1, 'alice')")
                await tx.send("orders", b"1")
                await connection.execute(statement)
        await write(producer, own, 2)
    assert await records_of(broker) == [2]


async def test_psycopg_refuses_its_own_commit_in_a_transaction_which_is_rolled_back(broker, db, postgres_url):
    async with (
        connection_of("psycopg", postgres_url) as connection,
        sql.connect(connection, ask=postgres_url) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        with pytest.raises(psycopg.ProgrammingError, match="forbidden"):  # noqa: PT012
            async with producer.transaction(db=own) as tx:
                await own.execute("insert into orders values (1, 'alice')")
                await tx.send("orders", b"1")
                await connection.commit()
    assert await rows_of(db) == await records_of(broker) == []


async def test_sql_connect_refuses_a_users_connection_without_the_argument_ask(postgres_url):
    async with connection_of("asyncpg", postgres_url) as connection:
        with pytest.raises(InvalidConfigurationError, match="cannot be asked") as refused:
            sql.connect(connection)
    assert "ask=" in refused.value.hint


class OfUser(psycopg.AsyncConnection):
    pass


async def test_connect_takes_a_connection_of_a_class_that_the_user_has_derived(broker, db, postgres_url):
    async with (
        await OfUser.connect(postgres_url) as connection,
        sql.connect(connection, ask=postgres_url) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        await write(producer, own, 1)
    assert await rows_of(db) == await records_of(broker) == [1]


@pytest.mark.parametrize("given", [7, object()])
def test_connect_refuses_an_object_that_is_no_database_naming_its_type(given):
    with pytest.raises(InvalidConfigurationError, match=f"builtins.{type(given).__name__} is not a database"):
        sql.connect(given)


@pytest.mark.parametrize("place", [BEFORE, SENT])
@pytest.mark.parametrize("connect", [asyncpg.connect, psycopg.AsyncConnection.connect, psycopg.connect])
async def test_the_outcome_of_a_commit_cut_off_is_looked_up_at_the_url_given_as_ask(
    broker, db, postgres, postgres_url, connect, place
):
    async with CuttingProxy(postgres.port, place) as proxy:
        url = postgres_url.replace(f":{postgres.port}", f":{proxy.port}")
        is_blocking = connect is psycopg.connect
        connection = await (asyncio.to_thread(connect, url) if is_blocking else connect(url))
        async with (
            sql.connect(connection, ask=postgres_url) as own,
            Producer(broker, transactional_id="orders-1") as producer,
        ):
            await write(producer, own, 1)
            proxy.armed = True
            if place == BEFORE:
                with pytest.raises(Exception) as refused:  # the driver's
                    await write(producer, own, 2)
                assert not isinstance(refused.value, KafkaError)
            else:
                await write(producer, own, 2)
            assert proxy.cuts == 1
    assert await rows_of(db) == await records_of(broker) == ([1] if place == BEFORE else [1, 2])


async def test_a_driver_connection_passed_as_db_of_a_transaction_raises_with_a_hint(broker, postgres_url):
    async with (
        connection_of("asyncpg", postgres_url) as connection,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        with pytest.raises(InvalidConfigurationError, match="not asyncpg") as refused:
            producer.transaction(db=connection)
        assert "sql.connect" in refused.value.hint


@pytest.mark.parametrize("driver", DRIVERS)
async def test_an_error_of_a_users_connection_after_the_decision_aborts_the_transaction(
    broker, db, postgres_url, driver, monkeypatch
):
    async with (
        connection_of(driver, postgres_url) as connection,
        sql.connect(connection, ask=postgres_url) as own,
        Producer(broker, transactional_id="orders-1") as producer,
    ):
        decide = own.decide

        async def beside(*arguments):
            decided = await decide(*arguments)
            with pytest.raises(Exception, match="division by zero"):
                await connection.execute("select 1 / 0")
            return decided

        with monkeypatch.context() as patch:
            patch.setattr(own, "decide", beside)
            with pytest.raises(IllegalStateError, match="swallowed"):
                await write(producer, own, 1)
        await write(producer, own, 2)
    assert await rows_of(db) == await records_of(broker) == [2]

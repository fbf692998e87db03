"""A block that is cancelled while its database begins: the next one works, and pools get their connections back."""

import asyncio

import asyncpg
import psycopg
import psycopg_pool
import pytest
from cutting_proxy import LATE, SILENT, CuttingProxy
from eventually import wait_until
from fencepost.client.sql import blocks
from orders import records_of, rows_of, write

from fencepost import Producer, sql

pytestmark = pytest.mark.slow  # with a real database

DRIVERS = ["asyncpg", "psycopg"]


async def cancel(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def connected(driver, url):
    if driver == "asyncpg":
        return await asyncpg.connect(url)
    return await psycopg.AsyncConnection.connect(url, autocommit=True)


@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_block_cancelled_while_it_begins_leaves_a_usable_connection(
    broker, db, postgres, postgres_url, driver, is_own
):
    """The answer to BEGIN comes after the cancellation."""
    async with CuttingProxy(postgres.port, LATE, b"begin") as proxy:
        url = postgres_url.replace(f":{postgres.port}", f":{proxy.port}")
        given = await connected(driver, url) if is_own else url.replace("postgresql:", f"postgresql+{driver}:")
        async with (
            sql.connect(given, ask=postgres_url if is_own else None) as own,
            Producer(broker, transactional_id="orders-1") as producer,
        ):
            await write(producer, own, 1)
            proxy.armed = True
            writing = asyncio.create_task(write(producer, own, 2))
            await proxy.has_come.wait()
            writing.cancel()
            await asyncio.sleep(0)
            proxy.go_on.set()
            await cancel(writing)
            await own.execute("insert into orders values (3, 'by itself')")
            assert await rows_of(db) == [1, 3]
            await write(producer, own, 4)
        if is_own:
            await given.close()
    assert await rows_of(db) == [1, 3, 4]
    assert await records_of(broker) == [1, 4]


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_connection_that_never_answers_begin_is_cut_when_its_block_is_cancelled(
    broker, db, postgres, postgres_url, driver, monkeypatch
):
    monkeypatch.setattr(blocks, "ROLLBACK_TIMEOUT_S", 0.2)
    async with CuttingProxy(postgres.port, SILENT, b"begin") as proxy:
        url = postgres_url.replace("postgresql:", f"postgresql+{driver}:")
        async with (
            sql.connect(url.replace(f":{postgres.port}", f":{proxy.port}")) as own,
            Producer(broker, transactional_id="orders-1") as producer,
        ):
            await write(producer, own, 1)
            proxy.armed = True
            writing = asyncio.create_task(write(producer, own, 2))
            await proxy.has_come.wait()
            await cancel(writing)
            await write(producer, own, 3)
    assert await rows_of(db) == await records_of(broker) == [1, 3]


async def test_a_blocking_pool_gets_the_connection_back_of_a_cancelled_block(broker, db, postgres_url):
    with psycopg_pool.ConnectionPool(postgres_url, min_size=1, max_size=1) as pool:
        async with sql.connect(pool) as own, Producer(broker, transactional_id="orders-1") as producer:
            await write(producer, own, 1)
            taken = pool.getconn()
            writing = asyncio.create_task(write(producer, own, 2))
            await asyncio.to_thread(wait_until, lambda: pool.get_stats().get("requests_waiting") == 1)
            await cancel(writing)
            pool.putconn(taken)
            await write(producer, own, 3)
    assert await rows_of(db) == await records_of(broker) == [1, 3]

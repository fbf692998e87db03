"""Loads that write rows and records together, each in a process: with one commit over both, and with two commits.

Run as `python -m fencepost.bench.bounds.commit_loads WORK BOOTSTRAP URL ROWS TRANSACTIONS`; prints figures as JSON.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from ...client.producer.producer import Producer
from ...client.sql.connecting import connect
from ...client.transactions.participant import Wait
from .processes import Figures, print_figures

TOPIC = "bench-commits"
WARM_TRANSACTIONS = 10
PAUSE_S = 0.01  # not counted: a service's work between two transactions, during which a "decided" one is ended
TABLE = "create table if not exists bench_rows (at bigint, value text)"
INSERT = "insert into bench_rows values ($1, $2)"
VALUE = "x" * 100


async def commit_both(work: Wait, bootstrap: str, url: str, rows: int, transactions: int) -> Figures:
    """Run transactions of this many rows and records by `producer.transaction(db=…)`. Returns the median time of one.
    work: the argument `wait` of transaction().
    """
    async with connect(url, create=True) as db, Producer(bootstrap, transactional_id=f"bench-{work}") as producer:
        await db.execute(TABLE)

        async def commit_one(number: int) -> None:
            """Write rows and records, and commit them together."""
            async with producer.transaction(db=db, wait=work) as tx:
                for _ in range(rows):
                    await db.execute(INSERT, number, VALUE)
                    await tx.send(TOPIC, VALUE.encode())

        return await median_of(commit_one, transactions)


async def commit_apart(bootstrap: str, url: str, rows: int, transactions: int) -> Figures:
    """Run the same transactions with the driver alone: the database commits inside of the producer's transaction, so
    a crash between the two commits leaves rows without records. Returns the median time of one.
    """
    async with opened(url) as connection, Producer(bootstrap, transactional_id="bench-apart") as producer:
        await connection.execute(TABLE)

        async def commit_one(number: int) -> None:
            """Write rows and records, and commit one after the other."""
            async with producer.transaction() as tx, connection.transaction():
                for _ in range(rows):
                    await connection.execute(INSERT, number, VALUE)
                    await tx.send(TOPIC, VALUE.encode())

        return await median_of(commit_one, transactions)


async def median_of(commit_one: Callable[[int], Awaitable[None]], transactions: int) -> Figures:
    """Run this many transactions, after a few that do not count. Returns the median time of one, as "took_ms"."""
    took: list[float] = []
    for number in range(WARM_TRANSACTIONS + transactions):
        began = time.perf_counter()
        await commit_one(number)
        took.append(time.perf_counter() - began)
        await asyncio.sleep(PAUSE_S)
    return {"took_ms": 1e3 * statistics.median(took[WARM_TRANSACTIONS:])}


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Any]:
    """Open a connection of asyncpg, without fencepost.sql, for the block."""
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


if __name__ == "__main__":
    _, chosen, servers, address, *numbers = sys.argv
    each, count = map(int, numbers)
    if chosen == "apart":
        print_figures(commit_apart(servers, address, each, count))
    else:
        print_figures(commit_both("decided" if chosen == "decided" else "ended", servers, address, each, count))

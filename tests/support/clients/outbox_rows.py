"""Rows of an outbox in PostgreSQL, as applications insert them: positions are committed out of order, some never."""

import asyncio
import random

import asyncpg


async def insert_until(url: str, key: int, done: asyncio.Event) -> list[bytes]:
    """Insert rows with this one-byte key in transactions, some of which are rolled back, until `done` is set. Returns
    the values that were committed, in order.
    """
    connection, chance, written = await asyncpg.connect(url), random.Random(key), list[bytes]()
    while not done.is_set():
        block = connection.transaction()
        await block.start()
        rows = [b"%c%d" % (key, len(written) + each) for each in range(chance.randrange(1, 4))]
        await connection.executemany(
            "insert into outbox (key, value) values ($1, $2)", [(row[:1], row) for row in rows]
        )
        await asyncio.sleep(chance.random() * 0.2)  # rows of others are committed before
        if chance.random() < 0.2:
            await block.rollback()
        else:
            await block.commit()
            written += rows
    await connection.close()
    return written

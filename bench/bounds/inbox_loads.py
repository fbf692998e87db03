"""Loads of the inbox, each in a process: an insert for each record, those of a batch in a transaction of the database.

Run as `python -m fencepost.bench.bounds.inbox_loads inbox|inserts BOOTSTRAP TOPIC URL RECORDS COUNT`; prints figures as
JSON. RECORDS: in a batch. COUNT: how many batches.
"""

import sys
import time
from uuid import uuid4

from ...client.consumer.consumer import Consumer
from ...client.sql.connecting import connect
from ...client.sql.inbox import inbox
from ...client.sql.keeping import keep_places
from .commit_loads import INSERT, TABLE, opened
from .processes import Figures, print_figures

WORKS = ("inbox", "inserts")


def reader(bootstrap: str, topic: str) -> Consumer:
    """Return a consumer of a new group that reads the topic from its beginning."""
    return Consumer(bootstrap, topics=[topic], group_id=f"bench-{uuid4()}", auto_offset_reset="earliest")


async def insert_in_inbox(bootstrap: str, topic: str, url: str, records: int, count: int) -> Figures:
    """Insert the first `count` batches of the topic, each in an inbox. Returns the transactions a second."""
    done = 0
    async with connect(url, create=True) as db, reader(bootstrap, topic) as consumer:
        await db.execute(TABLE)
        async for batch in consumer.batches(records):
            if not done:
                await keep_places(db, consumer)
                began = time.perf_counter()
            async with inbox(db, batch) as new:
                for record in new:
                    await db.execute(INSERT, record.offset, record.value.hex())
            if (done := done + 1) == count:
                break
    return {"rate": count / (time.perf_counter() - began)}


async def insert_alone(bootstrap: str, topic: str, url: str, records: int, count: int) -> Figures:
    """Insert the same batches with the driver alone, each in a transaction. Returns the transactions a second."""
    done = 0
    async with opened(url) as connection, reader(bootstrap, topic) as consumer:
        await connection.execute(TABLE)
        async for batch in consumer.batches(records):
            if not done:
                began = time.perf_counter()
            async with connection.transaction():
                for record in batch:
                    await connection.execute(INSERT, record.offset, record.value.hex())
            if (done := done + 1) == count:
                break
    return {"rate": count / (time.perf_counter() - began)}


if __name__ == "__main__":
    _, chosen, servers, name, address, *numbers = sys.argv
    run = insert_in_inbox if chosen == "inbox" else insert_alone
    print_figures(run(servers, name, address, *map(int, numbers)))

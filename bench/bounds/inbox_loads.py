"""Loads of the inbox, each in a process: one insert for each record, in a transaction of the database.

python -m fencepost.bench.bounds.inbox_loads inbox|inserts BOOTSTRAP TOPIC URL COUNT prints figures as JSON.
"""

import sys
import time
from uuid import uuid4

from ...client.consumer.consumer import Consumer
from ...client.sql.connecting import connect
from ...client.sql.inbox import inbox
from ...client.sql.keeping import keep_places
from .processes import Figures, print_figures

WORKS = ("inbox", "inserts")
INSERT = "insert into bench values ($1, $2)"


async def run(work: str, bootstrap: str, topic: str, url: str, count: int) -> Figures:
    """Insert the first `count` records of the topic, one in each transaction. Returns the transactions a second."""
    async with (
        connect(url, create=True) as db,
        Consumer(bootstrap, topics=[topic], group_id=f"bench-{uuid4()}", auto_offset_reset="earliest") as consumer,
    ):
        if db.dialect == "sqlite":
            await db.execute("pragma journal_mode = wal")
        await db.execute("create table if not exists bench (at bigint, value text)")
        batches = consumer.batches(1)
        batch = await anext(batches)
        if work == "inbox":
            await keep_places(db, consumer)
        began = time.perf_counter()
        for left in range(count, 0, -1):
            values = batch[0].offset, batch[0].value.hex()
            if work == "inbox":
                async with inbox(db, batch):
                    await db.execute(INSERT, *values)
            else:
                await db.begin()
                await db.execute_last(INSERT, *values)
                await db.commit()
            if left > 1:
                batch = await anext(batches)
        return {"rate": count / (time.perf_counter() - began)}


if __name__ == "__main__":
    _, chosen, servers, name, address, number = sys.argv
    print_figures(run(chosen, servers, name, address, int(number)))

"""A consumer that writes what it reads into a database with an inbox, as a process, until it is killed.

python inbox_worker.py BOOTSTRAP GROUP_PROTOCOL DATABASE_URL TOPIC GROUP SESSION_MS
"""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from fencepost import Consumer, KafkaError, Record, sql

TABLES = {
    "sqlite": "create table effects (partition_number integer, at bigint, position integer primary key)",
    "postgresql": "create table effects (partition_number integer, at bigint, position bigserial)",
}
RECORDS = 7  # in a batch: ends of batches differ from one reader to the next


async def work(db: Any, records: Sequence[Record]) -> None:
    for record in records:
        await db.execute("insert into effects (partition_number, at) values ($1, $2)", record.partition, record.offset)


async def main(bootstrap: str, protocol: Any, url: str, topic: str, group: str, session_ms: str) -> None:
    async with (
        sql.connect(url, create=True) as db,
        Consumer(
            bootstrap,
            topics=[topic],
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            **({"session_timeout_ms": int(session_ms), "heartbeat_interval_ms": 200} if protocol == "classic" else {}),
        ) as consumer,
    ):
        batches = consumer.batches(RECORDS)
        print("begun", flush=True)
        while True:
            batch = await anext(batches)
            with suppress(KafkaError):  # fenced, or the database was locked: the records come again
                async with sql.inbox(db, batch) as new:
                    await work(db, new)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:7]))

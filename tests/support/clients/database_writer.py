"""A process that writes rows and records in transactions over a database and a broker, until it is killed or fenced.

python database_writer.py BOOTSTRAP DATABASE_URL TRANSACTIONAL_ID LIFE

LIFE: the number of this process among those with the id. The database has the table of these statements. Each row of
it, a key and a value, is a record of the topic "orders" with the same key and value. A process with a higher life
writes higher values. On stdout each line is what became of a transaction: "committed", "failed ERROR", or "fenced"; the
last one ends the process. An error that no killed server explains ends it with a traceback.
"""

import asyncio
import importlib.util
import itertools
import logging
import random
import sqlite3
import sys
from typing import Any

from fencepost.client.errors import FatalError, IllegalStateError, InvalidConfigurationError, OutcomeDivergedError

from fencepost import KafkaError, Producer, ProducerFencedError, sql

TABLES = {
    "sqlite": "create table orders (position integer primary key autoincrement, key text, value text)",
    "postgresql": "create table orders (position bigserial primary key, key text, value text)",
}
TRANSACTION_TIMEOUT_MS = 4_000
KEYS = 3
SLOW_S = 0.1
PAUSE_S = 0.05
NEVER_EXPECTED = (FatalError, IllegalStateError, InvalidConfigurationError, OutcomeDivergedError)


class Undone(Exception):
    """Raised by a block that wants nothing of itself committed."""


def errors_of_drivers() -> tuple[type[Exception], ...]:
    """Return what drivers raise if their database is away, restarted, or locked by another process."""
    found: list[type[Exception]] = [sqlite3.OperationalError, OSError]
    if importlib.util.find_spec("asyncpg") is not None:
        import asyncpg

        found += [asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError]
    if importlib.util.find_spec("psycopg") is not None:
        import psycopg

        found.append(psycopg.OperationalError)
    return tuple(found)


def tell(*words: object) -> None:
    print(*words, flush=True)


async def until_there(open_it: Any) -> Any:
    """Call open_it until it returns, as it does when both the database and the broker answer, and return its result."""
    while True:
        try:
            return await open_it()
        except (KafkaError, *errors_of_drivers()) as error:
            if isinstance(error, NEVER_EXPECTED):
                raise
            await asyncio.sleep(PAUSE_S)


def slow_down(db: Any, chance: random.Random) -> None:
    """Let some commits of the database take their time, before and after: a kill meets prepared transactions then."""
    commit = db.commit

    async def commit_slowly() -> None:
        slowly = chance.random() < 0.5
        if slowly:
            await asyncio.sleep(chance.uniform(0, SLOW_S))
        await commit()
        if slowly:
            await asyncio.sleep(chance.uniform(0, SLOW_S))

    db.commit = commit_slowly


async def write(producer: Producer, db: Any, name: str, number: str, chance: random.Random) -> None:
    """Write one to three rows and records in one transaction; some of them raise Undone at the end."""
    async with producer.transaction(db=db, wait=chance.choice(["ended", "decided"])) as tx:
        for each in range(chance.randint(1, 3)):
            key, value = f"{name}/{chance.randrange(KEYS)}", f"{number}-{each}"
            await db.execute("insert into orders (key, value) values ($1, $2)", key, value)
            await tx.send("orders", value.encode(), key=key.encode())
        if chance.random() < 0.1:
            raise Undone


async def work(producer: Producer, db: Any, name: str, life: str) -> None:
    """Write transactions until fenced, and print what became of each."""
    chance = random.Random(f"{name} {life}")
    slow_down(db, chance)
    for number in itertools.count():
        try:
            await write(producer, db, name, f"{int(life):04}-{number:06}", chance)
            tell("committed")
        except Undone:
            tell("undone")
        except ProducerFencedError as error:
            if error.reason != "transaction_timeout":
                logging.info("fenced: %s (%s)", error, error.reason)
                tell("fenced")
                return
            tell("failed", "transaction_timeout")
        except (KafkaError, *errors_of_drivers()) as error:
            if isinstance(error, NEVER_EXPECTED):
                raise
            tell("failed", type(error).__name__)
            await asyncio.sleep(PAUSE_S)


async def main(bootstrap: str, url: str, name: str, life: str) -> None:
    db = await until_there(sql.connect(url).__aenter__)

    async def started() -> Producer:
        producer = Producer(
            bootstrap, transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, max_block_ms=15_000
        )
        return await producer.__aenter__()

    producer = await until_there(started)
    try:
        await work(producer, db, name, life)
    finally:
        await producer.close(timeout_ms=5_000)
        await db.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(*sys.argv[1:5]))

"""A writer over a database and a broker, for tests that let something happen to it at each of its calls to both."""

import contextlib
from typing import Any

from fates import Fate, Killed
from fencepost.client.errors import KafkaError
from fencepost.client.producer.producer import Producer

CALLS = {
    "database": ["claim", "begin", "execute", "decide", "commit", "close_number"],
    "decisions": ["look", "prepare", "end"],
    "requests": ["init", "end"],
    "sender": ["flush"],
}
LEAST = 19  # calls of a writer with two transactions
BEFORE_END = 10  # the first call between COMMIT and EndTxns


async def write(producer: Producer, db: Any, *numbers: int, topic: str = "t") -> None:
    """Write each of these numbers in a transaction of its own, as a row and as a record."""
    for number in numbers:
        async with producer.transaction(db=db) as tx:
            await db.execute("insert into orders values ($1)", number)
            await tx.send(topic, b"%d" % number)


async def live(
    producer: Producer, orders: Any, fate: Fate, errors: tuple[type[Exception], ...], topic: str = "t"
) -> None:
    """Run a writer of two transactions until it has done them, is killed, or is told that another one goes on.

    orders: opens the database, and cuts its connection (`open`, `cut`); `gone` is the error of a lost one. errors:
    those of drivers, after which the writer ends.
    """
    db = orders.open()
    await db.open()
    fate.error = orders.gone
    await db.execute("create table if not exists orders (id integer primary key)")
    driver: Any = producer._driver
    parts = {"database": db, "decisions": driver.databases._decisions, "requests": driver._requests}
    for name, part in {**parts, "sender": driver.sender}.items():
        fate.watch(part, CALLS[name])
    fate.watch_sending(parts["decisions"], "prepare_behind")
    with contextlib.suppress(Killed, KafkaError, *errors):
        await write(producer, db, 1, 2, topic=topic)
    fate.dead = True
    driver.databases.close()
    orders.cut(db)
    producer._closed = True
    await producer._parts.release()  # what is open stays open

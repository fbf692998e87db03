"""Orders that are rows of a database and records of a topic, by the same numbers."""

from fencepost import Consumer, Producer, TopicPartition, sql

TABLE = "create table orders (id integer primary key, name text)"


async def rows_of(db: sql.Database) -> list[int]:
    return [row[0] for row in await db.fetch("select id from orders order by id")]


async def records_of(broker: str, topic: str = "orders") -> list[int]:
    """Return the numbers of all records that a read_committed reader gets, up to the last stable offset."""
    partition = TopicPartition(topic, 0)
    found: list[int] = []
    async with Consumer(broker, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            found += [int(one.value) for some in (await consumer.getmany(timeout_ms=500)).values() for one in some]
    return found


async def write(producer: Producer, db: sql.Database, number: int) -> None:
    """Write an order in one transaction of both."""
    async with producer.transaction(db=db) as tx:
        await db.execute("insert into orders values ($1, $2)", number, "alice")
        await tx.send("orders", b"%d" % number)

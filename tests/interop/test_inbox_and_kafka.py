"""The inbox with Apache Kafka, and with our broker: KAFKA=HOST:PORT pytest -m long FILE.

Each record's effect is in the database once: whoever is killed, stopped or comes back, whatever happens to group and
topic. What the inbox does in detail is tested with our broker in tests/client/sql/test_inbox.py.
"""

import asyncio
import contextlib
import itertools
import os
from typing import Any

import pytest
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import ErrorCode, InboxFencedError, KafkaError, OffsetOutOfRangeError
from fencepost.client.producer.producer import Producer
from fencepost.client.values import TopicPartition
from inbox_crew import Crew, compare_under_faults

from fencepost import sql

pytestmark = pytest.mark.long
RUN = f"i{os.getpid()}"  # part of every name: a Kafka that is given keeps what earlier runs left
PARTITIONS = 4
FAULTS = 12  # of processes, in one run
SESSION_MS = 6_000  # the shortest that Kafka takes
_numbers = itertools.count()


@pytest.fixture
async def topic(bootstrap: str) -> str:
    name = f"{RUN}-{next(_numbers)}"
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS)])
    return name


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
async def db(url: str) -> Any:
    async with sql.connect(url, create=True) as db:
        await db.execute("create table effects (partition_number integer, value text, position bigserial)")
        yield db


async def send(bootstrap: str, topic: str, first: int, last: int) -> None:
    """Send these numbers, the last one not among them, to the partitions in turn; some of it in transactions."""
    async with Producer(bootstrap, transactional_id=topic) as writer:
        for number in range(first, last, 10):
            await writer.begin_transaction()
            for each in range(number, min(last, number + 10)):
                await writer.send(topic, b"%d" % each, partition=each % PARTITIONS)
            await writer.commit_transaction()
            await writer.begin_transaction()
            await writer.send(topic, b"aborted", partition=number % PARTITIONS)
            await writer.abort_transaction()


async def work(db: Any, batch: Any) -> None:
    async with sql.inbox(db, batch) as new:
        for record in new:
            await db.execute("insert into effects values ($1, $2)", record.partition, record.value.decode())


async def effects(db: Any) -> dict[int, list[int]]:
    """Return the numbers whose effects are in the database, by partition, in the order in which they came."""
    found: dict[int, list[int]] = {each: [] for each in range(PARTITIONS)}
    for partition, value in await db.fetch("select partition_number, value from effects order by position"):
        found[partition].append(int(value))
    return found


def all_of(last: int) -> dict[int, list[int]]:
    return {each: list(range(each, last, PARTITIONS)) for each in range(PARTITIONS)}


async def count(db: Any) -> int:
    found: int = (await db.fetch("select count(*) from effects"))[0][0]
    return found


def reader(bootstrap: str, topic: str, **more: Any) -> Consumer:
    return Consumer(bootstrap, group_id=topic, auto_offset_reset="earliest", session_timeout_ms=SESSION_MS, **more)


@contextlib.asynccontextmanager
async def reading_all(bootstrap: str, topic: str) -> Any:
    """Yield a consumer of all partitions that is no member of its group, so that no rebalance keeps others off."""
    async with reader(bootstrap, topic) as consumer:
        consumer.assign([TopicPartition(topic, each) for each in range(PARTITIONS)])
        yield consumer


async def drain(db: Any, consumer: Consumer, until: int) -> None:
    """Work on batches until there are so many effects. If it is fenced, it goes on with the next batch."""
    batches = consumer.batches(7)
    async with asyncio.timeout(60):
        while await count(db) < until:
            with contextlib.suppress(InboxFencedError):
                await work(db, await anext(batches))


async def drain_when_told(db: Any, consumer: Consumer, until: int) -> None:
    """Do as drain(), with a consumer at positions in a deleted topic, so each partition raises OffsetOutOfRangeError
    once.
    """
    for _ in range(PARTITIONS):
        with contextlib.suppress(OffsetOutOfRangeError):
            await drain(db, consumer, until)
    await drain(db, consumer, until)


async def test_a_zombie_of_an_inbox_is_fenced_and_each_record_has_its_effect_once(
    bootstrap: str, topic: str, url: str, db: Any
) -> None:
    await send(bootstrap, topic, 0, 40)
    async with reading_all(bootstrap, topic) as zombie, reading_all(bootstrap, topic) as owner:
        batches = zombie.batches(7)
        await work(db, await anext(batches))
        batch = await anext(batches)
        async with sql.connect(url) as own:
            await drain(own, owner, 40)
            with pytest.raises(InboxFencedError):
                await work(db, batch)
            assert await effects(db) == all_of(40)
            await send(bootstrap, topic, 40, 60)
            await drain(db, zombie, 60)  # it claims again
    assert await effects(db) == all_of(60)


async def keep_working(bootstrap: str, topic: str, url: str, protocol: Any) -> None:
    """Work as a member of the group until cancelled. A block takes its time, so rebalances come in its midst."""
    chosen = {"session_timeout_ms": SESSION_MS} if protocol == "classic" else {}
    member = Consumer(
        bootstrap, topics=[topic], group_id=topic, group_protocol=protocol, auto_offset_reset="earliest", **chosen
    )
    async with sql.connect(url) as db, member as consumer:
        async for batch in consumer.batches(7):
            with contextlib.suppress(InboxFencedError):
                async with sql.inbox(db, batch) as new:
                    for record in new:
                        await asyncio.sleep(0.01)
                        await db.execute("insert into effects values ($1, $2)", record.partition, record.value.decode())


async def leave(tasks: list["asyncio.Task[None]"]) -> None:
    """Let these members leave the group, perhaps in the midst of a block. Raises the error of one that has failed."""
    for task in tasks:
        task.cancel()
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, Exception):
            raise error


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_rebalances_during_inbox_blocks_leave_each_record_its_effect_once(
    bootstrap: str, topic: str, url: str, db: Any, protocol: str
) -> None:
    last, tasks = 600, list["asyncio.Task[None]"]()
    await send(bootstrap, topic, 0, last)

    async def reaches(number: int) -> None:
        async with asyncio.timeout(120):
            while await count(db) < number and not any(task.done() for task in tasks):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    try:
        for number in (1, 100, 200, 300):
            tasks.append(asyncio.create_task(keep_working(bootstrap, topic, url, protocol)))
            await reaches(number)
        await leave([tasks.pop(0), tasks.pop(0)])
        tasks.append(asyncio.create_task(keep_working(bootstrap, topic, url, protocol)))
        await reaches(last)
    finally:
        await leave(tasks)
    assert await effects(db) == all_of(last)


async def test_after_the_group_was_deleted_an_inbox_applies_no_record_twice(
    bootstrap: str, topic: str, db: Any
) -> None:
    await send(bootstrap, topic, 0, 40)
    async with reading_all(bootstrap, topic) as consumer:
        await drain(db, consumer, 40)
    async with Admin(bootstrap) as admin:
        await admin.delete_groups([topic])
        await send(bootstrap, topic, 40, 60)
        async with reading_all(bootstrap, topic) as consumer:
            await drain(db, consumer, 60)
    assert await effects(db) == all_of(60)


async def make_again(bootstrap: str, topic: str) -> None:
    """Delete the topic and make it again; Kafka removes it in the background."""
    async with Admin(bootstrap) as admin, asyncio.timeout(60):
        await admin.delete_topics([topic])
        while True:
            try:
                await admin.create_topics([NewTopic(topic, PARTITIONS)])
            except KafkaError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
                await asyncio.sleep(0.1)
            else:
                return


@pytest.mark.parametrize("runs_on", [False, True])
async def test_an_inbox_applies_each_record_of_a_topic_that_was_made_again_once(
    bootstrap: str, topic: str, db: Any, runs_on: bool
) -> None:
    """runs_on: the same consumer goes on. The group's offsets are still those of the old topic."""
    await send(bootstrap, topic, 0, 40)
    async with reading_all(bootstrap, topic) as first:
        await drain(db, first, 40)
        await make_again(bootstrap, topic)
        await send(bootstrap, topic, 40, 60)
        if runs_on:
            await drain_when_told(db, first, 60)
    async with reading_all(bootstrap, topic) as second:
        await sql.keep_places(db, second)  # else it begins at the group's offset, and is told so
        await drain(db, second, 60)
    found = await effects(db)
    assert {each: values[:10] for each, values in found.items()} == all_of(40)
    assert {each: values[10:] for each, values in found.items()} == {
        each: list(range(40 + each, 60, PARTITIONS)) for each in range(PARTITIONS)
    }


async def test_inbox_workers_killed_and_stopped_at_random_apply_each_record_once(bootstrap: str, url: str) -> None:
    """They stop for longer than their session; the group is deleted between."""
    topic = f"{RUN}-killed-{next(_numbers)}"
    crew = Crew(bootstrap, "classic", url, topic, topic, SESSION_MS)
    await compare_under_faults(crew, bootstrap, url, 4, FAULTS, [8], topic)

"""A mirror to Apache Kafka and back, compared record by record: KAFKA=HOST:PORT pytest -m long FILE."""

import asyncio
import os

import pytest
from fencepost.broker.embedded.broker import Broker
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import NewTopic
from fencepost.client.producer.producer import Producer
from fencepost.client.values import TopicPartition
from mirrored import Sides, assert_exact, contents, group_protocols_of, records_of

KAFKA = os.environ.get("KAFKA", "")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not KAFKA, reason="no Apache Kafka is given: KAFKA=HOST:PORT"),
]
RUN = f"k{os.getpid()}"  # part of every name: a Kafka that is given keeps what earlier runs left


@pytest.fixture(scope="module")
def ours():
    """A fencepost broker."""
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["to Kafka", "from Kafka"])
def sides(request: pytest.FixtureRequest, ours: str) -> Sides:
    return Sides(ours, KAFKA) if request.param == "to Kafka" else Sides(KAFKA, ours)


def name_of(sides: Sides, what: str) -> str:
    """Return a name that no other run uses, and that differs by direction."""
    return f"{RUN}-{what}-{'to' if sides.target == KAFKA else 'from'}"


async def make(bootstrap: str, name: str, partitions: int = 3, **configs: str) -> None:
    async with Admin(bootstrap) as admin:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        await admin.create_topics(NewTopic(name, partitions, configs=named))


async def write(bootstrap: str, name: str, count: int, transactional_id: str | None = None) -> int:
    """Write to three partitions; with a transactional id, in transactions of ten of which each fourth is aborted.

    Returns how many records are committed.
    """
    committed = 0
    async with Producer(bootstrap, transactional_id=transactional_id) as producer:
        for first in range(0, count, 10):
            aborts = transactional_id is not None and first % 40 == 30
            if transactional_id is not None:
                await producer.begin_transaction()
            for each in range(first, first + 10):
                headers = [("h", b"%d" % each), ("h", None)] if each % 3 else None
                value = b"%d" % each if each % 5 else None
                await producer.send(name, value, key=b"k%d" % (each % 7), partition=each % 3, headers=headers)
            if transactional_id is not None:
                await (producer.abort_transaction() if aborts else producer.commit_transaction())
            committed += 0 if aborts else 10
        await producer.flush()
    return committed


async def test_a_mirror_copies_each_record_once_while_its_tasks_come_and_go(sides: Sides) -> None:
    name = name_of(sides, "all")
    await make(sides.source, name)
    count = await write(sides.source, name, 2000) + await write(sides.source, name, 400, name)
    async with sides.running(sides.task(name, name)):
        await sides.drained(name, mirror=name)
    async with sides.running(sides.task(name, name)), sides.running(sides.task(name, name)):
        async with sides.running(sides.task(name, name)):
            await sides.joined(3, name)
            count += await write(sides.source, name, 400, name)
            await sides.drained(name, mirror=name)
        count += await write(sides.source, name, 1000)
        await sides.drained(name, mirror=name)
    assert await assert_exact(sides, name, name) == count


async def test_with_the_consumer_group_protocol_mirror_tasks_copy_each_record_once(sides: Sides) -> None:
    if "consumer" not in await group_protocols_of(sides.target):
        pytest.skip("the target has only the classic group protocol: it is a Kafka before 4.0")
    name = name_of(sides, "newer")
    await make(sides.source, name)
    more = {"group.protocol": "consumer"}
    count = await write(sides.source, name, 200, name)
    async with sides.running(sides.task(name, name, **more)), sides.running(sides.task(name, name, **more)):
        await sides.joined(2, name)
        count += await write(sides.source, name, 1000)
        await sides.drained(name, mirror=name)
    assert await assert_exact(sides, name, name) == count


async def test_a_mirror_copies_the_records_of_a_compacted_topic_without_its_offset_gaps(sides: Sides) -> None:
    name = name_of(sides, "compacted")
    quick = {
        "cleanup_policy": "compact",
        "segment_ms": "100",
        "min_cleanable_dirty_ratio": "0.01",
        "segment_bytes": "1048576",
    }
    await make(sides.source, name, **quick)
    await make(sides.target, name)  # not compacted, to be compared
    written = 0
    async with asyncio.timeout(100):
        while sum(map(len, (await records_of(sides.source, name)).values())) > written - 100:
            written += await write(sides.source, name, 300, name)
            await asyncio.sleep(1)
    async with sides.running(sides.task(name, name)) as task:
        await sides.drained(name, mirror=name)
        await write(sides.source, name, 90)
        await sides.drained(name, mirror=name)
    assert 0 < task.counts.records < written
    assert sum(map(len, (await records_of(sides.target, name)).values())) == task.counts.records
    source, target = await records_of(sides.source, name), await records_of(sides.target, name)
    for partition, records in source.items():  # the source may have been compacted again meanwhile
        left = contents(records)
        assert [each for each in contents(target[partition]) if each in left] == left


async def test_a_mirror_begins_at_the_sources_log_start_and_copies_added_partitions(sides: Sides) -> None:
    name = name_of(sides, "grows")
    await make(sides.source, name)
    await write(sides.source, name, 300)
    async with Admin(sides.source) as admin:
        await admin.delete_records({TopicPartition(name, 1): 50})
        async with sides.running(sides.task(name, name)):
            await sides.drained(name, mirror=name)
            await admin.create_partitions({name: 5})
            async with Producer(sides.source) as producer:
                await asyncio.sleep(1)
                for each in range(100):
                    await producer.send(name, b"%d" % each, partition=each % 5)
                await producer.flush()
            await sides.drained(name, mirror=name)
    assert await assert_exact(sides, name, name) == 350

"""A consumer without a group that names topics: it reads all of them, and what they grow by."""

import pytest
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import IllegalStateError, NoOffsetError
from fencepost.client.producer.producer import Producer
from fencepost.client.values import TopicPartition
from fencepost.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest
from txn_world import BOOTSTRAP, within

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))


def reader(world, **keywords):
    keywords = {"topics": ["t"], "auto_offset_reset": "earliest", "metadata_max_age_ms": 5_000, **keywords}
    return Consumer(BOOTSTRAP, environment=world.world.environment, **keywords)


async def make(world, name="t", partitions=2):
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1)
    cluster = await world.world.cluster()
    response = await cluster.ask("any", CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
    assert not response.topics[0].error_code


async def grow(world, count):
    topic = CreatePartitionsRequest.Topic(name="t", count=count, assignments=None)
    cluster = await world.world.cluster()
    response = await cluster.ask("any", CreatePartitionsRequest(topics=[topic], timeout_ms=5_000))
    assert not response.results[0].error_code


async def write(world, value, partition=0, topic="t"):
    async with Producer(BOOTSTRAP, environment=world.world.environment) as producer:
        await producer.send_and_wait(topic, value, partition=partition)


async def values(consumer, count):
    return {(await consumer.getone()).value for _ in range(count)}


def test_a_consumer_without_a_group_reads_all_partitions():
    async def main(world):
        await make(world)
        await write(world, b"a")
        await write(world, b"b", partition=1)
        for _ in range(2):
            async with reader(world) as consumer:
                assert await consumer.assigned() == {T0, T1}
                assert await values(consumer, 2) == {b"a", b"b"}
                assert await consumer.lag() == {T0: 0, T1: 0}

    within(main)


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_an_added_partition_is_read_from_its_first_record(policy):
    async def main(world):
        await make(world)
        async with reader(world, auto_offset_reset=policy) as consumer:
            await consumer.assigned()
            await grow(world, 3)
            await write(world, b"first", partition=2)
            assert await values(consumer, 1) == {b"first"}
            assert consumer.assignment() == {T0, T1, T2}
            assert await consumer.position(T2) == 1

    within(main)


@pytest.mark.parametrize("by", [{"topics": ["t", "u"]}, {"pattern": "[tu]"}])
def test_a_new_topic_is_read_from_its_first_record(by):
    async def main(world):
        await make(world)
        await make(world, "other")
        await write(world, b"before")
        async with reader(world, topics=(), auto_offset_reset="latest") as consumer:
            consumer.subscribe(**by)
            assert await consumer.assigned() == {T0, T1}
            await make(world, "u", 1)
            await write(world, b"first", topic="u")
            assert await values(consumer, 1) == {b"first"}

    within(main)


def test_topics_subscribed_later_start_by_auto_offset_reset():
    async def main(world):
        await make(world)
        await make(world, "u", 1)
        await write(world, b"before", topic="u")
        async with reader(world, auto_offset_reset="latest") as consumer:
            await consumer.assigned()
            for again in range(2):
                consumer.subscribe(["u"])
                while consumer.assignment() != {("u", 0)}:
                    await consumer.getmany(timeout_ms=100)
                await consumer.assigned()
                await write(world, b"after", topic="u")
                assert await values(consumer, 1) == {b"after"}, again
                await consumer.unsubscribe()
                assert not consumer.assignment()

    within(main)


def test_with_auto_offset_reset_none_a_missing_offset_raises():
    async def main(world):
        await make(world)
        async with reader(world, auto_offset_reset="none") as consumer:
            with pytest.raises(NoOffsetError):
                await consumer.getone()

    within(main)


def test_without_a_group_id_commits_and_rebalance_listeners_are_refused():
    async def main(world):
        await make(world)
        await write(world, b"a")
        async with reader(world) as consumer:
            await consumer.getone()
            for wrong in (consumer.commit, consumer.committed):
                with pytest.raises(IllegalStateError, match="without a group_id") as refused:
                    await wrong()
                assert refused.value.hint == "set group_id"
            with pytest.raises(IllegalStateError, match="listener"):
                consumer.subscribe(["t"], listener=object())

    within(main)

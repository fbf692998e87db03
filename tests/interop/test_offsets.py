"""Committed offsets with unchanged clients: by hand, from time to time, and across a killed broker."""

import asyncio
import threading

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

COUNT = 30


def filled(broker, topic):
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(20) == 0


def consumer_of(broker, group, **more):
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    return Consumer(settings | {"enable.auto.commit": False} | more)


def taken(consumer, count):
    found = []
    while len(found) < count:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(int(message.value()))
    return found


def killed(broker):
    broker.kill()
    broker.start()


@pytest.mark.requirement("S-06", "S-09")
def test_after_a_kill_confluent_kafka_continues_at_its_committed_offset(broker, name):
    filled(broker, name)
    consumer = consumer_of(broker, name)
    consumer.subscribe([name])
    assert taken(consumer, 10) == list(range(10))
    (reported,) = consumer.commit(asynchronous=False)
    assert (reported.error, reported.offset) == (None, 10)
    assert taken(consumer, 5) == list(range(10, 15))  # read and not committed
    killed(broker)
    del consumer
    again = consumer_of(broker, name)
    again.assign([TopicPartition(name, 0)])
    (committed,) = again.committed([TopicPartition(name, 0)], timeout=20)
    assert committed.offset == 10
    assert taken(again, COUNT - 10) == list(range(10, COUNT))
    again.close()


@pytest.mark.requirement("S-06")
def test_confluent_commits_asynchronously_and_gets_the_result_later(broker, name):
    filled(broker, name)
    reported = []
    done = threading.Event()

    def on_commit(error, partitions):
        reported.append((error, [(each.offset, each.metadata) for each in partitions]))
        done.set()

    consumer = consumer_of(broker, name, on_commit=on_commit)
    consumer.assign([TopicPartition(name, 0, 0)])
    taken(consumer, 3)
    consumer.commit(offsets=[TopicPartition(name, 0, 3, "a note")], asynchronous=True)
    while not done.is_set():
        consumer.poll(0.1)
    assert reported[0][0] is None
    killed(broker)
    (committed,) = consumer.committed([TopicPartition(name, 0)], timeout=20)
    assert (committed.offset, committed.metadata) == (3, "a note")
    consumer.close()


@pytest.mark.requirement("S-05")
def test_a_new_confluent_consumer_continues_at_offsets_of_an_earlier_auto_commit(broker, name):
    filled(broker, name)
    consumer = consumer_of(broker, name, **{"enable.auto.commit": True, "auto.commit.interval.ms": 100})
    consumer.subscribe([name])
    taken(consumer, 12)
    consumer.close()
    killed(broker)
    again = consumer_of(broker, name)
    again.subscribe([name])
    assert taken(again, 3) == [12, 13, 14]
    again.close()


def test_committing_offsets_of_an_unknown_topic_raises_in_confluent_kafka(broker, name):
    consumer = consumer_of(broker, name)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        consumer.commit(offsets=[TopicPartition(name, 0, 3)], asynchronous=False)
    consumer.close()


@pytest.mark.requirement("S-06", "S-09")
async def test_aiokafka_continues_at_its_committed_offset(broker, name):
    filled(broker, name)
    place = AioPartition(name, 0)
    settings = {"bootstrap_servers": broker.bootstrap, "group_id": name, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(name, enable_auto_commit=False, **settings) as consumer:
        assert [int((await consumer.getone()).value) for _ in range(8)] == list(range(8))
        await consumer.commit({place: (5, "a note")})
        assert await consumer.committed(place) == 5
    killed(broker)
    async with AIOKafkaConsumer(name, enable_auto_commit=False, **settings) as consumer:
        assert int((await consumer.getone()).value) == 5


@pytest.mark.requirement("S-05")
async def test_aiokafkas_auto_commit_commits_offsets(broker, name):
    filled(broker, name)
    place = AioPartition(name, 0)
    settings = {"bootstrap_servers": broker.bootstrap, "group_id": name, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(name, auto_commit_interval_ms=100, **settings) as consumer:
        for _ in range(9):
            await consumer.getone()
        async with asyncio.timeout(20):
            while await consumer.committed(place) != 9:  # noqa: ASYNC110 - the client tells nobody when it commits
                await asyncio.sleep(0.05)
    killed(broker)
    async with AIOKafkaConsumer(name, enable_auto_commit=False, **settings) as consumer:
        assert int((await consumer.getone()).value) == 9

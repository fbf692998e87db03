"""Transactional producers of three client libraries, unchanged: commit, abort, fencing, consume-transform-produce.

What librdkafka is known to hang on by itself (a broker that dies inside a transaction) is not met here.
"""

import asyncio
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import ProducerFenced as AioFencedError
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as ConfluentError
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.errors import ProducerFencedError as PythonFencedError
from kafka.structs import OffsetAndMetadata

TIMEOUT_S = 20


@pytest.fixture
def server(broker):
    return broker.bootstrap


def read(server: str, topic: str, isolation: str, count: int) -> list[bytes]:
    """Read `count` values from the beginning, assert that no more come for 0.3 s, and return them."""
    consumer = Consumer(
        {
            "bootstrap.servers": server,
            "group.id": f"reader-{uuid.uuid4().hex}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while len(found) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"only {found}"
        assert message.error() is None, message.error()
        found.append(message.value())
    assert consumer.poll(0.3) is None
    consumer.close()
    return found


def confluent(server: str, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": server, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    return producer


def test_confluent_kafka_commits_aborts_and_is_fenced(server, name):
    """Readers get its committed records only; the commit of a producer whose id another took over is refused."""
    producer = confluent(server, name)
    for value, commit in ((b"1", True), (b"2", False), (b"3", True)):
        producer.begin_transaction()
        producer.produce(name, value)
        assert producer.flush(TIMEOUT_S) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)
        if commit:  # it returned, so every reader sees it
            assert read(server, name, "read_committed", int(value) // 2 + 1)[-1] == value
    assert read(server, name, "read_committed", 2) == [b"1", b"3"]
    assert read(server, name, "read_uncommitted", 3) == [b"1", b"2", b"3"]
    producer.begin_transaction()
    producer.produce(name, b"zombie")
    producer.flush(TIMEOUT_S)
    confluent(server, name)
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].code() == ConfluentError._FENCED
    assert read(server, name, "read_committed", 2) == [b"1", b"3"]


@pytest.mark.requirement("S-03", "S-118", "S-85")
def test_confluent_kafka_copies_each_record_once_with_offsets_in_its_transactions(server, name):
    """The copier is restarted once, and one of its attempts is aborted and repeated."""
    source, target = f"{name}-in", f"{name}-out"
    plain = Producer({"bootstrap.servers": server})
    for number in range(6):
        plain.produce(source, b"%d" % number)
    assert plain.flush(TIMEOUT_S) == 0
    copied: list[bytes] = []
    for life in range(2):  # each takes three, the second one aborts its first attempt
        consumer = Consumer(
            {
                "bootstrap.servers": server,
                "group.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([source])
        producer = confluent(server, f"{name}-copier")
        messages = []
        while len(messages) < 3:
            messages += consumer.consume(3 - len(messages), TIMEOUT_S)
        for commit in (False, True) if life == 1 else (True,):
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, b"copy of " + message.value())
            offsets = [TopicPartition(source, 0, messages[-1].offset() + 1)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
            (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)
        copied += [message.value() for message in messages]
        consumer.close()
    assert copied == [b"%d" % number for number in range(6)]
    assert read(server, target, "read_committed", 6) == [b"copy of %d" % number for number in range(6)]


async def test_aiokafka_commits_aborts_and_is_fenced(server, name):
    """Readers get its committed records only, and then those of the producer that took over its transactional id."""

    async def begin() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=server, transactional_id=name)
        await asyncio.wait_for(producer.start(), TIMEOUT_S)
        return producer

    producer = await begin()
    for value, commit in ((b"1", True), (b"2", False), (b"3", True)):
        await producer.begin_transaction()
        await producer.send_and_wait(name, value)
        await (producer.commit_transaction if commit else producer.abort_transaction)()
    consumer = AIOKafkaConsumer(
        name, bootstrap_servers=server, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    await consumer.start()
    found = [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in range(2)]
    assert found == [b"1", b"3"]
    await producer.begin_transaction()
    await producer.send_and_wait(name, b"zombie")
    successor = await begin()
    with pytest.raises(AioFencedError):
        await asyncio.wait_for(producer.commit_transaction(), TIMEOUT_S)
    await successor.begin_transaction()
    await successor.send_and_wait(name, b"4")
    await successor.commit_transaction()
    assert (await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value == b"4"
    await consumer.stop()
    await successor.stop()
    await producer.stop()


async def test_aiokafkas_offsets_of_a_transaction_count_only_after_its_commit(server, name):
    producer = AIOKafkaProducer(bootstrap_servers=server, transactional_id=name)
    await producer.start()
    partition = AioPartition(name, 0)
    for offset, commit in ((5, True), (9, False)):
        await producer.begin_transaction()
        await producer.send_and_wait(name, b"x")
        await producer.send_offsets_to_transaction({partition: offset}, f"{name}-group")
        await (producer.commit_transaction if commit else producer.abort_transaction)()
    consumer = AIOKafkaConsumer(bootstrap_servers=server, group_id=f"{name}-group", enable_auto_commit=False)
    await consumer.start()
    consumer.assign([partition])
    assert await asyncio.wait_for(consumer.committed(partition), TIMEOUT_S) == 5
    await consumer.stop()
    await producer.stop()


def test_kafka_python_commits_aborts_sends_offsets_and_is_fenced(server, name):
    """Readers get its committed records only, and the group has the offset of its last commit."""
    producer = KafkaProducer(bootstrap_servers=server, transactional_id=name)
    producer.init_transactions()
    for value, commit in ((b"1", True), (b"2", False), (b"3", True)):
        producer.begin_transaction()
        producer.send(name, value).get(TIMEOUT_S)
        offsets = {PythonPartition(name, 0): OffsetAndMetadata(int(value), "", -1)}
        producer.send_offsets_to_transaction(offsets, f"{name}-group")
        (producer.commit_transaction if commit else producer.abort_transaction)()
    assert read(server, name, "read_committed", 2) == [b"1", b"3"]
    consumer = KafkaConsumer(bootstrap_servers=server, group_id=f"{name}-group", enable_auto_commit=False)
    assert consumer.committed(PythonPartition(name, 0)) == 3
    consumer.close()
    producer.begin_transaction()
    producer.send(name, b"zombie").get(TIMEOUT_S)
    successor = KafkaProducer(bootstrap_servers=server, transactional_id=name)
    successor.init_transactions()
    with pytest.raises(PythonFencedError):
        producer.commit_transaction()
    assert read(server, name, "read_committed", 2) == [b"1", b"3"]
    successor.close()
    producer.close(timeout=1)

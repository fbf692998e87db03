"""Clients that read uncommitted, unchanged, where `fencepost.isolation.level.min` shows whole transactions only."""

import shutil
import subprocess

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

pytestmark = pytest.mark.requirement("S-122")
KCAT = shutil.which("kcat") or shutil.which("kafkacat")
TIMEOUT_S = 20
SHOWN = [b"first", b"kept", b"between"]


@pytest.fixture(scope="module")
def topic(broker):
    """Records of a committed transaction, of a long one that was aborted, and of one that is open."""
    name, server = "committed-only", {"bootstrap.servers": broker.bootstrap}
    made = NewTopic(name, 1, config={"fencepost.isolation.level.min": "read_committed"})
    admin = AdminClient(server)
    admin.create_topics([made])[name].result(TIMEOUT_S)
    plain = Producer(server | {"linger.ms": 0})
    plain.produce(name, SHOWN[0])
    plain.flush(TIMEOUT_S)
    producer = Producer(server | {"transactional.id": name, "linger.ms": 0, "batch.num.messages": 50})
    producer.init_transactions(TIMEOUT_S)
    lost = [b"lost" * 100] * 2_000
    for runs, end in (
        ([(producer, SHOWN[1:2])], producer.commit_transaction),
        ([(producer, lost), (plain, SHOWN[2:]), (producer, lost)], producer.abort_transaction),
    ):
        producer.begin_transaction()
        for sender, values in runs:
            for value in values:
                sender.produce(name, value)
            sender.flush(TIMEOUT_S)
        end(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(name, b"open")
    producer.flush(TIMEOUT_S)
    plain.produce(name, b"behind")
    plain.flush(TIMEOUT_S)
    yield name
    producer.abort_transaction(TIMEOUT_S)


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed: `apt-get install kcat` to run this")
def test_kcat_reads_only_committed_records_of_a_committed_only_topic_and_stops(broker, topic):
    command = [KCAT, "-b", broker.bootstrap, "-q", "-X", "isolation.level=read_uncommitted"]
    command += ["-C", "-t", topic, "-o", "beginning", "-e"]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True)
    assert done.stdout.splitlines() == SHOWN


def test_confluent_kafka_reads_only_committed_records_if_the_topic_demands_it(broker, topic):
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 1_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"only {found}"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF
            break
        found.append(message.value())
    assert found == SHOWN
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    assert (low, high) == (0, consumer.position([TopicPartition(topic, 0)])[0].offset)
    consumer.close()


async def test_aiokafka_reads_only_committed_records_if_the_topic_demands_it(broker, topic):
    place = AioPartition(topic, 0)
    async with AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_uncommitted", max_partition_fetch_bytes=1_000
    ) as consumer:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        found = [(await consumer.getone()).value for _ in SHOWN]
        assert found == SHOWN
        assert await consumer.getmany(timeout_ms=500) == {}
        assert await consumer.end_offsets([place]) == {place: await consumer.position(place)}


def test_kafka_python_reads_only_committed_records_if_the_topic_demands_it(broker, topic):
    place = PythonPartition(topic, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_uncommitted", max_partition_fetch_bytes=1_000
    )
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    assert [next(consumer).value for _ in SHOWN] == SHOWN
    assert consumer.poll(500) == {}
    assert consumer.end_offsets([place]) == {place: consumer.position(place)}
    consumer.close()

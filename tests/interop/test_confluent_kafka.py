"""confluent-kafka (librdkafka), unchanged: topics, configurations, produce with every codec, reading from anywhere."""

import os
import time

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from served_broker import ServedBroker
from this_machine import has_cachestat

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def admin(broker):
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def make(admin, name, partitions=1, **config):
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(10)


def produce(broker, topic, values, **config):
    outcomes = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, **config})
    for number, value in enumerate(values):
        headers = [("n", str(number).encode()), ("empty", None)]
        producer.produce(
            topic, value, b"key", partition=0, on_delivery=_into(outcomes), timestamp=1_000 + number, headers=headers
        )
    assert producer.flush(20) == 0
    assert all(error is None for error, _ in outcomes), outcomes
    return [offset for _, offset in outcomes]


def _into(outcomes):
    return lambda error, message: outcomes.append((error, message.offset()))


def read(broker, topic, start, count, **config):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", **config})
    consumer.assign([TopicPartition(topic, 0, start)])
    messages = []
    while len(messages) < count:
        message = consumer.poll(10)
        assert message is not None, f"{len(messages)} of {count}"
        assert message.error() is None, message.error()
        messages.append(message)
    consumer.close()
    return messages


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka_reads_back_its_records_in_every_codec(broker, admin, codec, idempotent):
    topic = f"cf-{codec}-{idempotent}"
    make(admin, topic)
    values = [b"value %d " % n * 50 for n in range(100)]
    config = {"compression.type": codec, "enable.idempotence": idempotent}
    assert produce(broker, topic, values, **config) == list(range(100))
    found = read(broker, topic, OFFSET_BEGINNING, 100)
    assert [m.value() for m in found] == values
    assert [m.offset() for m in found] == list(range(100))
    assert found[7].headers() == [("n", b"7"), ("empty", None)]
    assert found[7].timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_007)
    assert found[7].key() == b"key"


def test_confluent_kafka_can_start_reading_at_any_offset_or_timestamp(broker, admin):
    make(admin, "cf-seek")
    produce(broker, "cf-seek", [b"%d" % n for n in range(50)])
    assert read(broker, "cf-seek", 42, 1)[0].value() == b"42"
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    assert consumer.get_watermark_offsets(TopicPartition("cf-seek", 0), timeout=10) == (0, 50)
    by_time = consumer.offsets_for_times([TopicPartition("cf-seek", 0, 1_033)], timeout=10)
    assert by_time[0].offset == 33
    later = consumer.offsets_for_times([TopicPartition("cf-seek", 0, 9_999_999)], timeout=10)
    assert later[0].offset == OFFSET_END
    consumer.close()


def test_confluent_kafka_creates_describes_alters_and_deletes_topics(broker, admin):
    make(admin, "cf-admin", 3, **{"retention.ms": "1234567"})
    assert len(admin.list_topics("cf-admin", timeout=10).topics["cf-admin"].partitions) == 3
    resource = ConfigResource(ConfigResource.Type.TOPIC, "cf-admin")
    assert admin.describe_configs([resource])[resource].result(10)["retention.ms"].value == "1234567"
    entry = ConfigEntry("retention.ms", "7654321", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ConfigResource.Type.TOPIC, "cf-admin", incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(10)
    assert admin.describe_configs([resource])[resource].result(10)["retention.ms"].value == "7654321"
    admin.create_partitions([NewPartitions("cf-admin", 5)])["cf-admin"].result(10)
    assert len(admin.list_topics("cf-admin", timeout=10).topics["cf-admin"].partitions) == 5
    admin.delete_topics(["cf-admin"])["cf-admin"].result(10)
    assert "cf-admin" not in admin.list_topics(timeout=10).topics


def test_confluent_kafka_deletes_records_up_to_an_offset(broker, admin):
    make(admin, "cf-trim")
    produce(broker, "cf-trim", [b"%d" % n for n in range(10)])
    place = TopicPartition("cf-trim", 0, 4)
    assert admin.delete_records([place])[place].result(10).low_watermark == 4
    assert read(broker, "cf-trim", OFFSET_BEGINNING, 6, **{"auto.offset.reset": "earliest"})[0].offset() == 4


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda a: a.create_topics([NewTopic("no/slash", 1, 1)])["no/slash"], "TOPIC_EXCEPTION"),
        (lambda a: a.create_topics([NewTopic("cf-rf", 1, 3)])["cf-rf"], "INVALID_REPLICATION_FACTOR"),
        (lambda a: a.delete_topics(["cf-missing"])["cf-missing"], "UNKNOWN_TOPIC_OR_PART"),
    ],
    ids=["name", "replication", "missing"],
)
def test_a_refused_admin_call_of_confluent_kafka_raises_kafkas_error_code(admin, call, code):
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        call(admin).result(10)
    assert refused.value.args[0].name() == code


def test_confluent_kafka_without_offset_reset_gets_an_error_beyond_the_log_end(broker, admin):
    make(admin, "cf-range")
    produce(broker, "cf-range", [b"only"])
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition("cf-range", 0, 99)])
    message = consumer.poll(10)
    assert message.error().name() == "_AUTO_OFFSET_RESET"
    consumer.close()


@pytest.mark.skipif(not has_cachestat(), reason="needs cachestat(2): Linux 6.5")
def test_repeated_reads_of_a_topic_are_complete_and_sent_by_sendfile():
    """The topic is read from segments: the first reading checks the batches, later ones are sent from the
    page cache.
    """
    values = [b"%08d" % number + os.urandom(4) * 250 for number in range(12_000)]
    with ServedBroker() as served:
        served.bootstrap = f"127.0.0.1:{served.port}"
        admin = AdminClient({"bootstrap.servers": served.bootstrap})
        make(admin, "again")
        produce(served, "again", values, **{"batch.size": 200_000, "enable.idempotence": True})
        log = served.inside(lambda broker: broker.topics.by_name["again"].partitions[0].log)
        for _ in range(1000):
            served.inside(lambda broker: broker.housekeeping.hurry())
            if served.inside(lambda _: log.checkpointed_offset) == len(values):
                break
            time.sleep(0.02)
        passes = []
        for _ in range(3):
            before = served.inside(lambda broker: broker.metrics.bytes_uncopied)
            found = read(served, "again", OFFSET_BEGINNING, len(values))
            assert [message.value() for message in found] == values
            assert [message.offset() for message in found] == list(range(len(values)))
            passes.append(served.inside(lambda broker: broker.metrics.bytes_uncopied) - before)
        # At least half of the 12 MB went by sendfile.
        assert passes[1] > 6_000_000
        assert passes[2] > 6_000_000

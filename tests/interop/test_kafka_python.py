"""kafka-python, unchanged: produce with every codec, read by assignment, and its admin client."""

import kafka
import pytest
from kafka import TopicPartition


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_kafka_python_reads_back_its_records_in_every_codec(broker, codec, idempotent):
    """With their offsets and timestamps; also from an offset sought, or found by a time."""
    topic = f"kp-{codec}-{idempotent}"
    place = TopicPartition(topic, 0)
    values = [b"value %d " % n * 50 for n in range(100)]
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type=codec, enable_idempotence=idempotent, linger_ms=20
    )
    sends = [
        producer.send(topic, value, key=b"key", partition=0, timestamp_ms=1_000 + n, headers=[("n", b"%d" % n)])
        for n, value in enumerate(values)
    ]
    assert [send.get(20).offset for send in sends] == list(range(100))
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    consumer.assign([place])
    found = [next(consumer) for _ in values]
    assert [record.value for record in found] == values
    assert [record.offset for record in found] == list(range(100))
    assert found[3].timestamp == 1_003
    assert consumer.end_offsets([place]) == {place: 100}
    assert consumer.beginning_offsets([place]) == {place: 0}
    assert consumer.offsets_for_times({place: 1_050})[place].offset == 50
    consumer.seek(place, 97)
    assert next(consumer).value == values[97]
    consumer.close()


def test_kafka_pythons_admin_client_creates_describes_and_deletes_topics(broker):
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.create_topics({"kp-admin": {"num_partitions": 2, "replication_factor": 1}})
        assert "kp-admin" in admin.list_topics()
        assert len(admin.describe_topics(["kp-admin"])[0]["partitions"]) == 2
        assert admin.describe_cluster()["brokers"][0]["port"] == broker.port
        admin.delete_topics(["kp-admin"])
        assert "kp-admin" not in admin.list_topics()
    finally:
        admin.close()

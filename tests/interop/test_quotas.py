"""Real clients over their quotas: they understand how long they have to wait, and lose nothing."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fencepost.client.admin.values import QuotaEntity
from fencepost.client.sync.admin import Admin
from served_broker import ServedBroker

confluent_kafka = pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.slow

RECORDS = 60
VALUES = [b"%04d" % number * 250 for number in range(RECORDS)]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with ServedBroker(quota_window_num=2) as broker:
        address = f"127.0.0.1:{broker.port}"
        with Admin(address) as admin:
            admin.alter_client_quotas(
                QuotaEntity(client_id="slow"), set={"producer_byte_rate": 20_000, "consumer_byte_rate": 20_000}
            )
        yield address


def test_a_throttled_librdkafka_client_waits_and_gets_each_record_once_in_order(bootstrap: str) -> None:
    waits: list[int] = []

    def stats(text: str) -> None:
        waits.extend(broker["throttle"]["max"] for broker in json.loads(text)["brokers"].values())

    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": "slow"}
    producer = confluent_kafka.Producer(
        config | {"statistics.interval.ms": 100, "stats_cb": stats, "batch.size": 10_000, "enable.idempotence": True}
    )
    for value in VALUES:
        producer.produce("librdkafka", value)
    assert producer.flush(60) == 0
    producer.poll(0.3)
    assert max(waits) > 100  # ms for which the broker told it to wait
    consumer = confluent_kafka.Consumer(
        config | {"group.id": "g", "auto.offset.reset": "earliest", "fetch.message.max.bytes": 10_000}
    )
    consumer.subscribe(["librdkafka"])
    read = [consumer.poll(30).value() for _ in VALUES]
    consumer.close()
    assert read == VALUES


def test_a_throttled_kafka_python_client_gets_each_record_once_in_order(bootstrap: str) -> None:
    kafka = pytest.importorskip("kafka")
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, client_id="slow", batch_size=10_000)
    for value in VALUES:
        producer.send("kafka-python", value)
    producer.flush(60)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "kafka-python",
        bootstrap_servers=bootstrap,
        client_id="slow",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=10_000,
    )
    read = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert read == VALUES

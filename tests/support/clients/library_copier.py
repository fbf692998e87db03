"""Consume-transform-produce with one of the three Python libraries, as a process that may be killed at any moment.

    python library_copier.py LIBRARY BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID COUNT

It copies partition 0 of SOURCE, a few records a transaction, until the group has read COUNT. It says `open` when a
transaction is filled and `done` when it was committed; whatever a library raises ends it, and a successor goes on.
"""

import asyncio
import os
import sys
import time
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from library_producers import LIBRARIES, TIMEOUT_S

RECORDS = 10
PAUSE_S = 0.02  # in each transaction: when a broker is killed then, it is inside of one


def from_confluent(bootstrap: str, topic: str, group: str) -> tuple[int, Any]:
    """Return the committed offset, and a function that returns (offset, value) of the next records."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"}
    quiet = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = confluent_kafka.Consumer({**settings, **quiet})
    (place,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], TIMEOUT_S)
    begin = max(place.offset, 0)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, begin)])

    def read() -> list[tuple[int, bytes]]:
        messages = consumer.consume(RECORDS, 1.0)
        return [(message.offset(), message.value()) for message in messages if message.error() is None]

    return begin, read


def from_aiokafka(bootstrap: str, topic: str, group: str) -> tuple[int, Any]:
    loop = asyncio.new_event_loop()
    place = aiokafka.TopicPartition(topic, 0)

    async def start() -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        consumer.assign([place])
        return consumer, await consumer.committed(place) or 0

    consumer, begin = loop.run_until_complete(asyncio.wait_for(start(), TIMEOUT_S))

    def read() -> list[tuple[int, bytes]]:
        found = loop.run_until_complete(consumer.getmany(place, timeout_ms=1000, max_records=RECORDS))
        return [(record.offset, record.value) for record in found.get(place, ())]

    return begin, read


def from_kafka_python(bootstrap: str, topic: str, group: str) -> tuple[int, Any]:
    place = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.assign([place])
    begin = consumer.committed(place) or 0

    def read() -> list[tuple[int, bytes]]:
        found = consumer.poll(timeout_ms=1000, max_records=RECORDS)
        return [(record.offset, record.value) for record in found.get(place, ())]

    return begin, read


CONSUMERS = {"confluent-kafka": from_confluent, "aiokafka": from_aiokafka, "kafka-python": from_kafka_python}


def main() -> None:
    library, bootstrap, source, target, group, transactional_id, count = sys.argv[1:]
    producer = LIBRARIES[library](bootstrap, transactional_id)
    producer.init()  # aborts what a predecessor left open, before its offsets are asked for
    offset, read = CONSUMERS[library](bootstrap, source, group)
    print("begun", offset, flush=True)
    while offset < int(count):
        records = read()
        if not records:
            continue
        producer.begin()
        for _, value in records:
            producer.send(target, b"<" + value + b">")
        offset = records[-1][0] + 1
        producer.send_offset(group, source, offset)
        print("open", flush=True)
        time.sleep(PAUSE_S)
        producer.commit()
        print("done", offset, flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # the libraries' threads and loops are of no more use

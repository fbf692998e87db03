"""One of several copiers in a group: reads, writes the same to the same partition of another topic, in transactions.

    python group_copier.py BOOTSTRAP SOURCE TARGET GROUP NAME PER_TRANSACTION ABORTED [PROTOCOL]

PROTOCOL: of groups, "classic" or "consumer". As in Apache Kafka's own test of exactly-once copying, a share of its
transactions (ABORTED, 0 to 1) is aborted and done again. It says a line for every commit, and goes on until it is
killed; what its library raises ends it, and a successor with the same transactional id goes on.
"""

import os
import random
import sys
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

ANSWER_S = 15.0


def main(*arguments: str) -> None:
    bootstrap, source, target, group, name, per_transaction, aborted, protocol = (*arguments, "classic")[:8]
    shared = {"bootstrap.servers": bootstrap, "socket.timeout.ms": 3000, "reconnect.backoff.max.ms": 200}
    consumer = confluent_kafka.Consumer(
        {
            **shared,
            "group.id": group,
            "group.protocol": protocol,
            **({"session.timeout.ms": 2000, "heartbeat.interval.ms": 400} if protocol == "classic" else {}),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    producer = confluent_kafka.Producer({**shared, "transactional.id": name, "linger.ms": 0, "log_level": 0})
    producer.init_transactions(ANSWER_S)
    # Callbacks make a rebalance wait for consume(): else the group moves on while records of before are at work.
    consumer.subscribe([source], on_assign=lambda *_: None, on_revoke=lambda *_: None)
    print("begun", flush=True)
    while True:
        messages = [one for one in consumer.consume(int(per_transaction), 0.3) if one.error() is None]
        mine = {(place.topic, place.partition) for place in consumer.assignment()}
        messages = [one for one in messages if (one.topic(), one.partition()) in mine]
        if messages:
            fill(consumer, producer, messages, target)
            if random.random() < float(aborted):
                producer.abort_transaction(ANSWER_S)
                rewind(consumer, messages)
                print("aborted 0", flush=True)
            else:
                producer.commit_transaction(ANSWER_S)
                print("committed", len(messages), flush=True)


def fill(consumer: Any, producer: Any, messages: list[Any], target: str) -> None:
    producer.begin_transaction()
    offsets: dict[int, int] = {}
    for message in messages:
        producer.produce(target, message.value(), message.key(), message.partition())
        offsets[message.partition()] = message.offset() + 1
    positions = [TopicPartition(messages[0].topic(), partition, offset) for partition, offset in offsets.items()]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), ANSWER_S)


def rewind(consumer: Any, messages: list[Any]) -> None:
    """Continue before the records of an aborted transaction, which the library does not do by itself."""
    first: dict[int, int] = {}
    for message in messages:
        first.setdefault(message.partition(), message.offset())
    for partition, offset in first.items():
        consumer.seek(TopicPartition(messages[0].topic(), partition, offset))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except confluent_kafka.KafkaException as error:
        print("failed", error, flush=True)
        os._exit(1)  # whatever the library still waits for

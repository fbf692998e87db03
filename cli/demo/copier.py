"""A client of `fencepost demo`: copies lines in capitals, and commits its group's offsets in the same transactions.

Consume, transform, produce, exactly once: the lines of one transaction become visible together with the group's
offsets, so a successor continues after the last commit. Prints a line for every commit. Every record
contains the name of its transaction and the number of its records, so that a partly visible one is detected.
"""

import sys
import time
from typing import Any

GROUP = "demo-copiers"
PER_TRANSACTION = 250
ANSWER_S = 20.0
IDLE_S = 1.0  # after this time without records, check whether all is copied


def main(bootstrap: str, source: str, target: str, incarnation: str) -> None:
    """Copy until no record is left."""
    from confluent_kafka import Consumer, Producer

    shared = {"bootstrap.servers": bootstrap, "socket.timeout.ms": 3000, "reconnect.backoff.max.ms": 200}
    consumer = Consumer(
        {
            **shared,
            "group.id": GROUP,
            "group.instance.id": "copier",  # a successor replaces the killed member at once
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    producer = Producer({**shared, "transactional.id": "demo-copier", "linger.ms": 0, "log_level": 0})
    producer.init_transactions(ANSWER_S)  # aborts a predecessor's open transaction, before its offsets are read
    consumer.subscribe([source])
    number, last = 0, time.monotonic()
    while time.monotonic() - last < IDLE_S or not _at_end(consumer):
        messages = [message for message in consumer.consume(PER_TRANSACTION, 0.3) if message.error() is None]
        if messages:
            _copy(consumer, producer, messages, target, f"{incarnation}-{number}")
            number += 1
            last = time.monotonic()
            print("committed", len(messages), flush=True)
    consumer.close()
    print("done", flush=True)


def _at_end(consumer: Any) -> bool:
    """Return whether the offsets of all partitions are committed up to the end. False if the broker does not answer:
    it may be restarting.
    """
    from confluent_kafka import KafkaException

    try:
        partitions = consumer.committed(consumer.assignment(), ANSWER_S)
        ends = [consumer.get_watermark_offsets(partition, ANSWER_S)[1] for partition in partitions]
    except KafkaException:
        return False
    return bool(partitions) and all(found.offset >= end for found, end in zip(partitions, ends, strict=True))


def _copy(consumer: Any, producer: Any, messages: list[Any], target: str, name: str) -> None:
    """Copy these messages in capitals to the target topic in one transaction, with the consumer's offsets."""
    from confluent_kafka import TopicPartition

    headers = [("transaction", name), ("records", str(len(messages)))]
    producer.begin_transaction()
    offsets: dict[int, int] = {}
    for message in messages:
        line = message.value().decode().upper()
        producer.produce(target, line, message.key(), message.partition(), headers=headers)
        offsets[message.partition()] = message.offset() + 1
    positions = [TopicPartition(messages[0].topic(), partition, offset) for partition, offset in offsets.items()]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), ANSWER_S)
    producer.commit_transaction(ANSWER_S)


if __name__ == "__main__":
    main(*sys.argv[1:])

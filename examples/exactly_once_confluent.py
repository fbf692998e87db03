"""Reads orders and writes an invoice for each, once, with confluent-kafka.

python exactly_once_confluent.py [HOST:PORT] [NAME]
"""

import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition


def bill(bootstrap: str, name: str) -> None:
    """Read orders in batches, and write an invoice for each in a transaction with the batch's offsets. name: of this
    worker.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"billing-{name}"})
    producer.init_transactions()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "billing",
            "group.instance.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    try:
        while True:
            orders = [message for message in consumer.consume(500, timeout=1) if message.error() is None]
            if not orders:
                continue
            producer.begin_transaction()
            try:
                for order in orders:
                    producer.produce("invoices", b"invoice for order " + (order.value() or b""), key=order.key())
                positions = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
                producer.commit_transaction()
            except KafkaException as failure:
                if not failure.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction()
                go_back(consumer)
    finally:
        consumer.close()


def go_back(consumer: Consumer) -> None:
    """Continue at the committed offsets after an aborted transaction, which the consumer does not do by itself."""
    for place in consumer.committed(consumer.assignment()):
        start = place.offset if place.offset >= 0 else consumer.get_watermark_offsets(place)[0]
        consumer.seek(TopicPartition(place.topic, place.partition, start))


if __name__ == "__main__":
    bootstrap, name = [*sys.argv[1:], *["127.0.0.1:9092", "1"][len(sys.argv) - 1 :]][:2]
    try:
        bill(bootstrap, name)
    except KeyboardInterrupt:
        pass

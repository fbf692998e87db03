"""Transactions over two topics, one after the other, and what a restored broker has of them."""

import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

TOPICS = ("a", "b")


class Load:
    """Transactions of two records, one in each topic, one after the other; `committed`: how many were answered.

    answered_ms: wall time of each answer. The load ends by end(), or with the broker.
    """

    def __init__(self, broker):
        config = {"bootstrap.servers": broker.bootstrap, "transactional.id": "load", "linger.ms": 0}
        self._producer = Producer(config | {"log_level": 0})
        self._producer.init_transactions(30)
        self.committed = 0
        self.answered_ms = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self):
        try:
            while not self._ends.is_set():
                self._producer.begin_transaction()
                for topic in TOPICS:
                    self._producer.produce(topic, b"%d" % self.committed + b" " * 20_000, partition=0)
                self._producer.commit_transaction(30)
                self.answered_ms.append(time.time() * 1000)
                self.committed += 1
        except KafkaException:
            assert self._ends.is_set(), "the broker ended before the load was to end"

    def end(self, *, joins=True):
        self._ends.set()
        if joins:
            self._thread.join()


def committed_in(broker, topic):
    """Return the numbers that a read_committed reader gets."""
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "isolation.level": "read_committed"})
    end = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    reader.assign([TopicPartition(topic, 0, 0)])
    found = []
    while reader.position([TopicPartition(topic, 0)])[0].offset < end:
        message = reader.poll(0.5)
        if message is not None:
            assert message.error() is None
            found.append(int(message.value()))
    reader.close()
    return found

"""Topics, transactions of every fate and a group, for the console to show."""

import json
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

HOSTILE = '<img src=x onerror="window.hacked=1">\'"`${window.hacked=1}</script><script>window.hacked=1</script>'
"""Runs if any page takes it for markup."""

FATES = ["plain", "committed", "marker", "aborted", "marker", "open", "committed", "marker", "plain"]
"""The fates of the offsets of `story`, partition 0."""


@dataclass
class Story:
    """servers: the broker's address. Producers whose transactions are open live as long as this does."""

    servers: str
    open: dict[str, Producer] = field(default_factory=dict[str, Producer])

    def producer(self, transactional_id: str = "", **more: Any) -> Producer:
        """Return a producer; one with a transactional id has begun a transaction."""
        settings = {"bootstrap.servers": self.servers, "linger.ms": 0, **more}
        if not transactional_id:
            return Producer(settings)
        producer = Producer(settings | {"transactional.id": transactional_id, "transaction.timeout.ms": 900_000})
        producer.init_transactions(30)
        producer.begin_transaction()
        return producer

    def write(self, producer: Producer, topic: str, value: str | bytes, **more: Any) -> None:
        """Write one record and wait for its acknowledgement."""
        producer.produce(topic, value, **{"partition": 0, **more})
        assert producer.flush(30) == 0

    def create(self, **partitions: int) -> None:
        """Create topics."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        made = admin.create_topics([NewTopic(name, count) for name, count in partitions.items()])
        for each in made.values():
            each.result()

    def tell(self, topic: str = "story") -> None:
        """Write the records of FATES, each with its outcome."""
        self.create(**{topic: 2})
        plain = self.producer()
        self.write(
            plain, topic, json.dumps({"order": 1, "paid": False}), key="order-1", headers=[("trace", b"\x00\xff")]
        )
        payer = self.producer("payer")
        self.write(payer, topic, "paid", key="order-1")
        payer.commit_transaction()
        loser = self.producer("loser")
        self.write(loser, topic, "lost")
        loser.abort_transaction()
        self.hold("holder", topic)
        late = self.producer("late")
        self.write(late, topic, "late")
        late.commit_transaction()
        self.write(plain, topic, "last")

    def hold(self, transactional_id: str, topic: str, **more: Any) -> None:
        """Begin a transaction, write a record, and leave it open."""
        holder = self.open[transactional_id] = self.producer(transactional_id, **more)
        self.write(holder, topic, "held")

    def read(self, group: str, topic: str, count: int, **more: Any) -> Consumer:
        """Return a member of a group that has read and committed this many records."""
        settings = {"bootstrap.servers": self.servers, "group.id": group, "auto.offset.reset": "earliest", **more}
        consumer = Consumer(settings | {"enable.auto.commit": False})
        consumer.subscribe([topic])
        left = count
        while left:
            record = consumer.poll(30)
            assert record is not None
            left -= record.error() is None
        consumer.commit(asynchronous=False)
        return consumer

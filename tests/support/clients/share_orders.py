"""Orders for the workers of a share group, and what is left of them; with confluent-kafka."""

import time

from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

TIMEOUT_S = 60


def prepare(bootstrap, topic, group, orders, partitions=1):
    """Create a topic with this many orders, and a group that begins with the first of them."""
    server = {"bootstrap.servers": bootstrap}
    admin = AdminClient(server)
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(TIMEOUT_S)
    first = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[first])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    producer = Producer(server | {"linger.ms": 5, "batch.num.messages": 40})
    for number in range(orders):
        producer.produce(topic, str(number))
    assert producer.flush(TIMEOUT_S) == 0


def left(bootstrap, topic, group):
    """Return the records that another member gets within two seconds."""
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    consumer.subscribe([topic])
    until, found = time.monotonic() + 2, []
    while time.monotonic() < until:
        found += [message.value() for message in consumer.poll(0.5)]
    consumer.close()
    return found

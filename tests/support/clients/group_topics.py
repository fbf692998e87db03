"""Topics that real clients read as one group, and how to wait until they share them; the broker's clocks are short."""

import time
from collections import Counter

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4
EACH = 5
OPTIONS = ("-X", "group.initial.rebalance.delay.ms=0", "-X", "group.consumer.heartbeat.interval.ms=200")
OPTIONS += ("-X", "group.consumer.assignment.interval.ms=0", "-X", "group.consumer.session.timeout.ms=6000")
OPTIONS += ("-X", "group.consumer.min.heartbeat.interval.ms=200", "-X", "group.consumer.min.session.timeout.ms=6000")
WITHIN_S = 60


def filled(broker, topic, first=0):
    """Create a topic with EACH records in every partition, each with the value "partition-number"."""
    if first == 0:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(10)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for partition in range(PARTITIONS):
        for number in range(first, first + EACH):
            producer.produce(topic, b"%d-%d" % (partition, number), partition=partition)
    assert producer.flush(10) == 0


def values(first=0):
    return Counter(f"{partition}-{number}" for partition in range(PARTITIONS) for number in range(first, first + EACH))


def wait_for(what, within_s=WITHIN_S):
    until = time.monotonic() + within_s
    while not (found := what()):
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.05)
    return found


def shared(*members, topics):
    """Return whether each partition of these topics has one owner, and the members have about as many each."""
    owned = [member.owned() for member in members]
    counts = [len(each) for each in owned]
    everything = {(topic, partition) for topic in topics for partition in range(PARTITIONS)}
    return sum(counts) == len(everything) and set().union(*owned) == everything and max(counts) - min(counts) < 2

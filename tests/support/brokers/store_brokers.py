"""What tests of several real brokers on one store have in common."""

import time
from collections.abc import Callable

import confluent_kafka
from broker_process import BrokerProcess
from confluent_kafka.admin import AdminClient

WAIT_S = 60
TAKEN_OVER = 71  # the exit code of `serve` when another broker owns the store


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until is_so() is true. what: the text of the failure if it never is."""
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def wait_for_name(standby: BrokerProcess, owner: BrokerProcess) -> None:
    """Wait until the owner's Metadata response, asked for all topics, lists the standby (a broker that waits)."""
    admin = AdminClient({"bootstrap.servers": owner.bootstrap, "log_level": 0})

    def is_named() -> bool:
        brokers = admin.list_topics(timeout=30).brokers.values()
        return standby.bootstrap in {f"{each.host}:{each.port}" for each in brokers}

    until(is_named, "the standby is not in Metadata")


def numbers(broker: BrokerProcess, partition: int = 0, topic: str = "t") -> list[int]:
    """Return all numbers that a consumer of committed records reads from a partition of the topic."""
    told = {"bootstrap.servers": broker.bootstrap, "group.id": "r", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**told, "enable.auto.commit": False, "isolation.level": "read_committed"})
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(int(message.value()))
    consumer.close()
    return found

"""kill -9 under load, with real processes and librdkafka: what was acknowledged is there, once, in order.

ROUNDS=1000 in the environment with `make kill9` runs the same at length; the seed of its waiting times is printed.
"""

import os
import random
import time
from collections import Counter

import pytest
from broker_process import broker_process
from long_runs import share_of

pytestmark = pytest.mark.sampled

AHEAD = 20_000  # messages not acknowledged yet
PARTITIONS = 4


class Load:
    """An idempotent producer that numbers its records, and what it was told of each."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        import confluent_kafka

        self.topic = topic
        self.sent = 0
        self.acknowledged: dict[int, tuple[int, int]] = {}  # number → partition, offset
        self.failed: list[str] = []
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 20,
                "retry.backoff.ms": 10,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "message.timeout.ms": 0,  # never: on a slow machine some wait for longer than a few lives
                "log_level": 0,
            }
        )

    def run(self, seconds: float) -> None:
        """Send for so long, with pauses that let batches differ in size."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if len(self.producer) > AHEAD:  # a slow machine is not to fill librdkafka's queue
                self.producer.poll(0.01)
                continue
            for _ in range(20):
                number = self.sent
                self.producer.produce(
                    self.topic, str(number).encode(), partition=number % PARTITIONS, on_delivery=self._delivered
                )
                self.sent += 1
            self.producer.poll(0.001)

    def run_on(self) -> None:
        """Send until something more is acknowledged."""
        before, deadline = len(self.acknowledged), time.monotonic() + 60
        while len(self.acknowledged) == before:
            assert time.monotonic() < deadline, "nothing is acknowledged any more"
            self.run(0.01)

    def _delivered(self, error, message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged[int(message.value())] = (message.partition(), message.offset())


def read_all(bootstrap: str, topic: str) -> dict[int, list[tuple[int, int]]]:
    """Read each partition to its end. Return partition → [(offset, number)]."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    partitions = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    ends = {one.partition: consumer.get_watermark_offsets(one, timeout=10)[1] for one in partitions}
    consumer.assign(partitions)
    found: dict[int, list[tuple[int, int]]] = {number: [] for number in ends}
    deadline = time.monotonic() + 60
    while any(ends[n] and (not found[n] or found[n][-1][0] + 1 < ends[n]) for n in ends):
        assert time.monotonic() < deadline, "the topic cannot be read to its end"
        for message in consumer.consume(10_000, timeout=0.5):
            assert message.error() is None, message.error()
            found[message.partition()].append((message.offset(), int(message.value())))
    consumer.close()
    return found


def check(load: Load, found: dict[int, list[tuple[int, int]]]) -> None:
    """Assert that each number was read once, in order, and at the offset with which it was acknowledged."""
    assert not load.failed
    assert len(load.acknowledged) == load.sent
    counts = Counter(number for records in found.values() for _, number in records)
    assert [number for number in range(load.sent) if counts[number] != 1] == []
    for partition, records in found.items():
        assert [number for _, number in records] == sorted(number for _, number in records)
        for offset, number in records:
            assert load.acknowledged[number] == (partition, offset)


@pytest.mark.requirement("S-11", "S-14", "S-31")
def test_acknowledged_records_survive_kill_9_under_load_once_and_in_order(tmp_path):
    rounds = int(os.environ.get("ROUNDS", share_of(10)))
    seed = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}, {rounds} rounds")
    waits = random.Random(seed)
    with broker_process(str(tmp_path / "data"), "-X", "num.partitions=4") as broker:
        load = Load(broker.bootstrap, "numbers")
        for _ in range(rounds):
            if waits.random() < 0.8:
                load.run_on()  # librdkafka takes its time after a start: without this none of 90 kills met a write
            load.run(waits.uniform(0.0, 0.25))
            broker.kill()
            broker.start()
        assert load.producer.flush(60) == 0
        check(load, read_all(broker.bootstrap, "numbers"))

"""A group changes its protocol under unchanged clients that are restarted one by one: librdkafka's, Java's, our SDK's.

What must hold: each partition is read by one member at a time, who goes on where the last one committed. Members commit
each record, and at revocation what they have read; so a record is skipped never, and read twice only where its commit
was refused because its reader had lost the partition. A killed broker in the midst changes no epoch.
"""

import asyncio
import contextlib
import os
import re
import threading
from collections import Counter

import pytest
from broker_process import broker_process
from confluent_kafka import Consumer, ConsumerGroupType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from group_topics import EACH, OPTIONS, PARTITIONS, filled, shared, values, wait_for
from java_clients import JavaError

import fencepost as fp

NEWER, OLDER = "consumer", "classic"
WITHIN_S = 30
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(str(tmp_path_factory.mktemp("migration") / "data"), *OPTIONS) as running:
        yield running


@pytest.fixture
def name(request):
    return re.sub(r"[^a-z0-9]+", "-", request.node.name)[5:60] + os.urandom(3).hex()


class Member:
    """A member of the group, of one client library. read: (record, whether its commit succeeded)."""

    def __init__(self, library, protocol):
        self.library, self.protocol = library, protocol
        self.read: list[tuple[str, bool]] = []


class Rdkafka(Member):
    """librdkafka, polled in a thread of its own."""

    def __init__(self, broker, group, protocol, strategy):
        super().__init__("librdkafka", protocol)
        classic = {"partition.assignment.strategy": strategy, "session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
                **(classic if protocol == OLDER else {}),
            }
        )
        self._owned: set[tuple[str, int]] = set()
        self._ends = threading.Event()
        self.consumer.subscribe([group])
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self):
        while not self._ends.is_set():
            message = self.consumer.poll(0.1)
            self._owned = {(each.topic, each.partition) for each in self.consumer.assignment()}
            if message is not None and not message.error():
                try:
                    self.consumer.commit(message, asynchronous=False)
                    taken = True
                except KafkaException:
                    taken = False
                self.read.append((message.value().decode(), taken))

    def owned(self):
        return self._owned

    def close(self):
        self._ends.set()
        self._thread.join()
        self.consumer.close()


class Sdk(Member):
    """Ours, in a loop of its own."""

    def __init__(self, broker, group, protocol, strategy):
        super().__init__("fencepost", protocol)
        self._owned: set[tuple[str, int]] = set()
        self._ends = threading.Event()
        classic = {
            "partition_assignment_strategy": [strategy],
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 200,
        }
        self._settings = {
            "group_id": group,
            "group_protocol": protocol,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            **(classic if protocol == OLDER else {}),
        }
        self._thread = threading.Thread(target=lambda: asyncio.run(self._poll(broker.bootstrap, group)))
        self._thread.start()

    async def _poll(self, bootstrap, topic):
        async with fp.Consumer(bootstrap, **self._settings) as consumer:
            consumer.subscribe([topic])
            refused: dict[fp.TopicPartition, fp.OffsetAndMetadata] = {}
            while not self._ends.is_set():
                self._owned = {(each.topic, each.partition) for each in consumer.assignment()}
                # A partition that is kept through a rebalance is not read again: its offset is committed again.
                refused = {tp: offset for tp, offset in refused.items() if tp in self._owned}
                if refused:
                    with contextlib.suppress(fp.KafkaError):
                        await consumer.commit(refused)
                        refused = {}
                async for batch in consumer.batches(timeout_ms=100):
                    records = [record.value.decode() for record in batch]
                    try:
                        await consumer.commit(batch.offsets)
                        taken = True
                    except fp.KafkaError:
                        taken = False
                        refused |= batch.offsets
                    self.read += [(record, taken) for record in records]
                    if self._ends.is_set():
                        break

    def owned(self):
        return self._owned

    def close(self):
        self._ends.set()
        self._thread.join()


class Java(Member):
    """Java's, polled in a thread of its own. It commits all that a poll gave, before anything else is given."""

    def __init__(self, java, broker, group, protocol, strategy):
        super().__init__("java", protocol)
        self.consumer = java.consumer(broker.bootstrap, group, group_protocol=protocol)
        self.consumer.do("subscribe", topic=group)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self):
        while not self._ends.is_set():
            found = self.consumer.poll(100)
            if found:
                try:
                    self.consumer.do("commitSync")
                    taken = True
                except JavaError:
                    taken = False
                self.read += [(value, taken) for value in found]

    def owned(self):
        text = self.consumer.do("assigned")["assigned"]
        found = [each.rpartition("-") for each in text.split(",") if each]
        return {(topic, int(partition)) for topic, _, partition in found}

    def close(self):
        self._ends.set()
        self._thread.join()
        self.consumer.do("close")


class Group:
    """The members of one group, and those that have gone."""

    def __init__(self, broker, name, java=None):
        self.broker, self.name, self.java = broker, name, java
        self.members, self.gone = [], []
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self.filled = 0

    def fill(self):
        """Write EACH more records to each partition."""
        filled(self.broker, self.name, self.filled)
        self.filled += EACH

    def join(self, library, protocol, strategy="range"):
        made = {"librdkafka": Rdkafka, "fencepost": Sdk}.get(library)
        if made is None:
            member = Java(self.java, self.broker, self.name, protocol, strategy)
        else:
            member = made(self.broker, self.name, protocol, strategy)
        self.members.append(member)

    def leave(self):
        """Close the member that joined first of those still in the group."""
        member = self.members.pop(0)
        member.close()
        self.gone.append(member)

    def settle(self):
        """Wait until the partitions are shared evenly, and all that was written has been read."""
        wait_for(lambda: shared(*self.members, topics=[self.name]), WITHIN_S)
        wanted = set().union(*(values(first) for first in range(0, self.filled, EACH)))
        wait_for(lambda: wanted <= {value for value, _ in self.reads()}, WITHIN_S)

    def reads(self):
        return [each for member in self.members + self.gone for each in list(member.read)]

    @property
    def kind(self):
        found = self.admin.list_consumer_groups().result(10).valid
        return next(each.type for each in found if each.group_id == self.name)

    def check(self):
        """Assert that the group's offsets reach the ends of all partitions, and that no record was committed twice.

        A record may be read twice: if a rebalance made the broker refuse its commit, the next owner reads it again.
        """
        reader = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": self.name})
        asked = [TopicPartition(self.name, partition) for partition in range(PARTITIONS)]
        expected = [self.filled] * PARTITIONS
        wait_for(lambda: [each.offset for each in reader.committed(asked, 10)] == expected, WITHIN_S)
        reader.close()
        taken = Counter(value for value, was_taken in self.reads() if was_taken)
        assert [value for value, count in taken.items() if count > 1] == []

    def close(self):
        for member in self.members:
            member.close()


@pytest.fixture
def group(broker, name):
    made = Group(broker, name)
    made.fill()
    yield made
    made.close()


def rolled(group, library, protocol, strategy):
    """Replace all members, one by one, by members of this library and protocol, and write records after each."""
    for _ in range(len(group.members)):
        group.leave()
        group.join(library, protocol, strategy)
        group.fill()
        group.settle()


@pytest.mark.parametrize(
    ("library", "strategy"),
    [
        ("librdkafka", "cooperative-sticky"),
        ("fencepost", "cooperative-sticky"),
        pytest.param("librdkafka", "range", marks=pytest.mark.long),
        pytest.param("fencepost", "range", marks=pytest.mark.long),
    ],
)
def test_restarting_members_one_by_one_changes_the_groups_protocol_and_back(library, strategy, group):
    for _ in range(2):
        group.join(library, OLDER, strategy)
    group.settle()
    assert group.kind is ConsumerGroupType.CLASSIC
    rolled(group, library, NEWER, strategy)
    assert group.kind is ConsumerGroupType.CONSUMER
    rolled(group, library, OLDER, strategy)
    assert group.kind is ConsumerGroupType.CLASSIC
    group.check()


def test_restarting_javas_members_one_by_one_changes_the_groups_protocol_and_back(java, group):
    group.java = java
    for _ in range(2):
        group.join("java", OLDER)
    group.settle()
    rolled(group, "java", NEWER, None)
    assert group.kind is ConsumerGroupType.CONSUMER
    rolled(group, "java", OLDER, None)
    assert group.kind is ConsumerGroupType.CLASSIC
    group.check()


def test_members_of_two_libraries_and_both_protocols_share_a_group(group):
    group.join("librdkafka", OLDER, "range")
    group.join("fencepost", OLDER, "range")
    group.settle()
    group.join("librdkafka", NEWER)
    group.settle()
    group.join("fencepost", NEWER)
    group.fill()
    group.settle()
    assert group.kind is ConsumerGroupType.CONSUMER
    group.leave()
    group.leave()
    group.fill()
    group.settle()
    group.check()


def test_a_broker_kill_during_a_group_migration_moves_no_partition(tmp_path, name):
    with broker_process(str(tmp_path / "data"), *OPTIONS) as broker:
        group = Group(broker, name)
        group.fill()
        try:
            group.join("librdkafka", OLDER, "cooperative-sticky")
            group.settle()
            group.join("librdkafka", NEWER)
            group.settle()
            before = [member.owned() for member in group.members]
            for _ in range(2):
                broker.kill()
                broker.start()
                group.fill()
                group.settle()
                assert [member.owned() for member in group.members] == before
            assert group.kind is ConsumerGroupType.CONSUMER
            group.members.reverse()
            group.leave()
            broker.kill()
            broker.start()
            group.fill()
            group.settle()
            assert group.kind is ConsumerGroupType.CLASSIC
            group.check()
        finally:
            group.close()

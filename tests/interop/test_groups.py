"""Consumer groups of three client libraries, unchanged: who owns what as members come, go, die and come back.

The rules that hold in all of them: in a settled group every partition has one owner, what was committed is where its
next owner goes on, and a killed broker changes nothing of that.
"""

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading
import time

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from broker_process import broker_process
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from long_runs import first_only

PARTITIONS = 4
EACH = 10  # records of a partition
OPTIONS = ("-X", "group.initial.rebalance.delay.ms=0", "-X", "group.min.session.timeout.ms=1000")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(str(tmp_path_factory.mktemp("groups") / "data"), *OPTIONS) as running:
        yield running


def filled(broker, topic):
    """Create a topic and write EACH records to each partition, with values "partition-number"."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(10)
    more(broker, topic, 0)


def more(broker, topic, first):
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for partition in range(PARTITIONS):
        for number in range(first, first + EACH):
            producer.produce(topic, b"%d-%d" % (partition, number), partition=partition)
    assert producer.flush(10) == 0


def values(first=0):
    return sorted(
        b"%d-%d" % (partition, number) for partition in range(PARTITIONS) for number in range(first, first + EACH)
    )


# ---- confluent-kafka -----------------------------------------------------------------------------------------


OPEN = []  # the consumers of this test


@pytest.fixture(autouse=True)
def closed_after_the_test():
    """After each test, close consumers that it left open when it failed.

    Else the garbage collector ends them in any thread, where librdkafka may hang.
    """
    yield
    while OPEN:
        OPEN[-1].close()


class Confluent:
    """A consumer that remembers its partitions and what it read."""

    def __init__(self, broker, topic, group, **config):
        self.owned = set()
        self.read = []
        self.rebalances = 0
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 200,
                "session.timeout.ms": 6000,
                **config,
            }
        )
        OPEN.append(self)
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, consumer, partitions):
        self.rebalances += 1
        self.owned |= {each.partition for each in partitions}

    def _revoked(self, consumer, partitions):
        self.rebalances += 1
        self.owned -= {each.partition for each in partitions}

    def poll(self, commit=True):
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.read.append(message.value())
            if commit:
                self.consumer.commit(message, asynchronous=False)

    def close(self):
        if self in OPEN:
            OPEN.remove(self)
        self.consumer.close()


def until(done, *consumers, seconds=15, **more):
    """Poll the consumers in turn until done() is true. more: arguments of their poll()."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, [(c.owned, len(c.read)) for c in consumers]
        for consumer in consumers:
            consumer.poll(**more)


def shared(*consumers):
    """Return whether every partition has one owner, and all own as many."""
    each = PARTITIONS // len(consumers)
    owned = [partition for consumer in consumers for partition in consumer.owned]
    return sorted(owned) == list(range(PARTITIONS)) and all(len(consumer.owned) == each for consumer in consumers)


@pytest.mark.requirement("S-05", "S-06")
@pytest.mark.parametrize("strategy", first_only(["cooperative-sticky", "range", "roundrobin"]))
def test_confluent_members_share_partitions_and_continue_at_committed_offsets(broker, strategy):
    topic = f"cf-{strategy}"
    filled(broker, topic)
    config = {"partition.assignment.strategy": strategy}
    first = Confluent(broker, topic, topic, **config)
    until(lambda: len(first.read) >= 2 * EACH, first)
    second = Confluent(broker, topic, topic, **config)
    until(lambda: shared(first, second) and len(first.read + second.read) >= PARTITIONS * EACH, first, second)
    assert sorted(first.read + second.read) == values()
    first.close()
    until(lambda: shared(second), second)
    more(broker, topic, EACH)
    until(lambda: len(second.read) and len(first.read + second.read) >= 2 * PARTITIONS * EACH, second)
    assert sorted(first.read + second.read) == sorted(values() + values(EACH))
    second.close()


def test_a_restarted_static_confluent_member_causes_no_rebalance(broker):
    filled(broker, "cf-static")
    first, second = (
        Confluent(broker, "cf-static", "cf-static", **{"group.instance.id": name}) for name in ("one", "two")
    )
    until(lambda: shared(first, second) and len(first.read + second.read) == PARTITIONS * EACH, first, second)
    owned, rebalances = set(second.owned), first.rebalances
    second.close()
    third = Confluent(broker, "cf-static", "cf-static", **{"group.instance.id": "two"})
    until(lambda: shared(first, third), first, third)
    assert third.owned == owned
    assert first.rebalances == rebalances
    for consumer in (first, third):
        consumer.close()


def test_members_read_on_without_a_rebalance_after_a_broker_kill(broker):
    filled(broker, "cf-kill")
    first, second = (Confluent(broker, "cf-kill", "cf-kill") for _ in range(2))
    until(lambda: shared(first, second) and len(first.read + second.read) == PARTITIONS * EACH, first, second)
    rebalances = first.rebalances, second.rebalances
    broker.kill()
    broker.start()
    more(broker, "cf-kill", EACH)
    until(lambda: len(first.read + second.read) >= 2 * PARTITIONS * EACH, first, second)
    assert sorted(first.read + second.read) == sorted(values() + values(EACH))
    assert (first.rebalances, second.rebalances) == rebalances
    for consumer in (first, second):
        consumer.close()


LONELY = """
import sys, confluent_kafka
consumer = confluent_kafka.Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
    "session.timeout.ms": 1500, "heartbeat.interval.ms": 200})
consumer.subscribe([sys.argv[2]], on_assign=lambda c, partitions: print("owns", len(partitions), flush=True))
while True:
    consumer.poll(0.1)
"""


def test_the_partitions_of_a_killed_member_are_assigned_to_the_other_members(broker):
    filled(broker, "cf-dead")
    command = [sys.executable, "-c", LONELY, broker.bootstrap, "cf-dead"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout.readline() == f"owns {PARTITIONS}\n"
        survivor = Confluent(broker, "cf-dead", "cf-dead")
        until(lambda: len(survivor.owned) == PARTITIONS // 2, survivor)
        victim.kill()
        until(lambda: shared(survivor) and len(survivor.read) == PARTITIONS * EACH, survivor)
    survivor.close()


def test_confluent_admins_describe_list_and_delete_groups(broker):
    filled(broker, "cf-seen")
    consumer = Confluent(broker, "cf-seen", "cf-seen", **{"client.id": "seen"})
    until(lambda: shared(consumer) and len(consumer.read) == PARTITIONS * EACH, consumer)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.describe_consumer_groups(["cf-seen", "cf-nowhere"])["cf-seen"].result(10)
    assert (found.state.name, found.partition_assignor) == ("STABLE", "range")
    assert [member.client_id for member in found.members] == ["seen"]
    assert len(found.members[0].assignment.topic_partitions) == PARTITIONS
    listed = admin.list_consumer_groups().result(10).valid
    assert ("cf-seen", "STABLE") in [(each.group_id, each.state.name) for each in listed]
    with pytest.raises(confluent_kafka.KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups(["cf-seen"])["cf-seen"].result(10)
    consumer.close()
    admin.delete_consumer_groups(["cf-seen"])["cf-seen"].result(10)
    left = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "cf-seen"})
    assert left.committed([TopicPartition("cf-seen", 0)], timeout=10)[0].offset == confluent_kafka.OFFSET_INVALID
    left.close()


# ---- aiokafka ------------------------------------------------------------------------------------------------


async def aio_until(done, seconds=15):
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def aio_member(broker, topic, read, assignor, **more):
    """Yield a consumer that reads in a task and commits each record."""
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        session_timeout_ms=6000,
        metadata_max_age_ms=1000,
        partition_assignment_strategy=(assignor,),
        **more,
    )
    await consumer.start()

    async def run():
        async for record in consumer:
            read.append(record.value)
            with contextlib.suppress(aiokafka.errors.CommitFailedError, aiokafka.errors.IllegalStateError):
                await consumer.commit()

    task = asyncio.create_task(run())
    try:
        yield consumer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await consumer.stop()


@pytest.mark.parametrize("assignor", first_only([AioSticky, AioRange, AioRoundRobin]), ids=lambda each: each.name)
async def test_two_aiokafka_members_share_partitions_and_one_takes_over_when_one_leaves(broker, assignor):
    topic = f"aio-{assignor.name}"
    filled(broker, topic)
    read = []
    async with aio_member(broker, topic, read, assignor) as first:
        await aio_until(lambda: len(set(read)) == PARTITIONS * EACH)
        async with aio_member(broker, topic, read, assignor) as second:
            await aio_until(lambda: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2)
            assert not first.assignment() & second.assignment()
        await aio_until(lambda: len(first.assignment()) == PARTITIONS)
        more(broker, topic, EACH)
        await aio_until(lambda: len(set(read)) == 2 * PARTITIONS * EACH)
    assert sorted(set(read)) == sorted(values() + values(EACH))


async def test_a_static_aiokafka_member_gets_its_partitions_back_after_a_restart(broker):
    filled(broker, "aio-static")
    read = []
    async with aio_member(broker, "aio-static", read, AioRange, group_instance_id="one") as first:
        await aio_until(lambda: len(first.assignment()) == PARTITIONS)
        owned = first.assignment()
    async with aio_member(broker, "aio-static", read, AioRange, group_instance_id="one") as again:
        await aio_until(lambda: again.assignment() == owned)


# ---- kafka-python --------------------------------------------------------------------------------------------


# kafka-python forgets a socket that it never connected; the collector's word of it is not about us, and not about the
# test that happens to run when the collector finds it either.
@pytest.fixture
def collected_here():
    yield
    gc.collect()


def left_open(test):
    unraisable = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    return unraisable(pytest.mark.usefixtures("collected_here")(test))


class Python(threading.Thread):
    """A consumer in a thread of its own, which commits what it has read."""

    def __init__(self, broker, topic, assignor, **more):
        super().__init__(daemon=True)
        self.read, self.owned, self.failure = [], set(), None
        self._ends = threading.Event()
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
            # It may lead the group before it knows the topic, and assigns nothing then until it looks again.
            metadata_max_age_ms=1000,
            partition_assignment_strategy=[assignor],
            **more,
        )
        self._consumer.partitions_for_topic(topic)  # it asks and waits
        self.start()

    def run(self):
        try:
            while not self._ends.is_set():
                found = self._consumer.poll(50)
                self.read += [record.value for records in found.values() for record in records]
                if found:
                    self._consumer.commit()
                self.owned = {each.partition for each in self._consumer.assignment()}
        except Exception as error:
            self.failure = error
        finally:
            self._consumer.close()

    def poll(self):
        assert self.failure is None, self.failure
        time.sleep(0.02)

    def close(self):
        self._ends.set()
        self.join(15)
        assert self.failure is None, self.failure


@left_open
@pytest.mark.parametrize(
    "assignor",
    [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor],
    ids=lambda each: each.name,
)
def test_two_kafka_python_members_share_partitions_and_the_last_one_gets_all(broker, assignor):
    topic = f"kp-{assignor.name}"
    filled(broker, topic)
    first = Python(broker, topic, assignor)
    until(lambda: shared(first) and len(first.read) == PARTITIONS * EACH, first)
    second = Python(broker, topic, assignor)
    until(lambda: shared(first, second), first, second)
    first.close()
    until(lambda: shared(second), second)
    more(broker, topic, EACH)
    until(lambda: len(set(second.read)) >= PARTITIONS * EACH, second)
    second.close()
    assert sorted(set(first.read + second.read)) == sorted(values() + values(EACH))


@left_open
def test_members_of_different_libraries_share_a_group(broker):
    filled(broker, "mixed")
    first = Confluent(broker, "mixed", "mixed", **{"partition.assignment.strategy": "range"})
    until(lambda: shared(first), first)
    second = Python(broker, "mixed", RangePartitionAssignor)
    until(lambda: shared(first, second), first, second)
    first.close()
    until(lambda: shared(second), second)
    second.close()

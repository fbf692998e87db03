"""Members of the SDK and of other clients in one group: they understand each other, whoever leads.

With KAFKA=HOST:PORT the broker between them is that one.
"""

import asyncio
import contextlib
import gc
import threading

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.client.assignors.consumer_protocol import decode_assignment
from fencepost.client.group.classic_group import ClassicGroup
from fencepost.client.group.subscription import Subscription
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.environment import SYSTEM
from fencepost.client.settings import consumer_settings
from fencepost.client.values import OffsetAndMetadata, TopicPartition
from fencepost.protocol.messages.groups import DescribeGroupsRequest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from long_runs import first_only

PARTITIONS = 6
PYTHON = {
    each.name: each
    for each in (
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    )
}
AIO = {each.name: each for each in (AioRange, AioRoundRobin, AioSticky)}
JAVA = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


class Sdk:
    """One member of the SDK, polled whenever there is something to do."""

    def __init__(self, bootstrap, topic, strategy):
        more = {"heartbeat_interval_ms": 200, "session_timeout_ms": 6_000, "metadata_max_age_ms": 1_000}
        self.settings = consumer_settings(
            bootstrap, group_id=topic, partition_assignment_strategy=(strategy,), client_id="sdk", **more
        )
        self.group_id = topic
        self.subscription = Subscription(has_group=True)
        self.subscription.subscribe([topic])

    async def __aenter__(self):
        self.cluster = Cluster(self.settings, SYSTEM)
        await self.cluster.start()
        self.group = ClassicGroup(self.cluster, self.settings, self.subscription, SYSTEM)
        self._polls = asyncio.create_task(self._poll())
        return self

    async def __aexit__(self, *_):
        self._polls.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._polls
        await self.group.close()
        await self.cluster.close()

    async def _poll(self):
        while True:
            if self.group.needs_poll:
                await self.group.poll(SYSTEM.clock.monotonic_ms() + 200)
            self.group.polled()
            await asyncio.sleep(0.02)

    @property
    def owned(self):
        return {tp.partition for tp in self.subscription.assigned}

    async def described(self):
        """Ask the broker for the group's assignment: member id → partitions. Empty while it rebalances."""
        request = DescribeGroupsRequest(groups=[self.group_id])
        group = (await self.cluster.ask(("group", self.group_id), request)).groups[0]
        if group.group_state != "Stable":
            return {}
        text = {each.member_id: each.member_assignment for each in group.members}
        return {
            member: {place.partition for place in decode_assignment(content).partitions} if content else set()
            for member, content in text.items()
        }


class Polled(threading.Thread):
    """A member of another library in a thread of its own."""

    def __init__(self, poll, owned, close):
        super().__init__(daemon=True)
        self._poll, self._owned, self._close = poll, owned, close
        self.owned, self.failure = set(), None
        self._ends = threading.Event()
        self.start()

    def run(self):
        try:
            while not self._ends.is_set():
                self._poll()
                self.owned = self._owned()
        except Exception as error:
            self.failure = error
        finally:
            self._close()

    async def end(self):
        self._ends.set()
        await asyncio.to_thread(self.join, 20)
        assert self.failure is None, self.failure


def confluent(bootstrap, topic, strategy):
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "partition.assignment.strategy": strategy,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe([topic])
    return Polled(lambda: consumer.poll(0.05), lambda: {p.partition for p in consumer.assignment()}, consumer.close)


def python(bootstrap, topic, strategy):
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        heartbeat_interval_ms=200,
        session_timeout_ms=6000,
        metadata_max_age_ms=1000,
        enable_auto_commit=False,
        partition_assignment_strategy=[PYTHON[strategy]],
    )
    return Polled(lambda: consumer.poll(50), lambda: {p.partition for p in consumer.assignment()}, consumer.close)


async def balanced(sdk, count, owned=None):
    """Wait until all partitions are assigned evenly to `count` members, and the members know of it.

    owned: returns the partitions of the other member.
    """
    async with asyncio.timeout(30):
        while True:
            found = await sdk.described()
            sizes = sorted(map(len, found.values()))
            given = sorted(partition for places in found.values() for partition in places)
            if sizes == [PARTITIONS // count] * count and given == list(range(PARTITIONS)):
                mine = found.get(sdk.group.metadata().member_id)
                if mine == sdk.owned and (owned is None or owned() == set(range(PARTITIONS)) - sdk.owned):
                    return
            await asyncio.sleep(0.05)


async def stable(admin, group):
    """Wait until the group is stable: each member has been given its partitions."""
    async with asyncio.timeout(30):
        while True:
            described = await asyncio.to_thread(admin.describe_consumer_groups([group])[group].result, 10)
            if described.state == ConsumerGroupState.STABLE:
                return
            await asyncio.sleep(0.05)


async def share(broker, topic, strategy, other):
    """Let another client join the SDK, which leads; then leave the other alone, and let the SDK join it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result, 10)
    async with Sdk(broker.bootstrap, topic, strategy) as sdk:
        await balanced(sdk, 1)
        theirs = other(broker.bootstrap, topic, strategy)
        await balanced(sdk, 2, lambda: theirs.owned)
        place = TopicPartition(topic, min(sdk.owned))
        await sdk.group.commit({place: OffsetAndMetadata(0, "so far")})
    async with asyncio.timeout(20):
        while theirs.owned != set(range(PARTITIONS)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    async with Sdk(broker.bootstrap, topic, strategy) as sdk:
        await balanced(sdk, 2, lambda: theirs.owned)
        assert (await sdk.group.committed([place]))[place] == OffsetAndMetadata(0, "so far")
        await theirs.end()
        await balanced(sdk, 1)


@pytest.mark.parametrize("strategy", first_only(["cooperative-sticky", "range", "roundrobin"]))
async def test_the_sdk_and_confluent_kafka_share_the_partitions_of_one_group(broker, name, strategy):
    await share(broker, name, strategy, confluent)


@pytest.fixture
def collected_here():
    yield
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("collected_here")
@pytest.mark.parametrize("strategy", first_only(sorted(PYTHON)))
async def test_the_sdk_and_kafka_python_share_the_partitions_of_one_group(broker, name, strategy):
    await share(broker, name, strategy, python)


class Aio:
    """An aiokafka consumer in this loop."""

    def __init__(self, bootstrap, topic, strategy):
        self._consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
            metadata_max_age_ms=1000,
            enable_auto_commit=False,
            partition_assignment_strategy=[AIO[strategy]],
        )
        self._started = asyncio.create_task(self._consumer.start())

    @property
    def owned(self):
        return {each.partition for each in self._consumer.assignment()}

    async def end(self):
        await self._started
        await self._consumer.stop()


@pytest.mark.parametrize("strategy", first_only(sorted(AIO, reverse=True)))
async def test_the_sdk_and_aiokafka_share_the_partitions_of_one_group(broker, name, strategy):
    await share(broker, name, strategy, Aio)


@pytest.mark.parametrize("strategy", first_only(sorted(JAVA)))
async def test_the_sdk_and_javas_client_share_the_partitions_of_one_group(broker, name, java, strategy):
    classes = f"org.apache.kafka.clients.consumer.{JAVA[strategy]}"

    def other(bootstrap, topic, strategy):
        consumer = java.consumer(
            bootstrap,
            topic,
            partition_assignment_strategy=classes,
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
            metadata_max_age_ms=1000,
        )
        consumer.do("subscribe", topic=topic)
        return Polled(lambda: consumer.poll(50), set, lambda: consumer.do("close"))

    topic = name
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result, 10)
    theirs = await asyncio.to_thread(other, broker.bootstrap, topic, strategy)
    await stable(admin, topic)
    # The group's leader is Java's client, which came first; after that has left, it is the SDK.
    async with Sdk(broker.bootstrap, topic, strategy) as sdk:
        await balanced(sdk, 2)
        await theirs.end()
        await balanced(sdk, 1)
        theirs = await asyncio.to_thread(other, broker.bootstrap, topic, strategy)
        await balanced(sdk, 2)
        await theirs.end()

"""Members of a group without a consumer: the SDK's Group on a simulated broker, polled by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from fencepost.client.group.any_group import group_of
from fencepost.client.group.group import Group
from fencepost.client.group.subscription import Subscription
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.environment import Environment
from fencepost.client.settings import ConsumerSettings
from fencepost.client.values import OffsetAndMetadata, TopicPartition
from fencepost.effects.simulated.rng import SeededRng
from fencepost.protocol.messages.topics import CreateTopicsRequest
from simulated_broker import ADDRESS, SimulatedBroker

PATIENT = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 1_000, "max_poll_interval_ms": 30_000}
CHOSEN = {
    "classic": {"partition_assignment_strategy": ("range",), **PATIENT},
    "consumer": {"max_poll_interval_ms": PATIENT["max_poll_interval_ms"]},
}
COOPERATIVE = {"partition_assignment_strategy": ("cooperative-sticky",)}
ALL = {"t-0", "t-1", "t-2", "t-3"}  # of the topic that `run` makes
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class RecordingListener:
    """A rebalance listener that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", sorted(map(str, partitions))))

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", sorted(map(str, partitions))))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("lost", sorted(map(str, partitions))))


class Slow(RecordingListener):
    """A rebalance listener that takes its time to commit revoked partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.member: Member = None  # type: ignore[assignment]

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:  # type: ignore[override]
        await asyncio.sleep(12)  # longer than a session: the heart goes on
        await self.member.group.commit({tp: OffsetAndMetadata(7) for tp in partitions})
        super().on_partitions_revoked(partitions)


class Member:
    """One Group, its subscription and its cluster."""

    def __init__(self, broker: SimulatedBroker, **settings: Any) -> None:
        self.broker = broker
        self.environment = Environment(broker.broker.clock, SeededRng(settings.pop("seed", 1)), broker.net)
        listener, topics = settings.pop("listener", RecordingListener()), settings.pop("topics", ("t",))
        settings = {"group_id": "g", **CHOSEN[settings.get("group_protocol", "classic")], **settings}
        self.settings = ConsumerSettings((ADDRESS,), **settings)
        self.subscription = Subscription(has_group=True)
        if topics:
            self.subscription.subscribe(topics, listener=listener)
        self.listener = listener
        self.cluster = Cluster(self.settings, self.environment)
        self.group: Group = None  # type: ignore[assignment]
        self._polling: asyncio.Task[None] | None = None

    async def start(self) -> Member:
        await self.cluster.start()
        self.group = group_of(self.cluster, self.settings, self.subscription, self.environment)
        return self

    async def poll(self, ms: int = 5_000) -> set[str]:
        """Poll once. Returns the assigned partitions."""
        await self.group.poll(self.environment.clock.monotonic_ms() + ms)
        return self.assigned

    async def poll_until(self, done: Callable[[], bool], seconds: float = 60) -> None:
        """Poll until done() is true, whenever the group has something to do, as a consumer without records does."""
        async with asyncio.timeout(seconds):
            while not done():
                if self.group.needs_poll:
                    await self.poll(200)
                self.group.polled()
                await asyncio.sleep(0.05)

    def keep_polling(self) -> None:
        async def run() -> None:
            while True:
                if self.group.needs_poll:
                    await self.poll(200)
                self.group.polled()
                await asyncio.sleep(0.05)

        self._polling = asyncio.get_running_loop().create_task(run())

    async def stop_polling(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
            self._polling = None

    async def close(self) -> None:
        await self.stop_polling()
        await self.group.close()
        await self.cluster.close()

    async def vanish(self) -> None:
        """End as a process that is killed: without leaving the group."""
        await self.stop_polling()
        self.group._heartbeats.stop()
        await self.group._stop_joining()
        await self.cluster.close()

    @property
    def assigned(self) -> set[str]:
        return {str(tp) for tp in self.subscription.assigned}


async def until(done: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not done():  # noqa: ASYNC110 (nobody would set an event)
            await asyncio.sleep(0.05)


def run(scenario: Callable[[SimulatedBroker], Awaitable[Any]], *, partitions: int = 4, **settings: Any) -> Any:
    """Run a scenario on a simulated broker that has topic t, and return its result."""
    from fencepost.broker.config.settings import BrokerSettings

    chosen = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 1, **settings}
    with SimulatedBroker(BrokerSettings(**chosen)) as broker:
        create(broker, "t", partitions)
        try:
            return broker.loop.run_until_complete(asyncio.wait_for(scenario(broker), 600))
        except BaseException:
            broker.abandon()
            raise


def create(broker: SimulatedBroker, name: str, partitions: int) -> None:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1)
    assert not broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1_000)).topics[0].error_code

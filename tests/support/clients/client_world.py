"""A simulated broker and a client of it in one virtual time: for tests of the SDK's parts.

`run(main)` runs a coroutine function with a World. Both are on one host, whose connections a test may cut.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from capped_broker import cap
from fencepost.broker.broker import Broker
from fencepost.broker.config.settings import BrokerSettings
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.environment import Environment
from fencepost.client.settings import ProducerSettings, producer_settings
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.loop import SimulatedLoop
from fencepost.effects.simulated.net import SimulatedNet
from fencepost.effects.simulated.rng import SeededRng

BOOTSTRAP = "127.0.0.1:9092"


class World:
    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self.loop = loop
        self.net = SimulatedNet(seed=seed)
        self.environment = Environment(loop.clock(), SeededRng(seed + 1), self.net)
        self.disk = SimulatedDisk(history=False)
        self.seed = seed
        self.broker: Broker | None = None
        self.clusters: list[Cluster] = []

    async def start_broker(self, *, release: str | None = None, **settings: Any) -> Broker:
        """Start a broker on the world's disk. release: the Kafka release that it looks like."""
        self.broker = Broker(
            BrokerSettings(**settings),
            disk=self.disk,
            clock=self.environment.clock,
            rng=SeededRng(self.seed),
            net=self.net,
        )
        await self.broker.start()
        if release is not None:
            cap(self.broker, release)
        return self.broker

    async def stop_broker(self) -> None:
        assert self.broker is not None
        await self.broker.stop()
        self.broker = None

    def settings(self, servers: Any = BOOTSTRAP, **keywords: Any) -> ProducerSettings:
        return producer_settings(servers, **keywords)

    async def cluster(self, servers: Any = BOOTSTRAP, **keywords: Any) -> Cluster:
        """Return a started Cluster, which is closed at the end of the test."""
        cluster = Cluster(self.settings(servers, **keywords), self.environment)
        self.clusters.append(cluster)
        await cluster.start()
        return cluster

    async def end(self) -> None:
        for cluster in self.clusters:
            await cluster.close()
        if self.broker is not None:
            await self.broker.stop()


def run(main: Callable[[World], Awaitable[Any]], *, seed: int = 1) -> Any:
    """Run `main` with a new world and return its result. Fails if a task is left at the end."""
    loop = SimulatedLoop()

    async def within() -> Any:
        world = World(loop, seed)
        try:
            return await main(world)
        finally:
            await world.end()
            await asyncio.sleep(1)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, left

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(within())

"""Transactions of the SDK in a world of virtual time, with faults on request and a reader that trusts nobody."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from capped_broker import capped
from client_world import BOOTSTRAP, World, run
from fencepost.broker.broker import Broker, Serve
from fencepost.broker.transactions.states import machine
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.environment import Environment
from fencepost.client.producer.producer import Producer
from fencepost.effects.clock import Clock
from fencepost.protocol.batches import walk
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.fetch import FetchRequest, FetchResponse
from fencepost.protocol.records import records
from fencepost.testing.faults import Faults

VERSIONS = {1: "3.5", 2: None}
"""Of transactions, and the release as which the broker poses."""

NAMES = {0: "Produce", 22: "InitProducerId", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn", 26: "EndTxn"}
NAMES |= {28: "TxnOffsetCommit", 65: "DescribeTransactions"}


class LaggingClock(Clock):
    """A clock that is behind another one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.lag_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() - self.lag_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms() - self.lag_ms


class TxnWorld:
    """A running broker whose requests can fail. asked: the transactional requests it got, as (name, version)."""

    def __init__(self, world: World, release: str | None) -> None:
        self.world = world
        self.asked: list[tuple[str, int]] = []
        self.faults = Faults(self)
        self._release = release
        self._between: Callable[[Serve], Serve] | None = None
        self._producers: list[Producer] = []
        self.clock = LaggingClock(world.environment.clock)

    @property
    def _environment(self) -> Environment:
        return replace(self.world.environment, clock=self.clock)

    async def start(self, **settings: Any) -> "TxnWorld":
        await self.world.start_broker(**settings)
        self._intercept()
        return self

    @property
    def broker(self) -> Broker:
        assert self.world.broker is not None
        return self.world.broker

    async def restart(self, **settings: Any) -> None:
        await self.world.stop_broker()
        await self.start(**settings)

    # What Faults asks of a broker

    def inside(self, look: Callable[[Broker], Any]) -> Any:
        return look(self.broker)

    def intercept(self, between: Callable[[Serve], Serve] | None) -> None:
        self._between = between
        self._intercept()

    def _intercept(self) -> None:
        self.broker.intercept(self._served)

    def _served(self, serve: Serve) -> Serve:
        inner = serve if self._release is None else capped(serve, self._release)
        inner = inner if self._between is None else self._between(inner)

        def noted(connection: Any, frame: Any) -> None:
            header = read_request_header(frame)
            if header.api_key in NAMES:
                self.asked.append((NAMES[header.api_key], header.api_version))
            inner(connection, frame)

        return noted

    def names(self) -> list[str]:
        """Return the names of the transactional requests since the last call."""
        names = [name for name, _ in self.asked]
        self.asked.clear()
        return names

    def force_abort(self, transactional_id: str) -> None:
        """Abort the id's transaction as an operator does."""
        coordinator = self.broker.transactions
        given = coordinator.inputs(transactional_id)
        decision = machine.force_abort(coordinator.transactions[transactional_id], given)
        coordinator.log(transactional_id, decision, given)

    async def only_the_broker_sees(self, seconds: int) -> None:
        """Let this many seconds pass for the broker, but not on the clients' clock."""
        await asyncio.sleep(seconds)
        self.clock.lag_ms += seconds * 1000

    # Clients

    async def producer(self, transactional_id: str = "x", **keywords: Any) -> Producer:
        """Return a started producer, which is closed at the end of the test."""
        keywords = {"request_timeout_ms": 1_000, "max_block_ms": 5_000, "delivery_timeout_ms": 5_000, **keywords}
        producer = Producer(BOOTSTRAP, transactional_id=transactional_id, environment=self._environment, **keywords)
        self._producers.append(producer)
        await producer.start()
        return producer

    async def end(self) -> None:
        for producer in self._producers:
            await producer.close()

    async def values(self, topic: str = "t", partition: int = 0) -> list[bytes]:
        """Return the values that a read_committed reader gets, by the broker's list of aborted transactions."""
        cluster = await self.world.cluster()
        seen: list[bytes] = []
        gone: set[int] = set()  # producers whose batches are of an aborted transaction
        offset = 0
        while True:
            found = await self._fetched(cluster, topic, partition, offset)
            aborted = {(one.producer_id, one.first_offset) for one in found.aborted_transactions or []}
            batches = list(walk(memoryview(b"".join(found.records or []))))
            if not batches:
                return seen
            for batch in batches:
                if (batch.producer_id, batch.base_offset) in aborted:
                    gone.add(batch.producer_id)
                if batch.is_control:
                    gone.discard(batch.producer_id)
                elif batch.producer_id not in gone:
                    seen += [record.value or b"" for record in records(batch)]
            offset = batches[-1].last_offset + 1

    async def _fetched(self, cluster: Cluster, topic: str, index: int, offset: int) -> Any:
        asked = FetchRequest.Topic.Partition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchRequest.Topic(topic=topic, partitions=[asked])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=1, topics=topics)
        response: FetchResponse = await cluster.ask("any", request, cap=11)
        (found,) = response.responses[0].partitions
        assert not found.error_code, found.error_code
        return found


async def write(producer: Producer, value: bytes, **more: Any) -> None:
    """Commit a transaction with one record."""
    async with producer.transaction() as tx:
        await tx.send("t", value, **more)


def within(
    main: Callable[[TxnWorld], Awaitable[Any]], version: int = 2, *, release: str | None = None, **settings: Any
) -> Any:
    """Run `main` in a world with this version of transactions, and return its result. Fails if a requested fault did
    not fire.
    """

    async def inside(world: World) -> Any:
        there = await TxnWorld(world, release or VERSIONS[version]).start(**settings)
        try:
            result = await main(there)
            there.faults.verify()
            return result
        finally:
            there.faults.clear()
            await there.end()

    return run(inside)

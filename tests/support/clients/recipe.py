"""The recipe of the README as a coroutine that can be interrupted at any of its awaits, while something else happens
in the world.

Two applications copy topic `in` to topic `out` in transactions. At one await of the first something happens to its
group; when it goes on, nothing may be lost or done twice, and every commit has to be of the generation of its fetch.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from fencepost.broker.config.settings import BrokerSettings
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import AbortableTransactionError, ProducerFencedError
from fencepost.client.net.environment import Environment
from fencepost.client.producer.producer import Producer
from fencepost.client.records.isolation import AbortedFilter
from fencepost.effects.simulated.rng import SeededRng
from fencepost.protocol.apis import APIS, decode_request
from fencepost.protocol.batches import walk
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.messages.groups import DescribeGroupsRequest, LeaveGroupRequest
from fencepost.protocol.records import records
from group_members import create
from simulated_broker import ADDRESS, SimulatedBroker

PARTITIONS = 2
RECORDS = 4  # of each partition
AT_ONCE = 3
MAX_POLL_MS = 4_000
GROUP = "billing"
TXN_OFFSET_COMMIT = 28
OF_TRANSACTIONS = (0, 22, 24, 25, 26, TXN_OFFSET_COMMIT)
SETTINGS: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "group_consumer_session_timeout_ms": 6_000,
    "group_consumer_min_session_timeout_ms": 6_000,
    "group_consumer_heartbeat_interval_ms": 500,
    "group_consumer_min_heartbeat_interval_ms": 500,
    "group_consumer_assignment_interval_ms": 0,
}
NEWER = "the broker assigns"
"""In the place of a strategy: the newer group protocol."""
Yielded = tuple[str, int, frozenset[tuple[str, int, int]]]
"""Member, generation, and (topic, partition, offset) of each position."""


@types.coroutine
def stopped_at(
    work: Awaitable[Any], number: int, happens: Callable[[], Awaitable[None]], awaits: list[int]
) -> Generator[Any, Any, None]:
    """Run `work`, and after its await of this number run `happens` before it continues. awaits[0]: the number of
    awaits so far.
    """
    steps = work.__await__()
    error: BaseException | None = None
    while True:
        try:
            waits_for = steps.send(None) if error is None else steps.throw(error)
        except StopIteration:
            return
        awaits[0] += 1
        error = None
        try:
            yield waits_for
            if awaits[0] == number:
                yield from happens().__await__()
        except BaseException as raised:
            error = raised


async def work() -> None:
    """Await something of the application's own."""
    await asyncio.sleep(0)


class Copying:
    """A world with two applications that copy the same records."""

    def __init__(self, strategy: str) -> None:
        self.requests = 0  # of the first application's producer
        self._hold_at = 0
        self._happens: Callable[[], Awaitable[None]] | None = None
        self._held: dict[Any, list[Callable[[], None]]] = {}
        self.broker = SimulatedBroker(BrokerSettings(**SETTINGS))
        self.strategy = strategy
        self.yielded: set[Yielded] = set()
        self.committed: list[Yielded] = []
        self._asking = asyncio.Lock()
        self.tasks: dict[str, asyncio.Task[Any]] = {}
        create(self.broker, "in", PARTITIONS)
        create(self.broker, "out", 1)
        self.broker.broker.intercept(self._watch)

    def _watch(self, serve: Any) -> Any:
        def served(connection: Any, frame: Any) -> None:
            header = read_request_header(frame)
            if header.api_key == TXN_OFFSET_COMMIT:
                self._see_commit(decode_request(APIS[TXN_OFFSET_COMMIT], header.api_version, frame, header.position))
            self.requests += header.client_id == "first" and header.api_key in OF_TRANSACTIONS
            if connection in self._held:
                self._held[connection].append(lambda: serve(connection, frame))
            elif self._happens is not None and self.requests == self._hold_at:
                self._held[connection] = [lambda: serve(connection, frame)]
                happens, self._happens = self._happens, None
                self.tasks["held"] = asyncio.get_running_loop().create_task(self._let_go_after(connection, happens))
            else:
                serve(connection, frame)

        return served

    async def _let_go_after(self, connection: Any, happens: Callable[[], Awaitable[None]]) -> None:
        """Run `happens`, then let the requests arrive that were stopped on this connection."""
        await happens()
        for arrive in self._held.pop(connection):
            arrive()

    def _see_commit(self, request: Any) -> None:
        places = frozenset(
            (topic.name, one.partition_index, one.committed_offset)
            for topic in request.topics
            for one in topic.partitions
        )
        self.committed.append((request.member_id, request.generation_id, places))

    async def _ask(self, request: Any, version: int | None = None) -> Any:
        async with self._asking:  # one connection for all who look
            return await self.broker._ask(request, version)

    def environment(self, seed: int) -> Environment:
        return Environment(self.broker.broker.clock, SeededRng(seed), self.broker.net)

    # ---- the applications ------------------------------------------------------------------------------------

    async def copy(self, name: str, seed: int) -> None:
        """Run the recipe until it is cancelled."""
        environment = self.environment(seed)
        more: dict[str, Any] = {"retry_backoff_max_ms": 200, "client_id": name, "environment": environment}
        async with Producer([ADDRESS], transactional_id=name, **more) as producer:
            consumer = Consumer(
                [ADDRESS],
                topics=["in"],
                group_id=GROUP,
                auto_offset_reset="earliest",
                max_poll_interval_ms=MAX_POLL_MS,
                **self._protocol(),
                **more,
            )
            async with consumer:
                async for batch in consumer.batches(max_records=AT_ONCE):
                    self._note(batch)
                    await work()
                    try:
                        async with producer.transaction(batch) as tx:
                            for record in batch:
                                await work()
                                await tx.send("out", record.value, partition=0)
                            await work()
                    except AbortableTransactionError:
                        continue

    def _protocol(self) -> dict[str, Any]:
        if self.strategy == NEWER:
            return {"group_protocol": "consumer"}
        times = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
        return {"partition_assignment_strategy": (self.strategy,), **times}

    def _note(self, batch: Any) -> None:
        member = batch.group_metadata
        places = frozenset((tp.topic, tp.partition, at.offset) for tp, at in batch.offsets.items())
        self.yielded.add((member.member_id, member.generation, places))

    def start(self, name: str, seed: int) -> None:
        if name not in self.tasks:
            self.tasks[name] = asyncio.get_running_loop().create_task(self.copy(name, seed))

    # ---- what happens to the group ---------------------------------------------------------------------------

    async def another_joins(self) -> None:
        self.start("second", 2)
        await asyncio.sleep(0.5)

    async def the_other_takes_over(self) -> None:
        """Remove the first application from the group, as an operator does; the second reads everything."""
        self.start("second", 2)
        await asyncio.sleep(0.2)
        newer = self.strategy == NEWER
        wanted = ConsumerGroupDescribeRequest(group_ids=[GROUP]) if newer else DescribeGroupsRequest(groups=[GROUP])
        described = await self._ask(wanted)
        members = [each.member_id for each in described.groups[0].members if each.client_id == "first"]
        for member in members:
            if newer:  # nobody but the member itself can say so
                await self._ask(ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member, member_epoch=-1))
                continue
            leaving = LeaveGroupRequest.Member(member_id=member)
            await self._ask(LeaveGroupRequest(group_id=GROUP, members=[leaving]), 3)
        await asyncio.sleep(2)

    async def it_takes_too_long(self) -> None:
        """Let the application be stuck for longer than max_poll_interval_ms."""
        self.start("second", 2)
        await asyncio.sleep(MAX_POLL_MS / 1000 + 2)

    # ---- a run -----------------------------------------------------------------------------------------------

    def run(self, number: int, happens: Callable[[], Awaitable[None]], *, at_request: bool = False) -> int:
        """Run the recipe until everything is copied, with `happens` after the await, or request of the producer, of
        this number; 0 for none. Returns how many of them there were.
        """
        loop = self.broker.loop
        if at_request:
            self._hold_at, self._happens, number = number, happens, 0
        try:
            return int(loop.run_until_complete(asyncio.wait_for(self._run(number, happens), 300)))
        finally:
            self.broker.abandon()

    async def _run(self, number: int, happens: Callable[[], Awaitable[None]]) -> int:
        wanted = await self._fill()
        awaits = [0]

        async def first() -> None:
            await stopped_at(self.copy("first", 1), number, happens, awaits)

        self.tasks["first"] = asyncio.get_running_loop().create_task(first())
        found: list[bytes] = []
        count = 0
        async with asyncio.timeout(120):
            while len(found) < len(wanted):
                await asyncio.sleep(0.1)
                found = await self._read()
                count = self.requests if self._happens is not None or self._hold_at else awaits[0]
                for name, task in self.tasks.items():
                    if name != "held" and task.done() and not isinstance(task.exception(), ProducerFencedError):
                        raise AssertionError(f"{name} ended") from task.exception()
        await asyncio.sleep(1)
        found = await self._read()
        assert sorted(found) == sorted(wanted), "lost, or done twice"
        strange = [each for each in self.committed if each not in self.yielded]
        assert not strange, f"committed under another generation than that of the fetch: {strange}"
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        return count

    async def _fill(self) -> list[bytes]:
        values = []
        async with Producer([ADDRESS], environment=self.environment(8)) as producer:
            for partition in range(PARTITIONS):
                for number in range(RECORDS):
                    values.append(b"%d-%d" % (partition, number))
                    await producer.send_and_wait("in", values[-1], partition=partition)
        return values

    async def _read(self) -> list[bytes]:
        """Return what a read_committed reader finds in `out`."""
        place = FetchRequest.Topic.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchRequest.Topic(topic="out", partitions=[place])]
        response = await self._ask(FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=1, topics=topics), 11)
        (found,) = response.responses[0].partitions
        assert not found.error_code, found.error_code
        hidden = AbortedFilter((one.producer_id, one.first_offset) for one in found.aborted_transactions or ())
        batches = walk(memoryview(b"".join(found.records or ())))
        return [record.value or b"" for batch in batches if not hidden.hides(batch) for record in records(batch)]

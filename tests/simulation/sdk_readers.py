"""The consumers of the real SDK in the simulation: members of a group that consume, transform and produce, and readers.

What a consumer gives is a Read of the history, from where it stood to where it stands; so whatever is passed over,
given twice or shown too early is seen by the rules for any reader.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from simulation.consumer_rules import LATEST
from simulation.history import INFO, UNTOLD, Finish, Join, Listed, Offsets, Op, Place, Producer, Read, Seen
from simulation.sdk_clients import SdkClient, SdkIncarnation
from simulation.world import World

import fencepost as fp

SDK_GROUP = "sdk-movers"
SESSION_MS, MAX_POLL_MS = 3_000, 6_000
CATCH_UP_S = 30.0
STRATEGIES = (
    (("range",),),
    (("cooperative-sticky",),),
    (("cooperative-sticky",), ("cooperative-sticky", "range")),
    (("roundrobin",), ("sticky", "roundrobin")),
)


def strategy_of(world: World, client: SdkClient) -> tuple[str, ...]:
    """One that all members of a world can agree on."""
    chosen: tuple[str, ...] = client.rng.choice(world.rng("sdk strategies").choice(STRATEGIES))
    return chosen


class SdkMover(SdkIncarnation):
    """A member of a group that consumes, transforms and produces, each batch in a transaction, as the README does."""

    def __init__(
        self, world: World, transactional_id: str, number: int, tv: int, inputs: Sequence[Place], output: str
    ) -> None:
        super().__init__(world, transactional_id, number, tv, ())
        self.inputs = inputs
        self.output = output

    async def work(self) -> None:
        consumer = self.consumer = await self.started(
            fp.Consumer,
            group_id=SDK_GROUP,
            auto_offset_reset="earliest",
            partition_assignment_strategy=strategy_of(self.world, self),
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
            max_poll_interval_ms=MAX_POLL_MS,
            fetch_max_wait_ms=200,
            max_partition_fetch_bytes=self.rng.choice((500, 1 << 20)),
        )
        consumer.subscribe(sorted({topic for topic, _ in self.inputs}), listener=self)
        batches = consumer.batches(max_records=self.rng.choice((1, 3, 20)), max_wait=self.rng.choice((0.0, 0.3)))
        while not self.world.over:
            try:
                async with asyncio.timeout(self.rng.choice((0.3, 3.0))):  # an application that has other things to do
                    batch = await anext(batches)
            except TimeoutError:
                continue
            txn = self.next_txn()
            self._read(batch, txn)
            await self.transaction(txn, batch)

    def _read(self, batch: Any, txn: str) -> None:
        session = f"{self.name} {batch.group_metadata.generation}"
        for tp, first in batch.first_offsets.items():
            given = [(one.offset, one.value.decode()) for one in batch if one.topic_partition == tp]
            read(self, (tp.topic, tp.partition), first, batch.offsets[tp].offset, given, session=session, txn=txn)

    # ---- a rebalance listener --------------------------------------------------------------------------------

    async def on_partitions_assigned(self, partitions: Collection[Any]) -> None:
        member = self.consumer.group_metadata()
        places = tuple(sorted((each.topic, each.partition) for each in self.consumer.assignment()))
        self.history.invoke(self.name, Join(SDK_GROUP)).ok((member.generation, member.member_id, places))
        await self._dawdle()

    async def on_partitions_revoked(self, partitions: Collection[Any]) -> None:
        await self._dawdle()

    async def _dawdle(self) -> None:
        if self.rng.random() < 0.1:
            await asyncio.sleep(self.rng.choice((0.2, 1.0)))

    # ---- its transactions ------------------------------------------------------------------------------------

    async def fill(self, tx: Any, identity: Producer, txn: str, sent: list[tuple[Op, Any]], batch: Any) -> None:
        for record in batch:
            source = ((record.topic, record.partition), record.offset)
            sent.append(await self.send(tx, identity, (self.output, record.partition), txn, source))

    def ending(self, txn: str, identity: Producer, commit: bool, batch: Any) -> list[Op]:
        positions = tuple(((tp.topic, tp.partition), each.offset) for tp, each in batch.offsets.items())
        group = Offsets(txn, SDK_GROUP, identity, batch.group_metadata.generation, positions)
        ops = [self.history.invoke(self.name, group)] if commit else []
        return [*ops, *super().ending(txn, identity, commit, batch)]


def read(
    client: SdkClient,
    place: Place,
    start: int,
    next_offset: int,
    given: Sequence[tuple[int, str]],
    *,
    committed: bool = True,
    session: str = "",
    txn: str | None = None,
) -> None:
    """What a consumer gave."""
    op = client.history.invoke(client.name, Read(place, committed, start, session, txn))
    op.ok(Seen(tuple(given), next_offset, UNTOLD, UNTOLD, UNTOLD))


class SdkReader(SdkClient):
    """Reads all places by manual assignment, jumps back now and then, and in the end has to come to their ends."""

    def __init__(self, world: World, name: str, number: int, places: Sequence[Place], committed: bool) -> None:
        super().__init__(world, f"{name}#{number}", places)
        self.committed = committed
        self._sessions = 0
        self.finishing: Op | None = None
        self._at: dict[fp.TopicPartition, int] = {}

    async def live(self) -> None:
        consumer = self.consumer = await self.started(
            fp.Consumer,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if self.committed else "read_uncommitted",
            fetch_max_wait_ms=300,
            max_partition_fetch_bytes=self.rng.choice((5_000, 1 << 20)),
        )
        self._partitions = [fp.TopicPartition(*place) for place in self.places]
        consumer.assign(self._partitions)
        self._at = dict.fromkeys(self._partitions, 0)
        while not self.world.over:
            if self.rng.random() < 0.1:
                self._jump()
            await self._take(self.rng.choice((1, 10, 500)))
            await asyncio.sleep(self.rng.choice((0.05, 0.2, 0.5)))
        await self._catch_up()

    def _jump(self) -> None:
        tp = self.rng.choice(self._partitions)
        self._sessions += 1
        self._at[tp] = self.rng.randint(0, self._at[tp])
        self.consumer.seek(tp, self._at[tp])

    async def _take(self, most: int) -> None:
        found = await self.consumer.getmany(timeout_ms=300, max_records=most)
        for tp, records in found.items():
            given = [(one.offset, one.value.decode()) for one in records]
            start, self._at[tp] = self._at[tp], await self.consumer.position(tp)
            session = f"{self.name} {self._sessions}"
            read(self, tuple(tp), start, self._at[tp], given, committed=self.committed, session=session)

    async def _catch_up(self) -> None:
        self.finishing = self.history.invoke(self.name, Finish("read to the end"))
        try:
            async with asyncio.timeout(CATCH_UP_S):
                ends = await self._ends()
                while any([await self.consumer.position(tp) < ends[tp] for tp in self._partitions]):
                    await self._take(500)
                self.finishing.ok()
        except TimeoutError:
            self.finishing.info()

    async def _ends(self) -> dict[fp.TopicPartition, int]:
        ops = [self.history.invoke(self.name, Listed(tuple(tp), self.committed, LATEST)) for tp in self._partitions]
        ends: dict[fp.TopicPartition, int] = await self.consumer.end_offsets(self._partitions)
        for op, tp in zip(ops, self._partitions, strict=True):
            op.ok(ends[tp])
        return ends

    def kill(self) -> None:
        super().kill()
        if self.finishing is not None and self.finishing.outcome == INFO:
            self.finishing.fail()

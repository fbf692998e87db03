"""The consumers of the real SDK in the simulation: members of a group that consume, transform and produce, and readers.

What a consumer gives is a Read of the history, from where it stood to where it stands; so whatever is passed over,
given twice or shown too early is seen by the rules for any reader.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from simulation.consumer_rules import LATEST
from simulation.heartbeats import watch_heartbeats
from simulation.history import INFO, UNTOLD, Commit, Finish, Join, Listed, Offsets, Op, Place, Producer, Read, Seen
from simulation.sdk_clients import SdkClient, SdkIncarnation
from simulation.world import NEWER, World

import fencepost as fp

SDK_GROUP, SDK_WORKERS = "sdk-movers", "sdk-workers"
SESSION_MS, MAX_POLL_MS = 3_000, (1_500, 6_000)
CATCH_UP_S = 30.0
BY_HAND = 0.3
STATIC, BY_PATTERN = 0.25, 0.3  # shares of the members whose broker assigns
BY_NAME = 0.5  # share of those that name each partition and offset
IMPATIENT = 0.3  # share of transactions that are cancelled when they take too long
STRATEGIES = (
    (("range",),),
    (("cooperative-sticky",),),
    (("cooperative-sticky",), ("cooperative-sticky", "range")),
    (("roundrobin",), ("sticky", "roundrobin")),
)


async def member(client: SdkClient, group: str, topics: Collection[str], **more: Any) -> Any:
    """Start a consumer in a group, with settings on which all members in this world can agree."""
    is_newer = client.chance_in_groups.choice(client.world.protocols_of(group)) == NEWER
    consumer = await client.started(
        fp.Consumer,
        group_id=group,
        auto_offset_reset="earliest",
        **(_newer(client) if is_newer else _classic(client, group)),
        max_poll_interval_ms=client.world.rng(f"polls {group}").choice(MAX_POLL_MS),
        fetch_max_wait_ms=200,
        max_partition_fetch_bytes=client.rng.choice((500, 1 << 20)),
        **more,
    )
    watch_heartbeats(client, consumer)
    listener = Listener(client, consumer, group)
    if is_newer and client.chance_in_groups.random() < BY_PATTERN:
        consumer.subscribe(pattern="|".join(sorted(topics)), listener=listener)
    else:
        consumer.subscribe(sorted(topics), listener=listener)
    return consumer


def _classic(client: SdkClient, group: str) -> dict[str, Any]:
    return {
        "partition_assignment_strategy": client.rng.choice(client.world.rng(f"strategies {group}").choice(STRATEGIES)),
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 300,
    }


def _newer(client: SdkClient) -> dict[str, Any]:
    """Return settings with which the broker assigns. A static member takes the place of the processes before it."""
    rng = client.chance_in_groups
    return {
        "group_protocol": NEWER,
        "group_remote_assignor": rng.choice((None, "uniform", "range")),
        "group_instance_id": client.name.split("#")[0] if rng.random() < STATIC else None,
    }


class Listener:
    """A rebalance listener that notes what is assigned, and now and then is slow."""

    def __init__(self, client: SdkClient, consumer: Any, group: str) -> None:
        self._client = client
        self._consumer = consumer
        self._group = group

    async def on_partitions_assigned(self, partitions: Collection[Any]) -> None:
        member = self._consumer.group_metadata()
        places = tuple(sorted((each.topic, each.partition) for each in self._consumer.assignment()))
        op = self._client.history.invoke(self._client.name, Join(self._group))
        op.ok((member.generation, member.member_id, places))
        await self._dawdle()

    async def on_partitions_revoked(self, partitions: Collection[Any]) -> None:
        await self._dawdle()

    async def _dawdle(self) -> None:
        if self._client.rng.random() < 0.1:
            await asyncio.sleep(self._client.rng.choice((0.2, 1.0)))


class SdkMover(SdkIncarnation):
    """A member of a group that consumes, transforms and produces, each batch in a transaction, as the README does."""

    lost = 0.1  # what its consumer does when a commit was not answered is seen only while it keeps its partitions

    def __init__(
        self, world: World, transactional_id: str, number: int, tv: int, inputs: Sequence[Place], output: str
    ) -> None:
        super().__init__(world, transactional_id, number, tv, ())
        self.inputs = inputs
        self.output = output
        self.consumer: Any = None
        self.chance_of_names = world.rng(f"{self.name} names")
        self._by_hand = self._by_name = self._again = False
        self._sent: Op | None = None  # offsets, by hand
        self._outcome: Callable[[], str | None] = lambda: None  # of the transaction that offsets were sent to by name

    async def work(self) -> None:
        self.consumer = await member(self, SDK_GROUP, {topic for topic, _ in self.inputs})
        batches = self.consumer.batches(max_records=self.rng.choice((1, 3, 20)), max_wait_ms=self.rng.choice((0, 300)))
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
        session = session_of(self, batch.group_metadata)
        for tp, first in batch.first_offsets.items():
            given = [(one.offset, one.value.decode()) for one in batch if one.topic_partition == tp]
            read(self, (tp.topic, tp.partition), first, batch.offsets[tp].offset, given, session=session, txn=txn)

    # ---- its transactions ------------------------------------------------------------------------------------

    async def transaction(self, txn: str, batch: Any = None) -> None:
        """Run a transaction, sometimes with a time limit: made from the batch, or with its offsets sent by hand."""
        if self.rng.random() < IMPATIENT:
            await self._impatiently(txn, batch)
        else:
            await self._worked_on(txn, batch, may_name=True)

    async def _impatiently(self, txn: str, batch: Any) -> None:
        """Run a transaction with a time limit; if it was cancelled, try once more, as an application does that knows
        only of a TimeoutError.
        """
        try:
            async with asyncio.timeout(self.rng.choice((0.05, 0.3, 1.0, 3.0))):
                await self._worked_on(txn, batch)
        except TimeoutError:
            self._again = True
            try:
                await self._worked_on(self.next_txn(), batch)
            except fp.IllegalStateError:
                pass  # it is committed already, or comes again
            finally:
                self._again = False

    async def _worked_on(self, txn: str, batch: Any, *, may_name: bool = False) -> None:
        self._by_hand, self._sent = self.rng.random() < BY_HAND, None
        self._by_name = may_name and self._by_hand and self.chance_of_names.random() < BY_NAME
        self._outcome = lambda: None
        try:
            await super().transaction(txn, batch)
        finally:
            if self._by_hand and self._sent is None:
                batch.aborted()  # the SDK has never heard of it
            elif self._by_name:
                self._tell(batch)

    def _tell(self, batch: Any) -> None:
        """Tell the batch the outcome of its transaction, so that the consumer knows where to go on: the SDK has heard
        of offsets only.
        """
        outcome = self._outcome()
        if outcome == "committed":
            batch.committed()
        elif outcome == "unknown":
            batch.outcome_unknown()
        else:
            batch.aborted()

    def open(self, batch: Any) -> Any:
        return self.producer.transaction(None if self._by_hand else batch)

    async def fill(self, tx: Any, identity: Producer, txn: str, sent: list[tuple[Op, Any]], batch: Any) -> None:
        if self._again:
            self._read(batch, txn)
        for record in self._records(batch):
            source = ((record.topic, record.partition), record.offset)
            sent.append(await self.send(tx, identity, (self.output, record.partition), txn, source))
        if self._by_hand:
            op = self._offsets(txn, identity, batch)
            if self._by_name:
                await asyncio.sleep(self.rng.choice((0.0, 1.0, 4.0)))  # others may have its partitions then
                offsets = {tp: at.offset for tp, at in batch.offsets.items()}
                await tx.send_offsets_to_transaction(offsets, self.consumer.group_metadata())
                self._outcome = lambda: tx.outcome
            else:
                await tx.send_offsets_to_transaction(batch)
            self._sent = op
            await asyncio.sleep(self.rng.choice((0, 0, 0.5, 2.5)))

    def _records(self, batch: Any) -> Iterable[Any]:
        return batch  # type: ignore[no-any-return]

    def ending(self, txn: str, identity: Producer, commit: bool, batch: Any) -> list[Op]:
        ops = [self._sent or self._offsets(txn, identity, batch)] if commit else []
        return [*ops, *super().ending(txn, identity, commit, batch)]

    def _offsets(self, txn: str, identity: Producer, batch: Any) -> Op:
        positions = tuple(((tp.topic, tp.partition), each.offset) for tp, each in batch.offsets.items())
        member = batch.group_metadata
        what = Offsets(txn, SDK_GROUP, identity, member.generation, positions, member.member_id)
        return self.history.invoke(self.name, what)


def session_of(client: SdkClient, member: Any) -> str:
    """Return the session of a consumer's reads: another one after each rebalance. The member's id is in it, since
    generations begin again in a group that was forgotten.
    """
    return f"{client.name} {member.member_id} {member.generation}"


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
    group: str = "",
) -> None:
    """Note in the history what a consumer gave."""
    op = client.history.invoke(client.name, Read(place, committed, start, session, txn, group))
    op.ok(Seen(tuple(given), next_offset, UNTOLD, UNTOLD, UNTOLD))


class SdkWorker(SdkClient):
    """An at-least-once consumer: works on what it polled, then commits it, or lets it be committed automatically."""

    def __init__(self, world: World, name: str, number: int, topic: str) -> None:
        super().__init__(world, f"{name}#{number}", ())
        self._topic = topic

    async def live(self) -> None:
        by_itself = self.rng.random() < 0.5
        consumer = await member(
            self, SDK_WORKERS, [self._topic], enable_auto_commit=by_itself, auto_commit_interval_ms=300
        )
        watch_commits(self, consumer, SDK_WORKERS)
        while not self.world.over:
            found = await consumer.getmany(timeout_ms=500, max_records=self.rng.choice((1, 10, 100)))
            await asyncio.sleep(self.rng.choice((0.0, 0.05, 0.4)))
            self._work_on(found)
            if found and not by_itself:
                try:
                    await consumer.commit()
                except (fp.CommitFailedError, fp.RebalanceInProgressError):
                    continue  # whoever has the partitions now does it again

    def _work_on(self, found: Mapping[Any, Sequence[Any]]) -> None:
        for tp, records in found.items():
            given = [(one.offset, one.value.decode()) for one in records]
            read(self, tuple(tp), given[0][0], given[-1][0] + 1, given, group=SDK_WORKERS)


def watch_commits(client: SdkClient, consumer: Any, group: str) -> None:
    """Note in the history what a consumer commits outside of transactions, by itself or when it is told to."""
    offsets = consumer._group._commits._offsets
    commit = offsets.commit

    async def watched(wanted: Any, member: Any, **more: Any) -> None:
        positions = tuple((tuple(tp), at.offset) for tp, at in wanted.items())
        op = client.history.invoke(client.name, Commit(group, member.generation, positions, member.member_id))
        op.late = True  # it asks again by itself
        accepted, newest = member.generation, more.pop("newest", None)

        def renewed() -> Any:
            nonlocal accepted
            found = newest()
            accepted = found.generation
            return found

        await commit(wanted, member, newest=renewed if newest is not None else None, **more)
        op.ok(accepted)

    offsets.commit = watched


class SdkReader(SdkClient):
    """Reads all places by manual assignment, jumps back now and then, and in the end has to come to their ends."""

    more: Mapping[str, Any] = MappingProxyType({})  # settings

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
            **self.more,
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

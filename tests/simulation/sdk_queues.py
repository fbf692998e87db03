"""The SDK's share consumers in the simulation: workers that acknowledge in transactions, and members without any.

They are members of the group of `queues.py`. What goes over the wire is written down by `share_watch.py`; here is what
the application sees: which records it was given, what it said became of them, and whether that was committed.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from simulation.history import End, Op, Place, Producer
from simulation.queues import GROUP, PLACES, TOPIC, QueueKeeper
from simulation.sdk_clients import SdkClient, SdkIncarnation
from simulation.share_consumer_rules import Committed, Returned, Said
from simulation.share_watch import ShareWatch, WatchedNet
from simulation.txn_clients import Supervisor
from simulation.world import SHARE_LOCK_MS, World

import fencepost as fp

ACCEPT, RELEASE, REJECT, RENEW = fp.AcknowledgeType
MAX_POLL_MS = (1_500, 6_000)  # for so long records are renewed of which nothing is said
OUTPUT: Place = ("left", 0)


def sdk_queue_clients_of(world: World, keeper: QueueKeeper) -> list[Supervisor]:
    def working(number: int, tv: int) -> SdkQueueWorker:
        return SdkQueueWorker(world, f"sdk-queue{number % 2}", number, keeper)

    def reading(number: int, tv: int) -> SdkQueueMember:
        return SdkQueueMember(world, f"sdk-member#{number}", keeper)

    return [
        Supervisor(world, "sdk-queue", 2, working, (2.0, 10.0)),
        Supervisor(world, "sdk-member", 2, reading, (4.0, 15.0)),
    ]


class Reading:
    """One share consumer, as its application sees it."""

    def __init__(self, client: SdkClient, consumer: Any, *, implicit: bool = False) -> None:
        self.consumer = consumer
        self.member = consumer._polls.member.member_id
        self._client = client
        self._history = client.history
        self._implicit = implicit
        self._unsaid: list[Any] = []  # what it accepts by asking for more

    async def take(self, timeout_ms: float, most: int | None = None) -> list[Any]:
        self.accept_all()
        op = self._history.invoke(self._client.name, Returned(GROUP, self.member))
        if most == 1 and timeout_ms:
            try:
                records = [await self.consumer.getone(timeout_ms=timeout_ms)]
            except fp.RequestTimedOutError:
                records = []
        else:
            records = await self.consumer.getmany(timeout_ms=timeout_ms, max_records=most)
        op.ok(tuple((_place(each), each.offset, each.value.decode(), each.delivery_count) for each in records))
        self._client.world.met["sdk queue: given"] += len(records)
        self._unsaid += records if self._implicit else []
        return records  # type: ignore[no-any-return]

    def says(self, record: Any, kind: int, txn: str | None = None) -> Op:
        what = Said(GROUP, _place(record), self.member, record.offset, int(kind), txn)
        return self._history.invoke(self._client.name, what)

    def acknowledge(self, record: Any, kind: Any) -> None:
        """Acknowledge a record, and note whether the consumer took that: not if it does not hold the record any
        more.
        """
        op = self.says(record, kind)
        try:
            self.consumer.acknowledge(record, kind)
        except fp.RecordNotHeldError:
            op.fail()
            self._client.world.met["sdk queue: not held"] += 1
        else:
            op.ok()

    def accept_all(self) -> None:
        """In implicit mode, note that the records returned before are accepted, because the application asks for
        more.
        """
        said, self._unsaid = self._unsaid, []
        for record in said:
            self.says(record, ACCEPT).ok()

    async def commit(self) -> None:
        self.accept_all()
        op = self._history.invoke(self._client.name, Committed(GROUP, self.member))
        try:
            await self.consumer.commit()
        except fp.KafkaError as error:
            op.fail(int(error.code))
            self._client.world.met["sdk queue: not committed"] += 1
        else:
            op.ok()


def _place(record: Any) -> Place:
    return (record.topic, record.partition)


class _Sharing(SdkClient):
    """A process with share consumers, one after the other."""

    keeper: QueueKeeper

    def net(self) -> WatchedNet:
        net = WatchedNet(self._host, self._process, self.on_send)
        self.shares = ShareWatch(self.history, self.name, GROUP, lambda: self.keeper.topic_id, PLACES)
        net.watch = self.shares.connected
        return net

    def kill(self) -> None:
        super().kill()
        self.shares.over()

    async def reading(self, *, implicit: bool = False) -> Reading:
        consumer = await self.started(
            fp.ShareConsumer,
            topics=[TOPIC],
            group_id=GROUP,
            acknowledgement="implicit" if implicit else "explicit",
            max_poll_records=self.rng.choice((1, 5, 20)),
            strict=self.rng.random() < 0.5,
            fetch_max_wait_ms=self.rng.choice((100, 500)),
            max_poll_interval_ms=self.rng.choice(MAX_POLL_MS),
        )
        return Reading(self, consumer, implicit=implicit)

    async def end(self, reading: Reading) -> None:
        reading.accept_all()
        await self._close(reading.consumer)
        self.clients.remove(reading.consumer)
        self.shares.over(reading.member)

    async def dawdle(self) -> None:
        """Sometimes wait, as if the work on records took so long that their locks have to be renewed."""
        if self.rng.random() < 0.15:
            await asyncio.sleep(SHARE_LOCK_MS / 1000 * self.rng.uniform(0.5, 2.0))


class SdkQueueMember(_Sharing):
    """It acknowledges plainly, one by one, or implicitly; what it says nothing about comes again."""

    def __init__(self, world: World, name: str, keeper: QueueKeeper) -> None:
        self.keeper = keeper
        super().__init__(world, name, PLACES)

    async def live(self) -> None:
        await self.keeper.made.wait()
        while not self.world.over:
            implicit = self.rng.random() < 0.3
            reading = await self.reading(implicit=implicit)
            for _ in range(self.rng.randint(5, 40)):
                if self.world.over:
                    break
                records = await reading.take(self.rng.choice((0, 100, 500)), self.rng.choice((None, 1, 3)))
                await self.dawdle()
                if not implicit:
                    self._say(reading, records)
                if self.rng.random() < 0.3:
                    await reading.commit()
                await asyncio.sleep(self.rng.choice((0, 0.02, 0.2)))
            await self.end(reading)

    def _say(self, reading: Reading, records: Sequence[Any]) -> None:
        for record in records:
            kind = self.rng.choice((ACCEPT,) * 6 + (RELEASE, REJECT, RENEW, None))
            if kind is not None:
                reading.acknowledge(record, kind)
            if kind is not None and self.rng.random() < 0.1:
                reading.acknowledge(record, self.rng.choice((ACCEPT, RELEASE, RENEW)))  # it thinks better of it


class SdkQueueWorker(_Sharing, SdkIncarnation):
    """It writes what it makes of records and acknowledges them, both in one transaction, as the README does."""

    def __init__(self, world: World, transactional_id: str, number: int, keeper: QueueKeeper) -> None:
        self.keeper = keeper
        super().__init__(world, transactional_id, number, 2, [OUTPUT])
        self._reading: Reading

    async def live(self) -> None:
        await self.keeper.made.wait()
        await super().live()

    async def work(self) -> None:
        while not self.world.over:
            self._reading = await self.reading()
            for _ in range(self.rng.randint(3, 30)):
                if self.world.over:
                    break
                records = await self._reading.take(self.rng.choice((100, 500)), self.rng.choice((None, None, 1, 5)))
                await self.dawdle()
                if not records:
                    continue
                self.shares.txn = txn = self.next_txn()
                await self.transaction(txn, records)
                if self.rng.random() < 0.1:
                    await self._reading.commit()
            await self.end(self._reading)

    def open(self, batch: Any) -> Any:
        return self.producer.transaction()

    async def fill(self, tx: Any, identity: Producer, txn: str, sent: list[tuple[Op, Any]], batch: Any) -> None:
        try:
            await self._fill(tx, identity, txn, sent, batch)
        except BaseException:
            self.history.invoke(self.name, End(txn, self.transactional_id, identity, commit=False))  # comes next
            raise

    async def _fill(self, tx: Any, identity: Producer, txn: str, sent: list[tuple[Op, Any]], batch: Any) -> None:
        work = [self._write(tx, identity, txn, sent, batch), self._acknowledge(tx, txn, batch)]
        if self.rng.random() < 0.5:
            work.reverse()
        try:
            for each in work:
                await each
        finally:
            for each in work:
                each.close()

    async def _write(self, tx: Any, identity: Producer, txn: str, sent: list[tuple[Op, Any]], batch: Any) -> None:
        for record in batch:
            sent.append(await self.send(tx, identity, OUTPUT, txn, (_place(record), record.offset)))

    async def _acknowledge(self, tx: Any, txn: str, batch: Any) -> None:
        reading = self._reading
        ops = [reading.says(record, ACCEPT, txn) for record in batch]
        try:
            await tx.acknowledge(reading.consumer, *batch)
        except fp.RecordNotHeldError:
            for op in ops:
                op.fail()
            self.world.met["sdk queue: not held"] += 1
            raise
        for op in ops:
            op.ok()
        if self.rng.random() < 0.1:
            self._check_refused(batch)

    def _check_refused(self, batch: Any) -> None:
        """Note a failure if the consumer itself may acknowledge what its transaction acknowledges."""
        try:
            self._reading.consumer.acknowledge(self.rng.choice(batch), self.rng.choice((ACCEPT, RELEASE, RENEW)))
        except fp.IllegalStateError:
            return
        self.world.failures.append(f"{self.name}: acknowledges what its transaction does")

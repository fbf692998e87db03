"""The SDK as applications use it that are in each other's way: pauses, slow work on each record, two producers, reads
beside a commit.
"""

import asyncio
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from simulation.history import INFO, Claim, Finish, LeftBehind, Op, Pause, Place, Producer, Resume
from simulation.sdk_clients import SdkClient, SdkIncarnation
from simulation.sdk_readers import (
    CATCH_UP_S,
    SDK_GROUP,
    SDK_WORKERS,
    Listener,
    SdkMover,
    SdkReader,
    SdkWorker,
    member,
    read,
    session_of,
    watch_commits,
)
from simulation.world import World

import fencepost as fp

SDK_SINGLES = "sdk-singles"
LITTLE = 4_000  # bytes fetched ahead: a paused partition's alone fill it
LONG_WORK = 0.6  # of max_poll_interval_ms: two of them without a poll are too long
BESIDE = 0.8
ALSO = ("left", "right")


class SdkPauser(SdkReader):
    """Pauses, resumes and jumps, beside a poll too; what it pauses is not given, and keeps nothing from the others."""

    more = MappingProxyType({"fetch_max_bytes": LITTLE})

    async def _take(self, most: int) -> None:
        if self.rng.random() < 0.3:
            self._pause(self._some())
        beside = asyncio.ensure_future(self._beside()) if self.rng.random() < 0.7 else None
        await super()._take(most)
        if beside is not None:
            await beside

    async def _beside(self) -> None:
        """Pause some partitions, or seek, in another task during a poll."""
        await asyncio.sleep(self.rng.choice((0.0, 0.02, 0.1, 0.25)))
        if self.rng.random() < 0.5:
            self._pause(self._some())
        else:
            self._jump()

    def _some(self) -> tuple[Any, ...]:
        return tuple(tp for tp in self._partitions if self.rng.random() < 0.4)

    def _pause(self, wanted: Sequence[Any]) -> None:
        """Pause these partitions, and resume all others."""
        paused = self.consumer.paused()
        self.consumer.pause(*wanted)
        self.consumer.resume(*(tp for tp in paused if tp not in wanted))
        for tp in sorted({*wanted, *paused}):
            self.history.invoke(self.name, (Pause if tp in wanted else Resume)(tuple(tp))).ok()

    async def _catch_up(self) -> None:
        """Pause half of the partitions and read the others to their ends; then resume them, and read all to the end."""
        wanted = tuple(self._partitions[::2])
        self._pause(wanted)
        self.finishing = self.history.invoke(self.name, Finish("read to the end beside paused partitions"))
        ends = await self.consumer.end_offsets(self._partitions)
        others = [tp for tp in self._partitions if tp not in wanted]
        try:
            async with asyncio.timeout(CATCH_UP_S):
                while any([await self.consumer.position(tp) < ends[tp] for tp in others]):
                    await super()._take(500)
                self.finishing.ok()
        except TimeoutError:
            self.finishing.info()
        self._pause(())
        self._take = super()._take  # type: ignore[method-assign]  # nothing is paused any more
        await super()._catch_up()


class SdkSingle(SdkClient):
    """A member that is given one record after the other, and works on some for long."""

    def __init__(self, world: World, name: str, number: int, topic: str) -> None:
        super().__init__(world, f"{name}#{number}", ())
        self._topic = topic
        self._polled_ms = 0

    async def live(self) -> None:
        by_itself = self.rng.random() < 0.5
        consumer = await member(
            self, SDK_SINGLES, [self._topic], enable_auto_commit=by_itself, auto_commit_interval_ms=300
        )
        allowed_ms = consumer._settings.max_poll_interval_ms
        self._watch_leaving(consumer._group._heartbeats, allowed_ms)
        watch_commits(self, consumer, SDK_SINGLES)
        self._polled_ms = self._now_ms()
        while not self.world.over:
            try:
                record = await consumer.getone(timeout_ms=500)
            except fp.RequestTimedOutError:
                continue
            finally:
                self._polled_ms = self._now_ms()
            session = session_of(self, consumer.group_metadata())
            is_long = self.rng.random() < 0.1
            await asyncio.sleep(LONG_WORK * allowed_ms / 1_000 if is_long else self.rng.choice((0.0, 0.02)))
            self._done(record, session)
            if not by_itself and self.rng.random() < 0.3:
                try:
                    await consumer.commit()
                except (fp.CommitFailedError, fp.RebalanceInProgressError):
                    continue  # whoever has the partition now does it again

    def _done(self, record: Any, session: str) -> None:
        given = [(record.offset, record.value.decode())]
        place = (record.topic, record.partition)
        read(self, place, record.offset, record.offset + 1, given, session=session, group=SDK_SINGLES)

    def _now_ms(self) -> int:
        return self._environment.clock.monotonic_ms()

    def _watch_leaving(self, heart: Any, allowed_ms: int) -> None:
        leave = heart._left_behind

        async def watched() -> None:
            self.history.invoke(self.name, LeftBehind(SDK_SINGLES, allowed_ms)).ok(self._now_ms() - self._polled_ms)
            await leave()

        heart._left_behind = watched


class SdkPair(SdkMover):
    """A mover whose second producer is given batches that the first works on, or has committed."""

    def __init__(
        self, world: World, transactional_id: str, number: int, tv: int, inputs: Sequence[Place], output: str
    ) -> None:
        super().__init__(world, transactional_id, number, tv, inputs, output)
        self._beside: Any = None

    def prepare(self, client: Any) -> None:
        if client.__class__ is fp.Producer and client.settings.transactional_id != self.transactional_id:
            return  # the second one's requests are nobody's business: it is to begin nothing
        super().prepare(client)

    async def work(self) -> None:
        self._beside = await self.started(
            fp.Producer, transactional_id=f"{self.transactional_id}-beside", transaction_timeout_ms=5_000
        )
        await super().work()

    async def fill(self, tx: Any, identity: Producer, txn: str, sent: list[tuple[Op, Any]], batch: Any) -> None:
        await super().fill(tx, identity, txn, sent, batch)
        if not self._by_hand or (self._sent is not None and not self._by_name):
            await self._claim(txn, batch)

    def _committed(self, ends: Sequence[Op]) -> None:
        super()._committed(ends)
        self._is_committed = True

    async def transaction(self, txn: str, batch: Any = None) -> None:
        self._is_committed = False
        await super().transaction(txn, batch)
        if self._is_committed:
            await self._claim(txn, batch)

    async def _claim(self, txn: str, batch: Any) -> None:
        if self.rng.random() > BESIDE:
            return
        op = self.history.invoke(self.name, Claim(txn))
        try:
            async with self._beside.transaction(batch):
                op.ok(True)
        except fp.IllegalStateError:
            op.ok(False)
        except fp.KafkaError as error:
            op.fail(int(error.code))


class SdkAhead(SdkMover):
    """A mover that polls on while its transaction is open or being committed: what comes then is for the next one."""

    def __init__(
        self, world: World, transactional_id: str, number: int, tv: int, inputs: Sequence[Place], output: str
    ) -> None:
        super().__init__(world, transactional_id, number, tv, inputs, output)
        self._pending: dict[Any, list[Any]] = {}  # by partition, in no transaction yet
        self._working: list[Any] = []
        self._polling: asyncio.Future[None] | None = None

    async def work(self) -> None:
        self.consumer = await member(self, SDK_GROUP, {topic for topic, _ in self.inputs})
        while not self.world.over:
            await self._poll()
            batch = self.consumer.last_batch
            if batch is not None:
                txn = self.next_txn()
                self._take(batch, txn)
                await self.transaction(txn, batch)
                await self._forget_what_comes_again()

    async def _poll(self) -> None:
        found = await self.consumer.getmany(timeout_ms=300, max_records=self.rng.choice((1, 3, 20)))
        for tp, records in found.items():
            before = self._pending.get(tp, ())
            goes_on = before and before[-1].offset < records[0].offset
            self._pending[tp] = [*before, *records] if goes_on else records

    def _take(self, batch: Any, txn: str) -> None:
        """Choose the records that this transaction works on, and note them as read for it: of each partition in the
        batch, the pending ones from the batch's first offset on.
        """
        session = session_of(self, self.consumer.group_metadata())  # not before a rebalance, as offsets may be
        given, self._pending, self._working = self._pending, {}, []
        for tp, first in batch.first_offsets.items():
            records = [one for one in given.get(tp, ()) if one.offset >= first]
            values = [(one.offset, one.value.decode()) for one in records]
            read(self, tuple(tp), first, batch.offsets[tp].offset, values, session=session, txn=txn)
            self._working += records

    async def transaction(self, txn: str, batch: Any = None) -> None:
        self._by_hand, self._sent = True, None
        try:
            await SdkIncarnation.transaction(self, txn, batch)
        finally:
            if self._sent is None:
                batch.aborted()  # the SDK has never heard of it
            if self._polling is not None:
                polling, self._polling = self._polling, None
                await polling

    async def fill(self, tx: Any, identity: Producer, txn: str, sent: list[tuple[Op, Any]], batch: Any) -> None:
        await super().fill(tx, identity, txn, sent, batch)
        if self.rng.random() < 0.3:
            await self._poll()

    def _records(self, batch: Any) -> Sequence[Any]:
        return self._working

    def ending(self, txn: str, identity: Producer, commit: bool, batch: Any) -> list[Op]:
        if self.rng.random() < 0.7:
            self._polling = asyncio.ensure_future(self._poll())
        return super().ending(txn, identity, commit, batch)

    async def _forget_what_comes_again(self) -> None:
        """Drop pending records that a rollback will bring again, or whose partition has another owner."""
        for tp, records in tuple(self._pending.items()):
            try:
                comes_again = await self.consumer.position(tp) <= records[-1].offset
            except fp.IllegalStateError:
                comes_again = True
            if comes_again:
                del self._pending[tp]


class SdkRestless(SdkWorker):
    """A worker of which one task polls, and another unsubscribes, perhaps without patience, or subscribes anew.

    It polls on beside its commits.
    """

    def __init__(self, world: World, name: str, number: int, topic: str) -> None:
        super().__init__(world, name, number, topic)
        self._listener: Any = None
        self._is_away = False
        self._finishing: Op | None = None

    async def live(self) -> None:
        consumer = await member(self, SDK_WORKERS, [self._topic], enable_auto_commit=False)
        watch_commits(self, consumer, SDK_WORKERS)
        self._listener = Listener(self, consumer, SDK_WORKERS)
        restless: asyncio.Future[None] | None = None
        committing: asyncio.Future[None] | None = None
        while not self.world.over:
            if (restless is None or restless.done()) and self.rng.random() < 0.2:
                restless = asyncio.ensure_future(self._change(consumer))
            found = await consumer.getmany(timeout_ms=500, max_records=self.rng.choice((1, 10, 100)))
            if found and self._is_away:
                self.world.failures.append(f"{self.name} is given records after it has unsubscribed: {found}"[:400])
            if committing is not None:
                await committing
            await asyncio.sleep(self.rng.choice((0.0, 0.05, 0.4)))
            self._work_on(found)
            committing = asyncio.ensure_future(self._commit(consumer)) if found else None
            await asyncio.sleep(0)  # it has begun
        if restless is not None:
            await restless
        await self._belong(consumer)

    async def _commit(self, consumer: Any) -> None:
        try:
            await consumer.commit()
        except fp.KafkaError:
            pass  # whoever has the partitions now does it again

    async def _change(self, consumer: Any) -> None:
        """Subscribe anew, by name or by a pattern; sometimes unsubscribe first, and be given nothing for a while."""
        try:
            await asyncio.sleep(self.rng.choice((0.0, 0.02, 0.2)))
            if self.rng.random() < 0.6:
                await self._be_away(consumer)
            topics, pattern = self.rng.choice((([self._topic], None), ((), self._topic[:-1] + "."), (ALSO, None)))
            self._is_away = False
            consumer.subscribe([*topics], pattern=pattern, listener=self._listener)
        except fp.KafkaError:
            pass  # it is closed, say

    async def _be_away(self, consumer: Any) -> None:
        try:
            async with asyncio.timeout(self.rng.choice((0.0, 0.002, 0.05, 10.0))):
                await consumer.unsubscribe()
        except TimeoutError:
            pass  # it has unsubscribed all the same
        self._is_away = True
        await asyncio.sleep(self.rng.choice((0.0, 0.3)))

    async def _belong(self, consumer: Any) -> None:
        """In the end, wait until it is a member that has partitions assigned."""
        self._finishing = self.history.invoke(self.name, Finish("belong to its group"))
        try:
            await consumer.assigned(timeout_ms=CATCH_UP_S * 1_000)
            self._finishing.ok()
        except fp.RequestTimedOutError:
            self._finishing.info()
        except fp.KafkaError:
            self._finishing.fail()

    def kill(self) -> None:
        super().kill()
        if self._finishing is not None and self._finishing.outcome == INFO:
            self._finishing.fail()


class SdkSeveral(SdkMover):
    """A mover that reads several batches for one transaction, and passes it as many as name each partition.

    After an abort it may try the same again at once; or in the wrong order first, which is refused.
    """

    def __init__(
        self, world: World, transactional_id: str, number: int, tv: int, inputs: Sequence[Place], output: str
    ) -> None:
        super().__init__(world, transactional_id, number, tv, inputs, output)
        self._offsets_sent: list[Op] = []
        self._are_passed = self._is_aborted = self._is_again = False

    async def work(self) -> None:
        self.consumer = await member(self, SDK_GROUP, {topic for topic, _ in self.inputs})
        batches = self.consumer.batches(max_records=self.rng.choice((1, 3)))
        while not self.world.over:
            several = await self._some(batches)
            self._is_again = False
            while several:
                try:
                    await self.transaction(self.next_txn(), several)
                except fp.IllegalStateError:
                    self._is_aborted = False
                if not self._is_aborted or self.rng.random() < 0.5:
                    break
                self._is_again = True

    async def _some(self, batches: Any) -> list[Any]:
        several: list[Any] = []
        for wait_s in (1.0, 0.3, 0.3):
            try:
                async with asyncio.timeout(wait_s):
                    several.append(await anext(batches))
            except TimeoutError:
                break
            if self.rng.random() < 0.3:
                break
        return several

    async def transaction(self, txn: str, batch: Any = None) -> None:
        self._offsets_sent, self._are_passed, self._is_aborted = [], False, False
        if not self._is_again:
            self._read_all(batch, txn)
        try:
            await SdkIncarnation.transaction(self, txn, batch)
        finally:
            if not self._are_passed:  # the SDK has not heard of all of them
                await self.consumer.seek_to_committed()

    def _read_all(self, several: Sequence[Any], txn: str) -> None:
        for batch in several:
            self._read(batch, txn)

    def _aborted(self, ends: Sequence[Op], error: Exception) -> None:
        super()._aborted(ends, error)
        self._is_aborted = True

    def open(self, batch: Any) -> Any:
        return self.producer.transaction()

    async def fill(self, tx: Any, identity: Producer, txn: str, sent: list[tuple[Op, Any]], batch: Any) -> None:
        passed = self._to_pass(batch)
        is_first = self._is_again or self.rng.random() < 0.5
        if is_first:
            await self._pass(tx, identity, txn, passed)
        if self._is_again:
            self._read_all(batch, txn)
        for record in [record for one in batch for record in one]:
            source = ((record.topic, record.partition), record.offset)
            sent.append(await self.send(tx, identity, (self.output, record.partition), txn, source))
        if not is_first:
            await self._pass(tx, identity, txn, passed)

    def _to_pass(self, several: Sequence[Any]) -> list[Any]:
        """Choose which batches the transaction is told: all; or, in one generation, those with a partition that no
        later one has; or all in the wrong order.

        With several generations none is left out: the group can refuse records from before a rebalance only if it is
        told of their batch.
        """
        passed = list(several)
        how = self.rng.random()
        if how < 0.6 and len({batch.group_metadata.generation for batch in several}) == 1:
            passed = [
                batch
                for place, batch in enumerate(several)
                if any(all(tp not in later.offsets for later in several[place + 1 :]) for tp in batch.offsets)
            ]
        elif how < 0.7:
            passed.reverse()
        return passed

    async def _pass(self, tx: Any, identity: Producer, txn: str, passed: Sequence[Any]) -> None:
        for batch in passed:
            op = self._offsets(txn, identity, batch)
            source = self.consumer if batch is self.consumer.last_batch else batch
            await tx.send_offsets_to_transaction(source)
            self._offsets_sent.append(op)
        self._are_passed = True

    def ending(self, txn: str, identity: Producer, commit: bool, batch: Any) -> list[Op]:
        return [*(self._offsets_sent if commit else ()), *SdkIncarnation.ending(self, txn, identity, commit, batch)]

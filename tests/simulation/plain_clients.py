"""Scripted clients without transactions: idempotent producers that send ahead, repeat and leave gaps, and readers."""

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from fencepost.protocol.records import Marker, Record, build, read_marker, records
from produce_requests import answers, fetch, fetched, list_offsets, produce
from simulation.history import (
    FAIL,
    Init,
    Op,
    Place,
    Producer,
    Read,
    Seen,
    Send,
    is_tombstone,
    key_of,
    name_of,
)
from simulation.lines import PATIENCE_S, Caller, Unanswered
from simulation.world import World

PLAIN_VERSIONS = (3, 8, 9, 11)
IN_FLIGHT = 5
EARLIEST = -2
LONG_PATIENCE_S = 30.0  # longer than a read lasts
E = ErrorCode
RETRIED = {
    E.NOT_ENOUGH_REPLICAS,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.CONCURRENT_TRANSACTIONS,
    E.KAFKA_STORAGE_ERROR,
    E.REQUEST_TIMED_OUT,
    E.POLICY_VIOLATION,  # a limit is reached, until somebody else is done
}
STARTS_ANEW = 0.03
NAME = "name"  # the header of a record without a value
TOMBSTONES = 0.2
GAP = 3  # sequences left out by a probe


def batch_of(send: Send, timestamp: int) -> bytes:
    producer_id, epoch = send.producer
    return build(
        [_record(index, timestamp, value) for index, value in enumerate(send.values)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=send.sequence,
        transactional=send.txn is not None,
    )


def _record(index: int, timestamp: int, value: str) -> Record:
    key = key_of(value)
    if not is_tombstone(value):
        return Record(index, timestamp, None if key is None else key.encode(), value.encode())
    assert key is not None
    return Record(index, timestamp, key.encode(), None, ((NAME, value.encode()),))


def value_in(record: Record) -> str:
    """Return the value as it is called in histories. That of a tombstone is in a header."""
    return (record.value if record.value is not None else dict(record.headers)[NAME] or b"").decode()


class Batch:
    """A batch on its way: sent again, the very same bytes, until its fate is known."""

    def __init__(self, op: Op, timestamp: int, transactional_id: str | None = None) -> None:
        self.op = op
        self.send: Send = op.what
        self.data = batch_of(op.what, timestamp)
        self.transactional_id = transactional_id
        self.unsure = False
        self.error: int | None = None

    @property
    def request(self) -> Any:
        topic, partition = name_of(self.send.place), self.send.place[1]
        return produce(topic, self.data, partition=partition, transactional_id=self.transactional_id)

    def answered(self, answer: Any) -> bool:
        """Take an answer. Returns whether the batch is surely written now."""
        if isinstance(answer, Unanswered):
            self.unsure = True
            return False
        ((code, offset),) = answers(answer)
        if code == 0:
            self.op.ok(offset)
            return True
        self.error = code
        return False

    def refused(self) -> None:
        """End its operation: as failed, or as unknown if an attempt was not answered and may have been taken."""
        if self.unsure:
            self.op.info()
        else:
            self.op.fail(self.error or -1)


async def deliver(caller: Caller, batches: Sequence[Batch], version: int, *, patient: bool = True) -> bool:
    """Send all batches ahead, then again those that were not taken, in order, until all are. Returns False if one is
    refused for good.

    patient: keep trying until all is known; else give up after some attempts, and leave the outcome unknown.
    """
    left, attempts = list(batches), 0
    while left:
        attempts += 1
        for each in left:
            each.error = None
        replies = await caller.ask_all([(each.request, version) for each in left])
        left = [each for each, reply in zip(left, replies, strict=True) if not each.answered(reply)]
        refused: set[Place] = set()
        for each in left:
            behind = each.error == E.OUT_OF_ORDER_SEQUENCE_NUMBER and each.send.place in refused
            refused.add(each.send.place)
            if each.error is not None and each.error not in RETRIED and not behind:
                for other in left:
                    other.refused()
                return False
        if left:
            if not patient and attempts >= 6:
                for other in left:
                    other.unsure = True
                    other.refused()
                return False
            await asyncio.sleep(0.05)
    return True


class PlainProducer:
    """Idempotent, without transactions."""

    def __init__(self, world: World, name: str, places: Sequence[Place]) -> None:
        self.world = world
        self.name = name
        self.places = places
        self.rng = world.rng(name)
        self.caller = Caller(world, name)
        self._numbers = 0
        self._sequences: dict[Place, int] = defaultdict(int)
        self._recent: dict[Place, deque[Batch]] = defaultdict(lambda: deque(maxlen=IN_FLIGHT))

    async def run(self) -> None:
        while not self.world.over:
            producer = await init_plain(self.caller, self.name)
            self._sequences.clear()
            self._recent.clear()
            while not self.world.over and await self._burst(producer) and self.rng.random() > STARTS_ANEW:  # noqa: ASYNC110
                await asyncio.sleep(self.rng.choice((0, 0.01, 0.2, 0.6)))

    async def _burst(self, producer: Producer) -> bool:
        batches = [self._next(producer) for _ in range(self.rng.randint(1, IN_FLIGHT))]
        delivered = await deliver(self.caller, batches, self.rng.choice(PLAIN_VERSIONS))
        for each in batches:
            self._recent[each.send.place].append(each)
        if delivered and self.rng.random() < 0.2:
            await self._again()
        if delivered and self.rng.random() < 0.1:
            return await self._leave_a_gap(producer)
        return delivered

    def _next(self, producer: Producer, gap: int = 0) -> Batch:
        place = self.rng.choice(self.places)
        values = values_of(self, self.rng)
        sequence = self._sequences[place] + gap
        if not gap:
            self._sequences[place] += len(values)
        op = self.world.history.invoke(self.name, Send(place, producer, sequence, values))
        return Batch(op, self.world.clock.now_ms())

    async def _again(self) -> None:
        """Send one of the last five batches of a place once more, as after a lost answer."""
        place = self.rng.choice([place for place, recent in self._recent.items() if recent])
        first = self.rng.choice(list(self._recent[place]))
        again = Batch(self.world.history.invoke(self.name, first.send._replace(again=True)), 0)
        again.data = first.data
        await deliver(self.caller, [again], self.rng.choice(PLAIN_VERSIONS), patient=False)

    async def _leave_a_gap(self, producer: Producer) -> bool:
        """Send a batch with a gap before it in its sequences. The broker has to refuse it, if it knows the producer
        there.

        Returns whether it surely was refused, or not sent: a late attempt would be taken once the gap is filled, and a
        producer that is forgotten may begin with it.
        """
        probe = self._next(producer, GAP)
        if not self._recent[probe.send.place]:
            probe.refused()
            return True
        await deliver(self.caller, [probe], self.rng.choice(PLAIN_VERSIONS), patient=False)
        return probe.op.outcome == FAIL

    def number(self) -> int:
        self._numbers += 1
        return self._numbers


def values_of(client: Any, rng: random.Random) -> tuple[str, ...]:
    """Return one to three values that nobody else sends, now and then long ones; with keys, if the client has
    `keys`.
    """
    padding = "." * rng.choice((0,) * 12 + (3_000, 20_000))
    keys = getattr(client, "keys", ())
    return tuple(f"{_key(keys, rng)}{client.name}:{client.number()}{padding}" for _ in range(rng.randint(1, 3)))


def _key(keys: Sequence[str], rng: random.Random) -> str:
    return f"{rng.choice(keys)}={'!' if rng.random() < TOMBSTONES else ''}" if keys else ""


async def init_plain(caller: Caller, name: str) -> Producer:
    op = caller.world.history.invoke(name, Init())
    while True:
        try:
            answer = await caller.ask(InitProducerIdRequest(transaction_timeout_ms=0))
        except Unanswered:
            continue
        if answer.error_code == 0:
            given: Producer = op.ok((answer.producer_id, answer.producer_epoch))
            return given
        await asyncio.sleep(0.1)


# ---- readers -------------------------------------------------------------------------------------------------


class Reader:
    """Reads one place as one kind of consumer does, and now and then again from an earlier offset."""

    def __init__(self, world: World, name: str, place: Place, committed: bool, asks: bool | None = None) -> None:
        """committed: what it must be shown. asks: the isolation level that it asks for, where that is another one."""
        self.world = world
        self.name = name
        self.place = place
        self.committed = committed
        self.asks = committed if asks is None else asks
        self.rng = world.rng(name)
        self.caller = Caller(world, name)
        self.next_offset = 0
        self.patience_s = self.rng.choice((PATIENCE_S, PATIENCE_S, LONG_PATIENCE_S))

    async def run(self) -> None:
        while not self.world.over:
            start = self.next_offset if self.rng.random() < 0.9 else self.rng.randint(0, self.next_offset)
            size = self.rng.choice((1, 400, 5_000, 1 << 20))
            seen = await self.read(start, wait_ms=self.rng.choice((0, 100, 400, 400)), size=size)
            if seen is not None:
                self.next_offset = max(seen.next_offset, self.next_offset)
            await asyncio.sleep(self.rng.choice((0.0, 0.02, 0.1, 0.3)))

    async def read(self, start: int, *, wait_ms: int = 0, size: int = 1 << 20, client: str = "") -> Seen | None:
        """Fetch once. Returns None if that was refused or not answered."""
        op = self.world.history.invoke(client or self.name, Read(self.place, self.committed, start))
        request = fetch(
            self.place[0],
            start,
            partition=self.place[1],
            max_wait_ms=wait_ms,
            partition_max_bytes=size,
            committed=self.asks,
        )
        try:
            part = fetched(await self.caller.ask(request, 11, self.patience_s))
        except Unanswered:
            op.info()
            return None
        if part.error_code == E.OFFSET_OUT_OF_RANGE:
            op.fail(part.error_code)
            self.next_offset = max(self.next_offset, await earliest(self.caller, self.place))
            return None
        if part.error_code:
            op.fail(part.error_code)
            return None
        seen: Seen = op.ok(seen_in(part, start, self.committed))
        return seen


async def earliest(caller: Caller, place: Place) -> int:
    """Return the offset at which a log begins; 0 if there is no answer."""
    try:
        (topic,) = (await caller.ask(list_offsets(name_of(place), EARLIEST, partition=place[1]))).topics
    except Unanswered:
        return 0
    return max(0, int(topic.partitions[0].offset))


def batches_in(part: Any) -> list[Any]:
    """Return the complete batches of a partition of a FetchResponse."""
    return list(walk(memoryview(b"".join(part.records)))) if part.records else []


def seen_in(part: Any, start: int, committed: bool) -> Seen:
    """Return what a consumer takes from a fetch: without aborted records, by the list that comes with it (KIP-98), if
    committed.
    """
    left = deque(sorted((one.first_offset, one.producer_id) for one in part.aborted_transactions or ()))
    aborted: set[int] = set()
    found: list[tuple[int, str]] = []
    next_offset = start
    for batch in batches_in(part):
        next_offset = batch.last_offset + 1
        while left and left[0][0] <= batch.last_offset:
            aborted.add(left.popleft()[1])
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None and marker[0] is Marker.ABORT:
                aborted.discard(batch.producer_id)
        elif not (committed and batch.is_transactional and batch.producer_id in aborted):
            found += [(one.offset, value_in(one)) for one in records(batch) if one.offset >= start]
    return Seen(tuple(found), next_offset, part.high_watermark, part.last_stable_offset, part.log_start_offset)

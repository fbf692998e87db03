"""Clients that write and read over one connection without waiting: requests act in the order of sending."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fencepost.protocol.messages.transactions import EndTxnRequest
from produce_requests import answers, fetch, fetched, list_offsets, produce
from simulation.connection_rules import EARLIEST, LATEST
from simulation.history import FAIL, OK, Begin, End, Listed, Op, Pipelined, Place, Producer, Read, Send, Trim
from simulation.lines import Caller, Unanswered
from simulation.plain_clients import RETRIED, batch_of, init_plain, seen_in, values_of
from simulation.trimming import TRIM_VERSION, delete_records
from simulation.txn_clients import BEGINS_ANEW_SINCE, COMMITS, Incarnation
from simulation.world import TXN_TIMEOUT_MS, World

PRODUCE_VERSION, FETCH_VERSION = 11, 11
MAX_AT_ONCE = 8  # requests at once


class Step(NamedTuple):
    """One request of a pipeline, and what becomes of its operation when it is answered."""

    op: Op
    request: Any
    version: int | None
    take: Callable[[Any], None]


class Pipeliner:
    """Idempotent, and none of its requests is ever repeated: what is not answered costs it its producer id."""

    def __init__(self, world: World, name: str, places: Sequence[Place], trimmed: Sequence[Place] = ()) -> None:
        """trimmed: more places, of which it also deletes the first records."""
        self.world = world
        self.name = name
        self.places = [*places, *trimmed]
        self._trimmed = trimmed
        self._decided: dict[Place, int] = defaultdict(int)  # below these offsets all is decided, as far as it was told
        self.rng = world.rng(name)
        self.caller = Caller(world, name)
        self._producer: Producer = (-1, -1)
        self._sequences: dict[Place, int] = defaultdict(int)
        self._numbers = 0

    async def run(self) -> None:
        while not self.world.over:
            self._producer = await init_plain(self.caller, self.name)
            self._sequences.clear()
            while not self.world.over and await self._pipeline():  # noqa: ASYNC110
                await asyncio.sleep(self.rng.choice((0.05, 0.2, 1.0)))

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    async def _pipeline(self) -> bool:
        """Send some requests together. Returns whether all were answered, and no write was refused."""
        place = self.rng.choice(self.places)
        kinds = [self._send, self._send, self._listed, self._read]
        if place in self._trimmed:
            kinds.append(self._trim)
        steps = [self.rng.choice(kinds)(place) for _ in range(self.rng.randint(2, MAX_AT_ONCE))]
        ops = await ask_in_one(self, self.caller, steps)
        for op in ops:
            if op.outcome == OK and op.what.__class__ is Listed and op.what.committed and op.what.at == LATEST:
                self._decided[place] = op.result
        return all(op.outcome == OK or (op.outcome == FAIL and op.what.__class__ is not Send) for op in ops)

    def _send(self, place: Place) -> Step:
        values = values_of(self, self.rng)
        send = Send(place, self._producer, self._sequences[place], values)
        self._sequences[place] += len(values)
        op = self.world.history.invoke(self.name, send)
        data = batch_of(send, self.world.clock.now_ms())

        def take(answer: Any) -> None:
            ((code, offset),) = answers(answer)
            op.fail(code) if code else op.ok(offset)

        return Step(op, produce(place[0], data, partition=place[1]), PRODUCE_VERSION, take)

    def _listed(self, place: Place) -> Step:
        return list_step(self, place)

    def _read(self, place: Place) -> Step:
        return read_step(self, place, self._decided[place] if place in self._trimmed else 0)

    def _trim(self, place: Place) -> Step:
        """Delete the records below the offset up to which all is decided. A client that reads below it gets
        OFFSET_OUT_OF_RANGE.
        """
        op = self.world.history.invoke(self.name, Trim(place, self._decided[place]))

        def take(answer: Any) -> None:
            part = answer.topics[0].partitions[0]
            op.fail(part.error_code) if part.error_code else op.ok(part.low_watermark)

        return Step(op, delete_records(place, self._decided[place]), TRIM_VERSION, take)


class PipeliningIncarnation(Incarnation):
    """Sends its writes, their commit and reads of what is committed without waiting for any answer."""

    async def transaction(self) -> bool:
        self._txns += 1
        txn = f"{self.name}/{self._txns}"
        self.history.invoke(self.name, Begin(txn, self.transactional_id, self.producer, TXN_TIMEOUT_MS)).ok()
        place = self.rng.choice(list(self.places))
        if await self.add(txn, [place]):
            writes = [self._send(txn, place) for _ in range(self.rng.randint(1, 2))]
            reads = [self.rng.choice((list_step, read_step))(self, place) for _ in range(self.rng.randint(1, 4))]
            end = self._end(txn)
            ops = await ask_in_one(self, self.coordinator, [*writes, end, *reads])
            if all(op.outcome == OK for op in ops[: len(writes) + 1]):
                return True
        return self.versions.init >= BEGINS_ANEW_SINCE and await self.init(self.producer)

    def _send(self, txn: str, place: Place) -> Step:
        batch = self.batch(txn, place, values_of(self, self.rng))

        def take(answer: Any) -> None:
            ((code, offset),) = answers(answer)
            batch.op.fail(0) if code else batch.op.ok(offset)  # no error: its commit is under way all the same

        return Step(batch.op, batch.request, self.versions.produce, take)

    def _end(self, txn: str) -> Step:
        commit = self.rng.random() < COMMITS
        op = self.history.invoke(self.name, End(txn, self.transactional_id, self.producer, commit))

        def take(answer: Any) -> None:
            code = answer.error_code
            if not code:
                self._ended(op, answer)
            else:
                op.info() if code in RETRIED else op.fail(code)

        producer_id, epoch = self.producer
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        return Step(op, request, self.versions.end, take)


async def ask_in_one(client: Any, caller: Caller, steps: Sequence[Step]) -> list[Op]:
    """Send all requests in one write, and note the outcome of each in the history. Returns their operations."""
    replies = await caller.ask_all([(step.request, step.version) for step in steps], in_one=True)
    for step, reply in zip(steps, replies, strict=True):
        step.op.info() if isinstance(reply, Unanswered) else step.take(reply)
    ops = [step.op for step in steps]
    client.world.history.invoke(client.name, Pipelined(tuple(ops))).ok()
    return ops


def list_step(client: Any, place: Place) -> Step:
    at, committed = client.rng.choice((EARLIEST, LATEST, LATEST)), client.rng.random() < 0.5
    op = client.world.history.invoke(client.name, Listed(place, committed, at))

    def take(answer: Any) -> None:
        part = answer.topics[0].partitions[0]
        op.fail(part.error_code) if part.error_code else op.ok(part.offset)

    return Step(op, list_offsets(place[0], at, partition=place[1], committed=committed), None, take)


def read_step(client: Any, place: Place, start: int = 0) -> Step:
    committed = client.rng.random() < 0.5
    op = client.world.history.invoke(client.name, Read(place, committed, start))

    def take(answer: Any) -> None:
        part = fetched(answer)
        op.fail(part.error_code) if part.error_code else op.ok(seen_in(part, start, committed))

    request = fetch(place[0], start, partition=place[1], partition_max_bytes=400, committed=committed)
    return Step(op, request, FETCH_VERSION, take)

"""A client that writes and reads over one connection without waiting: requests act in the order of sending."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from produce_requests import answers, fetch, fetched, list_offsets, produce
from simulation.connection_rules import EARLIEST, LATEST
from simulation.history import Listed, Op, Pipelined, Place, Producer, Read, Send
from simulation.lines import Caller, Unanswered
from simulation.plain_clients import batch_of, init_plain, seen_in, values_of
from simulation.world import World

PRODUCE_VERSION, FETCH_VERSION = 11, 11
MOST = 8  # requests at once


class Step(NamedTuple):
    """One request of a pipeline, and what becomes of its operation when it is answered."""

    op: Op
    request: Any
    version: int | None
    take: Callable[[Any], None]


class Pipeliner:
    """Idempotent, and none of its requests is ever repeated: what is not answered costs it its producer id."""

    def __init__(self, world: World, name: str, places: Sequence[Place]) -> None:
        self.world = world
        self.name = name
        self.places = places
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
        """Whether all of it was answered and taken."""
        place = self.rng.choice(list(self.places))
        kinds = (self._send, self._send, self._listed, self._read)
        steps = [self.rng.choice(kinds)(place) for _ in range(self.rng.randint(2, MOST))]
        replies = await self.caller.ask_all([(step.request, step.version) for step in steps], in_one=True)
        for step, reply in zip(steps, replies, strict=True):
            step.op.info() if isinstance(reply, Unanswered) else step.take(reply)
        ops = tuple(step.op for step in steps)
        self.world.history.invoke(self.name, Pipelined(ops)).ok()
        return all(op.outcome == "ok" for op in ops)

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
        at, committed = self.rng.choice((EARLIEST, LATEST, LATEST)), self.rng.random() < 0.5
        op = self.world.history.invoke(self.name, Listed(place, committed, at))

        def take(answer: Any) -> None:
            part = answer.topics[0].partitions[0]
            op.fail(part.error_code) if part.error_code else op.ok(part.offset)

        return Step(op, list_offsets(place[0], at, partition=place[1], committed=committed), None, take)

    def _read(self, place: Place) -> Step:
        committed = self.rng.random() < 0.5
        op = self.world.history.invoke(self.name, Read(place, committed, 0))

        def take(answer: Any) -> None:
            part = fetched(answer)
            op.fail(part.error_code) if part.error_code else op.ok(seen_in(part, 0, committed))

        request = fetch(place[0], partition=place[1], partition_max_bytes=400, committed=committed)
        return Step(op, request, FETCH_VERSION, take)

"""In each fifth seed: named producers of the SDK, which number their records themselves and are killed and replaced.

Each name has a source, for each partition: records with sequences that grow by leaps. A process reads how far its name
is and goes on there, or sends some of what was sent before once more; often two of one name run at once. A record of
the source is one Send of the history, whoever sends it and how often; each attempt is a Numbered (`named_rules.py`).
"""

import asyncio
from typing import Any

from fencepost.protocol.errors import ErrorCode
from produce_requests import create
from simulation.history import Op, Place, Send
from simulation.lines import Caller, Unanswered
from simulation.named_rules import Highest, Numbered, Opened
from simulation.sdk_clients import CANCELLED, FIRST_IN_ORDER, SdkClient
from simulation.txn_clients import Supervisor
from simulation.world import World

import fencepost as fp

EVERY, FIRST = 5, 1  # seeds
TOPIC = "named"
NAMED_PLACES: list[Place] = [(TOPIC, 0), (TOPIC, 1)]
NAMES = ("sensor-0", "sensor-1")
NOBODY = -1000  # and below: a producer id for each name


def named_clients_of(world: World) -> list[Any]:
    """Return the clients with named producers; none in most seeds."""
    if world.seed % EVERY != FIRST:
        return []
    sources = Sources(world)
    return [sources, *(_sending(world, name, sources) for name in NAMES)]


def _sending(world: World, name: str, sources: "Sources") -> Supervisor:
    def make(number: int, tv: int) -> SdkNamed:
        return SdkNamed(world, name, number, sources)

    return Supervisor(world, name, 2, make, (3.0, 12.0))


def sequence_of(index: int) -> int:
    return 3 * index + index % 3


def index_after(sequence: int) -> int:
    """Return the index of the first record of the source that has a higher sequence."""
    index = max(0, sequence // 3 - 1)
    while sequence_of(index) <= sequence:
        index += 1
    return index


class Sources:
    """Makes the topic; knows what of each source was ever sent."""

    def __init__(self, world: World) -> None:
        self.made = asyncio.Event()
        self._world = world
        self._sent: dict[tuple[str, Place, int], Op] = {}
        for place in NAMED_PLACES:
            world.looks.append(lambda place=place: place)

    async def run(self) -> None:
        caller = Caller(self._world, "named keeper")
        while not self.made.is_set():
            try:
                answer = await caller.ask(create(TOPIC, len(NAMED_PLACES)))
            except Unanswered:
                continue
            if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self.made.set()
            await asyncio.sleep(0.1)

    def send_of(self, name: str, place: Place, sequence: int) -> Op:
        """Return the operation of this record; invoke it at the first attempt."""
        key = name, place, sequence
        if key not in self._sent:
            nobody = (NOBODY - NAMES.index(name), -1)
            what = Send(place, nobody, FIRST_IN_ORDER + sequence, (f"{name}/{place[1]}/{sequence}",))
            self._sent[key] = self._world.history.invoke(name, what)
        return self._sent[key]


class SdkNamed(SdkClient):
    """A process that sends what comes next in the sources of one name."""

    def __init__(self, world: World, known_as: str, number: int, sources: Sources) -> None:
        super().__init__(world, f"{known_as}#{number}", NAMED_PLACES)
        self.known_as = known_as
        self.sources = sources
        self._epoch = -1

    async def live(self) -> None:
        await self.sources.made.wait()
        op = self.history.invoke(self.name, Opened(self.known_as))
        producer = await self.started(
            fp.Producer,
            name=self.known_as,
            linger_ms=self.rng.choice((0, 5)),
            max_batch_size=self.rng.choice((200, 131_072)),
            compression_type=self.rng.choice((None, "gzip")),
            delivery_timeout_ms=self.rng.choice((3_000, 15_000)),
            max_block_ms=5_000,
        )
        self._epoch = op.ok(producer._numbering.producer.epoch)
        at = await self._beginnings(producer)
        while not self.world.over:
            sent = []
            for _ in range(self.rng.choice((1, 3, 12))):
                place = self.rng.choice(NAMED_PLACES)
                twice = 1 + (self.rng.random() < 0.1)
                sent += [await self._send(producer, place, sequence_of(at[place])) for _ in range(twice)]
                at[place] += 1
            if not await self._settle(sent) and self.rng.random() < 0.5:
                return  # else it tries to go on, which the SDK does not let it
            await asyncio.sleep(self.rng.choice((0, 0.02, 0.2)))

    async def _beginnings(self, producer: Any) -> dict[Place, int]:
        """Return where in its source each place begins: after what is in the log, or some records before that."""
        ops = {place: self.history.invoke(self.name, Highest(self.known_as, place)) for place in NAMED_PLACES}
        found = await producer.last_sequences(TOPIC)
        for place, op in ops.items():
            op.ok(found.get(place[1], -1))
        back = self.rng.choice((0, 0, 4, 40))
        return {place: max(0, index_after(op.result) - back) for place, op in ops.items()}

    async def _send(self, producer: Any, place: Place, sequence: int) -> tuple[Op, Op, Any]:
        send = self.sources.send_of(self.known_as, place, sequence)
        op = self.history.invoke(self.name, Numbered(self.known_as, place, sequence, self._epoch))
        try:
            return op, send, await self._numbered(producer, place, send.what.values[0], sequence)
        except fp.KafkaError as error:
            op.fail(int(error.code))
            raise

    async def _numbered(self, producer: Any, place: Place, value: str, sequence: int) -> Any:
        """Send a record, sometimes cancelling the call, and return its delivery. A call that is cancelled in time is
        repeated: nothing is left out.
        """

        def sending() -> Any:
            return producer.send(place[0], value.encode(), partition=place[1], sequence=sequence)

        while self._impatience.random() < CANCELLED:
            task = asyncio.ensure_future(sending())
            for _ in range(self._impatience.choice((1, 2, 3))):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                return task.result()
        return await sending()

    async def _settle(self, sent: list[tuple[Op, Op, Any]]) -> bool:
        for op, send, delivery in sent:
            try:
                found = await delivery
            except fp.KafkaError as error:
                op.info(int(error.code))
                continue
            self.world.met["named: duplicates"] += found.duplicate
            self.world.met["named: sent"] += 1
            op.ok((found.offset, found.duplicate))
            if found.offset >= 0 and send.outcome != "ok":
                send.ok(found.offset)
        return all(op.outcome == "ok" for op, *_ in sent)

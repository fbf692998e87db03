"""The recovery oracle as clients see it: what a broker has answered and shown must be what the next broker on its disk
serves.

`traffic` drives a broker with producers, a consumer and an admin for some virtual seconds and notes on its disk what is
asked before it is sent and what is answered and read when it arrives. `check` asks a broker that begins on an image of
that disk. Several lives may follow each other: notes go with the images.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from broker_lives import offset_at, read_batches
from fencepost.protocol.apis import APIS, decode_response, encode_request
from fencepost.protocol.batches import walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.topics import DeleteRecordsRequest, DeleteTopicsRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from fencepost.protocol.records import records
from fencepost.protocol.schema import schema_of
from produce_requests import answers, bytes_of, create, fetch, fetched, idempotent, produce
from simulated_broker import ADDRESS, SimulatedBroker, _Line, newest

TOPIC, PARTITIONS = "t", 2
VERSIONS = (3, 9, 11)  # of Produce
IN_FLIGHT = 5
LATEST, EARLIEST = -1, -2

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True)
class Sent:
    """Note: a batch of one record is being sent."""

    place: Place
    producer_id: int
    sequence: int
    value: bytes

    def __repr__(self) -> str:
        return f"Sent({self.place}, {self.value[:40]!r})"

    @property
    def data(self) -> bytes:
        return idempotent(self.sequence, producer_id=self.producer_id, value=self.value)


@dataclass(frozen=True)
class Acknowledged:
    sent: Sent
    offset: int


@dataclass(frozen=True)
class Seen:
    """Note: a consumer has read this record."""

    place: Place
    offset: int
    value: bytes


@dataclass(frozen=True)
class Given:
    """Note: a producer was given this id."""

    producer_id: int


@dataclass(frozen=True)
class Topic:
    """Note: a topic is to be created or deleted; `answered`: it was."""

    name: str
    there: bool
    answered: bool


@dataclass(frozen=True)
class Trim:
    """Note: the start of a partition is to be moved here; `answered`: it was."""

    place: Place
    offset: int
    answered: bool


class Caller:
    """One connection of one of the clients. Requests may be pipelined."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self.broker = broker
        self._sent: list[tuple[Any, int]] = []

    async def open(self) -> "Caller":
        self._transport, self._line = await self.broker.net.connect(_Line, *ADDRESS)
        return self

    def send(self, request: Any, version: int | None = None) -> None:
        api = APIS[schema_of(type(request)).api or 0]
        version = newest(api, request) if version is None else version
        self._sent.append((api, version))
        self._transport.write(b"".join(encode_request(api, version, 1, "traffic", request)))

    async def receive(self) -> Any:
        api, version = self._sent.pop(0)
        assert isinstance(self._line, _Line)
        return decode_response(api, version, await self._line.frame())[1]

    async def ask(self, request: Any, version: int | None = None) -> Any:
        self.send(request, version)
        return await self.receive()


class Traffic:
    """All clients of one broker: producers, consumers, and one that creates and deletes topics. What they do is noted
    on the disk.
    """

    def __init__(self, broker: SimulatedBroker, name: str, seconds: float) -> None:
        self.broker = broker
        self.name = name.encode()
        self.until = broker.loop.time() + seconds
        self.rng = random.Random(f"traffic {name}")
        self.note = broker.disk.note

    async def run(self) -> None:
        """Run all clients. A broker that halts ends it: its clients see their connections close."""
        await self._topic(TOPIC, PARTITIONS)
        consumers = [
            asyncio.ensure_future(self._consume((TOPIC, 0), max_wait_ms=400)),
            asyncio.ensure_future(self._consume((TOPIC, 1), max_wait_ms=0)),
        ]
        await asyncio.gather(*(self._produce(number) for number in range(2)), self._administer())
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)

    @property
    def over(self) -> bool:
        return self.broker.loop.time() >= self.until

    async def _topic(self, name: str, partitions: int) -> None:
        caller = await Caller(self.broker).open()
        self.note(Topic(name, there=True, answered=False))
        response = await caller.ask(create(name, partitions, segment_ms=3000))
        if response.topics[0].error_code == 0:
            self.note(Topic(name, there=True, answered=True))

    async def _produce(self, number: int) -> None:
        caller = await Caller(self.broker).open()
        producer_id = (await caller.ask(InitProducerIdRequest(transaction_timeout_ms=0))).producer_id
        self.note(Given(producer_id))
        sequences: dict[int, int] = defaultdict(int)
        while not self.over:
            burst = [self._next(producer_id, sequences) for _ in range(self.rng.randint(1, IN_FLIGHT))]
            await send_all(caller, burst, self.note, self.rng.choice(VERSIONS))
            await asyncio.sleep(self.rng.choice((0, 0.01, 0.5, 1.5)))

    def _next(self, producer_id: int, sequences: dict[int, int]) -> Sent:
        partition = self.rng.randrange(PARTITIONS)
        sequence = sequences[partition]
        sequences[partition] += 1
        value = b"%s %d %d %d" % (self.name, producer_id, partition, sequence)
        if self.rng.random() < 0.1:
            value += bytes(self.rng.choice((5_000, 60_000)))
        return Sent((TOPIC, partition), producer_id, sequence, value)

    async def _consume(self, place: Place, max_wait_ms: int) -> None:
        """Read a partition again and again: by fetches that wait, or at random moments (max_wait_ms 0)."""
        caller = await Caller(self.broker).open()
        offset = 0
        while True:
            if not max_wait_ms:
                await asyncio.sleep(self.rng.uniform(0.001, 0.08))
            asked = fetch(place[0], offset, partition=place[1], max_wait_ms=max_wait_ms)
            part = fetched(await caller.ask(asked, 11))
            if part.error_code:  # trimmed under our feet
                offset = part.log_start_offset
                continue
            for batch in walk(memoryview(bytes_of(part))):
                for record in records(batch):
                    self.note(Seen(place, record.offset, record.value or b""))
                offset = batch.last_offset + 1

    async def _administer(self) -> None:
        """Create and delete topics, and delete records of the second partition now and then."""
        caller = await Caller(self.broker).open()
        round_number = 0
        while not self.over:
            name = f"{self.name.decode().replace(' ', '-')}-{round_number}"
            await self._topic(name, 1)
            await asyncio.sleep(0.7)
            if round_number % 2:
                self.note(Topic(name, there=False, answered=False))
                await caller.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=name)], timeout_ms=1000))
                self.note(Topic(name, there=False, answered=True))
            if round_number % 3 == 2:
                await self._trim(caller, (TOPIC, 1), 2 * round_number)
            await asyncio.sleep(1.1)
            round_number += 1

    async def _trim(self, caller: Caller, place: Place, offset: int) -> None:
        self.note(Trim(place, offset, answered=False))
        part = DeleteRecordsRequest.Topic.Partition(partition_index=place[1], offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsRequest.Topic(name=place[0], partitions=[part])], timeout_ms=1000
        )
        response = await caller.ask(request)
        if response.topics[0].partitions[0].error_code == 0:
            self.note(Trim(place, offset, answered=True))


async def send_all(caller: Caller, burst: Sequence[Sent], note: Any, version: int) -> list[int]:
    """Send a burst of batches at once, then read the answers. Batches refused for want of space, and those after
    them, are sent again. Returns their offsets.
    """
    for sent in burst:
        note(sent)
    offsets: dict[Sent, int] = {}
    while left := [sent for sent in burst if sent not in offsets]:
        for sent in left:
            caller.send(produce(sent.place[0], sent.data, partition=sent.place[1]), version)
        refused: set[Place] = set()
        for sent in left:
            ((code, offset),) = answers(await caller.receive())
            if code == 0:
                note(Acknowledged(sent, offset))
                offsets[sent] = offset
            else:
                behind = sent.place in refused and code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                assert behind or code == ErrorCode.NOT_ENOUGH_REPLICAS, (sent, code)
                refused.add(sent.place)
        if refused:
            await asyncio.sleep(0.2)
    return [offsets[sent] for sent in burst]


def run_traffic(broker: SimulatedBroker, name: str, seconds: float) -> None:
    """Run all clients for this many seconds. A broker that halts meanwhile ends it."""
    try:
        broker.loop.run_until_complete(Traffic(broker, name, seconds).run())
    except ConnectionError:
        if broker.broker.halted is None:
            raise


# ---- what must hold ------------------------------------------------------------------------------------------


class Expected:
    """What a broker must serve, by the notes taken before a crash."""

    def __init__(self, notes: Sequence[Any]) -> None:
        self.sent = list(dict.fromkeys(note for note in notes if isinstance(note, Sent)))
        self.acknowledged = {note.sent: note.offset for note in notes if isinstance(note, Acknowledged)}
        self.seen = [note for note in notes if isinstance(note, Seen)]
        self.given = {note.producer_id for note in notes if isinstance(note, Given)}
        self.topics = {note.name: note for note in notes if isinstance(note, Topic)}  # the last word on each
        self.trims = [note for note in notes if isinstance(note, Trim)]

    def starts(self, place: Place) -> tuple[int, int]:
        """Return the least and the greatest offset at which the partition may start."""
        asked = [note.offset for note in self.trims if note.place == place]
        answered = [note.offset for note in self.trims if note.place == place and note.answered]
        return max(answered, default=0), max(asked, default=0)


def check(broker: SimulatedBroker) -> None:
    """Check a broker that was started on the disk of a crash. What it shows now is noted, as if a consumer had seen
    it.

    Then every producer sends its last batches again, as after a reconnect: none may be there twice, none may be
    missing.
    """
    expected = Expected(broker.disk.notes)
    there = _check_topics(broker, expected)
    if TOPIC not in there:
        return
    for partition in range(PARTITIONS):
        _check_records(broker, expected, (TOPIC, partition))
    _check_producers(broker, expected)
    fresh = broker.ask(InitProducerIdRequest(transaction_timeout_ms=0)).producer_id
    assert fresh not in expected.given, "a producer id was given twice"
    broker.disk.note(Given(fresh))
    assert not broker.broker.metrics.failures


def _check_topics(broker: SimulatedBroker, expected: Expected) -> set[str]:
    there = {topic.name for topic in broker.ask(MetadataRequest(topics=None)).topics}
    for note in expected.topics.values():
        if note.answered:
            assert (note.name in there) == note.there, note
    assert there <= expected.topics.keys()
    for name in there:
        broker.disk.note(Topic(name, there=True, answered=True))
    return there


def _check_records(broker: SimulatedBroker, expected: Expected, place: Place) -> None:
    """Check R1, R2, R4, R10: acknowledged and seen records are at their offsets, all others were sent, none is there
    twice.
    """
    batches = read_batches(broker, *place)
    found = {record.offset: record.value or b"" for batch in batches for record in records(batch)}
    start, end = offset_at(broker, place[0], EARLIEST, place[1]), offset_at(broker, place[0], LATEST, place[1])
    least, most = expected.starts(place)
    assert least <= start <= most, "the start of the log went back, or too far"
    assert list(found) == list(range(start, end))
    sent = {note.value for note in expected.sent if note.place == place}
    assert set(found.values()) <= sent, "nobody sent that"
    assert len(set(found.values())) == len(found), "something is there twice"
    for note, offset in expected.acknowledged.items():
        if note.place == place and offset >= start:
            assert found.get(offset) == note.value, f"acknowledged and lost: {note.value[:40]!r} at {offset}"
    for seen in expected.seen:
        if seen.place == place and seen.offset >= start:
            assert found.get(seen.offset) == seen.value, f"seen and lost: {seen.value[:40]!r} at {seen.offset}"
    for offset, value in found.items():
        broker.disk.note(Seen(place, offset, value))
    broker.disk.note(Trim(place, start, answered=True))


def _check_producers(broker: SimulatedBroker, expected: Expected) -> None:
    """Check R5: the last batches of each producer, sent again, are recognised or accepted, and each is there once
    then.
    """
    by_producer: dict[tuple[Place, int], list[Sent]] = defaultdict(list)
    for note in expected.sent:
        by_producer[note.place, note.producer_id].append(note)
    for (place, _), batches in by_producer.items():
        again = batches[-IN_FLIGHT:]
        offsets = broker.loop.run_until_complete(_send_again(broker, again))
        for sent, offset in zip(again, offsets, strict=True):
            assert expected.acknowledged.get(sent, offset) == offset, f"acknowledged twice, differently: {sent}"
        found = {record.value for batch in read_batches(broker, *place) for record in records(batch)}
        start = offset_at(broker, place[0], EARLIEST, place[1])
        for sent, offset in zip(again, offsets, strict=True):
            assert offset < start or sent.value in found
        assert offsets == sorted(offsets)


async def _send_again(broker: SimulatedBroker, batches: Sequence[Sent]) -> list[int]:
    return await send_all(await Caller(broker).open(), batches, broker.disk.note, VERSIONS[-1])

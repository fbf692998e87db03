"""Measures transactions of confluent-kafka: many small ones, copies of records with their offsets, and how soon a
commit is visible.
"""

import itertools
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .. import topics, txn
from ..peers.names import BROKERS, BROKERS_AND_MOCK
from ..peers.peers import Peer
from ..wire import Wire
from . import child
from .child import InChild, Outcome, Window
from .consume import Reader, TimedConsume, preload, read
from .produce import end_request
from .window import Latencies, Sample

COPIED, COPIES, VISIBLE = "bench-copied", "bench-copies", "bench-visible"  # topics
PRODUCERS = (1, 16, 64)
PARTITIONS = (1, 4, 16)
MOCK_PARTITIONS = 4  # of every topic of the mock
RECORDS = (1, 100)
RECORD_BYTES = 100
COPY_PARTITIONS = 4
COPY_RECORDS = 500_000
COPY_BATCH = 500  # records of one transaction
LOOK_AGAIN_S = 0.0001
NEVER_S = 30
READ_COMMITTED = 1
LIST_OFFSETS = 5  # the version that is spoken


@dataclass(frozen=True, slots=True)
class TimedTransactions:
    """The arguments of the child process. records: of each transaction."""

    bootstrap: str
    topic: str
    producers: int
    partitions: int
    records: int
    seconds: float
    warm_seconds: float = 0.5


@dataclass(frozen=True, slots=True)
class Transactions(InChild):
    """The scenario: each producer commits transactions of `records` records one after the other, to `partitions` in
    turn.
    """

    producers: int
    partitions: int = 1
    records: int = 1
    peers: frozenset[str] | None = field(default=BROKERS_AND_MOCK, kw_only=True)
    unit: ClassVar[str] = "transaction"

    @property
    def name(self) -> str:
        return f"transactions {self.producers}p {self.partitions}x{self.records}"

    @property
    def topic(self) -> str:
        return "bench-" + self.name.replace(" ", "-")

    def prepare(self, peer: Peer) -> None:
        """Create the topic."""
        topics.create(peer.host, peer.port, self.topic, self.partitions)

    def window(self, peer: Peer, seconds: float) -> Sample:
        """Commit transactions for this many seconds, and return what was measured. Raises: LoadFailed."""
        load = TimedTransactions(
            peer.bootstrap, self.topic, self.producers, self.partitions, self.records, seconds, self.warm_seconds
        )
        return child.window(transactions, load, peer)


@dataclass(frozen=True, slots=True)
class Copy(InChild):
    """The scenario of consume, transform, produce, with the offsets in the transaction. Latency: of one transaction."""

    name: str = "copy"
    records: int = COPY_RECORDS
    batch: int = COPY_BATCH
    partitions: int = COPY_PARTITIONS

    def prepare(self, peer: Peer) -> None:
        """Create the target, and write the records that are copied."""
        topics.create(peer.host, peer.port, COPIES, self.partitions)
        preload(peer, COPIED, self.partitions, self.records, RECORD_BYTES)

    def window(self, peer: Peer, seconds: float) -> Sample:
        """Copy records for this many seconds, and return what was measured. Raises: LoadFailed."""
        load = TimedCopy(
            peer.bootstrap,
            COPIED,
            self.partitions,
            self.records,
            seconds,
            "read_committed",
            self.warm_seconds,
            self.batch,
        )
        return child.window(copy, load, peer)


@dataclass(frozen=True, slots=True)
class TimedCopy(TimedConsume):
    """The arguments of the child process. batch: the most records of one transaction."""

    batch: int = COPY_BATCH


@dataclass(frozen=True, slots=True)
class Visible(InChild):
    """The scenario: how long it takes after a commit has returned until a read_committed reader can see the records.

    Latency is the time from the commit's return to the sending of the first ListOffsets request whose answer includes
    the record. It is 1 µs, the histogram's minimum, if that was the very first request.
    """

    name: str = "commit to visible"
    warm_seconds: float = field(default=0.2, kw_only=True)
    unit: ClassVar[str] = "transaction"

    def prepare(self, peer: Peer) -> None:
        """Create the topic."""
        topics.create(peer.host, peer.port, VISIBLE, 1)

    def window(self, peer: Peer, seconds: float) -> Sample:
        """Commit and look for this many seconds, and return what was measured. Raises: LoadFailed."""
        load = TimedTransactions(peer.bootstrap, VISIBLE, 1, 1, 1, seconds, self.warm_seconds)
        return child.window(visible, load, peer)


def table() -> list[Transactions]:
    """Return the scenarios of the short table."""
    return [Transactions(1, 4), Transactions(16, 4)]


def full() -> list[Transactions | Copy | Visible]:
    """Return all scenarios."""
    many = [
        Transactions(*three, peers=BROKERS_AND_MOCK if three[1] <= MOCK_PARTITIONS else BROKERS)
        for three in itertools.product(PRODUCERS, PARTITIONS, RECORDS)
    ]
    return [*many, Copy(), Visible()]


def transactions(settings: dict[str, Any], window: Window) -> Outcome:
    """Run the load of Transactions in the child process, and return what it did within the window."""
    load = TimedTransactions(**settings)
    wanted = txn.TransactionLoad(
        load.topic,
        load.producers,
        load.partitions,
        load.records,
        RECORD_BYTES,
        load.seconds,
        load.warm_seconds,
        ids=load.topic,
    )
    marks = iter((window.begin, window.end))
    result = txn.run(load.bootstrap, wanted, lambda: next(marks)())
    latencies = child.histogram(1e6 * latency for latency in result.latencies)
    return Outcome(result.transactions, result.transactions * load.records * RECORD_BYTES, latencies)


def copy(settings: dict[str, Any], window: Window) -> Outcome:
    """Run the load of Copy in the child process, and return what it did within the window."""
    load = TimedCopy(**settings)
    return read(_Copier(load), load, window)


class _Copier:
    """A consumer and a producer that copy records, one transaction after another."""

    def __init__(self, load: TimedCopy) -> None:
        from confluent_kafka import Producer, TopicPartition

        self._place: Any = TopicPartition
        self._batch = load.batch
        self.latencies = Latencies()
        self.seen = 0
        self.size = 0
        self._producer = Producer({**txn.PRODUCER, "bootstrap.servers": load.bootstrap, "transactional.id": COPIES})
        self._producer.init_transactions(txn.TIMEOUT_S)
        self._reader = Reader(load)
        self._group = self._reader.consumer.consumer_group_metadata()

    def run(self, until: float) -> None:
        """Copy until this time (of perf_counter). Raises: KafkaException, and as Reader.take()."""
        while time.perf_counter() < until:
            if messages := self._reader.take(self._batch):
                began = time.perf_counter()
                self._copy(messages)
                self.latencies.record_us(1e6 * (time.perf_counter() - began))
                self.seen += len(messages)

    def _copy(self, messages: list[Any]) -> None:
        """Copy these records, in upper case, in one transaction with their offsets."""
        producer, ends = self._producer, {}
        producer.begin_transaction()
        for message in messages:
            value, number = message.value().upper(), message.partition()
            producer.produce(COPIES, value, partition=number)
            self.size += len(value)
            ends[number] = message.offset() + 1
        offsets = [self._place(COPIED, number, end) for number, end in ends.items()]
        producer.send_offsets_to_transaction(offsets, self._group, txn.TIMEOUT_S)
        producer.commit_transaction(txn.TIMEOUT_S)

    def close(self) -> None:
        self._reader.close()
        self._producer.close()


def visible(settings: dict[str, Any], window: Window) -> Outcome:
    """Run the load of Visible in the child process, and return what it did within the window."""
    from confluent_kafka import Producer

    load = TimedTransactions(**settings)
    producer = Producer({**txn.PRODUCER, "bootstrap.servers": load.bootstrap, "transactional.id": load.topic})
    producer.init_transactions(txn.TIMEOUT_S)
    host, port = topics.address(load.bootstrap)
    wire = Wire(host, port)
    waited: list[float] = []
    warm = time.perf_counter() + load.warm_seconds
    while time.perf_counter() < warm:
        _commit_and_look(producer, wire, load.topic)
    window.begin()
    until = time.perf_counter() + load.seconds
    while time.perf_counter() < until:
        waited.append(_commit_and_look(producer, wire, load.topic))
    window.end()
    wire.close()
    producer.close()
    return Outcome(len(waited), len(waited) * RECORD_BYTES, child.histogram(1e6 * one for one in waited))


def _commit_and_look(producer: Any, wire: Wire, topic: str) -> float:
    """Commit one record, then ask for the end offset until it includes the record. Returns the seconds from the
    commit's return to the sending of the request that found it.
    """
    places: list[tuple[Any, int]] = []
    producer.begin_transaction()
    value = b"." * RECORD_BYTES
    producer.produce(
        topic, value, partition=0, on_delivery=lambda error, message: places.append((error, message.offset()))
    )
    producer.commit_transaction(txn.TIMEOUT_S)
    returned = time.perf_counter()
    asked = end_request(topic, [0], READ_COMMITTED)
    first = True
    while True:
        sent = time.perf_counter()
        found = wire.call(asked, LIST_OFFSETS).topics[0].partitions[0]
        if not places:
            producer.poll(0)
        error, offset = places[0]
        if error is not None or found.error_code:
            raise RuntimeError(f"the record or its offset failed: {error}, {topics.error_name(found.error_code)}")
        if found.offset > offset:
            return 0.0 if first else sent - returned
        if sent - returned > NEVER_S:
            raise RuntimeError(f"a committed record was not visible in {NEVER_S} s")
        first = False
        time.sleep(LOOK_AGAIN_S)

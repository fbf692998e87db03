"""A consumer of confluent-kafka that reads a prepared topic again and again: records without transactions, and records
in transactions of which some were aborted.

The partitions are assigned by hand, and rewound when all records were read, so that a window may be longer than one
reading takes. A rewind costs the client some milliseconds, the same with every broker.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from .. import librdkafka, topics
from ..peers.names import BROKERS, KAFKA_FLUSH
from ..peers.peers import Peer
from . import child
from .child import InChild, Outcome, Window
from .produce import payloads
from .window import Latencies, Sample

PARTITIONS = 4
PRELOADED_BYTES = 400_000_000
TAKEN = 1_000  # records of one call
PATIENCE_S = 30  # without a record
TXN_RECORDS = 200
TRANSACTIONS = 1_000
ABORTED_EVERY = 100  # transactions
TXN_TIMEOUT_S = 60
WAIT_MS = 5  # of a fetch that finds nothing, short: after a rewind the consumer first waits for the fetch in flight


@dataclass(frozen=True, slots=True)
class TimedConsume:
    """The arguments of the child process. records: how many records a reader of this isolation level finds in the
    whole topic. level: isolation level.
    """

    bootstrap: str
    topic: str
    partitions: int
    records: int
    seconds: float
    level: str = "read_uncommitted"
    warm_seconds: float = 0.5


@dataclass(frozen=True, slots=True)
class Consume(InChild):
    """The scenario of reading records without transactions."""

    name: str
    record_bytes: int
    records: int
    partitions: int = PARTITIONS

    @property
    def topic(self) -> str:
        return f"bench-consume-{self.record_bytes}"

    def prepare(self, peer: Peer) -> None:
        """Write the records that are read later."""
        preload(peer, self.topic, self.partitions, self.records, self.record_bytes)

    def window(self, peer: Peer, seconds: float) -> Sample:
        """Read from the peer for this many seconds, and return what was measured. Raises: LoadFailed."""
        load = TimedConsume(
            peer.bootstrap, self.topic, self.partitions, self.records, seconds, warm_seconds=self.warm_seconds
        )
        return child.window(consume, load, peer)


@dataclass(frozen=True, slots=True)
class ConsumeTransactions(InChild):
    """The scenario of reading records in transactions, of which 1 % were aborted. level: isolation level."""

    level: str
    transactions: int = TRANSACTIONS
    records: int = TXN_RECORDS  # of each transaction
    record_bytes: int = 1000
    partitions: int = PARTITIONS

    @property
    def name(self) -> str:
        return self.level.replace("_", " ")

    @property
    def topic(self) -> str:
        return f"bench-{self.level.replace('_', '-')}"

    def prepare(self, peer: Peer) -> None:
        """Write the transactions that are read later."""
        topics.create(peer.host, peer.port, self.topic, self.partitions)
        _preload_transactions(peer.bootstrap, self)

    def window(self, peer: Peer, seconds: float) -> Sample:
        """Read from the peer for this many seconds, at the scenario's isolation level, and return what was measured.
        Raises: LoadFailed.
        """
        records = self.transactions * self.records
        if self.level == "read_committed":  # aborted records are not read
            records -= -(-self.transactions // ABORTED_EVERY) * self.records
        load = TimedConsume(
            peer.bootstrap, self.topic, self.partitions, records, seconds, self.level, self.warm_seconds
        )
        return child.window(consume, load, peer)


def table() -> list[Consume]:
    """Return the scenarios of the short table. Kafka with flush is left out: it reads like Kafka without, and takes
    long to prepare.
    """
    return [Consume("consume 1 KB", 1000, PRELOADED_BYTES // 1000, peers=BROKERS - {KAFKA_FLUSH})]


def full() -> list[Consume | ConsumeTransactions]:
    """Return all scenarios: both record sizes, both isolation levels."""
    small = Consume("consume 100 B", 100, PRELOADED_BYTES // 4 // 100)
    large = Consume("consume 1 KB", 1000, PRELOADED_BYTES // 1000)
    return [large, small, ConsumeTransactions("read_uncommitted"), ConsumeTransactions("read_committed")]


def preload(peer: Peer, topic: str, partitions: int, records: int, record_bytes: int) -> None:
    """Create the topic, and write this many records to it."""
    topics.create(peer.host, peer.port, topic, partitions)
    load = librdkafka.ProduceLoad(topic, records, record_bytes)
    librdkafka.produce(peer.bootstrap, load, lambda _done: None)


def _preload_transactions(bootstrap: str, load: ConsumeTransactions) -> None:
    """Write transactions one after the other, each to one partition; every hundredth, from the first on, is aborted."""
    from confluent_kafka import Producer

    named = {"bootstrap.servers": bootstrap, "transactional.id": load.topic, "linger.ms": 5}
    producer = Producer({"log_level": 0, "enable.idempotence": True, **named})
    producer.init_transactions(TXN_TIMEOUT_S)
    values = payloads(load.record_bytes)
    for number in range(load.transactions):
        producer.begin_transaction()
        for i in range(load.records):
            producer.produce(load.topic, values[i % len(values)], partition=number % load.partitions)
        if number % ABORTED_EVERY:
            producer.commit_transaction(TXN_TIMEOUT_S)
        else:
            producer.flush(TXN_TIMEOUT_S)  # an abort drops records that were not sent yet
            producer.abort_transaction(TXN_TIMEOUT_S)
    producer.close()


def consume(settings: dict[str, Any], window: Window) -> Outcome:
    """Run the load in the child process, and return what it did within the window."""
    load = TimedConsume(**settings)
    return read(Reader(load), load, window)


class Reading(Protocol):
    """Reads records. seen: how many records so far. size: their bytes. latencies: of whatever the subclass measures."""

    seen: int
    size: int
    latencies: Latencies

    def run(self, until: float) -> None:
        """Read until this time (of perf_counter)."""

    def close(self) -> None:
        """Close the consumer."""
        ...


def read(reader: Reading, load: TimedConsume, window: Window) -> Outcome:
    """Wait for the first record, warm up, then measure the window, and return what was read in it. Closes
    the reader.
    """
    try:
        while not reader.seen:
            reader.run(time.perf_counter() + librdkafka.LOOK_S)
        reader.run(time.perf_counter() + load.warm_seconds)
        records, size, reader.latencies = reader.seen, reader.size, Latencies()
        window.begin()
        reader.run(time.perf_counter() + load.seconds)
        records, size = reader.seen - records, reader.size - size
        window.end()
    finally:
        reader.close()
    return Outcome(records, size, reader.latencies)


class Reader:
    """Reads all partitions from the beginning, again and again. It measures no latencies."""

    def __init__(self, load: TimedConsume) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

        self._load = load
        self._begin = [TopicPartition(load.topic, number, OFFSET_BEGINNING) for number in range(load.partitions)]
        self._error: Callable[[Any], Any] = Message.error
        self._left = load.records
        self._last = time.perf_counter()
        self.seen = 0
        self.size = 0
        self.latencies = Latencies()
        named = {"bootstrap.servers": load.bootstrap, "isolation.level": load.level}
        self.consumer = Consumer({**librdkafka.FAST_CONSUMER, "fetch.wait.max.ms": WAIT_MS, **named})
        self.consumer.assign(self._begin)

    def run(self, until: float) -> None:
        """Read until this time (of perf_counter). Raises: as take()."""
        while time.perf_counter() < until:
            self.take(TAKEN)

    def take(self, most: int) -> list[Any]:
        """Return up to `most` next records; none if none arrived within 0.1 s. At the topic's end, the next call
        begins again. Raises: RuntimeError with the library's error, or after PATIENCE_S without records.
        """
        messages: list[Any] = self.consumer.consume(min(most, self._left), timeout=librdkafka.LOOK_S)
        if any(map(self._error, messages)):
            raise RuntimeError(next(str(message.error()) for message in messages if message.error()))
        now = time.perf_counter()
        if messages:
            self._last = now
        elif now - self._last > PATIENCE_S:
            raise RuntimeError(f"no record came for {PATIENCE_S} s; {self._left} of {self._load.records} were not read")
        self.seen += len(messages)
        self.size += sum(map(len, messages))
        self._left -= len(messages)
        if not self._left:
            self._rewind()
        return messages

    def close(self) -> None:
        self.consumer.close()

    def _rewind(self) -> None:
        """Continue at the beginning of all partitions."""
        for partition in self._begin:
            self.consumer.seek(partition)
        self._left = self._load.records

"""Sends records with librdkafka, idempotently, as fast as possible for a fixed time: 100 B, 1 KB and 10 KB, plain and
with each codec.

Only records that the broker acknowledged within the window count. If the broker is slower than the client, the
producer's queue is always full. The latencies, measured for one record in a thousand, are then mostly the time in this
queue.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...protocol.messages.offsets import ListOffsetsRequest
from .. import librdkafka
from ..peers.names import BROKERS_AND_MOCK
from ..peers.peers import Peer
from ..wire import Wire
from . import child
from .child import InChild, Outcome, Window
from .own_topic import own_topic
from .window import Latencies, Sample

PARTITIONS = 4
SIZES = {"100 B": 100, "1 KB": 1000, "10 KB": 10_000}
CODECS = ("gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 30  # for the first acknowledgement
BURST_BYTES = 1 << 20  # of distinct values, 1,000 at most: about a batch, so that codecs find no value twice
WORDS = (
    "account",
    "amount",
    "created",
    "currency",
    "payment",
    "pending",
    "region",
    "shipped",
    "status",
    "total",
    "user",
)
QUEUE = {"queue.buffering.max.messages": 500_000, "queue.buffering.max.kbytes": 1 << 18}


@dataclass(frozen=True, slots=True)
class TimedProduce:
    """The arguments of the child process. warm_seconds: from the first acknowledgement until the window begins."""

    bootstrap: str
    topic: str
    record_bytes: int
    seconds: float
    codec: str = "none"
    warm_seconds: float = 0.5
    batch_bytes: int = 1 << 17


@dataclass(frozen=True, slots=True)
class Produce(InChild):
    """The scenario. Every window has a topic of its own, which is deleted afterwards, because it may fill gigabytes."""

    name: str
    record_bytes: int
    codec: str = "none"
    partitions: int = PARTITIONS
    peers: frozenset[str] | None = field(default=BROKERS_AND_MOCK, kw_only=True)

    def prepare(self, peer: Peer) -> None:
        """Do nothing: each window makes its own topic."""

    def window(self, peer: Peer, seconds: float) -> Sample:
        """Send to a new topic for this many seconds, and return what was measured. Raises: LoadFailed, also if the log
        has fewer records than were acknowledged.
        """
        with own_topic(peer, self.partitions) as topic:
            load = TimedProduce(peer.bootstrap, topic, self.record_bytes, seconds, self.codec, self.warm_seconds)
            sample = child.window(produce, load, peer)
            written = sum(log_ends(peer, topic, self.partitions))
        if written < sample.units:
            raise child.LoadFailed(f"{sample.units} records were acknowledged, {written} are in the log")
        return sample


def table() -> list[Produce]:
    """Return the scenarios of the short table."""
    return [Produce(f"produce {name}", SIZES[name]) for name in ("100 B", "1 KB")]


def full() -> list[Produce]:
    """Return the scenarios of all sizes, plain and with all codecs."""
    plain = [Produce(f"produce {name}", size) for name, size in SIZES.items()]
    return plain + [Produce(f"produce {name} {codec}", size, codec) for name, size in SIZES.items() for codec in CODECS]


def log_ends(peer: Peer, topic: str, partitions: int) -> list[int]:
    """Return the end offset of each partition, in the order of the partitions."""
    wire = Wire(peer.host, peer.port)
    asked = end_request(topic, list(range(partitions)))
    found = wire.call(asked, 1).topics[0].partitions
    wire.close()
    return [part.offset for part in sorted(found, key=lambda part: part.partition_index)]


def end_request(topic: str, partitions: list[int], isolation_level: int = 0) -> ListOffsetsRequest:
    """Return a ListOffsets request for the end offsets of partitions, as a reader of this isolation level sees them."""
    parts = [ListOffsetsRequest.Topic.Partition(partition_index=number, timestamp=-1) for number in partitions]
    asked = ListOffsetsRequest.Topic(name=topic, partitions=parts)
    return ListOffsetsRequest(isolation_level=isolation_level, topics=[asked])


def payloads(size: int) -> list[bytes]:
    """Return distinct values of `size` bytes that look like an application's text, so that they compress like it. The
    same in every run.
    """
    rng = random.Random(size)
    values = []
    for number in range(max(1, min(1000, BURST_BYTES // size))):
        text = f'{{"id":{number}'
        while len(text) < size:
            text += f',"{rng.choice(WORDS)}":"{rng.choice(WORDS)}-{rng.randrange(10**6)}"'
        values.append(text[:size].encode())
    return values


def produce(settings: dict[str, Any], window: Window) -> Outcome:
    """Run the load in the child process, and return what it did within the window."""
    load = TimedProduce(**settings)
    pump = _Pump(load)
    try:
        deadline = time.perf_counter() + PATIENCE_S
        while not pump.acknowledged:
            pump.run(time.perf_counter() + librdkafka.LOOK_S)
            if time.perf_counter() > deadline:
                raise TimeoutError(f"no record was acknowledged in {PATIENCE_S} s")
        pump.run(time.perf_counter() + load.warm_seconds)
        pump.latencies = Latencies()
        before = pump.acknowledged
        window.begin()
        pump.run(time.perf_counter() + load.seconds)
        units = pump.acknowledged - before
        window.end()
    finally:
        pump.close()
    return Outcome(units, units * load.record_bytes, pump.latencies)


class _Pump:
    """A producer whose queue is always full. It measures the latency of the first record of each burst."""

    def __init__(self, load: TimedProduce) -> None:
        from confluent_kafka import Producer

        self._topic = load.topic
        self._values = payloads(load.record_bytes)
        self._failures: list[str] = []
        self._closed = False
        self._sent = 0
        self.latencies = Latencies()
        named = {"bootstrap.servers": load.bootstrap, "batch.size": load.batch_bytes, "compression.type": load.codec}
        self._producer = Producer({**librdkafka.PRODUCER, **QUEUE, **named, "error_cb": self._complain})

    @property
    def acknowledged(self) -> int:
        """Return how many records were acknowledged so far: sent, and no longer in the queue. Raises RuntimeError if
        one has failed.
        """
        self._producer.poll(0)
        self._check()
        return self._sent - len(self._producer)

    def run(self, until: float) -> None:
        """Produce until this time (of perf_counter). Raises: RuntimeError if a record whose latency is
        measured fails.
        """
        produce, topic, values = self._producer.produce, self._topic, self._values
        while time.perf_counter() < until:
            sent = 0
            try:
                produce(topic, values[0], on_delivery=self._timer())
                sent = 1
                for value in values:
                    produce(topic, value)
                    sent += 1
            except BufferError:
                self._sent += sent
                self._producer.poll(0.01)
            else:
                self._sent += sent
                self._producer.poll(0)
            self._check()

    def close(self) -> None:
        """Drop the queued records, which would be sent during the next window, and close the producer."""
        self._closed = True
        self._producer.purge()
        self._producer.close()

    def _check(self) -> None:
        """Raise RuntimeError if a record was not acknowledged, or the client has a fatal error."""
        if self._failures:
            raise RuntimeError(f"a record was not acknowledged: {self._failures[0]}")

    def _complain(self, error: Any) -> None:
        """Store a fatal error of the client, which ends the load; ignore any other error."""
        if error.fatal():
            self._failures.append(str(error))

    def _timer(self) -> Callable[[Any, Any], None]:
        """Return a delivery callback that records the latency from now to its call."""
        began = time.perf_counter()

        def delivered(error: Any, _message: Any) -> None:
            """Record the latency, and the error if there is one; nothing after close()."""
            if self._closed:
                return
            if error is not None:
                self._failures.append(str(error))
            self.latencies.record_us(1e6 * (time.perf_counter() - began))

        return delivered

"""Sends small Produce requests, and batches of 100 KB, in a closed loop without a client library, to measure the broker
alone.

The generator is a C program (closed_loop.c), which uses less CPU than any broker. Without a C compiler a Python program
replaces it, in a process of its own.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from ...protocol.messages.produce import ProduceResponse
from .. import small, topics
from ..peers.names import BROKERS, FLOOR
from ..peers.peers import FLOOR_TOPIC, Peer
from . import child
from . import closed_loop as load
from .child import Outcome, Window
from .own_topic import own_topic
from .window import Books, Sample

CONNECTIONS = (1, 16, 64, 256)
DEPTHS = (1, 5)
PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Produce:
    """The scenario. depth: requests in flight on each connection. own_topics: each window has a topic of its own,
    which is deleted afterwards, because it may fill gigabytes.
    """

    name: str
    connections: int
    depth: int
    record_bytes: int = 100
    batch_records: int = 1
    partitions: int = PARTITIONS
    own_topics: bool = False
    unit: str = "request"
    peers: frozenset[str] | None = None
    client_threads: int = 1

    def prepare(self, peer: Peer) -> None:
        """Create one topic for all windows, unless each has its own. The C server needs none."""
        if peer.name != FLOOR and not self.own_topics:
            topics.create(peer.host, peer.port, FLOOR_TOPIC, self.partitions)

    def window(self, peer: Peer, seconds: float) -> Sample:
        """Put the load on the peer for this many seconds, and return what was measured. Raises: LoadFailed."""
        if not self.own_topics:
            return self.load(peer, FLOOR_TOPIC, seconds)
        with own_topic(peer, self.partitions) as topic:
            return self.load(peer, topic, seconds)

    def load(self, peer: Peer, topic: str, seconds: float) -> Sample:
        """Put the load on this topic for this many seconds, and return what was measured. Uses the generator in C, or a
        Python program without a C compiler. Raises: LoadFailed.
        """
        shape = small.SmallLoad(
            topic, self.partitions, self.connections, self.depth, self.record_bytes, self.batch_records, seconds
        )
        if load.program() is None:
            arguments = {"host": peer.host, "port": peer.port, "load": asdict(shape)}
            return child.run(f"{__name__}:by_python", arguments, Books(peer), seconds + child.PATIENCE_S)
        return load.run(peer, loop(shape), seconds, self.batch_records * self.record_bytes)


def table() -> list[Produce]:
    """Return the scenarios of small requests that `make bench` runs. The one with one connection leaves out peers that
    are not brokers: it is there for its latency alone.
    """
    return [replace(_small(1, 1), peers=BROKERS), _spread(), _small(64, 1), _small(16, 5), _batch()]


def full() -> list[Produce]:
    """Return the scenarios of all numbers of connections and depths."""
    return [*(_small(connections, depth) for depth in DEPTHS for connections in CONNECTIONS), _spread(), _batch()]


def _small(connections: int, depth: int) -> Produce:
    """Return the scenario with this many connections, and `depth` requests in flight on each."""
    return Produce(f"small {connections}x{depth}", connections, depth)


def _spread() -> Produce:
    """Return the scenario with one partition for each connection: Kafka with flush syncs each partition's file."""
    return Produce("small 16x1 over 16", 16, 1, partitions=16, peers=BROKERS)


def _batch() -> Produce:
    """Return the scenario of large batches. It is not run against the C server, whose one file is never deleted."""
    return Produce("batch 100 KB", 4, 2, 1000, 100, own_topics=True, peers=BROKERS)


def loop(shape: small.SmallLoad) -> load.Loop:
    """Return the same load as the arguments of the generator in C."""
    frames = b"".join(small.frame_for(shape, partition) for partition in range(shape.partitions))
    error_at = load.error_place(small.PRODUCE, small.VERSION, lambda code: _answer(shape.topic, code))
    return load.Loop(frames, error_at, shape.connections, shape.depth)


def _answer(topic: str, error_code: int) -> ProduceResponse:
    """Return a Produce response with this error code, to find the code's position in it."""
    part = ProduceResponse.Topic.Partition(index=0, error_code=error_code, base_offset=0)
    return ProduceResponse(responses=[ProduceResponse.Topic(name=topic, partition_responses=[part])])


def by_python(settings: dict[str, Any], window: Window) -> Outcome:
    """Run the load in this process, which is a child of the benchmark, with the Python generator in place of the one
    in C.

    settings: host, port, and the fields of a SmallLoad. Calls window.begin and window.end around what is measured.
    Returns requests, bytes and a histogram of latencies in µs.
    """
    import asyncio

    import uvloop

    shape = small.SmallLoad(**settings["load"])
    marks = iter((window.begin, window.end))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(small.run(settings["host"], settings["port"], shape, lambda: next(marks)()))
    payload = result.requests * shape.batch_records * shape.record_bytes
    return Outcome(result.requests, payload, child.histogram(1e6 * each for each in result.latencies))

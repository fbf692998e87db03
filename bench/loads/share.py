"""Reads a prepared topic with confluent-kafka's share consumer. Each window has a new group, and each poll accepts the
records of the poll before.

Accepted records are not delivered again, so a window ends early if all records were read. Latency is the time from
subscribe() to the first record, one value for each window.
"""

import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .. import librdkafka
from ..peers.names import KAFKA, OS
from ..peers.peers import Peer
from . import child
from .child import InChild, Outcome, Window
from .consume import PATIENCE_S, preload
from .window import Latencies, Sample

PARTITIONS = 4
RECORDS = 400_000
RECORD_BYTES = 100
SETTLED_S = 1.0  # Kafka applies a new setting of a group some time after its answer


@dataclass(frozen=True, slots=True)
class TimedShare:
    """The arguments of the child process. records: in the topic. settled_seconds: to wait after the group was
    configured.
    """

    bootstrap: str
    topic: str
    records: int
    seconds: float
    warm_seconds: float = 0.5
    settled_seconds: float = SETTLED_S


@dataclass(frozen=True, slots=True)
class ShareConsume(InChild):
    """The scenario of one share consumer."""

    name: str = "queue 100 B"
    records: int = RECORDS
    settled_seconds: float = SETTLED_S
    peers: frozenset[str] | None = field(default=frozenset({OS, KAFKA}), kw_only=True)
    topic: ClassVar[str] = "bench-queue"

    def prepare(self, peer: Peer) -> None:
        """Write the records that are read later."""
        preload(peer, self.topic, PARTITIONS, self.records, RECORD_BYTES)

    def window(self, peer: Peer, seconds: float) -> Sample:
        """Read with a new share group for this many seconds, and return what was measured. Raises: LoadFailed."""
        load = TimedShare(peer.bootstrap, self.topic, self.records, seconds, self.warm_seconds, self.settled_seconds)
        return child.window(consume, load, peer)


def table() -> list[ShareConsume]:
    """Return the scenario of the short table."""
    return [ShareConsume()]


def full() -> list[ShareConsume]:
    """Return the only scenario, as table() does."""
    return table()


def consume(settings: dict[str, Any], window: Window) -> Outcome:
    """Run the load in the child process. The only latency in the outcome is the time to the first record."""
    load = TimedShare(**settings)
    reader = _Reader(load, _new_group(load))
    try:
        while not reader.seen:
            reader.run(time.perf_counter() + librdkafka.LOOK_S)
        reader.run(time.perf_counter() + load.warm_seconds)
        before = reader.seen
        window.begin()
        reader.run(time.perf_counter() + load.seconds)
        seen = reader.seen - before
        window.end()
    finally:
        reader.close()
    first = Latencies()
    first.record_us(1e6 * reader.first_s)
    return Outcome(seen, seen * RECORD_BYTES, first)


def _new_group(load: TimedShare) -> str:
    """Return the name of a new share group, configured to begin at the first record."""
    from confluent_kafka import admin

    of: Any = admin  # its type stubs lack names that it imports from other modules
    group = f"{load.topic}-{time.time_ns()}"
    earliest = of.ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=of.AlterConfigOpType.SET)
    resource = of.ConfigResource(of.ResourceType.GROUP, group, incremental_configs=[earliest])
    client = of.AdminClient({"bootstrap.servers": load.bootstrap})
    client.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    time.sleep(load.settled_seconds)
    return group


class _Reader:
    """A member of the share group. first_s: seconds until its first record; 0 before."""

    def __init__(self, load: TimedShare, group: str) -> None:
        from confluent_kafka import ShareConsumer

        self._left = load.records
        self._consumer: Any = ShareConsumer({"bootstrap.servers": load.bootstrap, "group.id": group, "log_level": 0})
        self._consumer.subscribe([load.topic])
        self._began = self._last = time.perf_counter()
        self.seen = 0
        self.first_s = 0.0

    def run(self, until: float) -> None:
        """Read until this time (of perf_counter), or until all records were read. Raises: RuntimeError after
        PATIENCE_S without records.
        """
        while self._left > 0 and (now := time.perf_counter()) < until:
            messages = self._consumer.poll(librdkafka.LOOK_S)
            if not messages:
                if now - self._last > PATIENCE_S:
                    raise RuntimeError(f"no record came for {PATIENCE_S} s; {self._left} were not read")
                continue
            self._last = time.perf_counter()
            self.first_s = self.first_s or self._last - self._began
            self.seen += len(messages)
            self._left -= len(messages)

    def close(self) -> None:
        self._consumer.close()

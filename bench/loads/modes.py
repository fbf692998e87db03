"""Compares the delivery modes of the SDK, each for a fixed time, on any peer. `fencepost bench modes` makes the same
comparison on one broker.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from .. import modes, topics
from ..peers.peers import Peer
from . import child
from .child import InChild, Outcome, Window
from .window import Latencies, Sample

RECORD_BYTES = 100


@dataclass(frozen=True, slots=True)
class TimedMode:
    """The arguments of the child process. batch: how many records are sent before each wait, or in each transaction."""

    bootstrap: str
    topic: str
    mode: str
    batch: int
    seconds: float
    warm_seconds: float = 0.5


@dataclass(frozen=True, slots=True)
class Mode(InChild):
    """The scenario of one delivery mode. Latency: from the first record of a batch until the batch is delivered, as
    far as the mode waits for that.
    """

    mode: str
    batch: int

    @property
    def name(self) -> str:
        return f"delivery {self.mode}, {self.batch} each"

    @property
    def topic(self) -> str:
        return f"bench-{self.mode.replace(' ', '-')}-{self.batch}"

    def prepare(self, peer: Peer) -> None:
        """Create the topic."""
        topics.create(peer.host, peer.port, self.topic, 1)

    def window(self, peer: Peer, seconds: float) -> Sample:
        """Deliver batches for this many seconds, and return what was measured. Raises: LoadFailed."""
        load = TimedMode(peer.bootstrap, self.topic, self.mode, self.batch, seconds, self.warm_seconds)
        return child.window(deliver, load, peer)


def table() -> list[Mode]:
    """Return no scenario: delivery modes are not part of the short comparison."""
    return []


def full() -> list[Mode]:
    """Return a scenario for each mode, and for each size of transaction."""
    return [Mode(mode, batch) for mode, batch in modes.modes()]


def deliver(settings: dict[str, Any], window: Window) -> Outcome:
    """Run the load in the child process, and return what it did within the window."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_deliver(TimedMode(**settings), window))


async def _deliver(timed: TimedMode, window: Window) -> Outcome:
    """Send batches in this mode: first to warm up, then within the window."""
    load = modes.ModeLoad(timed.topic, record_bytes=RECORD_BYTES)
    latencies, batches = Latencies(), 0
    async with modes.producer_of(timed.bootstrap, timed.mode, timed.topic) as producer:
        warm = time.perf_counter() + timed.warm_seconds
        while time.perf_counter() < warm:
            await modes.send_batch(producer, timed.mode, load, timed.batch)
        window.begin()
        began = now = time.perf_counter()
        while now - began < timed.seconds:
            await modes.send_batch(producer, timed.mode, load, timed.batch)
            last, now = now, time.perf_counter()
            latencies.record_us(1e6 * (now - last))
            batches += 1
        window.end()
    records = batches * timed.batch
    return Outcome(records, records * RECORD_BYTES, latencies)

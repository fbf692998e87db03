"""The load of small requests: one record in each Produce request, a fixed number of requests in flight on each
connection.

The loop is closed (an answer triggers the next request) and has no client library, so that the broker is the
bottleneck. Requests are encoded once and sent again and again. Every answer's error code is read; an error ends the
run.
"""

import asyncio
import struct
import time
from array import array
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from ..protocol import records
from ..protocol.messages.produce import ProduceRequest
from .topics import error_name
from .wire import frame

PRODUCE = 0
VERSION = 7  # fixed-size answers: the error code is at a known place


@dataclass(frozen=True, slots=True)
class SmallLoad:
    """What to send: `depth` requests in flight on each of `connections`, to `partitions` of one topic in turn."""

    topic: str
    partitions: int = 1
    connections: int = 64
    depth: int = 1
    record_bytes: int = 100
    batch_records: int = 1
    seconds: float = 5.0
    warmup_seconds: float = 1.0


@dataclass(slots=True)
class SmallResult:
    """The requests that were answered within the measured `seconds`. latencies: in seconds."""

    requests: int
    seconds: float
    latencies: "array[float]"


class RequestFailed(Exception):
    """Raised if the broker answers a Produce request with an error code."""


class _Loop(asyncio.Protocol):
    """One connection, which sends its request again for each response. error_at: position of the error code in a
    response. failed: called with an error.
    """

    def __init__(self, frame: bytes, depth: int, error_at: int, failed: Callable[[Exception], None]) -> None:
        self._frame = frame
        self._depth = depth
        self._error_at = error_at
        self._failed = failed
        self._sent: deque[float] = deque()
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        self.latencies: array[float] = array("d")
        self.running = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first `depth` requests."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._send(self._depth)

    def _send(self, count: int) -> None:
        """Send the request `count` times, and note the time."""
        assert self._transport is not None
        self._sent.extend([time.perf_counter()] * count)
        self._transport.write(self._frame * count)

    def data_received(self, chunk: bytes) -> None:
        """Take whole responses out of the received bytes: note their latencies and send as many requests again."""
        if self._rest:
            chunk = self._rest + chunk
        position, answers, now = 0, 0, time.perf_counter()
        while len(chunk) - position >= 4:
            (size,) = struct.unpack_from(">i", chunk, position)
            if len(chunk) - position < 4 + size:
                break
            (error,) = struct.unpack_from(">h", chunk, position + 4 + self._error_at)
            if error:
                self._failed(RequestFailed(f"Produce was answered with error {error} ({error_name(error)})"))
                return
            self.latencies.append(now - self._sent.popleft())
            position += 4 + size
            answers += 1
        self._rest = chunk[position:]
        if answers and self.running:
            self._send(answers)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the lost connection as an error, unless close() was called."""
        if self.running:
            self._failed(ConnectionError(f"a connection was lost: {exc}"))

    def close(self) -> None:
        """Close the connection without reporting that as an error."""
        self.running = False
        if self._transport is not None:
            self._transport.close()


def frame_for(load: SmallLoad, partition: int) -> bytes:
    """Return a Produce request (acks=all), with length prefix, of plain records with random-looking bytes."""
    value = bytes(i * 131 % 251 for i in range(load.record_bytes))
    batch = records.build([records.Record(i, 0, None, value, ()) for i in range(load.batch_records)])
    part = ProduceRequest.Topic.Partition(index=partition, records=memoryview(batch))
    topic = ProduceRequest.Topic(name=load.topic, partition_data=[part])
    return frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), VERSION)


Connect = Callable[[str, int, asyncio.Protocol], Awaitable[None]]
"""Opens a connection for a protocol."""


async def connect_plainly(host: str, port: int, protocol: asyncio.Protocol) -> None:
    """Connect over TCP, without a login."""
    await asyncio.get_running_loop().create_connection(lambda: protocol, host, port)


async def run(
    host: str, port: int, load: SmallLoad, measured: Callable[[], None], connect: Connect = connect_plainly
) -> SmallResult:
    """Warm up, call `measured`, run the load for its seconds, and call `measured` again: so the caller can read the
    broker's CPU time around it. Raises RequestFailed or ConnectionError.
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    # Answer, v7: correlation id, topic count, name, partition count, index, then the error code.
    error_at = 4 + 4 + 2 + len(load.topic.encode()) + 4 + 4

    def failed(error: Exception) -> None:
        """End the load with this error; only the first one counts."""
        if not over.done():
            over.set_exception(error)

    loops = []
    for i in range(load.connections):
        one = _Loop(frame_for(load, i % load.partitions), load.depth, error_at, failed)
        await connect(host, port, one)
        loops.append(one)
    try:
        await _hold(load.warmup_seconds, over)
        for one in loops:
            one.latencies = array("d")
        measured()
        began = time.perf_counter()
        await _hold(load.seconds, over)
        seconds = time.perf_counter() - began
        measured()
    finally:
        for one in loops:
            one.close()
    latencies: array[float] = array("d")
    for one in loops:
        latencies.extend(one.latencies)
    return SmallResult(len(latencies), seconds, latencies)


async def _hold(seconds: float, over: "asyncio.Future[None]") -> None:
    """Let the load run for this many seconds. over: a future that raises the error if the load has failed."""
    await asyncio.wait([over], timeout=seconds)
    if over.done():
        over.result()

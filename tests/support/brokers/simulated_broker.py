"""The whole broker in a simulated world: a disk in memory, virtual time, seeded randomness, no sockets.

Requests go over a simulated connection, so versions, refusals, order and the reply barrier are those of a real broker.
A broker can be stopped or killed, or its power cut; the next one starts on what is then left on the disk.
"""

import asyncio
import struct
from typing import Any

from fencepost.broker.broker import Broker
from fencepost.broker.config.settings import BrokerSettings
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.loop import SimulatedLoop
from fencepost.effects.simulated.net import SimulatedNet
from fencepost.effects.simulated.rng import SeededRng
from fencepost.protocol.apis import APIS, decode_response, encode_request
from fencepost.protocol.schema import schema_of

ADDRESS = ("127.0.0.1", 9092)
NOW_MS = 1_700_000_000_000


LAST_WITH_NAMES = 12  # of Produce


def newest(api: Any, request: Any) -> int:
    """Return the newest version that the broker serves and that can express this request: from 13 on, Produce has no
    topic names.
    """
    named = api.key == 0 and any(topic.name for topic in request.topic_data)
    return min(api.max, LAST_WITH_NAMES) if named else int(api.max)


class _Line(asyncio.Protocol):
    """One connection's frames."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.closed = False
        self.waiting: asyncio.Future[None] | None = None

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._wake()

    def connection_lost(self, error: BaseException | None) -> None:
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)

    async def frame(self) -> bytes:
        """Wait for the next frame, and return it without its length. Raises ConnectionError if the broker closes."""
        while len(self.received) < 4 or len(self.received) < 4 + struct.unpack_from(">i", self.received)[0]:
            if self.closed:
                raise ConnectionError("the broker closed the connection")
            self.waiting = asyncio.get_running_loop().create_future()
            await self.waiting
        end = 4 + struct.unpack_from(">i", self.received)[0]
        frame = bytes(self.received[4:end])
        del self.received[:end]
        return frame


class SimulatedBroker:
    """A running simulated broker and a client of it. `ask` returns when the answer is there, while virtual time
    passes.
    """

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        *,
        disk: SimulatedDisk | None = None,
        seed: int = 0,
        now_ms: int = NOW_MS,
        **more: Any,
    ) -> None:
        """now_ms: the wall time at the start. more: of the Broker itself."""
        self.settings = settings or BrokerSettings()
        self.disk = disk or SimulatedDisk(history=False)
        self.seed = seed
        self.loop = SimulatedLoop()
        self.net = SimulatedNet(seed=seed)
        self.broker = Broker(
            self.settings, disk=self.disk, clock=self.loop.clock(now_ms), rng=SeededRng(seed), net=self.net, **more
        )
        self._line: _Line | None = None
        self._transport: Any = None
        self._next_id = 0
        try:
            self.loop.run_until_complete(self.broker.start())
        except BaseException:
            self.abandon()
            raise

    def __enter__(self) -> "SimulatedBroker":
        return self

    def __exit__(self, *_: object) -> None:
        if not self.loop.is_closed():
            self.stop()

    def ask(self, request: Any, version: int | None = None) -> Any:
        """Send a request and return its response. version: None for the newest that the broker serves."""
        return self.loop.run_until_complete(self._ask(request, version))

    async def _ask(self, request: Any, version: int | None) -> Any:
        api = APIS[schema_of(type(request)).api or 0]
        version = newest(api, request) if version is None else version
        if self._line is None or self._line.closed:
            self._transport, line = await self.net.connect(_Line, *ADDRESS)
            assert isinstance(line, _Line)
            self._line = line
        self._next_id += 1
        for piece in encode_request(api, version, self._next_id, "test", request):
            self._transport.write(piece)
        correlation_id, response = decode_response(api, version, await self._line.frame())
        assert correlation_id == self._next_id
        return response

    def wait(self, seconds: float) -> None:
        """Let this many seconds of virtual time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def stop(self) -> None:
        self.check_counts()
        self.loop.run_until_complete(self.broker.stop())
        self.loop.close()

    def again(self, settings: BrokerSettings | None = None) -> "SimulatedBroker":
        """Stop the broker in an orderly way, and return a new one on the same disk."""
        self.stop()
        return self._successor(self.disk, settings)

    def after_power_cut(self) -> "SimulatedBroker":
        """Cut the power, and return a new broker on what was synced."""
        left = self.disk.after_power_cut()
        self.abandon()
        return self._successor(left, None)

    def check_counts(self) -> None:
        """Check that the broker's counters match what exists, and that nothing is remembered of clients that have
        gone.
        """
        topics = self.broker.topics
        counted = sum(len(topic.partitions) for topic in topics.by_name.values() if not topic.internal)
        assert topics.partition_count == counted
        for group in self.broker.consumer_groups.groups.values():
            assert group.users.keys() <= group.subscriptions.keys()
        for share_group in self.broker.share_groups.groups.values():
            assert share_group.rights.users.keys() <= share_group.members.keys()

    def abandon(self) -> None:
        """Drop the broker without stopping it."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()

    def _successor(self, disk: SimulatedDisk, settings: BrokerSettings | None) -> "SimulatedBroker":
        return SimulatedBroker(settings or self.settings, disk=disk, seed=self.seed + 1)

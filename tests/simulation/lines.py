"""A connection of a scripted client: raw requests of any version, many ahead, and an end to patience.

An answer that does not come in time is Unanswered; then the connection is given up and closed, and what was sent over
it may still arrive, now or much later. A closed connection says nothing of what became of its requests either.
"""

import asyncio
import struct
from collections import deque
from typing import Any

from fencepost.protocol.apis import APIS, decode_response, encode_request
from fencepost.protocol.schema import schema_of
from simulation.world import World

PATIENCE_S = 1.0
NOT_SENT = "no connection"
_SIZE = struct.Struct(">i")


class Unanswered(Exception):
    """There is no answer: the request may have been carried out or not, or may still be."""


class Line(asyncio.Protocol):
    """One connection of a scripted client. To be used through a Caller."""

    def __init__(self) -> None:
        self.closed = False
        self.transport: Any = None
        self._received = bytearray()
        self._wanted_bytes = 4  # of an answer, before it can be read
        self._waiting: deque[tuple[asyncio.Future[Any], Any, int]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, error: BaseException | None) -> None:
        self.closed = True
        while self._waiting:
            future = self._waiting.popleft()[0]
            if not future.done():
                future.set_exception(Unanswered("the connection is closed"))
                future.exception()

    def data_received(self, data: bytes) -> None:
        if self._received:
            self._received += data
            if len(self._received) < self._wanted_bytes:
                return
            data = bytes(self._received)
            self._received.clear()
        at = 0
        self._wanted_bytes = 4
        while len(data) - at >= 4:
            end = at + 4 + _SIZE.unpack_from(data, at)[0]
            if len(data) < end:
                self._wanted_bytes = end - at
                break
            future, api, version = self._waiting.popleft()
            if not future.done():
                future.set_result(decode_response(api, version, data[at + 4 : end])[1])
            at = end
        if at < len(data):
            self._received += data[at:]

    def send(self, request: Any, version: int | None, client_id: str) -> "asyncio.Future[Any]":
        (future,) = self.send_all([(request, version)], client_id)
        return future

    def send_all(self, requests: list[tuple[Any, int | None]], client_id: str) -> "list[asyncio.Future[Any]]":
        """Send these requests in one write, so that they may arrive together. Returns a future for each answer."""
        frames = [self._frame(request, version, client_id) for request, version in requests]
        self.transport.write(b"".join(frame for _, frame in frames))
        return [future for future, _ in frames]

    def _frame(self, request: Any, version: int | None, client_id: str) -> "tuple[asyncio.Future[Any], bytes]":
        api = APIS[schema_of(type(request)).api or 0]
        version = api.max if version is None else version
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((future, api, version))
        return future, b"".join(encode_request(api, version, 1, client_id, request))

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()
        self.closed = True


async def _all_done(futures: "list[asyncio.Future[Any]]", patience_s: float) -> None:
    """Wait until all are done, or patience_s have passed: faster than asyncio.wait, since each request of a scripted
    client waits so.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    left = len(futures)

    def one_is_done(_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            enough()

    def enough() -> None:
        if not waiter.done():
            waiter.set_result(None)

    for future in futures:
        future.add_done_callback(one_is_done)
    timer = loop.call_later(patience_s, enough)
    try:
        await waiter
    finally:
        timer.cancel()


class Caller:
    """Sends requests on one connection, and on a new one when that is closed."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self._line: Line | None = None

    async def ask(self, request: Any, version: int | None = None, patience_s: float = PATIENCE_S) -> Any:
        """Send a request and return its answer. Raises Unanswered."""
        (answer,) = await self.ask_all([(request, version)], patience_s)
        if isinstance(answer, Unanswered):
            raise answer
        return answer

    async def ask_all(
        self, requests: list[tuple[Any, int | None]], patience_s: float = PATIENCE_S, *, in_one: bool = False
    ) -> list[Any]:
        """Send all requests before any is answered, in_one: in one write. Returns the answers; for one that is lost or
        late, Unanswered.
        """
        try:
            line = await self._open()
        except OSError:
            await asyncio.sleep(0.05)
            return [Unanswered(NOT_SENT)] * len(requests)
        self.world.on_send(line.transport, [schema_of(type(request)).api or 0 for request, _ in requests])
        if in_one:
            futures = line.send_all(requests, self.name)
        else:
            futures = [line.send(request, version, self.name) for request, version in requests]
        await _all_done(futures, patience_s)
        answers: list[Any] = []
        for future in futures:
            if not future.done():
                line.close()
                answers.append(Unanswered("no answer in time"))
            else:
                answers.append(future.exception() or future.result())
        return answers

    async def _open(self) -> Line:
        if self._line is None or self._line.closed:
            async with asyncio.timeout(PATIENCE_S):
                _, line = await self.world.dial(Line)
            assert isinstance(line, Line)
            self._line = line
        return self._line

    def close(self) -> None:
        if self._line is not None:
            self._line.close()

"""A server on loopback, in a thread, that gets whole frames and does with each what the test says."""

import asyncio
import struct
import threading
from collections.abc import Callable
from types import TracebackType


class FrameServer:
    """frames: all that were received. opened: how many connections were made. Answers are given with their length
    prefix.
    """

    def __init__(self, answer: Callable[["Line", bytes], None]) -> None:
        self.answer = answer
        self.frames: list[bytes] = []
        self.opened = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "FrameServer":
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await self._loop.create_server(lambda: Line(self), "127.0.0.1", 0, backlog=1024)

    async def _close(self) -> None:
        self._server.close()
        await asyncio.sleep(0.05)  # the clients' ends are seen


class Line(asyncio.Protocol):
    """One connection to the server."""

    def __init__(self, server: FrameServer) -> None:
        self._server = server
        self._rest = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._server.opened += 1

    def data_received(self, chunk: bytes) -> None:
        self._rest += chunk
        while len(self._rest) >= 4:
            (size,) = struct.unpack_from(">i", self._rest)
            if len(self._rest) < 4 + size:
                break
            frame, self._rest = self._rest[4 : 4 + size], self._rest[4 + size :]
            self._server.frames.append(frame)
            self._server.answer(self, frame)

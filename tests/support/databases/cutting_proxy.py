"""Between a program and PostgreSQL: cuts the connection, says nothing any more, or waits, at a message of a COMMIT."""

import asyncio
import contextlib
import struct

BEFORE, SENT, DONE, SILENT = "before it is sent", "after it is sent", "within its answer", "with no answer, unclosed"
PLACES = [BEFORE, SENT, DONE, SILENT]
LATE = "until it may go on"


class CuttingProxy:
    """`async with CuttingProxy(port, place) as proxy`: one that listens on proxy.port. place: of PLACES, or LATE. cuts:
    so often it did that: at the next COMMIT after `armed` was set. word: another statement than COMMIT.

    DONE passes CommandComplete on, and not ReadyForQuery. LATE answers once `go_on` is set; `has_come` says that the
    statement has come.
    """

    def __init__(self, target: int, place: str, word: bytes = b"commit") -> None:
        self.target, self.place, self.word, self.cuts, self.port = target, place, word, 0, 0
        self.has_come, self.go_on = asyncio.Event(), asyncio.Event()
        self.armed = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "CuttingProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target)
        is_committing = asyncio.Event()
        there = asyncio.ensure_future(self._requests(reader, server_writer, is_committing))
        back = asyncio.ensure_future(self._answers(server_reader, writer, is_committing))
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (there, back):
                task.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            for each in (writer, server_writer):
                each.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_committing: asyncio.Event
    ) -> None:
        length = await reader.readexactly(4)  # of the startup message, which has no type
        while length == struct.pack("!i", 8):  # asks for TLS or GSS: passed on, and answered with one byte
            writer.write(length + await reader.readexactly(4))
            length = await reader.readexactly(4)
        writer.write(length + await reader.readexactly(struct.unpack("!i", length)[0] - 4))
        while True:
            kind, body = await _message(reader)
            if kind == b"Q" and body[4:].lower().startswith(self.word) and self.armed:
                self.armed = False
                self.cuts += 1
                is_committing.set()
                self.has_come.set()
                if self.place == BEFORE:
                    return
            writer.write(kind + body)

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_committing: asyncio.Event
    ) -> None:
        first = await reader.readexactly(1)
        while first == b"N":  # no TLS, no GSS
            writer.write(first)
            first = await reader.readexactly(1)
        while True:
            length = await reader.readexactly(4)
            message = first + length + await reader.readexactly(struct.unpack("!i", length)[0] - 4)
            if not is_committing.is_set():
                writer.write(message)
            elif self.place == SILENT:
                await asyncio.Event().wait()
            elif self.place == LATE:
                await self.go_on.wait()
                is_committing.clear()
                writer.write(message)
            else:
                if self.place == DONE:
                    writer.write(message)
                    await writer.drain()
                return
            first = await reader.readexactly(1)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the type of a message, and the rest with its length."""
    kind, length = await reader.readexactly(1), await reader.readexactly(4)
    return kind, length + await reader.readexactly(struct.unpack("!i", length)[0] - 4)

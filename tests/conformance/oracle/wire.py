"""A blocking connection to a broker: frames out, frames in, and how it ends."""

from __future__ import annotations

import socket
import struct
import time

PATIENCE_SECONDS = 10.0


class Connection:
    """One TCP connection. `receive` returns None when the broker has closed it."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), PATIENCE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._lost = False
        self._gathered = b""
        self.gathers = False  # what is sent waits for what is sent next, so that both arrive in one piece
        self.is_closed = False

    def send(self, data: bytes) -> None:
        """Send all bytes. If the broker has closed the connection, the next receive() notices."""
        self._gathered += data
        if self.gathers:
            return
        data, self._gathered = self._gathered, b""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self._lost = True

    def receive(self) -> bytes | None:
        """Return the next frame, without its length; None if the connection is closed."""
        length = self._exactly(4)
        return None if length is None else self._exactly(struct.unpack(">i", length)[0])

    def _exactly(self, size: int) -> bytes | None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self._received) < size:
            try:
                chunk = b"" if self._lost else self._socket.recv(1 << 20)
            except ConnectionResetError:
                chunk = b""
            except TimeoutError:
                raise NoAnswer(f"no answer within {PATIENCE_SECONDS:.0f} s") from None
            if not chunk or time.monotonic() > deadline:
                self.close()
                return None
            self._received += chunk
        frame, self._received = self._received[:size], self._received[size:]
        return frame

    def close(self) -> None:
        self.is_closed = True
        self._socket.close()


class NoAnswer(Exception):
    """Raised if the broker keeps the connection open and answers nothing in time."""


def frame(key: int, version: int, correlation_id: int, body: bytes, *, header: int, client_id: str | None) -> bytes:
    """Return a request made by hand, with its right length before it."""
    head = struct.pack(">hhi", key, version, correlation_id)
    if header >= 1:
        name = None if client_id is None else client_id.encode()
        head += struct.pack(">h", -1 if name is None else len(name)) + (name or b"")
    if header >= 2:
        head += b"\x00"
    return struct.pack(">i", len(head) + len(body)) + head + body

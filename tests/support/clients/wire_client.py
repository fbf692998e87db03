"""A small synchronous client: any request of our own protocol classes over a socket, and the answer to it.

It does nothing by itself: no retries, no metadata, no version negotiation. So a test says exactly what goes over the
wire, and may send bytes that no honest client would.
"""

import socket
import ssl
import struct
from types import TracebackType
from typing import Any

from fencepost.protocol.apis import APIS, decode_response, encode_request
from fencepost.protocol.schema import schema_of
from simulated_broker import newest

HEADER = struct.Struct(">hhih")


class Closed(Exception):
    """The broker closed the connection."""


class WireClient:
    """One connection. Requests may be pipelined; responses come in their order."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "wire",
        timeout_s: float = 10,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.client_id = client_id
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._next_id = 1
        self._received = b""
        self._sent: list[tuple[int, Any, int]] = []  # (correlation id, api, version) of requests not answered yet

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def call(self, request: Any, version: int | None = None) -> Any:
        """Send a request and return its response."""
        self.send(request, version)
        return self.receive()

    def send(self, request: Any, version: int | None = None) -> int:
        """Send a request, by default in the newest version declared. Returns its correlation id."""
        frame, correlation_id, api, version = self.encoded(request, version)
        self._sent.append((correlation_id, api, version))
        self.socket.sendall(frame)
        return correlation_id

    def send_unanswered(self, request: Any, version: int | None = None) -> None:
        """Send a request that gets no reply (acks=0)."""
        self.socket.sendall(self.encoded(request, version)[0])

    def encoded(self, request: Any, version: int | None = None) -> tuple[bytes, int, Any, int]:
        """Return the frame of a request, its correlation id, its API and the version used."""
        api = APIS[schema_of(type(request)).api]
        version = newest(api, request) if version is None else version
        correlation_id = self._next_id
        self._next_id += 1
        return (
            b"".join(encode_request(api, version, correlation_id, self.client_id, request)),
            correlation_id,
            api,
            version,
        )

    def receive(self) -> Any:
        """Return the response to the oldest request that has none yet. Raises Closed."""
        correlation_id, api, version = self._sent.pop(0)
        got, response = decode_response(api, version, self.receive_frame())
        assert got == correlation_id, f"reply {got} where {correlation_id} was expected"
        return response

    def send_raw(self, data: bytes) -> None:
        """Send any bytes."""
        self.socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        """Send a frame with any content."""
        self.send_raw(struct.pack(">i", len(body)) + body)

    def send_header(self, api_key: int, version: int, body: bytes = b"", correlation_id: int = 0) -> None:
        """Send a request with an old-style header and any body."""
        self.send_frame(HEADER.pack(api_key, version, correlation_id, 0) + body)

    def receive_frame(self) -> bytes:
        """Return the next frame without its length prefix. Raises Closed."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def nothing_comes(self, within_s: float = 0.1) -> bool:
        """Return whether the broker sends nothing for this many seconds, and keeps the connection open."""
        before = self.socket.gettimeout()
        self.socket.settimeout(within_s)
        try:
            more = self.socket.recv(65536)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(before)
        self._received += more
        return False

    def is_closed(self) -> bool:
        """Wait until the broker closes the connection and return True; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, count: int) -> bytes:
        while len(self._received) < count:
            try:
                more = self.socket.recv(1 << 20)
            except ConnectionError:
                more = b""
            if not more:
                raise Closed
            self._received += more
        wanted, self._received = self._received[:count], self._received[count:]
        return wanted

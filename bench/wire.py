"""Encodes requests and sends them over a blocking connection, as benchmarks need to prepare their topics."""

import socket
import struct
from typing import Any

from ..protocol import apis

_BY_REQUEST = {api.request: api for api in apis.APIS.values()}
CLIENT_ID = "bench"


def frame(request: Any, version: int, correlation_id: int = 1) -> bytes:
    """Return an encoded request with its length prefix. request: an instance of our protocol classes."""
    return b"".join(apis.encode_request(_BY_REQUEST[type(request)], version, correlation_id, CLIENT_ID, request))


def skip_answer(connection: socket.socket) -> None:
    """Wait for a whole response, and drop it."""
    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    connection.recv(size, socket.MSG_WAITALL)


class Wire:
    """A blocking connection to one broker. timeout_s: of each send and receive."""

    def __init__(self, host: str, port: int, timeout_s: float = 10.0) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._correlation_id = 0

    def call(self, request: Any, version: int) -> Any:
        """Send a request of our protocol classes and return the decoded response. Raises OSError."""
        api = _BY_REQUEST[type(request)]
        self._correlation_id += 1
        self._socket.sendall(frame(request, version, self._correlation_id))
        (size,) = struct.unpack(">i", self._receive(4))
        _, response = apis.decode_response(api, version, self._receive(size))
        return response

    def close(self) -> None:
        self._socket.close()

    def _receive(self, size: int) -> bytes:
        """Receive exactly `size` bytes. Raises ConnectionError if the broker closes the connection earlier."""
        pieces = []
        while size:
            piece = self._socket.recv(min(size, 1 << 20))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

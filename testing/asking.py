"""Sends requests to any Kafka broker over plain blocking sockets, for assertions.

The rule: each use opens its own connections, so it works after a kill and beside any client library, sync or async; it
shares no code with the clients under test, only the bytes of the protocol.
"""

import socket
import struct
from collections.abc import Iterator
from typing import Any

from ..protocol.apis import APIS, decode_response, encode_request
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from ..protocol.messages.groups import FindCoordinatorRequest
from ..protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from ..protocol.schema import schema_of

CLIENT_ID = "fencepost-testing"
TIMEOUT_S = 10.0
GROUP, TRANSACTION = 0, 1
LENGTH = struct.Struct(">i")

Address = tuple[str, int]
Login = tuple[str, str]
"""A user's name and password."""


class Line:
    """One blocking connection to a broker. It uses the highest API versions that both sides support. Raises OSError,
    and KafkaError if the login fails.
    """

    def __init__(self, address: Address, timeout_s: float = TIMEOUT_S, login: Login | None = None) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._next_id = 0
        self._highest: dict[int, int] = {}
        try:
            versions = self.ask(ApiVersionsRequest(), version=0)
        except BaseException:
            self.close()
            raise
        self._highest = {api.api_key: api.max_version for api in versions.api_keys}
        if login is not None:
            try:
                self._log_in(*login)
            except BaseException:
                self.close()
                raise

    def _log_in(self, user: str, password: str) -> None:
        """Log in by PLAIN. That sends the password, which is harmless: brokers of tests are on loopback."""
        check(self.ask(SaslHandshakeRequest(mechanism="PLAIN")).error_code, "PLAIN")
        message = f"\0{user}\0{password}".encode()
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=message))
        check(answer.error_code, answer.error_message or user)

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: object, *, version: int | None = None, cap: int | None = None) -> Any:
        """Send a request and return the decoded response. version: the version to use; None: the highest that both
        sides support, but `cap` at most. Raises OSError.
        """
        api = APIS[schema_of(type(request)).api or 0]
        if version is None:
            version = min(api.max, self._highest.get(api.key, 0), api.max if cap is None else cap)
        self._next_id += 1
        self._socket.sendall(b"".join(encode_request(api, version, self._next_id, CLIENT_ID, request)))
        return decode_response(api, version, self._frame())[1]

    def _frame(self) -> bytes:
        """Read one response without its length prefix."""
        (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        """Read exactly this many bytes from the socket. Raises ConnectionError if the broker closes it before."""
        pieces = bytearray()
        while len(pieces) < count:
            more = self._socket.recv(min(count - len(pieces), 1 << 20))
            if not more:
                raise ConnectionError("the broker closed the connection")
            pieces += more
        return bytes(pieces)


class Asker:
    """Connections to all brokers of one cluster, opened when they are first needed. A context manager, which closes
    them.
    """

    def __init__(self, bootstrap_servers: str, timeout_s: float = TIMEOUT_S, login: Login | None = None) -> None:
        self._timeout_s = timeout_s
        self._login = login
        self._bootstrap = address_of(bootstrap_servers.split(",")[0])
        self._lines: dict[Address, Line] = {}
        self._nodes: dict[int, Address] = {}

    def __enter__(self) -> "Asker":
        return self

    def __exit__(self, *_: object) -> None:
        for line in self._lines.values():
            line.close()

    def any(self, request: Any, *, cap: int | None = None) -> Any:
        """Send a request to the bootstrap broker and return the response."""
        return self._line(self._bootstrap).ask(request, cap=cap)

    def metadata(self, *topics: str) -> Any:
        """Return the MetadataResponse for these topics, or for all if none are named. Creates no topic."""
        wanted = [MetadataRequest.Topic(name=name) for name in topics] or None
        response = self.any(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        self._nodes = {node.node_id: (node.host, node.port) for node in response.brokers}
        return response

    def leaders(self, topic: str) -> dict[int, Line]:
        """Return by partition number a connection to the partition's leader. Raises KafkaError if there is no such
        topic.
        """
        (found,) = self.metadata(topic).topics
        check(found.error_code, f"topic {topic}")
        return {
            part.partition_index: self._line(self._nodes[part.leader_id])
            for part in sorted(found.partitions, key=lambda part: part.partition_index)
        }

    def coordinator(self, kind: int, key: str) -> Line:
        """Return a connection to the coordinator of a group or a transactional id. kind: the key type in
        FindCoordinator. key: the group or the id.
        """
        found = self.any(FindCoordinatorRequest(key=key, key_type=kind), cap=3)
        check(found.error_code, key)
        return self._line((found.host, found.port))

    def controller(self) -> Line:
        """Return a connection to the cluster's controller; to the bootstrap broker if there is none."""
        response = self.metadata()
        return self._line(self._nodes.get(response.controller_id, self._bootstrap))

    def nodes(self) -> Iterator[Line]:
        """Yield a connection to every broker."""
        self.metadata()
        for address in self._nodes.values():
            yield self._line(address)

    def _line(self, address: Address) -> Line:
        """Return the connection to this address, opened at the first call."""
        if address not in self._lines:
            self._lines[address] = Line(address, self._timeout_s, self._login)
        return self._lines[address]


def check(code: int, detail: str) -> None:
    """Raise KafkaError if the error code is not 0. detail: for its message."""
    if code:
        raise KafkaError(ErrorCode(code), detail)  # type: ignore[call-arg]


def address_of(text: str) -> Address:
    """Parse HOST:PORT or [V6]:PORT. Raises ValueError."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)

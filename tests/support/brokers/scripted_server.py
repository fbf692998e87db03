"""A server that does with each request what a test says: answers, answers wrongly, stays silent, or closes the
connection.

ApiVersions and Metadata are answered as a broker of one node would, unless the test takes them too.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from fencepost.effects.net import Listener, Net
from fencepost.protocol.apis import APIS, Api, decode_request, encode_response
from fencepost.protocol.framing import Framer
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.cluster import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)

Answer = Callable[["Line", Any, int, int], None]  # the connection, the request, its version, its correlation id


class Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: "ScriptedServer") -> None:
        self.server = server
        self.transport: Any = None
        self.state: Any = None  # whatever a script keeps
        self._framer = Framer()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.server.lines.append(self)
        if self.server.greeting is not None:
            self.server.greeting(self)

    def data_received(self, chunk: bytes) -> None:
        for frame in self._framer.feed(chunk):
            header = read_request_header(frame)
            api = self.server.apis[header.api_key]
            request = decode_request(api, header.api_version, frame, header.position)
            self.server.requests.append((api.name, header.api_version, request))
            answer = self.server.answers.get(api.request)
            if answer is not None:
                answer(self, request, header.api_version, header.correlation_id)

    def connection_lost(self, error: Exception | None) -> None:
        self.server.ended += 1

    def reply(self, request_class: type, version: int, correlation_id: int, response: Any) -> None:
        api = self.server.by_request[request_class]
        self.transport.write(b"".join(encode_response(api, version, correlation_id, response)))


class ScriptedServer:
    """requests: (api, version, request) of all that were received. answers: functions by request class; a request
    without one is not answered.
    """

    def __init__(self, net: Net, *, more: tuple[Api, ...] = (), highest: Mapping[str, int] | None = None) -> None:
        self.net = net
        self.apis = {api.key: api for api in (*APIS.values(), *more)}
        self.by_request = {api.request: api for api in self.apis.values()}
        self.highest = {"SaslAuthenticate": 1, **(highest or {})}  # the header of a flexible one cannot be read here
        self.requests: list[tuple[str, int, Any]] = []
        self.lines: list[Line] = []
        self.ended = 0
        self.greeting: Callable[[Line], None] | None = None
        self.nodes: dict[int, tuple[str, int]] = {}
        self.answers: dict[type, Answer] = {ApiVersionsRequest: self.list_versions, MetadataRequest: self.list_nodes}
        self._listener: Listener | None = None

    async def listen(self, port: int = 9092, tls: Any = None) -> int:
        """Start listening, and return the port. tls: a server's SSLContext, which listens on the machine's own
        network.
        """
        if tls is not None:
            loop = asyncio.get_running_loop()
            listening = await loop.create_server(lambda: Line(self), "127.0.0.1", port, ssl=tls)
            self._listener = listening  # type: ignore[assignment]
            found = int(listening.sockets[0].getsockname()[1])
        else:
            self._listener = await self.net.listen(lambda: Line(self), "127.0.0.1", port)
            found = self._listener.addresses[0][1]
        self.nodes = self.nodes or {1: ("127.0.0.1", found)}
        return found

    def close(self) -> None:
        """Stop listening and close all connections."""
        if self._listener is not None:
            self._listener.close()
        for line in self.lines:
            line.transport.abort()

    def list_versions(self, line: Line, request: Any, version: int, correlation_id: int) -> None:
        keys = [
            ApiVersionsResponse.ApiKey(
                api_key=api.key, min_version=api.min, max_version=self.highest.get(api.name, api.max)
            )
            for api in self.apis.values()
        ]
        line.reply(ApiVersionsRequest, version, correlation_id, ApiVersionsResponse(api_keys=keys))

    def list_nodes(self, line: Line, request: Any, version: int, correlation_id: int) -> None:
        brokers = [
            MetadataResponse.Broker(node_id=node, host=host, port=port) for node, (host, port) in self.nodes.items()
        ]
        response = MetadataResponse(brokers=brokers, controller_id=min(self.nodes), topics=[])
        line.reply(MetadataRequest, version, correlation_id, response)


async def start_scripted(net: Net, port: int = 9092) -> ScriptedServer:
    """Start a ScriptedServer and return it."""
    server = ScriptedServer(net)
    await server.listen(port)
    return server

"""One more connection to a SimulatedBroker: pipelined requests, bytes that are no request, silence, a close.

Nothing happens between calls: time and replies move only inside receive(), quiet() and the like.
"""

import asyncio
from typing import Any

from fencepost.protocol.apis import APIS, decode_response, encode_request
from fencepost.protocol.schema import schema_of
from simulated_broker import ADDRESS, SimulatedBroker, _Line, newest


class SimulatedClient:
    """One connection to the broker."""

    def __init__(self, broker: SimulatedBroker, client_id: str = "client") -> None:
        self.broker = broker
        self.client_id = client_id
        self.transport, line = broker.loop.run_until_complete(broker.net.connect(_Line, *ADDRESS))
        assert isinstance(line, _Line)
        self.line = line
        self._next_id = 0
        self._sent: list[tuple[int, Any, int]] = []

    def ask(self, request: Any, version: int | None = None) -> Any:
        self.send(request, version)
        return self.receive()

    def send(self, request: Any, version: int | None = None) -> None:
        """Send a request whose reply receive() will give."""
        api, version, frame = self.encoded(request, version)
        self._sent.append((self._next_id, api, version))
        self.transport.write(frame)

    def send_unanswered(self, request: Any, version: int | None = None) -> None:
        """Send a request that gets no reply."""
        self.transport.write(self.encoded(request, version)[2])

    def encoded(self, request: Any, version: int | None = None) -> tuple[Any, int, bytes]:
        api = APIS[schema_of(type(request)).api or 0]
        version = newest(api, request) if version is None else version
        self._next_id += 1
        return api, version, b"".join(encode_request(api, version, self._next_id, self.client_id, request))

    def send_together(self, *requests: Any, unanswered: int = 0) -> None:
        """Send requests that arrive in one piece. Each is a request, or (request, version); the first `unanswered` get
        no reply.
        """
        frames = []
        for number, asked in enumerate(requests):
            api, version, frame = self.encoded(*asked) if isinstance(asked, tuple) else self.encoded(asked)
            frames.append(frame)
            if number >= unanswered:
                self._sent.append((self._next_id, api, version))
        self.transport.write(b"".join(frames))

    def ask_together(self, *requests: Any, unanswered: int = 0) -> list[Any]:
        """Send requests that arrive in one piece, and return their replies."""
        self.send_together(*requests, unanswered=unanswered)
        return [self.receive() for _ in requests[unanswered:]]

    def send_raw(self, data: bytes) -> None:
        self.transport.write(data)

    def receive(self) -> Any:
        """Return the reply to the oldest request not answered yet. Raises ConnectionError if the broker closed."""
        correlation_id, api, version = self._sent.pop(0)
        got, response = decode_response(api, version, self.receive_frame())
        assert got == correlation_id
        return response

    def receive_frame(self) -> bytes:
        return self.broker.loop.run_until_complete(self.line.frame())

    def quiet(self, seconds: float = 0.2) -> bool:
        """Return whether nothing arrives for this many seconds and the connection stays open."""
        before = len(self.line.received)
        self.broker.wait(seconds)
        return len(self.line.received) == before and not self.line.closed

    def closed(self, within_s: float = 1.0) -> bool:
        """Return whether the broker closes the connection in that time."""

        async def wait() -> bool:
            for _ in range(20):
                if self.line.closed:
                    return True
                await asyncio.sleep(within_s / 20)
            return self.line.closed

        return self.broker.loop.run_until_complete(wait())

    def close(self) -> None:
        self.transport.close()
        self.broker.wait(0.01)

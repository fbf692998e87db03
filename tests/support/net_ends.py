"""Both ends of a connection, on the simulated net or the real one, and all that happens to them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fencepost.effects.simulated.net import SimulatedNet

ends: list["End"] = []


class End(asyncio.Protocol):
    """Records all that happens to it."""

    def __init__(self, echo: bool = False, keep_open: bool = False) -> None:
        self.echo = echo
        self.keep_open = keep_open
        self.events: list[str] = []
        self.chunks: list[bytes] = []
        self.times: list[float] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.events.append("made")
        ends.append(self)

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)
        self.times.append(asyncio.get_running_loop().time())
        if self.echo:
            self.transport.write(data)

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.keep_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append(f"lost {type(error).__name__}" if error else "lost")

    @property
    def received(self) -> bytes:
        return b"".join(self.chunks)


async def pair(net: Any, **options: bool) -> tuple[End, End, Any]:
    """Connect to a new listener. Return (client's end, server's end, connection; None if the net has no such
    object).
    """
    servers: list[End] = []

    def factory() -> End:
        servers.append(End(**options))
        return servers[-1]

    listener = await net.listen(factory, "127.0.0.1", 0)
    _, client = await net.connect(End, *listener.addresses[0])
    while not servers:  # noqa: ASYNC110 (on either net)
        await asyncio.sleep(0.001)
    listener.close()
    return client, servers[0], net.connections[-1] if isinstance(net, SimulatedNet) else None


async def settle() -> None:
    await asyncio.sleep(0.05)


async def ended(scenario: Callable[[Any], Awaitable[Any]], net: Any) -> Any:
    """Run the scenario with this net and return its result; at its end, abort the connections that are still open."""
    ends.clear()
    try:
        return await scenario(net)
    finally:
        for end in ends:
            end.transport.abort()
        await asyncio.sleep(0.01)

"""A simulated network in memory: hosts, ports, connections with delays, and failures.

A `SimulatedNet` is one host's view; `net.host(name)` is another host on the same network. All randomness comes from the
network's seed. It runs on any asyncio loop; on a SimulatedLoop a run repeats exactly.
"""

import asyncio
import errno
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

from ..net import Listener, Net, ProtocolFactory
from ..tls import Handshake, TlsAdmission
from .transport import Address, SimulatedTransport
from .wire import Wire

if TYPE_CHECKING:
    import ssl

Side = Literal["client", "server"]
LOOPBACK = ("127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::", "")
FIRST_PORT = 20_000
FIRST_CLIENT_PORT = 49_152
SOCKET_BUFFERS_BYTES = 256 * 1024


class SimulatedConnection:
    """Both ends of a connection, and its two directions `to_server` and `to_client`, for tests to interfere with."""

    def __init__(self, nets: "dict[Side, SimulatedNet]", client: Address, server: Address) -> None:
        network, loop = nets["client"].network, asyncio.get_running_loop()
        self.nets = nets
        self.to_server = network.wire(loop)
        self.to_client = network.wire(loop)
        self.client = SimulatedTransport(loop, self.to_server, self.to_client, client, server)
        self.server = SimulatedTransport(loop, self.to_client, self.to_server, server, client)

    @property
    def is_open(self) -> bool:
        return not (self.client.is_finished and self.server.is_finished)

    def hold(self) -> None:
        """Delay all bytes in both directions until release(). For one direction: `to_server.hold()`."""
        self.to_server.hold()
        self.to_client.hold()

    def release(self) -> None:
        """Deliver the bytes that hold() delayed."""
        self.to_server.release()
        self.to_client.release()

    def cut(self, *, tell: tuple[Side, ...] = ("client", "server")) -> None:
        """Cut the connection: bytes in flight are lost. Sides in `tell` see a reset now; another side sees it when
        tell() is called.
        """
        self.to_server.kill()
        self.to_client.kill()
        for side in tell:
            self.tell(side)

    def tell(self, side: Side) -> None:
        """Let this side of a cut connection see a reset."""
        self.end(side).reset_arrived()

    def cut_after(self, side: Side, size: int) -> None:
        """Cut the connection when this side has read `size` more bytes: then both sides see a reset."""
        other: Side = "client" if side == "server" else "server"
        wire = self.to_server if side == "server" else self.to_client
        wire.cut_after(size, lambda: self.tell(other))

    def end(self, side: Side) -> SimulatedTransport:
        """Return the transport of this side."""
        return self.client if side == "client" else self.server


class SimulatedNetwork:
    """The state that all hosts have in common: connections, ports, and random delays (`delay_ms`: from, to; one way).

    `fragments` (readers get pieces of any size), `capacity_bytes` (of the sockets' buffers) and `on_connect`, which is
    called with each connection before a byte is sent, apply to connections made after they were set.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.delay_ms = (0.0, 0.0)
        self.fragments = False
        self.capacity_bytes = SOCKET_BUFFERS_BYTES
        self.on_connect: Callable[[SimulatedConnection], None] = lambda connection: None
        self.listeners: list[SimulatedListener] = []
        self._connections: list[SimulatedConnection] = []
        self._next_port = FIRST_PORT
        self._next_client_port = FIRST_CLIENT_PORT

    @property
    def connections(self) -> list[SimulatedConnection]:
        """The connections that are open at one end at least, oldest first."""
        self._connections = [connection for connection in self._connections if connection.is_open]
        return list(self._connections)

    def delay(self) -> float:
        """Return a random delay for one direction, in seconds."""
        low, high = self.delay_ms
        return (low if low == high else low + (high - low) * self.rng.random()) / 1000

    def wire(self, loop: asyncio.AbstractEventLoop) -> Wire:
        """Return a new wire: one direction of a connection."""
        wire = Wire(loop, self.rng, self.delay, self.capacity_bytes)
        wire.fragments = self.fragments
        return wire

    def add(self, connection: SimulatedConnection) -> None:
        """Add a new connection, and call on_connect with it."""
        self._connections.append(connection)
        self.on_connect(connection)

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def free_client_port(self) -> int:
        self._next_client_port += 1
        return self._next_client_port


class SimulatedListener(Listener):
    def __init__(
        self, net: "SimulatedNet", factory: ProtocolFactory | TlsAdmission, hosts: tuple[str, ...], port: int
    ) -> None:
        self.net = net
        self.factory = factory
        self._hosts = hosts
        self._port = port

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(host, self._port) for host in self._hosts]

    def takes(self, source: str, host: str, port: int) -> bool:
        """Return whether this listener accepts a connection from the host `source` to host:port."""
        if port != self._port:
            return False
        reachable = source == self.net.name if host in LOOPBACK else host == self.net.name
        return reachable and any(mine == host or mine in EVERYWHERE for mine in self._hosts)

    def has(self, name: str, hosts: tuple[str, ...], port: int) -> bool:
        """Return whether this listener uses this port, at one of these addresses of the host `name` at least."""
        together = {*hosts, *self._hosts}
        shared = len(together) < len(hosts) + len(self._hosts) or not together.isdisjoint(EVERYWHERE)
        return shared and name == self.net.name and port == self._port

    def close(self) -> None:
        if self in self.net.network.listeners:
            self.net.network.listeners.remove(self)

    async def wait_closed(self) -> None:
        """Return in the next turn of the loop: the port is free at once."""
        await asyncio.sleep(0)


class SimulatedNet(Net):
    """One host. `name` is its address; by default everything is on one host and uses loopback."""

    def __init__(self, *, seed: int = 0, name: str = LOOPBACK[0], network: SimulatedNetwork | None = None) -> None:
        self.name = name
        self.network = network or SimulatedNetwork(seed)

    def host(self, name: str) -> "SimulatedNet":
        """Return the net of another host, or of another process on this one, in the same network."""
        return SimulatedNet(name=name, network=self.network)

    @property
    def connections(self) -> list[SimulatedConnection]:
        """The open connections of this host, made or accepted by it, oldest first."""
        return [one for one in self.network.connections if self in one.nets.values()]

    async def listen(
        self, factory: ProtocolFactory | TlsAdmission, host: str, port: int, send_buffer_bytes: int = -1
    ) -> Listener:
        """Listen; see Net.listen. Nothing is encrypted in memory: a TlsAdmission is only asked which clients it admits.
        Raises OSError.
        """
        hosts = LOOPBACK if host == "localhost" else (host,)
        if host not in (*LOOPBACK, *EVERYWHERE, "localhost", self.name):
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of {self.name}")
        if any(one.has(self.name, hosts, port) for one in self.network.listeners):
            raise OSError(errno.EADDRINUSE, f"port {port} of {self.name} is taken")
        listener = SimulatedListener(self, factory, hosts, port or self.network.free_port())
        self.network.listeners.append(listener)
        return listener

    async def reserve(self, host: str, port: int, send_buffer_bytes: int = -1) -> None:
        """Do nothing: until listen() is called, clients are refused here."""

    def release(self) -> None:
        """Do nothing: see reserve()."""

    async def connect(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        *,
        tls: "ssl.SSLContext | None" = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect; see Net.connect. Nothing is encrypted in memory: `tls` and `server_hostname` are ignored. Raises
        OSError.
        """
        await asyncio.sleep(self.network.delay())
        connection = self._reach(host, port)
        try:
            # Wait for the answer to the first packet. What the server sends meanwhile arrives after it.
            connection.to_client.not_before += self.network.delay()
            await asyncio.sleep(connection.to_client.not_before - asyncio.get_running_loop().time())
        except BaseException:
            connection.client.die()
            raise
        if connection.client.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        protocol = factory()
        connection.client.start(protocol)
        return connection.client, protocol

    def kill(self) -> None:
        """Simulate the end of the process: its listeners close, and its peers see their connections end.

        The protocols of the process itself are not called.
        """
        for listener in self._listeners():
            listener.close()
        for connection in self.connections:
            for side, net in connection.nets.items():
                if net is self:
                    connection.end(side).die()

    def _reach(self, host: str, port: int) -> SimulatedConnection:
        """Make a connection to the listener at this host and port. Raises ConnectionRefusedError if there is none."""
        for target in LOOPBACK if host == "localhost" else (host,):
            for listener in self.network.listeners:
                if listener.takes(self.name, target, port):
                    return self._connection(listener, (target, port))
        raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {host}:{port}")

    def _connection(self, listener: SimulatedListener, server: Address) -> SimulatedConnection:
        """Make a connection to this listener, which accepts it in the next turn of the loop."""
        source = server[0] if server[0] in LOOPBACK else self.name
        client = (source, self.network.free_client_port())
        connection = SimulatedConnection({"client": self, "server": listener.net}, client, server)
        self.network.add(connection)
        asyncio.get_running_loop().call_soon(_accept, connection.server, listener)
        return connection

    def _listeners(self) -> Iterator[SimulatedListener]:
        """Return the listeners of this host."""
        return (one for one in list(self.network.listeners) if one.net is self)


def _accept(transport: SimulatedTransport, listener: SimulatedListener) -> None:
    """Give an accepted connection its protocol, or abort it if the listener does not admit it."""
    if transport.is_closing():
        return
    factory = listener.factory
    make = factory if callable(factory) else factory.admit(Handshake(transport.get_extra_info("peername")[0]))
    if make is None:
        transport.abort()
    else:
        transport.start(make())

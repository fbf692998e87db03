"""Net: TCP, listening and connecting behind one interface. An `asyncio.Protocol` handles each connection.

The rule: for a host with several addresses, all of them are listened on, at one port. `localhost` always means both
families, whatever /etc/hosts says; `::` takes IPv4 too, as the kernel does by default. asyncio and uvloop set
TCP_NODELAY themselves.
"""

import asyncio
import contextlib
import errno
import os
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from .. import forks
from ..gathering import Buffer
from ..threads import call_in_thread
from ..tls import TlsAcceptor, TlsAdmission

if TYPE_CHECKING:
    import ssl

ProtocolFactory = Callable[[], asyncio.Protocol]
BACKLOG = 1024
SYSTEMS_OWN = -1  # a send buffer of the size that the system chooses
WRITABLES = 32
UNPACED = b"reno"  # a congestion control that sends without timers, and that every Linux has
HAS_LEFT = "has_left"  # a transport without a socket tells by get_extra_info(HAS_LEFT) whether its peer has left
_PORT_TRIES = 20
_ADDRESS_MISSING = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_NOBODY_THERE = (*_ADDRESS_MISSING, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT)


class Listener(Protocol):
    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Return the (host, port) of each listening socket, the host as a numeric address."""
        ...

    def close(self) -> None:
        """Accept no more connections; existing ones continue. May be called again."""
        ...

    async def wait_closed(self) -> None:
        """Return when the ports are free again."""
        ...


class Net(Protocol):
    async def listen(
        self, factory: ProtocolFactory | TlsAdmission, host: str, port: int, send_buffer_bytes: int = SYSTEMS_OWN
    ) -> Listener:
        """Listen at host:port (0: any free port); `factory` makes a protocol for each connection. Raises OSError.

        factory: a TlsAdmission if the listener uses TLS. send_buffer_bytes: SO_SNDBUF of each connection.
        """
        ...

    async def reserve(self, host: str, port: int, send_buffer_bytes: int = SYSTEMS_OWN) -> None:
        """Let clients connect to host:port from now on. They wait until listen() is called for it, or release().
        Raises OSError.
        """
        ...

    def release(self) -> None:
        """Close what was reserved and is not listened on, with the connections that wait there."""
        ...

    async def connect(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        *,
        tls: "ssl.SSLContext | None" = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect to host:port. tls: use TLS; the certificate must be for `server_hostname`, by default `host`.

        Raises OSError if nothing listens there; ssl.SSLError, an OSError too, if TLS fails.
        """
        ...


class Elsewhere(Protocol):
    """Bytes to be sent that are not in memory, but for example in a file."""

    def __len__(self) -> int:
        """Return the number of bytes."""
        ...

    def send(self, socket_fd: int, begin: int) -> int:
        """Send the bytes from `begin` on to a socket. Returns how many it took; raises like File.send."""
        ...

    def release(self) -> None:
        """Release the source of the bytes: all were sent, or none will be any more."""
        ...


def descriptor_of(transport: Any) -> int:
    """Return the descriptor of a transport's socket; -1 if it has none, as in a simulation."""
    one = transport.get_extra_info("socket")
    return -1 if one is None else int(one.fileno())


def has_left(transport: Any) -> bool:
    """Return whether the peer has closed its side, even while reading is paused and the protocol was not told.

    Thread-safe. If the system has no POLLRDHUP (macOS), only a reset is noticed.
    """
    one = transport.get_extra_info("socket")
    if one is None:
        return bool(transport.get_extra_info(HAS_LEFT))
    try:
        poll = select.poll()
        poll.register(one.fileno(), getattr(select, "POLLRDHUP", 0))
        return bool(poll.poll(0))
    except (OSError, ValueError):  # the socket is closed
        return True


def idle_socket(transport: Any) -> int:
    """Return the descriptor of a transport's socket if the caller may write to it directly; else -1.

    That is allowed if the transport has nothing left to send, is not closing and does not use TLS.
    """
    if transport.is_closing() or transport.get_write_buffer_size() or transport.get_extra_info("sslcontext"):
        return -1
    return descriptor_of(transport)


def send_now(fd: int, left: deque[Buffer | Elsewhere], begin: int) -> tuple[int, int, bool]:
    """Send `left`, beginning at byte `begin` of its first item, until the socket takes no more. Sent items are removed.

    Returns (at which byte of the first item to continue, how many bytes did not come from memory, whether to try again
    when the socket takes more). If that is False, the bytes cannot be sent this way. Raises ConnectionError or
    TimeoutError for a broken socket.
    """
    uncopied = 0
    try:
        while left:
            one = left[0]
            if isinstance(one, bytes | bytearray | memoryview):
                sent = os.write(fd, memoryview(one)[begin:])
            else:
                sent = one.send(fd, begin)
                if not sent:
                    return begin, uncopied, False
                uncopied += sent
            begin += sent
            if begin < len(one):
                break
            if not isinstance(one, bytes | bytearray | memoryview):
                one.release()
            left.popleft()
            begin = 0
    except BlockingIOError:
        return begin, uncopied, True
    except (ConnectionError, TimeoutError):
        raise
    except OSError:
        return begin, uncopied, False
    return begin, uncopied, True


class Writable:
    """Calls a function whenever a transport's socket can be written to, or is broken. The loop watches a duplicate of
    its descriptor.

    room: limits how many of these exist in this process, so that enough descriptors are left for writes to logs.
    """

    room = threading.Semaphore(WRITABLES)

    def __init__(self, fd: int, call: Callable[[], None]) -> None:
        """Call `call` whenever the socket can be written to. Raises OSError: EMFILE if as many sockets as `room`
        allows are watched already.
        """
        if not self.room.acquire(blocking=False):
            raise OSError(errno.EMFILE, "enough sockets are waited for")
        self._room = self.room
        self._loop = asyncio.get_running_loop()
        self.fd = -1
        try:
            self.fd = os.dup(fd)
            self._loop.add_writer(self.fd, call)
        except BaseException:
            self._leave()
            raise

    def close(self) -> None:
        """Stop watching the socket. May be called again."""
        if self.fd >= 0:
            self._loop.remove_writer(self.fd)
            self._leave()

    def _leave(self) -> None:
        """Close the duplicated descriptor, so that another Writable may exist."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
        self._room.release()


class SystemListener(Listener):
    def __init__(
        self, sockets: Sequence[socket.socket], servers: Sequence[asyncio.AbstractServer | TlsAcceptor]
    ) -> None:
        self._sockets = sockets
        self._servers = servers
        self._addresses = [one.getsockname()[:2] for one in sockets]
        for one in sockets:
            forks.keep_from_children(one.fileno())

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return list(self._addresses)

    def close(self) -> None:
        """Accept no more connections; existing ones continue."""
        for one in self._sockets:
            forks.forget(one.fileno())
        for server in self._servers:
            server.close()

    async def wait_closed(self) -> None:
        # Server.wait_closed waits for the connections too, on some versions. uvloop closes its sockets a turn later.
        while any(one.fileno() >= 0 for one in self._sockets):  # noqa: ASYNC110 (nothing would set an event)
            await asyncio.sleep(0.001)


class SystemNet(Net):
    """The machine's network, on the running loop. backlog: how many connections may wait to be accepted."""

    __slots__ = ("_backlog", "_reserved")

    def __init__(self, backlog: int = BACKLOG) -> None:
        self._backlog = backlog
        # The sockets of each reserve(), by host and port.
        self._reserved: dict[tuple[str, int], list[list[socket.socket]]] = {}

    async def listen(
        self, factory: ProtocolFactory | TlsAdmission, host: str, port: int, send_buffer_bytes: int = SYSTEMS_OWN
    ) -> Listener:
        """Listen at host:port; `factory` makes a protocol for each connection. See Net.listen. Raises OSError."""
        loop = asyncio.get_running_loop()
        reserved = self._reserved.get((host, port))
        sockets = reserved.pop(0) if reserved else await self._bind(host, port, send_buffer_bytes)
        servers: list[asyncio.AbstractServer | TlsAcceptor] = []
        try:
            for one in sockets:
                if not callable(factory):
                    one.listen(self._backlog)
                else:
                    servers.append(await loop.create_server(factory, sock=one, backlog=self._backlog))
            if not callable(factory):
                servers.append(TlsAcceptor(sockets, factory))
        except BaseException:
            for server in servers:
                server.close()
            _close_kept(sockets)
            raise
        return SystemListener(sockets, servers)

    async def reserve(self, host: str, port: int, send_buffer_bytes: int = SYSTEMS_OWN) -> None:
        """Let clients connect to host:port, and wait. See Net.reserve. Raises OSError."""
        sockets = await self._bind(host, port, send_buffer_bytes)
        try:
            for one in sockets:
                one.listen(self._backlog)
                forks.keep_from_children(one.fileno())
        except BaseException:
            _close_kept(sockets)
            raise
        self._reserved.setdefault((host, port), []).append(sockets)

    def release(self) -> None:
        """Close what was reserved and is not listened on."""
        reserved, self._reserved = self._reserved, {}
        for each in reserved.values():
            for sockets in each:
                _close_kept(sockets)

    async def _bind(self, host: str, port: int, send_buffer_bytes: int) -> list[socket.socket]:
        """Bind a socket for each address of the host, set its options, and return them. Raises OSError."""
        sockets = bind(await _addresses_of(host, port), dual_stack=host == "::")
        try:
            for one in sockets:
                if send_buffer_bytes != SYSTEMS_OWN:  # accepted connections inherit this
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
                _use_reno_on_loopback(one)
        except BaseException:
            close(sockets)
            raise
        return sockets

    async def connect(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        *,
        tls: "ssl.SSLContext | None" = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect to the first address of the host that answers. See Net.connect. Raises OSError."""
        name = None if tls is None else server_hostname or host
        loop = asyncio.get_running_loop()
        errors: list[OSError] = []
        for address in dict.fromkeys(address[0] for _, address in await resolve(host, port)):
            try:
                return await loop.create_connection(factory, address, port, ssl=tls, server_hostname=name)
            except OSError as error:
                if error.errno not in _NOBODY_THERE:
                    raise
                errors.append(error)
        raise errors[0]


def _use_reno_on_loopback(listener: socket.socket) -> None:
    """Use Reno for connections over loopback, because BBR would send by timers, which takes twice the CPU. Does nothing
    for other addresses and systems.
    """
    address = listener.getsockname()[0]
    if sys.platform == "linux" and (address == "::1" or address.startswith("127.")):
        with contextlib.suppress(OSError):  # this process is not allowed to choose it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)


async def _addresses_of(host: str, port: int) -> list[tuple[int, Any]]:
    """Return (family, address) for each address to listen on; for localhost always both families."""
    if host == "localhost":
        return [(socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET6, ("::1", port, 0, 0))]
    return await resolve(host or None, port, socket.AI_PASSIVE)


async def resolve(host: str | None, port: int | None, flags: int = 0) -> list[tuple[int, Any]]:
    """Return (family, address) for each address of a name. Raises OSError, which includes CannotStartThread.

    The loop's own method is not used: if no thread can be started, asyncio leaves the lookup in a queue, and uvloop
    (libuv) ends the process.
    """
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = ask(flags=flags | socket.AI_NUMERICHOST)  # no name server is asked
    except socket.gaierror:
        found = await call_in_thread(partial(ask, flags=flags), f"the address of {host}")
    return [(family, address) for family, _, _, _, address in dict.fromkeys(found)]


def _close_kept(sockets: Sequence[socket.socket]) -> None:
    """Close sockets that were kept from forked children."""
    for one in sockets:
        forks.forget(one.fileno())
    close(sockets)


def bind(addresses: Sequence[tuple[int, Any]], *, dual_stack: bool) -> list[socket.socket]:
    """Bind a socket for each (family, address), all at the same port, and return them. Raises OSError.

    Families that this machine lacks are left out. dual_stack: IPv6 sockets take IPv4 connections too.
    """
    for tries_left in reversed(range(_PORT_TRIES)):
        try:
            return _bind_once(addresses, dual_stack)
        except OSError as error:
            # With port 0: the port that the system gave to the first family may be taken in the second. Then try again.
            any_port = all(address[1] == 0 for _, address in addresses)
            if error.errno != errno.EADDRINUSE or not any_port or len(addresses) == 1 or not tries_left:
                raise
    raise AssertionError("unreachable")


def _bind_once(addresses: Sequence[tuple[int, Any]], dual_stack: bool) -> list[socket.socket]:
    """Bind a socket for each address, and return them. If the port is 0, all get the one that the first is given.
    Raises OSError.
    """
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, (host, port, *rest) in addresses:
            try:
                bound.append(_bind(family, (host, port or _port_of(bound), *rest), dual_stack))
            except OSError as error:
                if error.errno not in _ADDRESS_MISSING:
                    raise
                missing = error
        if not bound:
            raise missing or OSError(errno.EADDRNOTAVAIL, "the name has no address to listen on")
    except BaseException:
        close(bound)
        raise
    return bound


def _bind(family: int, address: tuple[Any, ...], dual_stack: bool) -> socket.socket:
    """Make a socket, bind it to this address, and return it. Raises OSError."""
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not dual_stack)
        one.setblocking(False)
        one.bind(address)
    except BaseException:
        one.close()
        raise
    return one


def _port_of(bound: Sequence[socket.socket]) -> int:
    """Return the port of the first socket; 0 if there is none."""
    return int(bound[0].getsockname()[1]) if bound else 0


def close(sockets: Sequence[socket.socket]) -> None:
    for one in sockets:
        one.close()

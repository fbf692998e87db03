"""The server: accepts connections, limits how many there are, and closes them.

The rules: a connection beyond the limits is closed at once, at no cost to others. Large requests are read only while
all of them together fit in `queued.max.request.bytes`. A connection over which nothing is received or sent is closed
after `connections.max.idle.ms`. When the broker halts, every connection is closed without an answer.

Source: Kafka's SocketServer, ConnectionQuotas.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ...effects import forks
from ...effects.clock import Clock
from ...effects.net import Listener, Net, descriptor_of
from ...effects.tls import Handshake, TlsAdmission
from ...protocol.primitives import Readable
from ...storage.store import BrokerHalted, Store
from ..config.listener_settings import ListenerSettings
from ..config.quota_settings import connections_of_addresses
from ..config.settings import BrokerSettings
from ..metrics import Metrics
from ..quotas.connection_pace import ConnectionPace
from ..rare_log import RareLog
from ..rounds import Rounds
from ..security.principals import ANONYMOUS, Session, plain_host
from .connection import Connection
from .request_memory import RequestMemory

if TYPE_CHECKING:
    from ssl import SSLContext

log = logging.getLogger("fencepost.broker")

CONGESTION_CHECK_S = 0.01  # how often stalled connections look again, without being called
SHORTEST_SWEEP_MS = 50
NO_LIMIT = -1
UNBOUNDED = 1 << 62


class ServedConnection(Connection, asyncio.Protocol):
    """A connection that is served, as an asyncio protocol."""

    __slots__ = ("admission", "descriptor", "handshake", "server")

    def __init__(self, server: "Server", admission: "ConnectionAdmission", handshake: Handshake | None = None) -> None:
        """admission: what the listener requires of new connections. handshake: the connection's TLS handshake, which
        has succeeded; None without TLS.
        """
        super().__init__(server, server.settings().socket_request_max_bytes)
        self.server = server
        self.listener = admission.settings
        self.admission = admission
        self.handshake = handshake
        self.descriptor = -1  # of its socket; −1 in the simulation

    def connection_made(self, transport: Any) -> None:
        """Note the client's address, and register the connection at the server. Called by the loop."""
        peer = transport.get_extra_info("peername")
        here = transport.get_extra_info("sockname")
        self.client_host = str(peer[0]) if peer else ""
        self.session = Session(ANONYMOUS, self.client_host)
        self.listener_address = (str(here[0]), int(here[1])) if here else ("", 0)
        self.transport = transport
        if self.handshake is not None:
            self.server.handshake_over(self.admission, self.handshake)
            self.handshake = None
        self.descriptor = descriptor_of(transport)
        forks.keep_from_children(self.descriptor)
        self.server.arrived(self)
        if not self._reading:
            self.server.soon(self.pause_again)

    @property
    def address(self) -> str:
        """The client's IP address, in the form that is compared with those of settings and quotas."""
        return self.session.host

    @property
    def is_counted(self) -> bool:
        """Whether the connection was already counted for the connection rate of its address, which is done when a TLS
        handshake begins.
        """
        return self.admission.certificate is not None

    def connection_lost(self, reason: BaseException | None) -> None:
        """Release all resources. Called by the loop when either side has closed the connection."""
        forks.forget(self.descriptor)
        super().connection_lost(reason)


def _most_of(host: str, settings: BrokerSettings) -> int:
    """Return how many connections this host may have: its entry in max.connections.per.ip.overrides, else
    max.connections.per.ip.
    """
    overrides = settings.max_connections_per_ip_overrides
    one = connections_of_addresses(overrides).get(plain_host(host)) if overrides else None
    return settings.max_connections_per_ip if one is None else one


class ConnectionAdmission(Protocol):
    """What one listener does with each new connection, such as requiring a login. The server calls its methods.

    certificate: contains the TLS context; None without TLS.
    """

    settings: ListenerSettings

    @property
    def certificate(self) -> "HasContext | None":
        """The certificate with the TLS context; None without TLS."""
        ...

    def handshake_begun(self, handshake: Handshake) -> None:
        """Called when a client has connected, and its TLS handshake begins."""

    def handshake_ended(self, handshake: Handshake) -> None:
        """Called when the TLS handshake has succeeded or failed."""

    def connection_opened(self, connection: Connection) -> None:
        """Called when a client has connected (with TLS: after its handshake), before its first request."""


class HasContext(Protocol):
    @property
    def context(self) -> "SSLContext":
        """The TLS context of a server."""
        ...


class AdmitAll(ConnectionAdmission):
    """Admits every connection, without TLS and login."""

    certificate = None

    def __init__(self, settings: ListenerSettings) -> None:
        self.settings = settings

    def handshake_begun(self, handshake: Handshake) -> None:
        return

    def handshake_ended(self, handshake: Handshake) -> None:
        return

    def connection_opened(self, connection: Connection) -> None:
        return


class _ServerTlsAdmission(TlsAdmission):
    """Starts the TLS handshakes of one listener, within the limits of the server."""

    def __init__(self, server: "Server", admission: ConnectionAdmission) -> None:
        self._server = server
        self._admission = admission

    def context(self) -> "SSLContext":
        """Return the TLS context for handshakes that begin now."""
        assert self._admission.certificate is not None
        return self._admission.certificate.context

    @property
    def timeout_s(self) -> float:
        """How many seconds a handshake may take."""
        return self._server.settings().connection_login_timeout_ms / 1000

    def admit(self, handshake: Handshake) -> Callable[[], asyncio.Protocol] | None:
        """Return a function that makes the connection after this handshake; None if there are too many connections."""
        if not self._server.handshake_begins(self._admission, handshake):
            return None
        return partial(ServedConnection, self._server, self._admission, handshake)

    def failed(self, handshake: Handshake, reason: str) -> None:
        """Count and log a TLS handshake that failed."""
        self._server.handshake_over(self._admission, handshake)
        self._server.metrics.failed_handshakes += 1
        self._server.rare_log.write(logging.INFO, "TLS with %s did not succeed: %s", handshake.host, reason)


class Server:
    """All connections of one broker. Each request is passed to `serve`."""

    def __init__(
        self,
        net: Net,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        settings: Callable[[], BrokerSettings],
        store: Store,
        rounds: Rounds,
        metrics: Metrics,
        serve: Callable[[Connection, Readable], None],
    ) -> None:
        """settings: returns the present settings. serve: handles one request of a connection."""
        self.settings = settings  # returns the present ones: some change at runtime
        self.metrics = metrics
        self.serve = serve
        self.touch: Callable[[Connection], None] = rounds.touch
        self.soon: Callable[[Callable[[], None]], object] = loop.call_soon
        self.connections: dict[Connection, None] = {}  # in the order they came: runs under virtual time repeat exactly
        metrics.connections = self.connections
        self.at_end: list[Callable[[Connection], None]] = []  # called with each connection that has ended
        self.handshakes: dict[Handshake, None] = {}  # TLS handshakes that have not ended
        self.addresses: list[tuple[str, int]] = []
        self.most_connections = UNBOUNDED  # as many as this process can serve
        self.pace: ConnectionPace[ServedConnection] | None = None  # decides when new ones are let in
        self._net = net
        self._clock = clock
        self._loop = loop
        self.rare_log = RareLog(log, clock.monotonic_ms)  # for log lines that clients can cause
        self.store = store
        self._rounds = rounds
        self._by_host: Counter[str] = Counter()
        self._listeners: list[Listener] = []
        pool_bytes = settings().queued_max_request_bytes
        self._memory = RequestMemory(UNBOUNDED if pool_bytes == NO_LIMIT else pool_bytes, clock, loop, metrics)
        self.reserve = self._memory.reserve
        self.give_back = self._memory.give_back
        self._stalled: dict[Connection, None] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._stopping = False
        self._emptied: asyncio.Event | None = None
        self._turns_away = False

    # ---- start and stop --------------------------------------------------------------------------------------

    async def listen(self, admissions: Sequence[ConnectionAdmission]) -> None:
        """Listen on the address of each listener. If a port is 0, the system chooses a free one.

        Raises OSError if it is impossible for one address; then the server listens on none.
        """
        try:
            for admission in admissions:
                factory = (
                    _ServerTlsAdmission(self, admission)
                    if admission.certificate
                    else partial(ServedConnection, self, admission)
                )
                host, port, send_buffer_bytes = (
                    admission.settings.host,
                    admission.settings.port,
                    self.settings().socket_send_buffer_bytes,
                )
                listener = await self._net.listen(factory, host, port, send_buffer_bytes)
                self._listeners.append(listener)
                self.addresses += listener.addresses
        except BaseException:
            await self.stop_listening()
            raise
        self._sweep()

    async def stop_listening(self) -> None:
        """Accept no more connections; existing ones stay."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.close()
        for listener in listeners:
            await listener.wait_closed()

    async def stop(self, grace_s: float = 1.0) -> None:
        """Stop listening, and close all connections after the replies already written have been sent. Waiting requests
        are not answered.

        grace_s: how many seconds clients have to read these replies, before their connections are aborted.
        """
        self._stopping = True
        await self.stop_listening()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._memory.close()
        for handshake in list(self.handshakes):
            handshake.abort()
        for connection in list(self.connections):
            connection.hang_up()
        if self.connections:
            self._emptied = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._emptied.wait()
        self.abort_all()

    def abort_all(self) -> None:
        """Close every connection and handshake now, without replies. Called when the broker fails or stops."""
        for connection in list(self.connections):
            connection.abort()
        for handshake in list(self.handshakes):
            handshake.abort()

    def turn_away(self) -> None:
        """Close all connections, and refuse new ones until welcome() is called."""
        self._turns_away = True
        self.abort_all()

    def welcome(self) -> None:
        """Accept connections again."""
        self._turns_away = False

    # ---- connections come and go -----------------------------------------------------------------------------

    def arrived(self, connection: ServedConnection) -> None:
        """Register a new connection, and serve it; close it if there are too many."""
        host = connection.client_host
        refused = self._is_refused(host)
        self._by_host[host] += 1
        self.connections[connection] = None
        if refused:
            connection.abort()
            return
        self.metrics.accepted_connections += 1
        connection.number = self.metrics.accepted_connections
        connection.idle_since_ms = self._clock.monotonic_ms()
        if self.pace is None:
            self.let_in(connection)
        else:
            self.pace.arrived(connection)

    @staticmethod
    def let_in(connection: ServedConnection) -> None:
        """Begin to serve a connection; its listener may demand a login first. Called once the rate of connections
        allows it.
        """
        connection.admission.connection_opened(connection)

    def _is_refused(self, host: str) -> bool:
        """Return whether one more connection of this host is refused, because there are too many; if so, log why."""
        if self._turns_away:  # the reason was logged when this began; clients may try very often
            self.metrics.refused_connections += 1
            return True
        settings, there_are = self.settings(), len(self.connections) + len(self.handshakes)
        refused = ""
        if self._stopping or self.store.halted is not None:
            refused = "the broker is stopping"
        elif there_are >= settings.max_connections:
            refused = f"there are {settings.max_connections} connections already (max.connections)"
        elif there_are >= self.most_connections:
            refused = f"there are {self.most_connections} connections already, as many as its open files allow"
        elif self._by_host[host] >= (most := _most_of(host, settings)):
            refused = f"it has {most} connections already (max.connections.per.ip)"
        if refused:
            self.metrics.refused_connections += 1
            self.rare_log.write(logging.WARNING, "a connection from %s is refused: %s", host, refused)
        return bool(refused)

    def handshake_begins(self, admission: ConnectionAdmission, handshake: Handshake) -> bool:
        """Count a client that has connected to a TLS listener. Returns False if there are too many connections, or if
        they come too fast, so that the caller closes this one.
        """
        if self._is_refused(handshake.host):
            return False
        if self.pace is not None and self.pace.is_too_fast(plain_host(handshake.host)):
            return False
        self._by_host[handshake.host] += 1
        self.handshakes[handshake] = None
        admission.handshake_begun(handshake)
        return True

    def handshake_over(self, admission: ConnectionAdmission, handshake: Handshake) -> None:
        """Stop counting a TLS handshake that has ended. If it has succeeded, its connection is counted instead."""
        del self.handshakes[handshake]
        self._left(handshake.host)
        admission.handshake_ended(handshake)

    def lost(self, connection: Connection) -> None:
        """Forget a connection that has ended, add its bytes to the metrics, and call the functions in at_end."""
        if connection in self.connections:
            del self.connections[connection]
            self.metrics.left(connection)
        self._stalled.pop(connection, None)
        self._rounds.forget(connection)
        self._left(connection.client_host)
        for tell in self.at_end:
            tell(connection)
        if self._emptied is not None and not self.connections:
            self._emptied.set()

    def _left(self, host: str) -> None:
        """Count one connection less for this host."""
        self._by_host[host] -= 1
        if self._by_host[host] <= 0:
            del self._by_host[host]

    def read_no_more(self) -> None:
        """Handle no further request of any connection, because the broker stops. Earlier requests are answered."""
        for connection in list(self.connections):
            connection.read_no_more()

    def failed(self, connection: Connection, error: Exception) -> None:
        """Close the connection after an unexpected error; log it as a bug unless the broker has failed as a whole."""
        if not isinstance(error, BrokerHalted):
            self.metrics.failed(error)
            log.error("a request of %s failed, cutting its connection", connection.client_host, exc_info=error)
        connection.abort()

    def malformed(self, connection: Connection, reason: str) -> None:
        """Log that a connection is closed because its client sent bytes that are no request."""
        self.metrics.closed_malformed += 1
        who = connection.client_host, connection.client_id
        self.rare_log.write(logging.WARNING, "closing the connection of %s (%r): %s", *who, reason)

    def _sweep(self) -> None:
        """Close the connections that were idle for connections.max.idle.ms, and schedule the next check."""
        idle_ms = self.settings().connections_max_idle_ms
        if idle_ms == NO_LIMIT:
            return
        now_ms = self._clock.monotonic_ms()
        for connection in list(self.connections):
            if connection.is_active():
                connection.idle_since_ms = now_ms
            elif now_ms - connection.idle_since_ms >= idle_ms:
                self.metrics.closed_idle += 1
                connection.abort()
        self._sweeper = self._loop.call_later(max(SHORTEST_SWEEP_MS, idle_ms // 4) / 1000, self._sweep)

    # ---- what is full ----------------------------------------------------------------------------------------

    def stalled(self, connection: Connection) -> None:
        """Note that a connection waits with a Produce because the store is full. It continues when there is room."""
        self.metrics.stalls += 1
        if not self._stalled:
            self._loop.call_later(CONGESTION_CHECK_S, self._look_again)
        self._stalled[connection] = None

    def _look_again(self) -> None:
        """Let connections that wait for the store continue if it has room; else try later. Called by a timer."""
        if self._stalled:
            self.relieve()
            if self._stalled:
                self._loop.call_later(CONGESTION_CHECK_S, self._look_again)

    def relieve(self) -> None:
        """Let the connections that wait for room in the store continue, if there is some now."""
        if not self.store.congested:
            stalled, self._stalled = self._stalled, {}
            for connection in stalled:
                connection.relieved()

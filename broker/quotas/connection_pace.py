"""Limits the rate of new connections, for each address and for the whole broker. Pure except for the timer.

The rules are Kafka's (KIP-612). Over the broker's rate (`max.connection.creation.rate`), new connections wait in order.
A connection over the rate of its address (the quota `connection_creation_rate`) is not read for the time that it should
have waited, and is then closed; it does not count. No wait is longer than one window. With TLS, the rate of the address
is checked before the handshake, and a connection over it is closed at once. Source: Kafka's SocketServer,
ConnectionQuotas.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ...effects.clock import Clock
from ..config.quota_settings import UNLIMITED
from ..metrics import Metrics
from .entities import CONNECTION_CREATION_RATE, Limit, Quotas
from .limits import Rates
from .rates import Windows

OF_BROKER = "broker_connection_creation_rate"  # its name in metrics


class Arriving(Protocol):
    """The attributes of a new connection that ConnectionPace uses."""

    @property
    def address(self) -> str:
        """The client's IP address."""
        ...

    @property
    def is_counted(self) -> bool:
        """Whether is_too_fast() has counted the connection already, when its TLS handshake began."""
        ...

    @property
    def transport(self) -> object | None:
        """The connection's transport; None once the connection is closed."""
        ...

    def mute(self) -> None:
        """Handle no request of this connection until unmute()."""
        ...

    def unmute(self) -> None:
        """Handle the connection's requests again."""
        ...

    def abort(self) -> None:
        """Close the connection now."""
        ...


C = TypeVar("C", bound=Arriving)


class ConnectionPace(Generic[C]):
    """Delays or closes new connections that come too fast. let_in: called with each connection that may be served."""

    def __init__(
        self,
        quotas: Quotas,
        windows: Callable[[], Windows],
        broker_rate: Callable[[], int],
        clock: Clock,
        call_later: Callable[..., object],
        metrics: Metrics,
        let_in: Callable[[C], None],
    ) -> None:
        """quotas: contains the rates of addresses. windows: returns the windows over which a rate is measured.
        broker_rate: returns how many connections per second all addresses together may open. call_later: the event
        loop's, with seconds and a callback. let_in: called with each connection that may be served.
        """
        self._quotas = quotas
        self._broker_rate = broker_rate
        self._clock = clock
        self._call_later = call_later
        self._metrics = metrics
        self._let_in = let_in
        self._of_broker = Rates(windows, cut=True)
        self._of_addresses = Rates(windows, cut=True)
        self._waiting: deque[C] = deque()

    def __len__(self) -> int:
        """Return how many addresses are measured."""
        return len(self._of_addresses)

    def arrived(self, connection: C) -> None:
        """Serve a new connection: now, or after a wait if the broker's rate is exceeded. If the rate of its address is
        exceeded, mute it and close it later.
        """
        if self._waiting:
            connection.mute()
            self._waiting.append(connection)
            return
        if self._broker_rate() >= UNLIMITED and not self._quotas.has_any(CONNECTION_CREATION_RATE):
            self._let_in(connection)
            return
        wait_ms = self._broker_wait_ms()
        if not wait_ms:
            self._judge_address(connection)
            return
        connection.mute()
        self._waiting.append(connection)
        self._call_later(wait_ms / 1000, self._next)

    def _next(self) -> None:
        """Serve the first waiting connection, whose wait is over, and the next ones that need not wait. Called by a
        timer.
        """
        first = self._waiting.popleft()
        if first.transport is not None:
            first.unmute()
            self._judge_address(first)
        while self._waiting:
            first = self._waiting[0]
            if first.transport is not None:
                wait_ms = self._broker_wait_ms()
                if wait_ms:
                    self._call_later(wait_ms / 1000, self._next)
                    return
                first.unmute()
                self._judge_address(first)
            self._waiting.popleft()

    def _broker_wait_ms(self) -> int:
        """Count a connection in the broker's rate. Returns how many ms it has to wait."""
        if (most := self._broker_rate()) >= UNLIMITED:
            return 0
        wait_ms = self._of_broker.record(Limit(("", ""), most), 1, self._clock.monotonic_ms())
        if wait_ms:
            self._metrics.throttled(OF_BROKER, wait_ms)
        return wait_ms

    def is_too_fast(self, address: str) -> bool:
        """Count a connection in the rate of its address. Returns whether the rate is exceeded, so that it must be
        closed.
        """
        return self._address_wait_ms(address) > 0

    def _judge_address(self, connection: C) -> None:
        """Serve the connection; but if its address exceeds its rate, mute it instead, and close it after the wait."""
        wait_ms = 0 if connection.is_counted else self._address_wait_ms(connection.address)
        if wait_ms:
            connection.mute()
            self._call_later(wait_ms / 1000, connection.abort)
        else:
            self._let_in(connection)

    def _address_wait_ms(self, address: str) -> int:
        """Return how many ms a connection of this address must wait. If it is 0, the connection is counted in the
        address's rate.
        """
        value = self._quotas.address_limit(address)
        if value is None:
            return 0
        now_ms, limit = self._clock.monotonic_ms(), Limit((address, ""), value)
        wait_ms = self._of_addresses.record(limit, 1, now_ms)
        if wait_ms:
            self._of_addresses.take_back(limit, 1, now_ms)
            self._metrics.throttled(CONNECTION_CREATION_RATE, wait_ms)
            self._metrics.refused_connections += 1
        return wait_ms

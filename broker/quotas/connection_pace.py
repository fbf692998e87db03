"""How fast new connections are served: so many a second from one address, and over all. Pure but for the timer.

The rules are Kafka's (KIP-612): over the broker's rate a new connection waits, and those behind it wait for it. One
over the rate of its address is kept unread for as long as it should have waited, and then closed; it does not count.
Addresses have a quota (`connection_creation_rate`), the broker a setting (`max.connection.creation.rate`). A wait is
one window at the most. With TLS the rate of an address is looked at before the handshake, and who is over it is closed
at once. Source: Kafka's SocketServer, ConnectionQuotas.
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

OF_BROKER = "broker_connection_creation_rate"  # in metrics


class Arriving(Protocol):
    """What is asked of a connection. is_counted: is_too_fast was asked before."""

    @property
    def address(self) -> str: ...
    @property
    def is_counted(self) -> bool: ...
    @property
    def transport(self) -> object | None: ...
    def mute(self) -> None: ...
    def unmute(self) -> None: ...
    def abort(self) -> None: ...


C = TypeVar("C", bound=Arriving)


class ConnectionPace(Generic[C]):
    """Of one broker. let_in: called with each connection whose turn has come."""

    def __init__(
        self,
        quotas: Quotas,
        windows: Callable[[], Windows],
        most: Callable[[], int],
        clock: Clock,
        call_later: Callable[..., object],
        metrics: Metrics,
        let_in: Callable[[C], None],
    ) -> None:
        """most: connections a second over all addresses. call_later: the loop's, of seconds and a callback."""
        self._quotas = quotas
        self._most = most
        self._clock = clock
        self._call_later = call_later
        self._metrics = metrics
        self._let_in = let_in
        self._of_broker = Rates(windows, cut=True)
        self._of_addresses = Rates(windows, cut=True)
        self._waiting: deque[C] = deque()

    def __len__(self) -> int:
        """Addresses that are measured."""
        return len(self._of_addresses)

    def arrived(self, connection: C) -> None:
        """A new connection: let it in now or later, or close it later."""
        if self._waiting:
            connection.mute()
            self._waiting.append(connection)
            return
        if self._most() >= UNLIMITED and not self._quotas.has_any(CONNECTION_CREATION_RATE):
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
        """The wait of the first is over."""
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
        """One more comes; how long it waits."""
        if (most := self._most()) >= UNLIMITED:
            return 0
        wait_ms = self._of_broker.record(Limit(("", ""), most), 1, self._clock.monotonic_ms())
        if wait_ms:
            self._metrics.throttled(OF_BROKER, wait_ms)
        return wait_ms

    def is_too_fast(self, address: str) -> bool:
        """Whether one more is over the rate of its address, which is not to be let in then."""
        return self._address_wait_ms(address) > 0

    def _judge_address(self, connection: C) -> None:
        wait_ms = 0 if connection.is_counted else self._address_wait_ms(connection.address)
        if wait_ms:
            connection.mute()
            self._call_later(wait_ms / 1000, connection.abort)
        else:
            self._let_in(connection)

    def _address_wait_ms(self, address: str) -> int:
        """One more comes; how long it should have waited."""
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

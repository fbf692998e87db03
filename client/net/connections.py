"""The connections of one client: at most one to each broker for each purpose, opened when they are asked for.

The rules: who asks while one is being opened waits for that one, and being cancelled does not stop it for the others.
After a failure, or a connection that did not last, the next try waits; longer each time (KIP-144, KIP-580). A broker
answers one connection in order, so requests that wait at the broker have a connection of their own, named by its
purpose ("fetch", "coordinator"): they are not to hold up requests that do not wait. The others have purpose "".
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..errors import BrokerUnreachableError, ClosedError
from ..settings import Address, ConnectionSettings
from ..snapshots import ConnectionSnapshot, error_text
from .connection import Connection, log
from .environment import Environment
from .opening import open_connection
from .retry import Backoff

if TYPE_CHECKING:
    import ssl

RETIRED_LASTS_S = 30.0


class _Place:
    """Where one connection is, will be, or was."""

    __slots__ = ("connection", "error", "failures", "node_id", "not_before_ms", "opened_ms", "opening", "purpose")

    def __init__(self, node_id: int, purpose: str) -> None:
        self.node_id = node_id
        self.purpose = purpose
        self.connection: Connection | None = None
        self.opening: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.error: str | None = None  # why the last one ended, or was not opened
        self.not_before_ms = 0.0
        self.opened_ms = 0


class Connections:
    """address_of: where a node is now. on_lost: a connection has ended that nobody closed: its node and purpose."""

    def __init__(
        self,
        settings: ConnectionSettings,
        environment: Environment,
        address_of: Callable[[int], Address | None],
        on_lost: Callable[[int, str], None],
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._address_of = address_of
        self._on_lost = on_lost
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._places: dict[tuple[int, str], _Place] = {}
        self._closed = False
        self._tls: ssl.SSLContext | None = None
        self._tls_made = False

    def ready(self, node_id: int, purpose: str = "") -> Connection | None:
        """The open connection, if there is one. Never waits."""
        place = self._places.get((node_id, purpose))
        if place is None:
            return None
        connection = place.connection
        if connection is None or connection.closed or connection.is_retired:
            return None
        return connection

    def free(self) -> Connection | None:
        """The open one with the least to do, of those without a purpose: nothing waits at the broker there."""
        found = [
            place.connection for place in self._places.values() if place.connection is not None and not place.purpose
        ]
        return min((one for one in found if not one.closed and not one.is_retired), key=_in_flight, default=None)

    def backing_off_ms(self, node_id: int, purpose: str = "") -> float:
        """How long node() would wait before it tries."""
        place = self._places.get((node_id, purpose))
        return 0.0 if place is None else max(0.0, place.not_before_ms - self._environment.clock.monotonic_ms())

    async def node(self, node_id: int, purpose: str = "") -> Connection:
        """The connection, opened if need be. Raises BrokerUnreachableError, AuthenticationError, ClosedError."""
        ready = self.ready(node_id, purpose)
        if ready is not None:
            return ready
        if self._closed:
            raise ClosedError("the client is closed")
        place = self._places.setdefault((node_id, purpose), _Place(node_id, purpose))
        opening = place.opening
        if opening is None:
            opening = place.opening = asyncio.get_running_loop().create_task(self._open(place))
            opening.add_done_callback(_looked_at)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            asker = asyncio.current_task()
            if opening.cancelled() and (asker is None or not asker.cancelling()):
                raise ClosedError("the client was closed meanwhile") from None
            raise

    async def _open(self, place: _Place) -> Connection:
        clock = self._environment.clock
        try:
            wait_ms = place.not_before_ms - clock.monotonic_ms()
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000)
            address = self._address_of(place.node_id)
            if address is None:
                raise BrokerUnreachableError(f"there is no broker {place.node_id} in the cluster's metadata")
            node_id = max(place.node_id, -1)
            connection = await open_connection(
                address, self._settings, self._environment, self._context(), node_id=node_id
            )
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                self._note_failure(place, error)
            raise
        finally:
            place.opening = None
        place.opened_ms = clock.monotonic_ms()
        self._replace(place, connection)
        connection.on_lost.append(partial(self._drop, place))
        return connection

    def _replace(self, place: _Place, connection: Connection) -> None:
        before, place.connection = place.connection, connection
        if before is not None and not before.closed:  # retired: its last answers may still come
            asyncio.get_running_loop().call_later(RETIRED_LASTS_S, before.close)

    def _note_failure(self, place: _Place, error: BaseException) -> None:
        place.error = error_text(error)  # not itself: it holds the frames that it came through
        delay_ms = self._backoff.delay_ms(place.failures, self._environment.rng.random())
        place.failures += 1
        place.not_before_ms = self._environment.clock.monotonic_ms() + delay_ms

    def _drop(self, place: _Place, connection: Connection, error: BaseException | None) -> None:
        if place.connection is connection:
            place.connection = None
        if error is None or self._closed:
            return
        log.info("lost: %s", error)
        if self._environment.clock.monotonic_ms() - place.opened_ms > self._backoff.max_ms:
            place.failures = 0
        self._note_failure(place, error)
        self._on_lost(place.node_id, place.purpose)

    def snapshots(self) -> tuple[ConnectionSnapshot, ...]:
        """All that are open, or were."""
        found: list[ConnectionSnapshot] = []
        for place in self._places.values():
            connection, address = place.connection, self._address_of(place.node_id)
            broker = "" if address is None else f"{address[0]}:{address[1]}"
            is_open = connection is not None and not connection.closed
            in_flight = 0 if connection is None else connection.in_flight
            failed = place.failures, place.error
            found.append(ConnectionSnapshot(broker, place.node_id, place.purpose, is_open, in_flight, *failed))
        return tuple(found)

    def adopt(self, from_node: int, node_id: int) -> None:
        """What was opened to find the cluster turns out to be this node's: it goes on as that."""
        place, target = self._places.get((from_node, "")), self._places.get((node_id, ""))
        if place is None or place.connection is None or place.connection.closed:
            return
        if target is not None and (target.connection is not None or target.opening is not None):
            return
        del self._places[from_node, ""]
        place.node_id = place.connection.node_id = node_id
        self._places[node_id, ""] = place

    def _context(self) -> "ssl.SSLContext | None":
        if not self._tls_made:
            self._tls = self._settings.security.tls_context()
            self._tls_made = True
        return self._tls

    async def close(self) -> None:
        """Idempotent; waits for nobody."""
        self._closed = True
        opening = [place.opening for place in self._places.values() if place.opening is not None]
        for place in self._places.values():
            if place.opening is not None:
                place.opening.cancel()
            if place.connection is not None:
                place.connection.close()
        if opening:
            await asyncio.gather(*opening, return_exceptions=True)


def _in_flight(connection: Connection) -> int:
    return connection.in_flight


def _looked_at(task: "asyncio.Task[Connection]") -> None:
    """Who asked may have gone: its error is then nobody's."""
    if not task.cancelled():
        task.exception()

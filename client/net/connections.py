"""The connections of one client: at most one for each broker and purpose, opened when first needed.

The rules: callers that need a connection that is being opened share that attempt; cancelling one of them does not stop
it for the others. After a failure, or a connection that ended soon, the next attempt waits, longer each time (KIP-144,
KIP-580). A broker answers the requests of a connection in order, so requests that may wait at the broker have their own
connection, with a purpose ("fetch", "coordinator"), and do not delay others. All others have purpose "".
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..addresses import Address
from ..errors import BrokerUnreachableError, ClosedError
from ..settings import ConnectionSettings
from ..snapshots import ConnectionSnapshot, error_text
from .connection import Connection, log
from .environment import Environment
from .opening import login_of, open_connection
from .retry import Backoff

if TYPE_CHECKING:
    import ssl

RETIRED_LASTS_S = 30.0


class _Slot:
    """The connection for one broker and purpose: open, being opened, or lost."""

    __slots__ = ("connection", "error", "failures", "node_id", "not_before_ms", "opened_ms", "opening", "purpose")

    def __init__(self, node_id: int, purpose: str) -> None:
        self.node_id = node_id
        self.purpose = purpose
        self.connection: Connection | None = None
        self.opening: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.error: str | None = None  # why the last connection ended, or could not be opened
        self.not_before_ms = 0.0
        self.opened_ms = 0


class Connections:
    """The connections of one client.

    address_of: returns a node's current address. on_lost: called with node id and purpose when a connection ends by an
    error.
    """

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
        self._slots: dict[tuple[int, str], _Slot] = {}
        self._closed = False
        self._tls: ssl.SSLContext | None = None
        self._tls_made = False
        self._login = login_of(settings, environment)

    def ready(self, node_id: int, purpose: str = "") -> Connection | None:
        """Return the open connection to this node for this purpose; None if there is none."""
        slot = self._slots.get((node_id, purpose))
        if slot is None:
            return None
        connection = slot.connection
        if connection is None or connection.closed or connection.is_retired:
            return None
        return connection

    def free(self) -> Connection | None:
        """Return the open connection without a purpose with the fewest requests in flight; None if there is none."""
        found = [slot.connection for slot in self._slots.values() if slot.connection is not None and not slot.purpose]
        return min((one for one in found if not one.closed and not one.is_retired), key=_in_flight, default=None)

    def backing_off_ms(self, node_id: int, purpose: str = "") -> float:
        """Return how many ms node() would wait before it tries to connect, after failed attempts; 0 for none."""
        slot = self._slots.get((node_id, purpose))
        return 0.0 if slot is None else max(0.0, slot.not_before_ms - self._environment.clock.monotonic_ms())

    async def node(self, node_id: int, purpose: str = "") -> Connection:
        """Return the connection, opened if needed. Raises BrokerUnreachableError, AuthenticationError, ClosedError."""
        ready = self.ready(node_id, purpose)
        if ready is not None:
            return ready
        if self._closed:
            raise ClosedError("the client is closed")
        slot = self._slots.setdefault((node_id, purpose), _Slot(node_id, purpose))
        opening = slot.opening
        if opening is None:
            opening = slot.opening = asyncio.get_running_loop().create_task(self._open(slot))
            opening.add_done_callback(_mark_retrieved)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if opening.cancelled() and (caller is None or not caller.cancelling()):
                raise ClosedError("the client was closed while it was connecting") from None
            raise

    async def _open(self, slot: _Slot) -> Connection:
        """Connect to the slot's broker, after the wait that earlier failures require, and put the connection into the
        slot. Raises the error of the attempt.
        """
        clock = self._environment.clock
        try:
            wait_ms = slot.not_before_ms - clock.monotonic_ms()
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000)
            address = self._address_of(slot.node_id)
            if address is None:
                raise BrokerUnreachableError(f"there is no broker {slot.node_id} in the cluster's metadata")
            node_id = max(slot.node_id, -1)
            connection = await open_connection(
                address, self._settings, self._environment, self._context(), login=self._login, node_id=node_id
            )
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                self._note_failure(slot, error)
            raise
        finally:
            slot.opening = None
        slot.opened_ms = clock.monotonic_ms()
        self._replace(slot, connection)
        connection.on_lost.append(partial(self._drop, slot))
        return connection

    def _replace(self, slot: _Slot, connection: Connection) -> None:
        """Set the slot's connection; close the one before it RETIRED_LASTS_S later."""
        before, slot.connection = slot.connection, connection
        if before is not None and not before.closed:  # it is retired, but may have requests in flight
            asyncio.get_running_loop().call_later(RETIRED_LASTS_S, before.close)

    def _note_failure(self, slot: _Slot, error: BaseException) -> None:
        """Remember why the slot's connection failed, and set when the next attempt may begin."""
        slot.error = error_text(error)  # its text only: an exception keeps the frames of its traceback alive
        delay_ms = self._backoff.delay_ms(slot.failures, self._environment.rng.random())
        slot.failures += 1
        slot.not_before_ms = self._environment.clock.monotonic_ms() + delay_ms

    def _drop(self, slot: _Slot, connection: Connection, error: BaseException | None) -> None:
        """Forget a connection that has ended; its next use connects again, after a pause if an error ended it. error:
        None if this client closed it.
        """
        if slot.connection is connection:
            slot.connection = None
        if error is None or self._closed:
            return
        log.info("lost: %s", error)
        if self._environment.clock.monotonic_ms() - slot.opened_ms > self._backoff.max_ms:
            slot.failures = 0
        self._note_failure(slot, error)
        self._on_lost(slot.node_id, slot.purpose)

    def snapshots(self) -> tuple[ConnectionSnapshot, ...]:
        """Return one snapshot for each broker and purpose that ever needed a connection."""
        found: list[ConnectionSnapshot] = []
        for slot in self._slots.values():
            connection, address = slot.connection, self._address_of(slot.node_id)
            broker = "" if address is None else f"{address[0]}:{address[1]}"
            is_open = connection is not None and not connection.closed
            in_flight = 0 if connection is None else connection.in_flight
            failed = slot.failures, slot.error
            found.append(ConnectionSnapshot(broker, slot.node_id, slot.purpose, is_open, in_flight, *failed))
        return tuple(found)

    def adopt(self, from_node: int, node_id: int) -> None:
        """Use the connection to a bootstrap server as the one to this broker, because they have the same address."""
        slot, target = self._slots.get((from_node, "")), self._slots.get((node_id, ""))
        if slot is None or slot.connection is None or slot.connection.closed:
            return
        if target is not None and (target.connection is not None or target.opening is not None):
            return
        del self._slots[from_node, ""]
        slot.node_id = slot.connection.node_id = node_id
        self._slots[node_id, ""] = slot

    def _context(self) -> "ssl.SSLContext | None":
        """Return the TLS context, made from the settings at the first call; None without TLS."""
        if not self._tls_made:
            self._tls = self._settings.security.tls_context()
            self._tls_made = True
        return self._tls

    async def close(self) -> None:
        """Close all connections, and cancel those being opened, without waiting for brokers. Idempotent."""
        self._closed = True
        opening = [slot.opening for slot in self._slots.values() if slot.opening is not None]
        for slot in self._slots.values():
            if slot.opening is not None:
                slot.opening.cancel()
            if slot.connection is not None:
                slot.connection.close()
        if opening:
            await asyncio.gather(*opening, return_exceptions=True)


def _in_flight(connection: Connection) -> int:
    return connection.in_flight


def _mark_retrieved(task: "asyncio.Task[Connection]") -> None:
    """Mark the task's error as retrieved: asyncio would log it if all callers were cancelled."""
    if not task.cancelled():
        task.exception()

"""Logs in again on an open connection, before the broker ends its session (KIP-368).

The rule: requests on their way are answered first, new ones wait until the login is done, and none is lost or doubled:
a broker handles the requests of a connection in order. Whoever may not log in again loses the connection; where only
the application's token is missing, the connection is replaced once it is needed. Source: SaslClientAuthenticator of
Kafka, which renews at 85 to 95 % of a session's life.
"""

import asyncio

from ...effects.rng import Rng
from ..errors import AuthenticationError, KafkaError
from .connection import Connection, log
from .sasl import Login

EARLIEST, LATEST = 0.85, 0.95  # fractions of a session's life


class Renewal:
    """Logs in again on one connection before its session ends, for as long as it is open."""

    def __init__(self, connection: Connection, login: Login, rng: Rng) -> None:
        self._connection = connection
        self._login = login
        self._rng = rng
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def renew_in(self, lifetime_ms: float) -> None:
        """Log in again before the session's `lifetime_ms` have passed; 0: it does not end."""
        if lifetime_ms <= 0:
            return
        if self._end not in self._connection.on_lost:
            self._connection.on_lost.append(self._end)
        part = EARLIEST + (LATEST - EARLIEST) * self._rng.random()
        self._timer = asyncio.get_running_loop().call_later(lifetime_ms * part / 1000, self._begin)

    def _begin(self) -> None:
        """Start the login in a task, unless the connection has ended or is no longer used for new requests."""
        self._timer = None
        if not (self._connection.closed or self._connection.is_retired):
            self._task = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        """Log in again while new requests are held back. If that is impossible, retire or close the connection."""
        connection = self._connection
        try:
            token = await self._login.prepare()
        except AuthenticationError as error:
            log.warning("%s: cannot log in again: %s", connection.name, error)
            connection.is_retired = True
            return
        connection.hold()
        try:
            lifetime_ms = await self._login.run(connection, connection.send_past_hold, token)
        except KafkaError as error:
            log.warning("%s: the login could not be renewed: %s", connection.name, error)
            connection.close(error)
        else:
            self.renew_in(lifetime_ms)
        finally:
            self._task = None
            connection.release()

    def _end(self, connection: Connection, error: BaseException | None) -> None:
        """Cancel the timer and a running login, because the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

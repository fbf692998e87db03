"""Serves the connections of listeners with a login: before the login succeeds, no other requests are served.

The rules: before a login only ApiVersions, SaslHandshake and SaslAuthenticate are served; their number, size and time
are limited. Between the handshake and the end of a login or a renewal, ApiVersions is not served either, so that no
request is served without limit when the session has ended. A connection that sends anything else is closed, as in
Kafka. Passwords are checked in worker threads, in turns for the addresses of clients; later requests of the connection
wait meanwhile. A failed login is answered after a delay. When a session has ended, its connection is closed at the next
request, unless that begins a new login (KIP-368). The authenticator takes the place of the server as owner of a
connection as long as that may have to log in, so listeners without logins have no extra work.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ...effects.clock import Clock
from ...effects.threads import Executor, JobDropped
from ...effects.tls import Handshake
from ...protocol.messages.cluster import ApiVersionsRequest
from ...protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from ...protocol.primitives import Readable
from ...protocol.schema import schema_of
from ..config.settings import BrokerSettings
from ..metrics import Metrics
from ..net.connection import LOGGING_IN, Connection
from ..net.owner import Owner
from ..net.server import Server
from ..net.waiting import Parked
from ..security.login import Login, LoginRules, Phase, Reply, Times
from ..security.principals import USER, Principal, Session
from .unauthenticated import UnauthenticatedClients

log = logging.getLogger("fencepost.broker")


def _key_of(request: type) -> bytes:
    """Return the API key of this request class, as the two bytes with which its requests begin."""
    return (schema_of(request).api or 0).to_bytes(2, "big")


HANDSHAKE = _key_of(SaslHandshakeRequest)
SERVED_IN_EXCHANGE = (HANDSHAKE, _key_of(SaslAuthenticateRequest))  # the former only to be refused
SERVED_BEFORE = (_key_of(ApiVersionsRequest), *SERVED_IN_EXCHANGE)


Unauthenticated = Connection | Handshake


class Authenticator:
    """Handles the requests of all connections that still have to log in, and of those whose session expires."""

    def __init__(
        self,
        server: Server,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        settings: Callable[[], BrokerSettings],
        passwords: Executor,
    ) -> None:
        """settings: returns the present settings. passwords: the executor whose threads check passwords."""
        self.metrics: Metrics = server.metrics
        self.store = server.store
        self.touch = server.touch
        self.reserve = server.reserve
        self.give_back = server.give_back
        self.stalled = server.stalled
        self.soon = server.soon
        self.failed = server.failed
        self.malformed = server.malformed
        self.rare_log = server.rare_log
        self.server = server
        self.loop = loop
        self.settings = settings
        self.passwords = passwords
        self._clock = clock
        self._unauthenticated: UnauthenticatedClients[Unauthenticated] = UnauthenticatedClients()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def now(self) -> Times:
        """The present wall time and monotonic time."""
        return Times(self._clock.now_ms(), self._clock.monotonic_ms())

    # ---- as the owner of a connection ------------------------------------------------------------------------

    def serve(self, connection: Connection, frame: Readable) -> None:
        """Pass the request on to the server if the state of the login allows it; otherwise close the connection."""
        login: Login = connection.login.login
        key = bytes(frame[:2])
        if login.phase is Phase.KNOWN:
            if key != HANDSHAKE and login.is_expired(self._clock.monotonic_ms()):
                self.metrics.closed_expired += 1
                self.rare_log.write(
                    logging.INFO, "the session of %r, %s, has ended", login.name, connection.client_host
                )
                connection.close_after_replies()
                return
        elif key not in (SERVED_BEFORE if login.phase is Phase.UNKNOWN else SERVED_IN_EXCHANGE):
            connection.fail(f"a request of API {int.from_bytes(key, 'big')} before the login")
            return
        elif login.name is None and not login.admits_another():
            connection.fail("too many requests before the login")
            return
        elif len(frame) > self.settings().sasl_server_max_receive_size:  # it began to arrive before the limit was set
            connection.fail("a large request before the login")
            return
        self.server.serve(connection, frame)

    def lost(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._unauthenticated.remove(connection)
        self.server.lost(connection)

    # ---- who comes and logs in -------------------------------------------------------------------------------

    def take(self, connection: Connection, rules: LoginRules) -> None:
        """Begin the login of a client that has connected to a listener with these rules. Until it succeeds, only
        requests of the login are served.
        """
        connection.login = ConnectionLogin(self, connection, Login(rules))
        connection.belong_to(self, self.settings().sasl_server_max_receive_size)
        self.add_unauthenticated(connection, connection.client_host)

    def add_unauthenticated(self, client: Unauthenticated, host: str) -> None:
        """Count a client that has not logged in. If there are too many now, close the oldest of them."""
        settings = self.settings()
        leaves = self._unauthenticated.add(
            client,
            host,
            self._clock.monotonic_ms() + settings.connection_login_timeout_ms,
            settings.max_unauthenticated_connections,
            settings.max_unauthenticated_connections_per_ip,
        )
        if leaves is not None:
            self._cut(leaves, "too many clients have not logged in, and this is the oldest of them")
        self._set_timer()

    def remove_unauthenticated(self, client: Unauthenticated) -> None:
        """Stop counting a client that has logged in or whose connection has ended."""
        self._unauthenticated.remove(client)

    def let_in(self, connection: Connection, login: Login) -> None:
        """Serve the connection as this user from now on, because its login has succeeded; or close it if the user has
        too many connections.
        """
        assert login.name is not None
        self._unauthenticated.remove(connection)
        principal = Principal(USER, login.name)
        if connection.session.principal != principal and not self.has_room_for(connection, principal):
            connection.abort()
            return
        connection.session = Session(principal, connection.client_host)
        owner: Owner[Any] = self if login.is_renewable else self.server
        connection.belong_to(owner, self.settings().socket_request_max_bytes)

    def has_room_for(self, connection: Connection, principal: Principal) -> bool:
        """Return whether this user may have one more connection. If not, count and log the refusal."""
        most, others = self.settings().max_connections_per_principal, self.server.connections
        if len(others) <= most or sum(one.session.principal == principal for one in others) < most:
            return True
        self.metrics.refused_connections += 1
        text = "cutting the connection of %s: %r has %d connections already (max.connections.per.principal)"
        self.rare_log.write(logging.WARNING, text, connection.client_host, principal.name, most)
        return False

    def _cut(self, client: Unauthenticated, why: str) -> None:
        """Close the connection of a client that has not logged in, and log why."""
        self.metrics.closed_unauthenticated += 1
        host = client.host if isinstance(client, Handshake) else client.client_host
        self.rare_log.write(logging.INFO, "cutting the connection of %s: %s", host, why)
        client.abort()

    def _set_timer(self) -> None:
        """Set the timer for the first client whose time to log in ends, if it is not set."""
        deadline_ms = self._unauthenticated.next_deadline_ms()
        if self._timer is None and deadline_ms is not None:
            delay_ms = max(1, deadline_ms - self._clock.monotonic_ms())
            self._timer = self.loop.call_later(delay_ms / 1000, self._cut_late)

    def _cut_late(self) -> None:
        """Close the connections that have not logged in within their time. Called by the timer."""
        self._timer = None
        for client in self._unauthenticated.late(self._clock.monotonic_ms()):
            self._unauthenticated.remove(client)
            self._cut(client, "it has not logged in (connection.login.timeout.ms)")
        self._set_timer()

    def stop(self) -> None:
        """Cancel the timer, because the broker stops."""
        if self._timer is not None:
            self._timer.cancel()


class ConnectionLogin:
    """The login of one connection, for the handlers of login requests."""

    __slots__ = ("_authenticator", "_connection", "login")

    def __init__(self, authenticator: Authenticator, connection: Connection, login: Login) -> None:
        self.login = login
        self._authenticator = authenticator
        self._connection = connection

    @property
    def is_over(self) -> bool:
        """Whether the user is known and no login is in progress."""
        return self.login.phase is Phase.KNOWN

    def handshake(self, request: SaslHandshakeRequest, version: int) -> Any:
        """Handle a SaslHandshake. Returns the response; if the login failed, a Parked that gets the response later."""
        return self._answer(self.login.handshake(request, version, self._authenticator.now))

    def authenticate(self, request: SaslAuthenticateRequest) -> Any:
        """Handle a SaslAuthenticate. Returns the response, or a Parked that gets it when a worker thread has checked
        the password.
        """
        authenticator, connection = self._authenticator, self._connection
        outcome = self.login.authenticate(request, authenticator.now)
        if isinstance(outcome, Reply):
            return self._answer(outcome)
        parked = Parked()
        connection.hold(LOGGING_IN)
        authenticator.passwords.submit(
            outcome.run,
            lambda result: self._check(parked, result),
            owner=connection.client_host,
            wanted=lambda: not connection.has_left(),
        )
        return parked

    def _check(self, parked: Parked, result: bool | BaseException) -> None:
        """Answer a login whose password was checked. result: whether it was right, or the exception of the check."""
        connection = self._connection
        if isinstance(result, BaseException):
            if not isinstance(result, JobDropped):
                self._authenticator.metrics.failed(result)
                log.error("a password could not be checked", exc_info=result)
            connection.abort()
        elif connection.transport is not None:
            answer = self._answer(self.login.conclude(result, self._authenticator.now))
            if isinstance(answer, Parked):
                answer.then(parked.answer)
            else:
                parked.answer(answer)
                connection.go_on(LOGGING_IN)

    def _answer(self, reply: Reply) -> Any:
        """Return the response to a login request. If the login has succeeded, serve the connection as that user.

        If it has failed, return a Parked that gets the response after a delay, when the connection is also closed.
        """
        authenticator, connection, login = self._authenticator, self._connection, self.login
        if not reply.ends:
            if login.phase is Phase.KNOWN and not reply.response.error_code:
                authenticator.metrics.logins += 1
                authenticator.let_in(connection, login)
            return reply.response
        authenticator.metrics.failed_logins += 1
        authenticator.metrics.error("SaslAuthenticate", reply.response.error_code)
        how = login.mechanism or "an unknown mechanism"
        authenticator.rare_log.write(logging.INFO, "a login of %s by %s failed", connection.client_host, how)
        parked = Parked()
        connection.hold(LOGGING_IN)

        def end() -> None:
            """Send the response of the failed login, and close the connection."""
            if connection.transport is not None:
                parked.answer(reply.response)
                connection.close_after_replies()

        authenticator.loop.call_later(authenticator.settings().connection_failed_authentication_delay_ms / 1000, end)
        return parked

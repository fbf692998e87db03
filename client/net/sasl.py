"""SASL over Kafka's requests: PLAIN, SCRAM and OAUTHBEARER.

The rule: no error contains a sent or received message; a SCRAM server that cannot prove that it knows the password is
rejected. Sources: KIP-43, KIP-84, KIP-152, KIP-255, KIP-342, RFC 4616, RFC 5802, RFC 7628.
"""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from ...protocol.errors import ErrorCode
from ...protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ..errors import AuthenticationError, UnsupportedVersionError
from ..security import OAUTHBEARER, Security
from .connection import Connection
from .environment import Environment
from .tokens import TokenSource

IN_KAFKA_FRAMES = 1  # the version of SaslHandshake after which SaslAuthenticate carries the mechanism's messages
_NONCE_BYTES = 24
MAX_ITERATIONS = 1_000_000  # of a hash, half a second: the server chooses how many, before it has proved anything
_ABORT = b"\x01"  # RFC 7628: the client's answer to the server's reasons, after which the server ends the exchange

Send = Callable[..., Awaitable[Any]]
"""Connection.send, or Connection.send_past_hold."""


class Login:
    """How one client logs in on each of its connections. tokens: the source of tokens for OAUTHBEARER; None for other
    mechanisms.
    """

    def __init__(
        self, security: Security, environment: Environment, tokens: TokenSource | None, *, timeout_ms: float
    ) -> None:
        """timeout_ms: the timeout of each request."""
        self._security = security
        self._environment = environment
        self._tokens = tokens
        self.timeout_ms = timeout_ms

    async def prepare(self) -> str:
        """Return a token for OAUTHBEARER, which may take long to get; "" for other mechanisms."""
        return "" if self._tokens is None else await self._tokens.token()

    async def run(self, connection: Connection, send: Send, token: str) -> float:
        """Log in. Returns for how many milliseconds the session is valid; 0: it does not end.

        Raises AuthenticationError, UnsupportedVersionError, BrokerUnreachableError.
        """
        security = self._security
        mechanism = security.mechanism
        assert mechanism is not None
        exchange = _Exchange(connection, send, self.timeout_ms, mechanism)
        await exchange.agree()
        if mechanism == OAUTHBEARER:
            await self._bearer(exchange, token)
            return exchange.lifetime_ms
        username, password = security.username, security.password
        assert username is not None
        assert password is not None
        if mechanism == "PLAIN":
            await exchange.send(b"\0" + username.encode() + b"\0" + password.encode())
        else:
            await _scram(exchange, mechanism, username, password, self._environment)
        return exchange.lifetime_ms

    async def _bearer(self, exchange: "_Exchange", token: str) -> None:
        """Log in with SASL/OAUTHBEARER (RFC 7628). Raises AuthenticationError with the broker's reason."""
        extensions = self._security.extensions or {}
        pairs = [("auth", f"Bearer {token}"), *extensions.items()]
        message = b"n,,\x01" + b"".join(f"{name}={value}\x01".encode() for name, value in pairs) + b"\x01"
        try:
            if await exchange.send(message):  # the server's reasons for a refusal
                await exchange.send(_ABORT)
                raise exchange.refused()
        except AuthenticationError:
            if self._tokens is not None:
                self._tokens.forget()
            raise


class _Exchange:
    """The SASL messages of one login. lifetime_ms: after which the broker demands a new authentication; 0: never."""

    def __init__(self, connection: Connection, send: Send, timeout_ms: float, mechanism: str) -> None:
        self.lifetime_ms = 0
        self._connection = connection
        self._send = send
        self._timeout_ms = timeout_ms
        self._mechanism = mechanism

    async def agree(self) -> None:
        """Send SaslHandshake with the mechanism. Raises AuthenticationError or UnsupportedVersionError if the broker
        does not accept it.
        """
        connection = self._connection
        if not connection.knows(SaslHandshakeRequest, IN_KAFKA_FRAMES):
            raise UnsupportedVersionError(
                f"{connection.name} does not support SASL in Kafka's frames (SaslAuthenticate)"
            )
        request = SaslHandshakeRequest(mechanism=self._mechanism)
        response: SaslHandshakeResponse = await self._send(request, IN_KAFKA_FRAMES, timeout_ms=self._timeout_ms)
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationError(
                f"{connection.name} does not expect a login now",
                code=ErrorCode.ILLEGAL_SASL_STATE,
                hint='is it a listener without SASL? then set security_protocol to "PLAINTEXT" or "SSL"',
            )
        if response.error_code:
            offered = ", ".join(response.mechanisms) or "none"
            raise AuthenticationError(
                f"{connection.name} does not offer {self._mechanism}",
                code=ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                hint=f"it offers: {offered}",
            )

    async def send(self, message: bytes) -> bytes:
        """Send a message and return the server's answer. Raises AuthenticationError."""
        version = self._connection.version_of(SaslAuthenticateRequest)
        request = SaslAuthenticateRequest(auth_bytes=message)
        response: SaslAuthenticateResponse = await self._send(request, version, timeout_ms=self._timeout_ms)
        if response.error_code:
            raise self.refused()
        self.lifetime_ms = response.session_lifetime_ms
        return bytes(response.auth_bytes)

    def refused(self) -> AuthenticationError:
        """Return the error for a login that the broker refuses: for a token, or for user name and password."""
        name = self._connection.name
        if self._mechanism == OAUTHBEARER:
            return AuthenticationError(
                f"{name} does not accept the token",
                hint="check its issuer, audience, signature and expiry; the broker's log shows the reason",
            )
        return AuthenticationError(
            f"{name} does not accept the user name and password",
            hint="check sasl_plain_username, sasl_plain_password and sasl_mechanism",
        )


async def _scram(exchange: _Exchange, mechanism: str, username: str, password: str, environment: Environment) -> None:
    """Log in with SCRAM, and check the server's proof. Raises AuthenticationError."""
    from scramp import ScramClient, ScramException  # type: ignore[import-untyped]

    # scramp escapes "," and "=" in the name (RFC 5802, saslname).
    try:
        client = cast("Any", ScramClient)(
            [mechanism], username, password, c_nonce=environment.rng.bytes(_NONCE_BYTES).hex()
        )
        first = await exchange.send(client.get_client_first().encode())
        client.set_server_first(first.decode())
        if not 0 < int(client.iterations) <= MAX_ITERATIONS:
            raise ValueError(
                f"the broker asks for {int(client.iterations)} iterations, 1 to {MAX_ITERATIONS} are allowed"
            )
        final = await exchange.send(client.get_client_final().encode())
        client.set_server_final(final.decode())
    except (ScramException, UnicodeDecodeError, ValueError) as error:
        # scramp's texts may quote a message, so only the class of the error is shown.
        raise AuthenticationError(f"the broker's {mechanism} answer is not valid ({type(error).__name__})") from None

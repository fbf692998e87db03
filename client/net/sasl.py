"""SASL over Kafka's requests: PLAIN and SCRAM.

The rule: no error contains a sent or received message; a SCRAM server that cannot prove that it knows the password is
rejected. Sources: KIP-43, KIP-84, KIP-152, KIP-368, RFC 4616, RFC 5802.
"""

from typing import Any, cast

from ...protocol.errors import ErrorCode
from ...protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ..errors import AuthenticationError, UnsupportedVersionError
from ..settings import ConnectionSettings
from .connection import Connection
from .environment import Environment

IN_KAFKA_FRAMES = 1  # the version of SaslHandshake after which SaslAuthenticate carries the mechanism's messages
_RETIRED_AT = 0.85  # fraction of the session's lifetime
_NONCE_BYTES = 24
MOST_ITERATIONS = 1_000_000  # of a hash, half a second: the server says how many, before it has proved anything


async def authenticate(connection: Connection, settings: ConnectionSettings, environment: Environment) -> None:
    """Authenticate this connection. Raises AuthenticationError, UnsupportedVersionError."""
    security = settings.security
    mechanism, username, password = security.mechanism, security.username, security.password
    assert mechanism is not None
    assert username is not None
    assert password is not None
    exchange = _Exchange(connection, settings)
    await exchange.agree_on(mechanism)
    if mechanism == "PLAIN":
        await exchange.send(b"\0" + username.encode() + b"\0" + password.encode())
    else:
        await _scram(exchange, mechanism, username, password, environment)
    if exchange.lifetime_ms > 0:
        _retire_in(connection, exchange.lifetime_ms)


class _Exchange:
    """Exchanges SASL messages. lifetime_ms: after which the broker demands a new authentication; 0: never."""

    def __init__(self, connection: Connection, settings: ConnectionSettings) -> None:
        self.lifetime_ms = 0
        self._connection = connection
        self._timeout_ms = settings.connect_timeout_ms

    async def agree_on(self, mechanism: str) -> None:
        connection = self._connection
        if not connection.knows(SaslHandshakeRequest, IN_KAFKA_FRAMES):
            raise UnsupportedVersionError(
                f"{connection.name} does not support SASL in Kafka's frames (SaslAuthenticate)"
            )
        sent = connection.send(SaslHandshakeRequest(mechanism=mechanism), IN_KAFKA_FRAMES, timeout_ms=self._timeout_ms)
        response: SaslHandshakeResponse = await sent
        if response.error_code:
            offered = ", ".join(response.mechanisms) or "none"
            raise AuthenticationError(
                f"{connection.name} does not offer {mechanism}",
                code=ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                hint=f"it offers: {offered}",
            )

    async def send(self, message: bytes) -> bytes:
        connection = self._connection
        version = connection.version_of(SaslAuthenticateRequest)
        sent = connection.send(SaslAuthenticateRequest(auth_bytes=message), version, timeout_ms=self._timeout_ms)
        response: SaslAuthenticateResponse = await sent
        if response.error_code:
            raise AuthenticationError(
                f"{connection.name} does not accept the user name and password",
                hint="check sasl_plain_username, sasl_plain_password and sasl_mechanism",
            )
        self.lifetime_ms = response.session_lifetime_ms
        return bytes(response.auth_bytes)


async def _scram(exchange: _Exchange, mechanism: str, username: str, password: str, environment: Environment) -> None:
    from scramp import ScramClient, ScramException  # type: ignore[import-untyped]

    # scramp escapes "," and "=" in the name (RFC 5802, saslname).
    try:
        client = cast("Any", ScramClient)(
            [mechanism], username, password, c_nonce=environment.rng.bytes(_NONCE_BYTES).hex()
        )
        first = await exchange.send(client.get_client_first().encode())
        client.set_server_first(first.decode())
        if not 0 < int(client.iterations) <= MOST_ITERATIONS:
            raise ValueError("too much work, or none")
        final = await exchange.send(client.get_client_final().encode())
        client.set_server_final(final.decode())
    except (ScramException, UnicodeDecodeError, ValueError) as error:
        # scramp's texts may quote a message, so only the class of the error is shown.
        raise AuthenticationError(f"the broker's {mechanism} answer is not valid ({type(error).__name__})") from None


def _retire_in(connection: Connection, lifetime_ms: int) -> None:
    """Replace this connection before the broker closes it at the end of the session (KIP-368)."""
    import asyncio

    def retire() -> None:
        connection.is_retired = True

    asyncio.get_running_loop().call_later(lifetime_ms * _RETIRED_AT / 1000, retire)

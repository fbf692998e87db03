"""How a connection is opened: TCP, TLS, ApiVersions, SASL.

The rule: all steps together take connect_timeout_ms at most; an error names the step that failed. Sources: KIP-511
(version 3 first; a broker that does not know it answers in the layout of version 0), KIP-152.
"""

import asyncio
import functools
from typing import TYPE_CHECKING

from ... import __version__
from ...protocol.errors import ErrorCode
from ...protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from ..addresses import Address
from ..errors import AuthenticationError, BrokerUnreachableError, UnsupportedVersionError, code_of, error_of
from ..settings import ConnectionSettings
from .connection import Connection
from .environment import Environment
from .versions import offer_of

if TYPE_CHECKING:
    import ssl

    from .sasl import Login

LOGIN_HINT = "if the broker asks for a login, set security_protocol and sasl_plain_username"
_CLOSED = "is this a Kafka listener, and do both sides use TLS, or neither?"
_CLOSED_WITH_TLS = "is this a Kafka listener with TLS? if it asks for a certificate, set ssl_certfile and ssl_keyfile"
FIRST_VERSION = 3  # of ApiVersions: it has the features; nothing here needs what version 4 adds


async def open_connection(
    address: Address,
    settings: ConnectionSettings,
    environment: Environment,
    tls: "ssl.SSLContext | None",
    *,
    login: "Login | None" = None,
    node_id: int = -1,
) -> Connection:
    """Open a connection, agree on API versions and log in. Returns it, ready for requests. login: by default made from
    the settings.

    Raises BrokerUnreachableError, AuthenticationError, UnsupportedVersionError.
    """
    connection = Connection(address, settings.client_id, node_id=node_id, max_idle_ms=settings.connections_max_idle_ms)
    try:
        async with asyncio.timeout(settings.connect_timeout_ms / 1000):
            await _connect(connection, environment, tls)
            await _agree(connection, settings)
            login = login or login_of(settings, environment)
            if login is None:
                connection.hint_if_refused = LOGIN_HINT
            else:
                await _log_in(connection, login, environment)
    except BaseException as error:
        connection.close()
        if isinstance(error, TimeoutError):
            raise BrokerUnreachableError(
                f"{connection.name} took longer than {settings.connect_timeout_ms} ms to connect"
            ) from None
        raise
    return connection


def login_of(settings: ConnectionSettings, environment: Environment) -> "Login | None":
    """Return the Login for all connections of a client; None if the settings have no login."""
    security = settings.security
    if not security.uses_sasl:
        return None
    from .sasl import Login
    from .tokens import TokenSource

    provider = security.token_provider
    tokens = None if provider is None else TokenSource(provider, environment.clock)
    return Login(security, environment, tokens, timeout_ms=settings.connect_timeout_ms)


async def _log_in(connection: Connection, login: "Login", environment: Environment) -> None:
    """Log in over a new connection, and schedule the next login before the broker ends the session."""
    from .renewal import Renewal

    lifetime_ms = await login.run(connection, connection.send, await login.prepare())
    Renewal(connection, login, environment.rng).renew_in(lifetime_ms)


async def _connect(connection: Connection, environment: Environment, tls: "ssl.SSLContext | None") -> None:
    """Connect, with TLS if `tls` is given. Raises AuthenticationError if TLS fails, and BrokerUnreachableError for any
    other reason.
    """
    host, port = connection.address
    try:
        if tls is None:
            await environment.net.connect(lambda: connection, host, port)
        else:
            await environment.net.connect(lambda: connection, host, port, tls=tls, server_hostname=host)
    except OSError as error:
        if tls is not None and _is_tls(error):
            raise AuthenticationError(f"TLS with {connection.name} failed: {error}", hint=_tls_hint(error)) from error
        raise BrokerUnreachableError(f"cannot connect to {connection.name}: {_reason(error)}") from error
    except (UnicodeError, OverflowError) as error:  # a host or a port that there cannot be, perhaps named by a broker
        raise BrokerUnreachableError(f"cannot connect to {connection.name}: {error}") from error


async def _agree(connection: Connection, settings: ConnectionSettings) -> None:
    """Send ApiVersions, and agree with the broker on the versions to use. Raises KafkaError."""
    ask = functools.partial(connection.send, timeout_ms=settings.connect_timeout_ms)
    request = ApiVersionsRequest(client_software_name="fencepost", client_software_version=__version__)
    try:
        response: ApiVersionsResponse = await ask(request, FIRST_VERSION)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await ask(request, _next_version(response))
    except BrokerUnreachableError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and "ALERT" in str(cause) and _is_tls(cause):  # TLS 1.3: after the handshake
            raise AuthenticationError(f"TLS with {connection.name} failed: {cause}", hint=_tls_hint(cause)) from cause
        raise BrokerUnreachableError(
            error.detail,
            hint=_CLOSED_WITH_TLS if settings.security.uses_tls else _CLOSED,
        ) from error
    if response.error_code:
        code = code_of(response.error_code)
        raise error_of(code, f"{connection.name} refuses ApiVersions: {code.text}")
    offer = offer_of(response)
    if not offer.versions:
        raise UnsupportedVersionError(f"{connection.name} returned no API versions")
    connection.offer(offer)


def _next_version(response: ApiVersionsResponse) -> int:
    """Return the highest version of ApiVersions that the broker lists in its error; 0 if none (before Kafka 2.4)."""
    known = [one.max_version for one in response.api_keys if one.api_key == 18]
    return min(known[0], FIRST_VERSION - 1) if known and known[0] >= 0 else 0


def _is_tls(error: OSError) -> bool:
    import ssl

    return isinstance(error, ssl.SSLError)


def _tls_hint(error: OSError) -> str:
    """Return what to change in the settings after this TLS error."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "set ssl_cafile to the authority that signed the broker's certificate"
    if "ALERT" in str(error) and ("CERTIFICATE" in str(error) or "UNKNOWN_CA" in str(error)):
        return "the broker asks for a certificate that it trusts: set ssl_certfile and ssl_keyfile"
    return "is this the broker's TLS listener?"


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__

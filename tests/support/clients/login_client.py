"""Brokers that ask who connects, their users, and logins request by request.

The password of a user that add_users() makes is `NAME-pw`.
"""

from typing import Any

from fencepost.broker.broker import Broker
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.security.credentials import (
    Mechanism,
    credential_from,
    credential_set,
    salted_password,
)
from fencepost.broker.security.sasl import SCRAM
from fencepost.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from scram_client import SALT, ScramClient

USERS = ("alice", "bob")


def asking(*mechanisms: str, **more: Any) -> BrokerSettings:
    """Return the settings of a broker that requires a login."""
    return BrokerSettings(
        **{
            "listeners": ("SASL_PLAINTEXT://127.0.0.1:9092",),
            "sasl_enabled_mechanisms": mechanisms or ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        }
        | more
    )


def add_users(broker: Broker, *names: str, iterations: int = 4096) -> None:
    """Create users on a running broker, in its own loop."""
    changes = []
    for name in names or USERS:
        for mechanism in Mechanism:
            salted = salted_password(mechanism, f"{name}-pw".encode(), SALT, iterations)
            changes.append(credential_set(name, credential_from(mechanism, salted, SALT, iterations)))
    broker.security_log.commit(changes)


def plain(name: str, password: str | None = None, identity: str = "") -> bytes:
    """Return the only message of a PLAIN login."""
    return f"{identity}\0{name}\0{f'{name}-pw' if password is None else password}".encode()


def say(client: Any, message: bytes, version: int | None = None) -> Any:
    """Send one message of a login mechanism and return the response."""
    return _ask(client)(SaslAuthenticateRequest(auth_bytes=message), version)


def choose(client: Any, mechanism: str, version: int = 1) -> Any:
    """Send the handshake for this mechanism and return the response."""
    return _ask(client)(SaslHandshakeRequest(mechanism=mechanism), version)


def log_in(client: Any, name: str = "alice", password: str | None = None, mechanism: str = "SCRAM-SHA-256") -> Any:
    """Log in and return the last response. client: a SimulatedClient or a WireClient."""
    response = choose(client, mechanism)
    if response.error_code:
        return response
    if mechanism == "PLAIN":
        return say(client, plain(name, password))
    scram = ScramClient(name, f"{name}-pw" if password is None else password, SCRAM[mechanism].digest)
    response = say(client, scram.first())
    if response.error_code:
        return response
    response = say(client, scram.final(response.auth_bytes))
    assert response.error_code or scram.trusts(response.auth_bytes)
    return response


def _ask(client: Any) -> Any:
    return client.ask if hasattr(client, "ask") else client.call


def bearer(token: str) -> bytes:
    """Return the only message of an OAUTHBEARER login."""
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()

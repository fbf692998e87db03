"""The settings of access control: a part of the broker's table (settings.py). Kafka's names and defaults."""

from dataclasses import dataclass

from .options import ConfigType, Value, option

INT = ConfigType.INT
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _known_authorizer(value: Value) -> str | None:
    """Return an error if the value names an authorizer that does not exist here; else None."""
    return None if value in ("", STANDARD_AUTHORIZER) else f"the only one there is is {STANDARD_AUTHORIZER}"


def _principals(value: Value) -> str | None:
    """Return an error if an entry of super.users has no colon, and so is not of the form User:name; else None."""
    assert isinstance(value, str)
    wrong = [part.strip() for part in value.split(";") if part.strip() and ":" not in part]
    return f"{wrong[0]!r} is not of the form User:name, with ; between several" if wrong else None


@dataclass(frozen=True, kw_only=True)
class SecuritySettings:
    """The settings of the authorizer."""

    authorizer_class_name: str = option(
        "",
        f"`{STANDARD_AUTHORIZER}`: access control lists are obeyed, as Kafka's authorizer of that name does. Empty: "
        "everybody may do everything ([which right each request takes](security.md#rights)).",
        check=_known_authorizer,
    )
    super_users: str = option(
        "", "Who may do everything, whatever rules say: `User:name`, with `;` between several.", check=_principals
    )
    allow_everyone_if_no_acl_found: bool = option(
        False, "Whether everybody may do everything with a resource whose name no rule fits."
    )
    allow_insecure_listeners: bool = option(
        False,
        "Whether `serve` listens on addresses that other machines can reach where anybody is served who does, or where "
        "passwords cross the network as they are.",
    )
    sasl_server_max_receive_size: int = option(
        64 << 10,
        "The largest request of a client that has not logged in where a listener asks for that (Kafka: 524288).",
        type=INT,
        at_least=1_024,
    )
    connection_failed_authentication_delay_ms: int = option(
        100, "How long a client waits for the answer that its login failed.", type=INT, at_least=0
    )
    connection_login_timeout_ms: int = option(
        10_000, "A client that has not logged in within this time is cut, where its listener asks for that.", at_least=1
    )
    max_unauthenticated_connections: int = option(
        1_000,
        "Connections at one time that have not logged in yet. One more ends the oldest of them.",
        type=INT,
        at_least=1,
    )
    max_unauthenticated_connections_per_ip: int = option(250, "The same, from one address.", type=INT, at_least=1)
    max_connections_per_principal: int = option(
        2**31 - 1,
        "Connections at one time of one user that has logged in, by password, token or certificate. One more is cut.",
        type=INT,
        at_least=1,
        dynamic=True,
        dynamic_at_least=10,
    )
    max_acls: int = option(
        100_000, "Rules of access that there may be at one time.", type=INT, at_least=0, dynamic=True
    )
    max_users: int = option(
        100_000, "Users with a password that there may be at one time.", type=INT, at_least=0, dynamic=True
    )

"""The flags of `serve` that turn logins, TLS and the authorizer on, and a check that none of them was forgotten.

The rule: a listener that other machines can reach must authenticate clients, and no password may cross the network
unencrypted, unless the person who starts the broker confirms that (--insecure).
"""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ..output.failures import WRONG_USAGE, Failure

if TYPE_CHECKING:
    from ...broker.config.listener_settings import ListenerSettings
    from ...broker.config.settings import BrokerSettings

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SENT_AS_THEY_ARE = ("PLAIN", "OAUTHBEARER")


def protection_settings(
    sasl: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_client_ca: str | None,
    super_users: Sequence[str],
    insecure: bool,
) -> dict[str, str]:
    """Return the settings that these flags mean. Raises Failure."""
    if (tls_key or tls_client_ca) and not tls_cert:
        raise Failure("there is no certificate: --tls-cert is missing", "--tls-cert FILE --tls-key FILE", WRONG_USAGE)
    settings = {
        "ssl.keystore.location": tls_cert,
        "ssl.key.location": tls_key,
        "ssl.truststore.location": tls_client_ca,
        "sasl.enabled.mechanisms": sasl,
    }
    if tls_client_ca:
        settings["ssl.client.auth"] = "required"
    if sasl or tls_cert:
        settings["security.protocol"] = ("SASL_" if sasl else "") + ("SSL" if tls_cert else "PLAINTEXT")
    if super_users:
        settings["super.users"] = ";".join(map(_principal, super_users))
        settings["authorizer.class.name"] = AUTHORIZER
    if insecure:
        settings["allow.insecure.listeners"] = "true"
    return {name: text for name, text in settings.items() if text}


def _principal(name: str) -> str:
    """Return the principal for --super-user: the name, with `User:` before it. Raises Failure."""
    if not name.strip() or ";" in name:
        raise Failure(f"--super-user {name!r} is no name of a user", "--super-user admin", WRONG_USAGE)
    return name if name.startswith("User:") else f"User:{name}"


def check_protection(settings: "BrokerSettings") -> None:
    """Raise Failure for the first listener with less protection than its address requires."""
    for listener in settings.served_listeners:
        if settings.allow_insecure_listeners or _is_loopback(listener.host):
            continue
        where = f"{listener.name} at {listener.host or '0.0.0.0'}:{listener.port}"
        if not listener.asks_who_connects:
            raise Failure(
                f"{where}: whoever reaches it from another machine may do everything",
                "let clients log in (--sasl SCRAM-SHA-256 --tls-cert FILE --tls-key FILE), listen on 127.0.0.1, or say "
                "--insecure",
                WRONG_USAGE,
            )
        sent = _sent_as_they_are(listener)
        if sent:
            raise Failure(
                f"{where}: secrets of {sent} cross the network unencrypted",
                "add --tls-cert FILE --tls-key FILE, use --sasl SCRAM-SHA-256, or say --insecure",
                WRONG_USAGE,
            )


def _sent_as_they_are(listener: "ListenerSettings") -> str:
    """Return the login mechanisms with which a listener without TLS gets passwords unencrypted; "" if there are
    none.
    """
    if listener.uses_tls:
        return ""
    return " and ".join(each for each in listener.options.sasl_enabled_mechanisms if each in SENT_AS_THEY_ARE)


def _is_loopback(host: str) -> bool:
    """Return whether the host is an address of this machine alone; a name other than localhost is not."""
    try:
        return host == "localhost" or ip_address(host.partition("%")[0]).is_loopback
    except ValueError:  # a name may mean anything
        return False


def protection_lines(settings: "BrokerSettings") -> list[str]:
    """Return a line for each listener that uses TLS or authenticates clients."""
    lines = []
    for listener in settings.served_listeners:
        options = listener.options
        asks = list(options.sasl_enabled_mechanisms) if listener.asks_for_login else []
        if listener.uses_tls and options.ssl_client_auth != "none":
            asks.append(f"client certificates {options.ssl_client_auth}")
        if asks or listener.uses_tls:
            lines.append(f"{listener.name} ({listener.protocol}){': ' if asks else ''}{', '.join(asks)}")
    return list(dict.fromkeys(lines))

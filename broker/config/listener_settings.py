"""The settings of each listener: its name, address and protocol, and how clients log in. Pure.

The rules are Kafka's: a listener's name precedes its address, `listener.security.protocol.map` gives the protocol of
each name, and `listener.name.<name>.` before a setting sets it for that listener alone. A setting that promises a
protection it cannot give is refused. Ours: an address without a name belongs to a listener whose name is the
`security.protocol`, and one listener may have several addresses.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .options import ConfigType, InvalidOption, Value, nearest, option, options_of

INT = ConfigType.INT
PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WITH_LOGIN = (SASL_PLAINTEXT, SASL_SSL)
WITH_TLS = (SSL, SASL_SSL)
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
CLIENT_AUTH = NO_CERTIFICATE, _, REQUIRED = ("none", "requested", "required")
OWN_NAMES = tuple(f"{protocol}:{protocol}" for protocol in PROTOCOLS)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
BY_TOKEN = MECHANISMS[3]
OVERRIDE = "listener.name."
ADDRESS = re.compile(
    r"(?:(?P<listener>[A-Za-z0-9_.-]+)://)?(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^:\[\]/\s\0]*):(?P<port>[0-9]{1,5})"
)


class NamedAddress(NamedTuple):
    """An address of a listener. listener: its name in capitals, empty if it has none. host: empty for every
    interface.
    """

    listener: str
    host: str
    port: int


def named_address(text: str) -> NamedAddress:
    """Parse HOST:PORT, [V6]:PORT or NAME://HOST:PORT. Raises InvalidOption."""
    found = ADDRESS.fullmatch(text.strip())
    if not found or int(found["port"]) > 65535:
        raise InvalidOption(f"{text!r} is not HOST:PORT (an IPv6 address goes in brackets: [::1]:9092)")
    return NamedAddress((found["listener"] or "").upper(), found["host"].strip("[]"), int(found["port"]))


def address(text: str) -> tuple[str, int]:
    """Return the (host, port) of an address, which may begin with a listener's name. Raises InvalidOption."""
    _, host, port = named_address(text)
    return host, port


def all_addresses(value: Value) -> str | None:
    """Return the error for a list of addresses; None if all are valid."""
    assert isinstance(value, tuple)
    try:
        for entry in value:
            address(entry)
    except InvalidOption as error:
        return str(error)
    return None


def all_reachable(value: Value) -> str | None:
    """Return the error for a list of advertised addresses, whose port must not be 0; None if all are valid."""
    assert isinstance(value, tuple)
    wrong = all_addresses(value)
    if wrong is None and any(address(entry)[1] == 0 for entry in value):
        return "clients cannot connect to port 0"
    return wrong


def all_protocols(value: Value) -> str | None:
    """Return the error for a list of NAME:PROTOCOL; None if all are valid."""
    assert isinstance(value, tuple)
    for entry in value:
        name, _, protocol = entry.partition(":")
        if not name or protocol.upper() not in PROTOCOLS:
            return f"{entry!r} is not NAME:PROTOCOL, with one of {', '.join(PROTOCOLS)}"
    return None


def _at_least_one(value: Value) -> str | None:
    """Return an error if the value is empty; else None."""
    return None if value else "at least one is needed"


@dataclass(frozen=True, kw_only=True)
class ListenerOptions:
    """Settings of logins and TLS: for all listeners, or for one, after the prefix `listener.name.<name>.`."""

    sasl_enabled_mechanisms: tuple[str, ...] = option(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "How clients of a SASL listener may log in: `SCRAM-SHA-256`, `SCRAM-SHA-512`, `PLAIN`, `OAUTHBEARER`. Users "
        "are those of `fencepost user`, whichever of the first three it is (Kafka: GSSAPI).",
    )
    connections_max_reauth_ms: int = option(
        0,
        "After so long a client has to log in again, or its next request closes the connection. 0: never.",
        at_least=0,
    )

    sasl_oauthbearer_jwks_endpoint_url: str = option(
        "",
        "The keys with which tokens of OAUTHBEARER are verified (JWKS): `file:///…`, `https://…` or `http://…`. "
        "Fetched again when a token names another key, a file too when it changes.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = option(3_600_000, "How often they are fetched again.", at_least=1)
    sasl_oauthbearer_expected_issuer: str = option("", "Who has to have issued a token (its `iss`).")
    sasl_oauthbearer_expected_audience: tuple[str, ...] = option((), "Whom it has to be for: one of these (its `aud`).")
    sasl_oauthbearer_sub_claim_name: str = option("sub", "What of a token is the user's name.")
    sasl_oauthbearer_clock_skew_seconds: int = option(
        30, "By how much clocks may differ.", type=INT, at_least=0, at_most=3600
    )
    ssl_keystore_location: str = option(
        "",
        "Of a listener with TLS: a PEM file with its certificate, those that signed it, and the key, unless "
        "ssl.key.location has that. Loaded again when it changes, and at SIGHUP.",
        aliases={"ssl.certificate.location": 1},
    )
    ssl_key_location: str = option("", "The key of that certificate, as a PEM file (not Kafka's).")
    ssl_key_password: str = option("", "What the key is encrypted with.", type=ConfigType.PASSWORD)
    ssl_keystore_type: str = option("PEM", "The format of ssl.keystore.location (Kafka: JKS).", one_of=("PEM",))
    ssl_truststore_location: str = option(
        "", "A PEM file of the authorities whose client certificates count.", aliases={"ssl.ca.location": 1}
    )
    ssl_truststore_type: str = option("PEM", "The format of ssl.truststore.location (Kafka: JKS).", one_of=("PEM",))
    ssl_client_auth: str = option(
        NO_CERTIFICATE,
        "Whether clients show a certificate, whose subject is their user: `none`, `requested` or `required`. Of a "
        "SASL_SSL listener, where the login names the user, only with `listener.name.<name>.` before it.",
        one_of=CLIENT_AUTH,
    )
    ssl_enabled_protocols: tuple[str, ...] = option(
        TLS_VERSIONS, "Versions of TLS.", one_of=TLS_VERSIONS, check=_at_least_one
    )
    ssl_cipher_suites: tuple[str, ...] = option(
        (),
        "Cipher suites, by their names of IANA or OpenSSL; by default those that OpenSSL offers. A version of TLS of "
        "which none is named is not spoken. Of TLS 1.3 all are named or none: Python cannot choose among them.",
    )
    ssl_principal_mapping_rules: str = option(
        "DEFAULT",
        "How a certificate's subject becomes a user's name: `RULE:pattern/replacement/[LU]` or `DEFAULT`, with commas "
        "between; the first that fits. The patterns are Python's. Where none fits, the client is cut.",
    )


LISTENER_OPTIONS = options_of(ListenerOptions)


@dataclass(frozen=True, kw_only=True)
class ListenerSettings:
    """One listener. advertised: the (host, port) that its clients are told; None if they are told its own address."""

    name: str
    host: str
    port: int
    protocol: str
    options: ListenerOptions
    advertised: tuple[str, int] | None = None

    @property
    def asks_for_login(self) -> bool:
        return self.protocol in WITH_LOGIN

    @property
    def uses_tls(self) -> bool:
        return self.protocol in WITH_TLS

    @property
    def asks_who_connects(self) -> bool:
        """Whether clients must log in, or present a certificate, before they are served."""
        return self.asks_for_login or (self.uses_tls and self.options.ssl_client_auth == REQUIRED)


def listeners_of(
    addresses: Sequence[str],
    unnamed: str,
    advertised: Sequence[str],
    protocols: Sequence[str],
    options: ListenerOptions,
    overrides: Mapping[str, str],
) -> tuple[ListenerSettings, ...]:
    """Return all listeners, in the order of `addresses`. Raises InvalidOption.

    unnamed: the name, and so the protocol, of addresses without a name. protocols: NAME:PROTOCOL. options: for all
    listeners. overrides: settings for single ones, `listener.name.<name>.…`.
    """
    for_all = {row.field_name: getattr(options, row.field_name) for row in LISTENER_OPTIONS.values()}
    named = [_with_listener_name(text, unnamed) for text in addresses]
    protocol_of = {name.upper(): protocol.upper() for name, _, protocol in (each.partition(":") for each in protocols)}
    own = _split_by_listener(overrides, list(dict.fromkeys(each.listener for each in named)))
    clients_get = _advertised_addresses(named, [named_address(text) for text in advertised])
    made = []
    for number, (name, host, port) in enumerate(named):
        if name not in protocol_of:
            raise InvalidOption(
                f"no security protocol is defined for listener {name}",
                "listener.security.protocol.map",
                f"add {name}:PLAINTEXT, or another protocol, to listener.security.protocol.map",
            )
        if protocol_of[name] == SASL_SSL:  # with SASL a certificate is no login, as in Kafka
            own[name].setdefault("ssl_client_auth", NO_CERTIFICATE)
        its = ListenerOptions(**(for_all | own[name]))
        made.append(
            ListenerSettings(
                name=name, host=host, port=port, protocol=protocol_of[name], options=its, advertised=clients_get[number]
            )
        )
        _check(made[-1])
    return tuple(made)


def _with_listener_name(text: str, unnamed: str) -> NamedAddress:
    """Parse an address. If it has no listener's name, it gets `unnamed`. Raises InvalidOption."""
    found = named_address(text)
    return found if found.listener else found._replace(listener=unnamed)


def _split_by_listener(overrides: Mapping[str, str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of single listeners, parsed, by listener and field name. Raises InvalidOption.

    In a name that comes from the environment, a `_` was read as a dot; so that spelling is accepted too.
    """
    own: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, text in overrides.items():
        rest = key.removeprefix(OVERRIDE)
        for name in sorted(names, key=len, reverse=True):
            spelt = [each for each in (name.lower(), name.lower().replace("_", ".")) if rest.startswith(f"{each}.")]
            if spelt:
                row = _overridable(key, rest.removeprefix(f"{spelt[0]}."))
                own[name][row.field_name] = row.parse(text)
                break
        else:
            raise InvalidOption(f"{key} is for a listener that there is not", key, f"listeners: {', '.join(names)}")
    return own


def _overridable(key: str, setting: str) -> Any:
    """Return the option of this name if it can be set for one listener.

    setting: the name after the listener's prefix. key: the full name, for error texts. Raises InvalidOption.
    """
    # Kafka writes settings of a mechanism as oauthbearer.sasl.oauthbearer.x; here sasl.oauthbearer.x is enough.
    plain = setting.removeprefix(f"{BY_TOKEN.lower()}.sasl.oauthbearer.")
    setting = setting if plain == setting else f"sasl.oauthbearer.{plain}"
    for row in LISTENER_OPTIONS.values():
        if setting == row.name or setting in row.aliases:
            return row
    near = nearest(setting, list(LISTENER_OPTIONS))
    hint = f"did you mean {key.removesuffix(setting)}{near}?" if near else "docs/settings.md marks what can"
    raise InvalidOption(f"{key}: {setting} cannot be set for one listener", key, hint)


def _advertised_addresses(
    listeners: Sequence[NamedAddress], advertised: Sequence[NamedAddress]
) -> list[tuple[str, int] | None]:
    """Return each listener's advertised address, or None. Raises InvalidOption.

    Addresses with names are matched by name; those without by position, and a single one is for all listeners.
    """
    named = {each.listener: (each.host, each.port) for each in advertised if each.listener}
    plain = [(each.host, each.port) for each in advertised if not each.listener]
    if named and plain:
        raise InvalidOption("advertised.listeners names some listeners and not others", "advertised.listeners")
    if named:
        names = [each.listener for each in listeners]
        unknown = [name for name in named if name not in names]
        if unknown:
            raise InvalidOption(
                f"advertised.listeners names {unknown[0]}, which is no listener", "advertised.listeners"
            )
        return [named.get(name) for name in names]
    if len(plain) == len(listeners):
        return list(plain)
    return [plain[0] if plain else None] * len(listeners)


def _check(listener: ListenerSettings) -> None:
    """Raise InvalidOption if a listener lacks something it needs: a certificate, authorities, or a known SASL
    mechanism.
    """
    if listener.uses_tls and not listener.options.ssl_keystore_location:
        raise InvalidOption(
            f"listener {listener.name} speaks TLS and has no certificate",
            "ssl.keystore.location",
            "set ssl.keystore.location and ssl.key.location (serve --tls-cert FILE --tls-key FILE)",
        )
    asks = listener.uses_tls and listener.options.ssl_client_auth != NO_CERTIFICATE
    if asks and not listener.options.ssl_truststore_location:
        raise InvalidOption(
            f"listener {listener.name} asks for client certificates and trusts nobody who signs them",
            "ssl.truststore.location",
            "set ssl.truststore.location (serve --tls-client-ca FILE)",
        )
    if listener.asks_for_login:
        mechanisms = listener.options.sasl_enabled_mechanisms
        wrong = [each for each in mechanisms if each not in MECHANISMS]
        if wrong or not mechanisms:
            raise InvalidOption(
                f"listener {listener.name} has {f'the mechanism {wrong[0]}' if wrong else 'no mechanism'} to log in by",
                "sasl.enabled.mechanisms",
                f"set sasl.enabled.mechanisms to some of {', '.join(MECHANISMS)}",
            )

"""Settings for authentication and encryption: TLS, SASL PLAIN, SCRAM and OAUTHBEARER.

The rule: passwords, tokens and keys are in no repr, no log line and no error. TLS checks names and certificates unless
the settings turn that off. Source: KIP-43, KIP-84, KIP-255, KIP-342, KIP-651, RFC 4616, RFC 5802, RFC 7628, RFC 7677.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from .errors import InvalidConfigurationError

if TYPE_CHECKING:
    import ssl

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
ProvidedToken = str | tuple[str, float]
TokenProvider = Callable[[], ProvidedToken] | Callable[[], Awaitable[ProvidedToken]]

OAUTHBEARER = "OAUTHBEARER"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")  # RFC 7628, section 3.1
_EXTENSION_VALUE = re.compile(r"[\x20-\x7e\t\r\n]*")


class Token(NamedTuple):
    """A token and when it ends, in milliseconds since 1970."""

    token: str
    expires_ms: float

    def __repr__(self) -> str:
        return "Token()"


@dataclass(frozen=True, slots=True)
class Security:
    """How a client encrypts its connections and logs in.

    context: a TLS context to use as it is; without it one is made of the files or PEM texts. token_provider: called for
    each token of OAUTHBEARER; extensions: sent with it.
    """

    protocol: SecurityProtocol = "PLAINTEXT"
    context: "ssl.SSLContext | None" = field(default=None, repr=False)
    ca_file: str | None = None
    ca_pem: str | None = field(default=None, repr=False)
    certificate_file: str | None = None
    certificate_pem: str | None = field(default=None, repr=False)
    key_file: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    mechanism: Mechanism | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token_provider: TokenProvider | None = field(default=None, repr=False)
    extensions: Mapping[str, str] | None = field(default=None, repr=False, hash=False)

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise InvalidConfigurationError(
                f"security_protocol {self.protocol!r} is not known", hint=f"use one of {', '.join(PROTOCOLS)}"
            )
        if not isinstance(self.check_hostname, bool):
            raise InvalidConfigurationError(f"ssl_check_hostname={self.check_hostname!r} must be True or False")
        _check_files(self)
        provide = getattr(self.token_provider, "token", None)
        if callable(provide):  # an AbstractTokenProvider of aiokafka or kafka-python
            object.__setattr__(self, "token_provider", provide)
        if self.uses_sasl:
            _check_login(self)
        elif self.mechanism is not None:
            raise InvalidConfigurationError(
                f"sasl_mechanism is set, but security_protocol is {self.protocol}",
                hint='set security_protocol="SASL_SSL" (or "SASL_PLAINTEXT")',
            )

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def tls_context(self) -> "ssl.SSLContext | None":
        """Return the context for connections; None without TLS. Reads files. Raises InvalidConfigurationError."""
        if not self.uses_tls:
            return None
        if self.context is not None:
            return self.context
        import ssl  # it takes some 10 ms, so only if needed

        try:
            context = ssl.create_default_context(cafile=self.ca_file, cadata=self.ca_pem)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file, self.key_password or "")
            elif self.certificate_pem is not None:
                from ..effects.tls.pem import load_certificate

                load_certificate(context, self.certificate_pem, self.key_pem, self.key_password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise InvalidConfigurationError(f"TLS cannot be set up: {_reason(error)}", hint=_TLS_HINT) from None
        context.check_hostname = self.check_hostname
        return context


_TLS_HINT = "check the files or PEM texts of ssl_cafile, ssl_certfile, ssl_keyfile and ssl_password"


def _reason(error: Exception) -> str:
    """Return what is wrong, with the file if there is one. OpenSSL's texts contain nothing of a key."""
    path = getattr(error, "filename", None)
    text = getattr(error, "strerror", None) or str(error)
    return f"{path}: {text}" if path else text


def _check_files(security: Security) -> None:
    """Raise InvalidConfigurationError if a file and its PEM text are both set, if a PEM text is not in PEM format, or
    if a key is set without its certificate.
    """
    for file, pem, names in (
        (security.ca_file, security.ca_pem, ("ssl_cafile", "ssl_ca_pem")),
        (security.certificate_file, security.certificate_pem, ("ssl_certfile", "ssl_certificate_pem")),
        (security.key_file, security.key_pem, ("ssl_keyfile", "ssl_key_pem")),
    ):
        if file is not None and pem is not None:
            raise InvalidConfigurationError(f"{names[0]} and {names[1]} are both set", hint="set one of them")
        if pem is not None and "-----BEGIN " not in pem:
            hint = f"{names[0]} is for the path of a file"
            raise InvalidConfigurationError(f"{names[1]} is not a text in PEM format", hint=hint)
    if security.key_file is not None and security.certificate_file is None:
        raise InvalidConfigurationError("ssl_keyfile is set, but not ssl_certfile", hint="set both, as files")
    if security.key_pem is not None and security.certificate_pem is None:
        raise InvalidConfigurationError("ssl_key_pem is set, but not ssl_certificate_pem", hint="set both, as PEM")


def _check_login(security: Security) -> None:
    """Raise InvalidConfigurationError if the SASL mechanism is unknown, or lacks a user name, a password or a token
    provider that it needs.
    """
    mechanism = security.mechanism
    if mechanism not in MECHANISMS:
        raise InvalidConfigurationError(
            f"sasl_mechanism {mechanism!r} is not known", hint=f"use one of {', '.join(MECHANISMS)}"
        )
    if mechanism == OAUTHBEARER:
        if not callable(security.token_provider):
            raise InvalidConfigurationError(
                "OAUTHBEARER needs a function that returns a token", hint="set sasl_oauth_token_provider"
            )
        for name, value in (security.extensions or {}).items():
            if not _EXTENSION_NAME.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
                hint = "a name has letters only, and is not auth; a value has printable ASCII"
                raise InvalidConfigurationError(f"extension {name!r} cannot be sent", hint=hint)
    elif security.username is None or security.password is None:
        raise InvalidConfigurationError(
            f"{security.protocol} needs a user name and a password",
            hint="set sasl_plain_username and sasl_plain_password",
        )
    elif security.token_provider is not None or security.extensions is not None:
        raise InvalidConfigurationError(
            f"a token is for OAUTHBEARER, but sasl_mechanism is {mechanism}", hint='set sasl_mechanism="OAUTHBEARER"'
        )

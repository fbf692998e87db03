"""Settings for authentication and encryption: TLS, SASL PLAIN and SCRAM.

The rule: passwords and keys are in no repr, no log line and no error. TLS checks names and certificates unless told
not to.
Source: KIP-43, KIP-84, RFC 4616, RFC 5802, RFC 7677.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .errors import InvalidConfigurationError

if TYPE_CHECKING:
    import ssl

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class Security:
    """How to connect. `context` is used as it is; else one is made of the files, or of the system's authorities."""

    protocol: SecurityProtocol = "PLAINTEXT"
    context: "ssl.SSLContext | None" = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    mechanism: Mechanism | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise InvalidConfigurationError(
                f"security_protocol {self.protocol!r} is not known", hint=f"use one of {', '.join(PROTOCOLS)}"
            )
        if not isinstance(self.check_hostname, bool):
            raise InvalidConfigurationError(f"ssl_check_hostname={self.check_hostname!r} must be True or False")
        if self.uses_sasl:
            if self.mechanism not in MECHANISMS:
                raise InvalidConfigurationError(
                    f"sasl_mechanism {self.mechanism!r} is not known", hint=f"use one of {', '.join(MECHANISMS)}"
                )
            if self.username is None or self.password is None:
                raise InvalidConfigurationError(
                    f"{self.protocol} needs a user name and a password",
                    hint="set sasl_plain_username and sasl_plain_password",
                )
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
        """The context for connections, None without TLS. Reads files. Raises InvalidConfigurationError."""
        if not self.uses_tls:
            return None
        if self.context is not None:
            return self.context
        import ssl  # it takes some 10 ms, so only if needed

        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file, self.key_password)
        except OSError as error:  # ssl.SSLError is one
            raise InvalidConfigurationError(f"TLS cannot be set up: {error}") from None
        context.check_hostname = self.check_hostname
        return context

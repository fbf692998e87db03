"""What a new connection of one listener needs before it is served: TLS, a login, a client certificate, or nothing.

The rule: a client in its TLS handshake counts as one that has not logged in. If the user comes from the certificate, a
connection whose certificate no mapping rule accepts is closed.
"""

import logging

from ...effects.tls import Handshake, TlsFiles, peer_certificate
from ..config.listener_settings import NO_CERTIFICATE, ListenerSettings
from ..config.options import InvalidOption
from ..net.connection import Connection
from ..security.certificate_names import BadCertificate, mapping_rules, name_of, subject_of
from ..security.login import LoginRules
from ..security.principals import USER, Principal, Session
from .authenticator import Authenticator
from .certificates import Certificate


def tls_files(listener: ListenerSettings) -> TlsFiles:
    """Return the files and options of the listener's TLS context."""
    options = listener.options
    return TlsFiles(
        certificate=options.ssl_keystore_location,
        key=options.ssl_key_location or None,
        key_password=options.ssl_key_password or None,
        authorities=(options.ssl_truststore_location or None) if options.ssl_client_auth != NO_CERTIFICATE else None,
        client_auth=options.ssl_client_auth,
        versions=options.ssl_enabled_protocols,
        cipher_suites=options.ssl_cipher_suites,
    )


class ListenerAdmission:
    """Admits the connections of one listener. certificate: the listener's; None without TLS. rules: those of logins;
    None if clients do not log in.
    """

    def __init__(
        self,
        settings: ListenerSettings,
        authenticator: Authenticator,
        rules: LoginRules | None,
        certificate: Certificate | None,
    ) -> None:
        """rules: of logins; None if clients do not log in. certificate: None without TLS. Raises InvalidOption if
        ssl.principal.mapping.rules cannot be parsed.
        """
        self.settings = settings
        self.certificate = certificate
        self._authenticator = authenticator
        self._rules = rules
        self._names_by_certificate = certificate is not None and settings.options.ssl_client_auth != NO_CERTIFICATE
        try:
            self._mapping = mapping_rules(settings.options.ssl_principal_mapping_rules)
        except ValueError as error:
            raise InvalidOption(str(error), "ssl.principal.mapping.rules") from None

    def handshake_begun(self, handshake: Handshake) -> None:
        """Count a client whose TLS handshake begins as not logged in. Called by the server."""
        self._authenticator.add_unauthenticated(handshake, handshake.host)

    def handshake_ended(self, handshake: Handshake) -> None:
        """Stop counting a client whose TLS handshake has succeeded or failed. Called by the server."""
        self._authenticator.remove_unauthenticated(handshake)

    def connection_opened(self, connection: Connection) -> None:
        """Begin the login of a new connection, or take its user from its certificate. Called by the server before the
        first request.
        """
        if self._rules is not None:
            self._authenticator.take(connection, self._rules)
        elif self._names_by_certificate:
            self._identify_by_certificate(connection)

    def _identify_by_certificate(self, connection: Connection) -> None:
        """Set the connection's user from its client certificate, if it has sent one. If that names no user, close the
        connection.
        """
        shown = peer_certificate(connection.transport)
        if shown is None:  # the client need not send one
            return
        try:
            subject = subject_of(shown)
            name = name_of(subject, self._mapping)
        except BadCertificate as error:
            subject, name = str(error), None
        if name:
            principal = Principal(USER, name)
            if self._authenticator.has_room_for(connection, principal):
                connection.session = Session(principal, connection.client_host)
            else:
                connection.abort()
            return
        self._authenticator.metrics.failed_logins += 1
        text = "no rule lets a certificate of %s in (%r)"
        self._authenticator.rare_log.write(logging.WARNING, text, connection.client_host, subject)
        connection.abort()

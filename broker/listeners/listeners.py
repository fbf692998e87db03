"""All listeners of one broker: the logins and certificates that new connections need, and the objects that keep these
up to date.

The rule: all that a listener needs to identify its clients is loaded before it listens; otherwise the broker does not
start.
"""

import asyncio
import logging
from collections.abc import Callable

from ...effects.clock import Clock
from ...effects.disk import Disk, Executor
from ...effects.rng import Rng
from ..config.listener_settings import BY_TOKEN, ListenerSettings
from ..config.settings import BrokerSettings
from ..net.server import AdmitAll, ConnectionAdmission, Server
from ..security.credentials import ScramUsers, secret_set
from ..security.jwks import KeyRefresher
from ..security.login import LoginRules
from ..security.sasl import (
    NONCE_BYTES,
    PLAIN,
    SCRAM,
    BearerExchange,
    Exchange,
    PlainExchange,
    ScramExchange,
    fresh_nonce,
)
from ..security.security_log import SecurityLog
from .admission import ListenerAdmission, tls_files
from .authenticator import Authenticator
from .certificates import Certificate, CertificateWatch
from .tokens import TokenSource

PASSWORD_THREADS = 1  # one checks hundreds of passwords a second, and takes at most one processor
SECRET_BYTES = 32


class Listeners:
    """The logins, certificates and token keys of all listeners. authenticator: handles the requests of clients that
    have not logged in.
    """

    def __init__(
        self,
        server: Server,
        clock: Clock,
        rng: Rng,
        loop: asyncio.AbstractEventLoop,
        settings: Callable[[], BrokerSettings],
        disk: Disk,
    ) -> None:
        """Start the threads that check passwords. Raises CannotStartThread if that fails."""
        self._server = server
        self._clock = clock
        self._rng = rng
        self._loop = loop
        self._settings = settings
        self._disk = disk
        self._passwords = disk.executor("passwords", PASSWORD_THREADS)
        self._fetches: Executor | None = None  # fetches keys of tokens, if a listener accepts tokens
        self.authenticator = Authenticator(server, clock, loop, settings, self._passwords)
        self._certificates = CertificateWatch(self._passwords, loop)
        self._refreshers: list[KeyRefresher] = []

    def admissions(self, security_log: SecurityLog) -> list[ConnectionAdmission]:
        """Return the object that admits new connections, for each listener. If a listener asks for logins, and the
        security log has no secret for decoys yet, write one.

        Raises InvalidOption, BadTlsFiles, CannotStartThread, and KafkaError if the secret cannot be written.
        """
        users = security_log.state.users
        admissions: list[ConnectionAdmission] = []
        for listener in self._settings().served_listeners:
            rules = self._login_rules(listener, users) if listener.asks_for_login else None
            if rules is not None and not users.secret:
                security_log.commit([secret_set(self._rng.bytes(SECRET_BYTES))])
            certificate = None
            if listener.uses_tls:
                certificate = Certificate(listener.name, tls_files(listener), self._clock)
                self._certificates.certificates.append(certificate)
            asks = rules is not None or certificate is not None
            admissions.append(
                ListenerAdmission(listener, self.authenticator, rules, certificate) if asks else AdmitAll(listener)
            )
        return admissions

    def _login_rules(self, listener: ListenerSettings, users: ScramUsers) -> LoginRules:
        """Return the rules of a listener's logins. If it accepts tokens, also prepare to fetch the keys that verify
        them.

        users: those who may log in with a password.
        """
        options = listener.options
        tokens = TokenSource(listener) if BY_TOKEN in options.sasl_enabled_mechanisms else None
        if tokens is not None:
            self._fetches = self._fetches or self._disk.executor("keys of tokens")
            shown = f"{tokens.url} (listener {listener.name})"
            refresher = KeyRefresher(tokens.fetch, tokens.put, self._fetches, self._loop, tokens.every_ms, shown)
            tokens.verifier.on_unknown_key = refresher.hurry
            self._refreshers.append(refresher)

        def begin(mechanism: str) -> Exchange:
            """Return a new exchange for a login by this mechanism."""
            if mechanism == PLAIN:
                return PlainExchange(users)
            if mechanism in SCRAM:
                return ScramExchange(users, SCRAM[mechanism], fresh_nonce(self._rng.bytes(NONCE_BYTES)))
            assert tokens is not None
            return BearerExchange(tokens.verifier.verify, self._token_refused)

        return LoginRules(options.sasl_enabled_mechanisms, begin, options.connections_max_reauth_ms)

    def start(self) -> None:
        """Start to check regularly whether certificates and token keys have changed."""
        self._certificates.start()
        for refresher in self._refreshers:
            refresher.start()

    def reload_certificates(self) -> None:
        """Load the certificates of all listeners again, in worker threads."""
        self._certificates.reload()

    def stop(self) -> None:
        """Stop the timers for logins, certificates and keys, because no more clients are accepted."""
        self.authenticator.stop()
        self._certificates.stop()
        for refresher in self._refreshers:
            refresher.stop()

    def close(self) -> None:
        """Wait until worker threads have ended their jobs. Requests to web servers are not waited for."""
        self._passwords.close()
        if self._fetches is not None:
            self._fetches.abandon()

    def _token_refused(self, reason: str) -> None:
        self.authenticator.rare_log.write(logging.INFO, "a token is refused: %s", reason)

"""The TLS certificate of a listener: loads it, and loads it again when its files change.

The rule: a new certificate that cannot be used, or has expired, does not replace the old one; the log says why, and the
files are read again at their next change. Open connections keep the certificate that they began with.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from datetime import UTC, datetime

from ...effects.clock import Clock
from ...effects.threads import Executor, JobDropped
from ...effects.tls import BadTlsFiles, TlsFiles, first_certificate, server_context, stamp
from ..security.certificate_names import BadCertificate, expires_ms

log = logging.getLogger("fencepost.broker")

LOOK_S = 5.0  # how often the files are checked


class Certificate:
    """The certificate of one listener. context: the TLS context for new connections."""

    context: ssl.SSLContext

    def __init__(self, listener: str, files: TlsFiles, clock: Clock) -> None:
        """Load the certificate. If it has expired, a warning is logged. listener: the listener's name, for the log.
        Raises BadTlsFiles.
        """
        self._listener = listener
        self._files = files
        self._clock = clock
        self._stamp = stamp(files.paths)
        self.context = server_context(files)
        end_ms = _end_ms(files)
        if self._has_ended(end_ms):
            log.warning("listener %s: the certificate in %s has ended: %s", listener, files.certificate, _day(end_ms))

    def changed(self, *, always: bool = False) -> Callable[[], None] | None:
        """Load the files if they have changed, or in any case with `always`. Returns a function that puts them into
        effect; None if they have not changed.

        Blocks briefly; may run in any thread. The returned function must run in the loop. Raises BadTlsFiles.
        """
        now = stamp(self._files.paths)
        if now == self._stamp and not always:
            return None
        self._stamp = now
        context, end_ms = server_context(self._files), _end_ms(self._files)
        if self._has_ended(end_ms):
            raise BadTlsFiles(f"{self._files.certificate}: it ended {_day(end_ms)}")

        def take() -> None:
            """Use the loaded certificate for new connections."""
            self.context = context
            log.info("listener %s: its certificate is loaded again, and ends %s", self._listener, _day(end_ms))

        return take

    def keeps_old(self, reason: str) -> None:
        """Log that the new certificate cannot be used, and why; the old one stays in use."""
        log.error("listener %s: a new certificate cannot be used, the old one stays: %s", self._listener, reason)

    def _has_ended(self, end_ms: int) -> bool:
        """Return whether a certificate that expires at end_ms (wall time) has expired."""
        return end_ms <= self._clock.now_ms()


def _end_ms(files: TlsFiles) -> int:
    """Return when the certificate expires, in ms since 1970. Raises BadTlsFiles if it cannot be parsed."""
    try:
        return expires_ms(first_certificate(files.certificate))
    except BadCertificate as error:
        raise BadTlsFiles(f"{files.certificate}: {error}") from None


def _day(at_ms: int) -> str:
    """Return the date of a wall time, as YYYY-MM-DD in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()


class CertificateWatch:
    """Checks regularly, in a worker thread, whether the files of certificates have changed, and loads them again."""

    def __init__(self, executor: Executor, loop: asyncio.AbstractEventLoop) -> None:
        self.certificates: list[Certificate] = []
        self._executor = executor
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Check the files after LOOK_S seconds, and then again and again. Does nothing without certificates."""
        if self.certificates:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def stop(self) -> None:
        """Cancel the timer, so that files are no longer checked."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Load certificates whose files have changed, and set the timer again."""
        self.reload(always=False)
        self.start()

    def reload(self, *, always: bool = True) -> None:
        """Load the certificates whose files have changed; all of them if `always`."""
        if not self._stopped:
            for certificate in self.certificates:
                self._reload(certificate, always)

    def _reload(self, certificate: Certificate, always: bool) -> None:
        """Load one certificate in a worker thread. If its files cannot be used, log why; the old certificate stays in
        use.
        """

        def done(outcome: Callable[[], None] | BaseException | None) -> None:
            """Put the loaded certificate into effect, or log why it cannot be used."""
            if isinstance(outcome, BadTlsFiles):
                certificate.keeps_old(str(outcome))
            elif isinstance(outcome, BaseException):
                if not isinstance(outcome, JobDropped):
                    certificate.keeps_old(type(outcome).__name__)
            elif outcome is not None:
                outcome()

        self._executor.submit(lambda: certificate.changed(always=always), done, wanted=lambda: not self._stopped)

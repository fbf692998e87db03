"""TLS of a listener: the context from PEM files, and the handshakes of new connections.

The rules: TLS 1.2 or later, without renegotiation and compression. A client that must show a certificate resumes no
session, so that its certificate is checked each time. Each connection is accepted here and passed to the listener's
TlsAdmission before its handshake, and the admission may abort the handshake at any time. The handshake uses the context
of that moment, so a new certificate needs no new listener. A connection in its handshake counts as one in the limits.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .cipher_suites import BadCipherSuites, choose

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_FILES_HINT = "ssl.keystore.location, ssl.key.location and ssl.truststore.location are PEM files"
_SUITES_HINT = "openssl ciphers -s -stdname lists them, by the names of IANA and of OpenSSL"
SHUTDOWN_S = 5.0  # how long to wait for the client's close_notify
ACCEPTED_AT_ONCE = 64
PAUSE_S = 1.0  # after the system could not accept, as in asyncio


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files and options of a TLS context. key: None if it is in the certificate's file.

    authorities: the file with the certificates that sign client certificates; None: clients are not asked for
    certificates.
    """

    certificate: str
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    authorities: str | None = None
    client_auth: str = "none"
    versions: Sequence[str] = tuple(VERSIONS)
    cipher_suites: Sequence[str] = ()

    @property
    def paths(self) -> list[str]:
        """The paths of all files that are set."""
        return [path for path in (self.certificate, self.key, self.authorities) if path]


class BadTlsFiles(Exception):
    """Raised if the files or options cannot be used; the text names the file or the cipher suite, and the reason."""

    def __init__(self, text: str, hint: str = _FILES_HINT) -> None:
        super().__init__(text)
        self.hint = hint


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the TLS context of a listener, made from its files and options. Raises BadTlsFiles."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [VERSIONS[each] for each in files.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        choose(context, files.cipher_suites)
    except BadCipherSuites as error:
        raise BadTlsFiles(f"ssl.cipher.suites: {error}", _SUITES_HINT) from None
    password = files.key_password or ""  # an empty password keeps OpenSSL from asking at the terminal
    for path in files.paths:
        _check_readable(path)
    try:
        context.load_cert_chain(files.certificate, files.key, password)
    except (OSError, ValueError) as error:
        raise BadTlsFiles(f"{files.certificate}: {_why(error, files)}") from None
    if files.authorities is not None:
        try:
            context.load_verify_locations(files.authorities)
        except (OSError, ValueError) as error:
            raise BadTlsFiles(f"{files.authorities}: {_why(error, files)}") from None
    if files.client_auth != "none":
        context.verify_mode = CLIENT_AUTH[files.client_auth]
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def _check_readable(path: str) -> None:
    """Raise BadTlsFiles if the file cannot be read."""
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        raise BadTlsFiles(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _why(error: Exception, files: TlsFiles) -> str:
    """Return in words why the certificate cannot be used with its key. error: of OpenSSL."""
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"the key in {files.key or 'the same file'} is not that of the certificate"
    with open(files.key or files.certificate, "rb") as file:
        if b"ENCRYPTED" in file.read():
            return "the key is encrypted, and ssl.key.password does not decrypt it"
    if reason in ("NO_START_LINE", "NO_CERTIFICATE_OR_CRL_FOUND", "") or "PEM" in str(error):
        return f"no certificate{'' if files.key else ' with a key'} in PEM"
    return reason.lower().replace("_", " ")


def stamp(paths: Sequence[str]) -> tuple[object, ...]:
    """Return a value that differs after one of these files has changed."""
    stamps: list[object] = []
    for path in paths:
        try:
            found = os.stat(path)
            stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        except OSError as error:
            stamps.append(error.errno)
    return tuple(stamps)


def first_certificate(path: str) -> bytes:
    """Return the first certificate in a PEM file, in DER. Raises BadTlsFiles."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read()
        begin, end = text.index(ssl.PEM_HEADER), text.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)
        return ssl.PEM_cert_to_DER_cert(text[begin:end])
    except (OSError, ValueError) as error:
        raise BadTlsFiles(f"{path}: {error}") from None


def peer_certificate(transport: Any) -> bytes | None:
    """Return the client's verified certificate, in DER; None if it sent none."""
    shown = transport.get_extra_info("ssl_object")
    found: bytes | None = None if shown is None else shown.getpeercert(binary_form=True)
    return found


# ---- handshakes --------------------------------------------------------------------------------------------------


class Handshake:
    """The TLS handshake of a client that has connected. host: the client's address."""

    __slots__ = ("host", "task")

    def __init__(self, host: str) -> None:
        self.host = host
        self.task: asyncio.Task[None] | None = None

    def abort(self) -> None:
        """Close the connection. Does nothing after the handshake has ended."""
        if self.task is not None:
            self.task.cancel()


class TlsAdmission(Protocol):
    """Decides for each client of a TLS listener whether it is served, and with which context."""

    def context(self) -> ssl.SSLContext:
        """The context for handshakes that begin now."""
        ...

    def admit(self, handshake: Handshake) -> Callable[[], asyncio.Protocol] | None:
        """Return the factory of the new connection's protocol; None to close the connection."""
        ...

    def failed(self, handshake: Handshake, reason: str) -> None:
        """Called if the handshake failed. After a successful one the protocol's connection_made is called."""
        ...

    @property
    def timeout_s(self) -> float:
        """How many seconds a handshake may take."""
        ...


class TlsAcceptor:
    """Accepts connections on listening sockets, and runs the TLS handshake of each."""

    def __init__(self, sockets: Sequence[socket.socket], admission: TlsAdmission) -> None:
        self._loop = asyncio.get_running_loop()
        self._admission = admission
        self._sockets = sockets
        self._closed = False
        self._paused: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # the loop holds only weak references to tasks
        self._resume()

    def close(self) -> None:
        """Accept no more connections; handshakes that have begun continue. May be called again."""
        if not self._closed:
            self._closed = True
            self._pause()
            for one in self._sockets:
                one.close()

    def _resume(self) -> None:
        """Accept connections: at the beginning, and again after a pause."""
        self._paused = None
        for one in self._sockets:
            self._loop.add_reader(one.fileno(), self._accept, one)

    def _pause(self) -> None:
        """Accept no connections until _resume() is called."""
        if self._paused is not None:
            self._paused.cancel()
        else:
            for one in self._sockets:
                self._loop.remove_reader(one.fileno())

    def _accept(self, listener: socket.socket) -> None:
        """Accept the waiting connections, up to ACCEPTED_AT_ONCE. If no descriptor is left, pause for PAUSE_S.
        Called by the loop.
        """
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # most likely no file descriptors are left
                self._pause()
                self._paused = self._loop.call_later(PAUSE_S, self._resume)
                return
            self._begin(accepted, str(peer[0]))

    def _begin(self, accepted: socket.socket, host: str) -> None:
        """Begin the TLS handshake of an accepted connection, or close it if it is not admitted. host: the client's
        address.
        """
        handshake = Handshake(host)
        make = self._admission.admit(handshake)
        if make is None:
            accepted.close()
            return
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # the client has gone
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = handshake.task = self._loop.create_task(self._handshake(accepted, make))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._report_failed(task, handshake, accepted))

    async def _handshake(self, accepted: socket.socket, make: Callable[[], asyncio.Protocol]) -> None:
        """Run the TLS handshake of an accepted socket."""
        await self._loop.connect_accepted_socket(
            make,
            accepted,
            ssl=self._admission.context(),
            ssl_handshake_timeout=self._admission.timeout_s,
            ssl_shutdown_timeout=SHUTDOWN_S,
        )

    def _report_failed(self, task: asyncio.Task[None], handshake: Handshake, accepted: socket.socket) -> None:
        """Report the handshake if it failed. Called when its task is done or was cancelled, perhaps before it began."""
        self._tasks.discard(task)
        handshake.task = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            return
        accepted.close()
        self._admission.failed(handshake, _why_failed(error))
        if not isinstance(error, OSError | asyncio.CancelledError):  # cancelled by abort(), or at shutdown
            raise error


def _why_failed(error: BaseException) -> str:
    """Return in words why a handshake failed."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "TLS failed").lower().replace("_", " ")
    return "it was cut" if isinstance(error, asyncio.CancelledError) else "it took too long, or the client has gone"

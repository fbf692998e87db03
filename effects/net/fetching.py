"""Reads a URL: a local file, or the response of a web server. It blocks, so it is for worker threads.

The rule: it ends within a bounded time and returns a bounded number of bytes, whatever the server does. A socket's
timeout applies to each piece that arrives, so a server that sends a byte from time to time would never exceed it: when
the time is over, the connection is shut down while it is being read. A name lookup cannot be ended at all, and has no
timeout of its own. So everything is done in a thread, which is left behind if it hangs: one for each URL at most.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib import request
from urllib.error import HTTPError
from urllib.parse import urlsplit

from ..threads import CannotStartThread, start_thread

SCHEMES = ("file", "http", "https")
PIECE_BYTES = 64 << 10


class CannotFetch(Exception):
    """Raised if a URL could not be read. The text has the reason, but nothing of the content."""


def scheme_of(url: str) -> str:
    """Return the URL's scheme: file, http or https. Raises ValueError for another one, or a URL without path or
    host.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not (parts.path if parts.scheme == "file" else parts.netloc):
        raise ValueError(f"{url!r} is no URL of {', '.join(SCHEMES)}")
    return parts.scheme


def fetch(url: str, timeout_s: float, max_bytes: int) -> bytes:
    """Return the whole content of the URL. Raises CannotFetch, also after timeout_s or for more than max_bytes.

    If an earlier fetch of the same URL still hangs after its timeout, this one fails at once.
    """
    late = CannotFetch(f"timed out: it does not come within {timeout_s:g} s")
    before = _left_behind.get(url)
    if before is not None and before.is_alive():
        raise late
    outcome: list[bytes | Exception] = []

    def run() -> None:
        """Read the URL in a thread of its own, and keep the content or the exception."""
        try:
            outcome.append(_fetch(url, timeout_s, max_bytes))
        except Exception as error:
            outcome.append(error)

    try:
        thread = start_thread(run, f"fetch {url}")
    except CannotStartThread as error:
        raise CannotFetch(str(error)) from None
    thread.join(timeout_s)
    if not outcome:
        _left_behind[url] = thread
        raise late
    _left_behind.pop(url, None)
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


_left_behind: dict[str, threading.Thread] = {}  # by URL: the thread that did not end in time


def _fetch(url: str, timeout_s: float, max_bytes: int) -> bytes:
    """Read the URL in this thread. Returns its content. Raises CannotFetch."""
    end_s = time.monotonic() + timeout_s
    try:
        scheme_of(url)
        with _Guard(timeout_s) as guard, guard.opener().open(url, timeout=timeout_s) as answer:
            found = _read(answer, end_s, max_bytes)
    except (OSError, ValueError, HTTPException) as error:  # most of urllib's own are OSErrors
        found = None
        reason = _why(error)
        if isinstance(error, HTTPError):  # an HTTPError is also the response, which has to be closed
            error.close()
    if time.monotonic() > end_s:  # what was read may have been cut short
        raise CannotFetch(f"timed out: it does not come within {timeout_s:g} s")
    if found is None:
        raise CannotFetch(reason)
    return found


def _why(error: Exception) -> str:
    """Return the reason in words. The text of an HTTPException is left out, because it contains what was received."""
    text = "" if isinstance(error, HTTPException) else str(getattr(error, "reason", "") or error)
    return text or f"no answer of a web server ({type(error).__name__})"


def _read(answer: Any, end_s: float, max_bytes: int) -> bytes:
    """Read the response until its end, or until end_s (monotonic seconds). Returns the bytes. Raises CannotFetch for
    more than max_bytes.
    """
    read = getattr(answer, "read1", answer.read)
    pieces: list[bytes] = []
    left = max_bytes
    while time.monotonic() <= end_s and (piece := read(min(PIECE_BYTES, left + 1))):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            raise CannotFetch(f"it has more than {max_bytes} bytes")
    return b"".join(pieces)


class _Guard:
    """Shuts down the connections of one fetch after timeout_s."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._ended = threading.Event()  # set when the fetch has ended
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []  # duplicates of the connections' sockets
        self._is_over = False  # the timeout is over

    def __enter__(self) -> "_Guard":
        start_thread(self._end_at_timeout, "timeout of a fetch")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        with self._lock:
            for one in self._sockets:
                one.close()
            self._sockets.clear()

    def watch(self, one: socket.socket) -> None:
        """Have this connection shut down at the timeout, too. Raises TimeoutError if the timeout is over already.

        It uses a duplicate of the descriptor, because TLS detaches the original from its socket.
        """
        with self._lock:
            if self._is_over:
                raise TimeoutError("timed out")
            self._sockets.append(one.dup())

    def _end_at_timeout(self) -> None:
        """Wait for the end of the fetch; at the timeout, shut down its connections. Runs in a thread."""
        if self._ended.wait(self._timeout_s):
            return
        with self._lock:
            self._is_over = True
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def opener(self) -> request.OpenerDirector:
        """Return an opener of file, http and https URLs only, also after redirects."""
        opener = request.OpenerDirector()
        for handler in (
            request.ProxyHandler(),
            _Http(self.watch),
            _Https(self.watch),
            request.FileHandler(),
            request.UnknownHandler(),
            request.HTTPDefaultErrorHandler(),
            request.HTTPRedirectHandler(),
            request.HTTPErrorProcessor(),
        ):
            opener.add_handler(handler)
        return opener


Watch = Callable[[socket.socket], None]


class _Connection(HTTPConnection):
    """An HTTP connection that the guard watches as soon as it exists, so before a TLS handshake."""

    watch: Watch

    def connect(self) -> None:
        super().connect()
        self.watch(self.sock)


class _TlsConnection(HTTPSConnection, _Connection):
    """An HTTPS connection that the guard watches: HTTPSConnection.connect() calls _Connection.connect() before the
    handshake.
    """


class _Http(request.HTTPHandler):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def http_open(self, req: request.Request) -> HTTPResponse:
        return self.do_open(partial(_make_connection, _Connection, self._watch), req)


class _Https(request.HTTPSHandler):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def https_open(self, req: request.Request) -> HTTPResponse:
        return self.do_open(partial(_make_connection, _TlsConnection, self._watch), req)


def _make_connection(kind: type[_Connection], watch: Watch, host: str, /, **more: Any) -> _Connection:
    """Return a connection of this class, which calls `watch` with its socket once it is connected."""
    connection = kind(host, **more)
    connection.watch = watch
    return connection

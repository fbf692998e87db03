"""One connection of a browser, wrapped around aiohttp's: whether it is accepted, and how long it may be idle or
blocked.

The rule: a connection that sends no whole request, or that takes nothing of an answer, is ended; http/limits.py limits
what it costs until then. Only public names of aiohttp are used: each connection is a protocol of the console that
passes everything on to a protocol made by web.Server.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import cast

from aiohttp import web

from ..http.guard import HEADERS
from ..http.limits import ConnectionLimits
from ..http.problems import BAD_REQUEST, CROWDED, FAILED, Problem
from .app import refusal, secure

REQUEST_S = 30.0  # for the head of the first request of a connection
KEPT_S = 75.0  # for the head of each later one: aiohttp's own timer
STUCK_S = 60.0  # for an answer of which the browser reads nothing
log = logging.getLogger(__name__)


class Answering(web.RequestHandler):
    """aiohttp's protocol, but input that is not valid HTTP gets a JSON error that does not repeat it. Such input never
    reaches the application.
    """

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to a request that is not valid HTTP, or whose handling failed. Raises ConnectionError if a
        part of another answer is already sent.
        """
        log.debug("a bad request from %s", request.remote, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer is sent already")
        problem = Problem(FAILED, "the console has a bug") if status >= 500 else Problem(BAD_REQUEST, "bad request")
        response = refusal(problem)
        secure(response)
        response.force_close()
        return response


class Connection(asyncio.Protocol):
    """One connection of a browser, counted by `limits`. inner: aiohttp's protocol, which gets its bytes."""

    def __init__(self, inner: web.RequestHandler, limits: ConnectionLimits[asyncio.Transport]) -> None:
        inner.__class__ = Answering  # nothing public makes a web.Server use another class
        self._inner = inner
        self._limits = limits
        self._refused = False
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the new connection. If it is one too many, connections that wait for a request are closed for it; if
        all are busy, it gets a 503 and is closed.
        """
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is of no class of asyncio's
        closed = self._limits.admit(transport, address_of(transport))
        if closed is None:
            self._refused = True
            transport.write(_CROWDED)
            transport.close()
            return
        for each in closed:
            each.abort()
        self._inner.connection_made(transport)
        self._set_timer("first request", REQUEST_S, self._close_without_request)

    def _set_timer(self, name: str, after_s: float, call: Callable[[], None]) -> None:
        """Call `call` in after_s seconds, unless the connection ends before."""
        self._timers[name] = asyncio.get_running_loop().call_later(after_s, call)

    def _close_without_request(self) -> None:
        """Close the connection if no request has arrived on it yet."""
        if self._limits.is_new(self._transport):
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        if not self._refused:
            self._inner.eof_received()
        return None

    def pause_writing(self) -> None:
        """Abort the connection in STUCK_S unless the browser takes bytes before."""
        if not self._refused:
            self._inner.pause_writing()
            self._set_timer("stuck", STUCK_S, self._transport.abort)

    def resume_writing(self) -> None:
        """Let aiohttp write again: the browser has taken bytes."""
        if not self._refused:
            self._timers.pop("stuck").cancel()
            self._inner.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Remove the connection from the limits' count, and tell aiohttp unless it was refused."""
        for each in self._timers.values():
            each.cancel()
        self._limits.remove(self._transport)
        if not self._refused:
            self._inner.connection_lost(exc)


def address_of(transport: asyncio.BaseTransport) -> str:
    """Return the client's IP address; empty if the transport does not know it."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


def _crowded() -> bytes:
    """Return the bytes of the 503 response for a connection that is refused because too many are busy."""
    body = json.dumps(Problem(CROWDED, "too many connections are being answered", "try again").body()).encode()
    headers = {**HEADERS, "Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-store"}
    headers |= {"Content-Length": str(len(body)), "Retry-After": "5", "Connection": "close"}
    lines = ["HTTP/1.1 503 Service Unavailable", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body


_CROWDED = _crowded()

"""Runs a console: listens, serves until it is asked to stop, and closes what is open.

The rule: when it is asked to stop, event streams end at once, and other requests have two seconds.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from ...client.admin.admin import Admin
from ...client.consumer.consumer import Consumer
from ..http.guard import Guard, is_loopback
from ..http.problems import BAD_REQUEST, FAILED, Problem
from ..parts import Parts
from ..settings import BadAddress, ConsoleSettings
from .app import make_app, refusal, secure

ENDING_S = 2.0  # for requests that run when it ends
REQUEST_S = 30.0  # for the head of the first request of a connection
KEPT_S = 75.0  # for the head of each later one
LONGEST_LINE = 64 << 10  # of a request's head: names in a path are long when they are encoded
log = logging.getLogger(__name__)


class _Connection(RequestHandler):
    """Answers what is no request of HTTP, which never reaches the application, as all else: nothing is echoed."""

    __slots__ = ("_first_due",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._first_due = self._loop.call_later(REQUEST_S, self._close_without_request)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._first_due.cancel()
        super().connection_lost(exc)

    def _close_without_request(self) -> None:
        """aiohttp's own timer begins with the first answer, and ends with KEPT_S, later requests that do not come."""
        if self._waiter is not None and not self._keepalive:
            self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        log.debug("a bad request from %s", request.remote, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer is sent already")
        problem = Problem(FAILED, "the console has a bug") if status >= 500 else Problem(BAD_REQUEST, "bad request")
        response = refusal(problem)
        secure(response)
        response.force_close()
        return response


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Runner(web.AppRunner):
    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        server.__class__ = _Server  # aiohttp has no other way to name the class of connections
        return server


class Console:
    """new_admin: an Admin that is not started. new_consumer: of Parts."""

    def __init__(
        self,
        settings: ConsoleSettings,
        new_admin: Callable[[], Admin],
        new_consumer: Callable[[], Consumer] | None = None,
    ) -> None:
        settings.check()
        guard = Guard(
            settings.token,
            [*settings.hosts, *([] if is_loopback(settings.host) else [settings.host, socket.gethostname()])],
            secrets.token_urlsafe,
            changes_allowed=settings.changes_allowed,
            changes_hint=settings.changes_hint,
            log=log.warning,
        )
        self._settings = settings
        self.parts = Parts(settings.bootstrap, settings.version, secrets.token_hex(4), guard, new_admin, new_consumer)
        self._runner = _Runner(
            make_app(self.parts),
            access_log=None,
            shutdown_timeout=ENDING_S,
            keepalive_timeout=KEPT_S,
            handler_cancellation=True,
            max_line_size=LONGEST_LINE,
            max_field_size=LONGEST_LINE,
            auto_decompress=False,  # nobody sends compressed bodies here but to make them expand
        )
        self.port = 0

    async def start(self) -> None:
        """Listen. Raises BadAddress."""
        await self._runner.setup()
        settings = self._settings
        try:
            await web.TCPSite(self._runner, settings.host, settings.port).start()
        except OSError as error:
            await self._runner.cleanup()
            reason = (error.strerror or str(error)).lower()
            raise BadAddress(
                f"cannot serve the console on {settings.host}:{settings.port}: {reason}",
                "use another address, HOST:PORT of this machine; port 0 means a free port",
            ) from None
        self.port = self._runner.addresses[0][1]
        self.parts.guard.serve_at(self.port)

    @property
    def url(self) -> str:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"http://{host}:{self.port}/"

    async def close(self) -> None:
        await self._runner.cleanup()


async def serve(console: Console, ready: Callable[[str], None], ended: asyncio.Event) -> None:
    """Serve until `ended`. ready: gets its URL."""
    await console.start()
    try:
        ready(console.url)
        await ended.wait()
    finally:
        await console.close()

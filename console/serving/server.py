"""Runs a console: listens, serves until it is told to stop, and closes all connections.

The rule: when it is told to stop, event streams end at once, and other requests have two seconds.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable

from aiohttp import web

from ...client.admin.admin import Admin
from ...client.consumer.consumer import Consumer
from ...effects.net import Listener, SystemNet
from ..http.guard import Guard, is_loopback
from ..parts import Parts
from ..settings import BadAddress, ConsoleSettings
from . import connections
from .app import make_app

ENDING_S = 2.0  # for requests that run when it ends
LONGEST_LINE = 128 << 10  # of a request's head: an id of 32,767 bytes has three times as many when it is encoded
BACKLOG = 128
log = logging.getLogger(__name__)


class Console:
    """A console that can be served. new_admin: makes an Admin that is not started. new_consumer: see Parts."""

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
        self.parts = Parts(
            settings.bootstrap,
            settings.version,
            secrets.token_hex(4),
            guard,
            new_admin,
            new_consumer,
            waits_for=settings.waits_for,
        )
        self._runner = web.AppRunner(
            make_app(self.parts),
            access_log=None,
            shutdown_timeout=ENDING_S,
            keepalive_timeout=connections.KEPT_S,
            handler_cancellation=True,
            max_line_size=LONGEST_LINE,
            auto_decompress=False,  # no client needs it, and a small body could expand to fill the memory
        )
        self._listening: Listener | None = None
        self.port = 0

    async def start(self) -> None:
        """Start listening; `port` is the real port from then on. Raises BadAddress if it cannot listen."""
        await self._runner.setup()
        settings = self._settings
        try:
            self._listening = await SystemNet(BACKLOG).listen(self._connection, settings.host, settings.port)
        except OSError as error:
            await self._runner.cleanup()
            reason = (error.strerror or str(error)).lower()
            raise BadAddress(
                f"cannot serve the console on {settings.host}:{settings.port}: {reason}",
                "use another address, HOST:PORT of this machine; port 0 means a free port",
            ) from None
        self.port = self._listening.addresses[0][1]
        self.parts.guard.serve_at(self.port)

    def _connection(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        assert self._runner.server is not None
        return connections.Connection(self._runner.server(), self.parts.connections)

    @property
    def url(self) -> str:
        """Return the URL at which the console is served."""
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"http://{host}:{self.port}/"

    async def close(self) -> None:
        """Stop listening, end open requests and abort the connections that remain."""
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()
        for each in self.parts.connections.open():  # whose answers the browsers do not read
            each.abort()
        await asyncio.sleep(0)  # connections see their end in the next turn of the loop


async def serve(console: Console, ready: Callable[[str], None], ended: asyncio.Event) -> None:
    """Serve until `ended` is set. ready: called with the console's URL."""
    await console.start()
    try:
        ready(console.url)
        await ended.wait()
    finally:
        await console.close()

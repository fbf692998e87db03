"""Runs a console: listens, serves until it is asked to stop, and closes what is open.

The rule: when it is told to end, event streams end at once, and other requests have two seconds.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable

from aiohttp import web

from ..client.admin.admin import Admin
from .app import make_app
from .guard import Guard, is_loopback
from .parts import Parts
from .settings import BadAddress, ConsoleSettings

ENDING_S = 2.0  # for requests that run when it ends
log = logging.getLogger(__name__)


class Console:
    """new_admin: an Admin that is not started."""

    def __init__(self, settings: ConsoleSettings, new_admin: Callable[[], Admin]) -> None:
        settings.check()
        guard = Guard(
            settings.token,
            [*settings.hosts, *([] if is_loopback(settings.host) else [settings.host, socket.gethostname()])],
            secrets.token_urlsafe,
            changes_allowed=settings.changes_allowed,
            changes_hint=settings.changes_hint,
        )
        self._settings = settings
        self.parts = Parts(settings.bootstrap, settings.version, secrets.token_hex(4), guard, new_admin)
        self._runner = web.AppRunner(
            make_app(self.parts), access_log=None, shutdown_timeout=ENDING_S, handler_cancellation=True
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

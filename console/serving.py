"""Runs a console: listens, serves until it is told to end, and closes what is open.

The rule: an address that other machines reach is refused without a token, unless the caller insists.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass

from aiohttp import web

from ..client.admin.admin import Admin
from .app import make_app
from .guard import LEAST_TOKEN_CHARS, Guard, is_loopback
from .parts import Parts

ENDING_S = 2.0  # for requests that run when it ends
log = logging.getLogger(__name__)


class BadAddress(Exception):
    """This address may not be served, or not by this process. hint: what to do."""

    def __init__(self, cause: str, hint: str) -> None:
        super().__init__(cause)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """token: None: no login. hosts: names by which browsers may call it. changes_hint: what allows changes."""

    host: str
    port: int
    bootstrap: str
    version: str
    token: str | None = None
    hosts: Collection[str] = ()
    insecure: bool = False
    changes_allowed: bool = False
    changes_hint: str = ""

    def check(self) -> None:
        """Raises BadAddress."""
        if self.token is None and not self.insecure and not is_loopback(self.host):
            raise BadAddress(
                f"{self.host} is reachable from other machines, and the console asks for no login there",
                "--http-token-file FILE asks for a token; --insecure serves everybody",
            )
        if self.token is not None and len(self.token) < LEAST_TOKEN_CHARS:
            raise BadAddress(
                f"the token is shorter than {LEAST_TOKEN_CHARS} characters",
                "python -c 'import secrets; print(secrets.token_urlsafe())' makes one",
            )


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

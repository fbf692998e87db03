"""A console on a real socket in a thread of this process, for a browser; and where the browser is."""

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from fencepost.client.admin.admin import Admin
from fencepost.console.serving.server import Console, ConsoleSettings
from loops import new_loop

T = TypeVar("T")

NO_CHROMIUM = "the console's pages are NOT TESTED: no chromium on the PATH, and FENCEPOST_CHROMIUM names none"


def find_chromium() -> str | None:
    """Return the path of Chromium: from FENCEPOST_CHROMIUM, else on the PATH."""
    named = os.environ.get("FENCEPOST_CHROMIUM")
    if named:
        return named
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class ServedConsole:
    """A console that runs for the `with` block. port: of the broker."""

    def __init__(self, port: int, **settings: Any) -> None:
        bootstrap = f"127.0.0.1:{port}"
        settings = {"host": "127.0.0.1", "port": 0, "version": "0.1.0", "changes_allowed": True, **settings}
        self._settings = ConsoleSettings(bootstrap=bootstrap, **settings)
        self._new_admin = lambda: Admin(bootstrap)
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "ServedConsole":
        self._thread.start()

        async def start() -> Console:
            console = Console(self._settings, self._new_admin)
            await console.start()
            return console

        self.console = asyncio.run_coroutine_threadsafe(start(), self._loop).result(30)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self.console.close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    @property
    def url(self) -> str:
        return self.console.url

    def inside(self, look: Callable[[Console], T]) -> T:
        """Call `look` with the console in the console's own loop, and return its result."""

        async def run() -> T:
            return look(self.console)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

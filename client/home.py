"""The event loop in which a client was started: what waits for its connections can only wait there."""

import asyncio
from collections.abc import Callable
from threading import get_ident
from typing import Any

from .errors import IllegalStateError


class Home:
    """Entered once, at the start."""

    __slots__ = ("loop", "thread")

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = 0

    def enter(self) -> None:
        """This loop is it."""
        self.loop, self.thread = asyncio.get_running_loop(), get_ident()

    @property
    def is_elsewhere(self) -> bool:
        """Whether another loop than this one is where it was started.

        A thread runs one loop at a time; get_running_loop() would ask the kernel for the process, at every record.
        """
        loop = self.loop
        return loop is not None and not (loop.is_running() and get_ident() == self.thread)

    def check(self) -> None:
        """Raises IllegalStateError in a loop in which it was not started, where it would wait for ever."""
        if self.is_elsewhere:
            raise IllegalStateError(
                "the client was started in another event loop", hint="make one in each loop, or use fencepost.sync"
            )

    def call_soon(self, what: Callable[..., object], *args: Any) -> None:
        """Have it called there, from whatever thread, if the loop still is."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(what, *args)

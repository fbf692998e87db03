"""The event loop in which a client was started: what waits for its connections can only wait there."""

import asyncio
import os
from collections.abc import Callable
from threading import get_ident
from typing import Any

from ..errors import ForkedError, IllegalStateError

_forks = 0  # of this process and its parents, as far as they are behind it


def _after_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_after_fork)


class LoopAffinity:
    """Entered once, at the start."""

    __slots__ = ("_forks", "loop", "thread")

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = 0
        self._forks = _forks

    def enter(self) -> None:
        """This loop is it."""
        self.loop, self.thread, self._forks = asyncio.get_running_loop(), get_ident(), _forks

    @property
    def is_elsewhere(self) -> bool:
        """Whether another loop than this one is where it was started, or it was in another process.

        A thread runs one loop at a time; get_running_loop() would ask the kernel for the process, at every record.
        """
        loop = self.loop
        if loop is None:
            return False
        return self._forks != _forks or not (loop.is_running() and get_ident() == self.thread)

    @property
    def is_forked(self) -> bool:
        """Whether it was started before this process was forked; in the child its loop looks as if it ran."""
        return self._forks != _forks

    def check(self) -> None:
        """Raises IllegalStateError in a loop in which it was not started, where it would wait for ever; ForkedError."""
        if self.loop is not None and self.is_forked:
            raise ForkedError("this client was started before the process was forked")
        if self.is_elsewhere:
            raise IllegalStateError(
                "the client was started in another event loop", hint="create one in each loop, or use fencepost.sync"
            )

    def call_soon(self, what: Callable[..., object], *args: Any) -> None:
        """Have it called there, from whatever thread, if the loop still is."""
        if self.loop is not None and not self.loop.is_closed() and not self.is_forked:
            self.loop.call_soon_threadsafe(what, *args)

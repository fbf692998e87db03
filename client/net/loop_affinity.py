"""The event loop in which a client was started: the client works only there, since its connections belong to it."""

import asyncio
import os
from collections.abc import Callable
from threading import get_ident
from typing import Any

from ..errors import ForkedError, IllegalStateError

_forks = 0  # how many forks led to this process


def _after_fork() -> None:
    """Count forks: called in each child process."""
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_after_fork)


class LoopAffinity:
    """The loop, thread and process in which `enter` was called, once, at the client's start."""

    __slots__ = ("_forks", "loop", "thread")

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = 0
        self._forks = _forks

    def enter(self) -> None:
        """Bind the client to the running event loop, its thread and its process."""
        self.loop, self.thread, self._forks = asyncio.get_running_loop(), get_ident(), _forks

    @property
    def is_elsewhere(self) -> bool:
        """Return whether the caller is in another loop or process than the one of `enter`.

        Compares threads, since a thread runs one loop at a time: get_running_loop() makes a system call, which is too
        slow for each record.
        """
        loop = self.loop
        if loop is None:
            return False
        return self._forks != _forks or not (loop.is_running() and get_ident() == self.thread)

    @property
    def is_forked(self) -> bool:
        """Return whether this process is a fork of the process of `enter`. In the child, loop.is_running() is still
        true.
        """
        return self._forks != _forks

    def check(self) -> None:
        """Raise IllegalStateError in another loop, where a call would never return; ForkedError in a forked child."""
        if self.loop is not None and self.is_forked:
            raise ForkedError("this client was started before the process was forked")
        if self.is_elsewhere:
            raise IllegalStateError(
                "the client was started in another event loop", hint="create one in each loop, or use fencepost.sync"
            )

    def call_soon(self, what: Callable[..., object], *args: Any) -> None:
        """Schedule a call in the client's loop, from any thread; do nothing if the loop is closed."""
        if self.loop is not None and not self.loop.is_closed() and not self.is_forked:
            self.loop.call_soon_threadsafe(what, *args)

"""Ctrl-C and SIGTERM for commands that clean up: a signal sets a flag, which is checked where it is safe to stop.

The rule: the signal handler raises nothing. A signal may arrive in a callback of a C library, which would lose the
exception; in the middle of an import; or after a topic was created and before the command knows that it must delete it.
The second signal is not caught: it ends the process at once.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from types import FrameType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """A block in which the first SIGINT or SIGTERM only sets a flag. For the main thread only."""

    def __init__(self) -> None:
        self.wanted = False
        self._on_signal: Callable[[], None] = _nothing
        self._before: list[Any] = []

    def __enter__(self) -> "Interruption":
        self._before = [signal.signal(number, self._handle_signal) for number in _SIGNALS]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, before in zip(_SIGNALS, self._before, strict=True):
            signal.signal(number, before)

    def _handle_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Set the flag at the first signal, and let a second one have its default effect."""
        self.wanted = True
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        self._on_signal()

    def check(self) -> None:
        """Raise KeyboardInterrupt after a signal."""
        if self.wanted:
            raise KeyboardInterrupt

    def run(
        self, work: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    ) -> T:
        """Run `work` on an event loop of its own, and return its result; a signal cancels it. Raises KeyboardInterrupt
        after a signal, and what `work` raises.
        """
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            try:
                return runner.run(self._cancel_by_signal(work))
            except asyncio.CancelledError:
                self.check()
                raise

    async def _cancel_by_signal(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in this task, which a signal cancels."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            task.cancel()
            loop.call_soon_threadsafe(_nothing)  # wakes the loop, which may be waiting for its sockets

        self._on_signal = cancel
        if self.wanted:
            cancel()
        try:
            return await work
        finally:
            self._on_signal = _nothing


def _nothing() -> None:
    pass

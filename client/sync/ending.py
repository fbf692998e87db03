"""Ends a block of a transaction in the clients' thread: of a producer, or of an inbox."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from .loop_thread import LoopThread

ABORT_S = 2.0


def end_transaction(
    thread: LoopThread,
    aexit: Callable[..., Coroutine[Any, Any, None]],
    kind: type[BaseException] | None,
    error: BaseException | None,
    at: TracebackType | None,
) -> None:
    """Commit or abort in the clients' thread. After Ctrl-C, wait for the abort for a shorter time."""
    if error is None or isinstance(error, Exception):
        thread.run(lambda: aexit(kind, error, at))
    else:
        thread.run(lambda: _soon(aexit(kind, error, at)))


async def _soon(ending: Coroutine[Any, Any, None]) -> None:
    """Wait for an abort, for ABORT_S at most, then cancel it and wait until it has ended: the user waits for the
    prompt after Ctrl-C.
    """
    task = asyncio.ensure_future(ending)
    await asyncio.wait({task}, timeout=ABORT_S)
    if not task.done():
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

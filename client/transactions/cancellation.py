"""Waiting for another task while the waiting task may be cancelled."""

import asyncio
from typing import Any


async def outlast(task: "asyncio.Future[Any]", seconds: float) -> asyncio.CancelledError | None:
    """Wait up to `seconds` for the task to end, even if the caller is cancelled meanwhile. Returns the first of these
    cancellations, which the caller has to raise at last.
    """
    loop = asyncio.get_running_loop()
    first: asyncio.CancelledError | None = None
    until = loop.time() + seconds
    while not task.done() and (left := until - loop.time()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError as cancelled:
            first = first or cancelled
    return first


def is_cancelled() -> bool:
    """Return whether the running task was cancelled itself; False if only the task that it waits for was."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0

"""Waiting for another task while the waiting task may be cancelled."""

import asyncio
from typing import Any


async def outlast(task: "asyncio.Future[Any]", seconds: float) -> asyncio.CancelledError | None:
    """Wait up to `seconds` for the task to end, even if the caller is cancelled meanwhile. Returns the first of these
    cancellations, which the caller has to raise at last; None if there was none.
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


def cancellations() -> int:
    """Return how often the running task was cancelled; one that `asyncio.timeout` has taken back does not count. 0 if
    no task is running: only a task can be cancelled.
    """
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def is_cancelled() -> bool:
    """Return whether the running task was cancelled itself; False if only the task that it waits for was."""
    return cancellations() > 0

"""Waiting for a task of ours, when the one that waits may be cancelled too."""

import asyncio
from typing import Any


async def outlast(task: "asyncio.Task[Any]", seconds: float) -> None:
    """Wait for the task, whoever cancels us meanwhile, up to so many seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while not task.done() and (left := until - loop.time()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError:
            continue


def is_cancelled() -> bool:
    """Whether it is the running task that somebody cancels, and not what it waits for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0

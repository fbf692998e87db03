"""What becomes of a consumer that nobody holds any more and nobody closed: what ran for it ends.

The rule: nothing that runs in the background holds the consumer itself, or it could never be collected.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakMethod

from .cluster import Cluster
from .fetcher import Fetcher
from .group import Group
from .positions import Positions
from .reading import Reading

CLOSING_MS = 5_000


def weakly(method: Callable[[], None]) -> Callable[[], None]:
    """What runs in the background calls this: it does not hold a consumer that nobody else holds."""
    held = WeakMethod(method)

    def call() -> None:
        there = held()
        if there is not None:
            there()

    return call


_ENDING: set["asyncio.Task[None]"] = set()


def let_go(parts: Any) -> None:
    """Close these in the background. To be called in their loop."""
    _ENDING.add(task := asyncio.get_running_loop().create_task(_let_go_of(*parts)))
    task.add_done_callback(_ENDING.discard)


async def _let_go_of(
    reading: Reading, fetcher: Fetcher, positions: Positions, group: Group | None, cluster: Cluster
) -> None:
    """As close does, where there is no consumer any more."""
    reading.settle()
    fetcher.close()
    try:
        await positions.close()
        if group is not None:
            await group.close(timeout_ms=CLOSING_MS)
    finally:
        await cluster.close()

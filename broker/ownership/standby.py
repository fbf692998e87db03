"""A broker that waits until a store has no owner, and meanwhile fetches what it will need then.

The rule: the owner is watched even while something is fetched. Only one fetch runs at a time. When it has ended, the
next one begins, for the newest round (write of the journal) seen by then.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ...storage.objects.fence import Place
from ...storage.objects.kept import ReadingAhead
from ...storage.objects.standby import StandbyDirectory

InWorker = Callable[[Callable[[], None]], Awaitable[None]]


class Standby:
    """Fetches checkpoints and rounds (writes of the journal) of the owner, during one wait."""

    def __init__(self, directory: StandbyDirectory, ahead: ReadingAhead, in_worker: InWorker) -> None:
        """ahead: reads rounds (writes of the journal) before they are needed. in_worker: runs a function in a worker
        thread, and returns when it has ended.
        """
        self._directory = directory
        self._ahead = ahead
        self._in_worker = in_worker
        self._fetching: asyncio.Task[None] | None = None
        self._seen: Place | None = None

    def follow(self, newest: Place) -> None:
        """Fetch the point (checkpoint in the store) that this round names, and the rounds after it, unless a fetch is
        going on. Raises the exception of an earlier fetch that failed.
        """
        if self._fetching is not None:
            if not self._fetching.done():
                return
            self._fetching.result()
        if newest.epoch and newest != self._seen:
            self._seen = newest
            self._fetching = asyncio.create_task(self._fetch(newest), name="standby")

    async def _fetch(self, newest: Place) -> None:
        """Fetch the point (checkpoint in the store) that the round `newest` names into the directory, then read the
        rounds after it into memory.
        """
        await self._in_worker(lambda: self._directory.update(newest))
        await self._in_worker(lambda: self._ahead.read_before(newest))

    async def end(self) -> None:
        """Wait for the fetch that is going on, then unlock the directory. Raises the exception of a fetch that
        failed.
        """
        try:
            if self._fetching is not None:
                await self._fetching
        finally:
            await self._in_worker(self._directory.close)

"""What the parts of a consumer and of a share consumer have in common: start, end, and waiting between two reads."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from .errors import ClosedError, IllegalStateError
from .net.cluster import Cluster
from .net.environment import Environment
from .unclosed import Parts

CLOSING_MS = 5_000
LONGEST_WAIT_MS = 60_000.0


class ReaderParts(Parts):
    """The parts of a client that reads. name, class_name: what errors call it."""

    def __init__(self, cluster: Cluster, environment: Environment, name: str, class_name: str) -> None:
        super().__init__(cluster.affinity)
        self.cluster = cluster
        self._clock = environment.clock
        self._name, self._class_name = name, class_name
        self._waiting: dict[asyncio.Future[None], float] = {}  # until when each waits
        self._started = self._closed = self._is_done = False

    @property
    def is_open(self) -> bool:
        """Return whether the client is started and not closed."""
        return self._started and not self._closed

    def begin(self) -> None:
        """Start, after the cluster is connected."""
        super().begin()
        self._started = True

    def check_open(self) -> None:
        """Raise ClosedError after close()."""
        if self._closed:
            raise ClosedError(f"the {self._name} is closed")

    def check_started(self) -> None:
        """Raise ClosedError if the client is closed, IllegalStateError if it is not started or belongs to another event
        loop.
        """
        if not self.is_open:
            self.check_open()
            raise IllegalStateError(
                f"the {self._name} is not started", hint=f"async with {self._class_name}(...) as consumer: …"
            )
        self.cluster.affinity.check()

    async def close(self, timeout_ms: float = CLOSING_MS, *, is_done: bool = True) -> None:
        """Finish what is to be sent, leave the group and close all connections, within timeout_ms. Idempotent.

        is_done: whether the application has worked on everything that was returned to it.
        """
        if self._closed:
            return
        self._closed, self._is_done = True, is_done
        if self.cluster.affinity.is_elsewhere:  # its tasks cannot be awaited in this loop
            await self.end_from_other_loop(timeout_ms)
            return
        await self.end(timeout_ms)

    @contextmanager
    def _waiting_until(self, deadline_ms: float) -> "Generator[asyncio.Future[None]]":
        """Yield a future that is done at the deadline, or at the next _end_waits()."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[future] = deadline_ms
        left_ms = min(deadline_ms - self._clock.monotonic_ms(), LONGEST_WAIT_MS)
        timer = loop.call_later(left_ms / 1000, _set_done, future)
        try:
            yield future
        finally:
            timer.cancel()
            del self._waiting[future]

    def _end_waits(self) -> None:
        """Let every coroutine that waits for a change go on."""
        for future in self._waiting:
            _set_done(future)


def _set_done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)

"""What goes over all logs from time to time: retention, the expiry of producers, compaction. In slices.

A pass visits one log after another and gives the loop back whenever a slice is used up, so that thousands of logs, or
one with 200,000 producers, stall nobody. What a visit decides is a unit like any other change. Durations count on the
store's age, never on the wall clock.
"""

import asyncio
from collections.abc import Callable, Iterator

from ..effects.clock import Clock
from ..storage.log import PartitionLog
from ..storage.store import Store

SLICE_MS = 4
PAUSE_S = 0.005

Visit = Callable[[PartitionLog], Iterator[None]]
"""One log's turn: does its work between the yields, each part well under SLICE_MS."""


class Pass:
    """Goes over all logs with one visit, again and again: `every_ms` from the end of one pass to the next."""

    def __init__(
        self, store: Store, loop: asyncio.AbstractEventLoop, clock: Clock, every_ms: int, visit: Visit
    ) -> None:
        self._store = store
        self._loop = loop
        self._clock = clock
        self._every_ms = every_ms
        self._visit = visit
        self._steps: Iterator[None] = iter(())
        self._timer: asyncio.TimerHandle | None = None
        self.finished = 0

    def start(self) -> None:
        """Wait for the first pass."""
        self._timer = self._loop.call_later(self._every_ms / 1000, self._begin)

    def stop(self) -> None:
        """No further slice."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        self._steps = self._over_all()
        self._slice()

    def _over_all(self) -> Iterator[None]:
        for log in list(self._store.logs.values()):
            if log.offline is None:
                yield from self._visit(log)
                yield

    def _slice(self) -> None:
        """Work for SLICE_MS, then let the loop go on."""
        if self._store.halted is not None:
            return
        until_ms = self._clock.monotonic_ms() + SLICE_MS
        for _ in self._steps:
            if self._clock.monotonic_ms() >= until_ms:
                self._timer = self._loop.call_later(PAUSE_S, self._slice)
                return
        self.finished += 1
        self.start()


def retention(store: Store) -> Visit:
    """Move the start of a log past what its retention.ms and retention.bytes give up."""

    def visit(log: PartitionLog) -> Iterator[None]:
        start_offset = log.expired(store.age_ms())
        if start_offset is not None and store.admits(0, internal=True):
            store.commit([store.log_start_part(log, start_offset)])
        yield

    return visit


def producer_expiry(store: Store, expiration_ms: int) -> Visit:
    """Forget producers that were silent for so long and have no open transaction."""

    def visit(log: PartitionLog) -> Iterator[None]:
        while log.producers.expire(store.age_ms(), expiration_ms):
            yield

    return visit

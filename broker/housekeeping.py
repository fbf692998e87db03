"""What goes on beside requests: flushing, checkpoints, retention, compaction, expiry, and an eye on free space.

Everything here is a timer or a reaction to a released round; blocking parts run in the segments lane, slices on the
loop stay under 5 ms. A full disk is met by trying again later; any other failure of a write or sync halts the broker.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..effects.clock import Clock
from ..effects.disk import DiskFull, Lane
from ..storage.journal import Job
from ..storage.log import PartitionLog
from ..storage.store import Store
from ..storage.upkeep import CheckpointRun, FlushRun, Upkeep
from . import cleaning
from .rounds import Rounds

TICK_MS = 100
FLUSH_AT_BYTES = 4 << 20  # a flush starts when so much is released and unflushed
FLUSH_AFTER_MS = 2_000  # or when something was for so long
CHECKPOINT_AFTER_MS = 10_000  # at least so often while something changes
SLICE_MS = 5


@dataclass(frozen=True, slots=True)
class HousekeepingSettings:
    """How often; milliseconds."""

    retention_check_interval_ms: int = 300_000
    cleaner_backoff_ms: int = 15_000
    producer_expiration_check_interval_ms: int = 600_000
    producer_expiration_ms: int = 86_400_000


class Housekeeping:
    """Drives a store's upkeep on one loop."""

    def __init__(
        self,
        store: Store,
        rounds: Rounds,
        lane: Lane,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        settings: HousekeepingSettings,
    ) -> None:
        self._store = store
        self._rounds = rounds
        self._lane = lane
        self._loop = loop
        self._clock = clock
        self._settings = settings
        self._upkeep = Upkeep(store)
        self._flushing = False
        self._checkpointing = False
        self._filling = False
        self._stopped = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._last_flush_ms = self._last_checkpoint_ms = clock.monotonic_ms()
        self._congested = False
        self._passes = [
            cleaning.Pass(store, loop, clock, settings.retention_check_interval_ms, cleaning.retention(store)),
            cleaning.Pass(
                store,
                loop,
                clock,
                settings.producer_expiration_check_interval_ms,
                cleaning.producer_expiry(store, settings.producer_expiration_ms),
            ),
        ]
        self.on_relief: list[Callable[[], None]] = []
        self.checkpoints = 0
        self.flushes = 0
        rounds.on_release.append(self._released)

    def start(self) -> None:
        """Begin the timers."""
        self._store.look_at_free_space()
        self._fill()
        self._tick()
        for one in self._passes:
            one.start()

    def stop(self) -> None:
        """No timer fires any more; jobs under way finish on their own."""
        self._stopped = True
        for one in self._passes:
            one.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # ---- reactions -------------------------------------------------------------------------------------------

    def _released(self, moved: Collection[PartitionLog]) -> None:
        store = self._store
        if store.tail_bytes >= FLUSH_AT_BYTES and not self._flushing:
            self._flush()
        if not self._filling:
            self._fill()
        self._look_at_congestion()

    def _tick(self) -> None:
        if self._stopped or self._store.halted is not None:
            return
        self._timers["tick"] = self._loop.call_later(TICK_MS / 1000, self._tick)
        now_ms = self._clock.monotonic_ms()
        self._store.look_at_free_space()
        if not self._flushing and (self._store.journal.half_used or now_ms - self._last_flush_ms >= FLUSH_AFTER_MS):
            self._flush()
        due = now_ms - self._last_checkpoint_ms >= CHECKPOINT_AFTER_MS
        if not self._checkpointing and self._upkeep.behind and (due or self._store.journal.half_used):
            self._begin_checkpoint()
        self._fill()
        self._look_at_congestion()

    def _look_at_congestion(self) -> None:
        self._store.look()
        congested = self._store.congested
        if self._congested and not congested:
            for relieved in self.on_relief:
                relieved()
        self._congested = congested

    # ---- flush and checkpoint --------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._last_flush_ms = self._clock.monotonic_ms()
        run = self._upkeep.begin_flush()
        if run is not None:
            self._flushing = True
            self._lane.submit(run.run, lambda result: self._flushed(run, result))

    def _flushed(self, run: FlushRun, result: BaseException | None) -> None:
        self._flushing = False
        if isinstance(result, DiskFull):
            self._upkeep.flush_failed(run)
            return
        if isinstance(result, BaseException):
            self._rounds.halt(result)
            return
        self._upkeep.flushed(run)
        self.flushes += 1
        self._look_at_congestion()
        if self._store.unflushed and (self._store.tail_bytes >= FLUSH_AT_BYTES or self._store.journal.half_used):
            self._flush()

    def _begin_checkpoint(self) -> None:
        """Snapshots first, if due; then capture, have the journal synced that far, and write."""
        self._checkpointing = True
        jobs = self._upkeep.snapshots_due()
        if jobs:
            self._lane.submit(lambda: _run_all(jobs), lambda result: self._snapshotted(result))
        else:
            self._capture()

    def _snapshotted(self, result: BaseException | None) -> None:
        if isinstance(result, BaseException) and not isinstance(result, DiskFull):
            self._rounds.halt(result)
            return
        self._capture()

    def _capture(self) -> None:
        run = self._upkeep.begin_checkpoint()
        if self._store.synced_unit >= run.needs_unit:
            self._write_checkpoint(run)
        else:
            self._rounds.when_synced(run.needs_unit, lambda: self._write_checkpoint(run))

    def _write_checkpoint(self, run: CheckpointRun) -> None:
        self._lane.submit(run.run, lambda result: self._checkpointed(run, result))

    def _checkpointed(self, run: CheckpointRun, result: BaseException | None) -> None:
        self._checkpointing = False
        self._last_checkpoint_ms = self._clock.monotonic_ms()
        if isinstance(result, DiskFull):
            self._upkeep.checkpoint_failed(run)
            return
        if isinstance(result, BaseException):
            self._rounds.halt(result)
            return
        self.checkpoints += 1
        removals = self._upkeep.checkpointed(run)
        self._lane.submit(lambda: _run_all(removals), self._halt_on_error)
        self._look_at_congestion()

    def _fill(self) -> None:
        job = self._store.journal.fill_job()
        if job is not None:
            self._filling = True
            self._lane.submit(job.run, lambda result: self._filled(job, result))

    def _filled(self, job: Job, result: BaseException | None) -> None:
        self._filling = False
        if isinstance(result, BaseException):
            if not isinstance(result, DiskFull):
                self._rounds.halt(result)
            return
        self._store.journal.filled(job)
        self._look_at_congestion()

    def _halt_on_error(self, result: BaseException | None) -> None:
        if isinstance(result, BaseException):
            self._rounds.halt(result)


def _run_all(jobs: list[Job]) -> None:
    for job in jobs:
        job.run()

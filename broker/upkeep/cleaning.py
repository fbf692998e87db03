"""Regular passes over all logs: retention, expiry of producers, compaction.

A pass visits one log after another and pauses after each few milliseconds, so that thousands of logs, or one with
200,000 producers, delay no request. What a visit decides is written as a unit, like any other change. Durations are
measured in the store's age, never by the wall clock. A bug that occurs with one log affects only that log, if nothing
was written or what was written can be discarded: its producers are kept, or it is not compacted again, and the broker
continues. A lack of descriptors, memory or rights ends one compaction; any other OSError in what it writes halts the
broker.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from ...effects.disk import DirectoryMoved, TryLater
from ...protocol.errors import KafkaError
from ...storage.cleaning.compaction import begin_compaction
from ...storage.cleaning.retention import expired
from ...storage.log.partition_log import PartitionLog
from ...storage.store import Store
from ...storage.system_errors import may_pass

log = logging.getLogger("fencepost.broker")

T = TypeVar("T")
SLICE_MS = 4
PAUSE_S = 0.002
LONGEST_PAUSE_S = 60.0

Visit = Callable[[PartitionLog], Awaitable[None]]


def _any(one: PartitionLog) -> bool:
    """Return True, so that the pass visits every log."""
    return True


class Tasks(Protocol):
    """The methods of Housekeeping that a pass uses."""

    @property
    def ending(self) -> bool:
        """Whether the broker stops or is halted."""
        ...

    def stir(self) -> None:
        """Wake the tasks that flush, write checkpoints and prepare journal files."""
        ...

    async def pause(self, seconds: float) -> bool:
        """Sleep, at most until the broker ends. Returns whether it ends."""
        ...

    async def job(self, run: Callable[[], T]) -> T:
        """Run a blocking function in a worker thread. Raises what it raises."""
        ...


class Cleaning:
    """Visits logs: retention, expiry of producers, compaction."""

    def __init__(self, store: Store, tasks: Tasks) -> None:
        self._store = store
        self._tasks = tasks
        self._slice_began_ms = 0
        self.on_failure: list[Callable[[Exception], None]] = []  # called for what must never happen
        self.given_up: dict[int, Exception] = {}  # by log id: what is not compacted again before the next start

    async def every(
        self, interval_ms: Callable[[], int], visit: Visit, concerns: Callable[[PartitionLog], bool] = _any
    ) -> None:
        """Visit all online logs that `concerns` selects, again and again, with pauses of interval_ms(), until the
        broker ends.
        """
        while not await self._pause(interval_ms):
            self._slice_began_ms = self._store.clock.monotonic_ms()
            for one in list(self._store.logs.values()):
                if one.offline is None and concerns(one):
                    await visit(one)
                    await self._give_way()
                if self._tasks.ending:
                    return

    async def _pause(self, interval_ms: Callable[[], int]) -> bool:
        """Wait for interval_ms(). Returns whether the broker ends.

        A change of the interval while it waits takes effect within LONGEST_PAUSE_S.
        """
        waited_s = 0.0
        while (left_s := max(interval_ms() / 1000, 2 * PAUSE_S) - waited_s) > 0:
            pause_s = min(left_s, LONGEST_PAUSE_S)
            if await self._tasks.pause(pause_s):
                return True
            waited_s += pause_s
        return self._tasks.ending

    async def _give_way(self) -> None:
        """Pause, so that other tasks can run, if the pass has run for SLICE_MS since its last pause."""
        if self._store.clock.monotonic_ms() - self._slice_began_ms >= SLICE_MS:
            await self._tasks.pause(PAUSE_S)
            self._slice_began_ms = self._store.clock.monotonic_ms()

    async def retention(self, one: PartitionLog) -> None:
        """Delete the records that retention.ms and retention.bytes no longer keep, by moving the log start
        offset up.
        """
        start_offset = expired(one, self._store.age_ms())
        if start_offset is not None and self._store.admits(0, frees=True):
            self._store.commit([self._store.log_start_part(one, start_offset)])

    async def expiry(self, one: PartitionLog, expiration_ms: int) -> None:
        """Forget a log's producers that were idle for expiration_ms and have no open transaction."""
        try:
            while one.producers.expire(self._store.age_ms(), expiration_ms) and not self._tasks.ending:
                await self._tasks.pause(PAUSE_S)
        except Exception as error:
            log.error("producers of %s-%s are not forgotten: a bug", one.topic, one.partition, exc_info=error)
            self._report_bug(error)

    def may_compact(self, one: PartitionLog) -> bool:
        """Return whether this log is compacted at all. It is not if its settings do not say so, or if compacting it has
        failed because of a bug.
        """
        return one.settings.compacts and one.log_id not in self.given_up

    async def compaction(self, one: PartitionLog) -> None:
        """Compact a log if that is due. Slices run in a worker thread; segments are replaced in the loop."""
        run = begin_compaction(one, self._store.age_ms(), self._store.clock.monotonic_ms)
        if run is None:
            return
        try:
            while not run.finished:
                await self._tasks.job(run.run_slice)
                if await self._tasks.pause(PAUSE_S) or one.offline is not None:
                    one.compaction_failed(run)
                    return
        except TryLater:
            one.compaction_failed(run)
        except KafkaError as error:
            log.error("%s-%s is not compacted: %s", one.topic, one.partition, error.detail)
            one.compaction_failed(run)
        except (OSError, MemoryError) as error:
            if isinstance(error, OSError) and (one.open_files.sync_failed or not may_pass(error)):
                raise
            log.warning("%s-%s is not compacted now, a later run tries again: %r", one.topic, one.partition, error)
            one.compaction_failed(run)
        except DirectoryMoved:
            raise  # concerns all logs
        except Exception as error:
            self._give_up(one, error)
            one.compaction_failed(run)
        else:
            one.compacted(run)
        finally:
            self._tasks.stir()  # the next checkpoint is to delete the files that are not needed any more

    def _give_up(self, one: PartitionLog, error: Exception) -> None:
        """Do not compact this log any more until the next start, because of this error; log it."""
        self.given_up[one.log_id] = error
        log.error("%s-%s is not compacted any more until the next start", one.topic, one.partition, exc_info=error)
        self._report_bug(error)

    def _report_bug(self, error: Exception) -> None:
        """Call the callbacks in on_failure with this error, which comes from a bug."""
        for callback in self.on_failure:
            callback(error)

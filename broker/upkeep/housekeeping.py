"""Background work on the store: flushing, checkpoints, zero-filling of journal files, snapshots, cleaning.

While there is work, two tasks look for it ten times a second. While nothing changes they sleep until stir() is called.

Each kind of work is a task of its own. Blocking parts run in the segments executor; parts that run in the loop take
less than 5 ms. If the disk is full, or no descriptor is left to open a file, the work is tried again later. Any other
failure of a write or sync, or a bug in here, halts the broker: what is durable stays durable, and nothing more is
answered.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ...effects.clock import Clock
from ...effects.disk import CannotOpen, Executor, TryLater
from ...storage.log.partition_log import PartitionLog
from ...storage.store import Store
from ...storage.upkeep import LOST_AGE_MS, SNAPSHOTS_A_RUN, Removal, Upkeep
from ..rounds import Rounds
from .cleaning import Cleaning

T = TypeVar("T")

TICK_S = 0.1
FLUSH_AT_BYTES = 4 << 20  # a flush starts when so many released bytes are unflushed
FLUSH_AFTER_MS = 2_000  # a flush starts when this time has passed since the last one
FLUSH_THREADS = 2  # of a flush that is not paced; the executor's others are for checkpoints, removals, journal files
SOON_MS = 1_000  # between checkpoints while deleted topics take room, or the age is to be saved
AFTER_FAILURE_S = 0.5
SAVED_AGE_MS = 1_000  # an orderly stop makes a checkpoint if this much of the store's age is not saved
SLICE_PAUSE_S = 0.002


@dataclass(frozen=True, slots=True)
class HousekeepingSettings:
    """Intervals of the background work, in milliseconds."""

    checkpoint_interval_ms: int = 10_000
    retention_check_interval_ms: int = 300_000
    cleaner_backoff_ms: Callable[[], int] = lambda: 15_000  # it may be changed while running
    producer_expiration_check_interval_ms: int = 600_000
    producer_expiration_ms: Callable[[], int] = lambda: 86_400_000  # it may be changed while running


class Housekeeping:
    """Runs the background work of a store on one event loop."""

    def __init__(
        self,
        store: Store,
        rounds: Rounds,
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        settings: HousekeepingSettings,
    ) -> None:
        self.on_relief: list[Callable[[], None]] = []  # there is room again: sockets may be read
        self.on_tick: list[Callable[[int], None]] = []  # called with by how many ms the loop was late, while it works
        self.on_expiry: list[Callable[[PartitionLog], None]] = []  # silent producers of a log were forgotten
        self.before_checkpoint: list[Callable[[], Awaitable[None]]] = []  # what else is written down from time to time
        self.timeout_pending: Callable[[], bool] = lambda: False  # whether something ends at an age of the store
        self.checkpoints = 0
        self.flushes = 0
        self._store = store
        self._rounds = rounds
        self._executor = executor
        self._loop = loop
        self._clock = clock
        self._settings = settings
        self._upkeep = Upkeep(store, self._may_lose_ms)
        self._cleaning = Cleaning(store, self)
        self.on_failure = self._cleaning.on_failure  # a bug that one log's compaction met; the log is left alone then
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._flush_wanted = asyncio.Event()
        self._fill_wanted = asyncio.Event()
        self._watch_wanted = asyncio.Event()
        self._checkpoint_wanted = asyncio.Event()
        self._journal_filling = asyncio.Event()
        self._removal_wanted = asyncio.Event()
        self._removals: deque[Removal] = deque()
        self._congested = False
        self._hurried = False
        self._has_time: Callable[[], bool] = lambda: True
        self._last_flush_ms = clock.monotonic_ms()
        rounds.on_release.append(self._released)
        store.journal.when_wanted(self.stir)

    def start(self) -> None:
        """Begin all background tasks."""
        settings, cleaning = self._settings, self._cleaning
        self._store.look_at_free_space()
        self._fill_wanted.set()  # a journal begins with one file: clients are not read from while no other is ready
        self.keep(self._watch())
        self.keep(self._flush())
        self.keep(self._fill())
        self.keep(self._checkpoint())
        self.keep(self._remove())
        self.keep(cleaning.every(lambda: settings.retention_check_interval_ms, cleaning.retention))
        self.keep(cleaning.every(lambda: settings.producer_expiration_check_interval_ms, self._expire_producers))
        self.keep(cleaning.every(settings.cleaner_backoff_ms, cleaning.compaction, cleaning.may_compact))

    async def end_tasks(self) -> None:
        """Stop all tasks; each ends after its present piece of work."""
        self._stopping.set()
        self._flush_wanted.set()
        self._fill_wanted.set()
        self._journal_filling.set()
        self._removal_wanted.set()
        self.stir()
        await asyncio.gather(*self._tasks)

    async def leave_tidy(self, has_time: Callable[[], bool]) -> None:
        """Flush and checkpoint while has_time() returns True, so that the next start is quick. Call it after
        end_tasks().
        """
        self._has_time = has_time
        if self._store.halted is None:
            await self._halt_on_error(self._leave_tidy())

    async def _leave_tidy(self) -> None:
        """Flush, checkpoint and remove files before the stop, as far as time allows."""
        try:
            while self._has_time() and await self._flush_once():
                pass
            wanted = self._upkeep.behind or self._upkeep.wanted or self._upkeep.unsaved_age_ms >= SAVED_AGE_MS
            if wanted and self._has_time():
                await self._checkpoint_once()
            await self._remove_all()
        except TryLater:
            pass  # the journal has it all

    # ---- what tasks are made of ------------------------------------------------------------------------------

    async def pause(self, seconds: float) -> bool:
        """Sleep. Returns True if the broker stops or is halted."""
        if seconds <= SLICE_PAUSE_S:
            await asyncio.sleep(seconds)
        else:
            try:
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()
            except TimeoutError:
                pass
        return self.ending

    def stir(self) -> None:
        """Wake the tasks that flush, write checkpoints and prepare journal files."""
        self._watch_wanted.set()
        self._checkpoint_wanted.set()

    def hurry(self) -> None:
        """Flush and checkpoint now, regardless of the intervals. Used by tests that advance the clock."""
        self._hurried = True
        self._flush_wanted.set()
        self._journal_filling.set()
        self.stir()

    @property
    def ending(self) -> bool:
        """Whether the broker stops or is halted."""
        return self._stopping.is_set() or self._store.halted is not None

    async def job(self, run: Callable[[], T]) -> T:
        """Run a blocking job in the segments executor. Raises what it raises."""
        future: asyncio.Future[T] = self._loop.create_future()

        def done(result: T | BaseException) -> None:
            """Pass the job's result or exception to the awaiting task, if that was not cancelled meanwhile."""
            if future.cancelled():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        self._executor.submit(run, done)
        return await future

    async def _make_room(self, error: TryLater) -> None:
        """Wait before a retry. If the process ran out of file descriptors, first close some files of logs.

        Raises what OpenFiles.sync raises; then the broker must halt.
        """
        if isinstance(error, CannotOpen):
            await self.job(self._store.open_files.give_way)
        await self.pause(AFTER_FAILURE_S)

    async def _all(self, runs: Sequence[Callable[[], None]]) -> None:
        """Run blocking jobs in parallel and wait until all have ended. If some fail, raises one of their errors: a
        TryLater only if all are.
        """
        ended = await asyncio.gather(*map(self.job, runs), return_exceptions=True)
        if errors := [error for error in ended if error is not None]:
            raise min(errors, key=lambda error: isinstance(error, TryLater))

    def keep(self, work: Awaitable[None]) -> None:
        """Run `work` as one more task that end_tasks() waits for. An error that it raises halts the broker."""
        self._tasks.append(self._loop.create_task(self._halt_on_error(work)))

    async def _halt_on_error(self, work: Awaitable[None]) -> None:
        """Await the work; an exception halts the broker."""
        try:
            await work
        except Exception as error:
            self._rounds.halt(error)

    # ---- reactions -------------------------------------------------------------------------------------------

    def _released(self, moved: Collection[PartitionLog]) -> None:
        """Wake the tasks that have work to do after a round (one write of the journal) was released. moved: the logs
        whose readable end has moved.
        """
        if self._flush_is_due:
            self._flush_wanted.set()
        if self._store.journal.may_fill:
            self._fill_wanted.set()
        if self._store.journal.half_used:
            self._journal_filling.set()
        self.stir()
        self._look_at_congestion()

    async def _watch(self) -> None:
        """Every TICK_S, wake the tasks that may have work, until housekeeping ends. It sleeps while no work is
        expected.
        """
        tick_ms, due_ms = round(TICK_S * 1000), self._clock.monotonic_ms() + round(TICK_S * 1000)
        while not await self.pause(TICK_S):
            late_ms = max(0, self._clock.monotonic_ms() - due_ms)
            for ticked in self.on_tick:
                ticked(late_ms)
            if self._quiet:
                self._watch_wanted.clear()
                await self._watch_wanted.wait()
                self._last_flush_ms = self._clock.monotonic_ms()  # so that what has just arrived is not flushed alone
            self._store.look_at_free_space()
            waited_ms = self._clock.monotonic_ms() - self._last_flush_ms
            if self._store.journal.wants_recycling or waited_ms >= FLUSH_AFTER_MS:
                self._flush_wanted.set()
            self._fill_wanted.set()
            self._look_at_congestion()
            due_ms = self._clock.monotonic_ms() + tick_ms

    @property
    def checkpointed_unit(self) -> int:
        """The newest unit that is completely in segments which a checkpoint names."""
        return self._upkeep.checkpointed_unit

    @property
    def _quiet(self) -> bool:
        """Whether no work is due now or expected soon."""
        store = self._store
        plenty = store.spare_bytes > store.settings.tail_max_bytes  # nothing is refused for want of space
        return plenty and not (store.tail_bytes or store.unflushed or self._congested or store.congested)

    def _look_at_congestion(self) -> None:
        """Call the on_relief callbacks if the store was congested (nearly full) and is not any more."""
        self._store.look()
        congested = self._store.congested
        if self._congested and not congested:
            for relieved in self.on_relief:
                relieved()
        self._congested = congested

    @property
    def _flush_is_due(self) -> bool:
        """Whether tails (batches in memory, not in segments yet) are large, absolutely or relative to their limit."""
        return self._store.tail_bytes >= FLUSH_AT_BYTES or self._store.tails_are_large

    # ---- flushing and filling --------------------------------------------------------------------------------

    async def _flush(self) -> None:
        """Flush tails to segments whenever that is wanted, until housekeeping ends."""
        store = self._store
        while not self.ending:
            await self._flush_wanted.wait()
            if self._stopping.is_set():  # leave_tidy() flushes, as far as there is time
                return
            self._flush_wanted.clear()
            self._last_flush_ms = self._clock.monotonic_ms()
            try:
                more = await self._flush_pass()
            except TryLater as error:
                await self._make_room(error)
                continue
            if more and (self._flush_is_due or store.journal.wants_recycling):
                self._flush_wanted.set()

    async def _flush_pass(self) -> bool:
        """Flush as many bytes as the tails have now.

        Returns whether there may be more to flush. Raises what _flush_once() raises.
        """
        left = self._store.tail_bytes
        taken = await self._flush_once()
        while taken and (left := left - taken) > 0 and not self.ending:
            taken = await self._flush_once()
        return taken > 0

    async def _flush_once(self) -> int:
        """Write some tails (batches in memory) to segments. Returns how many bytes were written; 0 if there was nothing
        to write. Raises TryLater; the batches are then still in the tails.
        """
        run = self._upkeep.begin_flush(pace=not self.ending)
        if run is None:
            return 0
        try:
            await self._all(run.parts(FLUSH_THREADS))
        except TryLater:
            self._upkeep.flush_failed(run)
            raise
        self._upkeep.flushed(run)
        self.flushes += 1
        self.stir()
        self._look_at_congestion()
        size_bytes = run.size_bytes
        while run.let_go():  # frees the memory of some batches, so that others are served in between
            await self.pause(0)
        return size_bytes

    async def _fill(self) -> None:
        """Prepare zero-filled journal files before they are needed, until housekeeping ends."""
        journal = self._store.journal
        while not self.ending:
            await self._fill_wanted.wait()
            self._fill_wanted.clear()
            while not self.ending and (job := journal.fill_job()) is not None:
                try:
                    await self.job(job.run)
                except TryLater as error:
                    await self._make_room(error)
                journal.filled(job)
                self._look_at_congestion()

    # ---- checkpoints -----------------------------------------------------------------------------------------

    async def _checkpoint(self) -> None:
        """Make a checkpoint at every interval, sooner if the journal fills up or logs were deleted, until housekeeping
        ends. If nothing needs one, sleep until stir() is called.

        Whether a log needs one is asked once in an interval (asked_ms: last time), because that looks at every log.
        """
        interval_ms = self._settings.checkpoint_interval_ms
        last_ms = asked_ms = self._clock.monotonic_ms()
        while not await self._until_next_look():
            now_ms = self._clock.monotonic_ms()
            soon = self._upkeep.leaving or not self._upkeep.ms_until_behind
            due_ms = min(interval_ms, SOON_MS) if soon else interval_ms
            if not (now_ms - last_ms >= due_ms or self._store.journal.wants_recycling or self._hurried):
                continue
            self._hurried = False
            if not self._upkeep.behind:
                if now_ms - asked_ms < interval_ms:
                    continue
                asked_ms = now_ms
                if not self._upkeep.wanted:
                    await self._sleep_until_stirred()
                    last_ms = asked_ms = self._clock.monotonic_ms()
                    continue
            last_ms = asked_ms = now_ms
            for written in self.before_checkpoint:
                await written()
            named = self._upkeep.named_units
            try:
                await self._checkpoint_once()
            except TryLater as error:
                await self._make_room(error)
            if self._upkeep.named_units == named:  # nothing was freed: another one at once would free nothing either
                await self.pause(TICK_S)

    def _may_lose_ms(self) -> int:
        """Return how many ms of the store's age (its time in service) may be lost by a crash before the age is saved.

        They are fewer while a timeout is pending, since it would otherwise never end in a broker that is killed again
        and again.
        """
        return min(self._settings.checkpoint_interval_ms, LOST_AGE_MS) if self.timeout_pending() else LOST_AGE_MS

    async def _until_next_look(self) -> bool:
        """Sleep for TICK_S, or until a round is released while the journal is half used, if that is earlier. Returns
        whether the broker stops or is halted.
        """
        try:
            async with asyncio.timeout(TICK_S):
                await self._journal_filling.wait()
        except TimeoutError:
            pass
        self._journal_filling.clear()
        return self.ending

    async def _sleep_until_stirred(self) -> None:
        """Sleep until stir() is called, or until it is time to save the store's age."""
        self._checkpoint_wanted.clear()
        try:
            async with asyncio.timeout(self._upkeep.ms_until_behind / 1000):
                await self._checkpoint_wanted.wait()
        except TimeoutError:
            pass

    async def _checkpoint_once(self) -> None:
        """Make one checkpoint: write producer snapshots that are due, capture the state, sync the journal, write the
        checkpoint, and remove old files.
        """
        await self._snapshots(self._upkeep.snapshots_due())
        capture = self._upkeep.begin_capture()
        while capture.advance():
            await self.pause(SLICE_PAUSE_S)
        run = self._upkeep.captured(capture)
        try:
            await self.synced(run.content.synced_unit)
            self._store.check_running()
            await self.job(run.run)
        except TryLater:
            self._upkeep.checkpoint_failed(run)
            raise
        self.checkpoints += 1
        self._removals.append(self._upkeep.checkpointed(run))
        self._removal_wanted.set()
        self._look_at_congestion()
        self._fill_wanted.set()

    async def _remove(self) -> None:
        """Delete files that no checkpoint names. It is a task of its own because deleting gigabytes takes seconds, and
        the next checkpoint need not wait for that.
        """
        while not self.ending:
            await self._removal_wanted.wait()
            self._removal_wanted.clear()
            try:
                await self._remove_all()
            except TryLater as error:
                self._removal_wanted.set()
                await self._make_room(error)

    async def _remove_all(self) -> None:
        """Delete the files that the last checkpoints no longer name; an old checkpoint is deleted before the files that
        it names. Stops if the broker is halted, or when the time of an orderly stop is used up.
        """
        while self._removals and self._store.halted is None and self._has_time():
            await self.job(self._removals[0].run)
            self._removals.popleft()

    async def _snapshots(self, logs: Sequence[PartitionLog]) -> None:
        """Write the snapshots of producers of these logs. Returns early if the journal is nearly full and waits for the
        checkpoint.

        With thousands of logs this takes seconds.
        """
        for number, log in enumerate(logs):
            if not self._has_time() or (number >= SNAPSHOTS_A_RUN and self._store.journal.nearly_full):
                return
            while log.prepare_snapshot():
                await self.pause(SLICE_PAUSE_S)
            job = log.snapshot_job()
            if job is not None:
                await self.job(job.run)
                log.snapshotted(job)

    async def synced(self, unit: int) -> None:
        """Wait until the journal is synced up to and including this unit. Returns at once if it already is.

        Raises BrokerHalted; OSError, after which the broker must halt. The sync is a job of its own, not that of a
        round: rounds are released in order, so later rounds that need no sync would have to wait for it.
        """
        await self._wait_for(self._rounds.when_released, unit)
        if self._store.synced_unit < unit and (sync := self._store.journal.sync_job()) is not None:
            await self.job(sync.run)
            self._store.check_running()
            self._rounds.note_end_of_sync(sync)
        await self._wait_for(self._rounds.when_synced, unit)

    async def _wait_for(self, call_when: Callable[[int, Callable[[], None]], None], unit: int) -> None:
        """Wait until call_when, which is Rounds.when_released or when_synced, reports the unit. Raises BrokerHalted."""
        told = asyncio.Event()
        call_when(unit, told.set)
        while not told.is_set():
            try:
                async with asyncio.timeout(TICK_S):
                    await told.wait()
            except TimeoutError:
                self._store.check_running()

    async def _expire_producers(self, log: PartitionLog) -> None:
        """Forget a log's idle producers (producer.id.expiration.ms), then call the on_expiry callbacks."""
        await self._cleaning.expiry(log, self._settings.producer_expiration_ms())
        for expired in self.on_expiry:
            expired(log)

"""Keeps a store small and its recovery short: flushes tails, writes checkpoints, and removes files that two checkpoints
do not name.

Each step is a pair: a run captured on the loop, whose run() blocks and is for a worker, and a method that takes it
back. A checkpoint may name bytes of units that are not synced in the journal, if such a unit is a single batch of a
client: it is whole in its one log. A joint unit (any other) is in several logs, or others build on it; so a checkpoint
is written only after the journal is synced up to the newest joint unit (docs/decisions/0025).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from ..effects.disk import Disk, TryLater
from . import layout, store_checkpoint
from .journal.format import EVERYTHING
from .log.flush import FlushJob, SyncJob, run_syncs
from .log.open_files import OpenFiles
from .log.partition_log import PartitionLog
from .recovery import entries
from .store import Store
from .store_checkpoint import LogEntry, StoreCheckpoint

logger = logging.getLogger("fencepost.storage")

FLUSH_RUN_BYTES = 8 << 20  # of one flush: measured before flushes were paced
FLUSH_RUN_UNSYNCED_BYTES = 16 << 20  # while rounds are not synced (docs/decisions/0025)
FLUSH_RUN_BATCHES = 4_000  # fewer, and the loop and the worker change places more often: 6 % of the CPU at 1,000
LET_GO_BATCHES = 500  # at once: some 0.1 ms
SHARED_RUN_BYTES = 1 << 20  # from here on, if batches are not small, the disk is waited for, and not the interpreter
SMALL_BATCH_BYTES = 4 << 10  # on average
FLUSH_RUN_LOGS = 200  # each takes the loop some 20 us, before and after
CAPTURED_LOGS = 500  # at once for a checkpoint: some 4 ms
SNAPSHOTS_A_RUN = 64
LOST_AGE_MS = 600_000  # so much of the data directory's age a crash may take back, at most


@dataclass(slots=True)
class FlushRun:
    """Writes the tails of some logs to segments. paced: by one worker, in small pieces, as in File.write_past_cache."""

    jobs: list[tuple[PartitionLog, FlushJob]]
    paced: bool

    @property
    def size_bytes(self) -> int:
        """How many bytes all jobs write."""
        return sum(job.size_bytes for _, job in self.jobs)

    def run(self) -> None:
        """Write the batches of all jobs to segments, in a worker thread. Raises OSError; DiskFull."""
        for _, job in self.jobs:
            job.run()

    def let_go(self) -> bool:
        """Release some of the batches after the run has ended, because freeing the memory of all at once takes too
        long. Returns whether there are more.
        """
        left = LET_GO_BATCHES
        while self.jobs and left > 0:
            batches = self.jobs[-1][1].batches
            forgotten = min(left, len(batches))
            del batches[len(batches) - forgotten :]
            left -= forgotten
            if not batches:
                self.jobs.pop()
        return bool(self.jobs)

    def parts(self, threads: int) -> list[Callable[[], None]]:
        """Return up to `threads` functions that do the run's work in parallel workers; only run() if it is small or
        paced.
        """
        batches = sum(len(job.batches) for _, job in self.jobs)
        if self.paced or self.size_bytes < max(SHARED_RUN_BYTES, SMALL_BATCH_BYTES * batches):
            return [self.run]
        return [FlushRun(part, paced=False).run for first in range(threads) if (part := self.jobs[first::threads])]


@dataclass(slots=True)
class CheckpointRun:
    """A captured checkpoint. The journal must be synced through content.synced_unit before run()."""

    disk: Disk
    directory: str
    number: int
    content: StoreCheckpoint
    syncs: list[tuple[PartitionLog, SyncJob]]
    dropped: list[PartitionLog]  # this checkpoint is the first not to name them

    def run(self) -> None:
        """Sync the segments, then write the checkpoint, in a worker thread."""
        run_syncs([job for _, job in self.syncs])
        store_checkpoint.write(self.disk, self.directory, self.number, self.content)


@dataclass(slots=True)
class Removal:
    """Removes files and folders that no checkpoint names. If a late reader has opened such a file again, the file is
    closed first.

    If the operating system does not allow a removal, the file stays for the next start, which removes or reports it.
    """

    open_files: OpenFiles
    files: Sequence[str]
    folders: Sequence[str]

    def run(self) -> None:
        """Remove the files and folders. Raises TryLater: then it may be run again."""
        disk = self.open_files.disk
        for path in self.files:
            self._remove(path, disk.unlink)
            self.open_files.forget(path)
        for folder in self.folders:
            self._remove(folder, disk.remove_tree)
            self.open_files.forget_directory(folder)

    def _remove(self, path: str, remove: Callable[[str], None]) -> None:
        """Delete a file or folder if it exists. An error is logged; only TryLater is raised."""
        try:
            if self.open_files.disk.exists(path):
                remove(path)
        except TryLater:
            raise
        except OSError as error:
            logger.warning("%s is not needed any more and cannot be removed: %s", path, error.strerror or error)


class Capture:
    """Collects the content of a checkpoint, some logs at a time, so that thousands of logs do not block the loop.

    Each log is captured at one moment, with the syncs that it needs then; the unit of the checkpoint is that of the
    beginning. Later changes of other logs are above that unit, so a recovery applies them, and skips what a log already
    has. A log dropped meanwhile counts as dropped before the next checkpoint, whether or not this one names it.
    """

    def __init__(self, store: Store) -> None:
        """Begin with all logs of the store. Notes, in one step, the last unit (journal entry) that is flushed in every
        log, and the logs dropped since the last checkpoint.
        """
        logs = list(store.logs.values())
        pending = [log.first_unflushed_unit for log in logs if log.tail_bytes]
        self.through_unit = min((unit - 1 for unit in pending if unit is not None), default=store.last_unit)
        self.entries: list[LogEntry] = []
        self.syncs: list[tuple[PartitionLog, SyncJob]] = []
        self.dropped, store.dropped = store.dropped, []
        self._store = store
        self._waiting = iter(logs)

    def advance(self, at_most: int = CAPTURED_LOGS) -> bool:
        """Capture some more logs. Returns whether there may be more."""
        some = list(islice(self._waiting, at_most))
        logs = {log.log_id: log for log in some if log.log_id in self._store.logs}
        self.entries += entries(logs, self._store.topic_ids)
        self.syncs += [(log, job) for log in logs.values() if (job := log.sync_job()) is not None]
        return len(some) == at_most


class Upkeep:
    """Flushes and checkpoints one store. At most one flush and one checkpoint run at a time."""

    def __init__(self, store: Store, may_lose_ms: Callable[[], int] = lambda: LOST_AGE_MS) -> None:
        """may_lose_ms: returns how much of the store's age a crash may lose."""
        self._store = store
        self._may_lose_ms = may_lose_ms
        self._checkpoint = max(store_checkpoint.numbers(store.disk, store.directory))
        self._released_through = store.last_unit  # of the checkpoint before the newest
        self._newest_start = EVERYTHING
        self.checkpointed_unit = store.last_unit  # the newest checkpoint names all up to here
        self._newest_age_ms = store.age_ms()
        self._leaving: list[PartitionLog] = []  # dropped; the older of two checkpoints may still name them
        self._flushing: FlushRun | None = None

    # ---- flushing --------------------------------------------------------------------------------------------

    def begin_flush(self, *, pace: bool = True) -> FlushRun | None:
        """Return a run that writes the oldest released batches of some logs to segments; None if there are none.

        The run is larger while rounds are not synced (docs/decisions/0025), and is paced while they are
        (docs/decisions/0028). pace: False if no rounds are being written that the flush could slow down.
        """
        store = self._store
        unflushed = store.unflushed
        is_synced = store.synced_unit >= store.released_unit
        max_bytes = FLUSH_RUN_BYTES if is_synced else FLUSH_RUN_UNSYNCED_BYTES
        # On a device that is slow to answer, paced flushes may fall behind.
        is_behind = store.tails_are_large or store.journal.nearly_full
        paced = pace and is_synced and not is_behind
        max_batches = FLUSH_RUN_BATCHES
        jobs: list[tuple[PartitionLog, FlushJob]] = []
        for log in list(islice(unflushed, FLUSH_RUN_LOGS)):
            del unflushed[log]
            job = log.flush_job(max_bytes, max_batches, paced=paced)
            if job is None:
                continue
            jobs.append((log, job))
            max_bytes -= job.size_bytes
            max_batches -= len(job.batches)
            if max_bytes <= 0 or max_batches <= 0:
                break
        self._flushing = FlushRun(jobs, paced) if jobs else None
        return self._flushing

    def flushed(self, run: FlushRun) -> None:
        """Note that the run's bytes are in segment files (not synced yet): tails shrink."""
        store = self._store
        self._flushing = None
        for log, job in run.jobs:
            before = log.tail_bytes
            log.flushed(job)
            store.spare_bytes -= job.size_bytes
            if log.log_id in store.logs:
                store.tail_bytes -= before - log.tail_bytes
                store.tail_batches -= len(job.batches)
            self._queue_again(log)

    def flush_failed(self, run: FlushRun) -> None:
        """Undo a run that found the disk full: the bytes stay in tail and journal, and are flushed later."""
        self._flushing = None
        for log, job in run.jobs:
            log.flush_failed(job)
            self._queue_again(log)

    def _queue_again(self, log: PartitionLog) -> None:
        """Queue the log for a flush if it still has unflushed batches and was not dropped."""
        if log.tail_bytes and log.first_unflushed_unit is not None and log.log_id in self._store.logs:
            self._store.unflushed[log] = None

    # ---- checkpoints -----------------------------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Whether a checkpoint would shorten the next recovery, save the store's age, or allow journal files or folders
        to be removed.
        """
        if self.checkpointed_unit < self._store.last_unit or self._released_through < self.checkpointed_unit:
            return True
        return bool(self._leaving) or not self.ms_until_behind

    @property
    def named_units(self) -> tuple[int, int]:
        """The last units that the two newest checkpoints cover: (of the older one, of the newer one). A further
        checkpoint that leaves both numbers the same frees nothing.
        """
        return self._released_through, self.checkpointed_unit

    @property
    def leaving(self) -> bool:
        """Whether deleted logs are still on disk, because a checkpoint names them."""
        return bool(self._leaving or self._store.dropped)

    @property
    def ms_until_behind(self) -> int:
        """In how many ms a checkpoint is due to save the store's age, if nothing else happens."""
        return max(0, self._may_lose_ms() - self.unsaved_age_ms)

    @property
    def wanted(self) -> bool:
        """Whether any log needs a checkpoint or a snapshot. Looks at every log."""
        return any(log.wants_checkpoint or log.wants_snapshot for log in self._store.logs.values())

    @property
    def unsaved_age_ms(self) -> int:
        """How many ms of the store's age a crash would lose now."""
        return self._store.age_ms() - self._newest_age_ms

    def snapshots_due(self) -> list[PartitionLog]:
        """Return the logs whose producers are to be written to snapshots before the next checkpoint.

        A recovery reads all bytes since the snapshots. If they are above snapshot_interval_bytes together, the logs
        with the most of them are returned, until the rest is below that. Besides, up to SNAPSHOTS_A_RUN logs are
        returned whose compaction or removal of segments waits for a snapshot.
        """
        limit = self._store.settings.snapshot_interval_bytes
        logs = [log for log in self._store.logs.values() if log.offline is None]
        logs = [log for log in logs if log.bytes_since_snapshot or log.wants_snapshot]
        logs.sort(key=lambda log: log.bytes_since_snapshot, reverse=True)
        left = sum(log.bytes_since_snapshot for log in logs)
        due: list[PartitionLog] = []
        for log in logs:
            wanted = (log.settings.compacts or log.wants_snapshot) and len(due) < SNAPSHOTS_A_RUN
            if left > limit or wanted:
                due.append(log)
                left -= log.bytes_since_snapshot
        return due

    def begin_capture(self) -> "Capture":
        """Begin to collect the content of a checkpoint. Call advance() until that is complete, then captured()."""
        return Capture(self._store)

    def captured(self, capture: "Capture") -> CheckpointRun:
        """Return the checkpoint that was captured; its run() makes it durable."""
        store = self._store
        joint_unit = store.journal.last_joint_unit
        needed = joint_unit if joint_unit > capture.through_unit else 0  # else segments have that unit
        content = StoreCheckpoint(
            incarnation=store.incarnation,
            journal_incarnation=store.incarnation,
            through_unit=capture.through_unit,
            next_unit=store.journal.next_unit,
            next_round=store.journal.next_round,
            next_log_id=store.next_log_id,
            age_ms=store.age_ms(),
            synced_unit=max(store.synced_unit, needed),
            journal_start=store.journal.start_after(capture.through_unit),
            logs=capture.entries,
        )
        number = self._checkpoint + 1
        return CheckpointRun(store.disk, store.directory, number, content, capture.syncs, capture.dropped)

    def checkpointed(self, run: CheckpointRun) -> Removal:
        """Note that the checkpoint is on disk. Returns a job that removes the files which neither this checkpoint nor
        the one before it names.
        """
        store = self._store
        for log, job in run.syncs:
            log.synced(job)
        files = [layout.checkpoint_path(store.directory, run.number - 2)]
        for entry in run.content.logs:
            named = store.logs.get(entry.log_id)
            if named is not None:
                named.checkpointed()
                files.extend(named.removable_files())
        gone = self._logs_to_remove(run)
        files.extend(path for log in gone for path in log.kept_parts)
        removal = Removal(store.open_files, files, [log.directory for log in gone])
        self._checkpoint = run.number
        self._newest_age_ms = run.content.age_ms
        self._released_through, self.checkpointed_unit = self.checkpointed_unit, run.content.through_unit
        older_start, self._newest_start = self._newest_start, run.content.journal_start
        store.journal.recycle(self._released_through, older_start)
        return removal

    def _logs_to_remove(self, run: CheckpointRun) -> list[PartitionLog]:
        """Return the logs dropped before the older checkpoint, except the ones to which a worker still writes."""
        written_to = {log for log, _ in self._flushing.jobs} if self._flushing is not None else set()
        busy = [log for log in self._leaving if log in written_to or log.compacting]
        gone = [log for log in self._leaving if log not in busy]
        self._leaving = busy + run.dropped
        return gone

    def checkpoint_failed(self, run: CheckpointRun) -> None:
        """Note that the disk was full: the last checkpoint remains, and the next one captures everything again."""
        self._store.dropped = run.dropped + self._store.dropped

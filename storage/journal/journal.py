"""The write-ahead journal: every change of every log is a unit in it, and one sync makes many units durable.

Why. A broker has thousands of partitions, and each answer waits for a sync. With a file for each partition, each of
them would need a sync of its own; with one journal for all, one sync is enough. The segments are written later, from
memory. This is not urgent, because the journal has everything until a checkpoint names the segments.

Units and rounds. A unit takes effect completely or not at all: a batch, a topic's creation, the end of a transaction
with all its markers. Units are collected while the loop turns. A round is the units that one gathered write contains.
Its header has a checksum over its content and its place in the file, so bytes from an earlier use of the file never
count as a round.

The three states of a unit:
    appended   in memory and applied to the logs' state; nobody may see it or get an answer because of it
    written    its round is in the file
    synced     a sync that began after the write has ended, or the write itself was synced
               (effects/disk/async_writer.py); from now on it survives a power cut
A unit is released when it is synced, or in the mode `os` when it is written. Replies and reads wait for the release.

Rounds in flight. A round is finished, and its units released, only when all rounds before it are finished. So a round
that comes after a missing round was never released. Several rounds may be in flight at the same time if all of them are
to be synced, and they may end in any order (docs/decisions/0024). Other rounds are written one at a time. A round syncs
only its own bytes if every finished round before it is synced; otherwise it syncs all files that have unsynced rounds,
which may be more than one. When no more rounds may be in flight, units collect for the next round: so slow devices get
large rounds.

What a crash may leave. The end of the last round may be torn, and if several rounds were in flight, any of them may be
missing. They were not released, so recovery may cut them off. But if a round was synced and is invalid afterwards, this
is damage, and must never be cut off without a message. Both look alike. They are distinguished by `synced_through`:
each round header names the last round that was known to be synced, with all rounds before it, when the header was
written. If a valid header after a broken round n has synced_through >= n, round n was durable, and the broker does not
start (scan.py). For this reason an idle journal writes one more round without units, the seal, which names the last
round.

Files. They are created in advance at full size and synced once (files.py, preparing.py), so that a write changes
neither size nor allocation. A checkpoint says in which file the units after it begin. A file is used again once neither
of the last two checkpoints needs it. Its old contents may never have been on the device: without a sync (mode `os`) the
bytes stay in the page cache, and are overwritten there.

Errors. After a failed write or sync it is unknown what is on disk, even if a second sync succeeds, because the page
cache may have dropped what was not written. So nothing of that round is ever released, and the broker halts.

Incarnations. Unit and round numbers only grow, over all starts. A new Journal may be made only when all units of
earlier incarnations are in synced segments under a checkpoint: the earlier files are removed, and recovery reads the
newest incarnation only. docs/formats.md describes every byte.
"""

import functools
import os.path
from collections import deque
from collections.abc import Callable, Iterable

from ...effects.disk import Buffer, Disk, File
from ..sync_once import SyncOnce
from .any_journal import AnyJournal
from .files import JournalFiles
from .format import APPEND as APPEND
from .format import (
    BATCH_UNIT_BYTES,
    BLOCK_BYTES,
    EVERYTHING,
    ROUND_HEADER_BYTES,
    JournalStart,
    RoundHeader,
    blocks,
    pack_round_header,
)
from .format import CREATE as CREATE
from .format import DROP as DROP
from .format import LOG_START as LOG_START
from .format import Part as Part
from .format import PlacedBatch as PlacedBatch
from .format import Unit as Unit
from .format import UnitRefused as UnitRefused
from .preparing import KEPT_BACK_BYTES, PREPARING, Life, file_name, file_sequence
from .preparing import Job as Job
from .round_write import FileWrite
from .round_write import RoundWrite as RoundWrite
from .round_write import SyncJob as SyncJob

_ZEROS = memoryview(bytes(BLOCK_BYTES))


class Journal(AnyJournal):
    """A running journal. Not thread-safe: all methods belong to one thread; only RoundWrite.run, SyncJob.run and
    Job.run may run in others.
    """

    __slots__ = (
        "_closed",
        "_durable_synced_through",
        "_file",
        "_files",
        "_finished_round",
        "_finished_synced_through",
        "_holds_needless",
        "_in_flight",
        "_last_unit_round",
        "_needless",
        "_newest_sync_job",
        "_newest_synced_through",
        "_next_round",
        "_position",
        "_sync_jobs",
        "_synced_round",
        "_syncing",
        "_syncs",
        "_unsynced",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        incarnation: int,
        next_unit: int,
        next_round: int,
        max_bytes: int = 256 << 20,
        first_file_bytes: int = 1 << 20,
        largest_file_bytes: int = 32 << 20,
        keep_free_bytes: int = 0,
        salt: bytes = bytes(8),
    ) -> None:
        """Create a fresh file, durable before this returns; then remove the files of earlier incarnations (starts).

        Only to be called when every unit ever released is in synced segments that a synced checkpoint names.
        incarnation, next_unit and next_round must be above all that a journal here has had (Scan has them).
        keep_free_bytes: files are prepared only while this much of the disk stays free. salt: 8 random bytes, which
        keep clients from writing records that look like rounds.
        """
        newest = max((file_sequence(name) or 0 for name in disk.list(directory)), default=0)
        life = Life(incarnation, salt, newest + 1, next_round, next_unit)
        self._files = JournalFiles(
            disk,
            directory,
            life,
            max_bytes=max_bytes,
            first_file_bytes=first_file_bytes,
            largest_file_bytes=largest_file_bytes,
            keep_free_bytes=keep_free_bytes,
        )
        _remove_leftovers(disk, directory, keep=file_name(life.first_file))
        self.incarnation = incarnation
        self.next_unit = self._first_unit = next_unit
        self.released_unit = self.synced_unit = next_unit - 1
        self.last_joint_unit = 0
        self._next_round = next_round
        self._synced_round = self._last_unit_round = next_round - 1
        self._finished_round = next_round - 1
        # synced_through in the newest header; in that of the newest finished round, for a sync_job; and in the newest
        # that was synced, which says whether an empty round is needed.
        self._newest_synced_through = self._finished_synced_through = self._durable_synced_through = next_round - 1
        self._closed: list[FileWrite] = []
        self._unsynced: dict[File, int] = {}  # bytes of finished rounds that no sync covers
        self._syncing: dict[File, int] = {}  # bytes that a sync_job covers
        self._newest_sync_job: SyncJob | None = None
        self._sync_jobs: list[SyncJob] = []  # those that may still run
        self._syncs = SyncOnce()
        self._needless = 0, 0  # what the newest recycle() gave up: units through this one, and files before this number
        self._holds_needless = False  # whether a file that was given up is still being written or synced
        self._in_flight: deque[RoundWrite] = deque()
        self._buffers: list[Buffer] = [b""]  # of the open round; its header comes first when it is closed
        self._begin_file()

    @property
    def next_round(self) -> int:
        """The number of the next round."""
        return self._next_round

    # ---- room ------------------------------------------------------------------------------------------------

    def admits(self, size_bytes: int) -> bool:
        """Return whether a prepared file has room for a unit of this size.

        size_bytes: what unit_bytes() returns for its parts, or the size of its only batch. If False, the next
        fill_job() makes a file in which the unit fits, unless it is larger than largest_unit_bytes.
        """
        size_bytes += BATCH_UNIT_BYTES
        return size_bytes <= self._room or self._files.admits(size_bytes)

    def is_ready_for(self, size_bytes: int) -> bool:
        """Return whether the caller should append now. If False, a file is asked for as by admits(). True also if
        waiting would not help.
        """
        size_bytes += BATCH_UNIT_BYTES
        return size_bytes <= self._room or self._files.is_ready_for(size_bytes)

    @property
    def largest_unit_bytes(self) -> int:
        """The size in bytes of the largest unit that can be admitted."""
        return self._files.largest_unit_bytes - BATCH_UNIT_BYTES

    @property
    def used_bytes(self) -> int:
        """The size of the files that may hold units which are still needed."""
        return self._files.full_bytes + self._position

    @property
    def half_used(self) -> bool:
        """Whether half of the journal is in use, so that flush and checkpoint must run before more files are needed."""
        return 2 * self.used_bytes > self._files.max_bytes

    @property
    def wants_recycling(self) -> bool:
        """Whether half of the journal is in use, or files must be reused because the disk has no room for others."""
        return self.half_used or (self._files.starved and not self._files.ready)

    @property
    def nearly_full(self) -> bool:
        """Whether less than a quarter of the limit is left, or no file is ready and one is being made: waiting then
        helps.

        If the disk has no room for another file, waiting does not help: this is False, and admits() refuses.
        """
        files = self._files
        return 4 * (files.max_bytes - self.used_bytes) < files.max_bytes or not (files.ready or files.starved)

    # ---- rounds ----------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether units wait for take_round()."""
        return self.next_unit != self._first_unit or bool(self._closed)

    @property
    def lacks_seal(self) -> bool:
        """Whether no round header on disk records yet that the newest round with units was synced."""
        return self._durable_synced_through < self._last_unit_round

    def take_round(self, *, sync: bool) -> RoundWrite | None:
        """Close the open round and return it. The caller calls its run() or begin(), then finished(), in the order of
        rounds. Another round may be taken before that only if all rounds in flight are to be synced; else RuntimeError
        is raised, also if one has failed.

        Returns None if no units wait and `sync` is False. With `sync`, all earlier rounds are synced too. If no units
        wait then, nothing is written, unless all earlier rounds are synced already and no header on disk says so: then
        an empty round is written whose header does. Without that, recovery could not tell whether the last round was
        torn before its sync or damaged after it.
        """
        if any(write.failed or not (sync and write.sync) for write in self._in_flight):
            raise RuntimeError(
                "no round can begin: one in flight has failed, or rounds that are not synced go one at a time"
            )
        unsynced = _added(self._syncing, self._unsynced) if self._syncing else self._unsynced
        if self.next_unit != self._first_unit:
            self._close_round()
        elif not sync and not self._closed:
            return None
        elif sync and not self._closed and not unsynced and self.lacks_seal:
            self._close_round()
        writes, self._closed = self._closed, []
        size_bytes = sum(size for _, _, _, size in writes)
        files = tuple(dict.fromkeys([*(unsynced if sync else ()), *(file for file, _, _, _ in writes)]))
        write = RoundWrite(
            writes,
            functools.partial(self._sync, files),
            files=files,
            sync=sync,
            own_sync_is_enough=not unsynced,
            size_bytes=size_bytes,
            to_sync_bytes=sum(unsynced.values()) + size_bytes,
            through_unit=self.last_unit,
            through_round=self._next_round - 1,
            synced_through=self._newest_synced_through,
        )
        self._in_flight.append(write)
        return write

    def finished(self, write: RoundWrite) -> None:
        """Note that a round (the units of one write) is written: its units count as released.

        Called after its run() has returned or its begin() has called back. Raises RuntimeError if it or one before it
        was not written.
        """
        if not self._in_flight or write is not self._in_flight[0] or not write.done:
            raise RuntimeError("the round cannot be released: it or one before it was not written")
        self._in_flight.popleft()
        self.released_unit = write.through_unit
        self._finished_round = write.through_round
        self._finished_synced_through = write.synced_through
        if write.sync:
            self._note_synced(write.through_unit, write.through_round, write.synced_through)
            self._unsynced, self._syncing = {}, {}
        else:
            for file, size_bytes in write.sizes:
                self._unsynced[file] = self._unsynced.get(file, 0) + size_bytes
        if self._holds_needless:
            self._retire()

    def sync_job(self) -> SyncJob | None:
        """Return a job that syncs all finished rounds while later ones are written; call synced() when it has ended.
        None if there is nothing to sync, or if a round that is being written will sync them.

        If the job raises OSError, it is unknown what is on disk, as after a failed round, even if later syncs succeed.
        """
        if not (self._unsynced or self._syncing) or any(write.sync for write in self._in_flight):
            return None
        self._syncing, self._unsynced = _added(self._syncing, self._unsynced), {}
        files = tuple(self._syncing)
        sync = functools.partial(self._sync, files)
        job = SyncJob(sync, files, self.released_unit, self._finished_round, self._finished_synced_through)
        self._newest_sync_job = job
        self._sync_jobs.append(job)
        return job

    def synced(self, job: SyncJob) -> None:
        """Note that the sync job has ended without an error: the units that it covers survive a power cut. A newer job
        covers everything that an older one does.
        """
        if job is self._newest_sync_job:
            self._syncing = {}
        self._note_synced(job.through_unit, job.through_round, job.synced_through)
        if self._holds_needless:
            self._retire()

    def _note_synced(self, unit: int, number: int, synced_through: int) -> None:
        """Note that units up to `unit` and rounds up to `number` are synced. Has no effect if a later sync has covered
        them.

        synced_through: the last round that was synced according to the newest of the headers that are synced now.
        """
        self.synced_unit = max(self.synced_unit, unit)
        self._synced_round = max(self._synced_round, number)
        self._durable_synced_through = max(self._durable_synced_through, synced_through)

    def _sync(self, files: Iterable[File]) -> None:
        """Sync these files, blocking, in a worker thread. Raises OSError; it is then unknown what is on disk."""
        self._syncs.run(functools.partial(_sync_each, files))

    # ---- files -----------------------------------------------------------------------------------------------

    def fill_job(self) -> Job | None:
        """Return a job that makes the next files ready; None if that is not needed. One may run at a time; then call
        filled().
        """
        return self._files.preparation()

    def filled(self, job: Job) -> None:
        """Note that the job of fill_job() has ended, without an error or with TryLater (any other error halts the
        broker): its files can be used.
        """
        self._files.settle()

    @property
    def may_fill(self) -> bool:
        """Return whether fill_job() may return a job. Cheap enough to call at every round."""
        return self._files.incomplete

    def when_wanted(self, callback: Callable[[], None]) -> None:
        """Set a function that is called when no ready file has room for a unit."""
        self._files.on_wanted = callback

    def start_after(self, unit: int) -> JournalStart:
        """Return where a scan for all units after this one begins: the journal_start of a checkpoint through `unit`."""
        file = self._files.holding_units_after(unit)
        return JournalStart(file.sequence, file.first_round or self._next_round)

    def recycle(self, through_unit: int, start: JournalStart = EVERYTHING) -> None:
        """Reuse files that no checkpoint needs. through_unit, start: of the older of the two durable checkpoints.

        The next fill_job() reuses the files before `start`, and those after it that JournalFiles.retire() allows. A
        file that is still to be written or synced, also by a worker thread, is not closed now: it is reused when that
        has ended, even if no further checkpoint is made.
        """
        self._needless = through_unit, start.file
        self._retire()

    def _retire(self) -> None:
        """Make those files ready for reuse whose units no checkpoint needs and that no write or sync uses."""
        self._sync_jobs = [job for job in self._sync_jobs if not job.ended]
        in_use = {file for job in self._sync_jobs for file in job.files}
        in_use.update(file for write in self._in_flight for file in write.files)
        in_use.update(file for file, _, _, _ in self._closed)
        through_unit, start_file = self._needless
        for retired in self._files.retire(through_unit, start_file, self._synced_round, in_use):
            self._unsynced.pop(retired.file, None)
            self._syncing.pop(retired.file, None)
        self._holds_needless = len(self._files.held) > 1 and self._files.held[0].file in in_use

    def close(self) -> None:
        """Close the files. Writes nothing."""
        self._files.close()

    # ---- inside ----------------------------------------------------------------------------------------------

    def _make_room(self, size_bytes: int) -> None:
        """End the current file and go on in the first ready one with room for `size_bytes`; smaller ones are skipped.
        Raises UnitRefused if no file is ready.
        """
        if not self._files.admits(size_bytes):
            raise UnitRefused(f"no journal space is ready for a unit of {size_bytes} bytes")
        if self.next_unit != self._first_unit:
            self._close_round()
        while self._room < size_bytes:
            self._close_round(ends_file=True)
            self._files.advance()
            self._begin_file()

    def _begin_file(self) -> None:
        """Begin a round in the current file, right after the file's header."""
        self._file = self._files.current
        self._begin_round(BLOCK_BYTES)

    def _begin_round(self, position: int) -> None:
        """Begin an empty round at this position of the current file."""
        self._position = position
        self._room = self._round_room = self._file.size_bytes - KEPT_BACK_BYTES - position - ROUND_HEADER_BYTES
        self._buffers = [b""]
        self._first_unit = self.next_unit

    def _close_round(self, *, ends_file: bool = False) -> None:
        """Complete the open round with its header, and with zeros up to the next block, so that the next take_round()
        takes it; begin a new round after it. ends_file: the header says that no round follows in this file.
        """
        file = self._file
        units = self.next_unit - self._first_unit
        length = self.open_bytes
        header = RoundHeader(
            self.incarnation, self._next_round, self._first_unit, self._synced_round, units, length, ends_file
        )
        size = blocks(ROUND_HEADER_BYTES + length)
        buffers = self._buffers
        buffers[0] = pack_round_header(header, file.seed, self._position)
        if padding := size - ROUND_HEADER_BYTES - length:
            buffers.append(_ZEROS[:padding])
        self._newest_synced_through = self._synced_round
        self._closed.append((file.file, self._position, buffers, size))
        if units:
            self._last_unit_round = self._next_round
        file.first_round = file.first_round or self._next_round
        file.last_unit = self.last_unit
        self._next_round += 1
        self._begin_round(self._position + size)


def _added(first: dict[File, int], second: dict[File, int]) -> dict[File, int]:
    """Return the sums of two counts of bytes, for each file that is in one of them or in both."""
    return {file: first.get(file, 0) + second.get(file, 0) for file in first | second}


def _sync_each(files: Iterable[File]) -> None:
    """Sync the files one after another. Raises OSError."""
    for file in files:
        file.sync()


def _remove_leftovers(disk: Disk, directory: str, *, keep: str) -> None:
    """Remove all journal files except `keep`, also unfinished ones."""
    names = [name for name in disk.list(directory) if file_sequence(name.removesuffix(PREPARING)) is not None]
    for name in names:
        if name != keep and not disk.is_directory(os.path.join(directory, name)):
            disk.unlink(os.path.join(directory, name))
    if len(names) > 1:
        disk.sync_directory(directory)

"""PartitionLog: one partition's records, the newest in memory (the tail), the others in segments.

The rule: records are added only by `apply` and apply_next, in service and in recovery alike, and neither can fail.
Nothing here waits for the disk: a worker runs blocking work as jobs, whose results are taken back on the loop. Segments
are written after the journal, and contain only released batches (docs/glossary.md). The manifest in the store's
checkpoint says which bytes of the segments count.

Source: Kafka's UnifiedLog.
"""

import os.path
import sys
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from ...effects.disk import Buffer, Disk
from ...protocol.batches import Batch
from ...protocol.errors import ErrorCode, KafkaError
from ..producers.aborted import AbortedTransaction, by_first_offset, overlapping
from .flush import FlushJob, Replay, SegmentWriter, SyncJob, TailBatch, oldest
from .manifest import Manifest, Retired
from .open_files import OpenFiles
from .producer_snapshots import ProducerSnapshots, SnapshotJob
from .reads import AbortedLookup, ColdRead, aborted_in_memory, continue_in_tail, read_tail, read_warm
from .segment import LOG_SUFFIX, NOTHING_HERE, SUFFIXES, SegmentState, Slice, Span
from .settings import LogSettings as LogSettings
from .state import LogState
from .times import LatestLookup, TimeLookup


class Rewritten(Protocol):
    """The result of a compaction, as far as its log needs it."""

    @property
    def states(self) -> Sequence[SegmentState]:
        """The segments that are replaced."""
        ...

    @property
    def outputs(self) -> Sequence[SegmentState]:
        """The segments that the compaction wrote in their place."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset after the last one that was rewritten."""
        ...

    @property
    def paths(self) -> Sequence[str]:
        """The paths of all files that were written."""
        ...

    def close(self) -> None:
        """Close the files of the rewrite."""
        ...


class PartitionLog(LogState):
    """The log of one partition. checkpointed_offset: the end offset in the newest durable checkpoint; retention stops
    there.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        log_id: int,
        topic: str,
        partition: int,
        settings: LogSettings,
        open_files: OpenFiles,
    ) -> None:
        super().__init__(disk, directory, log_id, topic, partition, settings, open_files)
        self.checkpointed_offset = 0
        self.retired: list[Retired] = []  # files that newer manifests do not name any more
        self.snapshots = ProducerSnapshots(self)
        self.next_generation = 1  # of compaction; above any that was ever seen here
        self.compacting = False
        self.evidence: object = None  # the manifest of a log that could not be opened: stays as it is
        self.warnings: list[str] = []  # damage at opening that lost nothing
        self.opened: Manifest | None = None  # the one restored, until tidy() has removed what it does not name
        self.kept_parts: list[str] = []  # files with parts of the journal that this log has still to take
        self._tail: list[TailBatch] = []
        self._aborted: list[AbortedTransaction] = []  # of markers in the tail
        self._ending: deque[tuple[int, int]] = deque()  # (marker's offset, first offset), until it is released
        self._flush: FlushJob | None = None
        self._replay: Replay | None = None
        self._unsynced: dict[str, int] = {}  # path → number of its newest flush
        self._flushes = 0
        self._unsynced_directories: dict[str, int] = {}  # the same, for directories in which a name was made
        self._manifest: Manifest | None = None
        self.offered: Manifest | None = None  # the manifest that manifest() returned last

    # ---- writing ---------------------------------------------------------------------------------------------

    def apply(self, batch: Batch, parts: Sequence[Buffer], unit: int, now_ms: int) -> None:
        """Append one batch that is in the journal. parts: its bytes as they will be in the segment.

        now_ms: the store's age, as everywhere in this class.
        """
        base_offset = batch.base_offset
        last_offset = base_offset + batch.last_offset_delta
        size = batch.size
        self._tail.append((last_offset, base_offset, size, batch.max_timestamp, unit, now_ms, parts))
        self.tail_bytes += size
        self.end_offset = last_offset + 1
        self.snapshots.taken_bytes += size
        if batch.producer_id >= 0:
            if batch.is_control:
                first_offset = self.producers.first_offset_of(batch.producer_id)
                if first_offset is not None:
                    self._ending.append((last_offset, first_offset))
            aborted = self.producers.apply(batch, now_ms)
            if aborted is not None:
                self._aborted.append(aborted)

    def apply_next(self, batch: TailBatch, producer_id: int, sequence: int, transactional: bool = False) -> None:
        """Append one batch that is in the journal and for which is_next() was true: it continues its producer's
        sequence, or has no producer (-1). Faster than apply().
        """
        last_offset, base_offset, size, timestamp, _, now_ms, _ = batch
        self._tail.append(batch)
        self.tail_bytes += size
        self.end_offset = last_offset + 1
        self.snapshots.taken_bytes += size
        if producer_id >= 0:
            self.producers.go_on(producer_id, sequence, base_offset, last_offset, timestamp, now_ms, transactional)

    def apply_log_start(self, offset: int) -> None:
        """Move the log's start to `offset`. Readers see it after start_released(); files are removed after further
        checkpoints.
        """
        if offset > self.start_offset:
            self.start_offset = min(offset, self.end_offset)
            self._manifest = None

    def released(self, end_offset: int) -> None:
        """Let readers see records below `end_offset`: they are in the journal as the durability mode requires."""
        self.high_watermark = end_offset
        ending = self._ending
        while ending and ending[0][0] < end_offset:
            ending.popleft()

    def start_released(self, offset: int) -> None:
        """Let readers see a start offset that was applied: it is durable now."""
        self.released_start = offset
        self._manifest = None

    # ---- reading ---------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest transaction without a released marker; else the high watermark."""
        lowest = self.high_watermark
        first_open = self.producers.first_open_offset()
        if first_open is not None and first_open < lowest:
            lowest = first_open
        for _, first_offset in self._ending:
            lowest = min(lowest, first_offset)
        return max(lowest, self.released_start)  # a transaction may have begun in records that were deleted

    @property
    def size_bytes(self) -> int:
        """The bytes of the tail and of the segments that are not entirely below the start offset."""
        start = self.start_offset
        return sum(state.size_bytes for state in self.segments if state.end_offset > start) + self.tail_bytes

    def read(self, offset: int, max_bytes: int, below: int, *, at_least_one: bool) -> Slice | ColdRead:
        """Read whole batches from the one with `offset` on, as long as they end before `below` and have max_bytes
        together. Returns a ColdRead for a worker if the device must be read.

        at_least_one: the first batch is returned even if it alone is larger. The slice is empty if the first batch is
        too large or does not end before `below`; what a ColdRead returns is empty, too, if compaction left no batches
        in segments from the offset on.

        Raises: KafkaError OFFSET_OUT_OF_RANGE; KAFKA_STORAGE_ERROR if the log is offline.
        """
        self._must_be_online()
        if not self.released_start <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not within {self.released_start} and {self.end_offset}"
            )
        if offset >= below:
            return Slice([], 0, offset)
        span = Span(offset, max_bytes, below, at_least_one)
        if offset >= self.flushed_offset:
            return read_tail(self._tail, span)
        found = read_warm(self, self.segments, span)
        if found is None:
            return ColdRead(self, span, overlapping(self._aborted, offset, below)[0])
        if found is NOTHING_HERE:
            return read_tail(self._tail, span)
        return continue_in_tail(found, self._tail, self.flushed_offset, span)

    def aborted_between(self, offset: int, below: int) -> list[AbortedTransaction] | AbortedLookup:
        """Return the aborted transactions that a read_committed reader of [offset, below) must skip, by first offset;
        an AbortedLookup for a worker if an index must be read.

        below: at most last_stable_offset, so that all transactions below it have ended.
        """
        known, _ = overlapping(self._aborted, offset, below)
        if offset < self.flushed_offset:
            found = aborted_in_memory(self, offset, below)
            if found is None:
                return AbortedLookup(self, offset, below, known)
            known += found
        return sorted(known, key=by_first_offset)

    def offset_for_time(self, timestamp: int, below: int) -> TimeLookup | None:
        """Return a job that finds the first record at or after `timestamp` in batches that end before `below`; None if
        there can be no such record.

        Raises: KafkaError KAFKA_STORAGE_ERROR if the log is offline.
        """
        self._must_be_online()
        start = self.released_start
        tail = [batch for batch in self._tail if batch[3] >= timestamp and start <= batch[0] < below]
        if not tail and not any(
            state.max_timestamp >= timestamp for state in self.segments if state.end_offset > start
        ):
            return None
        return TimeLookup(self, tail, below, timestamp)

    def offset_of_latest_time(self, below: int) -> LatestLookup | None:
        """Return a job that finds the first record with the largest timestamp; None if there is no record. Raises like
        offset_for_time().
        """
        self._must_be_online()
        start = self.released_start
        tail = [batch for batch in self._tail if start <= batch[0] < below]
        if not tail and start >= min(self.flushed_offset, below):
            return None
        cut = [batch for batch in tail[:1] if batch[1] < start]  # some of its records are below the log's start
        latest = max(tail[len(cut) :], key=_max_timestamp, default=None)
        return LatestLookup(self, self.segments, cut if latest is None else [*cut, latest], below)

    def _must_be_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the log is offline."""
        if self.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the partition is offline: {self.offline}")

    @property
    def tail_batches(self) -> int:
        """How many batches are in the tail: in memory and the journal, and in no segment yet."""
        return len(self._tail)

    # ---- write-behind ----------------------------------------------------------------------------------------

    @property
    def first_unflushed_unit(self) -> int | None:
        """The oldest unit (journal entry) with a batch that is in no segment yet; None if there is none."""
        return self._tail[0][4] if self._tail else None

    def flush_job(self, max_bytes: int, max_batches: int = sys.maxsize, *, paced: bool = False) -> FlushJob | None:
        """Return a job that writes the oldest released batches of the tail to segments: up to max_bytes, but at least
        one batch. None if there is no batch to write, a job runs already, or the log is kept as it was found
        (evidence).

        paced: it writes in small pieces, one at a time, so that a sync of the journal waits for one piece at most.
        """
        if self._flush is not None or self.evidence is not None:
            return None
        taken, size_bytes = oldest(self._tail, self.high_watermark, max_bytes, max_batches)
        if not taken:
            return None
        last_offset = taken[-1][0]
        aborted = [entry for entry in self._aborted if entry.last_offset <= last_offset]
        self._flush = FlushJob(
            self.open_files,
            self.directory,
            self.settings,
            self._active(),
            taken,
            size_bytes,
            aborted,
            make_directory=not self.made_directory,
            paced=paced,
        )
        return self._flush

    def flushed(self, job: FlushJob) -> None:
        """Take over the result of a flush job that has run: its batches are now in segment files, not synced yet."""
        self._flush = None
        self._take_over(job, job.batches[-1][0] + 1)
        del self._tail[: len(job.batches)]
        del self._aborted[: job.aborted_count]
        self.tail_bytes -= job.size_bytes

    def put_by(self) -> None:
        """In recovery, move the batches of the tail out of it, for write_put_by() to write to the segments. Nobody
        reads the log yet.
        """
        if self._replay is None:
            self._replay = Replay(
                self.open_files,
                self.directory,
                self.settings,
                self._active(),
                self._aborted,
                make_directory=not self.made_directory,
            )
        self._replay.take(self._tail)
        self._tail.clear()
        self.tail_bytes = 0

    def write_put_by(self, *, all_of_it: bool) -> None:
        """In recovery, write the batches that put_by() took out of the tail to segments.

        all_of_it: this is the last call; after it the log is ready, except for syncs.
        """
        replay = self._replay
        if replay is None:
            return
        replay.write(all_of_it=all_of_it)
        if all_of_it:
            self._replay = None
            self._take_over(replay, self.end_offset)
            self._aborted.clear()
            self.released(self.end_offset)

    def _active(self) -> SegmentState | None:
        """Return the segment that a flush appends to; None if it must begin a new one."""
        return self.segments[-1] if self.segments and not self.segments[-1].compacted else None

    def _take_over(self, writer: SegmentWriter, flushed_offset: int) -> None:
        """Add the segments that a writer wrote to the log. flushed_offset: the end of what they contain (exclusive)."""
        for before, after, created, offset_entries, time_entries, aborted in writer.written:
            stem = f"{self.directory}/{after.stem}"
            self._flushes += 1
            if created:
                self.segments.append(after)
                self._unsynced_directories[self.directory] = self._flushes
            else:
                self.segments[-1] = after
            self._unsynced[stem + LOG_SUFFIX] = self._flushes
            self.open_files.indexes.extend(
                stem, before.size_bytes, after.size_bytes, offset_entries, time_entries, aborted
            )
        if not self.made_directory:
            self.made_directory = True
            self._unsynced_directories[os.path.dirname(self.directory)] = self._flushes
        self.flushed_offset = flushed_offset
        self._manifest = None

    def flush_failed(self, job: FlushJob) -> None:
        """Undo a job that found the disk full: its batches stay in the tail and are flushed later."""
        self._flush = None

    # ---- checkpoints -----------------------------------------------------------------------------------------

    def manifest(self) -> object:
        """Capture and return what a checkpoint records about this log. It is true on disk once the sync_job() of the
        same moment has run. Segments that are not needed any more are dropped from the log.
        """
        if self.evidence is not None:
            return self.evidence
        manifest = self._manifest
        if self.snapshots.adopt() or manifest is None:
            manifest = self._manifest = self._capture()
        for retired in self.retired:
            retired.unnamed = True
        self.offered = manifest
        return manifest

    def _capture(self) -> Manifest:
        """Return the manifest of the log as it is now. Segments that are below the released start, and not needed to
        rebuild the state of producers, are dropped first.
        """
        snapshots, gone = self.snapshots.choose()
        self.retired.extend(Retired(path) for path in gone)
        found = Manifest(self.start_offset, self.flushed_offset, self.cleaned_offset, snapshots, tuple(self.segments))
        below = min(self.released_start, found.snapshot_floor)
        droppable = [state for state in self.segments if state.end_offset <= below]
        if self._flush is not None:  # the flush that runs may append to the last segment
            droppable = [state for state in droppable if state is not self.segments[-1]]
        if not droppable or self.compacting:
            return found
        del self.segments[: len(droppable)]
        self.retire(droppable)
        return found._replace(segments=tuple(self.segments))

    def retire(self, states: Sequence[SegmentState]) -> None:
        """Drop segments. Their files are removed when two durable checkpoints do not name them."""
        for state in states:
            stem = f"{self.directory}/{state.stem}"
            self.open_files.indexes.drop(stem)
            self._unsynced.pop(stem + LOG_SUFFIX, None)
            self.retired.extend(Retired(stem + suffix) for suffix in SUFFIXES)
        self._manifest = None

    def checkpointed(self) -> None:
        """Note that the manifest that was returned last is in a durable checkpoint: retention may remove data below its
        end, and each retired file that is not in it waits for one checkpoint less (see retire()).
        """
        if self.offered is not None:
            self.checkpointed_offset = self.offered.end_offset
        for retired in self.retired:
            if retired.unnamed:
                retired.checkpoints_left -= 1

    def removable_files(self) -> list[str]:
        """Return the paths, each once, of the files that no kept checkpoint names; they are forgotten here. The files
        may not exist.
        """
        paths = [retired.path for retired in self.retired if retired.checkpoints_left <= 0]
        if paths:
            self.retired = [retired for retired in self.retired if retired.checkpoints_left > 0]
            for path in paths:
                self.open_files.forget(path)
        return paths

    def sync_job(self) -> SyncJob | None:
        """Return the syncs needed before a manifest of this moment may be written; None if there are none."""
        if not self._unsynced and not self._unsynced_directories:
            return None
        return SyncJob(self.open_files, dict(self._unsynced), dict(self._unsynced_directories))

    def synced(self, job: SyncJob) -> None:
        """Note that a sync job has run. Files written to meanwhile still need a sync."""
        _drop_synced(self._unsynced, job.paths)
        _drop_synced(self._unsynced_directories, job.directories)

    # ---- producer snapshots ----------------------------------------------------------------------------------

    @property
    def bytes_since_snapshot(self) -> int:
        """The bytes of batches that a recovery would read to rebuild the state of producers."""
        return self.snapshots.bytes_since

    @property
    def wants_snapshot(self) -> bool:
        """Whether a snapshot is needed even if little was appended, because without it segments below the start cannot
        be removed.
        """
        return self.snapshots.hold_segments and self.offline is None

    @property
    def wants_checkpoint(self) -> bool:
        """Whether the next checkpoint would record something new about this log, or allow files to be removed."""
        return self.evidence is None and (self._manifest is None or bool(self.retired))

    def prepare_snapshot(self) -> bool:
        """Encode a part of a large snapshot, for about a millisecond. Returns whether more calls are needed before
        snapshot_job().
        """
        return self.snapshots.prepare()

    def snapshot_job(self) -> SnapshotJob | None:
        """Return a job that writes the state of producers; the snapshot counts once everything below its offset is
        flushed. None if there is nothing new, or the snapshot is not prepared yet.
        """
        return self.snapshots.job()

    def snapshotted(self, job: SnapshotJob) -> None:
        """Use the snapshot of producers that the job has written: the next checkpoint names it."""
        if self.snapshots.adopt():
            self._manifest = None

    # ---- compaction (storage/cleaning) ---------------------------------------------------------------------

    def begin_compaction(self) -> int:
        """Note that a compaction begins, which ends with compacted() or compaction_failed(). Returns the generation of
        its segments.
        """
        self.compacting = True
        self.next_generation += 1
        return self.next_generation - 1

    def compacted(self, run: Rewritten) -> None:
        """Replace segments by the ones that a compaction wrote. On disk this takes effect with the next checkpoint."""
        self.compacting = False
        replaced = self.segments[: len(run.states)]
        self.segments[: len(run.states)] = run.outputs
        self.cleaned_offset = run.end_offset
        self.retire(replaced)

    def compaction_failed(self, run: Rewritten) -> None:
        """Give up a compaction; the files that it wrote are removed later."""
        self.compacting = False
        run.close()
        for path in run.paths:
            self.retired.append(Retired(path, checkpoints_left=0))


def _drop_synced(unsynced: dict[str, int], synced: dict[str, int]) -> None:
    """Remove from `unsynced` the files that were synced, except those that a later flush wrote to."""
    for path, number in synced.items():
        if unsynced.get(path) == number:
            del unsynced[path]


def _max_timestamp(batch: TailBatch) -> int:
    """Return the batch's largest timestamp, as a sort key."""
    return batch[3]

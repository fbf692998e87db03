"""Write-behind: writes the tail of a log (its batches in memory) to its segment files, and does the syncs that a
checkpoint needs.

The loop makes a job with everything that the job needs; a worker runs the job, which changes nothing but files; the
loop takes the result back into the log. What a job wrote counts only after that, so if a job fails, another one is made
and writes over it.
"""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from ...effects.disk import Buffer
from ...effects.gathering import join_buffers, write_gathered
from ...effects.threads import give_way
from ..producers.aborted import TXN_ENTRY, AbortedTransaction, pack
from .index import NO_TIMESTAMP, OFFSET_ENTRY, OFFSET_SUFFIX, TIME_ENTRY, TIME_SUFFIX, IndexGrowth
from .open_files import OpenFiles
from .segment import HIGHEST_RELATIVE_OFFSET, LOG_SUFFIX, TXN_SUFFIX, SegmentState
from .settings import LogSettings

GATHERED_BYTES = 4 << 20  # how many bytes of a segment are collected before they are written
TAKEN_TOGETHER = 500  # batches in one call of take(): it holds the interpreter's lock for some 0.15 ms

# A batch that is in no segment yet: (last offset, base offset, size, largest timestamp, unit, store's age at the
# append, its bytes). A plain tuple, since one is made at every append; tails are bisected by the last offset.
TailBatch: TypeAlias = tuple[int, int, int, int, int, int, Sequence[Buffer]]


class Written(NamedTuple):
    """What a flush added to one segment. created: the segment, and its files, are new."""

    before: SegmentState
    after: SegmentState
    created: bool
    offset_entries: bytes
    time_entries: bytes
    aborted: list[AbortedTransaction]


class _Growing:
    """A segment to which a flush appends batches."""

    def __init__(self, state: SegmentState, settings: LogSettings, created: bool) -> None:
        """state: the segment before the flush. created: it is new, and has no file yet."""
        self.before = state
        self.created = created
        self.settings = settings
        self.base_offset = state.base_offset
        self.size_bytes = state.size_bytes
        self.written_bytes = state.size_bytes
        self.end_offset = state.end_offset
        self.first_age_ms = state.first_age_ms
        self.last_age_ms = state.last_age_ms
        self.full = False
        self.buffers: list[Buffer] = []
        self.gathered = bytearray()  # copies of the buffers that a Replay has taken
        self.aborted: list[AbortedTransaction] = []
        self.growth = IndexGrowth(
            state.base_offset,
            settings.index_interval_bytes,
            since=state.unindexed_bytes,
            max_timestamp=state.max_timestamp,
            max_timestamp_offset=state.max_timestamp_offset,
            last_time=state.last_indexed_time,
        )

    def take(self, batches: Sequence[TailBatch], number: int, stop_bytes: int) -> int:
        """Take batches from this number on, until the segment has `stop_bytes` bytes or is full. Returns the number of
        the first batch not taken.

        A flush of many small batches spends its time here, holding the interpreter's lock. So it works on whole
        columns, and runs no line of Python for each batch.
        """
        some = batches[number : number + TAKEN_TOGETHER]
        positions = list(accumulate([batch[2] for batch in some], initial=self.size_bytes))
        count = bisect_left(positions, stop_bytes, 0, len(some))
        fitting = self._add_entries(some, positions, self._fitting(some, positions, count))
        self.full = fitting < count
        if fitting:
            buffers = [buffer for batch in some[:fitting] for buffer in batch[6]]
            self.buffers += join_buffers(buffers, positions[fitting] - self.size_bytes)
            self.size_bytes = positions[fitting]
            self.end_offset = some[fitting - 1][0] + 1
            self.last_age_ms = some[fitting - 1][5]
        return number + fitting

    def _fitting(self, batches: Sequence[TailBatch], positions: Sequence[int], count: int) -> int:
        """Return how many of the first `count` batches fit before a new segment must begin (LogSegment.shouldRoll).

        Sets first_age_ms of an empty segment, which takes its first batch in any case. Offsets and ages only grow.
        """
        if not count:
            return 0
        least = 0
        if not self.size_bytes:
            self.first_age_ms = batches[0][5]
            least = 1
        fitting = min(count, bisect_right(positions, self.settings.segment_bytes) - 1)
        latest_age_ms = self.first_age_ms + self.settings.segment_ms
        highest_offset = self.base_offset + HIGHEST_RELATIVE_OFFSET
        while fitting > least and (batches[fitting - 1][5] > latest_age_ms or batches[fitting - 1][0] > highest_offset):
            fitting -= 1
        return max(least, fitting)

    def _add_entries(self, batches: Sequence[TailBatch], positions: Sequence[int], count: int) -> int:
        """Add index entries for the first `count` batches. Returns how many batches fit before the offset index is
        full.
        """
        settings, growth = self.settings, self.growth
        entries = self.before.offset_index.entries + len(growth.offset_entries)
        entries_left = settings.segment_index_bytes // OFFSET_ENTRY.size - entries
        if entries_left <= 0:
            count = min(count, 0 if self.size_bytes else 1)
        timestamps = [batch[3] for batch in batches]
        since = self.size_bytes - growth.since  # the position from which the interval counts
        seen = 0
        while (number := bisect_right(positions, since + settings.index_interval_bytes, seen, count)) < count:
            self._note_timestamps(batches, timestamps[seen : number + 1], seen)
            growth.add_entry(batches[number][0], positions[number])
            since, seen = positions[number], number + 1
            entries_left -= 1
            if entries_left <= 0:
                count = seen
        self._note_timestamps(batches, timestamps[seen:count], seen)
        growth.since = positions[count] - since
        return count

    def _note_timestamps(self, batches: Sequence[TailBatch], timestamps: Sequence[int], first: int) -> None:
        """Update the largest timestamp from the batches from number `first` on."""
        growth = self.growth
        newest = max(timestamps, default=NO_TIMESTAMP)
        if newest > growth.max_timestamp:
            growth.max_timestamp = newest
            growth.max_timestamp_offset = batches[first + timestamps.index(newest)][0]

    def written(self) -> Written:
        """Return the segment's state and new index entries after the flush."""
        growth, before = self.growth, self.before
        offset_entries, time_entries = b"".join(growth.offset_entries), b"".join(growth.time_entries)
        after = SegmentState(
            base_offset=self.base_offset,
            generation=before.generation,
            size_bytes=self.size_bytes,
            end_offset=self.end_offset,
            max_timestamp=growth.max_timestamp,
            max_timestamp_offset=growth.max_timestamp_offset,
            first_age_ms=self.first_age_ms,
            last_age_ms=self.last_age_ms,
            offset_index=before.offset_index.grown(offset_entries, OFFSET_ENTRY.size),
            time_index=before.time_index.grown(time_entries, TIME_ENTRY.size),
            txn_index=before.txn_index.grown(pack(self.aborted), TXN_ENTRY.size),
            unindexed_bytes=growth.since,
            last_indexed_time=growth.last_time,
        )
        return Written(before, after, self.created, offset_entries, time_entries, self.aborted)


class SegmentWriter:
    """Writes batches of one log to its segments. written: what was added, segment by segment."""

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        settings: LogSettings,
        aborted: list[AbortedTransaction],
        *,
        make_directory: bool,
        paced: bool = False,
    ) -> None:
        """aborted: the transactions that are ended by abort markers in the batches. make_directory: create the log's
        directory first. paced: write in small pieces, one at a time, so that a sync of the journal waits for one piece
        at most.
        """
        self.written: list[Written] = []
        self._files = files
        self._directory = directory
        self._settings = settings
        self._aborted = aborted
        self._make_directory = make_directory
        self._paced = paced

    def _begin(self) -> None:
        """Create the log's directory if it is new."""
        if self._make_directory:
            self._files.disk.make_directory(self._directory)

    def _fresh(self, base_offset: int) -> _Growing:
        """Return an empty segment that begins at this offset."""
        return _Growing(SegmentState(base_offset, end_offset=base_offset), self._settings, created=True)

    def _create(self, growing: _Growing) -> None:
        """Create the empty `.log` file of a new segment. A file that a failed attempt has left is cut to 0 bytes."""
        with self._files.use(self._path(growing.before, LOG_SUFFIX), create=True) as file:
            file.truncate(0)

    def _path(self, state: SegmentState, suffix: str) -> str:
        """Return the path of a segment's file. suffix: `.log` or that of an index."""
        return f"{self._directory}/{state.stem}{suffix}"

    def _write(self, growing: _Growing) -> None:
        """Write the collected batches of a segment to its file."""
        path = self._path(growing.before, LOG_SUFFIX)
        with self._files.use(path) as file:
            position = growing.written_bytes
            size_bytes = growing.size_bytes - position
            write_gathered(file, growing.buffers, position, size_bytes, past_cache=True, paced=self._paced)
            self._files.wrote(path)  # only after the write: a sync that ends before may not have all of these bytes
        growing.buffers.clear()
        growing.written_bytes = growing.size_bytes

    def _finish(self, growing: _Growing) -> None:
        """Write the remaining batches and the index entries. Does nothing for a segment to which nothing was added."""
        if growing.buffers:
            self._write(growing)
        elif growing.size_bytes == growing.before.size_bytes and not growing.growth.time_entries:
            return
        end = growing.end_offset
        taken = [entry for entry in self._aborted if growing.before.end_offset <= entry.last_offset < end]
        growing.aborted = taken
        written = growing.written()
        before = written.before
        self._append(before, OFFSET_SUFFIX, written.offset_entries, before.offset_index.entries * OFFSET_ENTRY.size)
        self._append(before, TIME_SUFFIX, written.time_entries, before.time_index.entries * TIME_ENTRY.size)
        self._append(before, TXN_SUFFIX, pack(taken), before.txn_index.entries * TXN_ENTRY.size)
        self.written.append(written)

    def _append(self, state: SegmentState, suffix: str, entries: bytes, position: int) -> None:
        """Append entries to an index file of the segment, at this position."""
        if entries:
            path = self._path(state, suffix)
            with self._files.use(path, create=True) as file:  # never synced: what is lost is derived again
                file.write([entries], position)


class FlushJob(SegmentWriter):
    """Writes the oldest released batches of one log to its segments."""

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        settings: LogSettings,
        active: SegmentState | None,
        batches: list[TailBatch],
        size_bytes: int,
        aborted: list[AbortedTransaction],
        *,
        make_directory: bool,
        paced: bool,
    ) -> None:
        """active: the segment to append to; None: begin a new one. size_bytes: of all batches. paced: write in small
        pieces, one at a time, so that a sync of the journal waits for one piece at most.
        """
        super().__init__(files, directory, settings, aborted, make_directory=make_directory, paced=paced)
        self.batches = batches
        self.size_bytes = size_bytes
        self.aborted_count = len(aborted)
        self._active = active

    def run(self) -> None:
        """Write everything, sync nothing. Raises: DiskFull, OSError; then nothing of it counts."""
        self.written.clear()
        self._begin()
        batches = self.batches
        if self._active is not None:
            growing = _Growing(self._active, self._settings, created=False)
        else:
            growing = self._create_segment(batches[0][1])
        number = 0
        while number < len(batches):
            number = growing.take(batches, number, growing.written_bytes + GATHERED_BYTES)
            if growing.full:
                growing.growth.add_time_entry()
                self._finish(growing)
                growing = self._create_segment(batches[number][1])
            elif growing.size_bytes - growing.written_bytes >= GATHERED_BYTES:
                self._write(growing)
            elif number < len(batches):
                give_way()
        self._finish(growing)
        self._files.make_room()

    def _create_segment(self, base_offset: int) -> _Growing:
        """Create a new segment's file, and return the segment."""
        growing = self._fresh(base_offset)
        self._create(growing)
        return growing


class Replay(SegmentWriter):
    """Collects the bytes of the batches that recovery applies to one log; write() writes them.

    There may be millions of small batches; none takes more memory than its bytes.
    """

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        settings: LogSettings,
        active: SegmentState | None,
        aborted: list[AbortedTransaction],
        *,
        make_directory: bool,
    ) -> None:
        """active: the segment to append to; None: begin a new one. aborted: the transactions that abort markers among
        the batches end.
        """
        super().__init__(files, directory, settings, aborted, make_directory=make_directory)
        self._growing = [] if active is None else [_Growing(active, settings, created=False)]

    def take(self, batches: Sequence[TailBatch]) -> None:
        """Copy the batches' bytes into memory. Writes no file."""
        number = 0
        while number < len(batches):
            if not self._growing or self._growing[-1].full:
                self._growing.append(self._fresh(batches[number][1]))
            growing = self._growing[-1]
            number = growing.take(batches, number, sys.maxsize)
            growing.gathered += b"".join(growing.buffers)
            growing.buffers.clear()

    def write(self, *, all_of_it: bool) -> None:
        """Write the collected bytes, and the index entries of the segments that are full, or of all segments if
        all_of_it. Syncs nothing. Raises: OSError.
        """
        self._begin()
        for growing in self._growing:
            if growing.created and not growing.written_bytes:
                self._create(growing)
            if growing.gathered:
                growing.buffers.append(growing.gathered)
                growing.gathered = bytearray()
                self._write(growing)
        done = len(self._growing) if all_of_it else len(self._growing) - 1
        for growing in self._growing[:done]:
            if growing.full:
                growing.growth.add_time_entry()
            self._finish(growing)
        del self._growing[:done]
        self._files.make_room()


def oldest(tail: list[TailBatch], below: int, max_bytes: int, max_batches: int) -> tuple[list[TailBatch], int]:
    """Return the first batches of a tail that end at or below an offset, and their size in bytes together.

    At most max_bytes and max_batches, but at least one batch if there is one.
    """
    taken = tail[: min(bisect_left(tail, (below,)), max_batches)]
    if not taken:
        return taken, 0
    ends = list(accumulate([batch[2] for batch in taken]))
    if ends[-1] > max_bytes:
        del taken[max(1, bisect_right(ends, max_bytes)) :]
    return taken, ends[len(taken) - 1]


class SyncJob:
    """Makes durable the files that a manifest captured at the same moment names."""

    def __init__(self, files: OpenFiles, paths: dict[str, int], directories: dict[str, int]) -> None:
        """paths, directories: what to sync, each with the number of the newest flush that wrote to it."""
        self.paths = paths
        self.directories = directories
        self.files = files

    def run(self) -> None:
        """Run the syncs. Raises OSError: then what is on disk is unknown, and the broker must halt."""
        run_syncs([self])


def run_syncs(jobs: Sequence[SyncJob]) -> None:
    """Run the jobs of several logs of one store, all syncs together. Raises as SyncJob.run."""
    if jobs:
        paths = [path for job in jobs for path in job.paths]
        jobs[0].files.sync_all(paths, sorted({path for job in jobs for path in job.directories}))

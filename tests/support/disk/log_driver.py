"""One partition log on a simulated disk, driven inline: appends, rounds, flushes, checkpoints, crashes and replays.

It does to a log what the store does, with the journal as a list. `batches` are bytes as a producer sends them.
"""

from collections.abc import Sequence
from typing import Any

import msgpack
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol import batches, records
from fencepost.protocol.batches import Batch
from fencepost.protocol.records import Marker, Record
from fencepost.storage.cleaning.compaction import begin_compaction
from fencepost.storage.cleaning.retention import expired
from fencepost.storage.log import opening as log_opening
from fencepost.storage.log.open_files import OpenFiles
from fencepost.storage.log.opening import open_partition_log
from fencepost.storage.log.partition_log import LogSettings, PartitionLog
from fencepost.storage.log.segment import Slice

DIRECTORY = "/data/logs/t-0.1"


def batch_of(
    values: Sequence[bytes | None], *, key: bytes | None = None, timestamp: int = 1_000, **fields: Any
) -> bytes:
    """Return a batch as a producer sends it. key: of all its records."""
    return records.build([Record(n, timestamp + n, key, value) for n, value in enumerate(values)], **fields)


def keyed(pairs: Sequence[tuple[bytes | None, bytes | None]], *, timestamp: int = 1_000, **fields: Any) -> bytes:
    """Return a batch of (key, value) pairs."""
    return records.build([Record(n, timestamp + n, key, value) for n, (key, value) in enumerate(pairs)], **fields)


class LogDriver:
    """A partition log on a simulated disk, with everything that a store does to it as calls."""

    def __init__(self, disk: Any = None, *, open_files: int = 50, **settings: Any) -> None:
        self.disk = disk or SimulatedDisk(history=False)
        self.disk.make_directory("/data/logs")
        self.disk.sync_directory("/")
        self.disk.sync_directory("/data")
        self.settings = LogSettings(**settings)
        self.limit = open_files
        self.age_ms = 0
        self.unit = 0
        self.journal: list[tuple[int, int, bytes | None]] = []  # (unit, offset, batch or None: log start)
        self.rows: list[bytes] = []  # packed manifests of durable checkpoints, newest last
        self.files = OpenFiles(self.disk, self.limit)
        self.log = self._empty()

    def _empty(self) -> PartitionLog:
        return PartitionLog(self.disk, DIRECTORY, 1, "t", 0, self.settings, self.files)

    # ---- writing ---------------------------------------------------------------------------------------------

    def append(self, produced: bytes, *, release: bool = True) -> int:
        """Append a batch at the end. Returns its base offset."""
        offset = self.log.end_offset
        batch = batches.read(memoryview(produced))
        head = batches.stamp_header(batch, offset)
        self.unit += 1
        self.journal.append((self.unit, offset, head + produced[16:]))
        batch.base_offset = offset
        self.log.apply(batch, (head, batch.buffer[16:]), self.unit, self.age_ms)
        if release:
            self.release()
        return offset

    def values(self, *values: bytes, **fields: Any) -> int:
        """Append one batch of these values."""
        return self.append(batch_of(values, **fields))

    def marker(self, producer_id: int, epoch: int, kind: Marker, *, release: bool = True) -> int:
        """Append the marker that ends a transaction."""
        return self.append(records.control_marker(kind, producer_id, epoch, 0, 1_000), release=release)

    def start_at(self, offset: int) -> None:
        """Move the log's start, as DeleteRecords and retention do."""
        self.unit += 1
        self.journal.append((self.unit, offset, None))
        self.log.apply_log_start(offset)
        self.log.start_released(self.log.start_offset)

    def release(self) -> None:
        self.log.released(self.log.end_offset)

    def flush(self, max_bytes: int = 1 << 20) -> None:
        while (job := self.log.flush_job(max_bytes)) is not None:
            job.run()
            self.log.flushed(job)

    def snapshot(self) -> None:
        """Write a snapshot of the producers."""
        while self.log.prepare_snapshot():
            pass
        if (job := self.log.snapshot_job()) is not None:
            job.run()
            self.log.snapshotted(job)

    def checkpoint(self) -> None:
        """Make a checkpoint as the store does, and remove the files that are not needed after it."""
        row = msgpack.packb(self.log.manifest())
        job = self.log.sync_job()
        if job is not None:
            job.run()
            self.log.synced(job)
        self.rows = [*self.rows, row][-2:]
        self.log.checkpointed()
        for path in self.log.removable_files():
            if self.disk.exists(path):
                self.disk.unlink(path)

    def settle(self) -> None:
        """Flush everything, and write a snapshot and two checkpoints, so that retention and compaction may take all of
        it.
        """
        self.flush()
        self.snapshot()
        self.checkpoint()
        self.checkpoint()

    # ---- time, retention, compaction -------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        self.age_ms += ms

    def retain(self) -> None:
        """Run retention once."""
        start = expired(self.log, self.age_ms)
        if start is not None:
            self.start_at(start)

    def compact(self, *, most_keys: int = 1_000_000) -> bool:
        """Run compaction completely, if it is due. Returns whether it was."""
        run = begin_compaction(self.log, self.age_ms, lambda: 0, most_keys)
        if run is None:
            return False
        while not run.finished:
            run.run_slice()
        self.log.compacted(run)
        return True

    # ---- crashes ---------------------------------------------------------------------------------------------

    def reopen(self, *, row: int = -1, replay: bool = True) -> PartitionLog:
        """Open the log as after a kill: from checkpoint number `row`, and by replaying the journal."""
        self.files.close()
        self.files = OpenFiles(self.disk, self.limit)
        if self.rows:
            manifest = msgpack.unpackb(self.rows[row])
            self.log = open_partition_log(
                self.disk, DIRECTORY, 1, "t", 0, self.settings, self.files, manifest, self.age_ms
            )
            log_opening.tidy(self.log)
        else:
            if self.disk.exists(DIRECTORY):
                self.disk.remove_tree(DIRECTORY)
            self.log = self._empty()
        if replay and self.log.offline is None:
            self._replay()
        return self.log

    def _replay(self) -> None:
        for unit, offset, produced in self.journal:
            if produced is None:
                self.log.apply_log_start(offset)
                self.log.start_released(self.log.start_offset)
            elif offset >= self.log.end_offset:
                self.log.apply(batches.read(memoryview(produced)), (produced,), unit, self.age_ms)
        self.release()

    # ---- reading ---------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int = 1 << 20, *, below: int | None = None, at_least_one: bool = True
    ) -> Slice:
        below = self.log.high_watermark if below is None else below
        found = self.log.read(offset, max_bytes, below, at_least_one=at_least_one)
        return found if isinstance(found, Slice) else found.run()

    def batches(self, max_bytes: int = 1 << 20, *, below: int | None = None) -> list[Batch]:
        """Return all batches from the log's start on, as a consumer reads them, with each CRC checked."""
        found: list[Batch] = []
        offset = self.log.start_offset
        below = self.log.high_watermark if below is None else below
        while offset < below:
            got = self.read(offset, max_bytes, below=below)
            if not got.size_bytes:
                break
            for batch in batches.walk(memoryview(b"".join(got.buffers))):
                batches.verify(batch)
                found.append(batch)
            assert got.next_offset > offset
            offset = got.next_offset
        return found

    def contents(self, max_bytes: int = 1 << 20) -> list[Record]:
        """Return all data records from the log's start on."""
        found = [r for batch in self.batches(max_bytes) if not batch.is_control for r in records.records(batch)]
        return [record for record in found if record.offset >= self.log.start_offset]

    def committed(self) -> list[Record]:
        """Return what a read_committed consumer gets."""
        log = self.log
        below = log.last_stable_offset
        aborted = log.aborted_between(log.start_offset, below)
        if not isinstance(aborted, list):
            aborted = aborted.run()
        spans = [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted]
        found: list[Record] = []
        for batch in self.batches(below=below):
            dead = batch.is_transactional and any(
                producer_id == batch.producer_id and first <= batch.base_offset <= last
                for producer_id, first, last in spans
            )
            if not batch.is_control and not dead:
                found += (r for r in records.records(batch) if r.offset >= log.start_offset)
        return found

"""A store without a loop: rounds, flushes and checkpoints run inline, in the order a test says."""

from collections.abc import Sequence
from typing import Any

from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.rng import SeededRng
from fencepost.protocol import batches, records
from fencepost.storage.journal_source import JournalSource
from fencepost.storage.log.partition_log import PartitionLog
from fencepost.storage.log.settings import LogSettings
from fencepost.storage.recovery import RecoveryReport, open_store
from fencepost.storage.store import Store, StoreSettings
from fencepost.storage.upkeep import CheckpointRun, Upkeep

DIRECTORY = "/data"
SMALL = StoreSettings(journal_max_bytes=1 << 20, tail_max_bytes=1 << 20, min_free_bytes=0, max_open_files=64)


class Driven:
    """An open store with everything that a broker's loop would do, as calls."""

    def __init__(
        self, disk: Any, clock: Any = None, settings: StoreSettings = SMALL, source: JournalSource | None = None
    ) -> None:
        self.disk = disk
        self.clock = clock or SimulatedClock()
        self.store: Store
        self.report: RecoveryReport
        self.store, self.report = open_store(disk, self.clock, SeededRng(1), DIRECTORY, settings, source=source)
        self.upkeep = Upkeep(self.store)

    def create(self, topic: str, partition: int = 0, **settings: Any) -> PartitionLog:
        """Create a log. It is durable after the next round (write of the journal)."""
        log_id = self.store.new_log_id()
        part = self.store.create_part(log_id, topic, topic.encode().ljust(16), partition, LogSettings(**settings))
        self.store.commit([part])
        return self.store.logs[log_id]

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        """Return the log of a topic's partition."""
        return next(one for one in self.store.logs.values() if (one.topic, one.partition) == (topic, partition))

    def append(self, log: PartitionLog, values: Sequence[bytes], **fields: Any) -> int:
        """Append a batch of these values. Returns its base offset; not durable before the next round."""
        self.store.look()
        return self.store.append(log, batches.check_produced(memoryview(batch_of(values, **fields))))

    def round(self, *, sync: bool | None = None) -> None:
        """Write what was appended to the journal, sync it, and release it (from then on it may be read)."""
        write = self.store.take_round(sync=sync)
        if write is not None:
            write.run()
            self.store.round_finished(write)

    def flush(self) -> None:
        """Write all released tails to segments."""
        while (run := self.upkeep.begin_flush()) is not None:
            run.run()
            self.upkeep.flushed(run)

    def flush_only(self, log: PartitionLog) -> None:
        """Write the released tail of one log to its segments, and of no other."""
        others = {other: None for other in self.store.unflushed if other is not log}
        for other in others:
            del self.store.unflushed[other]
        self.flush()
        self.store.unflushed |= others

    def checkpoint(self) -> None:
        """Make a checkpoint of everything released, and remove the files that it allows to remove."""
        run = self.begin_checkpoint()
        self.round(sync=True if self.store.synced_unit < run.content.synced_unit else None)
        run.run()
        self.upkeep.checkpointed(run).run()
        self.fill()

    def begin_checkpoint(self) -> CheckpointRun:
        """Begin a checkpoint: capture every log as it is now."""
        capture = self.upkeep.begin_capture()
        while capture.advance():
            pass
        return self.upkeep.captured(capture)

    def fill(self) -> None:
        """Zero-fill the journal's files ahead of the writes."""
        while (job := self.store.journal.fill_job()) is not None:
            job.run()
            self.store.journal.filled(job)


def batch_of(values: Sequence[bytes], **fields: Any) -> bytes:
    """Return a producer's batch of these values."""
    return records.build([records.Record(i, 1_000 + i, b"k", value, ()) for i, value in enumerate(values)], **fields)


def values_of(log: PartitionLog, start: int | None = None) -> list[tuple[int, bytes]]:
    """Return (offset, value) of what a consumer reads from a log, up to its high watermark."""
    found: list[tuple[int, bytes]] = []
    offset = log.start_offset if start is None else start
    while offset < log.high_watermark:
        read = log.read(offset, 1 << 20, log.high_watermark, at_least_one=True)
        piece = read.run() if hasattr(read, "run") else read
        data = b"".join(piece.buffers)
        for batch in batches.walk(memoryview(data)):
            batches.verify(batch)
            found += [(r.offset, r.value) for r in records.records(batch) if r.offset >= offset]
        offset = batch.last_offset + 1
    return found

"""The data directory of a running broker: every change is a unit in the journal, and is applied in the same step.

Rules kept here (docs/ARCHITECTURE.md): a unit is added to the journal, then applied, with nothing in between that could
fail or wait; high watermarks follow released units; a checkpoint names nothing that is not synced. Nothing here blocks
except the jobs that it returns: `run()` is for a worker thread, the method named next to it for the loop.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgpack

from ..effects.clock import Clock
from ..effects.disk import Buffer, Disk, Lock
from ..protocol import batches
from ..protocol.batches import LENGTH_ENDS_AT, Batch, pack_head
from . import layout
from .free_space import FreeSpace
from .journal.any_journal import AnyJournal
from .journal.format import APPEND, CREATE, DROP, LOG_START, Part, PlacedBatch
from .journal.round_write import RoundWrite
from .log.open_files import OpenFiles
from .log.partition_log import PartitionLog
from .log.segment import LEADER_EPOCH
from .log.settings import LogSettings

TAIL_BATCH_BYTES = 500  # what a batch in a tail takes beside its own bytes: Python objects; measured, 64 bits
LARGE_TAILS = 4  # tails are large from 1/4 of tail_max_bytes on
UNIT_OVERHEAD_BYTES = 256  # framing of a unit of few parts, for admission; the journal checks exactly

Offsets: TypeAlias = dict[PartitionLog, int]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Limits of a data directory; sizes in bytes."""

    journal_max_bytes: int = 256 << 20
    tail_max_bytes: int = 256 << 20  # undurable plus unflushed; memory may take four times that (framing)
    min_free_bytes: int = 64 << 20  # below it client data is refused
    max_open_files: int = 1024
    durability_mode: str = "fsync"  # of the catalogue log, as it is made; what is written to it is synced in any case
    snapshot_interval_bytes: int = 64 << 20  # appended since the last producer snapshots, over all logs
    unreadable_logs_offline: bool = False  # a log that the device cannot read does not refuse the start


class BrokerHalted(Exception):
    """Raised after a failed write or sync: what is on disk is unknown, and only a new recovery may continue."""


class Store:
    """All logs of one data directory, and the journal they share. Made by recovery.open_store."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directory: str,
        settings: StoreSettings,
        *,
        lock: Lock,
        journal: AnyJournal,
        logs: dict[int, PartitionLog],
        topic_ids: dict[int, bytes],
        next_log_id: int,
        incarnation: int,
        age_ms: int,
        open_files: OpenFiles,
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.directory = directory
        self.settings = settings
        self.journal = journal
        self.logs = logs
        self.topic_ids = topic_ids
        self.next_log_id = next_log_id
        self.incarnation = incarnation
        self.open_files = open_files
        self.dropped: list[PartitionLog] = []  # their folders are removed after the checkpoints
        self.drops = 0  # logs dropped since the start
        self.on_change: Callable[[], None] = _nothing
        self.halted: BaseException | None = None
        self.space = FreeSpace(directory, settings.min_free_bytes)
        self.space_low = False
        self.space_exhausted = False
        self.spare_bytes = 0  # free bytes above min_free_bytes; the tails will need some of them
        self.tail_bytes = 0
        self.tail_batches = 0
        self.unflushed: dict[PartitionLog, None] = {}  # in the order in which their tails began
        self._lock = lock
        self._age_origin_ms = clock.monotonic_ms() - age_ms
        self.congested = False  # sockets are not read for now: the tail is full, or the journal nearly
        self.turn = 0  # how often look() was called: once in a turn of the loop
        self._turn_age_ms = 0  # the age at this turn's first append; 0: none so far
        self._open_logs: dict[PartitionLog, None] = {}  # touched in the open round
        self._open_starts: dict[PartitionLog, None] = {}  # logs whose start the open round moves
        self._moved: deque[tuple[Offsets, Offsets]] = deque()  # for each round in flight: ends and starts
        self._sync_wanted = False
        self.interval_wanted = False  # something of a log in interval mode is not synced yet
        self.look_at_free_space()

    # ---- what is written -------------------------------------------------------------------------------------

    def append(self, log: PartitionLog, batch: Batch) -> int:
        """Append one checked batch to one log, as a unit (journal entry) of its own. Returns the base offset.

        With durability mode os, a power cut may lose this batch and keep later batches of other logs that were appended
        this way. So use append_together or commit for batches that depend on each other. Raises BrokerHalted.

        The caller has asked admits(), and the log's producers whether the batch may be appended. A reply that shows the
        batch waits until released_unit reaches last_unit.
        """
        if self.halted is not None:
            raise BrokerHalted from self.halted
        base_offset = batch.base_offset = log.end_offset
        parts = batches.stamp_header(batch, base_offset), batches.after_header(batch)
        unit = self.journal.append_batch(log.log_id, base_offset, *parts)
        if log not in self._open_logs:
            self._note_first_append(log)
        log.apply(batch, parts, unit, self._turn_age_ms or self._begin_turn())
        self.tail_bytes += batch.size
        self.tail_batches += 1
        return base_offset

    def append_next(
        self,
        log: PartitionLog,
        rest: Buffer,
        last_offset_delta: int,
        max_timestamp: int,
        producer_id: int,
        sequence: int,
        transactional: bool = False,
    ) -> int:
        """Append one checked batch that continues its producer's sequence to one log, as a unit of its own, without
        making a Batch. rest: the batch's bytes after the first 16.

        Returns the unit's number. Raises UnitRefused if the journal has no room for it; nothing was changed then.
        """
        if self.halted is not None:
            raise BrokerHalted from self.halted
        base_offset = log.end_offset
        size = len(rest) + 16
        head = pack_head(base_offset, size - LENGTH_ENDS_AT, LEADER_EPOCH)
        unit = self.journal.append_batch(log.log_id, base_offset, head, rest)
        if log not in self._open_logs:
            self._note_first_append(log)
        now_ms = self._turn_age_ms or self._begin_turn()
        last_offset = base_offset + last_offset_delta
        batch = (last_offset, base_offset, size, max_timestamp, unit, now_ms, (head, rest))
        log.apply_next(batch, producer_id, sequence, transactional)
        self.tail_bytes += size
        self.tail_batches += 1
        return unit

    def _note_first_append(self, log: PartitionLog) -> None:
        """Note a log's first append to the open round (one write of the journal), and whether its durability mode asks
        for a sync. Called once for each log and round.
        """
        self._open_logs[log] = None
        mode = log.settings.durability_mode
        if mode == "fsync":
            self._sync_wanted = True
        elif mode == "interval":
            self.interval_wanted = True
        self.on_change()

    def _begin_turn(self) -> int:
        """Return the store's age, read once in each turn of the loop: all appends of a turn count as the same
        millisecond.
        """
        self._turn_age_ms = self.age_ms()
        return self._turn_age_ms

    def commit(self, parts: Sequence[Part]) -> int:
        """Write several changes as one unit, which survives as a whole or not at all, and apply them. Returns the
        unit's number.

        APPEND parts have one batch each, with any base offset: several for one log follow each other. If there are only
        these, a sync is waited for only if the durability mode of one of the logs asks for it; other parts, and the
        catalogue, are always synced.
        """
        self.check_running()
        placed = self._place(parts)
        unit = self.journal.append(placed)
        now_ms = self._turn_age_ms or self._begin_turn()
        for part in placed:
            if part.batch is not None:
                self._apply_append(part, part.batch, unit, now_ms)
            else:
                self._apply_change(part)
        self.on_change()
        return unit

    def confirm(self) -> None:
        """Make the present answer wait until this broker has proved that it still owns the journal, by writing a unit.

        Otherwise a broker that was paused while another one took over could answer with old data. Used for answers on
        which clients act, such as committed offsets or the decisions of a sink. Does nothing if no other broker can
        take the journal over.
        """
        if self.journal.may_be_ended_by_others and not self.journal.pending:
            catalogue = self.logs[layout.CATALOGUE_LOG_ID]
            self.commit([self.log_start_part(catalogue, catalogue.start_offset)])

    def append_together(self, appends: Sequence[tuple[PartitionLog, Batch]]) -> int:
        """Append checked batches to several logs as one unit, like commit(), but not to the catalogue. Returns the
        unit's number.

        One Batch may go to many logs. A single batch is appended this way if a batch in another log depends on it, such
        as the start of a transaction.
        """
        self.check_running()
        ends: dict[PartitionLog, int] = {}
        placed: list[PlacedBatch] = []
        for log, batch in appends:
            offset = ends.get(log, log.end_offset)
            ends[log] = offset + batch.last_offset_delta + 1
            head = pack_head(offset, batch.size - LENGTH_ENDS_AT, LEADER_EPOCH)
            placed.append((log.log_id, offset, head, batches.after_header(batch)))
        unit = self.journal.append_batches(placed)
        now_ms = self._turn_age_ms or self._begin_turn()
        for (log, batch), (_, batch.base_offset, head, rest) in zip(appends, placed, strict=True):
            log.apply(batch, (head, rest), unit, now_ms)
            self.tail_bytes += batch.size
        self.tail_batches += len(placed)
        for log in ends:
            if log not in self._open_logs:
                self._note_first_append(log)
        return unit

    def _place(self, parts: Sequence[Part]) -> list[Part]:
        """Return the parts with a batch and an offset for each APPEND part. Several batches for one log follow each
        other.
        """
        ends: dict[int, int] = {}
        placed: list[Part] = []
        for part in parts:
            kind, log_id, _, data, batch = part
            if kind != APPEND:
                placed.append(part)
                continue
            if batch is None:
                batch = batches.read(memoryview(data[0] if len(data) == 1 else b"".join(data)))
            offset = ends.get(log_id)
            if offset is None:
                offset = self.logs[log_id].end_offset  # whoever names a log that is gone fails before anything changed
            ends[log_id] = offset + batch.last_offset_delta + 1
            head = pack_head(offset, batch.size - LENGTH_ENDS_AT, LEADER_EPOCH)
            placed.append(Part(APPEND, log_id, offset, (head, batch.buffer[16:]), batch))
        return placed

    def _apply_change(self, part: Part) -> None:
        """Apply a part that appends nothing, after it was added to the journal: a log gets a new start, is created or
        dropped.
        """
        if part.kind == LOG_START:
            log = self.logs[part.log_id]
            log.apply_log_start(part.offset)
            self._open_starts[log] = None
        elif part.kind == CREATE:
            log, topic_id = create_log(self.disk, self.directory, part, self.open_files)
            self.logs[log.log_id] = log
            self.topic_ids[log.log_id] = topic_id
        elif part.kind == DROP:
            self._forget(self.logs.pop(part.log_id))
        self._sync_wanted = True  # topic changes and log starts are always synced

    def _apply_append(self, part: Part, batch: Batch, unit: int, now_ms: int) -> None:
        """Apply an appended batch to its log's tail, after it was added to the journal."""
        _, log_id, offset, data, _ = part
        log = self.logs[log_id]
        batch.base_offset = offset
        log.apply(batch, data, unit, now_ms)
        self.tail_bytes += batch.size
        self.tail_batches += 1
        if log not in self._open_logs:
            self._note_first_append(log)
        if log_id == layout.CATALOGUE_LOG_ID:
            self._sync_wanted = True  # an answer about a topic or an id is final, whatever the mode

    def _forget(self, log: PartitionLog) -> None:
        """Remove a dropped log from every queue. Its files are removed once two checkpoints no longer name it."""
        self.topic_ids.pop(log.log_id, None)
        self.unflushed.pop(log, None)
        self._open_logs.pop(log, None)
        self._open_starts.pop(log, None)
        for offsets in self._moved:
            for of_logs in offsets:
                of_logs.pop(log, None)
        self.tail_bytes -= log.tail_bytes
        self.tail_batches -= log.tail_batches
        log.offline, log.deleted = "deleted", True
        self.dropped.append(log)
        self.drops += 1

    # ---- parts -----------------------------------------------------------------------------------------------

    def new_log_id(self) -> int:
        """Give out a log id that was never used before."""
        log_id = self.next_log_id
        self.next_log_id += 1
        return log_id

    def create_part(self, log_id: int, topic: str, topic_id: bytes, partition: int, settings: LogSettings) -> Part:
        """Return the part that creates a log."""
        return Part(CREATE, log_id, 0, (msgpack.packb([topic, topic_id, partition, settings.pack()]),))

    def drop_part(self, log: PartitionLog) -> Part:
        """Return the part that drops a log."""
        return Part(DROP, log.log_id, 0, ())

    def log_start_part(self, log: PartitionLog, offset: int) -> Part:
        """Return the part that moves a log's start."""
        return Part(LOG_START, log.log_id, offset, ())

    def append_part(self, log_id: int, batch: Buffer | Batch) -> Part:
        """Return the part that appends a batch (of any base offset) to a log. Many parts may share one Batch."""
        if isinstance(batch, Batch):
            return Part(APPEND, log_id, 0, (batch.buffer,), batch)
        return Part(APPEND, log_id, 0, (batch,))

    # ---- room ------------------------------------------------------------------------------------------------

    def admits(self, size_bytes: int, *, internal: bool = False, frees: bool = False) -> bool:
        """Return whether a unit of this size may be written now. If not, the caller refuses the request and changes
        nothing.

        internal: markers, offset commits and similar records, which may use the last of the space. frees: the unit
        deletes topics or moves log starts, so it is written even if the disk is nearly full: the journal's file has its
        space already, and nothing else makes room.
        """
        low = self.space_low or self.tail_bytes + size_bytes > self.spare_bytes
        if not frees and (self.space_exhausted or (low and not internal)):
            return False
        return self.journal.admits(size_bytes + UNIT_OVERHEAD_BYTES)

    def refuse(self, size_bytes: int) -> str:
        """Return why admits() was False, for the answer. Lack of space is counted, and logged when it begins."""
        if self.space_low or self.tail_bytes + size_bytes > self.spare_bytes:
            return self.space.refuse()
        return "the journal is full (journal.max.bytes): nothing was written, try again later"

    def has_room_for(self, request_bytes: int) -> bool:
        """Return whether to append a large request's batches now. False: wait until a journal file has room for them.

        After a start few files are ready, and these are small. Without this check, requests that come in one turn of
        the loop would be refused.
        """
        return self.space_low or self.journal.is_ready_for(request_bytes + UNIT_OVERHEAD_BYTES)

    @property
    def largest_append_bytes(self) -> int:
        """The size of the largest batch that can ever be admitted."""
        return self.journal.largest_unit_bytes - UNIT_OVERHEAD_BYTES

    @property
    def tail_memory_bytes(self) -> int:
        """The memory taken by batches that are not durable or not flushed; small ones take several times their size."""
        return self.tail_bytes + TAIL_BATCH_BYTES * self.tail_batches

    @property
    def tails_are_large(self) -> bool:
        """Whether tails should be flushed now, well before clients have to wait."""
        return LARGE_TAILS * self.tail_memory_bytes >= self.settings.tail_max_bytes

    def look(self) -> None:
        """Begin a turn of the loop: set `congested`, whether requests should wait because tails or journal are full."""
        self.turn += 1
        self._turn_age_ms = 0
        full = self.tail_memory_bytes > self.settings.tail_max_bytes or self.journal.nearly_full
        self.congested = full and not self.space_low  # on a full disk nobody waits: admits() refuses at once

    @property
    def usable_bytes(self) -> int:
        """Return the free bytes of the disk, less those needed for data that is still in memory. Asks the operating
        system.
        """
        return max(0, self.disk.free_bytes(self.directory) - self.tail_bytes)

    def look_at_free_space(self) -> None:
        """Compare the free space with two limits: below one, client data is refused; below the other, everything except
        deletions.
        """
        free = self.disk.free_bytes(self.directory)
        self.spare_bytes = free - self.settings.min_free_bytes
        self.space_low = self.tail_bytes >= self.spare_bytes
        self.space_exhausted = free - self.tail_bytes < self.settings.min_free_bytes // 4
        self.space.look(max(0, free - self.tail_bytes))

    # ---- rounds ----------------------------------------------------------------------------------------------

    @property
    def last_unit(self) -> int:
        """The number of the newest unit. A reply that is decided now waits until it is released."""
        return self.journal.next_unit - 1

    @property
    def released_unit(self) -> int:
        """Replies that wait for units up to this one may be sent."""
        return self.journal.released_unit

    @property
    def synced_unit(self) -> int:
        """Units up to this one survive a power cut."""
        return self.journal.synced_unit

    def take_round(self, *, sync: bool | None = None) -> RoundWrite | None:
        """Close the open round (the units of one write of the journal) and return it, for the caller to run() or
        begin(); None if there is nothing to write. sync: whether it is synced; None: if one of its units requires that.
        """
        wanted = self._sync_wanted if sync is None else sync
        write = self.journal.take_round(sync=wanted)
        if write is not None:
            ends = {log: log.end_offset for log in self._open_logs}
            starts = {log: log.start_offset for log in self._open_starts}
            self._moved.append((ends, starts))
            self._open_logs = {}
            if starts:
                self._open_starts = {}
            self._turn_age_ms = 0
            self._sync_wanted = False
            if write.sync:
                self.interval_wanted = False
        return write

    @property
    def sync_wanted(self) -> bool:
        """Whether the open round has a unit whose answer waits for a sync."""
        return self._sync_wanted

    def round_finished(self, write: RoundWrite) -> Collection[PartitionLog]:
        """Release a round that is written (and synced if required): its records may be read, and replies that wait for
        it sent. Returns the logs whose high watermark moved.
        """
        self.journal.finished(write)
        moved, starts = self._moved.popleft()
        unflushed = self.unflushed
        for log, end_offset in moved.items():
            log.released(end_offset)
            if log not in unflushed:
                unflushed[log] = None
        for log, start_offset in starts.items():
            log.start_released(start_offset)
        return moved.keys()

    def check_running(self) -> None:
        """Raise BrokerHalted if a write or sync has failed."""
        if self.halted is not None:
            raise BrokerHalted from self.halted

    def halt(self, error: BaseException) -> None:
        """Refuse every append, commit and reply from now on. The first error is kept."""
        if self.halted is None:
            self.halted = error

    # ---- time and end ----------------------------------------------------------------------------------------

    def age_ms(self) -> int:
        """The uptime of this data directory over all starts, in ms: the clock of every duration on disk."""
        return self.clock.monotonic_ms() - self._age_origin_ms

    def close(self) -> None:
        """Close the files and release the lock. Units that were released for a sync are durable; nothing else is
        guaranteed.
        """
        try:
            self.journal.close()
            self.open_files.close()
        finally:
            self._lock.release()


def create_log(disk: Disk, directory: str, part: Part, open_files: OpenFiles) -> tuple[PartitionLog, bytes]:
    """Make the empty log that a CREATE part describes. Returns it and its topic's id. Also used by recovery."""
    data = part.data[0] if len(part.data) == 1 else b"".join(part.data)
    topic, topic_id, partition, packed = msgpack.unpackb(data, raw=False)
    folder = layout.log_directory(directory, topic, partition, part.log_id)
    settings = LogSettings.unpack(packed, f"{topic}-{partition}")
    return PartitionLog(disk, folder, part.log_id, topic, partition, settings, open_files), topic_id


def _nothing() -> None:
    """Do nothing: the default of on_change."""

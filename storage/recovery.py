"""Opens a data directory. Every start recovers it, whether the last broker stopped or crashed.

The restored state depends on two things only: the newest checkpoint, which names every log with its segments and
their sizes, and the units of the journal after it, in their order. PartitionLog.apply applies a unit here as it did
before the crash, so there is one definition of what a unit does.

Bytes that can be read are not proven to be on the disk. If the process was killed before the sync, they may be in the
page cache only. If recovery served them and the power failed then, records that a client has seen would be lost. So
recovery writes everything that it takes from the journal once more:

    1  read the newest valid checkpoint, and scan the journal (journal/scan.py): it is damaged, or it ends somewhere.
       Until here nothing is changed: a damaged directory stays as it is.
    2  open each log and cut its segments to the sizes in the checkpoint; what is longer was written after it.
       A log that does not fit goes offline, alone, and its units are kept in DIR/journal-parts.
    3  apply first what earlier starts kept for logs that were offline, then every unit above the checkpoint.
    4  write the batches of these units into segments, and sync them.
    5  write two checkpoints that need no journal. Two, because each of the newest two must be sufficient by itself.
    6  begin a fresh journal, which removes the old one, and write a checkpoint that names it.

A crash anywhere in between leaves either the old checkpoint with the old journal, untouched, or the new checkpoint,
complete. So recovery may be interrupted and begun again any number of times: crash points cut the power at each of
its steps, and again in the recovery of that (tests/support/disk/crash_points.py).

Errors: a wrong checksum or length is damage, of one log, or of the whole directory if it is in the journal or the
checkpoints. An error that says nothing about the bytes (no descriptors, no memory) refuses the start, with nothing
changed (system_errors.py); if it counted as damage, acknowledged records would become unreachable.
docs/formats.md, "Recovery", describes the same by files.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from ..effects.clock import Clock
from ..effects.disk import Disk, Lock
from ..effects.rng import Rng
from ..protocol import batches
from . import checkpoints, layout, store_checkpoint
from .journal import kept_parts
from .journal.any_journal import AnyJournal
from .journal.format import APPEND, CREATE, DROP, LOG_START, Part
from .journal_source import FoundUnits, JournalOfDirectory, JournalSource
from .journal_source import StoreDamaged as StoreDamaged
from .leftovers import holds_anything, name_foreign_files, remove_leftovers
from .log import opening
from .log.flush import run_syncs
from .log.open_files import OpenFiles
from .log.partition_log import PartitionLog
from .log.settings import LogSettings
from .store import Store, StoreSettings, create_log
from .store_checkpoint import LogEntry, StoreCheckpoint
from .system_errors import may_pass

WAITING_BYTES = 8 << 20  # of batches read and not yet applied
PUT_BY_BYTES = 64 << 20  # of batches applied and not yet written. With both limits, a replay needs 150 MB at most


@dataclass(slots=True)
class RecoveryReport:
    """What a recovery did, for the log line at start and for tests."""

    checkpoint: int = 0
    units_replayed: int = 0
    cut_bytes: int = 0
    cut_reason: str = ""
    warnings: list[str] = field(default_factory=list)
    offline: dict[str, str] = field(default_factory=dict)  # folder → reason


LookFrom = Callable[[LogEntry], int | None]


def open_store(
    disk: Disk,
    clock: Clock,
    rng: Rng,
    directory: str,
    settings: StoreSettings,
    look_from: LookFrom = lambda entry: None,
    source: JournalSource | None = None,
) -> tuple[Store, RecoveryReport]:
    """Lock a data directory, recover it (or create it if it is empty), and begin a fresh journal.

    look_from: returns, for a log that is read right after the start, the first offset that will be read. Such a log is
    checked before its units are applied, because units for a damaged log are kept only if the damage is known then.

    source: where the journal is; None: in the data directory. Raises: AlreadyLocked; StoreDamaged, JournalDamaged,
    NewerFormat of checkpoint or journal: nothing was changed then; NewerFormat of a snapshot, DiskFull, OSError.
    """
    make_directory(disk, directory)
    source = source or JournalOfDirectory(disk, rng, directory, settings)
    lock = disk.lock(layout.lock_path(directory))
    recovery = _Recovery(disk, clock, directory, settings, lock, look_from, source)
    try:
        return recovery.run()
    except BaseException:
        recovery.open_files.close()
        lock.release()
        raise


class _Recovery:
    """The steps of one recovery, in the order of run()."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directory: str,
        settings: StoreSettings,
        lock: Lock,
        look_from: LookFrom,
        source: JournalSource,
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.directory = directory
        self.settings = settings
        self.lock = lock
        self.look_from = look_from
        self.source = source
        self.report = RecoveryReport()
        self.open_files = OpenFiles(disk, settings.max_open_files)
        self.logs: dict[int, PartitionLog] = {}
        self.topic_ids: dict[int, bytes] = {}
        self.salvage: dict[PartitionLog, list[Part]] = {}
        self.next_log_id = layout.CATALOGUE_LOG_ID + 1
        self.waiting: defaultdict[int, list[memoryview]] = defaultdict(list)  # log id → batches in order
        self.put_by_bytes = 0

    def run(self) -> tuple[Store, RecoveryReport]:
        """Scan the journal, open the logs, apply the journal to them, begin a new journal. Returns (store, report)."""
        self.source.prepare()
        number, start = self._checkpoint()
        self.next_log_id = start.next_log_id
        # The journal is scanned before anything is changed: if it is damaged, the directory stays as it is.
        journal = self.source.scan(start)
        age_ms = max(start.age_ms, journal.age_ms)
        for entry in start.logs:
            self._open_log(entry, age_ms)
        kept = self._list_kept(start.incarnation)
        for log in self.logs.values():
            opening.tidy(log)
        self._apply_kept(age_ms)
        self._replay(journal, start.through_unit, age_ms)
        incarnation = max(journal.incarnation, start.incarnation) + 1
        highest_unit = max(journal.highest_unit, start.next_unit - 1)
        self._write_anew(incarnation, kept)
        end = StoreCheckpoint(
            incarnation=incarnation,
            journal_incarnation=0,
            through_unit=highest_unit,
            next_unit=highest_unit + 1,
            next_round=max(journal.highest_round + 1, start.next_round),
            next_log_id=self.next_log_id,
            age_ms=age_ms,
            synced_unit=highest_unit,
            journal_start=start.journal_start,  # so a next start that finds this journal judges it alike
            logs=entries(self.logs, self.topic_ids),
        )
        return self._begin(number + 1, end), self.report

    def _begin(self, number: int, end: StoreCheckpoint) -> Store:
        """Write two checkpoints that need no journal, begin a fresh journal, and write a checkpoint that names it.

        Two, because a fresh journal removes the old one: each of the newest two must be sufficient by itself.
        """
        for journal_free in (number, number + 1):
            store_checkpoint.write(self.disk, self.directory, journal_free, end)
        journal = self.source.begin(end)
        end.journal_incarnation = end.incarnation
        store_checkpoint.write(self.disk, self.directory, number + 2, end)
        for log in self.logs.values():
            log.checkpointed()
        self._report_oddities(remove_leftovers(self.disk, self.directory, self.logs.values(), (number + 1, number + 2)))
        return self._store(end, journal)

    # ---- where to start --------------------------------------------------------------------------------------

    def _checkpoint(self) -> tuple[int, StoreCheckpoint]:
        """Return the highest number of a checkpoint, and the content of the newest valid one; for an empty directory, 0
        and a new one. Raises StoreDamaged.
        """
        numbers = store_checkpoint.numbers(self.disk, self.directory)
        if not numbers:
            return self._first_checkpoint()
        for folder in (layout.journal_directory(self.directory), layout.logs_directory(self.directory)):
            if not self.disk.exists(folder):
                raise StoreDamaged(folder, "it is missing", _RESTORE)
        for number in numbers:
            try:
                content = store_checkpoint.read(self.disk, self.directory, number)
            except checkpoints.Damaged as damage:
                self.report.warnings.append(f"checkpoint {number} is damaged ({damage.reason}), using the one before")
                continue
            except FileNotFoundError:
                self.report.warnings.append(f"checkpoint {number} is a link to nothing, using the one before")
                continue
            self.report.checkpoint = number
            return numbers[0], content
        raise StoreDamaged(self.directory, "no checkpoint can be read", _RESTORE)

    def _first_checkpoint(self) -> tuple[int, StoreCheckpoint]:
        """Prepare an empty directory. Returns its checkpoint (number, content). Raises StoreDamaged if not empty."""
        if holds_anything(self.disk, self.directory):
            raise StoreDamaged(self.directory, "there are logs or a journal, but no checkpoint", _RESTORE)
        self.disk.make_directory(layout.journal_directory(self.directory))
        self.disk.make_directory(layout.logs_directory(self.directory))
        self.disk.sync_directory(self.directory)
        self.disk.sync_directory(_parent(self.directory))
        first = StoreCheckpoint(0, 0, 0, 1, 1, layout.CATALOGUE_LOG_ID + 1, 0, 0)
        first.logs.append(_catalogue_entry(self.settings))
        return 0, first

    def _open_log(self, entry: LogEntry, age_ms: int) -> None:
        """Open a log that the checkpoint names; one whose files do not match goes offline."""
        log = opening.open_partition_log(
            self.disk,
            layout.log_directory(self.directory, entry.topic, entry.partition, entry.log_id),
            entry.log_id,
            entry.topic,
            entry.partition,
            LogSettings.unpack(entry.settings),
            self.open_files,
            entry.manifest,
            age_ms,
            look_from=0 if entry.topic_id == layout.NO_TOPIC_ID else self.look_from(entry),
            unreadable_is_damage=self.settings.unreadable_logs_offline,
        )
        self.logs[entry.log_id] = log
        self.topic_ids[entry.log_id] = entry.topic_id
        if log.offline:
            self._offline(log, log.offline)

    # ---- what earlier starts kept ----------------------------------------------------------------------------

    def _list_kept(self, incarnation: int) -> list[str]:
        """Give each log its files of kept parts. Returns the paths of files that are unfinished or do not count.

        incarnation: the checkpoint's incarnation. A file of a later start does not count, because that start wrote no
        checkpoint.
        """
        folder = layout.kept_parts_directory(self.directory)
        files, unfinished = kept_parts.list_files(self.disk, self.directory)
        obsolete = [f"{folder}/{name}" for name in unfinished]
        for found in files:
            path = f"{folder}/{found.name}"
            if found.incarnation > incarnation:
                obsolete.append(path)
            elif found.log_id in self.logs:
                self.logs[found.log_id].kept_parts.append(path)
        return obsolete

    def _apply_kept(self, age_ms: int) -> None:
        """Apply what earlier starts kept for offline logs, before newer units: else offsets would be assigned twice."""
        for log in self.logs.values():
            for number, path in enumerate(log.kept_parts):
                if log.offline is not None:
                    break
                is_last = number + 1 == len(log.kept_parts)
                self._apply_file(log, path, age_ms, is_last=is_last)
                self._put_by(log)
                if self.put_by_bytes > PUT_BY_BYTES:
                    self._write_put_by(all_of_it=False)

    def _apply_file(self, log: PartitionLog, path: str, age_ms: int, *, is_last: bool) -> None:
        """Apply a file of kept parts to its log; if that is impossible, the log goes offline. is_last: no later file
        contains again what is cut off at the end of this one.
        """
        torn = ""
        try:
            if path.startswith(f"{log.directory}/"):
                parts, torn = kept_parts.read_old(self.disk, path, log.log_id)
            else:
                parts = kept_parts.read(self.disk, path, log.log_id)
        except checkpoints.Damaged as damage:
            self._offline(log, f"{damage}; restore this file from a copy; {_without(log, path)}")
            return
        except OSError as error:
            if not self.settings.unreadable_logs_offline or may_pass(error):
                raise
            self._offline(log, f"{path}: {error.strerror}; {_UNREADABLE_HINT}")
            return
        for part in parts:
            if part.kind == LOG_START:
                log.apply_log_start(part.offset)
                log.start_released(log.start_offset)
            elif part.offset > log.end_offset:
                hint = f"restore the files before it from a copy; {_without(log, path)}; or delete the topic"
                self._offline(log, _missing(log, part.offset, path, hint))
                return
            elif part.offset == log.end_offset:
                log.apply(batches.read(memoryview(part.data[0])), part.data, 0, age_ms)
        if torn and is_last:
            self._offline(log, f"{path}: {torn}; restore this file from a copy; {_without(log, path)}")

    # ---- the journal -----------------------------------------------------------------------------------------

    def _replay(self, journal: FoundUnits, through_unit: int, age_ms: int) -> None:
        """Apply every unit after through_unit, the last one in the checkpoint. age_ms: with which this start begins.

        Batches are collected and applied log by log: switching to another log for each of a million batches would take
        twice as long, because of cache misses.
        """
        waiting = self.waiting
        last_unit = waiting_bytes = 0
        for unit, kind, log_id, offset, data in journal.parts(above=through_unit):
            if unit != last_unit:
                last_unit = unit
                self.report.units_replayed += 1
            if kind != APPEND:
                self._apply_waiting(log_id, age_ms)
                self._apply_change(Part(kind, log_id, offset, (data,)))
                continue
            waiting[log_id].append(data)
            waiting_bytes += len(data)
            if waiting_bytes > WAITING_BYTES:
                self._apply_all_waiting(age_ms)
                waiting_bytes = 0
        self._apply_all_waiting(age_ms)
        self.report.cut_bytes = journal.cut_bytes
        self.report.cut_reason = journal.cut_reason

    def _apply_all_waiting(self, age_ms: int) -> None:
        """Apply the collected batches of every log, and write them to segments if they are many."""
        for log_id in self.waiting:
            self._apply_waiting(log_id, age_ms)
        if self.put_by_bytes > PUT_BY_BYTES:
            self._write_put_by(all_of_it=False)

    def _apply_waiting(self, log_id: int, age_ms: int) -> None:
        """Apply one log's collected batches, unless it was dropped; keep back those that do not follow its end."""
        log, waiting = self.logs.get(log_id), self.waiting.get(log_id)
        if waiting and log is not None:
            for data in waiting:
                batch = batches.read(data)
                if batch.base_offset == log.end_offset and log.offline is None:
                    log.apply(batch, (data,), 0, age_ms)
                else:
                    self._keep_back(log, batch.base_offset, data)
            self._put_by(log)
        if waiting:
            waiting.clear()

    def _put_by(self, log: PartitionLog) -> None:
        """Move the log's replayed batches out of its tail, to be written to segments, and count their bytes."""
        if log.tail_bytes:  # an offline log has none, and its folder is not created
            self.put_by_bytes += log.tail_bytes
            log.put_by()

    def _keep_back(self, log: PartitionLog, offset: int, data: memoryview) -> None:
        """Keep a batch for a log that is offline, or goes offline because it ends below it; drop one that it has."""
        if log.offline is None and offset > log.end_offset:
            self._offline(log, _missing(log, offset, "the journal", _HOLE_HINT))
        if log.offline is not None:
            self.salvage.setdefault(log, []).append(Part(APPEND, log.log_id, offset, (data,)))

    def _apply_change(self, part: Part) -> None:
        """Apply a part of the journal that appends nothing: a log is created, dropped, or gets a new start."""
        log = self.logs.get(part.log_id)
        if part.kind == CREATE:
            self._apply_create(part)
        elif log is None:
            return
        elif part.kind == LOG_START and log.offline is not None:
            self.salvage.setdefault(log, []).append(Part(LOG_START, log.log_id, part.offset, ()))
        elif part.kind == LOG_START:
            log.apply_log_start(part.offset)
            log.start_released(log.start_offset)
        elif part.kind == DROP:
            del self.logs[part.log_id]
            del self.topic_ids[part.log_id]
            self.salvage.pop(log, None)
            self.open_files.forget_directory(log.directory)

    def _apply_create(self, part: Part) -> None:
        """Create the log, unless it exists already."""
        self.next_log_id = max(self.next_log_id, part.log_id + 1)
        if part.log_id in self.logs:
            return
        log, topic_id = create_log(self.disk, self.directory, part, self.open_files)
        if self.disk.exists(log.directory):  # left by an earlier process whose CREATE was never durable
            self.disk.remove_tree(log.directory)
        self.logs[log.log_id] = log
        self.topic_ids[log.log_id] = topic_id

    def _offline(self, log: PartitionLog, reason: str) -> None:
        """Put the log offline, and note the reason for the report."""
        log.offline = reason
        self.report.offline[log.directory] = reason

    def _report_oddities(self, warnings: list[str]) -> None:
        """Add to the report: these warnings, those of the logs, kept parts of offline logs, and foreign files."""
        for log in self.logs.values():
            warnings += log.warnings
            if log.offline is not None and log.kept_parts:
                warnings.append(f"what the journal had for {log.directory} is kept in {', '.join(log.kept_parts)}")
        self.report.warnings += warnings + name_foreign_files(self.disk, self.directory)

    # ---- everything again ------------------------------------------------------------------------------------

    def _write_put_by(self, *, all_of_it: bool) -> None:
        """Write the batches taken out of tails to segments. all_of_it: for the last time, with all index entries."""
        for log in self.logs.values():
            log.write_put_by(all_of_it=all_of_it)
        self.put_by_bytes = 0

    def _write_anew(self, incarnation: int, obsolete: list[str]) -> None:
        """Write all applied batches, sync every written file, keep the parts that offline logs could not take.

        incarnation: of this start. obsolete: kept files, to be removed before a checkpoint of this start exists.
        """
        self._write_put_by(all_of_it=True)
        for path in obsolete:
            self.disk.unlink(path)
        if obsolete:
            self.disk.sync_directory(layout.kept_parts_directory(self.directory))
        for log, parts in self.salvage.items():
            self._keep_parts(log, incarnation, parts)
        syncs = [(log, job) for log in self.logs.values() if (job := log.sync_job()) is not None]
        run_syncs([job for _, job in syncs])
        for log, job in syncs:
            log.synced(job)

    def _keep_parts(self, log: PartitionLog, incarnation: int, parts: list[Part]) -> None:
        """Write an offline log's parts of the journal to a file of their own, so that the journal need not be kept."""
        name = layout.log_directory_name(log.topic, log.partition, log.log_id)
        log.kept_parts += kept_parts.write(self.disk, self.directory, name, incarnation, parts)

    def _store(self, end: StoreCheckpoint, journal: AnyJournal) -> Store:
        """Return the recovered store, with this journal."""
        return Store(
            self.disk,
            self.clock,
            self.directory,
            self.settings,
            lock=self.lock,
            journal=journal,
            logs=self.logs,
            topic_ids=self.topic_ids,
            next_log_id=end.next_log_id,
            incarnation=end.incarnation,
            age_ms=end.age_ms,
            open_files=self.open_files,
        )


_RESTORE = "restore the directory from a copy, or start with another --data-dir; nothing was changed"
_UNREADABLE_HINT = "start again once the device can read it, or restore this file from a copy"
_HOLE_HINT = "restore the data directory from a copy, or delete the topic"


def _missing(log: PartitionLog, offset: int, source: str, hint: str) -> str:
    """Return the text that names the missing offsets of a log, where they were expected, and a hint."""
    return f"offsets {log.end_offset} to {offset - 1} are missing: {source} goes on at {offset}; {hint}"


def _without(log: PartitionLog, path: str) -> str:
    """Return a hint on how to start without a file of kept parts; later files of its log must be removed with it."""
    given_up = log.kept_parts[log.kept_parts.index(path) :]
    return f"without {' and '.join(given_up)}, removed, the log opens and the records held there are lost"


def entries(logs: dict[int, PartitionLog], topic_ids: dict[int, bytes]) -> list[LogEntry]:
    """Return the entries of all logs for a checkpoint written now."""
    return [
        LogEntry(log.log_id, log.topic, topic_ids[log.log_id], log.partition, log.settings.pack(), log.manifest())
        for log in logs.values()
    ]


def _catalogue_entry(settings: StoreSettings) -> LogEntry:
    """Return the entry of the catalogue's log for a new directory."""
    log_settings = LogSettings(durability_mode=settings.durability_mode)
    return LogEntry(layout.CATALOGUE_LOG_ID, layout.CATALOGUE_TOPIC, layout.NO_TOPIC_ID, 0, log_settings.pack(), None)


def make_directory(disk: Disk, directory: str) -> None:
    """Make a directory and its parents, and sync each entry, so that a power cut cannot remove them.

    An earlier start that was killed may have made the lowest existing one without that sync.
    """
    missing = []
    path = directory
    while not disk.exists(path):
        missing.append(path)
        path = _parent(path)
    if missing:
        with contextlib.suppress(PermissionError):  # a directory that we may not read was not made by us
            disk.sync_directory(_parent(path))
    for path in reversed(missing):
        disk.make_directory(path)
        disk.sync_directory(_parent(path))


def _parent(path: str) -> str:
    """Return the parent directory; for the root and ".", the same path."""
    head = path.rstrip("/").rpartition("/")
    return head[0] or head[1] or ("/" if path.startswith("/") else ".")

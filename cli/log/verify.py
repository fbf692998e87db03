"""Checks a data directory: reads and compares everything that recovery would use. Nothing is written.

Recovery uses the newest checkpoint, its segments up to the sizes in it, and the units of the journal after it. Bytes
after these may be left from a crash: they are listed as notes, not as damage.

A running broker removes and reuses files of a checkpoint as soon as there are two newer ones. So damage that a pass has
found counts only if fewer checkpoints were written meanwhile, or if several passes in a row, each with the newest
checkpoint, have found it at the same place.
"""

import os
import os.path
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgpack
from crc32c import crc32c

from ...broker.security.authorizer import Authorizer
from ...broker.security.security_state import DAMAGED_RECORD, NEWER_RECORD, SecurityState
from ...broker.topics.catalogue import Catalogue, NewerCatalogue
from ...broker.upkeep.coordinator_snapshots import read_snapshot, snapshot_number
from ...effects.disk import Disk, SystemDisk
from ...protocol import batches
from ...protocol.batches import Batch, CorruptBatch
from ...protocol.errors import KafkaError
from ...protocol.records import records
from ...storage import checkpoints, layout, store_checkpoint
from ...storage.backup.journal_copy import BELIEVED_AFTER, Changed, judge_beside
from ...storage.checkpoints import Damaged, NewerFormat
from ...storage.journal import kept_parts
from ...storage.journal.format import APPEND, CREATE, DROP, LOG_START, Part
from ...storage.journal.scan import Scan
from ...storage.log import producer_snapshots as snapshots
from ...storage.log.index import OFFSET_ENTRY, OFFSET_SUFFIX, TIME_ENTRY, TIME_SUFFIX, IndexRow
from ...storage.log.manifest import Manifest
from ...storage.log.segment import LOG_SUFFIX, TXN_SUFFIX, SegmentDamaged, SegmentState
from ...storage.log.segment import scan as scan_segment
from ...storage.producers.aborted import TXN_ENTRY
from ...storage.producers.aborted import unpack as unpack_aborted
from ...storage.producers.encoding import unpack as unpack_producers
from ...storage.store_checkpoint import LogEntry, StoreCheckpoint
from ..output.failures import Failure
from .aborts import AbortCheck
from .facts import Fact

PASSES_BESIDE_A_BROKER = 5
PAUSE_S = 0.3
OVERTAKEN_BY = 2  # newer checkpoints: after these, files that this one names may be removed
_OVERTAKEN = "not checked: it was removed or used again meanwhile; verify again while the broker has less to do"
_NOT_USED = "it is not used: the previous one is, or, without one, all records of the coordinators' logs are read"


@dataclass(slots=True)
class Report:
    """The result. findings: damage, and notes about what is unusual but harmless."""

    findings: list[Fact] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def damaged(self) -> bool:
        return any(finding["is"] == "damage" for finding in self.findings)

    def damage(self, path: str, what: str, position: int | None = None) -> None:
        self._find("damage", path, what, position)

    def places(self) -> set[str]:
        """Return a text for each damage, with what is damaged and where, to compare it with other passes."""
        return {repr(finding) for finding in self.findings if finding["is"] == "damage"}

    def discount(self, believed: set[str]) -> None:
        """Turn damage into notes, except damage whose text (see places()) is in `believed`."""
        for finding in self.findings:
            if finding["is"] == "damage" and repr(finding) not in believed:
                finding.pop("position", None)
                finding.update({"is": "note", "what": _OVERTAKEN})

    def note(self, path: str, what: str) -> None:
        self._find("note", path, what, None)

    def _find(self, kind: str, path: str, what: str, position: int | None) -> None:
        place = {} if position is None else {"position": position}
        self.findings.append({"is": kind, "path": path, **place, "what": what.removeprefix(f"{path}: ")})

    def summary(self) -> Fact:
        """Return the last fact: whether anything is damaged, and how much was checked."""
        verdict = "DAMAGED" if self.damaged else "sound"
        found = ", ".join(
            f"{count:,} {what if count != 1 else what.removesuffix('s')}" for what, count in self.counts.items()
        )
        return {
            "is": "summary",
            "damaged": self.damaged,
            **self.counts,
            "what": f"{verdict}: {found or 'nothing there'}",
        }


def verify_directory(directory: str) -> Report:
    """Check a whole data directory. Raises Failure if the path is not one."""
    disk = SystemDisk()
    directory = directory.rstrip("/") or directory
    if not disk.exists(directory) or not disk.is_directory(directory):
        raise Failure(f"{directory} is not a directory", "DIR must be a data directory of fencepost serve")
    names = disk.list(directory)
    if "journal" not in names and not any(layout.checkpoint_number(name) is not None for name in names):
        raise Failure(f"{directory} has no broker's data", "DIR must be a data directory of fencepost serve")
    hold = disk.hold(directory)  # so that all of it is one directory, whatever is moved to this path meanwhile
    try:
        return _verify(disk, directory)
    finally:
        hold.release()


def _verify(disk: Disk, directory: str) -> Report:
    """Check the directory, in further passes if a running broker may have removed files. Returns the report."""
    found: list[set[str]] = []
    while True:
        before, runs = _newest(disk, directory), _broker_seems_to_run(disk, directory)
        report = Report()
        _Pass(disk, directory, report, beside_a_broker=runs).run()
        came = _newest(disk, directory) - before
        if not report.damaged or (came < OVERTAKEN_BY and (runs or not came)):
            return report
        found.append(report.places())
        believed = set.intersection(*found[-BELIEVED_AFTER:]) if len(found) >= BELIEVED_AFTER else set()
        if believed or len(found) == PASSES_BESIDE_A_BROKER:
            report.discount(believed)
            return report
        time.sleep(PAUSE_S)


def _newest(disk: Disk, directory: str) -> int:
    return max(store_checkpoint.numbers(disk, directory), default=0)


def _broker_seems_to_run(disk: Disk, directory: str) -> bool:
    """Return whether a broker seems to run here: the process whose id is in the lock file exists."""
    try:
        file = disk.open(layout.lock_path(directory), read_only=True)
        text = file.read(20, 0).split(b"\n")[0]
        file.close()
        os.kill(int(text), 0)
    except (OSError, ValueError) as error:
        return isinstance(error, PermissionError)
    return True


class _Pass:
    """One pass over a directory."""

    def __init__(self, disk: Disk, directory: str, report: Report, *, beside_a_broker: bool = False) -> None:
        self._beside_a_broker = beside_a_broker
        self._disk = disk
        self._directory = directory
        self._report = report
        self._catalogue = Catalogue()
        self._catalogue_complete = True
        self._security = SecurityState(Authorizer())
        self._security_logs: set[int] = set()  # their ids: there is one at most
        self._ends: dict[int, int] = {}  # next offset of each log, as far as it was read
        self._names: dict[int, str] = {}  # folder of each log that exists
        self._broken: set[int] = set()  # logs with damaged or missing records

    def run(self) -> None:
        """Check the whole data directory; findings go into the report."""
        content = self._newest_checkpoint()
        if content is None:
            return
        self._check_coordinators()
        for entry in content.logs:
            self._names[entry.log_id] = layout.log_directory_name(entry.topic, entry.partition, entry.log_id)
            self._ends[entry.log_id] = 0
            self._note_security_log(entry.log_id, entry.topic, entry.topic_id)
            self._check_log(entry)
        self._verify_kept_parts(content.incarnation)
        self._check_journal(content)
        self._compare_with_catalogue()
        self._note_leftovers()

    # ---- checkpoints -----------------------------------------------------------------------------------------

    def _newest_checkpoint(self) -> StoreCheckpoint | None:
        """Return the checkpoint with which recovery would start; None if none is valid. All are checked."""
        newest: StoreCheckpoint | None = None
        for number in store_checkpoint.numbers(self._disk, self._directory):
            path = layout.checkpoint_path(self._directory, number)
            try:
                content = store_checkpoint.read(self._disk, self._directory, number)
            except (Damaged, NewerFormat) as error:
                self._report.damage(path, str(error))
                continue
            except FileNotFoundError:
                continue
            self._report.counts["checkpoints"] += 1
            newest = newest or content
        if newest is None:
            self._report.damage(self._directory, "no checkpoint can be read")
        return newest

    def _check_coordinators(self) -> None:
        """Check the coordinators' snapshots. A damaged one is noted only, as logs have the state; a newer is damage."""
        for name in self._disk.list(self._directory):
            if snapshot_number(name) is None:
                continue
            path = f"{self._directory}/{name}"
            try:
                read_snapshot(self._disk, path)
                self._report.counts["coordinator snapshots"] += 1
            except NewerFormat as error:
                self._report.damage(path, str(error))
            except (Damaged, ValueError) as error:
                self._report.note(path, f"{str(error).removeprefix(f'{path}: ')}; {_NOT_USED}")
            except FileNotFoundError:
                continue  # a broker is at work here

    # ---- logs ------------------------------------------------------------------------------------------------

    def _check_log(self, entry: LogEntry) -> None:
        """Check a log's segments, indexes and snapshots against its manifest in the checkpoint."""
        folder = f"{layout.logs_directory(self._directory)}/{self._names[entry.log_id]}"
        self._report.counts["logs"] += 1
        if entry.manifest is None:
            return
        try:
            manifest = Manifest.from_row(entry.manifest)
        except (TypeError, ValueError) as error:
            self._report.damage(folder, f"its entry in the checkpoint does not parse: {error}")
            self._broken.add(entry.log_id)
            return
        self._ends[entry.log_id] = manifest.end_offset
        check = AbortCheck()
        for state in manifest.segments:
            self._check_segment(entry.log_id, folder, state, check)
        for snapshot in manifest.snapshots:
            if not snapshot.empty:
                self._check_snapshot(f"{folder}/{snapshot.name}")
        names = self._disk.list(folder) if self._disk.is_directory(folder) else []
        for name in kept_parts.list_old_names(names):
            try:
                parts, fault = kept_parts.read_old(self._disk, f"{folder}/{name}", entry.log_id)
            except FileNotFoundError:
                continue  # a broker is at work here
            self._check_kept_parts(f"{folder}/{name}", entry.log_id, parts)
            if fault:
                self._report.damage(f"{folder}/{name}", fault)

    # ---- parts of the journal that were kept -----------------------------------------------------------------

    def _verify_kept_parts(self, incarnation: int) -> None:
        """Check the journal parts that are kept for logs that could not be opened. incarnation: of the checkpoint."""
        parent = layout.kept_parts_directory(self._directory)
        files, _ = kept_parts.list_files(self._disk, self._directory)
        for found in files:
            path = f"{parent}/{found.name}"
            if found.incarnation > incarnation or found.log_id not in self._ends:
                self._report.note(path, "it is not needed any more; a broker removes it")
                continue
            try:
                self._check_kept_parts(path, found.log_id, kept_parts.read(self._disk, path, found.log_id))
            except (Damaged, NewerFormat) as error:
                self._report.damage(path, str(error))
                self._broken.add(found.log_id)
            except FileNotFoundError:
                continue  # a broker is at work here

    def _check_kept_parts(self, path: str, log_id: int, parts: Sequence[Part]) -> None:
        """Check the parts of the journal in one file that is kept for a log that could not be opened."""
        offsets = [part.offset for part in parts if part.kind == APPEND]
        span = f"from offset {offsets[0]} to that of its last batch, {offsets[-1]}" if offsets else "no records"
        self._report.note(path, f"parts of the journal for {self._names[log_id]}, {span}: applied once the log opens")
        for part in parts:
            if part.kind == APPEND:
                self._check_appended(path, 0, part)

    def _check_segment(self, log_id: int, folder: str, state: SegmentState, check: AbortCheck) -> None:
        """Check one segment and its indexes. check: has followed the earlier segments of the log."""
        path = f"{folder}/{state.stem}{LOG_SUFFIX}"
        self._report.counts["segments"] += 1
        try:
            for batch in self._segment_batches(path, state):
                self._report.counts["batches"] += 1
                check.follow(batch)
                self._apply(path, log_id, batch)
        except SegmentDamaged as damage:
            self._report.damage(path, damage.reason, damage.position)
            self._broken.add(log_id)
        except KafkaError as error:
            self._report.damage(path, f"a marker does not parse: {error.text}")
            self._broken.add(log_id)
        except FileNotFoundError:
            self._report.damage(path, "it is missing")
            self._broken.add(log_id)
        except OSError as error:
            self._report.damage(path, f"it cannot be read: {error.strerror}")
            self._broken.add(log_id)
        self._report.counts["bytes"] += state.size_bytes
        self._read_index(f"{folder}/{state.stem}{OFFSET_SUFFIX}", state.offset_index, OFFSET_ENTRY.size)
        self._read_index(f"{folder}/{state.stem}{TIME_SUFFIX}", state.time_index, TIME_ENTRY.size)
        path = f"{folder}/{state.stem}{TXN_SUFFIX}"
        entries = self._read_index(path, state.txn_index, TXN_ENTRY.size)
        if log_id not in self._broken:
            self._compare_aborts(path, entries, check)

    def _compare_aborts(self, path: str, entries: bytes | None, check: AbortCheck) -> None:
        """Check a segment's index of aborted transactions. entries: its bytes; None if a broker would not use it."""
        try:
            found = None if entries is None else unpack_aborted(entries)
        except ValueError as error:
            self._report.note(path, f"{error}; a broker rebuilds it")
            found = None
        for what in check.compare(found):
            self._report.damage(path, what)

    def _segment_batches(self, path: str, state: SegmentState) -> Iterator[Batch]:
        """Yield the batches of a segment, each verified. Raises SegmentDamaged."""
        file = self._disk.open(path, read_only=True)
        try:
            if file.size() < state.size_bytes:
                reason = f"the file ends here, but the checkpoint has {state.size_bytes} bytes of it"
                raise SegmentDamaged(path, file.size(), reason)
            for _, batch in scan_segment(file, state):
                yield batch
        finally:
            file.close()

    def _read_index(self, path: str, row: IndexRow, entry_bytes: int) -> bytes | None:
        """Return the entries of an index; None, with a note, if a broker could not use them and derives them again."""
        if not row.entries:
            return b""
        try:
            content = self._read_file(path)[: row.entries * entry_bytes]
        except FileNotFoundError:
            self._report.note(path, "it is missing; a broker rebuilds it")
            return None
        except OSError as error:
            self._report.note(path, f"it cannot be read ({error.strerror}); a broker rebuilds it")
            return None
        if len(content) < row.entries * entry_bytes or crc32c(content) != row.crc:
            self._report.note(path, "its checksum does not match; a broker rebuilds it")
            return None
        return content

    def _check_snapshot(self, path: str) -> None:
        """Check that a producer snapshot is there and can be decoded."""
        self._report.counts["snapshots"] += 1
        try:
            unpack_producers(checkpoints.read_file(self._disk, path, snapshots.KIND, snapshots.VERSION))
        except FileNotFoundError:
            self._report.damage(path, "it is missing")
        except (Damaged, NewerFormat, ValueError) as error:
            self._report.damage(path, str(error))

    def _read_file(self, path: str) -> bytes:
        """Return all bytes of a file."""
        file = self._disk.open(path, read_only=True)
        try:
            return file.read(file.size(), 0)
        finally:
            file.close()

    # ---- the journal -----------------------------------------------------------------------------------------

    def _check_journal(self, content: StoreCheckpoint) -> None:
        """Check each unit of the journal that is newer than the checkpoint."""
        directory = layout.journal_directory(self._directory)
        try:
            found = self._scan(content)
            self._report.counts["journal files"] = len(found.files)
            for unit in found.units(above=content.through_unit):
                self._report.counts["journal units"] += 1
                for part in unit.parts:
                    self._check_part(unit.path, unit.position, part)
            if found.cut_bytes:
                self._report.note(
                    directory, f"{found.cut_bytes} bytes at its end were never synced: {found.cut_reason}"
                )
        except (Damaged, NewerFormat) as error:
            position = getattr(error, "position", None)
            self._report.damage(getattr(error, "path", directory), getattr(error, "reason", str(error)), position)
            self._catalogue_complete = False
        except FileNotFoundError as error:
            self._report.damage(str(error.filename or directory), "it is missing")
            self._catalogue_complete = False
        except Changed:
            self._report.damage(directory, "it changed while it was read")
            self._catalogue_complete = False

    def _scan(self, content: StoreCheckpoint) -> Scan:
        """Scan the journal after this checkpoint. Raises Changed if a broker may have removed files that it needs."""
        if not self._beside_a_broker:
            return store_checkpoint.scan_journal(self._disk, self._directory, content)
        began = _newest(self._disk, self._directory)

        def check_holds() -> None:
            if _newest(self._disk, self._directory) >= began + OVERTAKEN_BY:
                raise Changed

        return judge_beside(self._disk, self._directory, content, check_holds)

    def _check_part(self, path: str, position: int, part: Part) -> None:
        """Check one part of a unit: it must fit the state in which the parts before it left its log."""
        log_id = part.log_id
        if part.kind == CREATE:
            self._check_created(path, position, part)
        elif log_id not in self._ends:
            pass  # the log was dropped
        elif part.kind == APPEND:
            self._check_appended(path, position, part)
        elif part.kind == DROP:
            del self._ends[log_id], self._names[log_id]
        elif part.kind != LOG_START:
            self._report.damage(path, f"a part of unknown kind {part.kind}", position)

    def _check_created(self, path: str, position: int, part: Part) -> None:
        """Check a part that creates a log, and remember the log's name."""
        try:
            topic, topic_id, partition, _ = msgpack.unpackb(b"".join(part.data), raw=False)
        except (ValueError, msgpack.UnpackException) as error:
            self._report.damage(path, f"a create part does not parse: {error}", position)
            return
        self._names[part.log_id] = layout.log_directory_name(topic, partition, part.log_id)
        self._ends.setdefault(part.log_id, 0)
        self._note_security_log(part.log_id, topic, topic_id)

    def _check_appended(self, path: str, position: int, part: Part) -> None:
        """Check a part that appends a batch: its checksum, and that it begins where its log ends."""
        end = self._ends[part.log_id]
        try:
            batch = batches.read(memoryview(b"".join(part.data)))
            batches.verify(batch)
        except CorruptBatch as error:
            self._report.damage(path, f"a batch of {self._names[part.log_id]}: {error.reason}", position)
            return
        if part.offset > end and part.log_id not in self._broken:
            what = f"{self._names[part.log_id]} continues at offset {part.offset}, but ends at {end}"
            self._report.damage(path, what, position)
            self._broken.add(part.log_id)
        if part.offset >= end:
            self._ends[part.log_id] = batch.last_offset + 1
            self._apply(path, part.log_id, batch)

    # ---- the catalogue and the security log ------------------------------------------------------------------

    def _note_security_log(self, log_id: int, topic: str, topic_id: bytes) -> None:
        if topic == layout.SECURITY_TOPIC and topic_id == layout.NO_TOPIC_ID:
            self._security_logs.add(log_id)

    def _apply(self, path: str, log_id: int, batch: Batch) -> None:
        """Apply the records of a batch, if it is of the catalogue or of a security log, to its state in memory."""
        if log_id == layout.CATALOGUE_LOG_ID:
            self._apply_catalogue(path, batch)
        elif log_id in self._security_logs:
            try:
                for record in records(batch):
                    self._security.apply(record.key or b"", record.value)
            except (KafkaError, *DAMAGED_RECORD, *NEWER_RECORD) as error:
                self._report.damage(path, f"the security log's records at offset {batch.base_offset}: {error}")

    def _apply_catalogue(self, path: str, batch: Batch) -> None:
        """Apply a batch of the catalogue, so that the topics are known. Undecodable records are damage."""
        try:
            for record in records(batch):
                self._catalogue.apply(record.key or b"", record.value)
        except (KafkaError, NewerCatalogue, ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
            self._report.damage(path, f"the catalogue's record at offset {batch.base_offset} does not parse: {error}")
            self._catalogue_complete = False

    def _compare_with_catalogue(self) -> None:
        """Check that every partition of a topic has a log, and every log a topic."""
        if not self._catalogue_complete or layout.CATALOGUE_LOG_ID in self._broken:
            self._report.note(self._directory, "the catalogue is damaged, so topics were not compared with logs")
            return
        self._report.counts["topics"] = len(self._catalogue.topics)
        named: set[int] = {layout.CATALOGUE_LOG_ID}
        security_log = self._catalogue.security_log
        if security_log is not None:
            named.add(security_log)
            if security_log not in self._ends:
                self._report.damage(self._directory, f"the security log is not there (id {security_log})")
        for topic in self._catalogue.topics.values():
            named.update(topic.log_ids)
            for partition, log_id in enumerate(topic.log_ids):
                if log_id not in self._ends:
                    self._report.damage(self._directory, f"{topic.name}-{partition} has no log (id {log_id})")
        for log_id in sorted(set(self._ends) - named):
            self._report.damage(self._directory, f"log {self._names[log_id]} belongs to no topic")

    def _note_leftovers(self) -> None:
        """Add a note for each folder below logs/ that belongs to no log."""
        logs = layout.logs_directory(self._directory)
        known = set(self._names.values())
        for name in self._disk.list(logs) if self._disk.is_directory(logs) else ():
            if name not in known:
                ours = layout.parse_log_directory_name(name) and self._disk.is_directory(f"{logs}/{name}")
                what = "its log was dropped; a broker removes it" if ours else "not made by fencepost"
                self._report.note(os.path.join(logs, name), what)

"""The contents of a path in a data directory, as a sequence of facts (dictionaries, see facts.py). Only reads.

Bytes at the end of a file that are not a batch, or an unreadable round, are only listed: `log verify` decides whether
that is damage or the last write before a crash.
"""

import os.path
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from ...broker.upkeep.coordinator_snapshots import read_snapshot, snapshot_number
from ...effects.disk import Disk, File, SystemDisk
from ...protocol import batches
from ...protocol.batches import CorruptBatch
from ...storage import checkpoints, layout, store_checkpoint
from ...storage.checkpoints import Damaged, NewerFormat
from ...storage.journal import kept_parts
from ...storage.journal.format import CREATE
from ...storage.journal.preparing import file_sequence
from ...storage.journal.reading import read_header, round_units, rounds
from ...storage.log import producer_snapshots as snapshots
from ...storage.log.index import OFFSET_ENTRY, OFFSET_SUFFIX, TIME_ENTRY, TIME_SUFFIX
from ...storage.log.manifest import Manifest
from ...storage.log.segment import LOG_SUFFIX, TXN_SUFFIX, parse_name
from ...storage.producers.aborted import TXN_ENTRY
from ...storage.producers.aborted import unpack as unpack_aborted
from ...storage.producers.encoding import ANY_SEQUENCE, NONE_OPEN
from ...storage.producers.encoding import unpack as unpack_producers
from ..output.failures import Failure
from .facts import Fact, batch_fact, created, part_facts, plain, record_facts, time_of, unit_facts

READ_BYTES = 4 << 20
LARGEST_BATCH_BYTES = 1 << 30


def facts_of(path: str, *, records: bool) -> Iterator[Fact]:
    """Yield all facts of a file or directory. Raises Failure if it has no fencepost data, and OSError."""
    disk = SystemDisk()
    path = path.rstrip("/") or path
    if not disk.exists(path):
        raise Failure(f"{path} does not exist", "FILE|DIR must be a data directory, or a file or directory in one")
    return _at_least_one(_Dump(disk, records).of(path), path)


class NoFencepostData(Failure):
    """Raised if there is no fencepost data at the path."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} has no fencepost data", "FILE|DIR must be a data directory, or a file or directory in one"
        )


def _at_least_one(facts: Iterator[Fact], path: str) -> Iterator[Fact]:
    """Yield the facts. Raises NoFencepostData if there are none. The exception names this path, also if the data of a
    folder below was missing.
    """
    count = 0
    try:
        for fact in facts:
            count += 1
            yield fact
    except NoFencepostData:
        if count:
            raise
    if not count:
        raise NoFencepostData(path)


class _Dump:
    def __init__(self, disk: Disk, records: bool) -> None:
        self._disk = disk
        self._records = records
        self._names: dict[int, str] = {}

    def of(self, path: str) -> Iterator[Fact]:
        """Yield the facts of a file or directory of any kind. Raises NoFencepostData if it has only other files."""
        if not self._disk.is_directory(path):
            yield from self._file(path)
            return
        names = self._disk.list(path)
        if any(layout.checkpoint_number(name) is not None for name in names):
            yield from self._store(path, names)
        elif "logs" not in names and any(self._is_known(name) for name in names):
            for name in names:
                if self._is_known(name):
                    yield from self._file(os.path.join(path, name))
        elif folders := [folder for name in names if self._disk.is_directory(folder := os.path.join(path, name))]:
            for folder in folders:
                yield from self.of(folder)
        elif names:
            raise NoFencepostData(path)

    def _store(self, path: str, names: list[str]) -> Iterator[Fact]:
        """Yield the facts of a data directory: checkpoints, coordinators' snapshots, the journal, every log."""
        for number_of in (layout.checkpoint_number, snapshot_number):
            numbers = ((number, name) for name in names if (number := number_of(name)) is not None)
            for _, name in sorted(numbers):
                yield from self._file(os.path.join(path, name))
        for folder in (layout.journal_directory(path), layout.kept_parts_directory(path), layout.logs_directory(path)):
            if self._disk.exists(folder):
                yield from self.of(folder)

    def _reader(self, name: str) -> Callable[[str], Iterator[Fact]] | None:
        """Return the function that reads a file of this name; None if no fencepost file has such a name."""
        if layout.checkpoint_number(name) is not None:
            return self._checkpoint
        if snapshot_number(name) is not None:
            return self._coordinators
        if file_sequence(name) is not None:
            return self._journal_file
        if name.endswith(snapshots.SUFFIX):
            return self._snapshot
        if kept_parts.list_old_names([name]):
            return self._segment
        if kept_parts.parse_name(name) is not None:
            return self._kept_parts
        parsed = parse_name(name)
        if parsed is None:
            return None
        return {
            LOG_SUFFIX: self._segment,
            OFFSET_SUFFIX: self._offset_index,
            TIME_SUFFIX: self._time_index,
            TXN_SUFFIX: self._txn_index,
        }[parsed[2]]

    def _is_known(self, name: str) -> bool:
        return self._reader(name) is not None

    def _file(self, path: str) -> Iterator[Fact]:
        """Yield the facts of one file, whose name says what is in it. Raises Failure if no file of fencepost has such
        a name.
        """
        reader = self._reader(os.path.basename(path))
        if reader is None:
            raise Failure(
                f"{path} is not a fencepost file", "FILE|DIR must be a data directory, or a file or directory in one"
            )
        try:
            yield from reader(path)
        except (Damaged, NewerFormat, ValueError) as error:
            yield {"is": "damage", "path": path, "what": str(error).removeprefix(f"{path}: ")}
        except FileNotFoundError:
            yield {"is": "note", "path": path, "what": "a running broker has removed it in the meantime"}

    # ---- checkpoints and snapshots ---------------------------------------------------------------------------

    def _checkpoint(self, path: str) -> Iterator[Fact]:
        """Yield the facts of a checkpoint, and of each log that it names."""
        content = store_checkpoint.unpack(
            checkpoints.read_file(self._disk, path, store_checkpoint.KIND, store_checkpoint.VERSION)
        )
        head = {name: value for name, value in _fields(content).items() if name != "logs"}
        yield {"is": "checkpoint", "path": path, **head, "logs": len(content.logs)}
        for entry in content.logs:
            self._names[entry.log_id] = f"{entry.topic}-{entry.partition}"
            fact = {
                "is": "log",
                "log_id": entry.log_id,
                "topic": entry.topic,
                "topic_id": plain(entry.topic_id),
                "partition": entry.partition,
                "settings": entry.settings,
            }
            if entry.manifest is not None:
                manifest = Manifest.from_row(entry.manifest)
                fact |= {
                    "start_offset": manifest.start_offset,
                    "end_offset": manifest.end_offset,
                    "cleaned_offset": manifest.cleaned_offset,
                    "snapshots": [snapshot._asdict() for snapshot in manifest.snapshots],
                    "segments": [state._asdict() for state in manifest.segments],
                }
            yield fact

    def _coordinators(self, path: str) -> Iterator[Fact]:
        """Yield the facts of a snapshot of the coordinators."""
        found = read_snapshot(self._disk, path)
        entries = {topic: len(found.entries(topic)) for topic in found.slices}
        positions = {topic: [list(each) for each in of_topic] for topic, of_topic in found.positions.items()}
        yield {
            "is": "coordinators",
            "path": path,
            "positions": positions,
            "entries": entries,
            "size_bytes": found.size_bytes,
        }

    def _snapshot(self, path: str) -> Iterator[Fact]:
        """Yield the facts of a producer snapshot, and of each producer in it."""
        payload = checkpoints.read_file(self._disk, path, snapshots.KIND, snapshots.VERSION)
        producers = unpack_producers(payload)
        yield {"is": "snapshot", "path": path, "producers": len(producers), "size_bytes": len(payload)}
        for producer_id, producer in producers.items():
            yield {
                "is": "producer",
                "producer_id": producer_id,
                "producer_epoch": producer.epoch,
                "coordinator_epoch": producer.coordinator_epoch,
                "next_sequence": None if producer.next_sequence == ANY_SEQUENCE else producer.next_sequence,
                "first_open_offset": None if producer.first_open == NONE_OPEN else producer.first_open,
                "time": time_of(producer.last_timestamp),
                "batches": [
                    {"base_sequence": sequence, "base_offset": offset, "timestamp": timestamp}
                    for sequence, offset, timestamp in producer.window
                ],
            }

    # ---- the journal -----------------------------------------------------------------------------------------

    def _journal_file(self, path: str) -> Iterator[Fact]:
        """Yield the facts of a journal file: its header, rounds, units and their parts."""
        found = read_header(self._disk, path)
        header = found.header._asdict() | {"salt": found.header.salt.hex()}
        yield {"is": "journal file", "path": path, **header}
        for one in rounds(self._disk, path):
            fact = {"is": "round", "position": one.position, **one.header._asdict()}
            yield fact | ({"fault": one.fault} if one.fault else {})
            if one.fault:
                continue
            for unit in round_units(self._disk, found, one):
                for part in unit.parts:
                    if part.kind == CREATE:
                        made = created(b"".join(part.data))
                        self._names[part.log_id] = f"{made.get('topic')}-{made.get('partition')}"
                yield from unit_facts(unit, self._names, with_records=self._records)

    def _kept_parts(self, path: str) -> Iterator[Fact]:
        """Yield the facts of a file with the parts of the journal that are kept for a log that cannot be opened."""
        found = kept_parts.parse_name(os.path.basename(path))
        assert found is not None
        yield {"is": "kept parts", "path": path, "log_id": found.log_id, "incarnation": found.incarnation}
        for part in kept_parts.read(self._disk, path, found.log_id):
            yield from part_facts(part, self._names, with_records=self._records)

    # ---- segments and their indexes --------------------------------------------------------------------------

    def _segment(self, path: str) -> Iterator[Fact]:
        """Yield the facts of a segment, and of each batch in it."""
        log_id = _log_id(path)
        file = self._disk.open(path, read_only=True)
        try:
            size = file.size()
            base_offset, generation, _ = parse_name(os.path.basename(path)) or (0, 0, "")
            yield {
                "is": "segment",
                "path": path,
                "base_offset": base_offset,
                "generation": generation,
                "size_bytes": size,
            }
            position = 0
            for batch in _batches(file, size):
                yield batch_fact(batch, position)
                if self._records and not batch.is_control:
                    yield from record_facts(batch, log_id)
                position += batch.size
            if position < size:
                what = f"{size - position} bytes from byte {position} on are not a batch"
                yield {"is": "rest", "path": path, "position": position, "size_bytes": size - position, "what": what}
        finally:
            file.close()

    def _offset_index(self, path: str) -> Iterator[Fact]:
        """Yield the entries of an offset index."""
        base_offset = _base_offset(path)
        yield {"is": "index", "path": path, "of": "offsets"}
        for relative, position in OFFSET_ENTRY.iter_unpack(self._entries(path, OFFSET_ENTRY.size)):
            yield {"is": "index entry", "last_offset": base_offset + relative, "position": position}

    def _time_index(self, path: str) -> Iterator[Fact]:
        """Yield the entries of a time index."""
        base_offset = _base_offset(path)
        yield {"is": "index", "path": path, "of": "timestamps"}
        for timestamp, relative in TIME_ENTRY.iter_unpack(self._entries(path, TIME_ENTRY.size)):
            yield {"is": "index entry", "last_offset": base_offset + relative, "time": time_of(timestamp)}

    def _txn_index(self, path: str) -> Iterator[Fact]:
        """Yield the aborted transactions of a transaction index."""
        yield {"is": "index", "path": path, "of": "aborted transactions"}
        for aborted in unpack_aborted(self._entries(path, TXN_ENTRY.size)):
            yield {"is": "index entry", **aborted._asdict()}

    def _entries(self, path: str, entry_bytes: int) -> bytes:
        """Return the bytes of all complete entries of an index; an incomplete one at the end is left out."""
        file = self._disk.open(path, read_only=True)
        try:
            return file.read(file.size() // entry_bytes * entry_bytes, 0)
        finally:
            file.close()


def _batches(file: File, size: int) -> Iterator[batches.Batch]:
    """Yield batches from the start, up to the first bytes that are not a batch."""
    position = 0
    wanted = READ_BYTES
    while position < size:
        chunk = memoryview(file.read(min(wanted, size - position), position))
        at = 0
        try:
            while at < len(chunk):
                batch = batches.read(chunk, at)
                yield batch
                at += batch.size
        except CorruptBatch:
            pass
        if at == 0 and (len(chunk) >= size - position or wanted >= LARGEST_BATCH_BYTES):
            return
        wanted = READ_BYTES if at else wanted * 4
        position += at


def _base_offset(path: str) -> int:
    """Return the base offset in the name of a segment's file; 0 for another name."""
    parsed = parse_name(os.path.basename(path))
    return parsed[0] if parsed else 0


def _log_id(path: str) -> int | None:
    """Return the id of the log in the name of the folder that the segment is in; None if the name has none."""
    digits = os.path.basename(os.path.dirname(os.path.abspath(path))).rpartition(".")[2]
    return int(digits) if digits.isdigit() else None


def _fields(content: store_checkpoint.StoreCheckpoint) -> dict[str, Any]:
    return asdict(content)

"""A checkpoint of the whole store: which bytes of which files count, and from which unit on the journal is needed.

One file names every log, so a compaction, a retention step or the drop of a log takes effect as one atomic change. Two
checkpoints are kept, and journal files and segments are removed one checkpoint later, so that the older one alone is
sufficient to recover without loss.
"""

from dataclasses import dataclass, field
from typing import Any

import msgpack

from ..effects.disk import Disk
from . import checkpoints, layout
from .journal.format import EVERYTHING, JournalStart
from .journal.scan import Scan, scan
from .log.settings import LogSettings

KIND = "store"
VERSION = 2  # 1 said nothing of where the journal begins, and needed it synced through next_unit - 1
_HEAD, _HEAD_OF_VERSION_1 = 10, 7
_NEXT_UNIT = 3  # where it is in a head
_ROW_TYPES = (int, str, bytes, int, dict)  # of a LogEntry, up to the manifest


@dataclass(slots=True)
class LogEntry:
    """One log in a checkpoint. manifest and settings: as PartitionLog.manifest() and LogSettings.pack() return them."""

    log_id: int
    topic: str
    topic_id: bytes
    partition: int
    settings: dict[str, Any]
    manifest: Any


@dataclass(slots=True)
class StoreCheckpoint:
    """A point from which recovery starts.

    through_unit: every unit up to here is wholly in the segments named; replay skips them. Of later units parts may be
        there too: lone batches, and joint units through synced_unit. Replay skips what a log already has.
    next_unit, next_round, next_log_id: no number below these is ever given again.
    incarnation: the start counter as of this checkpoint.
    age_ms: uptime of the data directory so far (durations count in it, never in wall time).
    journal_incarnation: the journal's files are of this start or a later one; 0: it may be missing altogether. With the
        journal in a store of objects, the epoch that this directory owned; 0: it has not owned one, or begins to.
    synced_unit: the journal was synced through this unit (files before journal_start excepted) before this was written.
    journal_start: no unit above through_unit is before it.
    """

    incarnation: int
    journal_incarnation: int
    through_unit: int
    next_unit: int
    next_round: int
    next_log_id: int
    age_ms: int
    synced_unit: int
    journal_start: JournalStart = EVERYTHING
    logs: list[LogEntry] = field(default_factory=list)


def scan_journal(disk: Disk, directory: str, content: StoreCheckpoint) -> Scan:
    """Scan the journal of a data directory, and decide with the numbers in a checkpoint which units count. Raises:
    JournalDamaged, NewerFormat.
    """
    return scan(
        disk,
        layout.journal_directory(directory),
        checkpointed_unit=content.through_unit,
        synced_unit=content.synced_unit,
        incarnation=content.journal_incarnation or None,
        start=content.journal_start,
    )


def write(disk: Disk, directory: str, number: int, content: StoreCheckpoint) -> None:
    """Write a checkpoint atomically and durably."""
    checkpoints.write_file(disk, layout.checkpoint_path(directory, number), KIND, VERSION, pack(content))


def read(disk: Disk, directory: str, number: int) -> StoreCheckpoint:
    """Read one checkpoint. Raises: checkpoints.Damaged, checkpoints.NewerFormat."""
    path = layout.checkpoint_path(directory, number)
    payload = checkpoints.read_file(disk, path, KIND, VERSION)
    try:
        content = unpack(payload)
        for entry in content.logs:
            LogSettings.unpack(entry.settings, f"{entry.topic}-{entry.partition}")
        return content
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise checkpoints.Damaged(path, f"its contents do not parse: {error}") from error


def numbers(disk: Disk, directory: str) -> list[int]:
    """Return the numbers of the checkpoints present, newest first."""
    named = [(layout.checkpoint_number(name), f"{directory}/{name}") for name in disk.list(directory)]
    found = [number for number, path in named if number is not None and not disk.is_directory(path)]
    return sorted(found, reverse=True)


def pack(content: StoreCheckpoint) -> bytes:
    """Encode the payload of a checkpoint in msgpack: a head, and one row for each log (docs/formats.md)."""
    head = [
        content.incarnation,
        content.journal_incarnation,
        content.through_unit,
        content.next_unit,
        content.next_round,
        content.next_log_id,
        content.age_ms,
        content.synced_unit,
        *content.journal_start,
    ]
    rows = [[e.log_id, e.topic, e.topic_id, e.partition, e.settings, e.manifest] for e in content.logs]
    packed: bytes = msgpack.packb([head, rows], use_bin_type=True)
    return packed


def unpack(payload: bytes) -> StoreCheckpoint:
    """Decode what pack() encoded. Raises ValueError, TypeError, msgpack.UnpackException for anything else."""
    head, rows = msgpack.unpackb(payload, raw=False, use_list=True, strict_map_key=False)
    if set(map(type, head)) != {int}:
        raise ValueError("its head holds something other than whole numbers")
    if len(head) == _HEAD_OF_VERSION_1:
        head += [head[_NEXT_UNIT] - 1, *EVERYTHING]
    if len(head) != _HEAD:
        raise ValueError(f"its head has {len(head)} numbers instead of {_HEAD}")
    content = StoreCheckpoint(*head[:-2])
    content.journal_start = JournalStart(*head[-2:])
    content.logs = [LogEntry(*row) for row in rows]
    for row in rows:
        if tuple(map(type, row[:-1])) != _ROW_TYPES:
            raise ValueError(f"the entry of a log has values of the wrong types: {row[:4]!r}")
    return content

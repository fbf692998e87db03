"""Makes a log out of its manifest and of its directory as a crash left it; recovery then applies the journal to it.

No more is read than needed: file sizes are compared, and only batches above the newest producer snapshot are scanned,
with their CRCs; also, of a log that the broker reads as soon as it starts, the batches that it is going to read. If the
manifest counts something that the disk does not have, or has with other bytes, the log is offline: its manifest is
copied unchanged into every later checkpoint, and no file is touched. Errors of the operating system are not damage:
they end the start. All logs are checked before the first file is changed. Indexes are checked when first used. The
words evidence and offline are in docs/glossary.md.
"""

import logging
from collections.abc import Iterator

from ...effects.disk import Disk
from ...protocol.batches import Batch
from .. import checkpoints, layout
from ..journal import kept_parts
from ..producers.aborted import TXN_ENTRY
from ..system_errors import MISPLACED, may_pass
from . import producer_snapshots as snapshots
from .index import OFFSET_ENTRY, OFFSET_SUFFIX, TIME_ENTRY, TIME_SUFFIX
from .indexes import load_places
from .manifest import Manifest, Retired
from .open_files import OpenFiles
from .partition_log import PartitionLog
from .segment import LOG_SUFFIX, TXN_SUFFIX, SegmentDamaged, SegmentState, parse_name, scan
from .settings import LogSettings

logger = logging.getLogger("fencepost.storage")

RESTORE_HINT = (
    "stop the broker, restore this folder from a copy, start again: what the journal had for it is kept and applied "
    "then; or delete the topic"
)
UNREADABLE_HINT = "start again once the device can read it, or restore this folder from a copy"


class _Unusable(Exception):
    """Raised with the reason why a log must stay offline."""


def open_partition_log(
    disk: Disk,
    directory: str,
    log_id: int,
    topic: str,
    partition: int,
    settings: LogSettings,
    open_files: OpenFiles,
    manifest: object,
    age_ms: int,
    *,
    look_from: int | None = None,
    unreadable_is_damage: bool = False,
) -> PartitionLog:
    """Open the partition log that a manifest describes (None: an empty one). A damaged log is returned offline, with a
    reason.

    Changes no file: the caller calls tidy(), and then applies the units of the journal that are newer than the
    manifest.

    look_from: every batch from this offset on is checked. unreadable_is_damage: an unreadable file puts the log
    offline. Raises: NewerFormat, OSError.
    """
    log = PartitionLog(disk, directory, log_id, topic, partition, settings, open_files)
    if manifest is not None:
        restore(log, manifest, age_ms, look_from=look_from, unreadable_is_damage=unreadable_is_damage)
    return log


def restore(
    log: PartitionLog, row: object, age_ms: int, *, look_from: int | None = None, unreadable_is_damage: bool = False
) -> None:
    """Bring a new PartitionLog to the state of a manifest, or put it offline with a reason. Changes no file.

    look_from: every batch from this offset on is checked. unreadable_is_damage: a file that the device cannot read puts
    the log offline, too; else OSError is raised.

    Raises: checkpoints.NewerFormat, if a later version wrote the snapshots; OSError, which does not mean that the log
    is damaged.
    """
    try:
        manifest = Manifest.from_row(row)
    except (TypeError, ValueError) as error:
        log.offline, log.evidence = f"its entry in the checkpoint does not parse: {error}", row
        return
    _adopt(log, manifest, age_ms)
    try:
        names = log.disk.list(log.directory) if log.disk.exists(log.directory) else []
        log.kept_parts = [f"{log.directory}/{name}" for name in kept_parts.list_old_names(names)]
        _check_files(log, manifest, set(names))
        _restore_producers(log, manifest, age_ms, unreadable_is_damage=unreadable_is_damage)
        if look_from is not None:
            _check_above(log, look_from)
        if unreadable_is_damage:
            _try_active(log, set(names))
    except _Unusable as problem:
        log.offline, log.evidence = str(problem), row
        return
    except (SegmentDamaged, *MISPLACED) as problem:
        log.offline, log.evidence = f"{problem}; {RESTORE_HINT}", row
        return
    except OSError as error:
        if not unreadable_is_damage or may_pass(error):
            raise
        log.offline, log.evidence = f"{error.filename}: {error.strerror}; {UNREADABLE_HINT}", row
        return
    # Without segments, a folder that exists may not be durable: it may be of a broker killed before it synced the name.
    log.made_directory = bool(manifest.segments)
    log.opened = manifest


def tidy(log: PartitionLog) -> None:
    """Cut and remove what a restored log's manifest does not name. Raises: OSError."""
    manifest, log.opened = log.opened, None
    if manifest is None:
        return
    names = log.disk.list(log.directory) if log.disk.exists(log.directory) else []
    _cut(log, manifest, set(names))
    _remove_leftovers(log, manifest, names)


def leave_as_it_is(log: PartitionLog, reason: str) -> None:
    """Put a log offline whose damage was found right after recovery, before anything used it. From then on its manifest
    and its files are kept as they are.
    """
    if log.offline is None:
        log.offline = reason
        logger.error("%s-%d is offline: %s", log.topic, log.partition, reason)
    log.evidence = log.manifest()
    log.retired.clear()  # files that no checkpoint names are evidence as well
    for state in log.segments:
        log.open_files.indexes.drop(f"{log.directory}/{state.stem}")


def _adopt(log: PartitionLog, manifest: Manifest, age_ms: int) -> None:
    """Set the log's offsets and segments to those of the manifest. Ages above age_ms are reduced to it: a crash may
    set the store's age back.
    """
    log.start_offset = log.released_start = manifest.start_offset
    log.end_offset = log.high_watermark = log.flushed_offset = log.checkpointed_offset = manifest.end_offset
    log.cleaned_offset = manifest.cleaned_offset
    log.snapshots.kept = list(manifest.snapshots)
    log.segments = [
        state
        if state.last_age_ms <= age_ms
        else state._replace(first_age_ms=min(state.first_age_ms, age_ms), last_age_ms=age_ms)
        for state in manifest.segments
    ]
    log.next_generation = max((state.generation for state in manifest.segments), default=0) + 1


def _check_files(log: PartitionLog, manifest: Manifest, names: set[str]) -> None:
    """Check that every file of the manifest exists and has the length it says. Raises: _Unusable."""
    end = -1
    problems: list[str] = []
    missing: list[tuple[int, int]] = []  # (first offset, offset after the last)
    for state in manifest.segments:
        if state.base_offset < end:
            raise _Unusable(f"the checkpoint has segments of {log.directory} that overlap at offset {end}")
        end = state.end_offset
        path = f"{log.directory}/{state.stem}{LOG_SUFFIX}"
        size = log.disk.size(path) if state.stem + LOG_SUFFIX in names else None
        if size is None:
            problems.append(f"{path} is missing")
            missing.append((state.base_offset, state.end_offset))
        elif size < state.size_bytes:
            problems.append(f"{path} has {size} bytes, the checkpoint counts {state.size_bytes}")
            missing.append((_end_of_sound(log, path, state._replace(size_bytes=size)), state.end_offset))
    if problems:
        more = f" (and {len(problems) - 1} more like it)" if len(problems) > 1 else ""
        raise _Unusable(f"{problems[0]}{more}: {_ranges(missing)}; {RESTORE_HINT}")


def _try_active(log: PartitionLog, names: set[str]) -> None:
    """Check that the newest segment, to which recovery appends, can be read up to its end, and that its index files can
    be opened.
    """
    for state in log.segments[-1:]:
        with log.open_files.use(f"{log.directory}/{state.stem}{LOG_SUFFIX}") as file:
            file.read(1, state.size_bytes - 1)
        for suffix in (OFFSET_SUFFIX, TIME_SUFFIX, TXN_SUFFIX):
            if state.stem + suffix in names:
                with log.open_files.use(f"{log.directory}/{state.stem}{suffix}"):
                    pass


def _end_of_sound(log: PartitionLog, path: str, state: SegmentState) -> int:
    """Return the offset after the last valid batch before the first damage, reading from the segment's beginning."""
    end_offset = state.base_offset
    try:
        with log.open_files.use(path) as file:
            for _, batch in scan(file, state):
                end_offset = batch.next_offset
    except SegmentDamaged:
        pass  # the batches before the damage are valid
    return end_offset


def _ranges(missing: list[tuple[int, int]]) -> str:
    """Return a message that names the missing offsets; neighbouring ranges are merged into one."""
    merged: list[tuple[int, int]] = []
    for first, end in missing:
        if merged and merged[-1][1] == first:
            merged[-1] = merged[-1][0], end
        else:
            merged.append((first, end))
    return "offsets " + ", ".join(f"{first} to {end - 1}" for first, end in merged[:5]) + " are missing"


def _cut(log: PartitionLog, manifest: Manifest, names: set[str]) -> None:
    """Cut off the bytes that the manifest does not count. Only the last segment can have more index entries than
    counted.
    """
    for state in manifest.segments:
        _cut_file(log, f"{state.stem}{LOG_SUFFIX}", state.size_bytes)
    for state in manifest.segments[-1:]:
        for suffix, size_bytes in (
            (OFFSET_SUFFIX, state.offset_index.entries * OFFSET_ENTRY.size),
            (TIME_SUFFIX, state.time_index.entries * TIME_ENTRY.size),
            (TXN_SUFFIX, state.txn_index.entries * TXN_ENTRY.size),
        ):
            if state.stem + suffix in names:
                _cut_file(log, state.stem + suffix, size_bytes)


def _cut_file(log: PartitionLog, name: str, size_bytes: int) -> None:
    """Truncate the file to size_bytes if it is longer."""
    path = f"{log.directory}/{name}"
    if log.disk.size(path) > size_bytes:
        with log.open_files.use(path) as file:
            file.truncate(size_bytes)


def _restore_producers(log: PartitionLog, manifest: Manifest, age_ms: int, *, unreadable_is_damage: bool) -> None:
    """Restore the state of producers from the newest valid snapshot and the batches above it, or from all batches if
    the log still has them from its beginning. Invalid snapshots are dropped, with a warning.

    unreadable_is_damage: a snapshot that the device cannot read counts as invalid. Raises: _Unusable, OSError.
    """
    problems = []
    for snapshot in reversed(manifest.snapshots):
        path = log.snapshots.path(snapshot)
        try:
            if not snapshot.empty:
                payload = checkpoints.read_file(log.disk, path, snapshots.KIND, snapshots.VERSION)
                log.producers.restore(payload, age_ms)
        except (checkpoints.Damaged, FileNotFoundError, ValueError) as problem:
            problems.append(str(problem))
            log.snapshots.kept.remove(snapshot)
            continue
        except OSError as error:
            if not unreadable_is_damage or may_pass(error):
                raise
            problems.append(f"{path}: {error.strerror}")
            log.snapshots.kept.remove(snapshot)
            continue
        _apply_above(log, snapshot.offset)
        break
    else:
        states = manifest.segments
        begins_at_0 = states[0].base_offset == 0 if states else manifest.end_offset == 0
        if not begins_at_0 or any(state.compacted for state in states):
            lost = "; ".join(problems) or "no producer snapshot is left"
            raise _Unusable(f"the state of producers is lost ({lost}); {RESTORE_HINT}")
        _apply_above(log, 0)
    log.warnings.extend(problems)


def _apply_above(log: PartitionLog, offset: int) -> None:
    """Update the state of producers by the batches in segments from `offset` on.

    Each batch gets the age of its segment's newest batch, so that the restart makes no producer look active just now.
    """
    for state, batch in _batches_above(log, offset):
        if batch.producer_id >= 0:
            log.producers.apply(batch, state.last_age_ms)
            log.snapshots.taken_bytes += batch.size


def _check_above(log: PartitionLog, offset: int) -> None:
    """Check every batch from `offset` on; if compaction has gone beyond that offset, all batches. Raises:
    SegmentDamaged, OSError.
    """
    for _ in _batches_above(log, offset if offset >= log.cleaned_offset else 0):
        pass


def _batches_above(log: PartitionLog, offset: int) -> Iterator[tuple[SegmentState, Batch]]:
    """Yield the batches of segments from `offset` on, with CRC and order checked. Raises: SegmentDamaged, OSError."""
    for state in log.segments:
        if state.end_offset <= offset or not state.size_bytes:
            continue
        position, ends_at = 0, -1  # ends_at: the last offset of the first batch scanned; −1 if not known
        if state.base_offset < offset:
            position, ends_at = load_places(log, state).place_before(offset - state.base_offset)
            ends_at += state.base_offset if ends_at >= 0 else 0
        with log.open_files.use(f"{log.directory}/{state.stem}{LOG_SUFFIX}") as file:
            for _, batch in scan(file, state, position=position, ends_at=ends_at):
                if batch.base_offset >= offset:
                    yield state, batch


def _remove_leftovers(log: PartitionLog, manifest: Manifest, names: list[str]) -> None:
    """Remove files that the manifest does not name, or note them for later removal. Warns of files that are not ours.

    Files above the manifest's end were written for a checkpoint that was lost. They are removed now, because new files
    will get the same names. An older checkpoint may name files below the end, so they are kept until two newer
    checkpoints are durable.
    """
    named = {state.stem for state in manifest.segments}
    others: list[str] = []
    for name in names:
        path = f"{log.directory}/{name}"
        offset = offset_in_name(name)
        if offset is None:
            others.append(name)
        elif _is_named(name, named, manifest):
            continue
        elif log.disk.is_directory(path):
            others.append(name)
        elif offset >= manifest.end_offset or name.endswith(checkpoints.UNFINISHED):
            log.disk.unlink(path)
        else:
            log.retired.append(Retired(path))
        parsed = parse_name(name)
        if parsed is not None:
            log.next_generation = max(log.next_generation, parsed[1] + 1)
    foreign = [name for name in others if f"{log.directory}/{name}" not in log.kept_parts]
    log.warnings += layout.foreign_warnings(log.directory, foreign)


def offset_in_name(name: str) -> int | None:
    """Return the offset in the name of a log's segment, index or snapshot file; None for other files."""
    parsed = parse_name(name)
    if parsed is not None:
        return parsed[0]
    snapshot = snapshots.parse_name(name.removesuffix(checkpoints.UNFINISHED))
    return None if snapshot is None else snapshot.offset


def _is_named(name: str, stems: set[str], manifest: Manifest) -> bool:
    """Return whether the checkpoint's manifest has this segment file or producer snapshot."""
    parsed = parse_name(name)
    if parsed is not None:
        return SegmentState(parsed[0], parsed[1]).stem in stems
    return snapshots.parse_name(name) in manifest.snapshots

"""From a manifest and a directory as a crash left it to a log that may be replayed into.

Nothing is read that need not be: sizes are compared, and only batches above the newest producer snapshot are scanned,
with their CRCs. What the manifest counts and the disk does not have, or has wrong, puts the log offline: the manifest
then stays as it is, in every later checkpoint, and no file is touched. Indexes are looked at when first used.
"""

import logging
from typing import TYPE_CHECKING

from . import checkpoints, log_snapshots
from .aborted import TXN_ENTRY
from .index import OFFSET_ENTRY, OFFSET_SUFFIX, TIME_ENTRY, TIME_SUFFIX
from .log_indexes import load_indexes
from .log_manifest import Manifest, Retired
from .segment import LOG_SUFFIX, TXN_SUFFIX, SegmentDamaged, SegmentState, parse_name, scan

if TYPE_CHECKING:
    from .log import PartitionLog

logger = logging.getLogger("fencepost.storage")

RESTORE_HINT = "restore its folder from a copy, or delete the topic; nothing in it was changed"


class _Unusable(Exception):
    """Why the log must stay offline."""


def restore(log: "PartitionLog", row: object, age_ms: int) -> None:
    """Bring a new PartitionLog to the state of a manifest, or put it offline with a reason. Never raises for damage.

    Raises: checkpoints.NewerFormat, if a later version wrote the snapshots.
    """
    try:
        manifest = Manifest.from_row(row)
    except (TypeError, ValueError) as error:
        log.offline, log.evidence = f"its entry in the checkpoint does not parse: {error}", row
        return
    _adopt(log, manifest, age_ms)
    try:
        names = set(log.disk.list(log.directory)) if log.disk.exists(log.directory) else set()
        _check_files(log, manifest, names)
        _cut(log, manifest, names)
        _restore_producers(log, manifest, age_ms)
    except (_Unusable, SegmentDamaged, OSError) as problem:
        log.offline, log.evidence = str(problem), row
        return
    # A folder that holds nothing that counts may be of a life that was killed before it made the folder's name durable.
    log.made_directory = bool(manifest.segments)
    _remove_leftovers(log, manifest, names)


def leave_as_it_is(log: "PartitionLog", reason: str) -> None:
    """Damage found right after recovery, before anybody used the log: from now on as if it had been found above."""
    if log.offline is None:
        log.offline = reason
        logger.error("%s-%d is offline: %s", log.topic, log.partition, reason)
    log.evidence = log.manifest()
    log.retired.clear()  # files that no checkpoint names are evidence as well
    for state in log.segments:
        log.open_files.indexes.drop(f"{log.directory}/{state.stem}")


def _adopt(log: "PartitionLog", manifest: Manifest, age_ms: int) -> None:
    """Ages that lie ahead (the store's age may go back a little in a crash) count from now."""
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


def _check_files(log: "PartitionLog", manifest: Manifest, names: set[str]) -> None:
    """Everything the manifest counts must be there, and be as long as it says."""
    end = -1
    for state in manifest.segments:
        if state.base_offset < end:
            raise _Unusable(f"the checkpoint has segments of {log.directory} that overlap at offset {end}")
        end = state.end_offset
        path = f"{log.directory}/{state.stem}{LOG_SUFFIX}"
        if state.stem + LOG_SUFFIX not in names:
            raise _Unusable(f"{path} is missing; {RESTORE_HINT}")
        size = log.disk.size(path)
        if size < state.size_bytes:
            raise _Unusable(f"{path} has {size} bytes, the checkpoint counts {state.size_bytes}; {RESTORE_HINT}")


def _cut(log: "PartitionLog", manifest: Manifest, names: set[str]) -> None:
    """Bytes behind those that count were never trusted, and go. Only the last segment can have index entries behind."""
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


def _cut_file(log: "PartitionLog", name: str, size_bytes: int) -> None:
    path = f"{log.directory}/{name}"
    if log.disk.size(path) > size_bytes:
        with log.open_files.use(path) as file:
            file.truncate(size_bytes)


def _restore_producers(log: "PartitionLog", manifest: Manifest, age_ms: int) -> None:
    """The newest snapshot that reads well, and the batches above it; or all batches, if they are all still there."""
    problems = []
    for snapshot in reversed(manifest.snapshots):
        path = log.snapshots.path(snapshot)
        try:
            if not snapshot.empty:
                payload = checkpoints.read_file(log.disk, path, log_snapshots.KIND, log_snapshots.VERSION)
                log.producers.restore(payload, age_ms)
        except (checkpoints.Damaged, FileNotFoundError, ValueError) as problem:
            problems.append(str(problem))
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


def _apply_above(log: "PartitionLog", offset: int) -> None:
    """Apply to the producers what segments hold from `offset` on, checking CRCs and order on the way.

    A batch is as old as its segment's newest: not older than it is, and not made young by the restart.
    """
    for number, state in enumerate(log.segments):
        if state.end_offset <= offset or not state.size_bytes:
            continue
        position, ends_at = 0, -1
        if state.base_offset < offset:
            indexes = load_indexes(log, log.segments, number)
            position, ends_at = indexes.place_before(offset - state.base_offset)
            ends_at += state.base_offset if ends_at >= 0 else 0
        with log.open_files.use(f"{log.directory}/{state.stem}{LOG_SUFFIX}") as file:
            for _, batch in scan(file, state, position=position, ends_at=ends_at):
                if batch.base_offset >= offset and batch.producer_id >= 0:
                    log.producers.apply(batch, state.last_age_ms)
                    log.snapshots.taken_bytes += batch.size


def _remove_leftovers(log: "PartitionLog", manifest: Manifest, names: set[str]) -> None:
    """Files that the manifest does not name.

    Above its end they are of a life whose checkpoint was lost, and their names will be needed. Below, an older
    checkpoint may name them: they are kept until two newer ones are durable.
    """
    named = {state.stem for state in manifest.segments}
    for name in names:
        path = f"{log.directory}/{name}"
        offset = _leftover_offset(name, named, manifest)
        if offset is None:
            continue
        if offset >= manifest.end_offset or checkpoints.is_unfinished(name):
            log.disk.unlink(path)
        else:
            log.retired.append(Retired(path))
        parsed = parse_name(name)
        if parsed is not None:
            log.next_generation = max(log.next_generation, parsed[1] + 1)


def _leftover_offset(name: str, named: set[str], manifest: Manifest) -> int | None:
    """Offset in the name of a file of ours that is not named; None for all others (evidence, people's own)."""
    if checkpoints.is_unfinished(name):
        return 0
    parsed = parse_name(name)
    if parsed is not None:
        state = SegmentState(parsed[0], parsed[1])
        return None if state.stem in named else parsed[0]
    snapshot = log_snapshots.parse_name(name)
    return None if snapshot is None or snapshot in manifest.snapshots else snapshot.offset

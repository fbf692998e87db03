"""The indexes of one segment: from memory, from their files, or derived from the segments.

An index file is never synced and never trusted: its entries count only if they match the segment's row in the
checkpoint. If they do not match, the entries are derived from the segment, so only a damaged segment can put a log
offline. Derived entries equal the entries that were once written, unless the index interval was changed or the segment
in which a transaction began was removed. Derived entries that match the row are written back to the file, so that they
need not be derived again.
"""

from collections.abc import Iterator, Sequence

from crc32c import crc32c

from ...protocol.batches import Batch
from ..producers.aborted import TXN_ENTRY, AbortedTransaction, TransactionSpans, pack, unpack
from ..system_errors import is_limit
from .index import OFFSET_ENTRY, OFFSET_SUFFIX, TIME_ENTRY, TIME_SUFFIX, Indexes, IndexGrowth, IndexRow
from .open_files import OpenFiles
from .segment import LOG_SUFFIX, TXN_SUFFIX, SegmentState, scan
from .state import LogState, Walked

EVERY_BATCH = -1  # index interval of compacted segments: readers need an entry for each batch


def load_indexes(log: LogState, states: Sequence[SegmentState], number: int) -> Indexes:
    """Load the indexes of segment `number`. states: all segments of the log, because an aborted transaction may have
    begun in an earlier one.

    Raises: SegmentDamaged, OSError.
    """
    state = states[number]
    files, stem = log.open_files, f"{log.directory}/{state.stem}"
    loaded = files.indexes.get(stem, state.size_bytes)
    if loaded is not None:
        return loaded
    entries = _load_entries(files, stem, state)
    walked = entries is None
    if entries is None:
        entries = _derive(log, state)
        _put_back(files, stem + OFFSET_SUFFIX, entries[0], state.offset_index, OFFSET_ENTRY.size)
        _put_back(files, stem + TIME_SUFFIX, entries[1], state.time_index, TIME_ENTRY.size)
    loaded = Indexes(*entries, _load_aborted(log, states, number), covers_bytes=state.size_bytes)
    if walked:
        loaded.add_checked(0, state.size_bytes)
    files.indexes.put(stem, loaded)
    return loaded


def load_places(log: LogState, state: SegmentState) -> Indexes:
    """Load only the offset and time index, for a log that is being opened. Uses no cache and writes no file. Raises
    like load_indexes().
    """
    return Indexes(*(_load_entries(log.open_files, f"{log.directory}/{state.stem}", state) or _derive(log, state)))


def _load_entries(files: OpenFiles, stem: str, state: SegmentState) -> tuple[bytes, bytes] | None:
    """Return the contents of `.index` and `.timeindex`; None if one of the files does not match its row in the
    checkpoint.
    """
    offset_entries = _entries(files, stem + OFFSET_SUFFIX, state.offset_index, OFFSET_ENTRY.size)
    time_entries = _entries(files, stem + TIME_SUFFIX, state.time_index, TIME_ENTRY.size)
    return None if offset_entries is None or time_entries is None else (offset_entries, time_entries)


def _load_aborted(log: LogState, states: Sequence[SegmentState], number: int) -> list[AbortedTransaction]:
    """Return the aborted transactions of a segment, from its index file or, if that is unusable, from the batches."""
    state = states[number]
    path = f"{log.directory}/{state.stem}{TXN_SUFFIX}"
    entries = _entries(log.open_files, path, state.txn_index, TXN_ENTRY.size)
    if entries is not None:
        try:
            return unpack(entries)
        except ValueError:  # written by a newer version
            pass
    aborted = _derive_aborted(log, states, number)
    _put_back(log.open_files, path, pack(aborted), state.txn_index, TXN_ENTRY.size)
    return aborted


def _entries(files: OpenFiles, path: str, row: IndexRow, entry_bytes: int) -> bytes | None:
    """Return the entries of an index file that the manifest's row describes; None if the file does not have them or
    cannot be read.

    Raises OSError if the process has no descriptors or memory left.
    """
    if not row.entries:
        return b""
    try:
        with files.use(path) as file:
            entries = file.read(row.entries * entry_bytes, 0)
    except OSError as error:
        if is_limit(error):
            raise
        return None
    return entries if len(entries) == row.entries * entry_bytes and crc32c(entries) == row.crc else None


def _derive(log: LogState, state: SegmentState) -> tuple[bytes, bytes]:
    """Return the entries of `.index` and `.timeindex` as a flush or a compaction would make them."""
    growth = IndexGrowth(state.base_offset, EVERY_BATCH if state.compacted else log.settings.index_interval_bytes)
    with log.open_files.use(f"{log.directory}/{state.stem}{LOG_SUFFIX}") as file:
        for position, batch in scan(file, state):
            growth.add(batch.last_offset, position, batch.size, batch.max_timestamp)
    if state.last_indexed_time > growth.last_time:  # written when the segment was full
        growth.add_time_entry()
    return b"".join(growth.offset_entries), b"".join(growth.time_entries)


def _derive_aborted(log: LogState, states: Sequence[SegmentState], number: int) -> list[AbortedTransaction]:
    """Derive the aborted transactions of a segment from all segments up to it: a transaction may begin in any of them.

    Continues from the segment at which the last call for this log ended, if the segments up to there are the same. So
    reading a whole log whose indexes are lost walks it once, and not once for each segment.
    """
    wanted, walked = tuple(states[: number + 1]), log.walked
    if walked is None or len(walked.states) > number or walked.states != wanted[: len(walked.states)]:
        walked = Walked((), TransactionSpans())
    spans, found = walked.spans.copy(), list[AbortedTransaction]()
    for state in wanted[len(walked.states) :]:
        found = [entry for batch in _batches(log, state) if (entry := spans.follow(batch)) is not None]
    log.walked = Walked(wanted, spans)
    return found


def _batches(log: LogState, state: SegmentState) -> Iterator[Batch]:
    """Yield the batches of a segment, read from its file."""
    with log.open_files.use(f"{log.directory}/{state.stem}{LOG_SUFFIX}") as file:
        for _, batch in scan(file, state):
            yield batch


def _put_back(files: OpenFiles, path: str, entries: bytes, row: IndexRow, entry_bytes: int) -> None:
    """Write derived entries into their index file, if they are exactly what the manifest's row describes.

    A flush may append entries at the same time. If the write fails, the entries are derived again when next needed.
    """
    if entries and IndexRow.of(entries, entry_bytes) == row:
        try:
            with files.use(path, create=True) as file:
                file.write([entries], 0)
        except OSError:
            pass

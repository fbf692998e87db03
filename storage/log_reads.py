"""Reading a log: on the loop what is in memory or in the page cache, as a job for a worker what is not.

A job is captured with the states of the segments as they were, and changes nothing but caches. Damage it meets puts
the log offline, unless the segment has been removed in the meantime: then the reader simply asks again.
"""

import errno
import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from crc32c import crc32c

from ..effects.disk import Buffer
from ..protocol.errors import ErrorCode, KafkaError
from .aborted import TXN_ENTRY, AbortedTransaction, TransactionSpans, by_first_offset, overlapping, pack, unpack
from .index import NO_TIMESTAMP, OFFSET_ENTRY, OFFSET_SUFFIX, TIME_ENTRY, TIME_SUFFIX, Indexes, IndexGrowth, IndexRow
from .log_flush import TailBatch
from .open_files import OpenFiles
from .segment import LOG_SUFFIX, NOTHING_HERE, TXN_SUFFIX, SegmentDamaged, SegmentState, Slice, Span, read_span, scan

if TYPE_CHECKING:
    from .log import PartitionLog

logger = logging.getLogger("fencepost.storage")

DERIVED_INTERVAL_BYTES = 4096
FEW_PIECES = 32  # a slice of more and smaller pieces than these is joined: sending each costs more than copying
SMALL_PIECE_BYTES = 2048
T = TypeVar("T")
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def segment_number(states: Sequence[SegmentState], offset: int) -> int:
    """Number of the segment that holds this offset, or would."""
    return max(bisect_right(states, offset, key=_base_offset) - 1, 0)


def _base_offset(state: SegmentState) -> int:
    return state.base_offset


def read_tail(tail: Sequence[TailBatch], span: Span) -> Slice:
    """Batches that are in no segment yet, of which the first ends at or after the offset."""
    offset, max_bytes, below, at_least_one = span
    buffers: list[Buffer] = []
    size_bytes = 0
    next_offset = offset
    for number in range(bisect_left(tail, (offset,)), len(tail)):
        last_offset, _, size, _, _, _, parts = tail[number]
        if last_offset >= below or (size_bytes + size > max_bytes and (buffers or not at_least_one)):
            break
        buffers.extend(parts)
        size_bytes += size
        next_offset = last_offset + 1
    if len(buffers) > FEW_PIECES and size_bytes < len(buffers) * SMALL_PIECE_BYTES:
        buffers = [b"".join(buffers)]
    return Slice(buffers, size_bytes, next_offset)


class ColdRead:
    """A read that has to wait for the device. `run` in a worker gives the slice; KafkaError as PartitionLog.read."""

    def __init__(self, log: "PartitionLog", states: Sequence[SegmentState], span: Span) -> None:
        """states: all segments of the log, since indexes may have to be derived from the first on."""
        self._log = log
        self._states = states
        self._span = span

    def run(self) -> Slice:
        span, states = self._span, self._states
        for number in range(segment_number(states, span.offset), len(states)):
            found = guarded(self._log, states[number], lambda number=number: self._read(number))  # type: ignore[misc]
            if found is None:
                break
            if found is not NOTHING_HERE:
                return found
        return Slice([], 0, span.offset)

    def _read(self, number: int) -> Slice | None:
        log, state = self._log, self._states[number]
        indexes = load_indexes(log.open_files, log.directory, self._states, number)
        path = f"{log.directory}/{state.stem}{LOG_SUFFIX}"
        with log.open_files.use(path) as file:
            return read_span(file.read, path, state, indexes, self._span)


def read_warm(log: "PartitionLog", states: Sequence[SegmentState], span: Span) -> Slice | None:
    """As ColdRead, but without waiting: None if it had to."""
    files = log.open_files
    for number in range(segment_number(states, span.offset), len(states)):
        state = states[number]
        stem = f"{log.directory}/{state.stem}"
        indexes = files.indexes.get(stem, state.size_bytes)
        entry = files.use_if_open(stem + LOG_SUFFIX)
        if entry is None:
            return None
        try:
            with entry as file:
                found = None if indexes is None else read_span(file.read_cached, file.path, state, indexes, span)
        except (SegmentDamaged, OSError) as error:
            raise damage_found(log, error) from error
        if found is not NOTHING_HERE:
            return found
    return Slice([], 0, span.offset)


class AbortedLookup:
    """The aborted transactions of some segments, where an index has to be read. `run` in a worker gives the list."""

    def __init__(self, log: "PartitionLog", offset: int, below: int, known: list[AbortedTransaction]) -> None:
        """known: what the log found in memory, behind the segments."""
        self._log = log
        self._states = tuple(log.segments)
        self._offset = offset
        self._below = below
        self._known = known

    def run(self) -> list[AbortedTransaction]:
        log, states = self._log, self._states

        def load(number: int) -> Indexes | None:
            return guarded(log, states[number], lambda: load_indexes(log.open_files, log.directory, states, number))

        found = aborted_in(states, self._offset, self._below, load)
        return sorted((found or []) + self._known, key=by_first_offset)


def aborted_in(
    states: Sequence[SegmentState], offset: int, below: int, load: Callable[[int], Indexes | None]
) -> list[AbortedTransaction] | None:
    """Entries of the segments that overlap [offset, below); None if `load` gave None where one was needed.

    Markers may stand far behind the data. The search ends where nothing open reaches below `below` any more.
    """
    found: list[AbortedTransaction] = []
    for number in range(segment_number(states, offset), len(states)):
        if not states[number].txn_index.entries:
            continue
        indexes = load(number)
        if indexes is None:
            return None
        of_segment, ended = overlapping(indexes.aborted, offset, below)
        found += of_segment
        if ended:
            break
    return found


def guarded(log: "PartitionLog", state: SegmentState, step: Callable[[], T]) -> T | None:
    """Run one step on one segment; None if the segment is gone. Raises: KafkaError KAFKA_STORAGE_ERROR on damage."""
    try:
        return step()
    except (SegmentDamaged, OSError) as error:
        if not log.holds(state):
            return None
        raise damage_found(log, error) from error


def damage_found(log: "PartitionLog", error: SegmentDamaged | OSError) -> KafkaError:
    """A segment that counts cannot be read: the log goes offline (not for want of descriptors or memory)."""
    if log.offline is None and not (isinstance(error, OSError) and error.errno in _OUT_OF_FILES):
        log.offline = str(error)
        logger.error("%s-%d is offline: %s", log.topic, log.partition, error)
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


def load_indexes(files: OpenFiles, directory: str, states: Sequence[SegmentState], number: int) -> Indexes:
    """The indexes of one segment: from memory, from their files, or derived from the segments themselves.

    Raises: SegmentDamaged, OSError.
    """
    state = states[number]
    stem = f"{directory}/{state.stem}"
    loaded = files.indexes.get(stem, state.size_bytes)
    if loaded is not None:
        return loaded
    offset_entries = _entries(files, stem + OFFSET_SUFFIX, state.offset_index, OFFSET_ENTRY.size)
    time_entries = _entries(files, stem + TIME_SUFFIX, state.time_index, TIME_ENTRY.size)
    txn_entries = _entries(files, stem + TXN_SUFFIX, state.txn_index, TXN_ENTRY.size)
    walked = offset_entries is None or time_entries is None
    damaged = walked or txn_entries is None
    if offset_entries is None or time_entries is None:
        offset_entries, time_entries = _derived(files, stem, state)
    if txn_entries is None:
        aborted = _derived_aborted(files, directory, states, number)
    else:
        aborted = unpack(txn_entries)
    loaded = Indexes(offset_entries, time_entries, aborted, covers_bytes=state.size_bytes, damaged=damaged)
    if walked:
        loaded.add_checked(0, state.size_bytes)
    files.indexes.put(stem, loaded)
    return loaded


def _entries(files: OpenFiles, path: str, row: IndexRow, entry_bytes: int) -> bytes | None:
    """The entries that count, or None if the file does not have them."""
    if not row.entries:
        return b""
    try:
        with files.use(path) as file:
            entries = file.read(row.entries * entry_bytes, 0)
    except FileNotFoundError:
        return None
    return entries if len(entries) == row.entries * entry_bytes and crc32c(entries) == row.crc else None


def _derived(files: OpenFiles, stem: str, state: SegmentState) -> tuple[bytes, bytes]:
    growth = IndexGrowth(state.base_offset, -1 if state.compacted else DERIVED_INTERVAL_BYTES)
    with files.use(stem + LOG_SUFFIX) as file:
        for position, batch in scan(file, state):
            growth.add(batch.last_offset, position, batch.size, batch.max_timestamp)
    return b"".join(growth.offset_entries), b"".join(growth.time_entries)


def _derived_aborted(
    files: OpenFiles, directory: str, states: Sequence[SegmentState], number: int
) -> list[AbortedTransaction]:
    """From all segments up to this one, since a transaction may have begun in any of them."""
    spans = TransactionSpans()
    found: list[AbortedTransaction] = []
    for state in states[: number + 1]:
        with files.use(f"{directory}/{state.stem}{LOG_SUFFIX}") as file:
            for _, batch in scan(file, state):
                entry = spans.follow(batch)
                if entry is not None and state is states[number]:
                    found.append(entry)
    return found


def take_repairs(log: "PartitionLog", *, spare_active: bool) -> list[tuple[str, bytes]]:
    """(path, content) of index files that were found damaged; from now on the log describes them as they will be.

    spare_active: a flush is adding entries to the files of the last segment.
    """
    repairs: list[tuple[str, bytes]] = []
    indexes = log.open_files.indexes
    for number, state in enumerate(log.segments[:-1] if spare_active else log.segments):
        stem = f"{log.directory}/{state.stem}"
        loaded = indexes.get(stem, state.size_bytes) if stem in indexes.damaged else None
        if loaded is None:
            continue
        offset_entries, time_entries = loaded.entries()
        txn_entries = pack(loaded.aborted)
        repairs += (stem + OFFSET_SUFFIX, offset_entries), (stem + TIME_SUFFIX, time_entries)
        repairs.append((stem + TXN_SUFFIX, txn_entries))
        repaired = state._replace(
            offset_index=IndexRow.of(offset_entries, OFFSET_ENTRY.size),
            time_index=IndexRow.of(time_entries, TIME_ENTRY.size),
            txn_index=IndexRow.of(txn_entries, TXN_ENTRY.size),
            last_indexed_time=loaded.timestamps[-1] if loaded.timestamps else NO_TIMESTAMP,
        )
        log.replace(number, repaired)
        loaded.damaged = False
        indexes.damaged.discard(stem)
    return repairs

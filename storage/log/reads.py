"""Reads a log: data in memory or in the page cache is read on the loop, other data by a job in a worker.

A job captures the states of the segments, and changes nothing but caches. Its result is the log as it was at that
moment. An error in a job puts the log offline, unless one of its segments has been removed meanwhile: then the job
raises Gone, and the reader asks again.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...effects.disk import Buffer
from ...protocol.errors import ErrorCode, KafkaError
from ..producers.aborted import AbortedTransaction, by_first_offset, overlapping
from ..system_errors import may_pass
from .flush import TailBatch
from .index import Indexes
from .indexes import load_indexes
from .segment import LOG_SUFFIX, NOTHING_HERE, SegmentDamaged, SegmentState, Slice, Span, read_span
from .state import LogState

logger = logging.getLogger("fencepost.storage")

FEW_PIECES = 32  # a slice of more and smaller pieces than these is joined: sending each costs more than copying
SMALL_PIECE_BYTES = 2048


def segment_number(states: Sequence[SegmentState], offset: int) -> int:
    """Return the number of the segment whose range includes this offset."""
    return max(bisect_right(states, offset, key=_base_offset) - 1, 0)


def _base_offset(state: SegmentState) -> int:
    """Return the segment's base offset, as a search key."""
    return state.base_offset


def read_tail(tail: Sequence[TailBatch], span: Span) -> Slice:
    """Return batches of the tail from the offset on, within the limits of the span."""
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


class Gone(Exception):
    """Raised if a segment to be read was dropped: the log's start moved past it, or compaction replaced it.

    The read has no result. The reader looks at the log as it is now, and asks again.
    """


@contextmanager
def judge_errors(log: LogState, states: Sequence[SegmentState]) -> Iterator[None]:
    """Convert errors of reading within the block. states: all segments that are read, as they were captured.

    Raises Gone if the log has dropped one of them; else KafkaError KAFKA_STORAGE_ERROR, and puts the log offline if it
    is damaged.
    """
    try:
        yield
    except (SegmentDamaged, OSError) as error:
        if not log.holds(states):
            raise Gone(str(error)) from error
        raise judge_unreadable(log, error) from error


def continue_in_tail(found: Slice, tail: Sequence[TailBatch], flushed_offset: int, span: Span) -> Slice:
    """Add to batches read from segments the ones that follow in the tail, so that an answer does not end where the
    last flush ended.
    """
    left_bytes = span.max_bytes - found.size_bytes
    if found.next_offset != flushed_offset or flushed_offset >= span.below or left_bytes <= 0:
        return found
    more = read_tail(tail, Span(flushed_offset, left_bytes, span.below, at_least_one=False))
    return Slice(found.buffers + more.buffers, found.size_bytes + more.size_bytes, more.next_offset)


class ColdRead:
    """A read that waits for the device: run() in a worker returns the slice. Raises: Gone; KafkaError like
    PartitionLog.read().
    """

    def __init__(self, log: LogState, span: Span, aborted: list[AbortedTransaction]) -> None:
        """aborted: aborted transactions in the span that the log has in memory, not in segments."""
        self._log = log
        self._states = tuple(log.segments)
        self._span = span
        self._lookup = AbortedLookup(log, span.offset, span.below, aborted)

    def run(self) -> Slice:
        """Read from disk, in a worker thread. Returns the batches that were found. Raises like judge_errors()."""
        with judge_errors(self._log, self._states):
            return self._read()

    def run_committed(self) -> tuple[Slice, list[AbortedTransaction]]:
        """Return the slice and its aborted transactions, both from the same segments.

        If the aborted transactions were looked up later, records and their entries might have been removed meanwhile.
        """
        with judge_errors(self._log, self._states):
            found = self._read()
            return found, self._lookup.find(found.next_offset)

    def _read(self) -> Slice:
        """Return the wanted batches of one segment: the one with the offset or, if it has none of them, the first later
        one that has some. Returns an empty slice if no segment has any.
        """
        log, states, span = self._log, self._states, self._span
        for number in range(segment_number(states, span.offset), len(states)):
            indexes = load_indexes(log, states, number)
            path = f"{log.directory}/{states[number].stem}{LOG_SUFFIX}"
            with log.open_files.use(path) as file:
                found = read_span(file.read, path, states[number], indexes, span)
            assert found is not None, "File.read waits"
            if found is not NOTHING_HERE:
                return found
        return Slice([], 0, span.offset)


def read_warm(log: LogState, states: Sequence[SegmentState], span: Span) -> Slice | None:
    """Read a span from segment files without waiting for the device. Returns None if that is not possible: use a
    ColdRead then. Raises KafkaError KAFKA_STORAGE_ERROR.

    Returns NOTHING_HERE if compaction left no batches in the segments from the offset on.
    """
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
            raise judge_unreadable(log, error) from error
        if found is not NOTHING_HERE:
            return found
    return NOTHING_HERE


class AbortedLookup:
    """Finds aborted transactions if an index must be read from disk: run() in a worker returns the list.

    Raises: Gone; KafkaError KAFKA_STORAGE_ERROR.
    """

    def __init__(self, log: LogState, offset: int, below: int, known: list[AbortedTransaction]) -> None:
        """known: aborted transactions that the log found in memory, not in segments."""
        self._log = log
        self._states = tuple(log.segments)
        self._offset = offset
        self._below = below
        self._known = known

    def run(self) -> list[AbortedTransaction]:
        """Look up the aborted transactions, in a worker thread, and return them. Raises like judge_errors()."""
        with judge_errors(self._log, self._states):
            return self.find(self._below)

    def find(self, below: int) -> list[AbortedTransaction]:
        """Return the aborted transactions in [offset, below), by first offset. Raises: SegmentDamaged, OSError."""
        found = _aborted_in(self._states, self._offset, below, lambda at: load_indexes(self._log, self._states, at))
        return sorted(found + [entry for entry in self._known if entry.first_offset < below], key=by_first_offset)


class _NotInMemory(Exception):
    """Raised if the indexes of a segment are not in memory."""


def aborted_in_memory(log: LogState, offset: int, below: int) -> list[AbortedTransaction] | None:
    """Return aborted transactions in the log's segments that overlap [offset, below); None if an index must be read."""

    def load(number: int) -> Indexes:
        """Return a segment's indexes if they are in memory. Raises _NotInMemory."""
        state = log.segments[number]
        found = log.open_files.indexes.get(f"{log.directory}/{state.stem}", state.size_bytes)
        if found is None:
            raise _NotInMemory
        return found

    try:
        return _aborted_in(log.segments, offset, below, load)
    except _NotInMemory:
        return None


def _aborted_in(
    states: Sequence[SegmentState], offset: int, below: int, load: Callable[[int], Indexes]
) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap [offset, below).

    Searches one segment after another, because a marker may come long after its data, until no later entry can begin
    below `below`.
    """
    found: list[AbortedTransaction] = []
    for number in range(segment_number(states, offset), len(states)):
        if not states[number].txn_index.entries:
            continue
        of_segment, ended = overlapping(load(number).aborted, offset, below)
        found += of_segment
        if ended:
            break
    return found


def judge_unreadable(log: LogState, error: SegmentDamaged | OSError) -> KafkaError:
    """Return the error to answer if a segment cannot be read, and put the log offline, except for a lack of
    descriptors, memory or rights.
    """
    if log.offline is None and not (isinstance(error, OSError) and may_pass(error)):
        log.offline = str(error)
        logger.error("%s-%d is offline: %s", log.topic, log.partition, error)
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

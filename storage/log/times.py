"""Finding records by time: the first at or after a timestamp, and the one with the largest timestamp.

Both see only records from the log's start on, in batches that end before `below`. They read, and perhaps decompress, so
they are jobs for a worker. Like the jobs of reads.py they may raise Gone: then the caller asks again.

Source: Kafka's LogSegment.findOffsetByTimestamp, RecordBatch.offsetOfMaxTimestamp.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...protocol import batches
from ...protocol.batches import Batch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.raw_records import times
from ...protocol.records import DECOMPRESSED_LIMIT_BYTES, payload_of
from .flush import TailBatch
from .indexes import load_indexes
from .reads import judge_errors
from .segment import LOG_SUFFIX, SegmentState, scan
from .state import LogState


class Timestamped(NamedTuple):
    """A record found by time."""

    offset: int
    timestamp: int


class _Lookup(ABC):
    """A search by time, in the state of the log as captured on the loop. run() is for workers."""

    def __init__(self, log: LogState, states: Sequence[SegmentState], tail: list[TailBatch], below: int) -> None:
        """states: the segments to search. tail: the batches in memory to search. below: batches must end before this
        offset.
        """
        self._log = log
        self._states = tuple(states)
        self._tail = tail
        self._below = below
        self._start_offset = log.released_start

    def run(self) -> Timestamped | None:
        """Return the record; None if there is none. Raises: Gone; KafkaError KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE."""
        with judge_errors(self._log, self._states):
            return self._find()

    @abstractmethod
    def _find(self) -> Timestamped | None:
        """Return the record, or None. run() calls this and converts its errors."""

    def _batches(self, number: int, relative_offset: int = 0) -> Iterator[Batch]:
        """Yield the batches of one segment that end before `below` and not below the log's start, beginning with the
        last indexed one at or before this offset.
        """
        log, state = self._log, self._states[number]
        indexes = load_indexes(log, self._states, number)
        entry = indexes.entry_at_or_before(relative_offset)
        position, ends_at = 0, -1
        if entry >= 0:
            position, ends_at = indexes.positions[entry], indexes.offsets[entry] + state.base_offset
        with log.open_files.use(f"{log.directory}/{state.stem}{LOG_SUFFIX}") as file:
            for _, batch in scan(file, state, position=position, ends_at=ends_at):
                if batch.last_offset >= self._below:
                    return
                if batch.last_offset >= self._start_offset:
                    yield batch

    def _times(self, batch: Batch) -> Iterator[tuple[int, int]]:
        """Yield (offset, timestamp) of a batch's records at or above the log start offset.

        Raises KafkaError CORRUPT_MESSAGE if the producer wrote records that cannot be decoded.
        """
        try:
            for offset, timestamp in times(batch, payload_of(batch, DECOMPRESSED_LIMIT_BYTES)):
                if offset >= self._start_offset:
                    yield offset, timestamp
        except KafkaError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, error.detail) from error

    def _tail_batch(self, entry: TailBatch) -> Batch:
        """Return a batch of the log's tail, parsed."""
        return batches.read(memoryview(b"".join(entry[6])))


class TimeLookup(_Lookup):
    """Finds the first record with at least this timestamp."""

    def __init__(self, log: LogState, tail: list[TailBatch], below: int, timestamp: int) -> None:
        """tail: the batches in memory to search. below: batches must end before this offset. timestamp: the least one
        to find, in ms.
        """
        super().__init__(log, log.segments, tail, below)
        self._timestamp = timestamp

    def _find(self) -> Timestamped | None:
        """Return the first record at or after the timestamp; None if there is none."""
        for number, state in enumerate(self._states):
            if state.max_timestamp < self._timestamp or state.end_offset <= self._start_offset:
                continue
            if state.base_offset >= self._below:
                return None
            found = self._in_segment(number)
            if found is not None:
                return found
        for entry in self._tail:  # TailBatch: [0] is its last offset, [3] its largest timestamp
            if entry[3] >= self._timestamp and entry[0] < self._below:
                found = self._in_batch(self._tail_batch(entry))
                if found is not None:
                    return found
        return None

    def _in_segment(self, number: int) -> Timestamped | None:
        """Return the first record of the segment at or after the timestamp; None if there is none."""
        log = self._log
        indexes = load_indexes(log, self._states, number)
        for batch in self._batches(number, indexes.offset_before_time(self._timestamp)):
            if batch.max_timestamp >= self._timestamp:
                found = self._in_batch(batch)
                if found is not None:
                    return found
        return None

    def _in_batch(self, batch: Batch) -> Timestamped | None:
        """Return the first record of the batch at or after the timestamp; None if there is none."""
        for offset, timestamp in self._times(batch):
            if timestamp >= self._timestamp:
                return Timestamped(offset, timestamp)
        return None


class LatestLookup(_Lookup):
    """Finds the first record that has the largest timestamp."""

    def _find(self) -> Timestamped | None:
        """Return the first record with the largest timestamp; None if there is none."""
        best: Timestamped | None = None
        for number, state in enumerate(self._states):
            if state.end_offset <= self._start_offset or (best and state.max_timestamp <= best.timestamp):
                continue
            if state.base_offset >= self._below:
                break
            best = _later(best, self._in_segment(number))
        for entry in self._tail:
            if entry[0] < self._below and (best is None or entry[3] > best.timestamp):
                best = _later(best, self._in_batch(self._tail_batch(entry)))
        return best

    def _in_segment(self, number: int) -> Timestamped | None:
        """Return the first record of the segment with the largest timestamp; None if no record has a timestamp."""
        state = self._states[number]
        if state.base_offset >= self._start_offset and state.end_offset <= self._below:
            candidates = self._batches(number, state.max_timestamp_offset - state.base_offset)
            return next((self._in_batch(b) for b in candidates if b.last_offset == state.max_timestamp_offset), None)
        best: Timestamped | None = None
        for batch in self._batches(number):
            if batch.max_timestamp >= 0 and (best is None or batch.max_timestamp > best.timestamp):
                best = _later(best, self._in_batch(batch))
        return best

    def _in_batch(self, batch: Batch) -> Timestamped | None:
        """Return the first record with the largest timestamp among a batch's records at or above the log's start; None
        if there are none.
        """
        best: Timestamped | None = None
        for offset, timestamp in self._times(batch):
            if best is None or timestamp > best.timestamp:
                best = Timestamped(offset, timestamp)
        return best


def _later(one: Timestamped | None, other: Timestamped | None) -> Timestamped | None:
    """Return the one with the larger timestamp, or the first if they are equal; None counts as the smallest."""
    if one is None or (other is not None and other.timestamp > one.timestamp):
        return other
    return one

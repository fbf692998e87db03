"""One segment: consecutive batches in one file, named `<base offset>.<generation>.log`, read but never trusted.

The CRC of a batch is checked when it is first read; the indexes in memory remember which bytes were checked. The CRC
does not cover the first 16 bytes (offset, length, leader epoch), and readers would not notice damage there, so these
are compared at each read (not in what file_parts.py sends unread: there they were right when the CRC was checked).

As appended (generation 0) each batch must begin where the one before ended. After compaction there are gaps, so every
batch has an index entry and must be where that points. Source: Kafka's LogSegment.
"""

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Any, NamedTuple, NoReturn

from crc32c import crc32c

from ...effects.disk import Buffer, File
from ...protocol import batches
from ...protocol.batches import CRC_COVERS_FROM, HEADER_BYTES, MAGIC, Batch, CorruptBatch
from .index import NO_TIMESTAMP, OFFSET_SUFFIX, TIME_SUFFIX, Indexes, IndexRow

LOG_SUFFIX = ".log"
TXN_SUFFIX = ".txnindex"
SUFFIXES = (LOG_SUFFIX, OFFSET_SUFFIX, TIME_SUFFIX, TXN_SUFFIX)
LEADER_EPOCH = 0  # one node, one leader for ever: what every batch is stamped with
SCAN_CHUNK_BYTES = 1 << 20
HIGHEST_RELATIVE_OFFSET = 2**31 - 1  # index entries hold it in an int32
LENGTH_AT = 12  # a batch's length field counts the bytes from here on
SLACK_BYTES = 4096  # a default index interval
CHUNK_BYTES = 4 << 20  # most that one read takes, unless a single batch is larger: more would stall the loop
MAX_CHECKS = 4096  # batches of which one read checks the CRC: with 1 KB each, that takes 2 ms
CRC_AT = 17

_HEAD = Struct(">qiib6xi")  # base offset, length, leader epoch, magic, last offset delta
_CRC = Struct(">I")
_SMALLEST_LENGTH = HEADER_BYTES - LENGTH_AT


class SegmentDamaged(Exception):
    """Raised if bytes of a segment that the checkpoint counts are not what was written."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path}: at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class SegmentState(NamedTuple):
    """Everything about a segment except its bytes: a row of the manifest. Ages are ms of the store's clock."""

    base_offset: int
    generation: int = 0
    size_bytes: int = 0
    end_offset: int = -1  # offset after its last record, also if compaction removed that record
    max_timestamp: int = NO_TIMESTAMP
    max_timestamp_offset: int = -1  # last offset of the first batch that has it
    first_age_ms: int = 0  # when its first batch was appended
    last_age_ms: int = 0  # when its newest batch was
    offset_index: IndexRow = IndexRow()
    time_index: IndexRow = IndexRow()
    txn_index: IndexRow = IndexRow()
    unindexed_bytes: int = 0  # since the newest entry of the offset index
    last_indexed_time: int = NO_TIMESTAMP

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> "SegmentState":
        """Restore a state from its msgpack row. Raises TypeError or ValueError."""
        state = cls(*row)
        indexes = [IndexRow(*each) for each in (state.offset_index, state.time_index, state.txn_index)]
        state = state._replace(offset_index=indexes[0], time_index=indexes[1], txn_index=indexes[2])
        if {type(number) for part in (*indexes, state) for number in part} != {int, IndexRow}:
            raise TypeError(f"a segment is described by numbers, not by {row!r}")
        return state

    @property
    def stem(self) -> str:
        """The name of the segment's files, without suffix."""
        return f"{self.base_offset:020d}.{self.generation}"

    @property
    def compacted(self) -> bool:
        """Whether a compaction wrote the segment; then its offsets may have gaps."""
        return self.generation > 0


def parse_name(name: str) -> tuple[int, int, str] | None:
    """Parse the name of a segment's file: (base offset, generation, suffix); None for another name."""
    digits, _, rest = name.partition(".")
    generation, _, suffix = rest.partition(".")
    if not (digits.isdecimal() and generation.isdecimal() and "." + suffix in SUFFIXES):
        return None
    base_offset, number = int(digits), int(generation)
    return (base_offset, number, "." + suffix) if name == f"{base_offset:020d}.{number}.{suffix}" else None


class Span(NamedTuple):
    """A reader's request: from which offset, up to which offset, and how many bytes."""

    offset: int
    max_bytes: int
    below: int  # batches must end before this offset
    at_least_one: bool  # return the first batch even if it alone exceeds max_bytes


class Slice:
    """Whole consecutive batches, as buffers to be sent one after another."""

    __slots__ = ("buffers", "next_offset", "size_bytes")

    def __init__(self, buffers: list[Buffer], size_bytes: int, next_offset: int) -> None:
        self.buffers = buffers
        self.size_bytes = size_bytes
        self.next_offset = next_offset  # after the last batch; where it is empty, the offset asked for

    def __repr__(self) -> str:
        return f"Slice({self.size_bytes} bytes, next_offset={self.next_offset})"


ReadAt = Callable[[int, int], Buffer | None]  # File.read or File.read_cached


NOTHING_HERE = Slice([], 0, -1)  # the segment has no batch at or after the offset: compaction took them


def read_span(read: ReadAt, path: str, state: SegmentState, indexes: Indexes, span: Span) -> Slice | None:
    """Read the batches of one segment that a reader wants. Returns NOTHING_HERE if the segment has none, and None if
    `read` returned None.

    Raises: SegmentDamaged.
    """
    walk = _Walk(path, state, indexes, span.offset)
    wanted = max(min(span.max_bytes, CHUNK_BYTES), HEADER_BYTES) + walk.slack_bytes
    while True:
        size = min(wanted, state.size_bytes - walk.position)
        chunk = read(size, walk.position)
        if chunk is None:
            return None
        if len(chunk) < size:
            raise SegmentDamaged(path, walk.position + len(chunk), "the file ends early")
        found = walk.select(memoryview(chunk), span)
        if found is not None:
            return found
        wanted = walk.needed_bytes


class _Walk:
    """Walks the batches of a segment in chunks, checks that each is at its right place, and selects the wanted ones."""

    def __init__(self, path: str, state: SegmentState, indexes: Indexes, offset: int) -> None:
        """Begin at the batch where an earlier reader stopped, or at the last index entry before the offset. offset:
        from which to read.
        """
        self.path = path
        self.state = state
        self.indexes = indexes
        self.needed_bytes = 0
        self.checks = 0
        self.slack_bytes = 0  # to be read beyond what is wanted, since the index is sparse
        self.position = 0  # of the chunk in the file
        self.expected = -1  # base offset of the batch there; −1: its index entry has where it ends
        self.entry = -1  # number of that batch's index entry; −1: not known
        hint = indexes.hints.get(offset)
        if state.compacted:
            self.entry = indexes.entry_of(offset - state.base_offset)
            self.position = indexes.positions[self.entry] if self.entry < len(indexes.positions) else state.size_bytes
        elif hint is not None:
            self.position, self.expected = hint, offset
        else:
            self._begin_at_entry(offset)

    def _begin_at_entry(self, offset: int) -> None:
        """Begin at the batch of the last index entry at or below the offset; without one, at the segment's start."""
        self.slack_bytes = SLACK_BYTES
        self.entry = self.indexes.entry_at_or_before(offset - self.state.base_offset)
        if self.entry >= 0:
            self.position = self.indexes.positions[self.entry]
        else:
            self.expected = self.state.base_offset

    def select(self, chunk: memoryview, span: Span) -> Slice | None:
        """Return the wanted batches of a chunk; None if the chunk ends before the first of them does (needed_bytes says
        how much to read).
        """
        offset, max_bytes, below, at_least_one = span
        unpack = _HEAD.unpack_from
        dense = self.state.compacted
        room = len(chunk)
        left = self.state.size_bytes - self.position  # to the end of the segment, from the chunk's beginning
        expected, entry, end_offset = self.expected, self.entry, self.state.end_offset
        start = stop = unchecked = -1
        next_offset = offset
        at = 0
        while at < left:
            if at + HEADER_BYTES > room:
                if start >= 0:
                    break
                self._set_needed(at, at + HEADER_BYTES, left, span)
                return None
            base, length, epoch, magic, delta = unpack(chunk, at)
            last = base + delta
            if expected < 0 or dense:
                self._check_entry(entry, at, last)
                entry += 1
            elif base != expected:
                self._raise_damaged(at, f"base offset {base} where {expected} must be")
            after = at + LENGTH_AT + length
            if (
                magic != MAGIC
                or epoch != LEADER_EPOCH
                or length < _SMALLEST_LENGTH
                or after > left
                or not 0 <= delta < end_offset - base
            ):
                self._raise_damaged(
                    at, f"no batch: magic {magic}, leader epoch {epoch}, length {length}, delta {delta}"
                )
            expected = last + 1
            if last >= offset:
                if start < 0:
                    if after > room or last >= below or (after - at > max_bytes and not at_least_one):
                        return self._without(chunk, at, after, last, span)
                    start = at
                    unchecked = self.indexes.checked_until(self.position + at) - self.position
                elif last >= below or after - start > max_bytes or after > room:
                    break
                if at >= unchecked and not self._check(chunk, at, after):
                    break
                stop = after
                next_offset = expected
            at = after
        if start < 0:
            return self._nothing_here(at, expected)
        if stop > unchecked:
            self.indexes.add_checked(self.position + start, self.position + stop)
        self.indexes.remember(next_offset, self.position + stop)
        return Slice([chunk[start:stop]], stop - start, next_offset)

    def _without(self, chunk: memoryview, at: int, after: int, last: int, span: Span) -> Slice | None:
        """Return the result for a chunk whose first wanted batch, from `at` to `after`, cannot be returned: the chunk's
        end cuts it off, or its last offset is not below span.below.

        Returns None if more must be read, because the batch is cut off but within the reader's limit; needed_bytes is
        set then. Else returns an empty slice.
        """
        if after <= len(chunk) and last >= span.below:
            if self.indexes.checked_until(self.position + at) == self.position + at:
                self._check(chunk, at, after)  # a batch ends at span.below, so a last offset beyond it may be damage
        elif after - at <= span.max_bytes or span.at_least_one:
            self._set_needed(at, after, self.state.size_bytes - self.position, span)
            return None
        return Slice([], 0, span.offset)

    def _nothing_here(self, at: int, expected: int) -> Slice:
        """Return NOTHING_HERE: the segment has no batch that is wanted. Raises SegmentDamaged if a segment that is not
        compacted does not end at its last offset.
        """
        if not self.state.compacted and expected != self.state.end_offset:
            self._raise_damaged(at, f"the segment ends at offset {expected}, not at {self.state.end_offset}")
        return NOTHING_HERE

    def _set_needed(self, at: int, end: int, left: int, span: Span) -> None:
        """Set needed_bytes for a batch that begins at `at` and ends at `end` or later. Raises SegmentDamaged if that
        is beyond the segment, or in the next batch.
        """
        boundary = self.indexes.boundary_after(self.position + at)
        if end > left or 0 <= boundary < self.position + end:
            self._raise_damaged(at, "a batch reaches over the end of the segment, or into the next batch")
        self.needed_bytes = min(max(end, at + min(span.max_bytes, CHUNK_BYTES)), left)

    def _check_entry(self, entry: int, at: int, last: int) -> None:
        """Raise SegmentDamaged unless the batch is the one that its index entry names, in an index with an entry for
        each batch.
        """
        indexes = self.indexes
        if entry >= len(indexes.offsets) or indexes.positions[entry] != self.position + at:
            self._raise_damaged(at, "a batch that the index does not know")
        known = indexes.offsets[entry] + self.state.base_offset
        if known != last:
            self._raise_damaged(at, f"the batch ends at offset {last}, in the index at {known}")

    def _check(self, chunk: memoryview, at: int, after: int) -> bool:
        """Check a batch's CRC. Returns False, without checking, if this read has checked MAX_CHECKS batches: it stops
        here. Raises SegmentDamaged.
        """
        if self.checks >= MAX_CHECKS:
            return False
        self.checks += 1
        if crc32c(chunk[at + CRC_COVERS_FROM : after]) != _CRC.unpack_from(chunk, at + CRC_AT)[0]:
            self._raise_damaged(at, "the CRC of the batch does not match")
        return True

    def _raise_damaged(self, at: int, reason: str) -> NoReturn:
        """Raise SegmentDamaged for the byte at position `at` of the chunk."""
        raise SegmentDamaged(self.path, self.position + at, reason)


def base_offset_at(file: File, position: int, last_offset: int) -> int:
    """Return the base offset of the batch that begins at `position` and ends with the offset `last_offset`.

    Returns -1 if there is no such batch, or if reading it would wait for the device.
    """
    header = file.read_cached(HEADER_BYTES, position)
    if header is None or len(header) < HEADER_BYTES:
        return -1
    base, _, epoch, magic, delta = _HEAD.unpack_from(header, 0)
    sound = magic == MAGIC and epoch == LEADER_EPOCH and delta >= 0 and base + delta == last_offset
    return base if sound else -1


def scan(
    file: File,
    state: SegmentState,
    *,
    position: int = 0,
    expected: int = -1,
    ends_at: int = -1,
) -> Iterator[tuple[int, Batch]]:
    """Yield (position, batch) of all batches from `position` on.

    expected, ends_at: base offset and last offset of the first one; −1 if not known.

    Raises SegmentDamaged at the first batch that is invalid or not where it must be.
    """
    if expected < 0 and position == 0 and not state.compacted:
        expected = state.base_offset
    chunk, start = memoryview(b""), position
    least = state.base_offset
    while position < state.size_bytes:
        at = position - start
        try:
            batch = batches.read(chunk, at)
        except CorruptBatch as problem:
            wanted = _needed_bytes(chunk, at)
            if start == position and len(chunk) >= min(wanted, state.size_bytes - position):
                raise SegmentDamaged(file.path, position, problem.reason) from None
            chunk, start = _chunk(file, position, wanted, state.size_bytes), position
            continue
        _verify(file.path, position, batch)
        in_place = batch.base_offset == expected if expected >= 0 else batch.base_offset >= least
        if ends_at >= 0:
            in_place = in_place and batch.last_offset == ends_at
            ends_at = -1
        if not in_place or batch.leader_epoch != LEADER_EPOCH:
            reason = f"base offset {batch.base_offset}, leader epoch {batch.leader_epoch} out of place"
            raise SegmentDamaged(file.path, position, reason)
        yield position, batch
        least = batch.next_offset
        if not state.compacted:
            expected = least
        position += batch.size


def _verify(path: str, position: int, batch: Batch) -> None:
    """Check the batch's CRC. Raises SegmentDamaged if it is wrong."""
    try:
        batches.verify(batch)
    except CorruptBatch as problem:
        raise SegmentDamaged(path, position, problem.reason) from None


def _needed_bytes(chunk: memoryview, at: int) -> int:
    """Return how many bytes to read for the batch at this place of the chunk."""
    if at + HEADER_BYTES > len(chunk):
        return SCAN_CHUNK_BYTES
    length: int = _HEAD.unpack_from(chunk, at)[1]
    return max(LENGTH_AT + length, HEADER_BYTES)


def _chunk(file: File, position: int, wanted: int, size_bytes: int) -> memoryview:
    """Read `wanted` bytes or more from the position, at most to the segment's end. Raises SegmentDamaged if the file
    ends early.
    """
    size = min(max(wanted, SCAN_CHUNK_BYTES), size_bytes - position)
    chunk = file.read(size, position)
    if len(chunk) < size:
        raise SegmentDamaged(file.path, position + len(chunk), "the file ends early")
    return memoryview(chunk)

"""Sparse indexes of one segment, in Kafka's formats: offset → position, and timestamp → offset.

An entry of `.index` is (last offset of a batch − base offset, the batch's position), of `.timeindex` (largest timestamp
so far, last offset of its batch − base offset). The formats carry no checksum, so a segment's row in the checkpoint
says how many entries count and their CRC; what does not match is derived again from the segment, never believed.
Source: Kafka's OffsetIndex, TimeIndex and LogSegment.append.
"""

import sys
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ..producers.aborted import AbortedTransaction

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
OFFSET_SUFFIX = ".index"
TIME_SUFFIX = ".timeindex"
NO_TIMESTAMP = -1
CACHE_BYTES = 64 << 20  # of loaded indexes, over all logs
MAX_HINTS = 64  # positions where readers stopped, of one segment
MAX_INTERVALS = 8  # ranges of checked bytes, of one segment


class IndexRow(NamedTuple):
    """How many entries of an index file count, and the CRC-32C of these, as a checkpoint records it."""

    entries: int = 0
    crc: int = 0

    @classmethod
    def of(cls, content: bytes, entry_bytes: int) -> "IndexRow":
        """Make the row that describes an index file with this content."""
        return cls(len(content) // entry_bytes, crc32c(content))

    def grown(self, added: bytes, entry_bytes: int) -> "IndexRow":
        """Return the row after these entries were appended."""
        if not added:
            return self
        return IndexRow(self.entries + len(added) // entry_bytes, crc32c(added, self.crc))


class Indexes:
    """The loaded indexes of a segment. The loop appends entries while workers search; existing entries never change."""

    __slots__ = (
        "aborted",
        "checked",
        "covers_bytes",
        "hints",
        "offsets",
        "positions",
        "time_offsets",
        "timestamps",
    )

    def __init__(
        self,
        offset_entries: bytes = b"",
        time_entries: bytes = b"",
        aborted: Sequence[AbortedTransaction] = (),
        *,
        covers_bytes: int = 0,
    ) -> None:
        """offset_entries, time_entries: the contents of the index files. covers_bytes: the size of the segment for
        which they are complete.
        """
        self.offsets = array("i")
        self.positions = array("i")
        self.timestamps = array("q")
        self.time_offsets = array("i")
        self.covers_bytes = covers_bytes  # the entries are those of this many bytes of the segment
        self.aborted: list[AbortedTransaction] = []
        self.hints: dict[int, int] = {}  # offset → position: where readers stopped, and will go on
        self.checked: tuple[tuple[int, int], ...] = ()  # [from, to) of the segment: all CRCs there matched; newest last
        self.extend(offset_entries, time_entries, aborted)

    def extend(self, offset_entries: bytes, time_entries: bytes, aborted: Sequence[AbortedTransaction]) -> None:
        """Append entries, as they are in the files. The searched column grows last, so workers see whole entries."""
        self.aborted.extend(aborted)
        if offset_entries:
            columns = array("i", offset_entries)
            if sys.byteorder == "little":
                columns.byteswap()
            self.positions.extend(columns[1::2])
            self.offsets.extend(columns[0::2])
        for timestamp, offset in TIME_ENTRY.iter_unpack(time_entries):
            self.time_offsets.append(offset)
            self.timestamps.append(timestamp)

    @property
    def size_bytes(self) -> int:
        """About how many bytes of memory the indexes take."""
        return 8 * len(self.offsets) + 12 * len(self.timestamps) + 160 * len(self.aborted)

    def entry_at_or_before(self, relative_offset: int) -> int:
        """Return the number of the last entry whose batch ends at or before this offset; −1: there is none."""
        return bisect_right(self.offsets, relative_offset) - 1

    def place_before(self, relative_offset: int) -> tuple[int, int]:
        """Return (position, relative last offset) of the last indexed batch before this offset; (0, −1): none."""
        number = bisect_left(self.offsets, relative_offset) - 1
        return (self.positions[number], self.offsets[number]) if number >= 0 else (0, -1)

    def entry_of(self, relative_offset: int) -> int:
        """Return the number of the first batch that ends at or after this offset. Only for an index with an entry for
        each batch.
        """
        return bisect_left(self.offsets, relative_offset)

    def boundary_after(self, position: int) -> int:
        """Return the next position at which a batch is known to begin; −1 if none is known. No batch may extend across
        it.
        """
        number = bisect_right(self.positions, position)
        return self.positions[number] if number < len(self.positions) else -1

    def offset_before_time(self, timestamp: int) -> int:
        """Return the relative offset at which to begin a search for the first record at or after this time."""
        number = bisect_left(self.timestamps, timestamp) - 1
        return self.time_offsets[number] if number >= 0 else 0

    def remember(self, offset: int, position: int) -> None:
        """Note that a batch with base offset `offset` begins at `position`, because a reader stopped there."""
        if len(self.hints) >= MAX_HINTS:
            self.hints.clear()
        self.hints[offset] = position

    def checked_until(self, position: int) -> int:
        """Return the end of the checked batches that begin at `position`; `position` itself if there are none."""
        for start, stop in self.checked:
            if start <= position < stop:
                return stop
        return position

    def add_checked(self, start: int, stop: int) -> None:
        """Note that the CRCs of all batches from `start` to `stop` have matched.

        If two threads add at once, one range may be lost: its batches are then checked again.
        """
        kept = []
        for interval in self.checked:
            if interval[1] < start or stop < interval[0]:
                kept.append(interval)
            else:
                start, stop = min(start, interval[0]), max(stop, interval[1])
        self.checked = (*kept[1 - MAX_INTERVALS :], (start, stop))


class IndexGrowth:
    """Decides which batches get index entries, and collects the entries. One object serves one series of appends to a
    segment.
    """

    def __init__(
        self,
        base_offset: int,
        interval_bytes: int,
        *,
        since: int = 0,
        max_timestamp: int = NO_TIMESTAMP,
        max_timestamp_offset: int = -1,
        last_time: int = NO_TIMESTAMP,
    ) -> None:
        """interval_bytes: bytes between entries; −1 gives every batch one. since: bytes appended since the newest
        offset entry. last_time: the timestamp of the newest time entry. max_timestamp, max_timestamp_offset: the
        largest in the segment so far.
        """
        self.base_offset = base_offset
        self._interval_bytes = interval_bytes
        self.since = since
        self.max_timestamp = max_timestamp
        self.max_timestamp_offset = max_timestamp_offset
        self._last_time = last_time
        self.offset_entries: list[bytes] = []
        self.time_entries: list[bytes] = []

    def add(self, last_offset: int, position: int, size: int, timestamp: int) -> None:
        """Take a batch appended at `position` into account, and add entries for it if the interval since the last
        entry is over. timestamp: its largest.
        """
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if self.since > self._interval_bytes:
            self.add_entry(last_offset, position)
            self.since = 0
        self.since += size

    def add_entry(self, last_offset: int, position: int) -> None:
        """Add an offset entry for the batch at `position`, and a time entry. The batch's timestamp was noted before."""
        self.offset_entries.append(OFFSET_ENTRY.pack(last_offset - self.base_offset, position))
        self.add_time_entry()

    def add_time_entry(self) -> None:
        """Add an entry for the largest timestamp so far, unless there is one. Also called when a segment is
        finished.
        """
        if self.max_timestamp > self._last_time:
            relative = self.max_timestamp_offset - self.base_offset
            self.time_entries.append(TIME_ENTRY.pack(self.max_timestamp, relative))
            self._last_time = self.max_timestamp

    @property
    def last_time(self) -> int:
        """The timestamp of the newest entry of the time index; NO_TIMESTAMP before the first."""
        return self._last_time


class IndexCache:
    """Loaded indexes of segments, by path; the least recently used are dropped first. Thread-safe."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        """limit_bytes: the memory that all indexes together may take."""
        self.limit_bytes = limit_bytes
        self._loaded: OrderedDict[str, Indexes] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.Lock()

    def get(self, path: str, covers_bytes: int) -> Indexes | None:
        """Return the segment's indexes if they cover at least its first `covers_bytes` bytes; else None."""
        with self._lock:
            found = self._loaded.get(path)
            if found is None or found.covers_bytes < covers_bytes:
                return None
            self._loaded.move_to_end(path)
            return found

    def put(self, path: str, indexes: Indexes) -> None:
        """Cache these indexes of a segment, unless the cached ones cover more of it. Above the limit, those not used
        for the longest time are dropped.
        """
        with self._lock:
            before = self._loaded.get(path)
            if before is not None:
                if before.covers_bytes >= indexes.covers_bytes:
                    return
                self._size_bytes -= before.size_bytes
            self._loaded[path] = indexes
            self._loaded.move_to_end(path)
            self._size_bytes += indexes.size_bytes
            self._drop_surplus()

    def extend(
        self,
        path: str,
        size_before: int,
        size_after: int,
        offset_entries: bytes,
        time_entries: bytes,
        aborted: Sequence[AbortedTransaction],
    ) -> None:
        """Add entries to the cached indexes of a segment that has grown, if these were complete up to its size before.
        The indexes of a new segment are added to the cache.

        size_before, size_after: the segment's size in bytes. The entries are those that were appended to the files.
        """
        with self._lock:
            loaded = self._loaded.get(path)
            if loaded is None and not size_before:
                loaded = self._loaded[path] = Indexes()
            if loaded is not None and loaded.covers_bytes == size_before:
                self._size_bytes -= loaded.size_bytes
                loaded.extend(offset_entries, time_entries, aborted)
                loaded.covers_bytes = size_after
                self._size_bytes += loaded.size_bytes
                self._drop_surplus()

    def drop(self, path: str) -> None:
        """Remove the indexes of a segment that does not exist any more."""
        with self._lock:
            loaded = self._loaded.pop(path, None)
            if loaded is not None:
                self._size_bytes -= loaded.size_bytes

    def clear(self) -> None:
        """Drop all indexes from memory."""
        with self._lock:
            self._loaded.clear()
            self._size_bytes = 0

    def _drop_surplus(self) -> None:
        """Drop the longest unused indexes while the cache is above its limit."""
        while self._size_bytes > self.limit_bytes and len(self._loaded) > 1:
            _, dropped = self._loaded.popitem(last=False)
            self._size_bytes -= dropped.size_bytes

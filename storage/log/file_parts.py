"""Batches in a segment's file that are sent from the page cache to a socket without being read into the process.

The rules: the CRC of every batch in a part was checked before. A part begins at the batch from which a reader wants to
continue, and ends where the offset index says that a batch begins, so nothing has to be parsed. All of it was in memory
a moment ago, so sending does not wait for the device. The file stays open until the part was sent or released, even if
the file is removed meanwhile.

A socket refers to pages of the cache and has no copies, even after this process has ended. So only bytes that the
newest checkpoint names are sent like this, because a recovery cuts off later bytes and writes them again.

Source: Kafka's FileRecords.writeTo.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from ...effects.disk import Buffer, File
from ...protocol.errors import ErrorCode, KafkaError
from .index import Indexes
from .open_files import OpenFile
from .reads import judge_unreadable, segment_number
from .segment import CHUNK_BYTES, LOG_SUFFIX, SegmentDamaged, SegmentState, Slice, base_offset_at

if TYPE_CHECKING:
    from .partition_log import PartitionLog

FILE_PART_FROM_BYTES = 64 << 10  # fewer bytes are read and copied: that costs less than a FilePart


class FilePart:
    """A range of bytes of an open file, whose len() is like a buffer's. Its last owner must call release()."""

    __slots__ = ("_log", "_opened", "_position", "_size_bytes", "_state")

    def __init__(
        self, log: "PartitionLog", state: SegmentState, opened: OpenFile, position: int, size_bytes: int
    ) -> None:
        """opened: an open file in use, which the part owns from now on."""
        self._log = log
        self._state = state
        self._opened: OpenFile | None = opened
        self._position = position
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def __repr__(self) -> str:
        return f"FilePart({self._size_bytes} bytes at {self._position} of {self._log.topic}-{self._log.partition})"

    @property
    def _file(self) -> File:
        """Return the open file. It must not be released yet."""
        assert self._opened is not None, "the part was released"
        return self._opened.file

    def send(self, socket_fd: int, begin: int) -> int:
        """Send bytes from `begin` on to a socket. Returns and raises like File.send()."""
        return self._file.send(socket_fd, self._size_bytes - begin, self._position + begin)

    def read(self, begin: int = 0, size: int | None = None) -> bytes:
        """Read `size` bytes from `begin` on; None: all bytes from there on.

        Raises: KafkaError KAFKA_STORAGE_ERROR; the log is then offline, if it still has this segment.
        """
        size = self._size_bytes - begin if size is None else size
        position, file = self._position + begin, self._file
        try:
            found = file.read(size, position)
            if len(found) < size:
                raise SegmentDamaged(file.path, position + len(found), "the file ends early")
        except (SegmentDamaged, OSError) as error:
            if self._log.holds([self._state]):
                raise judge_unreadable(self._log, error) from error
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return found

    def release(self) -> None:
        """End the use of the file; the part cannot be sent any more. May be called again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.give_back()

    def __del__(self) -> None:
        """Release the file of a part that was lost with an exception."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.abandon()


def release(buffers: Iterable[object]) -> None:
    """Release the file parts among the buffers, because they were sent or will not be sent."""
    for one in buffers:
        if isinstance(one, FilePart):
            one.release()


def read_as_file_part(log: "PartitionLog", offset: int, max_bytes: int, below: int) -> Slice | None:
    """Return the batches from an offset on as a Slice with a FilePart; None if they are small, must be read, or are not
    known to be in the page cache.

    It may have fewer batches than a read would return, because it ends at an entry of the offset index.
    """
    if offset >= log.flushed_offset or max_bytes < FILE_PART_FROM_BYTES or not log.segments:
        return None
    below = min(below, log.checkpointed_offset)
    state = log.segments[segment_number(log.segments, offset)]
    stem = f"{log.directory}/{state.stem}"
    indexes = log.open_files.indexes.get(stem, state.size_bytes)
    if indexes is None:
        return None
    position, stop = _extent(state, indexes, offset, max_bytes, below)
    if stop - position < FILE_PART_FROM_BYTES:
        return None
    opened = log.open_files.lend(stem + LOG_SUFFIX)
    if opened is None:
        return None
    part, next_offset = FilePart(log, state, opened, position, stop - position), -1
    try:
        if opened.file.in_memory(stop - position, position):
            next_offset = _offset_at(opened.file, state, indexes, stop)
    except OSError:  # the caller reads instead, and handles the error there
        next_offset = -1
    if next_offset < 0:
        part.release()
        return None
    indexes.remember(next_offset, stop)
    return Slice([cast(Buffer, part)], stop - position, next_offset)  # its len() is like a buffer's


def _extent(state: SegmentState, indexes: Indexes, offset: int, max_bytes: int, below: int) -> tuple[int, int]:
    """Return (from, to): positions of checked batches from the wanted offset on, within max_bytes and below the offset
    `below`; equal ones if there are none.
    """
    position = _known_place(state, indexes, offset)
    if position < 0:
        return 0, 0
    most = min(position + min(max_bytes, CHUNK_BYTES), indexes.checked_until(position))
    if most == state.size_bytes and state.end_offset <= below:
        return position, most
    number = bisect_right(indexes.positions, most)
    number = min(number, bisect_left(indexes.offsets, below - state.base_offset))
    return position, indexes.positions[number - 1] if number else 0


def _known_place(state: SegmentState, indexes: Indexes, offset: int) -> int:
    """Return the position of the batch with this offset, or the next one; −1 if it is not known without a search."""
    if state.compacted:
        entry = indexes.entry_of(offset - state.base_offset)
        return indexes.positions[entry] if entry < len(indexes.positions) else -1
    return 0 if offset == state.base_offset else indexes.hints.get(offset, -1)


def _offset_at(file: File, state: SegmentState, indexes: Indexes, position: int) -> int:
    """Return the offset after the batch that ends at this position; −1 if that would need the device, or the batch
    there is unexpected.
    """
    entry = bisect_left(indexes.positions, position)
    if state.compacted:  # every batch has an entry
        return indexes.offsets[entry - 1] + state.base_offset + 1
    if position == state.size_bytes:
        return state.end_offset
    return base_offset_at(file, position, indexes.offsets[entry] + state.base_offset)

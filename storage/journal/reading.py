"""Reads journal files, headers and rounds one by one, without deciding which of them count. Used by the scan and by
tools.

The rule: no byte outside a file's size is read, and no length is used before it was compared with the bytes that are
left. A file whose size differs from the size in its header was changed by somebody else, because a file gets its full
size before its name.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ...effects.disk import Disk, File
from ..checkpoints import Damaged, NewerFormat
from .format import (
    BLOCK_BYTES,
    ROUND_HEADER_BYTES,
    FileHeader,
    Malformed,
    RoundHeader,
    Unit,
    UnknownFormat,
    blocks,
    first_fault,
    read_file_header,
    read_round_header,
    read_units,
)

READ_BYTES = 1 << 20


class JournalDamaged(Damaged):
    """Raised if the journal lacks something that was durable. Nothing is changed, and the broker does not start."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(path, f"at byte {position}: {reason}")
        self.position = position


class FoundFile(NamedTuple):
    """A journal file with a valid header."""

    path: str
    header: FileHeader


class FoundRound(NamedTuple):
    """A round as it was found in a file. `fault` says what is wrong with the round; "" if it is valid."""

    position: int
    header: RoundHeader
    fault: str


def read_header(disk: Disk, path: str) -> FoundFile:
    """Read a file's header. Raises: JournalDamaged, NewerFormat."""
    file = disk.open(path, read_only=True)
    try:
        size = file.size()
        header = read_file_header(file.read(BLOCK_BYTES, 0))
    except Malformed as damage:
        raise JournalDamaged(path, 0, str(damage)) from damage
    except UnknownFormat as newer:
        raise NewerFormat(path, newer.version) from newer
    finally:
        file.close()
    if header.size_bytes != size:
        raise JournalDamaged(
            path, min(size, header.size_bytes), f"it has {size} bytes, and had {header.size_bytes} when it was made"
        )
    return FoundFile(path, header)


class Reader:
    """Reads one file in windows, never beyond its size."""

    def __init__(self, disk: Disk, found: FoundFile) -> None:
        self.path = found.path
        self.size = found.header.size_bytes
        self._seed = found.header.seed
        self._file: File = disk.open(found.path, read_only=True)
        self._window = memoryview(b"")
        self._start = 0

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def view(self, position: int, length: int) -> memoryview:
        """Return bytes of the file; the caller has checked that they lie within it."""
        at = position - self._start
        if at < 0 or at + length > len(self._window):
            wanted = min(max(length, READ_BYTES), self.size - position)
            self._window = memoryview(self._file.read(wanted, position))
            self._start = position
            at = 0
        return self._window[at : at + length]

    def round_header(self, position: int) -> RoundHeader | None:
        """Return the header of the round that begins at this position; None if none does."""
        if self.size - position < BLOCK_BYTES:
            return None
        return read_round_header(self.view(position, ROUND_HEADER_BYTES), self._seed, position)


def round_fault(reader: Reader, position: int, header: RoundHeader) -> str:
    """Return why the round with this header is not valid; "" if it is."""
    start = position + ROUND_HEADER_BYTES
    if header.length > reader.size - start:
        return f"its header has a length of {header.length} bytes, the file has {reader.size - start} left"
    return first_fault(reader.view(start, header.length), header)


def rounds(disk: Disk, path: str) -> Iterator[FoundRound]:
    """Yield all rounds of a file, for tools: valid ones, faulty ones, and those after a gap. Which of them count is not
    decided here.

    Raises: JournalDamaged, for a file without a valid header; NewerFormat.
    """
    found = read_header(disk, path)
    with Reader(disk, found) as reader:
        position = BLOCK_BYTES
        while position < reader.size:
            header = reader.round_header(position)
            if header is None:
                position += BLOCK_BYTES
                continue
            fault = round_fault(reader, position, header)
            yield FoundRound(position, header, fault)
            position += BLOCK_BYTES if fault else blocks(ROUND_HEADER_BYTES + header.length)


def round_units(disk: Disk, found: FoundFile, one: FoundRound) -> list[Unit]:
    """Return the units of a valid round, for tools. Raises JournalDamaged if they cannot be read."""
    with Reader(disk, found) as reader:
        start = one.position + ROUND_HEADER_BYTES
        try:
            return list(read_units(reader.view(start, one.header.length), one.header, found.path, start))
        except Malformed as damage:
            raise JournalDamaged(found.path, one.position, str(damage)) from damage

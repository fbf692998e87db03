"""Making files of the journal ready: new ones filled with zeros, old ones under a new name and header. Blocking work.

The rule: a file bears its final name only when it has its full size and a durable header (a new one is synced whole),
and names change oldest first with the directory synced each time, so that no crash leaves a hole in the numbers, or a
name on another file's header.
Zero-filled files sync in half the time of growing ones, reused ones keep their cached pages.
"""

import errno
import os.path
from collections import deque
from typing import NamedTuple, Protocol

from ...effects.disk import Disk, DiskFull, File
from .format import BLOCK_BYTES, ROUND_HEADER_BYTES, FileHeader, pack_file_header

SUFFIX = ".journal"
PREPARING = ".preparing"

# Units never use the last two blocks of a file: they are for an empty round that seals it, and the round that ends it.
KEPT_BACK_BYTES = 2 * BLOCK_BYTES
AROUND_UNITS_BYTES = BLOCK_BYTES + ROUND_HEADER_BYTES + KEPT_BACK_BYTES

_ZEROS = bytes(1 << 20)


class Job(Protocol):
    """Blocking work for a worker thread."""

    def run(self) -> None:
        """Do the work. Called in a worker thread; may raise OSError."""
        ...


class Life(NamedTuple):
    """What all files of one incarnation have in common."""

    incarnation: int
    salt: bytes
    first_file: int
    first_round: int
    first_unit: int


class JournalFile:
    """A file with its final name. `first_round` is 0 until a round is closed in it."""

    __slots__ = ("file", "first_round", "last_unit", "path", "seed", "sequence", "size_bytes")

    def __init__(self, file: File, path: str, header: FileHeader) -> None:
        self.file = file
        self.path = path
        self.sequence = header.sequence
        self.size_bytes = header.size_bytes
        self.seed = header.seed
        self.first_round = 0
        self.last_unit = 0

    @property
    def capacity(self) -> int:
        """The size of the largest unit that fits the file when it is empty."""
        return self.size_bytes - AROUND_UNITS_BYTES


def file_name(sequence: int) -> str:
    """Return the name of the journal file with that number."""
    return f"{sequence:020d}{SUFFIX}"


def file_sequence(name: str) -> int | None:
    """Return the number in a journal file's name; None for another name."""
    digits = name.removesuffix(SUFFIX)
    is_ours = name.endswith(SUFFIX) and len(digits) == 20 and digits.isascii() and digits.isdecimal()
    return int(digits) if is_ours else None


class Preparation:
    """Makes files ready: by reusing files that are no longer needed, or by creating new ones filled with zeros. run()
    is for a worker.

    Only the job uses its lists until `ended`; then `made` and what is left of `spares` are given back to JournalFiles.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_drop",
        "_keep_free",
        "_life",
        "_new",
        "_reuse",
        "_sequence",
        "ended",
        "failed",
        "made",
        "spares",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        life: Life,
        sequence: int,
        *,
        drop: list[JournalFile],
        spares: deque[JournalFile],
        new_bytes: int,
        reuse: range,
        keep_free_bytes: int = 0,
    ) -> None:
        """drop: ready files to remove, newest first. spares: reused if their size is in `reuse`, else removed.
        new_bytes: the size of a new file to make; 0: none.

        keep_free_bytes: a new file is made only if so much is free afterwards.
        """
        self._disk = disk
        self._directory = directory
        self._life = life
        self._sequence = sequence
        self._drop = drop
        self._new = new_bytes
        self._reuse = reuse
        self._keep_free = keep_free_bytes
        self.spares = spares
        self.made: list[JournalFile] = []
        self.ended = False
        self.failed = False

    def run(self) -> None:
        """Make the files ready. Raises: TryLater (files made so far count, the rest may be tried again), OSError."""
        try:
            self._run()
        except BaseException:
            self.failed = True
            raise
        finally:
            self.ended = True

    def _run(self) -> None:
        """Remove files that are not wanted, recycle or remove spare ones, and create a new one if asked for."""
        for file in self._drop:
            self._remove(file)
        while self.spares:
            if self.spares[0].size_bytes in self._reuse:
                self._recycle()
            else:
                self._remove(self.spares[0])
                self.spares.popleft()
        if self._new:
            self._create(self._new)

    def _remove(self, file: JournalFile) -> None:
        """Delete a journal file durably, and close it. An earlier attempt may have deleted it already."""
        if self._disk.exists(file.path):
            self._disk.unlink(file.path)
        self._disk.sync_directory(self._directory)
        file.file.close()

    def _recycle(self) -> None:
        """Give the first spare file the next name and header, so that it is ready again. The old name is durably
        removed before the header changes, so no name ever has the header of another file.
        """
        old = self.spares[0]
        header, path = self._next(old.size_bytes, recycled=True)
        if old.path != path + PREPARING:
            self._disk.rename(old.path, path + PREPARING)
            old.path = path + PREPARING  # if the next step fails, the file is still a spare
        self._disk.sync_directory(self._directory)
        self.spares.popleft()
        self._make(old.file, path, header)

    def _create(self, size_bytes: int) -> None:
        """Create a zero-filled file. Raises DiskFull if too little space would be left."""
        if self._disk.free_bytes(self._directory) < size_bytes + self._keep_free:
            raise DiskFull(errno.ENOSPC, "the disk has no room for another journal file", self._directory)
        header, path = self._next(size_bytes, recycled=False)
        if self._disk.exists(path + PREPARING):  # left by a crash
            self._disk.unlink(path + PREPARING)
        self._make(self._disk.open(path + PREPARING, create=True), path, header)

    def _make(self, file: File, path: str, header: FileHeader) -> None:
        """Write the header (and, in a new file, zeros after it), durably, and give the file its name.

        In a file that is used again only the header is synced: its old contents are not needed. If writing fails, the
        file is removed.
        """
        try:
            if header.recycled:
                file.write_synced([pack_file_header(header)], 0)
            else:
                _write_new(file, header)
                file.sync()
        except BaseException:
            file.close()
            self._disk.unlink(path + PREPARING)
            raise
        try:
            self._disk.rename(path + PREPARING, path)
            self._disk.sync_directory(self._directory)
        finally:
            file.close()  # opened again below, so that its errors have the final name
        self.made.append(JournalFile(self._disk.open(path), path, header))

    def _next(self, size_bytes: int, recycled: bool) -> tuple[FileHeader, str]:
        """Return header and path of the next journal file to prepare."""
        sequence = self._sequence + len(self.made)
        life = self._life
        header = FileHeader(
            life.incarnation,
            sequence,
            size_bytes,
            recycled,
            life.salt,
            life.first_file,
            life.first_round,
            life.first_unit,
        )
        return header, os.path.join(self._directory, file_name(sequence))


def _write_new(file: File, header: FileHeader) -> None:
    """Write a journal file's header, and zeros up to its full size."""
    file.write([pack_file_header(header)], 0)
    for position in range(BLOCK_BYTES, header.size_bytes, len(_ZEROS)):
        file.write([_ZEROS[: header.size_bytes - position]], position)

"""An open file of a simulated disk."""

import errno
from collections.abc import Callable, Sequence
from typing import Protocol

from ..disk import Buffer, File
from .faults import os_error


class FilesOfDisk(Protocol):
    """The methods of the disk that a simulated file uses."""

    is_cold: Callable[[str], bool]
    syncs_blocks: bool

    @property
    def next_index(self) -> int:
        """The number of the next operation in the disk's history."""
        ...

    def read(self, file: "SimulatedFile", size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def write(self, file: "SimulatedFile", data: bytes, position: int) -> None:
        """Write the data at `position`."""
        ...

    def truncate(self, file: "SimulatedFile", size: int) -> None:
        """Cut the file to this size, or extend it with NULs."""
        ...

    def sync(self, file: "SimulatedFile", only: int | None = None) -> None:
        """Make the file's writes durable; `only`: the write with this index alone."""
        ...

    def size_of(self, file: "SimulatedFile") -> int:
        """Return the file's size in bytes."""
        ...

    def note_closed(self, inode: int) -> None:
        """Note that a descriptor of this inode was closed."""
        ...


class SimulatedFile(File):
    def __init__(self, disk: FilesOfDisk, path: str, inode: int, read_only: bool) -> None:
        self._disk: FilesOfDisk | None = disk
        self._path = path
        self._read_only = read_only
        self.inode = inode

    @property
    def path(self) -> str:
        return self._path

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        self._writable().write(self, b"".join(buffers), position)

    def write_synced(self, buffers: Sequence[Buffer], position: int) -> None:
        self.write_alone(b"".join(buffers), position)()

    def write_blocks_synced(self, buffers: Sequence[Buffer], position: int, size_bytes: int) -> bool:
        """Write, and make these bytes durable. Returns False if the disk is set not to do that in one call."""
        if not self._writable().syncs_blocks:
            return False
        self.write_alone(b"".join(buffers), position)()
        return True

    def write_alone(self, data: bytes, position: int) -> Callable[[], None]:
        """Write the data, and return a function that makes only this write durable: for an async writer."""
        disk = self._writable()
        index = disk.next_index
        disk.write(self, data, position)
        return lambda: disk.sync(self, only=index)

    def read(self, size: int, position: int) -> bytes:
        return self._open().read(self, size, position)

    def read_cached(self, size: int, position: int) -> Buffer | None:
        disk = self._open()
        return None if disk.is_cold(self._path) else memoryview(disk.read(self, size, position))

    def in_memory(self, size: int, position: int) -> bool:
        return not self._open().is_cold(self._path)

    def size(self) -> int:
        return self._open().size_of(self)

    def truncate(self, size: int) -> None:
        self._writable().truncate(self, size)

    def sync(self) -> None:
        self._open().sync(self)

    def close(self) -> None:
        disk, self._disk = self._disk, None
        if disk is not None:
            disk.note_closed(self.inode)

    def _open(self) -> FilesOfDisk:
        """Return the disk. Raises OSError (EBADF) if the file is closed."""
        if self._disk is None:
            raise os_error(errno.EBADF, self._path)
        return self._disk

    def _writable(self) -> FilesOfDisk:
        """Return the disk. Raises OSError (EBADF) if the file is closed or read-only."""
        if self._read_only:
            raise os_error(errno.EBADF, self._path)
        return self._open()

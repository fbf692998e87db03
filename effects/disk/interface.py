"""Disk and File: what a disk can do, whether the system's or a simulated one.

The rule: a call either did all it says or raised. Nothing is durable before `sync` (bytes) and `sync_directory` (names:
a create, rename or unlink). The calls block and are thread-safe on different files; nothing is kept but descriptors.
"""

import errno
import os
from collections.abc import Sequence
from typing import Protocol

from ..gathering import Buffer
from ..threads import Executor
from .async_writer import AsyncWriter
from .locks import Lock


class File(Protocol):
    """An open file. Positions and sizes are bytes. The caller closes it when no job uses it any more."""

    @property
    def path(self) -> str:
        """The path by which the file was opened (a rename does not change it)."""
        ...

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all bytes of all buffers, one after another, from `position` on.

        Raises DiskFull or OSError, and then any part may be written. Large writes are best cut to slices by the caller.
        """
        ...

    def write_past_cache(self, buffers: Sequence[Buffer], position: int, *, paced: bool = False) -> None:
        """Like write(), for large data that is seldom read back: where the system can, it leaves the page cache.

        paced: where the system can, one piece after another, each waited for: a sync of another file that comes
        meanwhile stands behind one piece at the device, and not behind all of this.
        """
        self.write(buffers, position)

    def write_synced(self, buffers: Sequence[Buffer], position: int) -> None:
        """Like write() and then sync(), but earlier writes need not be on the device when it returns."""
        self.write(buffers, position)
        self.sync()

    def write_blocks_synced(self, buffers: Sequence[Buffer], position: int, size_bytes: int) -> bool:
        """Write size_bytes of whole blocks over bytes that the file has, and return when they are on the device.

        Nothing else need be there then. They are copied with the interpreter's lock held. False: it cannot be done this
        way, and any part may be written. Raises: OSError, which means what one of `sync` means, for these bytes alone.
        """
        return False

    def read(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def read_cached(self, size: int, position: int) -> Buffer | None:
        """Like read(), but returns None if that would wait for the device. Where the system cannot tell, it reads."""
        ...

    def in_memory(self, size: int, position: int) -> bool:
        """Return whether all these bytes are in the page cache. False where the system cannot tell."""
        return False

    def send(self, socket_fd: int, size: int, position: int) -> int:
        """Send `size` bytes from `position` to a socket, uncopied. Returns how many it took; 0: the file ends there.

        Raises: BlockingIOError if it takes none now; OSError of the socket or the file, or where this is not possible.
        """
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), self.path)

    def direct_fileno(self) -> int:
        """Return a descriptor for O_DIRECT writes, which this file closes. Raises: OSError, if none can be opened."""
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), self.path)

    def size(self) -> int:
        """Return the size in bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to this size, or extend it with NULs."""
        ...

    def sync(self) -> None:
        """Return when all bytes written before, and the size, are on the device. After an OSError they never are.

        Never DiskFull, after which a caller may try again: delayed allocation can run out of space here, and then the
        bytes are lost all the same.
        """
        ...

    def close(self) -> None:
        """Close the file without a sync. Idempotent."""
        ...


class Disk(Protocol):
    """A file system. Missing paths raise FileNotFoundError, as in `os`."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file for reading and writing; `create` makes an empty one if there is none."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether the path exists. Raises OSError if that cannot be determined, like all methods that look."""
        ...

    def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory; False if it does not exist."""
        ...

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents. Does nothing if it exists."""
        ...

    def make_temporary_directory(self, prefix: str) -> str:
        """Make a new directory for files that need not outlive the process. Returns its path."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; replaces `new` if it exists."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file. Raises OSError."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all it holds; of a symbolic link to one, only the link."""
        ...

    def size(self, path: str) -> int:
        """Return a file's size in bytes. Raises OSError."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when all creates, renames and unlinks in this directory are on the device.

        Raises CannotOpen; any other OSError as File.sync.
        """
        ...

    def sync_all(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        """Do sync() for each file and sync_directory() for each directory, much faster than one by one.

        Raises the OSError of one that failed; the others are then in doubt too. CannotOpen, if no sync failed.
        """
        ...

    def free_bytes(self, path: str) -> int:
        """Return how many bytes this process may still write on the volume that holds `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """Return the size of the volume that holds `path`."""
        ...

    def lock(self, path: str, *, read_only: bool = False) -> Lock:
        """Hold this file, created if needed, and its directory, until released or the process ends.

        read_only: where nothing can be written: the file is held if there is one that can be opened.

        Until then all paths below the directory lead to what is held, though it is moved; and what would make, replace
        or remove something there, or asks for free_bytes, raises DirectoryMoved then. Raises: AlreadyLocked, OSError.
        """
        ...

    def hold(self, directory: str) -> Lock:
        """Hold a directory as lock() does, even if another process has locked it. Raises: OSError."""
        ...

    def executor(self, name: str, threads: int = 1) -> Executor:
        """Start an executor. Raises: CannotStartThread."""
        ...

    def async_writer(self) -> AsyncWriter | None:
        """Return a writer that begins synced writes on the running loop; None where this disk has none."""
        return None

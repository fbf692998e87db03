"""The interfaces Disk and File, for the system's disk and for simulated ones.

The rule: a call has either done all it says or raised. Nothing is durable before `sync` (bytes) and `sync_directory`
(names: a create, rename or unlink). The calls block, and are thread-safe on different files; no state is kept except
descriptors.
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
    """An open file. Positions and sizes are in bytes. The caller closes it, once no job in a thread uses it any
    more.
    """

    @property
    def path(self) -> str:
        """The path by which the file was opened; a rename does not change it."""
        ...

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all bytes of all buffers, one after another, from `position` on.

        Raises DiskFull or OSError, and then any part may be written. The caller should cut large writes into slices.
        """
        ...

    def write_past_cache(self, buffers: Sequence[Buffer], position: int, *, paced: bool = False) -> None:
        """Like write(), for large data that is seldom read back: it does not fill the page cache if the system can
        avoid that.

        paced: give the device one piece after another, and wait for each, so that a sync of another file meanwhile
        waits for one piece only.
        """
        self.write(buffers, position)

    def write_synced(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write, and return when these bytes are on the device. Earlier writes need not be there."""
        self.write(buffers, position)
        self.sync()

    def write_blocks_synced(self, buffers: Sequence[Buffer], position: int, size_bytes: int) -> bool:
        """Write size_bytes of whole blocks over existing bytes of the file, and return True when they are on the
        device.

        Earlier writes need not be there. The buffers are copied with the interpreter's lock held. Returns False if it
        cannot be done this way; any part may be written then. An OSError means the same as an error of sync(), for
        these bytes alone.
        """
        return False

    def read(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position` on; fewer only at the end of the file."""
        ...

    def read_cached(self, size: int, position: int) -> Buffer | None:
        """Like read(), but return None if that would wait for the device. A system that cannot tell reads all the
        same.
        """
        ...

    def in_memory(self, size: int, position: int) -> bool:
        """Return whether all these bytes are in the page cache. False if the system cannot tell."""
        return False

    def send(self, socket_fd: int, size: int, position: int) -> int:
        """Send `size` bytes from `position` on to a socket without copying them. Returns how many bytes the socket
        took; 0 at the file's end.

        Raises BlockingIOError if the socket takes none now; OSError of the socket or the file, or if this is not
        possible.
        """
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), self.path)

    def direct_fileno(self) -> int:
        """Return a descriptor for O_DIRECT writes, which this file closes. Raises OSError if none can be opened."""
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), self.path)

    def size(self) -> int:
        """Return the size in bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to this size, or extend it with NUL bytes."""
        ...

    def sync(self) -> None:
        """Return when all bytes written before, and the size, are on the device. After an OSError they may never be.

        Never raises DiskFull, after which a caller may try again: if space runs out during a sync (delayed allocation),
        bytes that were already counted as written are lost.
        """
        ...

    def close(self) -> None:
        """Close the file without a sync. May be called again."""
        ...


class Disk(Protocol):
    """A file system. Missing paths raise FileNotFoundError, as in `os`."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file for reading and writing, or only for reading. create: make an empty one if it does not exist."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether the path exists. Raises OSError if that cannot be determined, like all methods that only
        read.
        """
        ...

    def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory; False if it does not exist."""
        ...

    def list(self, path: str) -> list[str]:
        """Return the names of the entries of a directory, sorted."""
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
        """Remove a directory and everything in it; of a symbolic link to a directory, only the link."""
        ...

    def size(self, path: str) -> int:
        """Return the size of a file in bytes. Raises OSError."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when all creations, renames and removals in this directory are on the device.

        Raises CannotOpen; any other OSError means the same as an error of File.sync.
        """
        ...

    def sync_all(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        """Sync each file and each directory, much faster than one by one.

        Raises the OSError of one that failed; the others may not be durable then either. Raises CannotOpen only if no
        sync failed.
        """
        ...

    def free_bytes(self, path: str) -> int:
        """Return how many bytes this process may still write to the volume of `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """Return the size in bytes of the volume of `path`."""
        ...

    def lock(self, path: str, *, read_only: bool = False) -> Lock:
        """Lock this file, which is created if need be, and its directory, until the lock is released or the process
        ends.

        Until then all paths below the directory lead to the locked one, even if it is moved; DirectoryMoved is raised
        then by free_bytes() and by all methods that create, replace or remove something there. read_only: for a disk
        that cannot be written to: the file is locked only if it exists and can be opened. Raises AlreadyLocked,
        OSError.
        """
        ...

    def hold(self, directory: str) -> Lock:
        """Reach this directory by its descriptor until the returned Lock is released, as with lock(). Nothing is
        locked, so another process may have the lock. Raises OSError.
        """
        ...

    def executor(self, name: str, threads: int = 1) -> Executor:
        """Start an executor with this name for its threads. Raises CannotStartThread."""
        ...

    def async_writer(self) -> AsyncWriter | None:
        """Return a writer that begins synced writes on the running loop; None if this disk has none."""
        return None

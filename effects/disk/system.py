"""The operating system's disk: files and locked directories, each reached by its descriptor.

Source: Linux `pwritev2(2)`, `preadv2(2)`, `sendfile(2)`, `fdatasync(2)`, `syncfs(2)`; macOS `fcntl(2)` on F_FULLFSYNC.
"""

import asyncio
import contextlib
import errno
import fcntl
import functools
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence

from ..disk_errors import NO_SPACE, DiskFull, convert_errors
from ..gathering import Buffer
from ..threads import Executor, ThreadExecutor
from . import direct, many_syncs, page_cache, writing
from .async_writer import AsyncWriter
from .held import HeldDirectories, make_below
from .interface import Disk, File
from .locks import Lock, SystemHold, SystemLock

FILE_MODE = 0o640
DIRECTORY_MODE = 0o750
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


def flush_to_device(fd: int, flush: Callable[[int], None]) -> None:
    """Make the file's bytes durable, by `flush`, or F_FULLFSYNC on macOS, whose fsync leaves bytes in the drive's
    cache.
    """
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError as error:
            # Not every file system has F_FULLFSYNC (SMB, some FUSE). After EIO and the like no fsync is tried: if it
            # succeeded, it would hide that bytes are lost.
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(fd)
    else:
        flush(fd)


def _sync_data(fd: int) -> None:
    """Call fdatasync(2), or fsync(2) on macOS, where CPython has no fdatasync."""
    getattr(os, "fdatasync", os.fsync)(fd)


class SystemFile(File):
    """A file of the system. Interrupted calls (EINTR) are repeated by Python itself (PEP 475)."""

    __slots__ = ("_direct_fd", "_fd", "_path", "_takes_blocks")

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._direct_fd = -1
        self._takes_blocks = True  # False once an O_DIRECT write has failed

    @property
    def path(self) -> str:
        return self._path

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers, one after another, from `position` on. Raises DiskFull, OSError."""
        try:
            writing.write(self._fd, buffers, position)
        except OSError as error:
            raise self._with_path(error) from None

    def write_past_cache(self, buffers: Sequence[Buffer], position: int, *, paced: bool = False) -> None:
        """Write all buffers, without filling the page cache if the system can. Raises DiskFull, OSError."""
        try:
            writing.write_past_cache(self._fd, buffers, position, paced=paced)
        except OSError as error:
            raise self._with_path(error) from None

    def write_synced(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write, and return when these bytes are on the device. Raises DiskFull, OSError."""
        self.write(buffers, position)  # may raise DiskFull; below, an error is a failed sync
        try:
            if writing.write_synced(self._fd, buffers, position):
                return
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from None
        self.sync()

    def write_blocks_synced(self, buffers: Sequence[Buffer], position: int, size_bytes: int) -> bool:
        """Write whole blocks over existing bytes, and return True when they are on the device. False if that is not
        possible. Raises OSError.
        """
        if not self._takes_blocks:
            return False
        try:
            fd = self.direct_fileno()
        except OSError:
            self._takes_blocks = False
            return False
        try:
            self._takes_blocks = writing.write_blocks_synced(fd, buffers, position, size_bytes)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from None
        return self._takes_blocks

    def read(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer only at the end of the file."""
        try:
            chunk = os.pread(self._fd, size, position)
            if len(chunk) == size or not chunk:
                return chunk
            chunks = [chunk]
            while chunk and (size := size - len(chunk)):
                position += len(chunk)
                chunks.append(chunk := os.pread(self._fd, size, position))
            return b"".join(chunks)
        except OSError as error:
            raise self._with_path(error) from None

    def read_cached(self, size: int, position: int) -> Buffer | None:
        """Like read(), but return None if that would wait for the device. A system that cannot tell reads all the
        same.
        """
        if not _NOWAIT:
            return self.read(size, position)
        buffer = memoryview(bytearray(size))
        filled = 0
        try:
            # A short read is the end of the file (the next gives 0) or of what is cached (the next gives EAGAIN).
            while filled < size and (count := os.preadv(self._fd, [buffer[filled:]], position + filled, _NOWAIT)):
                filled += count
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise self._with_path(error) from None
            return self.read(size, position)
        return buffer[:filled]

    def in_memory(self, size: int, position: int) -> bool:
        return page_cache.holds(self._fd, size, position)

    def send(self, socket_fd: int, size: int, position: int) -> int:
        return os.sendfile(socket_fd, self._fd, position, size)

    def direct_fileno(self) -> int:
        """Return a descriptor for O_DIRECT writes, which close() closes. Raises OSError."""
        if self._direct_fd < 0:
            self._direct_fd = direct.open_again(self._fd)
        return self._direct_fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise self._with_path(error) from None

    def sync(self) -> None:
        """Return when all that was written is on the device. Raises OSError, but never DiskFull."""
        try:
            flush_to_device(self._fd, _sync_data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from None

    def close(self) -> None:
        fds = self._fd, self._direct_fd
        self._fd = self._direct_fd = -1
        for fd in fds:
            if fd >= 0:
                with contextlib.suppress(OSError):  # it is closed all the same, and what must be durable was synced
                    os.close(fd)

    def fileno(self) -> int:
        """Return the descriptor, which this file still closes."""
        return self._fd

    def detach(self) -> int:
        """Return the descriptor, which the caller has to close from now on."""
        fd, self._fd = self._fd, -1
        return fd

    def _with_path(self, error: OSError) -> OSError:
        """Return the same error with the file's name; DiskFull if it means that no space is left."""
        kind = DiskFull if error.errno in NO_SPACE else OSError
        return kind(error.errno, error.strerror, self._path)


class SystemDisk(Disk):
    """The machine's file system."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = HeldDirectories()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file. create: make an empty one if it does not exist. Raises OSError, such as CannotOpen."""
        access = os.O_RDONLY if read_only else os.O_RDWR
        name, at = self._held.find_to_change(path) if create else self._held.find(path)
        with convert_errors(path):
            return SystemFile(path, os.open(name, access | os.O_CREAT if create else access, FILE_MODE, dir_fd=at))

    def exists(self, path: str) -> bool:
        return self._mode(path) is not None

    def is_directory(self, path: str) -> bool:
        mode = self._mode(path)
        return mode is not None and stat.S_ISDIR(mode)

    def _mode(self, path: str) -> int | None:
        """Return the path's st_mode; None if it does not exist. os.path.exists would hide that access is denied."""
        name, at = self._held.find(path)
        try:
            with convert_errors(path):
                return os.stat(name, dir_fd=at).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        fd = self._open_directory(path)
        try:
            with convert_errors(path):
                return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def _open_directory(self, path: str) -> int:
        """Open a directory. Returns its descriptor, which the caller closes."""
        name, at = self._held.find(path)
        with convert_errors(path):
            return os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents. Does nothing if it exists."""
        name, at = self._held.find_to_change(path)
        with convert_errors(path):
            if at is None:
                os.makedirs(name, DIRECTORY_MODE, exist_ok=True)
            else:
                make_below(name, DIRECTORY_MODE, at)

    def make_temporary_directory(self, prefix: str) -> str:
        return tempfile.mkdtemp(prefix=prefix)

    def rename(self, old: str, new: str) -> None:
        name, at = self._held.find_to_change(old)
        new_name, new_at = self._held.find_to_change(new)
        with convert_errors(old):
            os.replace(name, new_name, src_dir_fd=at, dst_dir_fd=new_at)

    def unlink(self, path: str) -> None:
        name, at = self._held.find_to_change(path)
        with convert_errors(path):  # even this may find a copy-on-write disk full
            os.unlink(name, dir_fd=at)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything in it; of a symbolic link, only the link."""
        name, at = self._held.find_to_change(path)
        with convert_errors(path):
            if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=at)  # keep the directory that it leads to
            else:
                shutil.rmtree(name, dir_fd=at)

    def size(self, path: str) -> int:
        name, at = self._held.find(path)
        with convert_errors(path):
            return os.stat(name, dir_fd=at).st_size

    def sync_directory(self, path: str) -> None:
        """Return when all creations, renames and removals in the directory are on the device. Raises OSError."""
        fd = self._open_directory(path)
        try:
            # Not fdatasync: ext4 may leave out a new name that did not make the directory longer.
            flush_to_device(fd, os.fsync)
        finally:
            os.close(fd)

    def sync_all(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        """Sync all these files and directories, in several threads if they are many."""
        syncs: list[Callable[[], None]] = [file.sync for file in files]
        syncs += [functools.partial(self.sync_directory, path) for path in directories]
        many_syncs.run_syncs(syncs, lambda: self._write_back(files, directories))

    def _write_back(self, files: Sequence[File], directories: Sequence[str]) -> None:
        """Begin to write this volume's dirty pages to the device, so that each sync after it has little to do.

        It is only a hint: it guarantees nothing, and its errors are not failed syncs. A file is not opened by name,
        because it may have been deleted. An error of a write-back is not lost: Linux reports it to the fdatasync of
        each descriptor that was open then. 4,000 syncs over 2,000 logs: 0.4 s, instead of 1.3.
        """
        syncfs = many_syncs.syncfs()
        if syncfs is None:
            return
        for file in files:
            if isinstance(file, SystemFile):
                syncfs(file.fileno())
                return
        for path in directories[:1]:
            with contextlib.suppress(OSError):
                fd = self._open_directory(path)
                try:
                    syncfs(fd)
                finally:
                    os.close(fd)

    def free_bytes(self, path: str) -> int:
        """Return how many bytes this process may still write there. Raises DirectoryMoved."""
        _, at = self._held.find_to_change(path)  # nothing is changed, but here a moved directory is noticed in time
        volume = os.statvfs(path if at is None else at)
        return volume.f_bavail * volume.f_frsize

    def total_bytes(self, path: str) -> int:
        _, at = self._held.find(path)
        volume = os.statvfs(path if at is None else at)
        return volume.f_blocks * volume.f_frsize

    def lock(self, path: str, *, read_only: bool = False) -> Lock:
        """Lock a file and its directory, and reach the directory by its descriptor from now on. Raises
        AlreadyLocked.
        """
        directory = os.path.dirname(path) or "."
        lock = SystemLock(path, lambda: self._held.remove(directory), read_only=read_only)
        self._held.add(directory, lock.directory_fd)
        return lock

    def hold(self, directory: str) -> Lock:
        """Reach this directory by its descriptor from now on, without a lock."""
        hold = SystemHold(directory, lambda: self._held.remove(directory))
        self._held.add(directory, hold.directory_fd)
        return hold

    def executor(self, name: str, threads: int = 1) -> Executor:
        return ThreadExecutor(name, threads)

    def async_writer(self) -> AsyncWriter | None:
        """Return a writer that begins synced writes on the running loop; None if the system has none."""
        from . import aio  # takes some ms, so only a broker imports it

        return aio.open_writer(asyncio.get_running_loop())

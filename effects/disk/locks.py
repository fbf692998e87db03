"""Locks of files, so that only one process at a time uses a data directory.

The rule: the kernel holds the lock, so it ends with the process, however the process ends. Source: Linux `flock(2)`.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable
from typing import Protocol

from .. import forks
from ..disk_errors import convert_errors

LOCK_MODE = 0o600


class AlreadyLocked(Exception):
    """Raised if another process has the lock. pid: the process id in the file; None if the file has none."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(f"{path} is locked by {'another process' if pid is None else f'process {pid}'}")
        self.path = path
        self.pid = pid


class Lock(Protocol):
    def release(self) -> None:
        """Release the lock. The file stays. May be called again."""
        ...


class SystemHold(Lock):
    """A directory that is open but not locked, so that reads go to the same directory even if it is moved."""

    __slots__ = ("_before_release", "directory_fd")

    def __init__(self, directory: str, before_release: Callable[[], None]) -> None:
        self._before_release = before_release
        with convert_errors(directory):
            self.directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)

    def release(self) -> None:
        """Close the directory. Does nothing the second time."""
        fd, self.directory_fd = self.directory_fd, -1
        if fd >= 0:
            self._before_release()
            os.close(fd)


class SystemLock(Lock):
    """A lock by flock(2) on a file, which names the process, and on the file's directory, in case the file is removed.

    The kernel releases it when the process ends, whatever the file contains.
    """

    __slots__ = ("_before_release", "_fds")

    def __init__(
        self, path: str, before_release: Callable[[], None] = lambda: None, *, read_only: bool = False
    ) -> None:
        """Take the lock. before_release: called while the directory is still open. read_only: as in Disk.lock.

        Raises AlreadyLocked, OSError.
        """
        self._before_release = before_release
        directory, name = os.path.split(path)
        self._fds = [os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY)]  # the directory, then the file if any
        try:
            with convert_errors(path):
                file = self._open_file(name, read_only)
            self._lock(path, file)
            if file is not None and not read_only:
                os.ftruncate(file, 0)
                os.pwrite(file, b"%d\n" % os.getpid(), 0)
        except BaseException:
            self._close()
            raise
        for each in self._fds:
            forks.keep_from_children(each)

    def _open_file(self, name: str, read_only: bool) -> int | None:
        """Open the file in the directory that is open already, because the path may lead to another one by now.
        Returns None if `read_only` and the file does not exist or may not be opened.
        """
        try:
            access = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT
            self._fds.append(fd := os.open(name, access, LOCK_MODE, dir_fd=self.directory_fd))
        except (FileNotFoundError, PermissionError):
            if not read_only:
                raise
            return None
        return fd

    def _lock(self, path: str, file: int | None) -> None:
        """Lock the file, if there is one, and the directory. Raises AlreadyLocked."""
        try:
            if file is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock_directory()
        except BlockingIOError:
            holder = os.pread(file, 32, 0).strip() if file is not None else b""
            raise AlreadyLocked(path, int(holder) if holder.isdigit() else None) from None

    def _lock_directory(self) -> None:
        """Lock the directory, if its file system can do that. Raises BlockingIOError if another process has it."""
        try:
            fcntl.flock(self.directory_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # not every file system can: NFS wants a descriptor that may be written to

    @property
    def directory_fd(self) -> int:
        """Return the descriptor of the directory. Valid until the release."""
        return self._fds[0]

    def release(self) -> None:
        """Release the lock, and empty the file. Does nothing the second time."""
        if not self._fds:
            return
        self._before_release()
        for fd in self._fds[1:]:
            with contextlib.suppress(OSError):  # the file system may have failed; its content is only for people
                os.ftruncate(fd, 0)
        for fd in self._fds:
            forks.forget(fd)
            with contextlib.suppress(OSError):  # if it was not locked
                fcntl.flock(fd, fcntl.LOCK_UN)  # else a child with a copy of the descriptor keeps the lock
        self._close()

    def _close(self) -> None:
        """Close all descriptors."""
        while self._fds:
            with contextlib.suppress(OSError):  # the descriptor is closed all the same
                os.close(self._fds.pop())

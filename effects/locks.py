"""Locks of files: one process at a time has a data directory.

The rule: the kernel holds it, so it ends with the process, however that ends. Source: Linux `flock(2)`.
"""

import contextlib
import fcntl
import os
from typing import Protocol

from . import forks

LOCK_MODE = 0o600


class AlreadyLocked(Exception):
    """Another holder has the lock; `pid` is the process it wrote down, None if it wrote none yet."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(f"{path} is locked by {'another process' if pid is None else f'process {pid}'}")
        self.path = path
        self.pid = pid


class Lock(Protocol):
    def release(self) -> None:
        """Idempotent. The file stays."""
        ...


class SystemLock(Lock):
    """flock on a file that says who holds it, and on its directory, which stays when somebody removes the file.

    The kernel releases it when the process ends, whatever the file contains.
    """

    __slots__ = ("_fds",)

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, LOCK_MODE)
        self._fds = [fd]
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._fds.append(os.open(os.path.dirname(path) or ".", os.O_RDONLY))
            self._lock_directory()
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).strip()
            self._close()
            raise AlreadyLocked(path, int(holder) if holder.isdigit() else None) from None
        except BaseException:
            self._close()
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        for each in self._fds:
            forks.keep_from_children(each)

    def _lock_directory(self) -> None:
        try:
            fcntl.flock(self._fds[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # not every file system can: NFS wants a descriptor that may be written to

    def release(self) -> None:
        if self._fds:
            os.ftruncate(self._fds[0], 0)
        for fd in self._fds:
            forks.forget(fd)
            with contextlib.suppress(OSError):  # that could not be locked
                fcntl.flock(fd, fcntl.LOCK_UN)  # else it is held for as long as any child has a copy of the descriptor
        self._close()

    def _close(self) -> None:
        while self._fds:
            os.close(self._fds.pop())

"""The machine's disk with simulated power cuts: unsynced changes of real files can be undone.

The rule: there is one way to write, through the page cache, and one to sync; without `syncs` no device is ever waited
for. Before bytes are overwritten they are remembered, until a sync makes the change durable. After `vanish` every
change raises, as if the process were gone; `forget` then undoes all changes that were not synced, except that of the
first such change in each file some sectors stay, chosen by the seed (a torn write). Names (creates, renames, unlinks)
are not undone, which is one of the possible results of a power cut; effects/simulated/disk.py simulates the others.
"""

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..disk import AsyncWriter, Buffer, Executor, File, Lock, SystemDisk, SystemFile
from .torn import SECTOR_BYTES


class DiskGone(OSError):
    """Raised if a process that was killed (vanish() was called) uses its disk: nothing changes on it any more."""


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """One write or truncation that is not synced yet: the bytes that were there before, and the file's size then."""

    position: int
    before: bytes
    size_before: int


@dataclass(slots=True, eq=False)
class _Unsynced:
    """The unsynced changes of one file. path: None once the file has no name."""

    path: str | None
    changes: list[_Change] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class ForgetfulFile(SystemFile):
    """A real file that records how to undo its unsynced changes."""

    __slots__ = ("_disk", "_unsynced")

    def __init__(self, disk: "ForgetfulDisk", path: str, fd: int, unsynced: _Unsynced) -> None:
        super().__init__(path, fd)
        self._disk = disk
        self._unsynced = unsynced

    def write(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write the buffers, and record what they replace. Raises DiskGone."""
        with self._unsynced.lock:
            self._disk.check()
            self._remember(position, sum(map(len, buffers)))
            super().write(buffers, position)

    def write_past_cache(self, buffers: Sequence[Buffer], position: int, *, paced: bool = False) -> None:
        self.write(buffers, position)

    def write_synced(self, buffers: Sequence[Buffer], position: int) -> None:
        self.write(buffers, position)
        self.sync()

    def write_blocks_synced(self, buffers: Sequence[Buffer], position: int, size_bytes: int) -> bool:
        return False

    def truncate(self, size: int) -> None:
        """Cut or extend the file, and record what that removes. Raises DiskGone."""
        with self._unsynced.lock:
            self._disk.check()
            self._remember(size, max(0, self.size() - size))
            super().truncate(size)

    def sync(self) -> None:
        """Make all changes before this call durable: they cannot be undone any more. Raises DiskGone."""
        with self._unsynced.lock:
            covered = len(self._unsynced.changes)
        self._disk.check_sync(self.path)
        if self._disk.syncs:
            super().sync()
        with self._unsynced.lock:
            self._disk.check()
            del self._unsynced.changes[:covered]

    def close(self) -> None:
        self._disk.note_closed(self)
        super().close()

    def _remember(self, position: int, length: int) -> None:
        """Record the bytes that a change of this range will replace, and the file's size."""
        size = self.size()
        before = self.read(min(length, size - position), position) if position < size else b""
        self._unsynced.changes.append(_Change(position, before, size))


class ForgetfulDisk(SystemDisk):
    """A real disk with simulated power cuts, for one process. The next process uses a new ForgetfulDisk on the same
    files.
    """

    def __init__(self, *, syncs: bool = True, seed: int = 0) -> None:
        """syncs: whether syncs are passed to the device; needed only for data that must survive a real power cut.

        seed: of the choice of sectors that are lost.
        """
        super().__init__()
        self.syncs = syncs
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self._gone = False  # vanish() was called
        self._files: dict[str, _Unsynced] = {}  # by path
        self._open: set[ForgetfulFile] = set()
        self._locks: list[Lock] = []
        self._executors: list[Executor] = []
        self._failing: Callable[[str], bool] | None = None  # matches the path whose next sync fails

    # ---- what every disk does --------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file that records how to undo its unsynced changes. Raises DiskGone after vanish()."""
        self.check()
        opened = super().open(path, create=create, read_only=read_only)
        assert isinstance(opened, SystemFile)
        with self._lock:
            unsynced = self._files.setdefault(path, _Unsynced(path))
            file = ForgetfulFile(self, path, opened.detach(), unsynced)
            self._open.add(file)
        return file

    def rename(self, old: str, new: str) -> None:
        """Rename, and let the unsynced changes follow. A simulated power cut does not undo a rename. Raises DiskGone
        after vanish().
        """
        self.check()
        with self._lock:
            super().rename(old, new)
            self._untrack_below(new)
            for path in [path for path in self._files if _is_below(path, old)]:
                unsynced = self._files.pop(path)
                unsynced.path = new + path[len(old) :]
                self._files[unsynced.path] = unsynced

    def unlink(self, path: str) -> None:
        """Remove a file, and stop tracking its unsynced changes: a simulated power cut does not undo a removal.
        Raises DiskGone after vanish().
        """
        self.check()
        with self._lock:
            super().unlink(path)
            self._untrack_below(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory, and stop tracking the unsynced changes in it: a simulated power cut does not undo a
        removal. Raises DiskGone after vanish().
        """
        self.check()
        with self._lock:
            super().remove_tree(path)
            self._untrack_below(path)

    def sync_directory(self, path: str) -> None:
        """Sync the directory, if syncs are passed to the device. Raises DiskGone after vanish()."""
        self.check_sync(path)
        if self.syncs:
            super().sync_directory(path)
        self.check()

    def sync_all(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        """Sync all these files and directories. Raises DiskGone after vanish()."""
        if self.syncs:
            super().sync_all(files, directories)
            return
        for file in files:
            file.sync()
        for path in directories:
            self.sync_directory(path)

    def lock(self, path: str, *, read_only: bool = False) -> Lock:
        """Lock the file and its directory; forget() releases the lock. Raises AlreadyLocked; DiskGone after
        vanish().
        """
        self.check()
        lock = super().lock(path, read_only=read_only)
        self._locks.append(lock)
        return lock

    def executor(self, name: str, threads: int = 1) -> Executor:
        executor = super().executor(name, threads)
        self._executors.append(executor)
        return executor

    def async_writer(self) -> AsyncWriter | None:
        return None

    # ---- what goes wrong -------------------------------------------------------------------------------------

    def fail_sync(self, matches: Callable[[str], bool] = lambda path: True) -> None:
        """Make the next sync of a matching path fail; the writes that it should make durable stay unsynced."""
        self._failing = matches

    def vanish(self) -> None:
        """Let every call that would change the disk raise DiskGone from now on."""
        self._gone = True

    def forget(self) -> None:
        """Undo all unsynced changes, and close all files. To be called after vanish(), when no thread uses the disk."""
        assert self._gone
        for executor in self._executors:
            executor.close()
        for file in list(self._open):
            file.close()
        for path in sorted(self._files):
            self._undo(self._files[path])
        for lock in self._locks:
            lock.release()

    def _undo(self, unsynced: _Unsynced) -> None:
        """Undo the unsynced changes of one file; of the first one, some sectors may stay."""
        if not unsynced.changes or unsynced.path is None or not self.exists(unsynced.path):
            return
        name, at = self._held.find(unsynced.path)
        fd = os.open(name, os.O_RDWR, dir_fd=at)
        try:
            for change in reversed(unsynced.changes[1:]):
                _take_back(fd, change)
            self._tear(fd, unsynced.changes[0])
        finally:
            os.close(fd)
        unsynced.changes.clear()

    def _tear(self, fd: int, change: _Change) -> None:
        """Undo a change, but keep some of its sectors, chosen at random. At least one sector is lost."""
        torn = os.pread(fd, max(0, os.fstat(fd).st_size - change.position), change.position)
        _take_back(fd, change)
        starts = range(0, len(torn), SECTOR_BYTES)
        lost = self._rng.randrange(len(starts) or 1)
        for number, start in enumerate(starts):
            if number != lost and self._rng.random() < 0.5:
                os.pwrite(fd, torn[start : start + SECTOR_BYTES], change.position + start)

    # ---- what its files ask ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise DiskGone after vanish()."""
        if self._gone:
            raise DiskGone(errno.ENODEV, "the broker was killed")

    def check_sync(self, path: str) -> None:
        """Raise DiskGone after vanish(), or, once, the OSError that fail_sync() asked for. Called before a sync."""
        self.check()
        failing = self._failing
        if failing is not None and failing(path):
            self._failing = None
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def note_closed(self, file: ForgetfulFile) -> None:
        self._open.discard(file)

    def _untrack_below(self, path: str) -> None:
        """Stop tracking the unsynced changes of the file at this path, or of all files below it, because their names
        are gone.
        """
        for gone in [known for known in self._files if _is_below(known, path)]:
            self._files.pop(gone).path = None


def _is_below(path: str, above: str) -> bool:
    """Return whether the paths are equal, or `path` is below the directory `above`."""
    return path == above or path.startswith(above.rstrip("/") + "/")


def _take_back(fd: int, change: _Change) -> None:
    """Undo one change of the open file."""
    if change.before:
        os.pwrite(fd, change.before, change.position)
    os.ftruncate(fd, change.size_before)

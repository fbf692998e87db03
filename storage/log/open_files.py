"""The open files of all logs: opened when first needed, a limited number, the longest unused closed first.

Two rules. A file in use is never closed, since its descriptor's number could become another file's under a worker that
reads. A file with unsynced bytes is synced before it is closed: a failed write-back is reported only to descriptors
that were open when it failed, so closing first could turn an error into a successful sync (Linux errseq, "fsyncgate").
Used from the loop and from workers; the lock covers the bookkeeping, never a call to the disk.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from ...effects.disk import CannotOpen, Disk, File
from ..sync_once import SyncOnce
from .index import IndexCache

LENT, LENT_SHARE = 64, 16  # files lent at one time: at most LENT, or a LENT_SHARE-th of the limit
LEAST_OPEN = 16  # give_way() makes the limit no lower


class OpenFile:
    """One open file. As a context manager, it stands for one use of the file, which ends with the block."""

    __slots__ = ("dirty", "file", "forgotten", "lent", "path", "pins", "pool")

    def __init__(self, pool: "OpenFiles", path: str, file: File) -> None:
        self.pool = pool
        self.path = path
        self.file = file
        self.pins = 0  # uses that have not ended
        self.lent = 0  # how many of the pins lend() made; these last as long as a client takes to read
        self.dirty = 0  # counts writes since the last sync, so that a write during a sync stays unsynced
        self.forgotten = False

    def __enter__(self) -> File:
        return self.file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """End one use of the file that use() or use_if_open() began."""
        self.pool._release(self)

    def give_back(self) -> None:
        """End one use of the file that lend() began."""
        self.pool._release(self, lent=True)

    def abandon(self) -> None:
        """End one use of the file that lend() began. Called by __del__, so it only makes a note: it takes effect when
        the next use of any file ends.

        The garbage collector may call it in any thread, even one that holds the lock.
        """
        self.pool._abandoned.append(self)


class OpenFiles:
    """A bounded pool of open files by path. There are more than the bound only while all of them are in use or
    unsynced, plus up to LENT files that were lent and forgotten.
    """

    def __init__(self, disk: Disk, limit: int) -> None:
        """limit: how many files may be open at a time."""
        self.disk = disk
        self.limit = limit
        self.indexes = IndexCache()
        self._entries: OrderedDict[str, OpenFile] = OrderedDict()  # the longest unused first
        self._idle: OrderedDict[str, OpenFile] = OrderedDict()  # of these, those that may be closed
        self._lock = threading.Lock()
        self._syncs = SyncOnce()
        self._lent = 0  # how many files are lent
        self._abandoned: deque[OpenFile] = deque()  # one for each use that is to be released

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def sync_failed(self) -> bool:
        """Whether a sync failed: what is on disk is unknown, and stays so."""
        return self._syncs.failed

    def use(self, path: str, *, create: bool = False) -> OpenFile:
        """Return the file at `path`, opened if need be, for a with block. Raises FileNotFoundError unless `create`."""
        return self.use_if_open(path) or self._open(path, create)

    def use_if_open(self, path: str) -> OpenFile | None:
        """Return the file at `path` for a with block if it is open already; else None, because opening it may wait for
        the device.
        """
        with self._lock:
            entry = self._entries.get(path)
            if entry is not None:
                entry.pins += 1
                self._entries.move_to_end(path)
                self._idle.pop(path, None)
            return entry

    def lend(self, path: str) -> OpenFile | None:
        """Return the file at `path` if it is open, for as long as a client takes to read it; the caller then calls
        give_back(). Returns None if it is not open, or most_lent() files are lent already.

        A lent file that is forgotten stays open, and does not count towards the limit.
        """
        entry = self.use_if_open(path)
        if entry is not None:
            with self._lock:
                if entry.lent or self._lent < most_lent(self.limit):
                    self._lent += not entry.lent
                    entry.lent += 1
                    return entry
            entry.release()
        return None

    def wrote(self, path: str) -> None:
        """Mark a file in use by the caller as unsynced."""
        with self._lock:
            self._entries[path].dirty += 1

    def sync(self, path: str) -> None:
        """Make the data written to this file durable. Raises OSError; it is then unknown what is on disk."""
        self.sync_all([path])

    def sync_all(self, paths: Sequence[str], directories: Sequence[str] = ()) -> None:
        """Make the data written to these files durable, and the names in these directories. Raises OSError; it is
        then unknown what is on disk.
        """
        # A file that is not open was synced when it was closed.
        entries = [entry for path in paths if (entry := self.use_if_open(path)) is not None]
        seen = [entry.dirty for entry in entries]
        with ExitStack() as uses:
            for entry in reversed(entries):  # their uses end in the reverse order: the longest unused is closed first
                uses.enter_context(entry)
            opened = [entry.file for entry in entries]
            self._syncs.run(lambda: self.disk.sync_all(opened, directories))
            with self._lock:
                for entry, dirty in zip(entries, seen, strict=True):
                    if entry.dirty == dirty:
                        entry.dirty = 0

    def make_room(self) -> None:
        """If too many files are open, sync unsynced ones so that they can be closed: as many as are above the limit,
        and half the limit more. Files in use are left out. Blocking: for workers that write. Raises OSError.
        """
        with self._lock:
            surplus = len(self._entries) - self.limit
            if surplus <= 0:
                return
            unsynced = [path for path, entry in self._entries.items() if entry.dirty and not entry.pins]
        self.sync_all(unsynced[: surplus + self.limit // 2])

    def give_way(self) -> None:
        """Halve the limit of open files, because the process has no descriptor left.

        Blocking: for workers. Raises as sync.
        """
        with self._lock:
            self.limit = max(min(self.limit, len(self._entries)) // 2, LEAST_OPEN)
        self.make_room()
        with self._lock:
            closing = self._surplus()
        for file in closing:
            file.close()

    def forget(self, path: str) -> None:
        """Close a file that is to be removed; if it is in use, at the end of its use."""
        with self._lock:
            entry = self._entries.pop(path, None)
            if entry is None:
                return
            self._idle.pop(path, None)
            entry.forgotten = True
            in_use = bool(entry.pins)
        if not in_use:
            entry.file.close()

    def forget_directory(self, directory: str) -> None:
        """Close all files of a folder that is to be removed."""
        prefix = directory + "/"
        with self._lock:
            paths = [path for path in self._entries if path.startswith(prefix)]
        for path in paths:
            self.forget(path)

    def close(self) -> None:
        """Close everything. What was not synced is left to the next recovery."""
        with self._lock:
            paths = list(self._entries)
        for path in paths:
            self.forget(path)
        self.indexes.clear()

    def _open(self, path: str, create: bool) -> OpenFile:
        """Open a file and keep it open for later uses. If file descriptors run out, others are closed first."""
        try:
            file = self.disk.open(path, create=create)
        except CannotOpen:
            self.give_way()
            file = self.disk.open(path, create=create)
        opened = OpenFile(self, path, file)
        with self._lock:
            entry = self._entries.setdefault(path, opened)
            entry.pins += 1
            self._idle.pop(path, None)
            closing = self._surplus()
        if entry is not opened:  # another thread was faster
            closing.append(opened.file)
        for file in closing:
            file.close()
        return entry

    def _release(self, entry: OpenFile, *, lent: bool = False) -> None:
        """End one use of a file, and close files above the limit. lent: it is a use that lend() began."""
        closing: list[File] = []
        with self._lock:
            closing += self._end_use(entry, lent)
            while self._abandoned:
                closing += self._end_use(self._abandoned.popleft(), True)
        for file in closing:
            file.close()

    def _end_use(self, entry: OpenFile, lent: bool) -> list[File]:
        """End one use of a file. Returns the files that the caller must close. The caller holds the lock."""
        if lent:
            entry.lent -= 1
            self._lent -= not entry.lent
        entry.pins -= 1
        if entry.pins:
            return []
        if entry.forgotten:
            return [entry.file]
        if entry.dirty:
            return []
        self._idle[entry.path] = entry
        return self._surplus()

    def _surplus(self) -> list[File]:
        """Remove synced files that nobody uses from the pool until it is within its limit, the least recently used
        first. Returns them, for the caller to close. The caller holds the lock.
        """
        closing: list[File] = []
        while len(self._entries) > self.limit and self._idle:
            path, entry = self._idle.popitem(last=False)
            del self._entries[path]
            closing.append(entry.file)
        return closing


def most_lent(limit: int) -> int:
    """Return how many files a pool with this limit may lend at a time. Those of them that are forgotten meanwhile stay
    open beyond the limit.
    """
    return min(LENT, limit // LENT_SHARE)

"""A disk in memory that loses unsynced data in a power cut, and whose contents can be found again as of any moment.

What it simulates: bytes and names that were not synced are readable after a process crash and gone after a power cut;
after a failed sync they are readable but lost, whatever later syncs return. A path is absolute or taken from the root;
a new disk has only the root. Everything is deterministic if one thread uses it. Several threads may use it, as long as
each has files of its own: their operations come one after the other, in any order.
"""

import errno
import itertools
import os
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..disk import AlreadyLocked, AsyncWriter, CannotOpen, Disk, File, Lock
from ..threads import Executor
from .cuts import Cut
from .executors import Latency, SimulatedExecutor
from .faults import Fault, Matches, os_error
from .file import SimulatedFile as SimulatedFile
from .history import History
from .locks import SimulatedHold, SimulatedLock
from .operations import (
    Link,
    List,
    Note,
    Open,
    Operation,
    Read,
    Rename,
    Stat,
    Sync,
    SyncDirectory,
    Truncate,
    Unlink,
    Unrecorded,
    Write,
)
from .paths import HeldInodes, check_replaceable, clean, parts
from .torn import Tear
from .volume import Volume
from .writer import SimulatedWriter

_ENDLESS_BYTES = 1 << 40  # what a disk without a capacity reports as free


class SimulatedDisk(Disk):
    """A disk in memory. `capacity_bytes`, `is_cold`, `latency`, `inline` and `quick` may be set at any time.

    `is_cold`: returns whether nothing of a path is in the page cache. `latency`: returns the times after which a job of
    an executor or writer made later takes effect and is reported. `inline`: executors made later ignore a running loop.
    `quick`: what their property `quick` returns. `at_once`: how many writes such a writer may have in flight; 0: the
    disk has no async writer. `begins_in_call`: a write is completely done when it begins, as on btrfs, so the writer
    soon begins none. `syncs_blocks`: a file can write and sync blocks in one call. With history=False operations are
    not kept: for long simulations, which need `after_power_cut` but not `at`.
    """

    def __init__(
        self,
        *,
        capacity_bytes: int | None = None,
        latency: Latency | None = None,
        inline: bool = False,
        history: bool = True,
        pid: int = 1,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.is_cold: Callable[[str], bool] = lambda path: False
        self.latency = latency
        self.inline = inline
        self.quick = False
        self.at_once = 0
        self.begins_in_call = False
        self.syncs_blocks = True
        self.pid = pid
        self._history = History(Volume(), keep=history)
        self._opened: dict[int, int] = {}  # by inode: how often it is open
        self._nameless: set[int] = set()  # inodes that are open and have no name any more
        self._locked: set[int] = set()  # inodes
        self._held = HeldInodes()
        self._faults: list[Fault] = []
        self._workers: list[SimulatedExecutor | SimulatedWriter] = []

    # What every disk does

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimulatedFile:
        if create:
            self._held.check_not_moved(path, self._seen)
        inode = self._lookup(path)
        if inode is None:
            if not create:
                self._existing(path)
            inode = self._link(path, is_directory=False)
        elif inode in self._seen.directories:
            raise os_error(errno.EISDIR, path)
        else:
            self._check_faults(Open, path)
        self._opened[inode] = self._opened.get(inode, 0) + 1
        return SimulatedFile(self, path, inode, read_only)

    def exists(self, path: str) -> bool:
        self._check_faults(Stat, path)
        return self._lookup(path) is not None

    def is_directory(self, path: str) -> bool:
        self._check_faults(Stat, path)
        return self._lookup(path) in self._seen.directories

    def list(self, path: str) -> list[str]:
        self._check_faults(List, path)
        return sorted(self._seen.directories[self._directory(path)])

    def make_directory(self, path: str) -> None:
        self._held.check_not_moved(path, self._seen)
        names, (_, below) = parts(path), self._held.locate(path)
        for depth in range(len(names) - len(below) + 1, len(names) + 1):
            inode = self._lookup("/".join(names[:depth]))
            if inode is None:
                self._link("/".join(names[:depth]), is_directory=True)
            elif inode not in self._seen.directories:
                raise os_error(errno.EEXIST if depth == len(names) else errno.ENOTDIR, path)

    def make_temporary_directory(self, prefix: str) -> str:
        path = f"/tmp/{prefix}{self._history.next_inode}"
        self.make_directory(path)
        return path

    def rename(self, old: str, new: str) -> None:
        for path in (old, new):
            self._held.check_not_moved(path, self._seen)
        self._place(old)
        new_directory, new_name = self._place(new)
        directory, name, inode = self._entry(old)
        replaced = self._seen.directories[new_directory].get(new_name)
        if replaced == inode:
            return
        if replaced is not None:
            check_replaceable(self._seen.directories, inode, replaced, new)
        self._perform(Rename(self.next_index, clean(new), directory, name, inode, new_directory, new_name))
        self._drop_nameless(replaced)

    def unlink(self, path: str) -> None:
        self._held.check_not_moved(path, self._seen)
        directory, name, inode = self._entry(path)
        if inode in self._seen.directories:
            raise os_error(errno.EISDIR, path)
        self._perform(Unlink(self.next_index, clean(path), directory, name, inode))
        self._drop_nameless(inode)

    def remove_tree(self, path: str) -> None:
        self._held.check_not_moved(path, self._seen)
        self._directory(path)
        for name in self.list(path):
            inner = f"{path}/{name}"
            if self.is_directory(inner):
                self.remove_tree(inner)
            else:
                self.unlink(inner)
        directory, name, inode = self._entry(path)
        self._perform(Unlink(self.next_index, clean(path), directory, name, inode))
        self._drop_nameless(inode)

    def size(self, path: str) -> int:
        self._check_faults(Stat, path)
        _, _, inode = self._entry(path)
        return 0 if inode in self._seen.directories else self._seen.content(inode).size

    def sync_directory(self, path: str) -> None:
        self._perform(SyncDirectory(self.next_index, clean(path), self._directory(path)))

    def sync_all(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        for file in files:
            file.sync()
        for path in directories:
            self.sync_directory(path)

    def free_bytes(self, path: str) -> int:
        self._held.check_not_moved(path, self._seen)
        self._existing(path)
        return _ENDLESS_BYTES if self.capacity_bytes is None else max(0, self.capacity_bytes - self._seen.used_bytes())

    def total_bytes(self, path: str) -> int:
        self._existing(path)
        return _ENDLESS_BYTES if self.capacity_bytes is None else self.capacity_bytes

    def lock(self, path: str, *, read_only: bool = False) -> Lock:
        directory = posixpath.dirname(clean(path))
        try:
            file = self.open(path, create=not read_only, read_only=read_only)
        except (FileNotFoundError, PermissionError):
            if not read_only:
                raise
            file = None
        inodes = (self._directory(directory), *([file.inode] if file else []))
        if not self._locked.isdisjoint(inodes):
            holder = file.read(32, 0).strip() if file else b""
            if file:
                file.close()
            raise AlreadyLocked(path, int(holder) if holder.isdigit() else None)
        if file and not read_only:
            file.truncate(0)
            file.write([b"%d\n" % self.pid], 0)
        return SimulatedLock(file, inodes, self._locked, self.hold(directory), signed=not read_only)

    def hold(self, directory: str) -> Lock:
        inode = self._directory(directory)
        self._opened[inode] = self._opened.get(inode, 0) + 1
        self._held.add(directory, inode)

        def release() -> None:
            """Forget the directory, and close it."""
            self._held.remove(directory)
            self.note_closed(inode)

        return SimulatedHold(release)

    def executor(self, name: str, threads: int = 1) -> Executor:
        made = SimulatedExecutor(threads, latency=self.latency, inline=self.inline, quick=self.quick)
        self._workers.append(made)
        return made

    def async_writer(self) -> AsyncWriter | None:
        self._workers.append(writer := SimulatedWriter(self.at_once, self.latency, in_call=self.begins_in_call))
        return writer if self.at_once else None

    def beside(self) -> "SimulatedDisk":
        """Return the same disk for a second process at the same time. A lock of one process excludes the other."""
        twin = self._twin(self._history)
        twin._opened, twin._nameless, twin._locked = self._opened, self._nameless, self._locked
        return twin

    # Faults

    def fail(self, matches: Matches, *, error: int = errno.EIO, times: int | None = 1, after_bytes: int = 0) -> Fault:
        """Make matching operations raise OSError with this errno, even those that change nothing. Returns the Fault.

        times: how often (None: always). after_bytes: how much a failing write writes first.
        """
        fault = Fault(matches, error, times, after_bytes)
        self._faults.append(fault)
        return fault

    def fail_sync(self, matches: Callable[[str], bool], times: int | None = 1) -> Fault:
        """Make syncs of files and directories with a matching path fail. The writes that they should make durable are
        lost. Returns the Fault.
        """
        return self.fail(lambda one: isinstance(one, Sync | SyncDirectory) and matches(one.path), times=times)

    def fail_operation(self, index: int, *, error: int = errno.EIO, after_bytes: int = 0) -> Fault:
        """Make the operation with this index in the history fail. after_bytes: how many bytes it writes first."""
        strikes: Matches = lambda one: one.index == index and not isinstance(one, Unrecorded)  # noqa: E731
        return self.fail(strikes, error=error, after_bytes=after_bytes)

    def fail_step(self, number: int, *, error: int) -> Fault:
        """Make one step from now on fail; 0 is the next one. Reads and listings are steps too. Returns the Fault."""
        numbers = itertools.count()
        return self.fail(lambda one: next(numbers) == number, error=error)

    # Crashes

    @property
    def operations(self) -> Sequence[Operation]:
        """All operations, by index, since the disk was created or, after a cut, found."""
        return self._history.operations

    @property
    def notes(self) -> Sequence[Any]:
        """The values that note() has recorded, in order."""
        return self._history.notes

    def note(self, value: Any) -> None:
        """Record `value` at this moment. A disk found after a cut has it in `notes` only if the cut comes later."""
        self._history.record(Note(self.next_index, "", value))

    def halt(self) -> None:
        """End the process that uses the disk: its executors and writers do nothing more."""
        for worker in self._workers:
            worker.halt()

    def after_process_crash(self) -> "SimulatedDisk":
        """Return the disk as a new process finds it after a crash of this one: all writes are there, locks are
        released.
        """
        return self._twin(self._history.after_process_crash())

    def killed_at(self, n: int) -> "SimulatedDisk":
        """Return the disk as a new process finds it if this one was killed right after its first n operations."""
        return self._twin(self._history.killed_at(n))

    def after_power_cut(self) -> "SimulatedDisk":
        """Return the disk after a power cut now, in which every unsynced operation was lost."""
        return self.found(self._history.cut.found(kept=()), self.notes)

    def at(
        self,
        n: int,
        *,
        kept: Collection[int] | None = None,
        dropped: Collection[int] = (),
        torn: Mapping[int, Tear] | None = None,
        order: Sequence[int] = (),
    ) -> "SimulatedDisk":
        """Return the disk after a power cut right after the first n operations.

        Of the operations that were not synced then, all reached the device, or only those in `kept` (by index), without
        those in `dropped`; those in `torn` are damaged; those in `order` reached it in that order among themselves.
        """
        for _, cut in self.cuts(n):
            volume = cut.found(kept=kept, dropped=dropped, torn=torn, order=order)
            return self.found(volume, self._history.notes_at(n))
        raise IndexError(f"there are only {len(self.operations)} operations")

    def cuts(self, first: int = 0) -> Iterator[tuple[int, Cut]]:
        """Yield (n, the cut after n operations), from n = `first` on. The same Cut object changes with the next
        iteration.
        """
        return self._history.cuts(first)

    def notes_at(self, n: int) -> Sequence[Any]:
        """Return the values that note() had recorded within the first n operations."""
        return self._history.notes_at(n)

    def found(self, volume: Volume, notes: Sequence[Any] = ()) -> "SimulatedDisk":
        """Return a new disk with these contents, all durable, and an empty history."""
        return self._twin(History(volume, keep=self._history.keep, notes=tuple(notes)))

    def fingerprint(self) -> int:
        """Return a number that is equal for disks with equal paths and contents, within this process."""
        return self._seen.fingerprint()

    # What its files call

    def read(self, file: SimulatedFile, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer only at the end of the file. Called by the file."""
        if self._faults:
            operation = Read(self.next_index, clean(file.path), position, size)
            if fault := self._matching_fault(operation):
                raise fault.exception(file.path, operation)
        return self._seen.content(file.inode).read(size, position)

    def write(self, file: SimulatedFile, data: bytes, position: int) -> None:
        """Write the data at `position`; if the disk is full, a part of it, and raise DiskFull. Called by the file."""
        room = self._fitting_bytes(file.inode, position, len(data))
        operation = Write(self.next_index, clean(file.path), file.inode, position, data)
        if data and room == len(data):
            self._perform(operation)
        elif data:
            self._write_part(operation, room)
            raise os_error(errno.ENOSPC, file.path)

    def truncate(self, file: SimulatedFile, size: int) -> None:
        self._perform(Truncate(self.next_index, clean(file.path), file.inode, size))

    def sync(self, file: SimulatedFile, only: int | None = None) -> None:
        """Make the file's writes durable; with `only`, just the write with that index. Called by the file."""
        self._perform(Sync(self.next_index, clean(file.path), file.inode, only=only))

    def size_of(self, file: SimulatedFile) -> int:
        return self._seen.content(file.inode).size

    def note_closed(self, inode: int) -> None:
        """Note that a descriptor of this inode was closed; drop the inode if it has no name and is not open."""
        self._opened[inode] -= 1
        if inode in self._nameless and not self._opened[inode]:
            self._nameless.discard(inode)
            self._seen.drop_inode(inode)

    @property
    def next_index(self) -> int:
        """The index that the next operation will have."""
        return self._history.next_index

    # Inside

    @property
    def _seen(self) -> Volume:
        """The contents as processes see them, synced or not."""
        return self._history.seen

    def _twin(self, history: History) -> "SimulatedDisk":
        """Return a disk with the same settings and this history, for another process."""
        twin = SimulatedDisk(
            capacity_bytes=self.capacity_bytes, latency=self.latency, inline=self.inline, pid=self.pid + 1
        )
        twin.is_cold = self.is_cold
        twin.quick = self.quick
        twin.at_once = self.at_once
        twin.begins_in_call = self.begins_in_call
        twin.syncs_blocks = self.syncs_blocks
        twin._history = history
        return twin

    def _perform(self, operation: Operation) -> None:
        """Do and record an operation, or raise the error of a matching fault."""
        fault = self._matching_fault(operation) if self._faults else None
        if fault is None:
            self._history.record(operation)
            return
        raised = fault.exception(operation.path, operation)
        if isinstance(operation, Sync | SyncDirectory) and not isinstance(raised, CannotOpen):
            self._history.record(replace(operation, failed=True))
            raise OSError(fault.error, os.strerror(fault.error), operation.path)
        if isinstance(operation, Write):
            self._write_part(operation, fault.after_bytes)
        raise raised

    def _check_faults(self, kind: type[Unrecorded], path: str) -> None:
        """Raise the error of a matching fault, if any, for an operation that changes nothing, such as Open or Stat."""
        if self._faults:
            operation = kind(self.next_index, clean(path))
            if fault := self._matching_fault(operation):
                raise fault.exception(path, operation)

    def _matching_fault(self, operation: Operation) -> Fault | None:
        """Return the fault that makes this operation fail; None if none does. Counts the hit."""
        return next((fault for fault in self._faults if fault.count_hit(operation)), None)

    def _write_part(self, operation: Write, length: int) -> None:
        """Record a write of only the first `length` bytes."""
        part = replace(operation, data=operation.data[:length])
        if part.data:
            self._history.record(part)

    def _fitting_bytes(self, inode: int, position: int, size: int) -> int:
        """Return how many bytes of a write fit on the disk. Bytes over existing ones need no space; a gap needs
        space, too.
        """
        if self.capacity_bytes is None:
            return size
        growth = position + size - self._seen.content(inode).size
        return min(size, max(0, size - growth + self.capacity_bytes - self._seen.used_bytes())) if growth > 0 else size

    def _link(self, path: str, *, is_directory: bool) -> int:
        """Create a file or directory with this path, and return its inode."""
        with self._history.alone:
            directory, name = self._place(path)
            inode = self._history.next_inode
            self._perform(Link(self.next_index, clean(path), directory, name, inode, is_directory))
            self._history.next_inode += 1
        return inode

    def _drop_nameless(self, inode: int | None) -> None:
        """Drop a file whose name was removed, at once or when no process has it open any more."""
        if inode is None:
            return
        if self._opened.get(inode):
            self._nameless.add(inode)
        else:
            self._seen.drop_inode(inode)

    def _lookup(self, path: str) -> int | None:
        """Return the inode of a path; None if it does not exist."""
        start, below = self._held.locate(path)
        return self._seen.lookup(below, start)

    def _existing(self, path: str) -> int:
        """Return the inode of a path. Raises FileNotFoundError."""
        inode = self._lookup(path)
        if inode is None:
            self._check_directories(path)
            raise os_error(errno.ENOENT, path)
        return inode

    def _check_directories(self, path: str) -> None:
        """Raise NotADirectoryError if the path leads through a file."""
        start, below = self._held.locate(path)
        for depth in range(1, len(below)):
            inode = self._seen.lookup(below[:depth], start)
            if inode is not None and inode not in self._seen.directories:
                raise os_error(errno.ENOTDIR, path)

    def _directory(self, path: str) -> int:
        """Return the inode of a directory. Raises FileNotFoundError, NotADirectoryError."""
        inode = self._existing(path)
        if inode not in self._seen.directories:
            raise os_error(errno.ENOTDIR, path)
        return inode

    def _place(self, path: str) -> tuple[int, str]:
        """Return the inode of a path's directory, which must exist, and the name in it."""
        parent, name = posixpath.split(clean(path))
        self._check_directories(path)
        return self._directory(parent), name

    def _entry(self, path: str) -> tuple[int, str, int]:
        """Return the inode of a path's directory, its name in there, and its own inode. Raises FileNotFoundError."""
        directory, name = self._place(path)
        return directory, name, self._existing(path)

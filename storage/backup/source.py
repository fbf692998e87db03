"""Reads a data directory from outside, with or without a broker that serves from it, and says what to copy.

The rule: everything that the newest checkpoint N names exists, unchanged, until checkpoint N + 2 exists (take.py says
why). So after copying, the caller checks whether N + 2 exists, and if so begins again with the newest checkpoint.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ...effects.disk import AlreadyLocked, Disk, Lock
from .. import checkpoints, layout, store_checkpoint, store_mark
from ..journal import kept_parts
from ..journal_source import adoption_cut_short
from ..log.index import OFFSET_ENTRY, OFFSET_SUFFIX, TIME_ENTRY, TIME_SUFFIX
from ..log.manifest import Manifest
from ..log.segment import LOG_SUFFIX, TXN_SUFFIX
from ..producers.aborted import TXN_ENTRY
from ..store_checkpoint import LogEntry, StoreCheckpoint
from ..system_errors import MISPLACED
from .manifest import BackupRefused

PASSES = 50
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
WHOLE = 1 << 62  # for a file whose size no checkpoint names: all of it


class CheckpointGone(Exception):
    """Raised if the broker has removed the checkpoint: the files that it names may be removed too."""


class Wanted(NamedTuple):
    """A file that a checkpoint names, and how many bytes of it to copy. vital: it cannot be derived from other
    files.
    """

    path: str
    size_bytes: int
    vital: bool = True


@contextmanager
def locked_if_free(disk: Disk, directory: str) -> Iterator[bool]:
    """Yield whether a broker runs on the directory. If none runs, lock the directory within the block, so that none can
    start there.

    Within the block all paths below the directory lead to the one that was opened here, even if it is moved away and
    another one is moved to its path.
    """
    running = False
    try:
        lock = _lock(disk, layout.lock_path(directory))
    except AlreadyLocked:
        running = True
        lock = disk.hold(directory)
    try:
        yield running
    finally:
        lock.release()


def _lock(disk: Disk, path: str) -> Lock:
    """Lock a file; read-only, without writing to it, if the file system or its owner does not allow more."""
    try:
        return disk.lock(path)
    except AlreadyLocked:
        raise
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        return disk.lock(path, read_only=True)


def refuse_copy_of_store(disk: Disk, directory: str) -> None:
    """Raise BackupRefused if the directory's journal is in a store of objects: alone it lacks the newest data."""
    mark = store_mark.read_mark(disk, directory)
    if mark is not None and mark.adopting:
        cut_short = adoption_cut_short(directory)
        raise BackupRefused(str(cut_short), cut_short.hint)
    if mark is not None:
        raise BackupRefused(
            f"{directory}: its journal is in a store of objects, without which a backup lacks what is newest",
            "fencepost restore URL makes a plain directory of that store, which can be copied",
        )


class Source:
    """A data directory that others write to."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def newest_checkpoint(self) -> tuple[int, StoreCheckpoint]:
        """Return number and content of the newest valid checkpoint. Raises: BackupRefused; checkpoints.Damaged,
        OSError.
        """
        damage: checkpoints.Damaged | None = None
        for _ in range(PASSES):
            for number in store_checkpoint.numbers(self._disk, self._directory):
                try:
                    return number, store_checkpoint.read(self._disk, self._directory, number)
                except checkpoints.Damaged as error:
                    damage = error
                except FileNotFoundError:  # there are newer ones now
                    break
            else:
                break
        raise damage or BackupRefused(
            f"{self._directory}: no checkpoint can be read", "is it being restored or removed?"
        )

    def check_holds(self, number: int) -> None:
        """Raise CheckpointGone if there is a checkpoint `number` + 2: then the broker may have removed files that only
        checkpoint `number` names.
        """
        newest = max(store_checkpoint.numbers(self._disk, self._directory), default=WHOLE)
        if newest >= number + 2:
            raise CheckpointGone

    def wanted_files(self, start: StoreCheckpoint, warnings: list[str]) -> Iterator[Wanted]:
        """Yield all files that a checkpoint names. warnings: collects entries that do not parse."""
        for entry in start.logs:
            yield from self._of_log(entry, warnings)
        folder = below(layout.kept_parts_directory(""))
        files, _ = kept_parts.list_files(self._disk, self._directory)
        for found in files:
            if found.incarnation <= start.incarnation:
                yield Wanted(f"{folder}/{found.name}", WHOLE)

    def _of_log(self, entry: LogEntry, warnings: list[str]) -> Iterator[Wanted]:
        """Yield the files of one log that the checkpoint names. Adds a warning if its entry cannot be parsed."""
        if entry.manifest is None:
            return
        folder = below(layout.log_directory("", entry.topic, entry.partition, entry.log_id))
        try:
            named = Manifest.from_row(entry.manifest)
        except (TypeError, ValueError) as error:
            warnings.append(f"{folder}: its entry in the checkpoint does not parse: {error}")
            return
        for state in named.segments:
            stem = f"{folder}/{state.stem}"
            yield Wanted(stem + LOG_SUFFIX, state.size_bytes)
            for suffix, entries, entry_bytes in (
                (OFFSET_SUFFIX, state.offset_index.entries, OFFSET_ENTRY.size),
                (TIME_SUFFIX, state.time_index.entries, TIME_ENTRY.size),
                (TXN_SUFFIX, state.txn_index.entries, TXN_ENTRY.size),
            ):
                if entries:
                    yield Wanted(stem + suffix, entries * entry_bytes, vital=False)
        for snapshot in named.snapshots:
            if not snapshot.empty:
                yield Wanted(f"{folder}/{snapshot.name}", WHOLE)
        try:
            names = self._disk.list(f"{self._directory}/{folder}")
        except MISPLACED:
            names = []
        for name in kept_parts.list_old_names(names):
            yield Wanted(f"{folder}/{name}", WHOLE)


def below(path: str) -> str:
    """Return a path of layout.py made for the data directory "" as a path relative to the data directory."""
    return path.removeprefix("/")

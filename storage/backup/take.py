"""Takes a backup of a data directory, beside a broker that serves from it, or alone.

A backup is the state of one moment, as a `kill -9` at that moment would have left it. It consists of a checkpoint N,
the files that N names, and the journal up to a complete round.

Why this works without the broker's help: a broker keeps its two newest checkpoints, and neither removes nor
overwrites what one of them needs (segments, snapshots, kept parts, files of the journal). Below the sizes that a
checkpoint names, segments never change. So everything that N needs stays unchanged until checkpoint N + 2 exists, and
a copy that is complete before that is a correct copy. The newest number is read after the last byte was copied. If it
is N + 2 or more, another pass begins with the newest checkpoint. Copied parts of segments are kept and only extended,
so each pass has less to do than the one before.

The journal is copied last, in one piece (journal_copy.py). What was acknowledged before the backup began was in a
complete round by then. What a transaction changes together in several partitions is one unit of the journal, and the
copy has all units up to one of them and none after it.

Coordinators' snapshots are left out: their state can be read from their logs.
"""

import errno
from collections.abc import Callable

from ...effects.disk import Disk, DiskFull
from .. import layout, store_checkpoint
from ..recovery import make_directory
from ..store_checkpoint import StoreCheckpoint
from ..system_errors import MISPLACED
from . import manifest
from .copying import EMPTY, Unreadable, checksum, copy_range, remove_contents, sync_tree
from .journal_copy import Changed, copy_judged, judge_beside
from .manifest import BackupFile, BackupRefused, Contents
from .source import PASSES, WHOLE, CheckpointGone, Source, Wanted, below, locked_if_free, refuse_copy_of_store


def take_backup(
    disk: Disk,
    directory: str,
    target: Disk,
    backup: str,
    *,
    made_by: str,
    taken_ms: int,
    report: Callable[[int, int], None] = lambda copied, of: None,
    pause: Callable[[], None] = lambda: None,
) -> Contents:
    """Copy a data directory to a folder that does not exist or is empty. Returns the contents of the backup.

    made_by: the version of fencepost that takes it. report: called with the bytes copied so far, and the total as far
    as it is known. pause: called between two passes. target: the disk of the backup.

    Raises: BackupRefused; DiskFull, checkpoints.Damaged, NewerFormat, OSError. What was written is removed before one
    of them is raised.
    """
    if not store_checkpoint.numbers(disk, directory):
        raise BackupRefused(f"{directory} has no broker's data", "name the data directory of fencepost serve")
    refuse_copy_of_store(disk, directory)
    _begin(target, backup)
    done = False
    try:
        with locked_if_free(disk, directory) as running:
            taking = _Taking(disk, directory, target, backup, report)
            contents = taking.run(pause, running=running, made_by=made_by, taken_ms=taken_ms)
        sync_tree(target, manifest.data_path(backup), contents.files)
        manifest.write(target, backup, contents)
        done = True
        return contents
    finally:
        if not done and target.exists(backup):
            remove_contents(target, backup)


def _begin(target: Disk, backup: str) -> None:
    """Check that the backup folder is missing or empty, and create it. Raises: BackupRefused."""
    if target.exists(backup):
        if not target.is_directory(backup):
            raise BackupRefused(f"{backup} is a file", "name a folder that does not exist")
        if target.list(backup):
            raise BackupRefused(f"{backup} is not empty", "name a folder that does not exist or is empty")
    make_directory(target, manifest.data_path(backup))


class _Taking:
    """A backup that is being taken. `copied`: what the target holds, by relative path."""

    def __init__(
        self, disk: Disk, directory: str, target: Disk, backup: str, report: Callable[[int, int], None]
    ) -> None:
        """target: the disk of the backup. report: called with the bytes copied so far, and the total as far as it is
        known.
        """
        self._disk = disk
        self._directory = directory
        self._source = Source(disk, directory)
        self._target = target
        self._data = manifest.data_path(backup)
        self._report = report
        self._copied: dict[str, BackupFile] = {}
        self._folders: set[str] = set()
        self._copied_bytes = self._expected_bytes = 0
        self._whole: set[str] = set()
        self._journal: set[str] = set()
        self._warnings: list[str] = []

    def run(self, pause: Callable[[], None], *, running: bool, made_by: str, taken_ms: int) -> Contents:
        """Copy everything that the newest checkpoint names, again if the broker made newer checkpoints meanwhile.
        pause: called before each further attempt.

        Returns what is in the backup. Raises BackupRefused after PASSES attempts.
        """
        for _ in range(PASSES):
            number, start = self._source.newest_checkpoint()
            try:
                last_unit = self._pass(number, start)
            except (CheckpointGone, Changed):
                pause()
                continue
            return Contents(made_by, taken_ms, running, number, last_unit, self._warnings, self._copied)
        raise BackupRefused(
            f"the broker made checkpoints more quickly than they could be copied, {PASSES} times",
            "try again while it has less to do, or with a target that takes bytes more quickly",
        )

    def _pass(self, number: int, start: StoreCheckpoint) -> int:
        """Copy everything that a checkpoint needs: its files, then the journal. Returns the number of the last unit
        copied. Raises: CheckpointGone, Changed.
        """
        self._warnings = []
        wanted = list(self._source.wanted_files(start, self._warnings))
        self._make_room(wanted)
        for file in wanted:
            self._copy(file)
        self._source.check_holds(number)
        for folder in (layout.journal_directory(""), layout.logs_directory("")):
            self._make_folder(below(folder))
        last_unit = self._copy_journal(number, start)
        self._source.check_holds(number)
        store_checkpoint.write(self._target, self._data, number, start)
        name = f"{layout.CHECKPOINT}{number}"
        self._copied[name] = self._sum_up(name)
        self._keep_only({file.path for file in wanted} | {name} | self._journal)
        return last_unit

    def _make_room(self, wanted: list[Wanted]) -> None:
        """Check before copying that everything fits on the target. Raises: DiskFull."""
        have = self._copied
        missing = sum(
            file.size_bytes - have.get(file.path, EMPTY).size_bytes for file in wanted if file.size_bytes != WHOLE
        )
        self._expected_bytes = self._copied_bytes + missing
        free = self._target.free_bytes(self._data)
        if free < missing:
            raise DiskFull(errno.ENOSPC, f"{missing:,} bytes are to be copied, and {free:,} are free", self._data)

    # ---- copying ---------------------------------------------------------------------------------------------

    def _copy(self, wanted: Wanted) -> None:
        """Copy what the backup lacks of a file. Adds a warning if a vital file is missing or too short, or if any file
        cannot be read.
        """
        name, size_bytes, is_vital = wanted
        is_whole = size_bytes == WHOLE
        begun = self._copied.get(name)
        if begun is not None and (name in self._whole or begun.size_bytes >= size_bytes):
            return
        path = f"{self._directory}/{name}"
        try:
            source = self._disk.open(path, read_only=True)
        except MISPLACED as error:
            if is_vital:
                self._warnings.append(f"{path}: {error.strerror}")
            return
        self._make_folder(name.rpartition("/")[0])
        copy = self._target.open(f"{self._data}/{name}", create=True)
        try:
            self._copied[name] = copy_range(source, copy, begun or EMPTY, size_bytes, self._on_bytes)
            if is_whole:
                self._whole.add(name)
        except Unreadable as problem:
            self._copied[name] = problem.copied
            self._warnings.append(f"{path} cannot be read {problem}")
            return
        finally:
            copy.close()
            source.close()
        copied_bytes = self._copied[name].size_bytes
        if is_vital and not is_whole and copied_bytes < size_bytes:
            self._warnings.append(f"{path} has {copied_bytes} bytes, the checkpoint counts {size_bytes}")

    def _copy_journal(self, number: int, start: StoreCheckpoint) -> int:
        """Copy all complete rounds of the journal (each the units of one write), replacing those of an earlier pass.
        Returns the number of the last unit. Raises: CheckpointGone, Changed; JournalDamaged.
        """
        folder = below(layout.journal_directory(""))
        for name in self._journal:
            self._target.unlink(f"{self._data}/{name}")
            del self._copied[name]
        self._journal = set()
        found = judge_beside(self._disk, self._directory, start, lambda: self._source.check_holds(number))
        self._expected_bytes = self._copied_bytes + sum(
            one.header.size_bytes for one in found.files[: len(found.rounds)]
        )
        try:
            copies = copy_judged(self._disk, found, self._target, f"{self._data}/{folder}", self._on_bytes)
        except FileNotFoundError:
            raise Changed from None
        finally:
            self._journal = {f"{folder}/{name}" for name in self._target.list(f"{self._data}/{folder}")}
            self._copied |= dict.fromkeys(self._journal, EMPTY)
        self._copied |= {f"{folder}/{name}": copy for name, copy in copies.items()}
        return max(found.last_unit, start.through_unit)

    def _sum_up(self, name: str) -> BackupFile:
        """Return size and checksum of a copied file, read from the backup."""
        file = self._target.open(f"{self._data}/{name}", read_only=True)
        try:
            return checksum(file, lambda count: None)
        finally:
            file.close()

    def _keep_only(self, names: set[str]) -> None:
        """Remove copied files that are not in `names`: an earlier checkpoint named them, this one does not."""
        for name in self._copied.keys() - names:
            self._target.unlink(f"{self._data}/{name}")
            del self._copied[name]

    def _make_folder(self, name: str) -> None:
        """Create a folder in the backup, unless this copy has created it already."""
        if name not in self._folders:
            self._target.make_directory(f"{self._data}/{name}")
            self._folders.add(name)

    def _on_bytes(self, count: int) -> None:
        """Count bytes that were copied, and report the progress."""
        self._copied_bytes += count
        self._report(self._copied_bytes, max(self._copied_bytes, self._expected_bytes))

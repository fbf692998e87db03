"""Makes a plain data directory out of a journal in an object store: the newest state, with its journal in the directory
again.

The rules are those of a restore from a backup (storage/backup/restore.py): the target is new or empty, every byte is
compared with its checksum, and the first start fences old clients, because the store's owner may go on. Until the
directory is complete, a mark says that the restore was cut short, and no broker starts on it. The store is only read
(looking.py).
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...effects.clock import Clock
from ...effects.disk import AlreadyLocked, Disk, Lock
from ...effects.objects import Objects
from ...effects.rng import Rng
from .. import checkpoints, layout, store_mark
from ..backup.copying import remove_contents
from ..backup.manifest import BackupRefused
from ..backup.restore import LOST_AND_FOUND, MARK, MARK_VERSION, check_empty, mark_path
from ..journal.format import EVERYTHING
from ..journal_source import FoundUnits, JournalOfDirectory
from ..recovery import make_directory, open_store
from ..shipping.point import Point
from ..store import StoreSettings
from ..store_checkpoint import StoreCheckpoint
from ..store_mark import Mark
from .creating import Pause
from .errors import Overtaken
from .fence import Place
from .looking import Looked, Looking
from .points import empty_directory, fetch_point
from .takeover import ScanOfObjects, runs_from

SETTINGS = StoreSettings(min_free_bytes=0)


@dataclass(frozen=True)
class Restored:
    """From what a data directory was made. point: the checkpoint in the store; None if there was none, so that
    everything came from rounds.
    """

    looked: Looked
    point: Point | None


@dataclass
class Restoring:
    """A restore. say: called with a line for people. report: called with the bytes of the checkpoint fetched so far,
    and in all.
    """

    objects: Objects
    disk: Disk
    clock: Clock
    rng: Rng
    directory: str
    pause: Pause
    say: Callable[[str], None] = lambda line: None
    report: Callable[[int, int], None] = lambda done, of: None

    def run(self) -> Restored:
        """Make the data directory from a point and rounds in the store. The result says from which ones.

        Raises: BackupRefused, ObjectDamaged; OSError; what the pause raises. What was written is removed before one of
        them is raised.
        """
        check_empty(self.disk, self.directory)
        looking = Looking(self.objects, self.pause)
        if not looking.repeated(lambda looked: looked.epoch):
            raise BackupRefused(
                f"{self.objects.where} has a journal in which nothing was ever written",
                "start a broker with an empty directory",
            )
        make_directory(self.disk, self.directory)
        with self._locked():
            check_empty(self.disk, self.directory, besides="lock")
        done = False
        try:
            restored = looking.repeated(lambda looked: self._attempt(looking, looked), self._begin_again)
            done = True
            return restored
        finally:
            if not done:
                self._remove_all()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Lock]:
        """Hold the lock of the new directory within the block. Raises BackupRefused if it is in use."""
        try:
            lock = self.disk.lock(layout.lock_path(self.directory))
        except AlreadyLocked as locked:
            raise BackupRefused(f"{self.directory} is in use by process {locked.pid}", "name another folder") from None
        try:
            yield lock
        finally:
            lock.release()

    def _attempt(self, looking: Looking, looked: Looked) -> Restored:
        """Restore the directory once. Writes the mark by which its first start fences old clients, and removes the mark
        that the restore was cut short.

        Raises: Missing, if the owner deleted objects before they were read; ObjectDamaged; what open_store raises.
        """
        source = _Source(self, looking, looked)
        try:
            store, _ = open_store(self.disk, self.clock, self.rng, self.directory, SETTINGS, source=source)
        except Overtaken as gone:
            raise gone.__cause__ or gone from None
        try:
            checkpoints.write_file(self.disk, mark_path(self.directory), MARK, MARK_VERSION, b"")
            store_mark.remove_mark(self.disk, self.directory)
        finally:
            store.close()
        return Restored(looked, source.point)

    def _begin_again(self) -> None:
        """Say that the owner deleted what was being read. What was fetched stays: else a restore that takes longer than
        the owner keeps its rounds would never end.
        """
        self.say("the owner removed what was being read, since it has a newer checkpoint: taking that one")

    def _remove_all(self) -> None:
        """Empty the directory, under its lock."""
        with self._locked():
            remove_contents(self.disk, self.directory, keep=LOST_AND_FOUND)


class _Source(JournalOfDirectory):
    """Reads the rounds that were found in the store, and begins a journal in the directory."""

    def __init__(self, restoring: Restoring, looking: Looking, looked: Looked) -> None:
        """looked: the result of the look at the store, from which the directory is made."""
        super().__init__(restoring.disk, restoring.rng, restoring.directory, SETTINGS)
        self._restoring = restoring
        self._looking = looking
        self._looked = looked
        self.point: Point | None = None

    def prepare(self) -> None:
        """Fill the directory, which is locked now, with the files of the checkpoint in the store. Before that, mark it
        as a restore that was cut short. Raises: Missing, ObjectDamaged.
        """
        of = self._restoring
        store_mark.write_mark(of.disk, of.directory, Mark(store_mark.CUT_SHORT))
        self.point = self._looking.point(self._looked)
        if self.point is None:
            empty_directory(of.disk, of.directory)  # an earlier attempt may have written there
        else:
            fetch_point(of.objects, of.disk, of.directory, self.point, of.pause, of.report)

    def scan(self, start: StoreCheckpoint) -> FoundUnits:
        """Return the rounds to read after this checkpoint, without taking the store over."""
        looked, of = self._looked, self._restoring
        runs = runs_from(looked.runs, Place(*start.journal_start))
        start.journal_start = EVERYTHING  # of the directory's own journal, whose files have other numbers
        return ScanOfObjects(of.objects, looked.last, runs, of.pause, looked.epoch, start.through_unit)

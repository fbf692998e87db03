"""A recovery whose journal is in a store of objects: a data directory becomes what the store says, and owns an epoch.

The directory is a copy: segments, and checkpoints of what is in them. It may be empty, or that of any earlier owner:
what it has under a checkpoint was released, and so is in the history of every later owner. A mark says which store it
is of (storage/store_mark.py).
"""

from ...effects.clock import Clock
from ...effects.disk import Disk
from ...effects.objects import Objects
from .. import store_mark
from ..journal.any_journal import AnyJournal
from ..journal_source import StoreDamaged
from ..store import StoreSettings
from ..store_checkpoint import StoreCheckpoint
from .creating import Pause
from .errors import Fenced, Overtaken
from .fence import Place, Run
from .format import Claim
from .journal import ObjectJournal
from .takeover import ScanOfObjects, Taken, Takeover, read_identity

_EMPTY_ONE = "start with an empty --data-dir: it is filled from the store; nothing was changed"


class JournalOfObjects:
    """A source (storage/journal_source.py): an epoch that it takes, and the rounds before it."""

    taken: Taken

    def __init__(
        self,
        objects: Objects,
        claim: Claim,
        pause: Pause,
        *,
        disk: Disk,
        clock: Clock,
        directory: str,
        settings: StoreSettings,
        identity: bytes,
    ) -> None:
        """claim: who takes it; its epoch is the lowest that may be. identity: 16 random bytes, if the store is new."""
        self._objects = objects
        self._claim = claim
        self._identity = identity
        self._pause = pause
        self._disk = disk
        self._clock = clock
        self._directory = directory
        self._settings = settings

    def scan(self, start: StoreCheckpoint) -> ScanOfObjects:
        """Take over: the directory is locked, so no owner is using it.

        Raises: StoreDamaged, for a directory that is not a copy of this store; Overtaken, ObjectDamaged; what the
            pause raises.
        """
        self._check_mark(read_identity(self._objects, self._pause, self._identity), is_new=start.incarnation == 0)
        claim = self._claim._replace(epoch=max(self._claim.epoch, start.incarnation + 1))
        taken = self.taken = Takeover(self._objects, self._pause, claim).run()
        last_unit = taken.last.last_unit if taken.last else 0
        if start.through_unit > last_unit:
            reason = f"it goes up to unit {start.through_unit} of start {start.incarnation}, the store to {last_unit}"
            raise StoreDamaged(self._directory, reason, _EMPTY_ONE)
        runs = _behind(taken.runs, Place(*start.journal_start))
        return ScanOfObjects(self._objects, taken, runs, self._pause, start.through_unit)

    def _check_mark(self, identity: bytes, *, is_new: bool) -> None:
        mark = store_mark.read_mark(self._disk, self._directory)
        if mark is None and is_new:
            store_mark.write_mark(self._disk, self._directory, identity)
        elif mark is None:
            raise StoreDamaged(self._directory, "it has a journal of its own", _EMPTY_ONE)
        elif mark != identity:
            raise StoreDamaged(self._directory, f"it is of another store than {self._objects.where}", _EMPTY_ONE)

    def begin(self, end: StoreCheckpoint) -> AnyJournal:
        """Raises: Overtaken."""
        if end.incarnation != self.taken.claim.epoch:
            raise RuntimeError(f"start {end.incarnation} is not epoch {self.taken.claim.epoch}")
        began_ms = self._clock.monotonic_ms()
        try:
            return ObjectJournal(
                self._objects,
                self.taken,
                self._pause,
                next_unit=end.next_unit,
                next_round=end.next_round,
                age_ms=lambda: end.age_ms + self._clock.monotonic_ms() - began_ms,
                max_bytes=self._settings.journal_max_bytes,
            )
        except Fenced as fenced:
            raise Overtaken(str(fenced)) from fenced


def _behind(runs: list[Run], start: Place) -> list[Run]:
    """Return the rounds from `start` on; all, if it is in none of these epochs."""
    if not any(run.epoch == start.epoch for run in runs):
        return runs
    cut = [run._replace(first=max(run.first, start.number)) if run.epoch == start.epoch else run for run in runs]
    return [run for run in cut if run.epoch >= start.epoch and run.first < run.end]

"""A recovery whose journal is in a store of objects: a data directory becomes what the store says, and owns an epoch.

The directory is a copy: segments, and checkpoints of what is in them. It may be empty, or that of any earlier owner:
what it has under a checkpoint was released, and so is in the history of every later owner. A mark says which store it
is of (storage/store_mark.py).
"""

import contextlib
from collections.abc import Mapping

from ...effects.clock import Clock
from ...effects.disk import Disk
from ...effects.objects import Missing, Objects
from .. import checkpoints, store_checkpoint, store_mark
from ..journal.any_journal import AnyJournal
from ..journal_source import StoreDamaged, check_complete
from ..leftovers import holds_anything
from ..shipping.point import ShippedFile
from ..store import StoreSettings
from ..store_checkpoint import StoreCheckpoint
from . import points
from .creating import Pause, read_head, until_clear
from .errors import Fenced, Overtaken
from .fence import Place, Run
from .format import NO_POINT, Claim, RoundHeader
from .journal import ObjectJournal
from .takeover import ScanOfObjects, Taken, Takeover, read_identity, runs_behind

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
        self.shipped: Mapping[str, ShippedFile] = {}  # what the store has of files that are in the directory just so
        self._pause = pause
        self._disk = disk
        self._clock = clock
        self._directory = directory
        self._settings = settings

    def prepare(self) -> None:
        """Take over, now that the directory is locked and no owner is using it; and fetch what it lacks.

        Raises: StoreDamaged, for a directory that is not a copy of this store; Overtaken, ObjectDamaged; what the
            pause raises.
        """
        identity = read_identity(self._objects, self._pause, self._identity)
        self._check_mark(identity)
        number, local = self._newest_checkpoint()
        least = max(self._claim.epoch, local.incarnation + 1 if local else 1)
        taken = self.taken = Takeover(self._objects, self._pause, self._claim._replace(epoch=least)).run()
        last_unit = taken.last.last_unit if taken.last else 0
        if local and local.through_unit > last_unit:
            reason = f"it goes up to unit {local.through_unit} of start {local.incarnation}, the store to {last_unit}"
            raise StoreDamaged(self._directory, reason, _EMPTY_ONE)
        try:
            self._fill(taken, number, local)
        except Missing as missing:
            raise Overtaken(f"{missing.name} is gone: another broker has taken over") from missing

    def _newest_checkpoint(self) -> tuple[int, StoreCheckpoint | None]:
        """Return number and content of the newest checkpoint of the directory that can be read."""
        for number in store_checkpoint.numbers(self._disk, self._directory):
            with contextlib.suppress(checkpoints.Damaged, FileNotFoundError):
                return number, store_checkpoint.read(self._disk, self._directory, number)
        return 0, None

    def _fill(self, taken: Taken, number: int, local: StoreCheckpoint | None) -> None:
        """Make the directory one from which the rounds that were found go on. number: of its checkpoint."""
        place = taken.last.point if taken.last else NO_POINT
        point = points.read_point(self._objects, place, self._pause) if place != NO_POINT else None
        if local is None or not self._reaches(taken.runs, local):
            points.empty_directory(self._disk, self._directory)
            if point is not None:
                points.fetch_point(self._objects, self._disk, self._directory, point, self._pause)
                self.shipped = point.files
        elif point is not None and place[0] == local.incarnation and number >= point.checkpoint:
            self.shipped = point.files  # taken here, in its last life

    def _reaches(self, runs: list[Run], local: StoreCheckpoint) -> bool:
        """Whether the rounds that were found begin no later than this checkpoint ends."""
        if not runs:
            return self.taken.last is None or local.through_unit == self.taken.last.last_unit
        first = Place(runs[0].epoch, runs[0].first)
        there = until_clear(lambda: read_head(self._objects, first), self._pause)
        return isinstance(there, RoundHeader) and there.first_unit <= local.through_unit + 1

    def scan(self, start: StoreCheckpoint) -> ScanOfObjects:
        runs = runs_behind(self.taken.runs, Place(*start.journal_start))
        return ScanOfObjects(self._objects, self.taken, runs, self._pause, start.through_unit)

    def _check_mark(self, identity: bytes) -> None:
        mark = store_mark.read_mark(self._disk, self._directory)
        check_complete(self._directory, mark)
        is_new = not store_checkpoint.numbers(self._disk, self._directory)
        if mark is None and is_new and not holds_anything(self._disk, self._directory):
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

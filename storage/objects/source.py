"""A recovery whose journal is in an object store: the data directory is brought to the state in the store, and the
broker owns an epoch.

The directory is a copy: segments, and checkpoints that name them. It may be empty, or come from any earlier owner: what
its checkpoint has was released, so it is in the history of every later owner. A mark says to which store it belongs
(storage/store_mark.py). A directory with a journal of its own can only be moved into a store in which nothing was ever
written: the first round then names a checkpoint with all its data.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from ...effects.clock import Clock
from ...effects.disk import Disk
from ...effects.objects import Missing, Objects
from .. import layout, store_checkpoint, store_mark
from ..journal.format import EVERYTHING, Malformed
from ..journal.preparing import PREPARING, file_sequence
from ..journal_source import FoundUnits, StoreDamaged, adoption_cut_short, check_complete
from ..leftovers import holds_anything
from ..shipping.names import PARTS
from ..shipping.point import ShippedFile
from ..store import StoreSettings
from ..store_checkpoint import StoreCheckpoint
from ..store_mark import Mark
from . import format, points
from .creating import Pause, create_or_read, read_head, until_clear
from .epochs import Epochs, call_both
from .errors import AdoptionBegun, Fenced, ObjectDamaged, Overtaken
from .fence import Place, Run
from .format import NO_POINT, Claim, NewerObject, RoundHeader
from .journal import ObjectJournal
from .points import Points, PointTaken
from .takeover import ScanOfObjects, Taken, Takeover, read_identity, runs_from

_EMPTY_ONE = "start with an empty --data-dir: it is filled from the store; nothing was changed"
_NO_STORE = "look for a mistake in the URL: with an empty --data-dir an empty journal begins there; nothing was changed"
_ONE_OF_THEM = "start with an empty --data-dir for the store's data, or with a new --store for the directory's"


class JournalOfObjects:
    """A JournalSource (storage/journal_source.py): the epoch that this broker takes, and the rounds before it."""

    taken: Taken
    watched_epoch: int | None = None  # as in Takeover

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
        made_by: str,
        report: Callable[[int, int], None] = lambda done, of: None,
        report_fetched: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        """claim: the broker that takes the store over, and the lowest epoch that it may get. identity: 16 random bytes,
        used if the store is new.

        made_by: the version of fencepost, for checkpoints in the store. report: called with the bytes of a directory
        that had its own journal that were put into the store so far, and how many there will be. report_fetched: called
        with the bytes that were fetched from the store so far, and how many there will be. Both may raise to end the
        start.
        """
        self._objects = objects
        self._claim = claim
        self._identity = identity
        self._made_by = made_by
        self._report = report
        self._report_fetched = report_fetched
        self._shipped: Mapping[str, ShippedFile] = {}  # files that the directory has with the same content
        self._pause = pause
        self._disk = disk
        self._clock = clock
        self._directory = directory
        self._settings = settings
        self._adopts = False  # whether begin() puts the directory's own data into the store
        self.adopted: PointTaken | None = None
        self.replaced: list[str] = []  # names of objects that the store has lost, and the next point does not need

    def check(self) -> None:
        """Raise StoreDamaged if both the directory and the store have data of their own, or a restore into the
        directory was cut short. Raises also what the pause raises.
        """
        if not self._disk.exists(self._directory):
            return
        mark = store_mark.read_mark(self._disk, self._directory)
        check_complete(self._directory, mark)
        if (mark is None and self._has_data()) or (mark is not None and mark.adopting and not self._has_begun(mark)):
            epochs = Epochs(self._objects, self._pause)
            if begun := epochs.newest_begun(epochs.places()):
                self._refuse(begun)
        if mark is not None and not mark.adopting:
            self._check_identity(mark)

    def _check_identity(self, mark: Mark) -> None:
        """Raise StoreDamaged if the store has no identity and no epoch, or another identity than the mark of the
        directory says. Creates nothing in a store that was named by mistake.
        """
        try:
            content = until_clear(lambda: self._objects.read(format.IDENTITY_NAME), self._pause)
            if format.read_identity(content) == mark.identity:
                return
        except (Missing, Malformed, NewerObject):
            pass  # lost or damaged, if an epoch has begun; prepare() finds that
        epochs = Epochs(self._objects, self._pause)
        if not epochs.newest_begun(epochs.places()):
            where = self._objects.where
            reason = f"it is of another store than {where}, in which nothing was ever written"
            raise StoreDamaged(self._directory, reason, _NO_STORE)

    def prepare(self) -> None:
        """Take the store over, and fetch what the directory lacks. Only to be called when the directory is locked and
        no other broker seems to use the store.

        A directory with data of its own is not changed: begin() puts its data into the store, if nothing was ever
        written there.

        Raises: StoreDamaged, if the directory is not a copy of this store and cannot become one; Overtaken,
        ObjectDamaged; what the pause raises.
        """
        self.check()
        self._identity = read_identity(self._objects, self._pause, self._identity)
        mark = self._checked_mark()
        number, local = points.newest_checkpoint(self._disk, self._directory)
        least = max(self._claim.epoch, local.incarnation + 1 if local else 1)
        if local is None and mark is not None and not mark.adopting:
            self._check_adoption()
        takeover = self._takeover(least)
        taken = self.taken = takeover.run()
        if mark is None or (mark.adopting and not self._has_begun(mark)):
            if taken.last is not None:
                self._refuse(taken.last.place.epoch)
            self._adopts = True
            name, content = format.adopting_name(taken.claim.epoch), format.pack_claim(taken.claim)
            until_clear(lambda: create_or_read(self._objects, name, content), self._pause)
            return
        if local is None and taken.last is None:
            self._check_adoption()
        if mark.adopting:  # its data was put into the store, and a crash came before the mark was changed
            self._forget_own_journal()
        last_unit = taken.last.last_unit if taken.last else 0
        if local and local.through_unit > last_unit:
            reason = f"it goes up to unit {local.through_unit} of start {local.incarnation}, the store to {last_unit}"
            raise StoreDamaged(self._directory, reason, _EMPTY_ONE)
        try:
            self._fill(taken, number, local)
        except Missing as missing:
            raise takeover.why_gone(taken, missing.name) from missing

    def _check_adoption(self) -> None:
        """Raise AdoptionBegun if another broker has begun to put its data directory into the store, where no epoch has
        begun yet. Only to be called for an empty directory.
        """
        found = until_clear(lambda: self._objects.list(format.ADOPTING), self._pause)
        epochs = Epochs(self._objects, self._pause)
        if not found or epochs.newest_begun(epochs.places()):
            return
        name = max(each.name for each in found)
        content = until_clear(lambda: self._objects.read(name), self._pause)
        raise AdoptionBegun(f"{_broker_of(name, content)} has begun to put its data directory there")

    def _takeover(self, least: int) -> Takeover:
        """Return the object that carries out the take-over of the store. least: the lowest epoch that it may claim."""
        claim = self._claim._replace(epoch=least)
        return Takeover(self._objects, self._pause, claim, watched_epoch=self.watched_epoch)

    def mark_directory(self) -> bool:
        """If the directory is empty, write a mark into it that makes it a copy of this store. Only to be
        called for a store in which an epoch has begun.

        Returns False if the directory has data of its own. Raises: StoreDamaged, if it is a copy of another store.
        """
        self._identity = read_identity(self._objects, self._pause, self._identity)
        mark = self._checked_mark()
        return mark is not None and not mark.adopting

    # ---- whose data it is ------------------------------------------------------------------------------------

    def _has_data(self) -> bool:
        """Return whether the directory has a checkpoint, logs or a journal."""
        numbers = store_checkpoint.numbers(self._disk, self._directory)
        return bool(numbers) or holds_anything(self._disk, self._directory)

    def _has_begun(self, mark: Mark) -> bool:
        """Return whether the epoch that the mark names has a round. In that epoch the directory was to be put into the
        store.

        The answer is final once all epochs are ended: an epoch that was ended at its first round never began.
        """
        try:
            there = until_clear(lambda: read_head(self._objects, Place(mark.adopting, 0)), self._pause)
        except Missing:  # not yet, or its first rounds were removed already
            places = Epochs(self._objects, self._pause).places(format.epoch_prefix(mark.adopting))
            return bool(places)
        return isinstance(there, RoundHeader)

    def _refuse(self, begun: int) -> None:
        """Raise StoreDamaged, because directory and store have different data. begun: the store's newest epoch."""
        where = self._objects.where
        raise StoreDamaged(
            self._directory, f"it has data of its own, and {where} has other data (epoch {begun})", _ONE_OF_THEM
        )

    def _checked_mark(self) -> Mark | None:
        """Return the mark of the directory; an empty directory gets one. None if it has data of its own. Raises
        StoreDamaged if it belongs to another store.
        """
        mark = store_mark.read_mark(self._disk, self._directory)
        if mark is None and not self._has_data():
            mark = Mark(self._identity)
            store_mark.write_mark(self._disk, self._directory, mark)
        if mark is not None and mark.identity != self._identity and mark.adopting:
            raise adoption_cut_short(self._directory)
        if mark is not None and mark.identity != self._identity:
            raise StoreDamaged(self._directory, f"it is of another store than {self._objects.where}", _EMPTY_ONE)
        return mark

    # ---- what is read ----------------------------------------------------------------------------------------

    def _fill(self, taken: Taken, number: int, local: StoreCheckpoint | None) -> None:
        """Bring the directory to a checkpoint after which the rounds found in the store continue: its own if that is
        new enough, else the one in the store. If the store has none, empty the directory.

        number, local: number and content of the directory's own checkpoint; (0, None) if there is none.
        """
        place = taken.last.point if taken.last else NO_POINT
        is_needed = local is None or not self._reaches(taken.runs, local)
        if is_needed and place == NO_POINT:
            points.empty_directory(self._disk, self._directory)
        elif is_needed:
            point = points.read_point(self._objects, place, self._pause)
            report = self._report_fetched
            points.fetch_point(self._objects, self._disk, self._directory, point, self._pause, report)
            self._shipped = point.files
        elif local and place[0] == local.incarnation:
            # this point was taken from this directory when its broker was the last owner, or was fetched into it
            self._shipped = self._still_there(place, number)

    def _still_there(self, place: tuple[int, int], number: int) -> dict[str, ShippedFile]:
        """Return those files of the checkpoint in the store (point) at this place of which the store still has all
        parts. The next point ships the others again; if the point itself is lost or damaged, all.

        number: of the directory's own checkpoint. If that is older than the point, no file is returned.
        """
        list_parts = partial(until_clear, partial(self._objects.list, PARTS), self._pause)
        try:
            point, listed = call_both(lambda: points.read_point(self._objects, place, self._pause), list_parts)
        except (Missing, ObjectDamaged) as error:
            self.replaced.append(error.name)
            return {}
        if number < point.checkpoint:
            return {}
        sizes = {each.name: each.size_bytes for each in listed}
        there: dict[str, ShippedFile] = {}
        lost: set[str] = set()
        for path, file in point.files.items():
            lacking = {one.object for one in file.extents if one.position + one.length > sizes.get(one.object, 0)}
            lost |= lacking
            if not lacking:
                there[path] = file
        self.replaced += sorted(lost)
        return there

    def _reaches(self, runs: list[Run], local: StoreCheckpoint) -> bool:
        """Return whether the rounds found in the store begin no later than this checkpoint ends, so that no unit
        between them is missing.
        """
        if not runs:
            return self.taken.last is None or local.through_unit == self.taken.last.last_unit
        first = Place(runs[0].epoch, runs[0].first)
        there = until_clear(lambda: read_head(self._objects, first), self._pause)
        return isinstance(there, RoundHeader) and there.first_unit <= local.through_unit + 1

    def scan(self, start: StoreCheckpoint) -> FoundUnits:
        """Read the rounds in the store; for a directory that is being put into the store, its own journal.

        Raises: JournalDamaged, NewerFormat.
        """
        before = self.taken.claim.epoch - 1  # recovery gives the next start the number after this
        if self._adopts:
            return replace(store_checkpoint.scan_journal(self._disk, self._directory, start), incarnation=before)
        # A checkpoint that needs no journal may name a place in one that was in the directory.
        runs = self.taken.runs
        if start.journal_incarnation:
            runs = runs_from(runs, Place(*start.journal_start))
        return ScanOfObjects(self._objects, self.taken.last, runs, self._pause, before, start.through_unit)

    # ---- what is written -------------------------------------------------------------------------------------

    def begin(self, end: StoreCheckpoint) -> ObjectJournal:
        """Create the first round of the epoch, which makes this broker the owner. Returns the journal. end: the
        checkpoint that has all units before it. Raises: Overtaken.
        """
        if end.incarnation != self.taken.claim.epoch:
            raise RuntimeError(f"start {end.incarnation} is not epoch {self.taken.claim.epoch}")
        self.points = Points(
            self._disk,
            self._directory,
            self._objects,
            self._pause,
            epoch=end.incarnation,
            clock=self._clock,
            made_by=self._made_by,
            shipped=self._shipped,
        )
        if self._adopts:
            return self._adopt(end)
        return self._begin(end)

    def _begin(self, end: StoreCheckpoint) -> ObjectJournal:
        """Create round 0 of the new epoch, and return its journal. Raises: Overtaken."""
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
                point=self.adopted.place if self.adopted else None,
            )
        except Fenced as fenced:
            raise Overtaken(str(fenced)) from fenced

    def _adopt(self, end: StoreCheckpoint) -> ObjectJournal:
        """Put a directory that had a journal of its own into the store: all its data, before anything new is written
        there.

        The mark is written before round 0, because after that round the directory may be older than the store. The mark
        names the epoch, so that a start after a crash can see in the store whether that epoch has begun.
        """
        end.journal_start = EVERYTHING
        self.points.pause_with(self._pause, self._report)
        self.adopted = self.points.take_first()
        epoch = self.taken.claim.epoch
        store_mark.write_mark(self._disk, self._directory, Mark(self._identity, adopting=epoch))
        journal = self._begin(end)
        self._forget_own_journal()
        return journal

    def _forget_own_journal(self) -> None:
        """Write the mark that the journal is only in the store, and remove the journal's files from the directory."""
        store_mark.write_mark(self._disk, self._directory, Mark(self._identity))
        folder = layout.journal_directory(self._directory)
        for name in self._disk.list(folder):
            if file_sequence(name.removesuffix(PREPARING)) is not None:
                self._disk.unlink(f"{folder}/{name}")
        self._disk.sync_directory(folder)


def _broker_of(name: str, content: bytes) -> str:
    """Return node id and addresses of the broker that has begun to put its data directory into the store, as text."""
    try:
        claim = format.read_claim(int(name[-10:]), content)
    except (ValueError, Malformed, NewerObject):
        return "a broker"
    at = " ".join(sorted({f"{host}:{port}" for _, host, port in claim.addresses}))
    return f"node {claim.node} at {at}" if at else f"node {claim.node}"

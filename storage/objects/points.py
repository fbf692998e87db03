"""Points: checkpoints of the owner's data directory in the store, so that rounds before them need not be kept.

A point is shipped like a point of a backup (storage/shipping/): first parts with the bytes that were added to files,
then the object that completes the point. It is official (it counts) once a released round names it. A point is never
named if its owner was replaced before, or if its create was lost. A new owner fetches the point that the last round
names.

Deleted are older points, parts that only older points name, and rounds that the older of the last two official points
does not need, but never the newest two windows of the epoch (fence.first_kept). Seals and claims are never deleted.
Correctness does not depend on deletes, because a name is never used again. While no units are appended, rounds are only
heartbeats, which nobody needs: then the newest point is named again, with a later first round.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ...effects.clock import Clock
from ...effects.disk import Disk
from ...effects.objects import Missing, Objects, ObjectsError
from .. import checkpoints, layout, store_checkpoint
from ..backup.copying import sync_tree
from ..backup.restore import MARK, mark_path
from ..backup.source import PASSES, WHOLE, CheckpointGone, Source, Wanted
from ..journal.format import EVERYTHING
from ..journal_source import StoreDamaged
from ..shipping import names
from ..shipping.creating import create
from ..shipping.fetching import Fetching
from ..shipping.point import JournalPlace, Point, ShippedFile, pack_point, unpack_point
from ..shipping.reading import Lost
from ..shipping.shipper import Shipper
from ..store_checkpoint import StoreCheckpoint
from . import fence, format
from .creating import Pause, as_wait, until_clear
from .epochs import Epochs, call_many
from .errors import ObjectDamaged
from .fence import Place
from .format import WINDOW, RoundHeader
from .journal import ObjectJournal
from .patience import PatientObjects


class PointTaken(NamedTuple):
    """A point that is in the store. start: the first round with units that it lacks. parts: the names of the parts that
    it needs. through_unit: it has all units up to this one.
    """

    place: names.Place
    start: Place
    parts: frozenset[str]
    through_unit: int


class _WithMark(Source):
    """A directory together with its mark of a restore, which goes into the point, so that a broker that takes over
    before the clients were fenced fences them.
    """

    def wanted_files(self, start: StoreCheckpoint, warnings: list[str]) -> Iterator[Wanted]:
        """Yield all files that the checkpoint names, and the mark of a restore if the directory has one."""
        yield from super().wanted_files(start, warnings)
        if self._disk.exists(mark_path(self._directory)):
            yield Wanted(MARK, WHOLE)


class Points:
    """Takes the points of one owner, one at a time, in a worker."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        objects: Objects,
        pause: Pause,
        *,
        epoch: int,
        clock: Clock,
        made_by: str,
        shipped: Mapping[str, ShippedFile],
    ) -> None:
        """epoch: the owner's. made_by: the version of fencepost. shipped: the files of the directory that the store
        already has, with the same content.
        """
        self._disk = disk
        self._directory = directory
        self._objects = PatientObjects(objects, self._again)
        self._epoch = epoch
        self._clock = clock
        self._made_by = made_by
        self._pause = pause
        self._shipper = Shipper(
            disk, directory, self._objects, epoch, clock, as_wait(self._again), made_by, shipped=dict(shipped)
        )
        self._count = 0
        self._last_checkpoint = -1

    def pause_with(self, pause: Pause, report: Callable[[int, int], None] = lambda done, of: None) -> None:
        """Set the function that is called before a failed call to the store is repeated, and the one that is told the
        progress.

        report(done, of): bytes shipped so far, and in all.
        """
        self._pause = pause
        self._shipper.report = report

    def _again(self, error: ObjectsError, attempts: int) -> None:
        """Call the present pause function after an error of the store."""
        self._pause(error, attempts)

    def take_first(self) -> PointTaken:
        """Copy the newest checkpoint of a directory into the store, for a directory whose journal was in the directory
        itself until now. All units of that journal must be in the checkpoint. Returns the point. Raises StoreDamaged
        if files of the directory are damaged; OSError.
        """
        taken = self._take(of_another_journal=True)
        assert taken is not None
        return taken

    def take(self) -> PointTaken | None:
        """Copy the newest checkpoint of the directory, with all files that it names, into the store. Returns None if it
        was copied already, or if the broker made newer checkpoints too quickly. Raises OSError.
        """
        return self._take(of_another_journal=False)

    def _take(self, *, of_another_journal: bool) -> PointTaken | None:
        """Copy the newest checkpoint into the store; None as for take(). of_another_journal: it was made before the
        journal was moved to the store; then StoreDamaged is raised if files of the directory are damaged.
        """
        source = Source(self._disk, self._directory)
        self._shipper.wait = as_wait(self._again)  # anew: it counts the failed calls for each object
        for _ in range(PASSES):
            number, start = source.newest_checkpoint()
            if number == self._last_checkpoint:
                return None
            if of_another_journal:
                start.journal_start = EVERYTHING  # its numbers are not those of rounds in the store
                source = _WithMark(self._disk, self._directory)
            warnings: list[str] = []
            try:
                files = self._shipper.ship_files(source, start, warnings)
                source.check_holds(number)
            except CheckpointGone:
                continue
            if of_another_journal and warnings:
                hint = f"nothing was changed; fencepost log verify {self._directory} shows more; repair it first"
                raise StoreDamaged(self._directory, "it is damaged: " + "; ".join(warnings), hint)
            self._shipper.shipped = dict(files)
            taken = self._create(number, start, files, warnings)
            self._last_checkpoint = number
            return taken
        return None

    def _create(
        self, number: int, start: StoreCheckpoint, files: dict[str, ShippedFile], warnings: list[str]
    ) -> PointTaken:
        """Create the object that completes a point whose files were shipped. Returns the point."""
        self._count += 1
        place = names.Place(self._epoch, self._count)
        goes_on = JournalPlace(start.incarnation, 0, 0, start.journal_start.round, start.through_unit + 1)
        point = Point(
            self._made_by,
            self._clock.now_ms(),
            True,
            number,
            store_checkpoint.pack(start),
            start.through_unit,
            goes_on,
            warnings,
            files,
        )
        create(self._objects, names.point(place), pack_point(point), self._shipper.wait)
        # A checkpoint that names no round of this epoch has all rounds before it.
        first = Place(*start.journal_start) if start.journal_start.file == self._epoch else Place(self._epoch, 0)
        return PointTaken(place, first, frozenset(point.parts()), start.through_unit)


# ---- what is deleted -----------------------------------------------------------------------------------------


@dataclass
class Collecting:
    """Deletes what one owner does not need any more. official: its last two points that a released round names, the
    newest last. check: called before each delete; may raise to end the collection.

    Nothing is deleted before a second point is official, or the first one is named again: whoever reads what the first
    one replaces has that long to read it.
    """

    objects: Objects
    pause: Pause
    epoch: int
    check: Callable[[], None] = lambda: None
    official: list[PointTaken] = field(default_factory=list)
    _dropped: list[PointTaken] = field(default_factory=list)  # older ones, which are not deleted yet
    _collected: int = 0  # this epoch's rounds below this number are deleted
    _named_again: bool = False  # whether a point was named once more, because no unit came after it
    _older_are_gone: bool = False  # whether the rounds and points of older epochs are deleted

    def add(self, point: PointTaken) -> None:
        """Add a point that has become official: a released round names it. Of the official points the last two are
        kept. If the point is the newest one already, only the first round that it needs is updated.
        """
        if self.official and self.official[-1].place == point.place:
            through = point.through_unit
            self.official = [
                one._replace(start=point.start) if one.through_unit == through else one for one in self.official
            ]
            self._named_again = True
            return
        self.official.append(point)
        self._dropped += self.official[:-2]
        self.official = self.official[-2:]

    def newest_with_all_units(self, journal: ObjectJournal) -> PointTaken | None:
        """Return the newest official point if it has all units of the journal, with `start` moved to the first round
        after these units. None if it lacks units, or if there is no official point.
        """
        if not self.official or journal.next_unit - 1 > self.official[-1].through_unit:
            return None
        newest = self.official[-1]
        return newest._replace(start=Place(*journal.start_after(newest.through_unit)))

    def collect(self, released: int) -> None:
        """Delete rounds and points that are not needed any more, in a worker thread.

        released: the number below which all rounds of this owner are released. Raises what `pause` and `check` raise.
        """
        older = self.official[0]
        below = fence.first_kept(released, older.start.number, 2 * WINDOW)
        may_delete = len(self.official) > 1 or self._named_again
        if may_delete and below > self._collected:
            own = dict.fromkeys(range(self._collected, below), True)  # no seal is below what was released
            self._delete(format.place_name(Place(self.epoch, number)) for number in fence.garbage(own, below))
            self._collected = below
        kept = frozenset().union(*(point.parts for point in self.official))
        if may_delete and not self._older_are_gone:
            self._delete_older_rounds()
            self._delete_older_points(kept)
            self._older_are_gone = True
        while self._dropped:
            point = self._dropped[0]
            self._delete([names.point(point.place)])  # first: a reader that misses a part looks for the point
            self._delete(point.parts - kept)
            self._dropped.pop(0)

    def _delete_older_points(self, kept: frozenset[str]) -> None:
        """Delete the points of older epochs, and the parts that only they name."""
        for prefix in (names.POINTS, names.PARTS):
            found = [each.name for each in until_clear(partial(self.objects.list, prefix), self.pause)]
            places = {name: names.place_in(prefix, name) for name in found if name not in kept}
            self._delete(name for name, place in places.items() if place is not None and place.epoch < self.epoch)

    def _delete_older_rounds(self) -> None:
        """Delete the rounds of all older epochs: both official points have all their units."""
        found = until_clear(partial(self.objects.list, format.JOURNAL), self.pause)
        sizes = {place: each.size_bytes for each in found if (place := format.read_place(each.name)) is not None}
        older = [place for place in sizes if place.epoch < self.epoch]
        epochs = Epochs(self.objects, self.pause)
        epochs.read_heads(place for place in older if sizes[place] <= format.HEADER_BYTES)
        kinds: dict[int, dict[int, bool]] = {}
        for place in older:
            is_round = sizes[place] > format.HEADER_BYTES or self._is_round(epochs, place)
            kinds.setdefault(place.epoch, {})[place.number] = is_round
        for epoch, rounds in kinds.items():
            self._delete(format.place_name(Place(epoch, n)) for n in fence.garbage(rounds, format.MAX_ROUNDS))

    def _is_round(self, epochs: Epochs, place: Place) -> bool:
        """Return whether an object of the size of a header is an empty round and not a seal. False also if it is
        damaged, so that it is kept.
        """
        try:
            return isinstance(epochs.head(place), RoundHeader)
        except (Missing, ObjectDamaged):
            return False  # what is damaged is left for people to see

    def _delete(self, going: Iterable[str]) -> None:
        """Delete these objects, several in parallel, each repeatedly while the result is unclear. One after the other
        they would take longer than new ones, where many rounds a second are written.
        """

        def delete(name: str) -> None:
            """Delete one object."""
            self.check()
            until_clear(partial(self.objects.delete, name), self.pause)

        call_many([partial(delete, name) for name in going])


# ---- fetching ------------------------------------------------------------------------------------------------


def read_point(objects: Objects, place: tuple[int, int], pause: Pause) -> Point:
    """Read the checkpoint in the store (point) at this place. Raises: Missing, ObjectDamaged."""
    name = names.point(names.Place(*place))
    content = until_clear(partial(objects.read, name), pause)
    try:
        return unpack_point(content, name)
    except checkpoints.Damaged as damage:
        raise ObjectDamaged(objects.where, name, damage.reason) from damage


def newest_checkpoint(disk: Disk, directory: str) -> tuple[int, StoreCheckpoint | None]:
    """Return number and content of the newest checkpoint of a directory that can be read; (0, None) if there is
    none.
    """
    for number in store_checkpoint.numbers(disk, directory):
        with contextlib.suppress(checkpoints.Damaged, FileNotFoundError):
            return number, store_checkpoint.read(disk, directory, number)
    return 0, None


def fetch_point(
    objects: Objects,
    disk: Disk,
    directory: str,
    point: Point,
    pause: Pause,
    report: Callable[[int, int], None] = lambda done, of: None,
    here: Mapping[str, ShippedFile] | None = None,
) -> None:
    """Make the data directory the one that this point (checkpoint in the store) describes. Bytes that the directory
    already has are not fetched.

    The directory has no checkpoint until everything is fetched, so an interrupted fetch is noticed and repeated. The
    checkpoint that is written names no journal, because the directory has not owned an epoch yet. here: as in Fetching.
    Raises: Missing, ObjectDamaged, OSError.
    """
    empty_directory(disk, directory, besides=point.files)
    patient = PatientObjects(objects, pause)
    fetching = Fetching(patient, disk, directory, as_wait(pause), report=report, here=here or {})
    try:
        written = fetching.fetch_files(point)
    except Lost as lost:
        raise ObjectDamaged(objects.where, lost.name, lost.reason) from lost
    sync_tree(disk, directory, written)
    checkpoint = store_checkpoint.unpack(point.content)
    checkpoint.journal_incarnation = 0
    store_checkpoint.write(disk, directory, point.checkpoint, checkpoint)


def empty_directory(disk: Disk, directory: str, besides: Iterable[str] = ()) -> None:
    """Remove the earlier files of a data directory, except `besides`: first its checkpoints, then its logs. Its lock
    and the mark of its store stay.
    """
    kept = set(besides)
    folders = {path.rpartition("/")[0] for path in kept}
    for name in disk.list(directory):
        if name not in kept and any(layout.parse_number(name, prefix) is not None for prefix in _FILES):
            disk.unlink(f"{directory}/{name}")
    if MARK not in kept and disk.exists(mark_path(directory)):
        disk.unlink(mark_path(directory))
    disk.sync_directory(directory)
    for folder in _FOLDERS:
        if disk.is_directory(f"{directory}/{folder}"):
            _remove_others(disk, directory, folder, kept | folders)
    disk.sync_directory(directory)


def _remove_others(disk: Disk, directory: str, folder: str, kept: set[str]) -> None:
    """Remove everything below a folder except the files and folders in `kept`."""
    names_there = disk.list(f"{directory}/{folder}")
    for path in (f"{folder}/{name}" for name in names_there):
        if not disk.is_directory(f"{directory}/{path}"):
            if path not in kept:
                disk.unlink(f"{directory}/{path}")
        elif path in kept:
            _remove_others(disk, directory, path, kept)
        else:
            disk.remove_tree(f"{directory}/{path}")
    disk.sync_directory(f"{directory}/{folder}")


_FOLDERS = tuple(
    folder.rpartition("/")[2]
    for folder in (layout.journal_directory(""), layout.logs_directory(""), layout.kept_parts_directory(""))
)
_FILES = (layout.CHECKPOINT, layout.COORDINATORS)

"""Points: checkpoints of the owner's data directory in the store, so that rounds before them need not be kept.

A point is shipped as a backup's is (storage/shipping/): parts with what was added to files, then the object that makes
it one. It counts, "is official", once a released round names it: a point of an owner that was taken over from, or
whose create was lost, is named by none. Whoever takes over fetches the one that the last round names.

What goes: rounds that the older of the last two official points does not need, but never the newest two windows of the
epoch (fence.first_kept); older points, and parts that only they name. Seals and claims stay for ever. Deletes are not
relied on: a name is never used again. While no unit comes, rounds are heartbeats, which nobody needs: the newest point
is named again then, with a later first round.
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
from ..backup.source import PASSES, WHOLE, Overtaken, Source, Wanted
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
from .creating import Pause, read_head, until_clear
from .errors import ObjectDamaged
from .fence import Place
from .format import WINDOW, RoundHeader
from .journal import ObjectJournal
from .patience import PatientObjects


class PointTaken(NamedTuple):
    """A point that is in the store. start: the first round that is not in it; parts: that it names.

    through_unit: it has all units up to this one.
    """

    place: names.Place
    start: Place
    parts: frozenset[str]
    through_unit: int


class _WithMark(Source):
    """A directory with the mark of a restore, so that whoever takes over before clients were fenced does that."""

    def wanted_files(self, start: StoreCheckpoint, warnings: list[str]) -> Iterator[Wanted]:
        """Yield all files that the checkpoint names, and the mark of a restore if the directory has one."""
        yield from super().wanted_files(start, warnings)
        if self._disk.exists(mark_path(self._directory)):
            yield Wanted(MARK, WHOLE)


class Points:
    """Takes the points of one owner, in a worker: one at a time."""

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
        """epoch: the owner's. made_by: this version. shipped: the files of the directory that are in the store
        already, with the same content.
        """
        self._disk = disk
        self._directory = directory
        self._objects = PatientObjects(objects, self._again)
        self._epoch = epoch
        self._clock = clock
        self._made_by = made_by
        self._pause = pause
        self._shipper = Shipper(
            disk, directory, self._objects, epoch, clock, self._wait, made_by, shipped=dict(shipped)
        )
        self._count = 0
        self._last_checkpoint = -1

    def pause_with(self, pause: Pause, report: Callable[[int, int], None] = lambda done, of: None) -> None:
        """From now on call `pause` before a failed call to the store is made again, and `report` with what was
        shipped.

        report(done, of): bytes shipped so far, and in all.
        """
        self._pause = pause
        self._shipper.report = report

    def _again(self, error: ObjectsError, attempts: int) -> None:
        """Pause after an error of the store, as pause_with() says now."""
        self._pause(error, attempts)

    def _wait(self, error: ObjectsError) -> None:
        """Pause after an error of the store, before shipping calls it again."""
        self._pause(error, 1)

    def take_first(self) -> PointTaken:
        """Copy the newest checkpoint of a directory into the store, which had its journal in the directory until now.
        All units of that journal are in the checkpoint.
        """
        taken = self._take(of_another_journal=True)
        assert taken is not None
        return taken

    def take(self) -> PointTaken | None:
        """Copy the newest checkpoint of the directory, with all files that it names, into the store. None: it was
        copied already, or the broker made newer ones too quickly. Raises OSError.
        """
        return self._take(of_another_journal=False)

    def _take(self, *, of_another_journal: bool) -> PointTaken | None:
        """Ship the newest checkpoint. of_another_journal: it was made before the directory was put into the store."""
        source = Source(self._disk, self._directory)
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
            except Overtaken:
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
        """Create the object that makes the shipped files a point. Returns the point."""
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
        create(self._objects, names.point(place), pack_point(point), self._wait)
        # A checkpoint that names no round of this epoch has all rounds before it.
        first = Place(*start.journal_start) if start.journal_start.file == self._epoch else Place(self._epoch, 0)
        return PointTaken(place, first, frozenset(point.parts()), start.through_unit)


# ---- what goes -----------------------------------------------------------------------------------------------


@dataclass
class Collecting:
    """What one owner deletes. official: its last two points that a released round names, the newest last."""

    objects: Objects
    pause: Pause
    epoch: int
    official: list[PointTaken] = field(default_factory=list)
    _dropped: list[PointTaken] = field(default_factory=list)  # and not deleted yet
    _collected: int = 0  # own rounds below are deleted
    _older_are_gone: bool = False

    def add(self, point: PointTaken) -> None:
        """Note that a point is official, or that the first round it needs is a later one now."""
        if self.official and self.official[-1].place == point.place:
            through = point.through_unit
            self.official = [
                one._replace(start=point.start) if one.through_unit == through else one for one in self.official
            ]
            return
        self.official.append(point)
        self._dropped += self.official[:-2]
        self.official = self.official[-2:]

    def newest_behind(self, journal: ObjectJournal) -> PointTaken | None:
        """Return the newest official checkpoint in the store, with the first round that may have units which it lacks.
        None: there is none, or it lacks units of the journal.
        """
        if not self.official or journal.next_unit - 1 > self.official[-1].through_unit:
            return None
        newest = self.official[-1]
        return newest._replace(start=Place(*journal.start_after(newest.through_unit)))

    def collect(self, released: int) -> None:
        """Delete rounds and points that are not needed any more, in a worker thread.

        released: the number of the first own round that is not released. Raises what the pause raises.
        """
        older = self.official[0]
        below = fence.first_kept(released, older.start.number, 2 * WINDOW)
        if len(self.official) > 1 and below > self._collected:
            own = dict.fromkeys(range(self._collected, below), True)  # no seal is below what was released
            self._delete(format.place_name(Place(self.epoch, number)) for number in fence.garbage(own, below))
            self._collected = below
        kept = frozenset().union(*(point.parts for point in self.official))
        if len(self.official) > 1 and not self._older_are_gone:
            self._delete_older_rounds()
            self._delete_older_points(kept)
            self._older_are_gone = True
        while self._dropped:
            point = self._dropped[0]
            self._delete([names.point(point.place), *sorted(point.parts - kept)])
            self._dropped.pop(0)

    def _delete_older_points(self, kept: frozenset[str]) -> None:
        """Delete the points of older epochs, and what only they name."""
        for prefix in (names.POINTS, names.PARTS):
            for found in until_clear(partial(self.objects.list, prefix), self.pause):
                place = names.place_in(prefix, found.name)
                if place is not None and place.epoch < self.epoch and found.name not in kept:
                    self._delete([found.name])

    def _delete_older_rounds(self) -> None:
        """Delete the rounds of all older epochs: both official points have them."""
        kinds: dict[int, dict[int, bool]] = {}
        for found in until_clear(partial(self.objects.list, format.JOURNAL), self.pause):
            place = format.read_place(found.name)
            if place is not None and place.epoch < self.epoch:
                is_round = found.size_bytes > format.HEADER_BYTES or self._is_round(place)
                kinds.setdefault(place.epoch, {})[place.number] = is_round
        for epoch, rounds in kinds.items():
            self._delete(format.place_name(Place(epoch, n)) for n in fence.garbage(rounds, format.MOST_ROUNDS))

    def _is_round(self, place: Place) -> bool:
        """Return whether an object of the size of a header is an empty round rather than a seal. Damaged ones count as
        seals.
        """
        try:
            return isinstance(until_clear(partial(read_head, self.objects, place), self.pause), RoundHeader)
        except (Missing, ObjectDamaged):
            return False  # what is damaged is left for people to see

    def _delete(self, going: Iterable[str]) -> None:
        """Delete these objects; repeat it while the result is unclear."""
        for name in going:
            until_clear(partial(self.objects.delete, name), self.pause)


# ---- fetching ------------------------------------------------------------------------------------------------


def read_point(objects: Objects, place: tuple[int, int], pause: Pause) -> Point:
    """Read a point. Raises: Missing, ObjectDamaged."""
    name = names.point(names.Place(*place))
    content = until_clear(partial(objects.read, name), pause)
    try:
        return unpack_point(content, name)
    except checkpoints.Damaged as damage:
        raise ObjectDamaged(objects.where, name, damage.reason) from damage


def newest_checkpoint(disk: Disk, directory: str) -> tuple[int, StoreCheckpoint | None]:
    """Return number and content of the newest checkpoint of a directory that can be read; (0, None): there is none."""
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
    """Make the data directory the one that this point (checkpoint in the store) describes. Bytes that it has already
    are not fetched.

    Raises: Missing, ObjectDamaged, OSError. The directory has no checkpoint until all is fetched, so an interrupted
    fetch is noticed and done again. The checkpoint that is written names no journal, since the directory has not owned
    an epoch yet. here: as in Fetching.
    """
    empty_directory(disk, directory, besides=point.files)
    patient = PatientObjects(objects, pause)
    fetching = Fetching(patient, disk, directory, partial(_wait, pause), report=report, here=here or {})
    try:
        written = fetching.fetch_files(point)
    except Lost as lost:
        raise ObjectDamaged(objects.where, lost.name, lost.reason) from lost
    sync_tree(disk, directory, written)
    checkpoint = store_checkpoint.unpack(point.content)
    checkpoint.journal_incarnation = 0
    store_checkpoint.write(disk, directory, point.checkpoint, checkpoint)


def empty_directory(disk: Disk, directory: str, besides: Iterable[str] = ()) -> None:
    """Remove what a data directory has from before, besides these files: its checkpoints first, then logs. Its lock
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
    """Remove what is below a folder, except the files and folders to be kept."""
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


def _wait(pause: Pause, error: ObjectsError) -> None:
    """Pause after an error of the store, before it is called again."""
    pause(error, 1)

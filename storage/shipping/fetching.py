"""Makes a data directory out of a point (checkpoint in a store) and the rounds after it, up to a given time.

The rules are those of a restore from a folder (storage/backup/restore.py): the target is new or empty, every byte is
compared with its checksum, the mark that fences old clients is written before the checkpoint, and the checkpoint last.
Objects that are missing or damaged in the store are named. If the point was deleted meanwhile, because it was older
than what is kept, that is reported, and a newer one is fetched.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from crc32c import crc32c

from ...effects.disk import AlreadyLocked, Disk, File
from ...effects.objects import Missing, Objects
from ...effects.threads import call_all
from .. import checkpoints, layout, store_checkpoint
from ..backup.copying import remove_contents, sync_tree
from ..backup.manifest import BackupRefused
from ..backup.restore import LOST_AND_FOUND, MARK, MARK_VERSION, check_empty, mark_path
from ..journal.reading import JournalDamaged
from ..recovery import make_directory
from . import names
from .creating import Wait, ask
from .names import Place
from .point import Extent, Point, Rounds, ShippedFile
from .reading import Lost, list_points, read_extent, read_point, rounds_after

THREADS = 8
ATTEMPTS = 20
EARLIER = "fencepost store verify URL lists all that is damaged; --at TIME restores an earlier moment"
Report = Callable[[int, int], None]


@dataclass
class Fetched:
    """From what a data directory was made. moment_ms: wall time at which the follower read the newest data in it."""

    place: Place
    point: Point
    moment_ms: int
    last_unit: int
    rounds: int = 0
    size_bytes: int = 0


class _Collected(Exception):
    """Raised if the point was deleted while it was read."""


@dataclass
class Fetching:
    """A restore. say: called with a line for people. report: called with the bytes done so far, and how many there are.

    here: files of the directory whose first bytes are known to be these extents. In other files, the bytes that are
    there are compared with the checksums, and only those that differ are fetched.
    """

    objects: Objects
    disk: Disk
    directory: str
    wait: Wait
    say: Callable[[str], None] = lambda line: None
    report: Report = lambda done, of: None
    threads: int = THREADS
    here: Mapping[str, ShippedFile] = field(default_factory=dict)
    _done_bytes: int = 0
    _of_bytes: int = 0

    def run(self, at_ms: int | None = None) -> Fetched:
        """Make the directory from the newest point in the store and the rounds after it. at_ms: only from points and
        rounds that the follower had read from the broker's disk by this wall time; None: from all.

        Raises: BackupRefused; checkpoints.Damaged, NewerFormat; Refused, OSError; what `wait` raises. What was written
        is removed before one of them is raised.
        """
        check_empty(self.disk, self.directory)
        self._choose(at_ms)  # raises BackupRefused before anything is made
        make_directory(self.disk, self.directory)
        try:
            lock = self.disk.lock(layout.lock_path(self.directory))
        except AlreadyLocked as locked:
            raise BackupRefused(f"{self.directory} is in use by process {locked.pid}", "name another folder") from None
        done = False
        try:
            check_empty(self.disk, self.directory, besides="lock")
            fetched = self._attempts(at_ms)
            done = True
            return fetched
        finally:
            if not done:
                remove_contents(self.disk, self.directory, keep=LOST_AND_FOUND)
            lock.release()

    def _attempts(self, at_ms: int | None) -> Fetched:
        """Fetch a point; if it is deleted meanwhile, a newer one. Raises BackupRefused after ATTEMPTS attempts."""
        for _ in range(ATTEMPTS):
            place, point = self._choose(at_ms)
            try:
                return self._fetch(place, point, at_ms)
            except _Collected:
                self.say(f"point {place} was not to be kept any longer and went while it was read: taking a newer one")
                for name in self.disk.list(self.directory):
                    if name not in ("lock", LOST_AND_FOUND):
                        _remove(self.disk, f"{self.directory}/{name}")
        raise BackupRefused(
            f"{self.objects.where}: {ATTEMPTS} points went while they were read", "keep them for longer: --keep"
        )

    # ---- which point -----------------------------------------------------------------------------------------

    def _choose(self, at_ms: int | None) -> tuple[Place, Point]:
        """Return the newest point that was taken by at_ms, with its place. A damaged point is passed over; if at_ms is
        None, it raises BackupRefused. Raises BackupRefused also if there is no point.
        """
        for _ in range(ATTEMPTS):
            oldest: Point | None = None
            gone = False
            for place in reversed(list_points(self.objects, self.wait)):
                try:
                    point = read_point(self.objects, place, self.wait)
                except Missing:  # collected since it was listed
                    gone = True
                    continue
                except Lost as lost:
                    if at_ms is None:
                        raise BackupRefused(f"{self.objects.where}: {lost}", EARLIER) from None
                    self.say(f"damaged: {lost}")
                    continue
                if point is not None:
                    if at_ms is None or point.taken_ms <= at_ms:
                        return place, point
                    oldest = point
            if not gone:
                break
        if oldest is None:
            raise BackupRefused(
                f"{self.objects.where} has no backup, or one whose first point was not finished",
                "look for a mistake in the URL; fencepost store status URL shows what is there",
            )
        raise BackupRefused(
            f"{self.objects.where}: the oldest point is of {time_text(oldest.taken_ms)}",
            f"--at {time_text(oldest.taken_ms)} or later",
        )

    # ---- fetching --------------------------------------------------------------------------------------------

    def _fetch(self, place: Place, point: Point, at_ms: int | None) -> Fetched:
        """Write a point and the rounds after it, check the journal, and write the checkpoint last."""
        fetched = Fetched(place, point, point.taken_ms, point.last_unit, 0, point.size_bytes)
        with self._explained(place):
            written = self.fetch_files(point)
            written |= self._fetch_rounds(fetched, at_ms)
        sync_tree(self.disk, self.directory, written)
        start = store_checkpoint.unpack(point.content)
        self._check_journal(start, fetched)
        checkpoints.write_file(self.disk, mark_path(self.directory), MARK, MARK_VERSION, b"")
        store_checkpoint.write(self.disk, self.directory, point.checkpoint, start)
        return fetched

    def fetch_files(self, point: Point) -> set[str]:
        """Write the files of a point. Returns their paths; none is synced. Raises: Lost, Missing."""
        self._done_bytes, self._of_bytes = 0, sum(file.shipped_bytes for file in point.files.values())
        self._make_folders(point)
        paths = sorted(point.files, key=lambda path: _order(point, path))
        files = [partial(self._fetch_file, path, point.files[path]) for path in paths]
        call_all(files, "fencepost-fetching", self.threads)
        return set(paths)

    def _fetch_rounds(self, fetched: Fetched, at_ms: int | None) -> set[str]:
        """Write the rounds after a point, up to a given time. Returns the paths of the files written. If an object is
        lost, the rounds before it are kept if at_ms is given; else Lost is raised.
        """
        written: set[str] = set()
        try:
            for _, rounds in rounds_after(self.objects, fetched.place, self.wait):
                if at_ms is not None and rounds.taken_ms > at_ms:
                    break
                written |= self._write_rounds(rounds)
                fetched.rounds += 1
                fetched.moment_ms, fetched.last_unit = rounds.taken_ms, rounds.last_unit
        except (Lost, Missing) as error:
            lost = error if isinstance(error, Lost) else Lost(error.name, "it is missing")
            if at_ms is None:
                raise Lost(
                    lost.name, f"{lost.reason}; what comes before it is of {time_text(fetched.moment_ms)}"
                ) from None
            if self._is_gone(fetched.place):
                raise
            self.say(f"damaged: {lost}; restored is what comes before it")
        return written

    def _is_gone(self, place: Place) -> bool:
        """Return whether the point's object was deleted."""
        try:
            ask(lambda: self.objects.read(names.point(place), 0, 1), self.wait)
        except Missing:
            return True
        return False

    @contextmanager
    def _explained(self, place: Place) -> Iterator[None]:
        """Within the block, turn the error for a lost object into BackupRefused, or into _Collected if the whole point
        was deleted.
        """
        try:
            yield
        except (Lost, Missing) as lost:
            if self._is_gone(place):
                raise _Collected from None
            reason = str(lost) if isinstance(lost, Lost) else f"{lost.name}: it is missing"
            raise BackupRefused(f"{self.objects.where}: {reason}", EARLIER) from None

    def _make_folders(self, point: Point) -> None:
        """Create the folders of the point's files."""
        folders = {path.rpartition("/")[0] for path in point.files} - {""}
        for folder in (layout.journal_directory(""), layout.logs_directory("")):
            folders.add(folder.removeprefix("/"))
        for folder in sorted(folders):
            self.disk.make_directory(f"{self.directory}/{folder}")

    def _fetch_file(self, path: str, shipped: ShippedFile) -> None:
        """Write one file of a point. Extents that the directory has already are not fetched. Raises: Lost, Missing."""
        known = set(_placed(self.here[path])) if path in self.here else set()
        file = self.disk.open(f"{self.directory}/{path}", create=True)
        try:
            there = file.size()
            for position, extent in _placed(shipped):
                if not ((position, extent) in known or _has(file, there, position, extent)):
                    file.write([read_extent(self.objects, extent, self.wait)], position)
                self._done_bytes += extent.length
                self.report(self._done_bytes, max(self._done_bytes, self._of_bytes))
            if there > shipped.shipped_bytes:  # the file has zeros after the extents, and not what was there
                file.truncate(shipped.shipped_bytes)
            _set_size(file, shipped.size_bytes)
        finally:
            file.close()

    def _write_rounds(self, rounds: Rounds) -> set[str]:
        """Write rounds to the places that they had in the journal; all are read before the first is written. Returns
        the paths.
        """
        folder = layout.journal_directory("").removeprefix("/")
        extents = {extent for piece in rounds.pieces for extent in piece.extents}
        read: dict[Extent, bytes] = {}
        call_all([partial(self._read_into, read, extent) for extent in extents], "fencepost-fetching", self.threads)
        for piece in rounds.pieces:
            file = self.disk.open(f"{self.directory}/{folder}/{piece.file}", create=True)
            try:
                _set_size(file, piece.size_bytes)
                file.write([piece.data, *(read[extent] for extent in piece.extents)], piece.position)
            finally:
                file.close()
        return {f"{folder}/{piece.file}" for piece in rounds.pieces}

    def _read_into(self, read: dict[Extent, bytes], extent: Extent) -> None:
        """Read an extent from the store, and put its bytes into the dict `read`."""
        read[extent] = read_extent(self.objects, extent, self.wait)

    def _check_journal(self, start: store_checkpoint.StoreCheckpoint, fetched: Fetched) -> None:
        """Raise BackupRefused if a start would find other units in the journal than the rounds announce."""
        try:
            found = store_checkpoint.scan_journal(self.disk, self.directory, start).last_unit
            problem = f"it ends with unit {found}, and not with {fetched.last_unit}"
            is_sound = max(found, start.through_unit) == fetched.last_unit
        except JournalDamaged as damage:
            problem, is_sound = str(damage), False
        if not is_sound:
            where = f"{self.objects.where}: the journal after point {fetched.place}"
            raise BackupRefused(f"{where}: {problem}", EARLIER)


def time_text(at_ms: int) -> str:
    """Return a wall time in milliseconds as ISO 8601 text, in UTC."""
    text = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace(".000", "").replace("+00:00", "Z")


def _remove(disk: Disk, path: str) -> None:
    """Delete a file, or a folder with its content."""
    if disk.is_directory(path):
        disk.remove_tree(path)
    else:
        disk.unlink(path)


def _order(point: Point, path: str) -> tuple[bool, int, str]:
    """Return the sort key of a file: the journal first, so that an unfinished directory can be recognised; then large
    files.
    """
    return not path.startswith("journal/"), -point.files[path].size_bytes, path


def _placed(shipped: ShippedFile) -> Iterator[tuple[int, Extent]]:
    """Yield the extents of a file, each with its position in that file."""
    position = 0
    for extent in shipped.extents:
        yield position, extent
        position += extent.length


def _has(file: File, size_bytes: int, position: int, extent: Extent) -> bool:
    """Return whether a file of this size has an extent's bytes at a position; False also if they cannot be read."""
    if position + extent.length > size_bytes:
        return False
    try:
        return crc32c(file.read(extent.length, position)) == extent.crc
    except OSError:
        return False


def _set_size(file: File, size_bytes: int) -> None:
    """Cut the file to this size, or extend it with zeros."""
    if file.size() != size_bytes:
        file.truncate(size_bytes)

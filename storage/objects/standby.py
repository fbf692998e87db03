"""A data directory that is kept up to date with the newest point (checkpoint in a store) while another broker owns the
store.

The rule: nothing is decided here. A point has only what was released, so any owner can continue from the directory or
fill it again: a take-over judges the store as if nothing were here. If a point is deleted while it is read, because the
owner has newer ones, that is reported, and the next one is fetched.
"""

from collections.abc import Callable, Mapping
from functools import partial

from ...effects.disk import Disk, Lock
from ...effects.objects import Missing, Objects
from .. import layout
from ..recovery import make_directory
from ..shipping.point import ShippedFile
from . import points
from .creating import Pause, read_head, until_clear
from .errors import ObjectDamaged
from .fence import Place
from .format import NO_POINT, RoundHeader, Seal


class StandbyDirectory:
    """The directory of a broker that waits to take over. update() and close() block: they are for one worker."""

    def __init__(
        self,
        objects: Objects,
        disk: Disk,
        directory: str,
        pause: Pause,
        *,
        mark: Callable[[], bool],
        say: Callable[[str], None] = lambda line: None,
        report: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        """mark: writes into the directory of which store it is a copy; returns False if the directory has data of its
        own, which is left as it is. say: called with a line for people.

        report: called with the bytes of a point that were fetched so far, and how many there are; may raise to end
        that.
        """
        self._objects = objects
        self._disk = disk
        self._directory = directory
        self._pause = pause
        self._mark = mark
        self._say = say
        self._report = report
        self._lock: Lock | None = None
        self._tried = NO_POINT
        self._here: Mapping[str, ShippedFile] = {}

    def update(self, newest: Place) -> None:
        """Bring the directory to the point (checkpoint in the store) that the round at this place names; if a seal is
        there, to the point that the round before it names. Returns early if that point was tried already, the directory
        is as new, or it has data of its own.

        The directory is locked from now on until close(). Raises: AlreadyLocked, StoreDamaged, OSError; what the pause
        and the report raise.
        """
        place = self._named(newest)
        if place in (NO_POINT, self._tried):
            return
        self._take_lock()
        if not self._mark():
            return
        self._tried = place
        here, self._here = self._here, {}
        name = f"point {place[0]}-{place[1]}"
        try:
            point = points.read_point(self._objects, place, self._pause)
            _, local = points.newest_checkpoint(self._disk, self._directory)
            if local is not None and local.through_unit >= point.last_unit:
                return
            points.fetch_point(self._objects, self._disk, self._directory, point, self._pause, self._report, here)
        except Missing as missing:
            self._say(f"{name}: {missing.name} is gone; the next one is fetched")
        except ObjectDamaged as damage:
            self._say(f"{name}: {damage.name}: {damage.reason}; the next one is fetched")
        else:
            self._here = point.files
            self._say(f"{name} is here, {point.size_bytes / 1e6:.1f} MB")

    def close(self) -> None:
        """Unlock the directory."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _take_lock(self) -> None:
        """Create and lock the directory, unless it is locked already."""
        if self._lock is None:
            make_directory(self._disk, self._directory)
            self._lock = self._disk.lock(layout.lock_path(self._directory))

    def _named(self, newest: Place) -> tuple[int, int]:
        """Return the point that the round at this place names; if a seal is there, the point that the round before it
        names. NO_POINT if the round cannot be read now.
        """
        try:
            there = until_clear(partial(read_head, self._objects, newest), self._pause)
            if isinstance(there, Seal) and newest.number:
                before = newest._replace(number=newest.number - 1)
                there = until_clear(partial(read_head, self._objects, before), self._pause)
        except (Missing, ObjectDamaged):
            return NO_POINT
        return there.point if isinstance(there, RoundHeader) else NO_POINT

"""Removes points (checkpoints in a store) that need not be kept any more, and the objects that only these points
needed.

The rules: retention.py decides which points are kept. A point is deleted first, then the parts and rounds that only it
needs; later points may name them, too. A point that still exists after the delete keeps all of its objects, and is
deleted again the next time. Only objects of epochs up to this one are deleted, because their followers are sealed.
While a point that must be kept cannot be read, it is unknown which objects it needs, and nothing is deleted. Seals are
never deleted. Objects that a crash left are deleted by the next follower, which compares all names once.
"""

from dataclasses import dataclass, field

from ...effects.objects import Missing, Objects
from . import names, retention
from .creating import Wait, ask, list_names, read
from .names import Place
from .point import Point, is_seal
from .retention import Known


@dataclass
class Collector:
    """Deletes points (checkpoints in a store) that are older than keep_ms, and objects that only these points
    needed. points: all points in the store; None for one that cannot be read.
    """

    objects: Objects
    epoch: int
    wait: Wait
    keep_ms: int
    points: dict[Place, Known | None] = field(default_factory=dict)
    _has_compared_names: bool = False  # whether what earlier followers left is deleted

    def add(self, place: Place, point: Point | None) -> None:
        """Note that there is a point at this place in the store. point: None if it cannot be read."""
        self.points[place] = Known(point.taken_ms, frozenset(point.parts())) if point else None

    def collect(self, now_ms: int, unnamed: set[str]) -> None:
        """Delete points that are older than needed, and objects that only they needed. Deletes nothing if a point that
        must be kept cannot be read. Raises: Refused; what `wait` raises.

        unnamed: parts that were created and that no point names; those that are deleted are removed from the set. Must
        not be called while a point is being shipped, because that point will name such parts.
        """
        known = self._with_times()
        unneeded = retention.unneeded_points(known, now_ms, self.keep_ms)
        if None in (self.points[place] for place in self.points if place not in unneeded):
            return
        gone = self._delete_points(unneeded)
        kept = [self.points[place] for place in self.points if place not in gone]
        if None in kept:
            return
        going: set[str] = set(unnamed)
        for place in gone:
            going |= known[place].parts | self._rounds_of(place)
            del self.points[place]
        if not self._has_compared_names:
            going |= self._left_behind()
            self._has_compared_names = True
        for name in retention.unneeded_parts(going, [each for each in kept if each is not None]):
            self._delete(name)
            unnamed.discard(name)

    def _delete_points(self, places: list[Place]) -> list[Place]:
        """Delete these points. Returns the ones that no longer exist: some stores report a deletion and keep the
        object.
        """
        for place in places:
            self._delete(names.point(place))
        there = set(list_names(self.objects, names.POINTS, self.wait)) if places else set()
        return [place for place in places if names.point(place) not in there]

    def _with_times(self) -> dict[Place, Known]:
        """Return all points with the time at which they were taken. One that cannot be read gets the time of the point
        before it.
        """
        found: dict[Place, Known] = {}
        taken_ms = 0
        for place in sorted(self.points):
            known = self.points[place]
            taken_ms = known.taken_ms if known else taken_ms
            found[place] = known or Known(taken_ms, frozenset())
        return found

    def _left_behind(self) -> set[str]:
        """Return the names of objects that earlier followers may have left: the rounds of deleted points, and all parts
        of epochs up to this one. The caller leaves out the parts that a point needs.
        """
        going: set[str] = set()
        for folder in (names.ROUNDS, names.PIECES):
            for name in list_names(self.objects, folder, self.wait):
                parsed = names.place_of_rounds(name)
                is_old = parsed is not None and parsed[0] not in self.points and parsed[0].epoch <= self.epoch
                if is_old and not self._is_seal(name):
                    going.add(name)
        parts = list_names(self.objects, names.PARTS, self.wait)
        places = {name: names.place_in(names.PARTS, name) for name in parts}
        return going | {name for name, place in places.items() if place and place.epoch <= self.epoch}

    def _rounds_of(self, place: Place) -> set[str]:
        """Return the names of a point's rounds and of the objects with their bytes. A seal is left out, because it may
        still have to stop an older follower.
        """
        found = list_names(self.objects, names.rounds_of(place), self.wait)
        if found and self._is_seal(found[-1]):
            del found[-1]
        return {*found, *list_names(self.objects, names.pieces_of(place), self.wait)}

    def _is_seal(self, name: str) -> bool:
        """Return whether the object under this name is a seal of rounds. Reads the object."""
        if not name.startswith(names.ROUNDS):
            return False
        try:
            return is_seal(read(self.objects, name, self.wait))
        except Missing:
            return False

    def _delete(self, name: str) -> None:
        """Delete an object; wait and try again while the store does not answer."""
        ask(lambda: self.objects.delete(name), self.wait)

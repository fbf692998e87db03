"""Removes points that are not kept any more, with what only they needed.

The rules: of retention.py; a point goes first, then its rounds, then parts. Only what epochs up to one's own have
created goes: their followers are sealed. While a point cannot be read, nobody knows what it refers to, and no part
goes. Seals stay. What a crash left behind goes with the next follower, which compares all names once.
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
    """points: those that are kept, None for one that cannot be read."""

    objects: Objects
    epoch: int
    wait: Wait
    keep_ms: int
    points: dict[Place, Known | None] = field(default_factory=dict)
    _looked: bool = False

    def add(self, place: Place, point: Point | None) -> None:
        """Take note of a point in the store."""
        self.points[place] = Known(point.taken_ms, frozenset(point.parts())) if point else None

    def collect(self, now_ms: int, unnamed: set[str]) -> None:
        """Remove what is not needed. unnamed: parts that were created in vain; those that went are taken out.

        Called when all parts that will be named are. Raises: Refused; what `wait` raises.
        """
        known = self._with_times()
        going: set[str] = set(unnamed)
        for place in retention.unneeded_points(known, now_ms, self.keep_ms):
            self._delete(names.point(place))
            self._remove_rounds(place)
            going |= known[place].parts
            del self.points[place]
        if not self._looked:
            going |= self._left_behind()
            self._looked = True
        kept = list(self.points.values())
        if None in kept:
            return
        for name in retention.unneeded_parts(going, [each for each in kept if each is not None]):
            self._delete(name)
            unnamed.discard(name)

    def _with_times(self) -> dict[Place, Known]:
        """The points; one that cannot be read counts as taken when the one before it was."""
        found: dict[Place, Known] = {}
        taken_ms = 0
        for place in sorted(self.points):
            known = self.points[place]
            taken_ms = known.taken_ms if known else taken_ms
            found[place] = known or Known(taken_ms, frozenset())
        return found

    def _left_behind(self) -> set[str]:
        """Return all parts of epochs up to one's own, and remove rounds behind points that are gone."""
        behind = [
            each for folder in (names.ROUNDS, names.PIECES) for each in list_names(self.objects, folder, self.wait)
        ]
        for name in behind:
            parsed = names.place_of_rounds(name)
            if parsed and parsed[0] not in self.points and parsed[0].epoch <= self.epoch:
                self._remove_one_of_rounds(name)
        parts = list_names(self.objects, names.PARTS, self.wait)
        places = {name: names.place_in(names.PARTS, name) for name in parts}
        return {name for name, place in places.items() if place and place.epoch <= self.epoch}

    def _remove_rounds(self, place: Place) -> None:
        found = list_names(self.objects, names.rounds_of(place), self.wait)
        for name in found[:-1]:
            self._delete(name)
        for name in found[-1:]:
            self._remove_one_of_rounds(name)
        for name in list_names(self.objects, names.pieces_of(place), self.wait):
            self._delete(name)

    def _remove_one_of_rounds(self, name: str) -> None:
        """Remove rounds, unless it is a seal: it may still have to stop somebody."""
        try:
            if not is_seal(read(self.objects, name, self.wait)):
                self._delete(name)
        except Missing:
            pass

    def _delete(self, name: str) -> None:
        ask(lambda: self.objects.delete(name), self.wait)

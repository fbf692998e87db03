"""Reads points and rounds from a store.

The rule: an object that should be there and is missing, or has other bytes than were written, is reported and never
skipped. It may be missing because its point was deleted meanwhile; a caller that meets this looks whether the point
still exists.
"""

from collections.abc import Iterator, Sequence

from crc32c import crc32c

from ...effects.objects import Missing, Objects
from .. import checkpoints
from . import names
from .creating import Wait, ask, list_names, read
from .names import Place
from .point import Extent, Point, Rounds, is_seal, unpack_point, unpack_rounds


class Lost(Exception):
    """Raised if an object is missing, or has other bytes than were written. name: of the object."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


def read_points(objects: Objects, wait: Wait) -> tuple[dict[Place, Point | None], list[str]]:
    """Return all points in a store (None for one that cannot be read), and a line for each that cannot be read. Seals
    are left out.

    Raises checkpoints.NewerFormat, Refused; what `wait` raises.
    """
    points: dict[Place, Point | None] = {}
    problems: list[str] = []
    for place in list_points(objects, wait):
        try:
            point = read_point(objects, place, wait)
        except Lost as lost:
            points[place] = None
            problems.append(str(lost))
        except Missing:  # deleted since it was listed
            pass
        else:
            if point is not None:
                points[place] = point
    return points, problems


def list_points(objects: Objects, wait: Wait) -> list[Place]:
    """Return the places of all points and of the seals after them, in order."""
    found = (names.place_in(names.POINTS, name) for name in list_names(objects, names.POINTS, wait))
    return [place for place in found if place is not None]


def read_point(objects: Objects, place: Place, wait: Wait) -> Point | None:
    """Read a point; None if it is a seal. Raises: Missing; Lost, if it is damaged; checkpoints.NewerFormat, Refused."""
    name = names.point(place)
    content = read(objects, name, wait)
    if is_seal(content):
        return None
    try:
        return unpack_point(content, name)
    except checkpoints.Damaged as damage:
        raise Lost(name, damage.reason) from None


def rounds_after(objects: Objects, place: Place, wait: Wait) -> Iterator[tuple[str, Rounds]]:
    """Yield name and content of each object with journal rounds (writes of the journal) after a point (a checkpoint in
    the store), in the order of their numbers, up to the newest one or to a seal (with which a follower has ended the
    point's epoch).

    wait: called before a failed call of the store is repeated. Raises Lost for an object that is missing or damaged;
    checkpoints.NewerFormat, Refused, and what `wait` raises.
    """
    for name in numbered(place, list_names(objects, names.rounds_of(place), wait)):
        try:
            content = read(objects, name, wait)
        except Missing:
            raise Lost(name, "it is missing") from None
        if is_seal(content):
            return
        try:
            yield name, unpack_rounds(content, name)
        except checkpoints.Damaged as damage:
            raise Lost(name, damage.reason) from None


def read_extent(objects: Objects, extent: Extent, wait: Wait) -> bytes:
    """Read the bytes of an extent and compare them with their checksum. Raises: Missing; Lost, if they are damaged;
    Refused.
    """
    data = ask(lambda: objects.read(extent.object, extent.position, extent.length), wait)
    if len(data) != extent.length:
        raise Lost(extent.object, f"it ends at byte {extent.position + len(data)}")
    if crc32c(data) != extent.crc:
        raise Lost(extent.object, f"it fails its checksum at byte {extent.position}")
    return data


def numbered(place: Place, found: Sequence[str]) -> list[str]:
    """Return the names of a point's rounds from 1 to the highest number found, with the names that are missing in
    between.
    """
    parsed = [each[1] for name in found if (each := names.place_of_rounds(name)) is not None]
    return [names.rounds(place, number) for number in range(1, max(parsed, default=0) + 1)]

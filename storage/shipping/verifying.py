"""Reads what is in a store: for `fencepost store status`, and with every byte compared for `verify`.

The rule: nothing is changed. An object that was deleted with its point while it was read is no damage: before anything
counts as lost, the point is looked for again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from crc32c import crc32c

from ...effects.objects import Missing, Objects
from . import names
from .creating import Wait, ask, read
from .names import Place
from .point import Claim, Extent, Point, unpack_claim
from .reading import Lost, read_extent, read_point, read_points, rounds_after


@dataclass
class StoreStatus:
    """The content of a backup's store. points: the points in the store, oldest first. newest_ms: the follower's wall
    time of the newest state in it. claim, epoch: of the last follower. unnamed_bytes: the bytes of parts that no
    point names, because they are still being shipped or were abandoned.
    """

    points: list[tuple[Place, Point]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    objects: int = 0
    size_bytes: int = 0
    unnamed_bytes: int = 0
    rounds: int = 0
    newest_ms: int = 0
    last_unit: int = 0
    epoch: int = 0
    claim: Claim | None = None


def read_status(objects: Objects, wait: Wait) -> StoreStatus:
    """Return the status of a store, from all its names, the points, the newest claim and the newest rounds. Raises
    NewerFormat, Refused.
    """
    status = StoreStatus()
    sizes = {each.name: each.size_bytes for each in ask(lambda: objects.list("0/"), wait)}
    status.objects, status.size_bytes = len(sizes), sum(sizes.values())
    points, status.problems = read_points(objects, wait)
    status.points = [(place, point) for place, point in sorted(points.items()) if point is not None]
    named: set[str] = set().union(*(point.parts() for _, point in status.points))
    parts = {name: size for name, size in sizes.items() if name.startswith(names.PARTS)}
    status.unnamed_bytes = sum(size for name, size in parts.items() if name not in named)
    if status.points:
        place, point = status.points[-1]
        status.newest_ms, status.last_unit = point.taken_ms, point.last_unit
        try:
            for _, rounds in rounds_after(objects, place, wait):
                status.rounds += 1
                status.newest_ms, status.last_unit = rounds.taken_ms, rounds.last_unit
        except Lost as lost:
            status.problems.append(str(lost))
    status.epoch = max((names.claimed_epoch(name) or 0 for name in sizes), default=0)
    if status.epoch:
        name = names.claim(status.epoch)
        status.claim = unpack_claim(read(objects, name, wait), name)
    return status


def extents_of(points: Iterable[Point]) -> dict[str, set[Extent]]:
    """Return the extents that these points need, by the name of the part."""
    found: dict[str, set[Extent]] = {}
    for point in points:
        for file in point.files.values():
            for extent in file.extents:
                found.setdefault(extent.object, set()).add(extent)
    return found


def faults_of_part(
    objects: Objects, name: str, extents: Iterable[Extent], wait: Wait
) -> tuple[int, list[tuple[str, list[Extent]]]]:
    """Read a part and compare it with the checksums of these extents. Returns the part's length, and (what is wrong,
    with which extents) for each fault.
    """
    try:
        content = memoryview(read(objects, name, wait))
    except Missing:
        return 0, [("it is missing", list(extents))]
    faults: list[tuple[str, list[Extent]]] = []
    for extent in sorted(extents):
        end = extent.position + extent.length
        data = content[extent.position : end]
        if len(data) < extent.length or crc32c(data) != extent.crc:
            faults.append((f"bytes {extent.position} to {end} are damaged", [extent]))
    return len(content), faults


@dataclass
class Verifying:
    """Compares everything that any point refers to with its checksums; each part is read once."""

    objects: Objects
    wait: Wait
    report: Callable[[int, int], None] = lambda done, of: None
    problems: list[str] = field(default_factory=list)
    points: int = 0
    size_bytes: int = 0

    def run(self) -> list[str]:
        """Read everything that points need. Returns a line for each object that is missing or damaged, with the points
        concerned. Raises NewerFormat, Refused.
        """
        points, self.problems = read_points(self.objects, self.wait)
        sound = {place: point for place, point in points.items() if point is not None}
        self.points = len(points)
        needing: dict[Extent, list[Place]] = {}
        for place, point in sound.items():
            for extents in extents_of([point]).values():
                for extent in extents:
                    needing.setdefault(extent, []).append(place)
        of_bytes = sum(extent.length for extent in needing)
        for name, extents in sorted(extents_of(sound.values()).items()):
            length, faults = faults_of_part(self.objects, name, extents, self.wait)
            self.size_bytes += length
            for reason, damaged in faults:
                self._note(f"{name}: {reason}", {place for extent in damaged for place in needing[extent]})
            self.report(self.size_bytes, max(self.size_bytes, of_bytes))
        for place in sound:
            self._verify_rounds(place)
        return self.problems

    def _verify_rounds(self, place: Place) -> None:
        """Read all rounds after a point, and note what is missing or damaged."""
        try:
            for _, rounds in rounds_after(self.objects, place, self.wait):
                for piece in rounds.pieces:
                    for extent in piece.extents:
                        read_extent(self.objects, extent, self.wait)
                    self.size_bytes += piece.length
        except Lost as lost:
            self._note(str(lost), {place})
        except Missing as missing:
            self._note(f"{missing.name}: it is missing", {place})

    def _note(self, problem: str, places: set[Place]) -> None:
        """Add a line about damage that concerns these points, unless all of them were deleted meanwhile."""
        there = [place for place in sorted(places) if self._is_there(place)]
        if there:
            more = f" and {len(there) - 1} more" if len(there) > 1 else ""
            self.problems.append(f"{problem}, of point {there[-1]}{more}")

    def _is_there(self, place: Place) -> bool:
        """Return whether the point still exists."""
        try:
            return read_point(self.objects, place, self.wait) is not None
        except Missing:
            return False

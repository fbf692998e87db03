"""Becoming the owner of a journal in a store of objects: claim an epoch, end those before it, read what counts.

What is decided is fence.Taker's; here it is carried out. Blocking: for a worker, or a start. Rounds are read twice:
here, to know that all are there and sound before anything is changed, and again when recovery applies them; so memory
is needed for one at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...effects.objects import Exists, Missing, Objects
from ..journal.format import FlatPart, Malformed, read_parts
from . import fence, format
from .creating import Pause, read_head, until_clear
from .errors import ObjectDamaged, Overtaken
from .fence import Phase, Place, Run, Taker
from .format import Claim, NewerObject, RoundHeader, Seal

WINDOW = 4  # rounds of an epoch that may be on their way beside each other; all brokers of a store have the same


@dataclass(slots=True)
class Taken:
    """An epoch that may begin. runs: what is to be read, in order; last: the newest round that counts."""

    claim: Claim
    base: int = 0
    base_end: int = 0
    runs: list[Run] = field(default_factory=list)
    last: RoundHeader | None = None


def read_identity(objects: Objects, pause: Pause, new: bytes) -> bytes:
    """Return what tells this store from others: `new`, if it has nothing of the kind. Raises: ObjectDamaged."""
    name, content = format.IDENTITY_NAME, format.pack_identity(new)
    while True:
        try:
            until_clear(lambda: objects.create(name, content), pause)
        except Exists:
            pass  # the store's, or ours, made by a request whose answer was lost
        try:
            return format.read_identity(until_clear(lambda: objects.read(name), pause))
        except Missing:  # that it exists was not true
            continue
        except (Malformed, NewerObject) as error:
            raise ObjectDamaged(objects.where, name, str(error)) from error


def list_places(objects: Objects, prefix: str, pause: Pause) -> list[Place]:
    """List the names of rounds and seals, in their order. Again, as long as a listing proves nothing."""
    while True:
        found = until_clear(lambda: objects.list(prefix), pause)
        places = [place for each in found if (place := format.read_place(each.name)) is not None]
        if fence.is_proof([place.epoch * format.MOST_ROUNDS + place.number for place in places]):
            return sorted(places)


class Takeover:
    """One way to an epoch, in the order of run()."""

    def __init__(self, objects: Objects, pause: Pause, claim: Claim) -> None:
        """claim: who is to own it, and from which epoch on."""
        self._objects = objects
        self._pause = pause
        self._claim = claim
        self._kinds: dict[Place, bool] = {}  # whether a name has a round: what has a name never changes

    def run(self) -> Taken:
        """Claim an epoch, and end all before it. Raises: Overtaken, ObjectDamaged; what the pause raises."""
        self._claim = claim = self._create_claim()
        taker = Taker(claim.epoch, WINDOW)
        taken = Taken(claim)
        while taker.phase is not Phase.BEGIN:
            if taker.phase is Phase.CLAIMED:
                taker = taker.looked(*self._look_around(claim.epoch))
            elif taker.phase is Phase.LIST:
                taker = self._list(taker)
            elif taker.phase is Phase.SEAL:
                self._seal(taker)
                taker = taker.sealed()
            elif taker.phase is Phase.READ:
                taker, taken = self._read(taker)
            else:
                raise Overtaken(f"another broker has taken over from epoch {claim.epoch}, which was to be ours")
        return taken

    # ---- the claim -------------------------------------------------------------------------------------------

    def _create_claim(self) -> Claim:
        """Create the claim of an epoch above all there are."""
        claim = self._claim
        while True:
            newest = max(self._claimed(), default=0)
            claim = claim._replace(epoch=max(claim.epoch, newest + 1))
            if self._is_ours(claim):
                return claim

    def _claimed(self) -> list[int]:
        found = until_clear(lambda: self._objects.list(format.CLAIMS), self._pause)
        epochs = [format.read_claim_name(each.name) for each in found]
        return [epoch for epoch in epochs if epoch is not None]

    def _is_ours(self, claim: Claim) -> bool:
        """Create a claim. Returns False if it is another's."""
        name, content = format.claim_name(claim.epoch), format.pack_claim(claim)

        def create() -> bool:
            try:
                self._objects.create(name, content)
            except Exists:
                return self._objects.read(name) == content  # created by a request whose answer was lost?
            return True

        while True:
            try:
                return until_clear(create, self._pause)
            except Missing:  # that it exists was not true
                continue

    # ---- ends of epochs --------------------------------------------------------------------------------------

    def _places(self, prefix: str) -> list[Place]:
        return list_places(self._objects, prefix, self._pause)

    def _is_round(self, place: Place) -> bool:
        if place not in self._kinds:
            try:
                there = until_clear(lambda: read_head(self._objects, place), self._pause)
                self._kinds[place] = isinstance(there, RoundHeader)
            except Missing:
                self._kinds[place] = True  # it was listed, and only rounds are ever deleted
        return self._kinds[place]

    def _look_around(self, own: int) -> tuple[int, bool]:
        """Return the newest epoch below its own that has a round, or the oldest there may be; and if it is too late."""
        places = self._places(format.JOURNAL)
        passed = any(place.epoch > own and self._is_round(place) for place in places)
        passed = passed or (Place(own, 0) in places and not self._is_round(Place(own, 0)))
        begun = next((place.epoch for place in reversed(places) if place.epoch < own and self._is_round(place)), 0)
        return begun or min([*self._claimed(), own]), passed

    def _list(self, taker: Taker) -> Taker:
        places = self._places(format.epoch_prefix(taker.ending))
        return taker.listed(self._near_top(places))

    def _near_top(self, places: list[Place]) -> dict[int, bool]:
        """Tell rounds from seals where it matters: a seal a window or more below the newest round is not valid."""
        rounds: dict[int, bool] = {}
        top: int | None = None
        for place in reversed(places):
            if top is not None and place.number <= top - WINDOW:
                break
            rounds[place.number] = self._is_round(place)
            if top is None and rounds[place.number]:
                top = place.number
        return rounds

    def _seal(self, taker: Taker) -> None:
        place = Place(taker.ending, taker.place)
        content = format.pack_seal(Seal(place, self._claim.salt, taker.epoch, False))
        try:
            until_clear(lambda: self._objects.create(format.place_name(place), content), self._pause)
        except Exists:
            pass  # whoever has the name, and whether this seal is valid, a listing tells

    # ---- what counts -----------------------------------------------------------------------------------------

    def _read(self, taker: Taker) -> tuple[Taker, Taken]:
        """Check that all which counts is there, and sound."""
        base, end = taker.base
        taken = Taken(self._claim, base, end)
        try:
            taken.runs = fence.runs(base, end, lambda place: self._header(place).says)
            if base:
                taken.last = self._header(Place(base, end - 1))
                self._check_end(base, end)
            for _ in read_rounds(self._objects, taken.runs, self._pause):
                pass
        except (Missing, ObjectDamaged) as missing:
            after = taker.missed(self._is_overtaken(taker))
            if after.phase is Phase.DAMAGED and isinstance(missing, Missing):
                raise ObjectDamaged(self._objects.where, missing.name, "it is lost") from missing
            if after.phase is Phase.DAMAGED:
                raise
            return after, taken
        return taker.complete(), taken

    def _check_end(self, base: int, end: int) -> None:
        """Look whether the round at the end was lost: those that began behind it say what was released by then."""
        for place in self._places(format.epoch_prefix(base)):
            if place.number > end and self._is_round(place) and self._header(place).released > end:
                name, says = format.place_name(Place(base, end)), format.place_name(place)
                raise ObjectDamaged(self._objects.where, name, f"it is lost: {says} says that it was released")

    def _header(self, place: Place) -> RoundHeader:
        there = until_clear(lambda: read_head(self._objects, place), self._pause)
        if isinstance(there, Seal):
            raise ObjectDamaged(self._objects.where, format.place_name(place), "it is a seal, where a round belongs")
        return there

    def _is_overtaken(self, taker: Taker) -> bool:
        base, own = taker.base[0], taker.epoch
        places = self._places(format.JOURNAL)
        if Place(own, 0) in places and not self._is_round(Place(own, 0)):
            return True
        return any(place.epoch > base and place.epoch != own and self._is_round(place) for place in places)


def read_rounds(objects: Objects, runs: list[Run], pause: Pause) -> Iterator[tuple[RoundHeader, memoryview]]:
    """Read rounds, in order. Raises: Missing; ObjectDamaged, also if they do not follow each other."""
    before: RoundHeader | None = None
    for run in runs:
        for number in range(run.first, run.end):
            place = Place(run.epoch, number)
            name = format.place_name(place)
            content = until_clear(lambda name=name: objects.read(name), pause)  # type: ignore[misc]
            try:
                header, body = format.read_round(place, content)
            except (Malformed, NewerObject) as error:
                raise ObjectDamaged(objects.where, name, str(error)) from error
            if before is not None and (header.round, header.first_unit) != (before.round + 1, before.last_unit + 1):
                reason = f"it is round {header.round} from unit {header.first_unit}"
                raise ObjectDamaged(objects.where, name, f"{reason}, behind {before.round} with {before.last_unit}")
            before = header
            yield header, body


@dataclass(slots=True)
class ScanOfObjects:
    """What recovery reads: the units of all rounds that count."""

    objects: Objects
    taken: Taken
    runs: list[Run]
    pause: Pause
    through_unit: int  # of the checkpoint: the first round may not begin behind the next
    cut_bytes: int = 0  # what was never released is not looked for
    cut_reason: str = ""

    @property
    def incarnation(self) -> int:
        return self.taken.claim.epoch - 1

    @property
    def highest_unit(self) -> int:
        return self.taken.last.last_unit if self.taken.last else 0

    @property
    def highest_round(self) -> int:
        return self.taken.last.round if self.taken.last else 0

    def parts(self, above: int = 0) -> Iterator[FlatPart]:
        """The parts of the units above a number, in order. Raises: Overtaken, if rounds are gone meanwhile."""
        try:
            is_first = True
            for header, body in read_rounds(self.objects, self.runs, self.pause):
                if is_first and header.first_unit > self.through_unit + 1:
                    name = format.place_name(header.place)
                    reason = f"it begins at unit {header.first_unit}, unit {self.through_unit + 1} is missing"
                    raise ObjectDamaged(self.objects.where, name, reason)
                is_first = False
                if header.units and header.last_unit > above:
                    yield from read_parts(body, above)
        except Missing as missing:
            raise Overtaken(f"{missing.name} is gone since it was read: another broker has taken over") from missing

"""Takes over a journal in an object store: claims an epoch, ends the epochs before it, and reads the rounds that count.

fence.Taker decides the steps, and this module carries them out. It blocks, so it runs in a worker or during a start.
Rounds are read twice: here, to make sure that all of them exist and are valid before anything is changed, and again
when recovery applies them. With kept.py most rounds are fetched from the store only once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...effects.objects import Missing, Objects
from ..journal.format import FlatPart, Malformed, read_parts
from . import fence, format
from .creating import Pause, create_or_read, create_seal, until_clear
from .epochs import Epochs, read_rounds
from .errors import ObjectDamaged, Overtaken
from .fence import Phase, Place, Run, Taker
from .format import WINDOW, Claim, NewerObject, RoundHeader, Seal


@dataclass(slots=True)
class Taken:
    """An epoch that may begin. base, base_end: as in fence.Header. runs: the rounds to be read, in order. last: header
    of the newest round that counts.
    """

    claim: Claim
    base: int = 0
    base_end: int = 0
    runs: list[Run] = field(default_factory=list)
    last: RoundHeader | None = None


def read_identity(objects: Objects, pause: Pause, new: bytes) -> bytes:
    """Return the store's identity, 16 random bytes that no other store has. A store without an identity gets `new`.
    Raises: ObjectDamaged.
    """
    name, content = format.IDENTITY_NAME, format.pack_identity(new)

    def read_or_create() -> bytes:
        """Return the content of the object with the identity. It is read first, since it is almost always there."""
        try:
            return objects.read(name)
        except Missing:
            return create_or_read(objects, name, content)

    try:
        return format.read_identity(until_clear(read_or_create, pause))
    except (Malformed, NewerObject) as error:
        raise ObjectDamaged(objects.where, name, str(error)) from error


class Takeover:
    """One take-over of a store, in the order of run()."""

    def __init__(
        self,
        objects: Objects,
        pause: Pause,
        claim: Claim,
        *,
        for_others: bool = False,
        watched_epoch: int | None = None,
    ) -> None:
        """claim: the broker that takes the store over, and the lowest epoch that it may get. for_others: the epochs are
        ended so that a waiting broker may begin at once (see end()).

        watched_epoch: the epoch whose owner was found to be gone, 0 if there was none; an owner that has begun a later
        epoch is not replaced. None: no owner was watched.
        """
        self._for_others = for_others
        self._watched_epoch = watched_epoch
        self._objects = objects
        self._pause = pause
        self._claim = claim
        self._epochs = Epochs(objects, pause)

    def run(self) -> Taken:
        """Claim an epoch, end all epochs before it, and read what the new owner needs. Returns the epoch, which may
        begin now, with the rounds to apply. Raises: Overtaken, ObjectDamaged; what the pause raises.
        """
        claim, taker = self._begin()
        taken = Taken(claim)
        while taker.phase is not Phase.BEGIN:
            taker, taken = self._read(self._end_all(taker))
        return taken

    def end(self) -> tuple[int, int, int]:
        """Claim an epoch, and end all epochs before it, so that another broker can begin.

        Returns the claimed epoch, and the newest epoch that has begun with its end; (…, 0, 0) if none has begun.
        Raises: Overtaken, ObjectDamaged; what the pause raises.
        """
        claim, taker = self._begin()
        taker = self._end_all(taker)
        return claim.epoch, *taker.base

    def _begin(self) -> tuple[Claim, Taker]:
        """Claim a new epoch. Returns the claim, and the state of the take-over."""
        self._claim = claim = self._create_claim()
        return claim, Taker(claim.epoch, WINDOW)

    def _end_all(self, taker: Taker) -> Taker:
        """End all epochs before its own. Returns the state in which the rounds of the ended epochs can be read. Raises:
        Overtaken.
        """
        while taker.phase is not Phase.READ:
            if taker.phase is Phase.CLAIMED:
                taker = taker.looked(*self._look_around(taker.epoch))
            elif taker.phase is Phase.LIST:
                taker = self._list(taker)
            elif taker.phase is Phase.SEAL:
                self._seal(taker)
                taker = taker.sealed()
            else:
                raise Overtaken(f"another broker has taken over from epoch {taker.epoch}, which was to be ours")
        return taker

    # ---- the claim -------------------------------------------------------------------------------------------

    def _create_claim(self) -> Claim:
        """Create the claim of an epoch that is above all claimed ones. Returns the claim.

        It is above all epochs with a round, too: a claim that the store has lost must not be given again, since its
        rounds are still there. Of a watched owner no listing is needed for that: if a later epoch has begun since,
        _look_around() finds it.
        """
        claim, begun = self._claim, self._watched_epoch
        if begun is None:
            begun = max((place.epoch for place in self._epochs.places()), default=0)
        while True:
            newest = max([begun, *self._epochs.claimed()])
            claim = claim._replace(epoch=max(claim.epoch, newest + 1))
            if self._is_ours(claim):
                return claim

    def _is_ours(self, claim: Claim) -> bool:
        """Create the object of a claim. Returns whether the epoch is ours; False if another broker has claimed it."""
        name, content = format.claim_name(claim.epoch), format.pack_claim(claim)
        return until_clear(lambda: create_or_read(self._objects, name, content), self._pause) == content

    # ---- ends of epochs --------------------------------------------------------------------------------------

    def _look_around(self, own: int) -> tuple[int, bool, dict[int, int]]:
        """Return (epoch, passed, ended). epoch: the newest epoch below `own` that has a round; if none has, the oldest
        one claimed. passed: the take-over is too late, because an epoch above `own` has a round, or another broker has
        ended `own` or, after the store had lost its claim, begun it. ended: the ends of epochs from `epoch` on that
        have one.

        own: the epoch that this take-over has claimed. Raises Overtaken if a broker other than the watched owner has
        begun an epoch since.
        """
        places = self._epochs.places()
        passed = any(place.epoch == own or (place.epoch > own and self._epochs.is_round(place)) for place in places)
        begun = self._epochs.newest_begun(places, below=own)
        self._check_watched(begun)
        begun = begun or min([*self._epochs.claimed(), own])
        return begun, passed, self._epochs.ends([place for place in places if begun <= place.epoch < own])

    def _list(self, taker: Taker) -> Taker:
        """List the epoch that is being ended. Returns the next state. Raises Overtaken if another broker than the
        watched owner has begun it meanwhile.
        """
        rounds = self._epochs.near_top(self._epochs.places(format.epoch_prefix(taker.ending)))
        if any(rounds.values()):
            self._check_watched(taker.ending)
        return taker.listed(rounds)

    def _check_watched(self, begun: int) -> None:
        """Raise Overtaken if this epoch, which has begun, is later than that of the watched owner."""
        if self._watched_epoch is not None and begun > self._watched_epoch:
            raise Overtaken(f"another broker has begun epoch {begun}")

    def _seal(self, taker: Taker) -> None:
        """Try to create the seal that ends the epoch. If the name is taken, the next listing shows by what."""
        place = Place(taker.ending, taker.place)
        seal = Seal(place, self._claim.salt, taker.epoch, handed_over=self._for_others)
        create_seal(self._objects, seal, self._pause)

    # ---- what counts -----------------------------------------------------------------------------------------

    def _read(self, taker: Taker) -> tuple[Taker, Taken]:
        """Read and check all rounds that the new owner needs. Returns the next state of the take-over, and the epoch
        with these rounds. Raises ObjectDamaged.
        """
        base, end = taker.base
        taken = Taken(self._claim, base, end)
        try:
            taken.runs = fence.runs(base, end, lambda place: self._epochs.header(place).says)
            if base:
                taken.last = self._epochs.header(Place(base, end - 1))
                self._epochs.check_end(base, end)
            for _ in read_rounds(self._objects, taken.runs, self._pause):
                pass
        except (Missing, ObjectDamaged) as missing:
            after = taker.missed(self._is_overtaken(taker.base[0]))
            if after.phase is Phase.DAMAGED and isinstance(missing, Missing):
                raise ObjectDamaged(self._objects.where, missing.name, "it is lost") from missing
            if after.phase is Phase.DAMAGED:
                raise
            return after, taken
        return taker.complete(), taken

    def why_gone(self, taken: Taken, name: str) -> Overtaken | ObjectDamaged:
        """Return the error for an object that the new owner needs, and that is not there: it was deleted by another
        broker that has taken over since, or it is lost. taken: what run() returned.
        """
        if self._is_overtaken(taken.base):
            return Overtaken(f"{name} is gone: another broker has taken over")
        return ObjectDamaged(self._objects.where, name, "it is lost")

    def _is_overtaken(self, base: int) -> bool:
        """Return whether another broker has sealed the new epoch, or a later one has begun. base: the epoch from which
        this take-over goes on.
        """
        own, places = self._claim.epoch, self._epochs.places()
        if Place(own, 0) in places and not self._epochs.is_round(Place(own, 0)):
            return True
        return any(place.epoch > base and place.epoch != own and self._epochs.is_round(place) for place in places)


@dataclass(slots=True)
class ScanOfObjects:
    """The units of all rounds that count, as recovery reads them."""

    objects: Objects
    last: RoundHeader | None  # of all rounds in the store that count, the newest
    runs: list[Run]
    pause: Pause
    incarnation: int  # the newest that may have written to the store: the epoch before the one claimed
    through_unit: int  # the checkpoint has all units up to this one, so no later unit than the next may be the first
    cut_bytes: int = 0  # rounds that were never released are not looked for
    cut_reason: str = ""

    @property
    def highest_unit(self) -> int:
        """The number of the last unit in the store; 0 if there is none."""
        return self.last.last_unit if self.last else 0

    @property
    def highest_round(self) -> int:
        """The number of the last round in the store; 0 if there is none."""
        return self.last.round if self.last else 0

    @property
    def age_ms(self) -> int:
        """The store's age when the last round was written; 0 if there is none."""
        return self.last.age_ms if self.last else 0

    def parts(self, above: int = 0) -> Iterator[FlatPart]:
        """Yield the parts of all units above a number, in order. Raises: Overtaken, if rounds were deleted before they
        were read; ObjectDamaged.
        """
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


def runs_from(runs: list[Run], start: Place) -> list[Run]:
    """Return the rounds from `start` on; all rounds if `start` is in none of their epochs."""
    if not any(run.epoch == start.epoch for run in runs):
        return runs
    cut = [run._replace(first=max(run.first, start.number)) if run.epoch == start.epoch else run for run in runs]
    return [run for run in cut if run.epoch >= start.epoch and run.first < run.end]

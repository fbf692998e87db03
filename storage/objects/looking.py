"""Reads a journal in an object store without changing it, for status, verify and restore.

The rule: nothing is claimed or ended, so the owner may write meanwhile. The rounds that count are those that a
take-over would find now: the newest epoch that has begun, up to where it was ended or would be ended. Everything
acknowledged before a look began is in it, and stays in the history of every later owner. The owner deletes what its
newest checkpoint does not need. So a look that misses an object is repeated, and the object counts as lost only if the
owner has no newer checkpoint.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from ...effects.objects import Missing, Objects
from ..journal.format import Malformed
from ..shipping.point import Point
from ..shipping.verifying import extents_of, faults_of_part
from . import fence, format
from .creating import Pause, as_wait, until_clear
from .epochs import Epochs, call_many, read_rounds
from .errors import ObjectDamaged
from .fence import Place, Run
from .format import NO_POINT, WINDOW, Claim, NewerObject, RoundHeader, Seal
from .points import read_point

LOOKS = 20  # how often look() is called at most, if objects are deleted while they are read

T = TypeVar("T")


class MovedOn(Exception):
    """Raised if objects that were to be read are gone, because the owner has a newer checkpoint. Look again then."""


@dataclass(slots=True)
class Looked:
    """The result of look(). The rounds of `epoch` below `end` count; both are 0 if nothing was ever written.

    sealed: the seal that ended the epoch; None if its owner may still write. last: header of the newest round that
    counts. runs: the rounds after the checkpoint that it names, in order. sizes: of all objects, by name. claims: the
    epochs that were claimed.
    """

    epoch: int = 0
    end: int = 0
    sealed: Seal | None = None
    last: RoundHeader | None = None
    runs: list[Run] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    claims: list[int] = field(default_factory=list)

    @property
    def since_round(self) -> int:
        """The number, counted over all epochs, of this epoch's first round."""
        return self.last.round - self.last.place.number if self.last else 0

    @property
    def point(self) -> tuple[int, int]:
        """(epoch, number) of the checkpoint that the newest round names; NO_POINT if there is none."""
        return self.last.point if self.last else NO_POINT

    @property
    def rounds(self) -> int:
        """The number of rounds after the checkpoint."""
        return sum(run.end - run.first for run in self.runs)


class Looking:
    """Reads the journal in one store, without changing it."""

    def __init__(self, objects: Objects, pause: Pause) -> None:
        self.objects = objects
        self.pause = pause

    def repeated(self, read: Callable[[Looked], T], moved: Callable[[], None] = lambda: None) -> T:
        """Call `read` with the result of look(), and return what it returns. If an object is missing or damaged, which
        the owner may have deleted meanwhile, look and read again, LOOKS times in all at most.

        moved: called before each further look. Raises ObjectDamaged if the same object fails twice in a row, or after
        the last try; also what `read` and the pause between tries of a call raise.
        """
        missed: Exception | None = None
        for _ in range(LOOKS):
            before = missed
            try:
                return read(self.look())
            except (Missing, ObjectDamaged, MovedOn) as error:
                missed = error
            if str(before) == str(missed) and not isinstance(missed, MovedOn):
                break  # the same object failed twice. MovedOn is of no object: the next try reads others
            moved()
        if isinstance(missed, ObjectDamaged):
            raise missed
        name = missed.name if isinstance(missed, Missing) else ""
        raise ObjectDamaged(self.objects.where, name, "it is lost") from missed

    def look(self) -> Looked:
        """Find the newest epoch with a round, where it ends, and which rounds follow the checkpoint that its last
        round names. Raises: Missing, ObjectDamaged; what the pause raises.
        """
        epochs = Epochs(self.objects, self.pause)
        sizes = {each.name: each.size_bytes for each in until_clear(lambda: self.objects.list("0/"), self.pause)}
        looked = Looked(sizes=sizes, claims=sorted(epochs.claimed()))
        places = epochs.places()
        looked.epoch = epoch = epochs.newest_begun(places)
        if not epoch:
            return looked
        rounds = epochs.near_top([place for place in places if place.epoch == epoch])
        end = fence.valid_end(rounds, WINDOW)
        if end is not None:
            sealed = epochs.head(Place(epoch, end))
            looked.sealed = sealed if isinstance(sealed, Seal) else None
        looked.end = end = fence.seal_place(rounds, WINDOW) if end is None else end
        epochs.check_end(epoch, end)
        looked.last = epochs.header(Place(epoch, end - 1))
        looked.runs = fence.runs(epoch, end, lambda place: epochs.header(place).says)
        return looked

    def check_identity(self) -> None:
        """Raise ObjectDamaged unless the object that identifies the store, without which nobody takes over, is there
        and undamaged.
        """
        name = format.IDENTITY_NAME
        try:
            format.read_identity(until_clear(lambda: self.objects.read(name), self.pause))
        except Missing as error:
            raise ObjectDamaged(self.objects.where, name, "it is lost") from error
        except (Malformed, NewerObject) as error:
            raise ObjectDamaged(self.objects.where, name, str(error)) from error

    def claim(self, epoch: int) -> Claim | None:
        """Return the claim of an epoch, which names the broker; None if its object is lost. Raises ObjectDamaged."""
        name = format.claim_name(epoch)
        try:
            return format.read_claim(epoch, until_clear(lambda: self.objects.read(name), self.pause))
        except Missing:
            return None
        except (Malformed, NewerObject) as error:
            raise ObjectDamaged(self.objects.where, name, str(error)) from error

    def seals(self, looked: Looked) -> dict[int, Seal]:
        """Read the valid seals (marks that an epoch has ended). Returns them by epoch. Raises: ObjectDamaged."""
        epochs = Epochs(self.objects, self.pause)
        places = list(filter(None, map(format.read_place, sorted(looked.sizes))))
        heads = {epoch: epochs.head(Place(epoch, end)) for epoch, end in epochs.ends(places).items()}
        return {epoch: head for epoch, head in heads.items() if isinstance(head, Seal)}

    def point(self, looked: Looked) -> Point | None:
        """Read the checkpoint in the store (point) that the newest round names; None if it names none. Raises:
        Missing, ObjectDamaged.
        """
        place = looked.point
        return None if place == NO_POINT else read_point(self.objects, place, self.pause)


@dataclass
class JournalVerifying:
    """Reads everything that a take-over would need now, and compares it with its checksums."""

    looking: Looking
    report: Callable[[int, int], None] = lambda done, of: None
    problems: list[str] = field(default_factory=list)
    rounds: int = 0
    size_bytes: int = 0

    def run(self) -> list[str]:
        """Read everything; again if the owner deletes objects meanwhile. Returns a line for each object that is lost or
        damaged; an empty list if none is. Raises what the pause raises.
        """
        try:
            return self.looking.repeated(self._read)
        except ObjectDamaged as damage:
            return [*self.problems, f"{damage.name}: {damage.reason}"]

    def _read(self, looked: Looked) -> list[str]:
        """Read every object that a start from the store would read, and report progress.

        Returns a line for each lost or damaged object without which all others can still be read: the identity, and
        parts of the checkpoint in the store. Raises Missing or ObjectDamaged for any other object; MovedOn if there are
        lines, but the store has a newer checkpoint by now: the objects may have been deleted since.
        """
        looking = self.looking
        self.problems, self.rounds, self.size_bytes = [], 0, 0
        try:
            looking.check_identity()
        except ObjectDamaged as damage:
            self.problems.append(f"{damage.name}: {damage.reason}")
        call_many(partial(looking.claim, epoch) for epoch in looked.claims)
        looking.seals(looked)
        of_bytes = sum(size for name, size in looked.sizes.items() if not name.startswith(format.CLAIMS))
        point = looking.point(looked)
        if point is not None:
            self._read_parts(point, of_bytes)
        for _, body in read_rounds(looking.objects, looked.runs, looking.pause):
            self.rounds += 1
            self.size_bytes += format.HEADER_BYTES + len(body)
            self.report(self.size_bytes, max(of_bytes, self.size_bytes))
        if self.problems and looking.look().point != looked.point:
            raise MovedOn  # what is missing may have been removed since
        return self.problems

    def _read_parts(self, point: Point, of_bytes: int) -> None:
        """Read all parts (objects with bytes of files) that the point needs, and note those that are damaged or
        missing.
        """
        wait = as_wait(self.looking.pause)
        for name, extents in sorted(extents_of([point]).items()):
            length, faults = faults_of_part(self.looking.objects, name, extents, wait)
            self.size_bytes += length
            self.problems += [f"{name}: {reason}" for reason, _ in faults]
            self.report(self.size_bytes, max(of_bytes, self.size_bytes))

"""Reads which epochs (times of one owner), rounds and seals a store has, and changes nothing.

An object under one of these names never changes, so its content is cached. If a name was listed and has been deleted
since, the object was a round, because seals are never deleted.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby, islice
from operator import attrgetter
from typing import TypeVar

from ...effects.objects import Missing, Objects, Unclear
from ...effects.threads import call_all
from ..journal.format import Malformed
from . import fence, format
from .creating import Pause, read_head, until_clear
from .errors import ObjectDamaged
from .fence import Place, Run
from .format import WINDOW, NewerObject, RoundHeader, Seal

A = TypeVar("A")
B = TypeVar("B")
FEW, MANY = 4, 16  # rounds that are read in parallel: few while they are large, else many
MANY_BYTES = 16 << 20


def list_places(objects: Objects, prefix: str, pause: Pause) -> list[Place]:
    """Return the places (epoch, number) of all rounds and seals below a prefix, in order.

    A listing may lack names if others wrote during it (fence.is_proof); then it is repeated.
    """

    def listed() -> list[Place]:
        """List the places once. Raises Unclear, also if the listing may lack names; Refused."""
        places = [place for each in objects.list(prefix) if (place := format.read_place(each.name)) is not None]
        if not fence.is_proof([place.epoch * format.MAX_ROUNDS + place.number for place in places]):
            many = f"more than {fence.ONE_PAGE} names"
            raise Unclear(prefix, f"it lists {many} in no order, so the newest may be missing")
        return sorted(places)

    return until_clear(listed, pause)


class Epochs:
    """Reads the epochs of a store, and remembers the headers that were read."""

    def __init__(self, objects: Objects, pause: Pause) -> None:
        self._objects = objects
        self._pause = pause
        self._heads: dict[Place, RoundHeader | Seal] = {}
        self._gone: set[Place] = set()

    def claimed(self) -> list[int]:
        """Return the numbers of the epochs that brokers have claimed, whether or not they wrote a round."""
        found = until_clear(lambda: self._objects.list(format.CLAIMS), self._pause)
        epochs = [format.read_claim_name(each.name) for each in found]
        return [epoch for epoch in epochs if epoch is not None]

    def places(self, prefix: str = format.JOURNAL) -> list[Place]:
        """Return the places (epoch, number) of all rounds and seals below a prefix, in order."""
        return list_places(self._objects, prefix, self._pause)

    def head(self, place: Place) -> RoundHeader | Seal:
        """Return the header of the round or seal at this place. It is read once and then remembered. Raises: Missing,
        ObjectDamaged.
        """
        if place not in self._heads:
            self._heads[place] = until_clear(lambda: read_head(self._objects, place), self._pause)
        return self._heads[place]

    def header(self, place: Place) -> RoundHeader:
        """Return the header of the round at this place.

        Raises Missing; ObjectDamaged, also if a seal is there.
        """
        there = self.head(place)
        if isinstance(there, Seal):
            raise ObjectDamaged(self._objects.where, format.place_name(place), "it is a seal, where a round belongs")
        return there

    def is_round(self, place: Place) -> bool:
        """Return whether the object at this place is a round and not a seal. One that was deleted after it was listed
        was a round.

        Raises ObjectDamaged.
        """
        if place in self._gone:
            return True
        try:
            return isinstance(self.head(place), RoundHeader)
        except Missing:
            self._gone.add(place)
            return True

    def read_heads(self, places: Iterable[Place]) -> None:
        """Read the headers at these places, several in parallel, so that is_round() and head() know them. One that is
        damaged is left to these.
        """

        def read(place: Place) -> None:
            """Read one header, for is_round() and head()."""
            with contextlib.suppress(ObjectDamaged):
                self.is_round(place)

        call_many([partial(read, place) for place in places if place not in self._heads and place not in self._gone])

    def newest_begun(self, places: list[Place], below: int = format.MAX_EPOCHS) -> int:
        """Return the newest epoch below the number `below` that has a round; 0 if none has.

        Mostly the newest place is that of a round. Behind it stand the seals of epochs in which no round was written,
        one for each take-over that has failed.
        """
        older = (place for place in reversed(places) if place.epoch < below)
        at_once = 1
        while some := list(islice(older, at_once)):
            self.read_heads(some)
            for place in some:
                if self.is_round(place):
                    return place.epoch
            at_once = min(2 * at_once, MANY)
        return 0

    def near_top(self, places: list[Place]) -> dict[int, bool]:
        """Return, for each number near the newest round of one epoch, whether a round has it (True) or a seal (False).

        places: of the rounds and seals of this epoch, in order. Numbers further below the newest round are left out: a
        seal there would not be valid.
        """
        self.read_heads(places[-WINDOW - 1 :])
        rounds: dict[int, bool] = {}
        top: int | None = None
        for place in reversed(places):
            if top is not None and place.number <= top - WINDOW:
                break
            rounds[place.number] = self.is_round(place)
            if top is None and rounds[place.number]:
                top = place.number
        return rounds

    def ends(self, places: list[Place]) -> dict[int, int]:
        """Return the end of each epoch that has a valid seal, by epoch. places: of all rounds and seals of these
        epochs, in order.
        """
        by_epoch = {epoch: list(some) for epoch, some in groupby(places, key=attrgetter("epoch"))}
        self.read_heads(place for some in by_epoch.values() for place in some[-WINDOW - 1 :])
        found = {epoch: fence.valid_end(self.near_top(some), WINDOW) for epoch, some in by_epoch.items()}
        return {epoch: end for epoch, end in found.items() if end is not None}

    def check_end(self, epoch: int, end: int) -> None:
        """Raise ObjectDamaged if the round at `end` was lost by the store: a later round says that it was released
        (durable), and no round is at `end`. An owner that still writes may have created it after `end` was found.

        If the owner itself has sealed its epoch there, it never wrote a round at `end` or after it.
        """
        sealed = self._heads.get(Place(epoch, end))
        if isinstance(sealed, Seal) and sealed.by == epoch:
            return
        for place in self.places(format.epoch_prefix(epoch)):
            if place.number > end and self.is_round(place) and self.header(place).released > end:
                if self._is_there(Place(epoch, end)):
                    return
                name, says = format.place_name(Place(epoch, end)), format.place_name(place)
                raise ObjectDamaged(self._objects.where, name, f"it is lost: {says} says that it was released")

    def _is_there(self, place: Place) -> bool:
        """Return whether there is a round at this place now. Raises ObjectDamaged."""
        try:
            return isinstance(self.head(place), RoundHeader)
        except Missing:
            return False


def call_both(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """Make two calls to the store in parallel, and return their results. Raises the exception of one of them."""
    one: list[A] = []
    other: list[B] = []
    call_many([lambda: one.append(first()), lambda: other.append(second())])
    return one[0], other[0]


def call_many(calls: Iterable[Callable[[], object]]) -> None:
    """Make these calls to the store, several in parallel. Raises the exception of one of them."""
    call_all(calls, "fencepost-reading", MANY)


def read_rounds(objects: Objects, runs: list[Run], pause: Pause) -> Iterator[tuple[RoundHeader, memoryview]]:
    """Read rounds, several in parallel, and yield their headers and units in order.

    Raises: Missing; ObjectDamaged, also if one does not follow the one before. If several fail, the error of the first
    in order is raised.
    """
    before: RoundHeader | None = None
    for place, content in _contents(objects, runs, pause):
        name = format.place_name(place)
        try:
            header, body = format.read_round(place, content)
        except (Malformed, NewerObject) as error:
            raise ObjectDamaged(objects.where, name, str(error)) from error
        if before is not None and (header.round, header.first_unit) != (before.round + 1, before.last_unit + 1):
            reason = f"it is round {header.round} from unit {header.first_unit}"
            raise ObjectDamaged(objects.where, name, f"{reason}, after {before.round} with {before.last_unit}")
        before = header
        yield header, body


def _contents(objects: Objects, runs: list[Run], pause: Pause) -> Iterator[tuple[Place, bytes]]:
    """Yield place and bytes of each round, in order. Only a few at a time are read while they are large. Raises:
    Missing.
    """
    places = (Place(run.epoch, number) for run in runs for number in range(run.first, run.end))
    at_once = FEW
    while some := list(islice(places, at_once)):
        found: dict[Place, bytes | Missing] = {}

        def read(place: Place, found: dict[Place, bytes | Missing] = found) -> None:
            """Read one round's object, and note its bytes or that it is missing."""
            try:
                found[place] = until_clear(partial(objects.read, format.place_name(place)), pause)
            except Missing as missing:
                found[place] = missing

        call_all([partial(read, place) for place in some], "fencepost-reading", at_once)
        size_bytes = 0
        for place in some:
            content = found.pop(place)
            if isinstance(content, Missing):
                raise content
            size_bytes += len(content)
            yield place, content
        at_once = FEW if size_bytes > MANY_BYTES else MANY

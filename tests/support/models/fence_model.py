"""Every order of the steps of an owner and of those who take over from it: the world around storage/objects/fence.py.

What is decided, the product's own functions decide: Owner, Taker, after_create, after_look, first_kept, garbage, runs,
is_proof. The world is slow. A create is issued, lands and is told at separate moments, in any order; up to `window`
rounds are on their way beside each other. `dups` more creates of a round may be on their way (a retry after a lost
answer) and land at any time, also after the name was deleted. With `late`, a delete that was issued may land at any
time, and again. A listing is read in one piece, in two pages in order (paged=1), or in two in none (paged=2).

The owner is of epoch 1, and takes checkpoints; takers claim epochs 2, 3, … One that owns its epoch acknowledges two
rounds, the second of which names a checkpoint of its own; then it deletes the rounds of all older epochs.

Checked in every state:
 A  what an owner acknowledged is below the end that every taker which began has for that epoch
 B  a taker that misses something was overtaken, and does not take it for damage
 C  no two epochs have begun on the same base
 D  an owner takes itself for fenced only if there is a seal in its epoch
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from fencepost.storage.objects import fence
from fencepost.storage.objects.fence import NOWHERE, Answer, Found, Header, Owner, Phase, Place, Step, Taker

Create: TypeAlias = tuple[int, int]  # number of a round, and what became of its create:
ON_ITS_WAY, WAS_CREATED, EXISTED = 0, 1, 2

Objects: TypeAlias = dict[tuple[int, int], int]  # a round: the code of its header; a seal: SEAL and who made it
SEAL = 1 << 20


@dataclass(frozen=True)
class Bounds:
    """How much happens. top: the owner's last round. kept: how many rounds its deletes leave; -1: the window."""

    window: int = 2
    top: int = 3
    takers: int = 1
    dups: int = 0
    paged: int = 0
    late: bool = False
    kept: int = -1


class Owning(NamedTuple):
    """The owner of epoch 1.

    says: for each round, the checkpoint that it names, as the first round that is not in it. checkpoint: the newest.
    dups: how many duplicates are left. deletes: numbers whose deletes may still take effect.
    """

    owner: Owner
    out: tuple[Create, ...] = ()
    says: tuple[int, ...] = ()
    checkpoint: int = 0
    fenced: bool = False
    dups: int = 0
    deletes: frozenset[int] = frozenset()


class Taking(NamedTuple):
    """A node that takes over. page: the first part of a listing that comes in two. acked: how many rounds it has
    acknowledged since it owns its epoch.
    """

    taker: Taker
    page: frozenset[Any] | None = None
    acked: int = 0
    collected: bool = False


State: TypeAlias = tuple[Owning, frozenset[tuple[tuple[int, int], int]], tuple[Taking, ...]]


class Violated(Exception):
    """Raised by look_at_all() and Model.following(). The text begins with the letter of the rule."""


class Model:
    """All steps that are possible in each state."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.kept = bounds.window if bounds.kept < 0 else bounds.kept
        self.headers: list[Header] = []  # by code
        self.codes: dict[Header, int] = {}

    def first(self) -> State:
        window = self.bounds.window
        takers = tuple(Taking(Taker(epoch, window)) for epoch in range(2, self.bounds.takers + 2))
        return Owning(Owner(window), dups=self.bounds.dups), frozenset(), takers

    def code(self, header: Header) -> int:
        if header not in self.codes:
            self.codes[header] = len(self.headers)
            self.headers.append(header)
        return self.codes[header]

    def following(self, state: State) -> Iterator[State]:
        """Return every state that one step leads to. Raises: Violated."""
        owning, frozen, takers = state
        objects = dict(frozen)
        for after, changed in self.owner_steps(owning, objects):
            yield after, _frozen(changed, objects, frozen), takers
        for index, taking in enumerate(takers):
            for moved, changed in self.taker_steps(taking, takers, objects):
                if moved is not taking or changed is not objects:
                    among = (*takers[:index], moved, *takers[index + 1 :])
                    yield owning, _frozen(changed, objects, frozen), among

    # ---- the owner -------------------------------------------------------------------------------------------

    def owner_steps(self, it: Owning, objects: Objects) -> Iterator[tuple[Owning, Objects]]:
        owner = it.owner
        if not it.fenced:
            if owner.next_round <= self.bounds.top and owner.may_begin:
                out = _with(it.out, (owner.next_round, ON_ITS_WAY))
                begun = owner.begin()
                yield it._replace(owner=begun, out=out, says=(*it.says, it.checkpoint)), objects
            if it.dups:
                for number in {number for number, _ in it.out}:
                    yield it._replace(out=_with(it.out, (number, ON_ITS_WAY)), dups=it.dups - 1), objects
            if it.checkpoint < owner.released:
                yield it._replace(checkpoint=owner.released), objects
            yield from self.collect(it, objects)
        for create in set(it.out):
            yield from self.create_steps(it, create, objects)
        for number in it.deletes:
            if (1, number) in objects:  # as the store sees it: whatever is under the name now
                yield it, _without(objects, [(1, number)])

    def create_steps(self, it: Owning, create: Create, objects: Objects) -> Iterator[tuple[Owning, Objects]]:
        """Yield the states after a create takes effect, or after the owner learns its result."""
        number, phase = create
        rest = _less(it.out, create)
        here = objects.get((1, number))
        if phase == ON_ITS_WAY and here is None:
            code = self.code(Header(_start(it.says[number])))
            yield it._replace(out=_with(rest, (number, WAS_CREATED))), objects | {(1, number): code}
            return
        if phase == ON_ITS_WAY:
            yield it._replace(out=_with(rest, (number, EXISTED))), objects
            return
        step = fence.after_create(Answer.CREATED if phase == WAS_CREATED else Answer.EXISTS)
        if step is Step.LOOK and it.owner.is_created(number):
            yield it._replace(out=rest), objects  # the owner knows already that another create of it succeeded
            return
        if step is Step.LOOK:
            step = fence.after_look(Found.NOTHING if here is None else Found.SEAL if here >= SEAL else Found.OWN)
        if step is Step.CREATE:
            yield it._replace(out=_with(rest, (number, ON_ITS_WAY))), objects
        elif step is Step.FENCED:
            yield it._replace(out=rest, fenced=True), objects
        else:
            yield it._replace(out=rest, owner=it.owner.create(number)), objects

    def collect(self, it: Owning, objects: Objects) -> Iterator[tuple[Owning, Objects]]:
        """Yield the states after the owner deletes rounds of its own. An owner that was fenced and does not know it
        does so, too.
        """
        released = it.owner.released
        # A checkpoint counts once a round that names it is released.
        official = it.says[released - 1] if released else 0
        below = fence.first_kept(released, official, self.kept)
        numbers = fence.garbage(_listing(objects, 1), below)
        if numbers and self.bounds.late:
            yield it._replace(deletes=it.deletes.union(numbers)), objects
        elif numbers:
            yield it, _without(objects, [(1, number) for number in numbers])

    # ---- takers ----------------------------------------------------------------------------------------------

    def taker_steps(self, it: Taking, takers: tuple[Taking, ...], objects: Objects) -> Iterator[tuple[Taking, Objects]]:
        taker, epoch = it.taker, it.taker.epoch
        if taker.phase is Phase.CLAIMED:
            yield self.look_step(it, objects), objects
        elif taker.phase is Phase.LIST:
            yield self.list_step(it, objects), objects
        elif taker.phase is Phase.SEAL:
            place = (taker.ending, taker.place)
            yield Taking(taker.sealed()), objects if place in objects else objects | {place: SEAL + epoch}
        elif taker.phase is Phase.READ:
            yield Taking(self.read(taker, objects)), objects
        elif taker.phase is Phase.BEGIN:
            here = objects.get((epoch, 0))
            if here is None:
                code = self.code(Header(self.inherited(taker, objects), *taker.base))
                changed = objects | {(epoch, 0): code}
                yield Taking(taker.began(True), acked=1), changed
                yield it, changed  # the answer was lost; it looks
            else:
                created = here < SEAL
                yield Taking(taker.began(created), acked=int(created)), objects
        elif taker.phase is Phase.OWNER:
            if it.acked == 1 and (epoch, 1) not in objects:
                changed = objects | {(epoch, 1): self.code(Header(Place(epoch, 1)))}
                yield it._replace(acked=2), changed
            elif it.acked == 2 and not it.collected:
                older = {at for at, _ in objects if at < epoch}
                numbers = [(at, n) for at in older for n in fence.garbage(_listing(objects, at), 1 << 30)]
                yield it._replace(collected=True), _without(objects, numbers)

    def look_step(self, it: Taking, objects: Objects) -> Taking:
        """Take one step of listing the rounds of all epochs, and let the taker see them when the listing is complete.

        Two pages (so two steps) only for a store that lists in order; in any other store such a listing is repeated
        until it fits into one page, so here one step is enough.
        """
        if self.bounds.paged == 1 and it.page is None:
            return it._replace(page=frozenset(each for each in objects.items() if each[0] <= (1, 1)))
        first = dict(it.page or ())
        seen = first | {place: code for place, code in objects.items() if it.page is None or place > (1, 1)}
        epoch = it.taker.epoch
        begun = max((at for at, _ in _rounds(seen) if at < epoch), default=1)
        passed = any(at > epoch for at, _ in _rounds(seen)) or seen.get((epoch, 0), 0) >= SEAL
        ends = {at: fence.valid_end(_listing(seen, at), self.bounds.window) for at in range(begun, epoch)}
        return Taking(it.taker.looked(begun, passed, {at: end for at, end in ends.items() if end is not None}))

    def list_step(self, it: Taking, objects: Objects) -> Taking:
        epoch, paged = it.taker.ending, self.bounds.paged
        there = frozenset((number, code) for (at, number), code in objects.items() if at == epoch)
        if not paged:
            return Taking(it.taker.listed({number: code < SEAL for number, code in there}))
        page = frozenset(each for each in there if (each[0] <= 1 if paged == 1 else each[0] % 2 == 0))
        if it.page is None:
            return it._replace(page=page)
        second = there - page
        numbers = [*sorted(number for number, _ in it.page), *sorted(number for number, _ in second)]
        if not fence.is_proof(numbers, page=0):
            return it._replace(page=None)  # it lists again
        return Taking(it.taker.listed({number: code < SEAL for number, code in it.page | second}))

    def read(self, taker: Taker, objects: Objects) -> Taker:
        base, end = taker.base
        try:
            for run in fence.runs(base, end, lambda place: self.header(objects, place)):
                for number in range(run.first, run.end):
                    self.header(objects, Place(run.epoch, number))
        except KeyError as missing:
            others = {at for at, _ in _rounds(objects) if at > base and at != taker.epoch}
            after = taker.missed(bool(others) or objects.get((taker.epoch, 0), 0) >= SEAL)
            if after.phase is Phase.DAMAGED:
                raise Violated(f"B: epoch {taker.epoch} misses {missing} of {taker.base}") from None
            return after
        return taker.complete()

    def header(self, objects: Objects, place: Place) -> Header:
        """Return what a round says. Raises KeyError: there is none, or a seal."""
        code = objects[place]
        if code >= SEAL:
            raise KeyError(place)
        return self.headers[code]

    def inherited(self, taker: Taker, objects: Objects) -> Place:
        """Return the checkpoint that the last round of the taker's base names: the taker's own round 0 repeats it.
        NOWHERE if there is no such round.
        """
        base, end = taker.base
        try:
            return self.header(objects, Place(base, end - 1)).start
        except KeyError:
            return NOWHERE


def look_at_all(model: Model, most: int = 1 << 30) -> tuple[int, bool]:
    """Visit every state, the nearest first. Returns how many there are, and whether those are all. Raises: Violated.

    Only hashes of states are stored; that two states of ten million have the same is not to be expected (1 in 300,000).
    """
    first = model.first()
    seen, waiting = {hash(first)}, deque([first])
    while waiting:
        for state in model.following(waiting.popleft()):
            known = hash(state)
            if known in seen:
                continue
            seen.add(known)
            _check(state)
            waiting.append(state)
            if len(seen) >= most:
                return len(seen), False
    return len(seen), True


def _check(state: State) -> None:
    owning, objects, takers = state
    began = [each for each in takers if each.taker.phase is Phase.OWNER]
    for each in began:
        base = each.taker.base[0]
        for epoch, end in each.taker.ends:
            if epoch < base:
                continue  # that one counts as its base's round 0 says
            acked = owning.owner.released if epoch == 1 else takers[epoch - 2].acked
            if acked > end:
                raise Violated(f"A: epoch {epoch} acknowledged {acked} rounds, {each.taker.epoch} ends it at {end}")
    if len({each.taker.base[0] for each in began}) < len(began):
        raise Violated("C: two epochs have begun on the same base")
    if owning.fenced and not any(epoch == 1 and code >= SEAL for (epoch, _), code in objects):
        raise Violated("D: fenced, and there is no seal")


def _start(checkpoint: int) -> Place:
    return Place(1, checkpoint) if checkpoint else NOWHERE


def _rounds(objects: Objects) -> list[tuple[int, int]]:
    return [place for place, code in objects.items() if code < SEAL]


def _listing(objects: Objects, epoch: int) -> dict[int, bool]:
    return {number: code < SEAL for (at, number), code in objects.items() if at == epoch}


def _frozen(
    changed: Objects, objects: Objects, frozen: frozenset[tuple[tuple[int, int], int]]
) -> frozenset[tuple[tuple[int, int], int]]:
    return frozen if changed is objects else frozenset(changed.items())


def _without(objects: Objects, places: Iterable[tuple[int, int]]) -> Objects:
    gone = set(places)
    return {place: code for place, code in objects.items() if place not in gone}


def _with(out: tuple[Create, ...], create: Create) -> tuple[Create, ...]:
    return tuple(sorted((*out, create)))


def _less(out: tuple[Create, ...], create: Create) -> tuple[Create, ...]:
    rest = list(out)
    rest.remove(create)
    return tuple(rest)

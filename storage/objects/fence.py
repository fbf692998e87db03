"""The fence: which rounds of an epoch count, who may write them, and where an epoch ends. Pure.

All decisions rest on one operation of the store: *create if absent*. A name is created once, and never written again.
A broker that wants to own the journal claims an epoch, whose number is part of the names of its rounds. So no owner
writes into another owner's rounds, and a new owner only has to find out where the older epochs end.

The owner of an epoch creates round 0, 1, 2, … Several creates may be in flight and end in any order, but
    a round begins only while fewer than `window` rounds are begun and not released (Owner.may_begin), and
    a round is released when it and all rounds before it are created (Owner.created).
So if round n exists, every round through n - window was released. And no round exists, or can arrive later, that is
more than `window` rounds above the released ones.

An epoch is ended by a *seal*: an object with the name of a round that does not exist yet. When the owner tries to
create that round, it finds the seal, and no round after the seal is ever released. A taker (the broker that takes over)
lists the epoch, creates a seal at the first free name at which it may count (seal_place), and lists again, because the
owner may have created more rounds meanwhile. A seal at n is valid, and n is the epoch's end, if no round at n + window
or above exists (valid_end), since each of those requires that round n was released. Then every acknowledged round is
below the end. A seal that is not valid stays, and the taker tries again at a higher name.

Seals are never deleted. The owner never deletes the newest `window` rounds of an epoch (first_kept), because a listing
is judged by these. A deleted name is below all names by which a listing is judged. So a delayed create of a deleted
name, which the store accepts, changes nothing.

An answer other than success proves nothing. "It exists" may mean the owner's own round, created by a request whose
answer was lost; a create that "failed" may have been done, or be done later. So the owner reads the object that has the
name (after_create, after_look).

A taker ends the newest epoch that has begun, and every later one, because these were claimed and may still begin. Its
base is the newest epoch that has a round below its end. The taker chooses the base only when all these epochs are
ended, because one of them may have begun meanwhile. If something of the base is missing, either the store has lost it
or a later owner has deleted it. So the taker first checks whether there is a later owner (Taker.missed).

tests/support/models/fence_model.py tries every order of these steps, with lost answers and with requests that arrive
late.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple


class Place(NamedTuple):
    """The name of a round: the epoch that it is of, and its number there."""

    epoch: int
    number: int


ONE_PAGE = 1000  # names that a store gives in one answer, at most
NOWHERE = Place(0, 0)  # epochs begin at 1


class Header(NamedTuple):
    """What the fence needs to know from a round's header.

    start: the first round that is not in the newest checkpoint of the store; NOWHERE if there is no checkpoint and all
    rounds count. base, base_end: in round 0, the epoch that this one continues, and that epoch's end; base is 0 if
    there is none.
    """

    start: Place = NOWHERE
    base: int = 0
    base_end: int = 0


# ---- the owner of an epoch -----------------------------------------------------------------------------------


class Step(IntEnum):
    """What an owner does next to create a round."""

    CREATED = 1
    LOOK = 2  # read what is under the name
    CREATE = 3  # (again)
    FENCED = 4  # never write again: somebody has ended the epoch
    DAMAGED = 5  # the object under the name is one that no broker writes there


class Answer(IntEnum):
    """The result of a create."""

    CREATED = 1
    EXISTS = 2
    UNCLEAR = 3


class Found(IntEnum):
    """What the object is that an owner finds under the name of its own round."""

    OWN = 1
    SEAL = 2
    NOTHING = 3
    OTHER = 4


def after_create(answer: Answer) -> Step:
    """Return what to do after a create. Only a plain success is believed."""
    return Step.CREATED if answer is Answer.CREATED else Step.LOOK


def after_look(found: Found) -> Step:
    """Return the next step after reading the object with the name of a round whose create had an unclear result."""
    return _AFTER_LOOK[found]


_AFTER_LOOK = {
    Found.OWN: Step.CREATED,
    Found.SEAL: Step.FENCED,
    Found.NOTHING: Step.CREATE,
    Found.OTHER: Step.DAMAGED,
}


class Owner(NamedTuple):
    """An owner's knowledge of the rounds of its epoch. next_round: the number of the next round to begin. released:
    all rounds below this number are released. created: the rounds at or above `released` that are known to be
    created.
    """

    window: int
    next_round: int = 0
    released: int = 0
    created: frozenset[int] = frozenset()

    @property
    def may_begin(self) -> bool:
        """Whether another round may begin: fewer than `window` rounds are not released yet, created or not."""
        return self.next_round - self.released < self.window

    def begin(self) -> "Owner":
        """Return the state after beginning the next round. Raises RuntimeError unless may_begin is True."""
        if not self.may_begin:
            raise RuntimeError(
                f"round {self.next_round} cannot begin: {self.released} are released, window {self.window}"
            )
        return self._replace(next_round=self.next_round + 1)

    def is_created(self, number: int) -> bool:
        """Return whether a round is known to be created."""
        return number < self.released or number in self.created

    def create(self, number: int) -> "Owner":
        """Return the state after round `number` was created.

        A round counts as released once it and all rounds before it are created, so one create may release several.
        """
        if self.is_created(number):
            return self
        created = self.created | {number}
        released = self.released
        while released in created:
            released += 1
        return self._replace(released=released, created=frozenset(above for above in created if above >= released))


def first_kept(released: int, start: int, kept: int) -> int:
    """Return the number of the first round that must be kept; the epoch's owner may delete the rounds below it.

    start: the first round that an official checkpoint needs. kept: how many of the newest released rounds are kept in
    any case; at least as many as may be on their way at once (WINDOW).
    """
    return min(start, released - kept)


def garbage(rounds: Mapping[int, bool], below: int) -> list[int]:
    """Return the numbers of the rounds below `below`, which may be deleted. rounds: for each number, whether a round
    has it (True) or a seal, which is kept.
    """
    return [number for number, is_round in rounds.items() if is_round and number < below]


# ---- where an epoch ends -------------------------------------------------------------------------------------


def is_proof(numbers: Sequence[int], page: int = ONE_PAGE) -> bool:
    """Return whether a listing can be relied on. numbers: in the order listed. page: how many are listed in one
    request.

    Others write and delete between the requests for two pages. If names are listed in order, the newest round is listed
    last, so at least one listed round is as new as any that existed when the listing began. In another order, each may
    have been listed before newer ones were created, or after it was deleted.
    """
    return len(numbers) <= page or all(before < after for before, after in pairwise(numbers))


def valid_end(rounds: Mapping[int, bool], window: int) -> int | None:
    """Return the number of the seal that ends an epoch; None if there is no valid seal yet.

    rounds: for each listed number, whether a round has it (True) or a seal. window: how many rounds may be on their way
    at once. A seal that is `window` or more below the newest round is not valid.
    """
    top = max((number for number, is_round in rounds.items() if is_round), default=-1)
    seals = [number for number, is_round in rounds.items() if not is_round and top < number + window]
    return min(seals, default=None)


def seal_place(rounds: Mapping[int, bool], window: int) -> int:
    """Return the number at which to try to create a seal, for an epoch without a valid seal in this listing: the first
    number that is free and at which a seal would be valid.
    """
    top = max((number for number, is_round in rounds.items() if is_round), default=-1)
    place = max(0, top - window + 1)
    while place in rounds:
        place += 1
    return place


class Phase(IntEnum):
    """What a taker (the broker that takes the journal over) does next."""

    CLAIMED = 1  # look which epochs have begun, then looked()
    LIST = 2  # list the epoch `ending`, then listed()
    SEAL = 3  # create a seal at `place` of the epoch `ending`, then sealed()
    READ = 4  # read what runs() names, then complete() or missed()
    BEGIN = 5  # create round 0 of its own epoch, then began()
    OWNER = 6
    GONE = 7  # a later epoch has begun, or its own was ended: give up, and wait to claim another
    DAMAGED = 8  # the store has lost something


class Taker(NamedTuple):
    """The state of a broker that has claimed an epoch and is becoming its owner. ends: (epoch, end) of each epoch
    that it has ended, in order.
    """

    epoch: int
    window: int
    phase: Phase = Phase.CLAIMED
    ending: int = 0
    place: int = 0
    ends: tuple[tuple[int, int], ...] = ()

    def looked(self, begun: int, passed: bool, ended: Mapping[int, int]) -> "Taker":
        """Return the next state after listing all epochs.

        begun: the newest epoch below the taker's own that has a round; if none has, the oldest that may have one later.
        passed: an epoch above the taker's own has a round, or its own has a seal, so the take-over has failed. ended:
        the end of each epoch of which this listing has a valid seal, which stays valid.
        """
        if passed:
            return self._replace(phase=Phase.GONE)
        ends: list[tuple[int, int]] = []
        while (epoch := begun + len(ends)) in ended:
            ends.append((epoch, ended[epoch]))
        return self._replace(ends=tuple(ends))._end(epoch)

    def _end(self, epoch: int) -> "Taker":
        """Return the state in which this epoch is ended next; if it is the taker's own, all older ones are ended and
        rounds are read next.
        """
        phase = Phase.LIST if epoch < self.epoch else Phase.READ
        return self._replace(phase=phase, ending=epoch if phase is Phase.LIST else 0, place=0)

    def listed(self, rounds: Mapping[int, bool]) -> "Taker":
        """Return the next state after a listing of the epoch `ending`. rounds: for each listed number, whether a round
        has it (True) or a seal.
        """
        end = valid_end(rounds, self.window)
        if end is None:
            return self._replace(phase=Phase.SEAL, place=seal_place(rounds, self.window))
        return self._replace(ends=(*self.ends, (self.ending, end)))._end(self.ending + 1)

    def sealed(self) -> "Taker":
        """Return the next state after trying to create a seal. Only a listing tells whether it is valid."""
        return self._replace(phase=Phase.LIST, place=0)

    @property
    def base(self) -> tuple[int, int]:
        """The newest non-empty epoch and its end, from where the new owner continues; (0, 0) in an empty store.

        Final only when all epochs are ended.
        """
        return next(((epoch, end) for epoch, end in reversed(self.ends) if end), (0, 0))

    def complete(self) -> "Taker":
        """Return the next state, to begin the taker's own epoch, after all rounds that runs() named were read."""
        return self._replace(phase=Phase.BEGIN)

    def missed(self, overtaken: bool) -> "Taker":
        """Return the next state after a round that runs() named was missing: begin again if another broker has
        overtaken this one, else DAMAGED. overtaken: an epoch above the base has begun, or the taker's own was ended.
        """
        return self._again() if overtaken else self._replace(phase=Phase.DAMAGED)

    def began(self, created: bool) -> "Taker":
        """Return the next state after the create of round 0 of the taker's own epoch. created: False if a seal has
        that name.
        """
        return self._replace(phase=Phase.OWNER) if created else self._again()

    def _again(self) -> "Taker":
        """Return the state from which a take-over begins again."""
        return Taker(self.epoch, self.window)


# ---- what a taker reads --------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Rounds of one epoch: from `first` up to, not including, `end`."""

    epoch: int
    first: int
    end: int


def runs(base: int, end: int, header: Callable[[Place], Header]) -> list[Run]:
    """Return the rounds, oldest first, that the next owner reads: all after the checkpoint that the last round of epoch
    `base` names.

    end: the end of epoch `base` (exclusive). header: a function that reads the header of a round; may raise.
    """
    found: list[Run] = []
    if base == 0:
        return found
    start = header(Place(base, end - 1)).start
    while base > start.epoch:
        found.append(Run(base, 0, end))
        beginning = header(Place(base, 0))
        base, end = beginning.base, beginning.base_end
    if base and start.number < end:
        found.append(Run(base, start.number, end))
    return found[::-1]

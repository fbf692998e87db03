"""The place of a group in a partition, and members that move it, in every order of steps.

Two members read one partition at the same time: nothing tells which of them is a zombie, since a rebalance may come at
any time and be noticed at any later time. A member may die at any step. Its session at the database lives on until that
rolls it back, or commits it, if COMMIT was under way. The answer to COMMIT may be lost. A member may continue from any
offset, as the group's one may be of long ago. Retention may pass the place.

What of a batch is new, the product's own function says. A variant changes what its name says.

Checked in every state: each record below the place that retention did not take has one effect, no other record has any;
who asks for the outcome of its commit is told what happened. At the end: from every state one can be reached in which
all records have been read.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from fencepost.client.sql.places import first_new, is_outside

OFF, READY, OPEN, COMMITTING, ASKING = range(5)


class Member(NamedTuple):
    """What a member knows. holds: its claim is the row's last one. place, position: where it thinks the row is, and
    what it reads next. first, end: of the records of its block.
    """

    step: int = OFF
    holds: bool = False
    place: int = 0
    position: int = 0
    first: int = 0
    end: int = 0


class Session(NamedTuple):
    """A transaction of the database that has moved the place and has the row's lock."""

    first: int
    place: int
    end: int


class World(NamedTuple):
    """place: of the row, None before the first claim. began: where that was. start: where the log begins."""

    place: int | None
    began: int
    start: int
    effects: tuple[int, ...]
    skipped: frozenset[int]
    members: tuple[Member, Member]
    sessions: tuple[Session | None, Session | None]


class Violated(Exception):
    """Raised by look_at_all(). The text says which rule, and in which state."""


class Model:
    """All steps that are possible in each state. variant: what is done otherwise, empty for nothing. records: how many
    the log has.
    """

    def __init__(self, variant: str = "", records: int = 2) -> None:
        self.variant, self.records = variant, records

    def begin(self) -> World:
        return World(None, 0, 0, (0,) * self.records, frozenset(), (Member(), Member()), (None, None))

    def steps(self, world: World) -> Iterator[World]:
        for who in (0, 1):
            yield from self._steps_of(world, who)
            yield from self._ends_of_session(world, who)
            if world.members[who].step != OFF:
                yield _with(world, who, Member())  # it dies; its session stays
        if world.start < self.records:
            yield world._replace(start=world.start + 1)

    def _steps_of(self, world: World, who: int) -> Iterator[World]:
        me, own = world.members[who], world.sessions[who]
        if me.step == OFF and not _is_locked(world):
            yield from self._claims(world, who)
        elif me.step == READY:
            yield from self._reads(world, who)
        elif me.step == OPEN:
            yield _with(world, who, me._replace(step=READY, position=me.place))  # an exception in the block
            if not _is_locked(world):
                yield self._moves(world, who)
        elif me.step == COMMITTING:
            yield _with(world, who, me._replace(step=ASKING))  # COMMIT is sent; there may be no answer
            if own is None:
                yield _with(world, who, me._replace(step=READY, place=me.end, position=me.end))
        elif me.step == ASKING:
            if self.variant == "takes_no_answer_for_aborted":
                yield _with(world, who, me._replace(step=READY, position=me.place))
            elif self.variant == "asks_without_the_lock" or not _is_locked(world):
                yield self._asks(world, who)

    def _claims(self, world: World, who: int) -> Iterator[World]:
        """Yield each world after the member claims the row, or makes it: then any position may be where it reads on."""
        firsts = range(world.start, self.records + 1) if world.place is None else [world.place]
        for place in firsts:
            claimed = world if world.place is not None else world._replace(place=place, began=place)
            others = [one._replace(holds=False) for one in claimed.members]
            claimed = claimed._replace(members=(others[0], others[1]))
            yield _with(claimed, who, Member())  # it dies before the answer
            for position in range(self.records + 1):
                yield _with(claimed, who, Member(READY, True, place, position))

    def _reads(self, world: World, who: int) -> Iterator[World]:
        """Read a batch from the position, and open a block with what is new of it."""
        me = world.members[who]
        if me.position < world.start:  # out of range
            if not is_outside(me.place, world.start, self.records):
                yield _with(world, who, me._replace(position=me.place))
            elif self.variant == "resets_only_its_position":
                yield _with(world, who, me._replace(place=world.start, position=world.start))
            elif world.place == me.place and not _is_locked(world):
                gone = world.skipped | set(range(me.place, world.start))
                world = world._replace(place=world.start, skipped=gone)
                yield _with(world, who, me._replace(place=world.start, position=world.start))
            elif world.place != me.place:
                yield _with(world, who, Member())
            return
        for end in range(me.position + 1, self.records + 1):
            first = first_new(me.place, me.position, end)
            if self.variant == "uses_whole_batches" and first is not None:
                first = me.position
            if self.variant == "goes_on_above_the_place" and me.position > me.place:
                first = me.position
            if first is None:
                yield _with(world, who, me._replace(position=me.place))
            else:
                yield _with(world, who, me._replace(step=OPEN, first=first, end=end))
        if me.position == self.records and me.place < self.records:  # a later batch shows it
            yield _with(world, who, me._replace(position=me.place))

    def _moves(self, world: World, who: int) -> World:
        """Move the place, if it and the claim are as the member found them; else it begins anew, with another claim."""
        me = world.members[who]
        by_claim = me.holds or self.variant in ("no_condition", "only_the_place")
        by_place = world.place == me.place or self.variant in ("no_condition", "only_the_claim")
        if not by_claim or not by_place:
            return _with(world, who, Member())
        assert world.place is not None
        sessions = [*world.sessions]
        sessions[who] = Session(me.first, world.place, me.end)
        world = world._replace(sessions=(sessions[0], sessions[1]))
        return _with(world, who, me._replace(step=COMMITTING))

    def _ends_of_session(self, world: World, who: int) -> Iterator[World]:
        own = world.sessions[who]
        if own is None:
            return
        sessions = [*world.sessions]
        sessions[who] = None
        ended = world._replace(sessions=(sessions[0], sessions[1]))
        me = world.members[who]
        rolled_back = me if me.step != COMMITTING else Member()
        yield _with(ended, who, rolled_back)
        effects = tuple(n + (own.first <= at < own.end) for at, n in enumerate(world.effects))
        yield ended._replace(effects=effects, place=own.end)

    def _asks(self, world: World, who: int) -> World:
        """Read the place once nobody has the row's lock: whether it has passed the block tells if that was committed.
        Raises Violated if it tells a member otherwise than it is.
        """
        me = world.members[who]
        assert world.place is not None
        was_committed = world.place >= me.end
        done = [world.effects[at] > 0 or at in world.skipped for at in range(me.first, me.end)]
        if was_committed != all(done) or (not was_committed and _is_locked_by(world, who)):
            raise Violated(f"told {was_committed}: {world}")
        return _with(world, who, me._replace(step=READY, place=world.place, position=world.place))


def _with(world: World, who: int, member: Member) -> World:
    return world._replace(members=(member, world.members[1]) if who == 0 else (world.members[0], member))


def _is_locked(world: World) -> bool:
    return any(one is not None for one in world.sessions)


def _is_locked_by(world: World, who: int) -> bool:
    return world.sessions[who] is not None


def check(world: World) -> None:
    """Raise Violated unless exactly the records below the place have one effect, or were taken by retention."""
    place = world.place if world.place is not None else 0
    for at, count in enumerate(world.effects):
        wanted = world.began <= at < place and at not in world.skipped
        if count != wanted:
            raise Violated(f"record {at} has {count} effects: {world}")


def look_at_all(model: Model) -> tuple[int, int]:
    """Return how many states there are and how many steps between them.

    Raises Violated: check() finds something in a state, or no steps lead from it to a state in which all is done.
    """
    begin = model.begin()
    before: dict[World, list[World]] = {begin: []}
    waiting = deque([begin])
    count = 0
    while waiting:
        world = waiting.popleft()
        check(world)
        for after in model.steps(world):
            count += 1
            if after not in before:
                before[after] = []
                waiting.append(after)
            before[after].append(world)
    good = [world for world in before if world.place == model.records and not _is_locked(world)]
    reached, waiting = set(good), deque(good)
    while waiting:
        for world in before[waiting.popleft()]:
            if world not in reached:
                reached.add(world)
                waiting.append(world)
    if len(reached) < len(before):
        raise Violated(f"never done: {next(world for world in before if world not in reached)}")
    return len(before), count

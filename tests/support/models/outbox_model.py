"""Outbox relays in every order of steps: writers that commit late or never, relays that are killed, two at once.

Each writer inserts one row. It takes a transaction id, later a position, and commits or rolls back. Writers of one
key wait for each other between the insert and the commit. Two relays share a name; each may be slow for as long as it
likes, so it stands for requests that arrive late, too. A fault is a death before or after a step had its effect.

The table below has the steps of client/sql/outbox/ways.py. What is sent in which order from where on, the product's own
functions say. A variant replaces cells of the table or has traits. The naive relays read the rows in ways of their own.

Checked in every state: of each key, readers have got each row once at most, in the order of the commits, and nothing
that was not committed. From every state one can be reached in which readers have got all rows, and the table is empty.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from fencepost.client.sql.outbox.relaying import Place, PlaceRefused, Row, Way, begin_at, in_order

OFF, BEGUN, OPEN, COMMITTED, GONE, ROLLED_BACK = range(6)
NO_OFFSET = -1


class Step(IntEnum):
    """What a relay does next."""

    START = 0  # broker: fence the relay before this one, and end what it left
    PLACE = 1  # broker: which seq was sent last
    FIRST = 2  # broker: commit place 0
    TAKE = 3  # database: begin a transaction, delete the first rows in it
    NUMBER = 4  # database: give seq to rows that have none
    READ = 5  # database: rows above the place, by seq
    SEND = 6  # broker: one record after another
    COMMIT = 7  # HOLD: database and broker as one; OFFSETS: the records, and the place
    FORGET = 8  # database: delete what was sent
    STOPPED = 9


class Answer(IntEnum):
    """What came of a step. NO: of TAKE and READ: no rows; of PLACE: there is none; of the others: fenced."""

    OK = 0
    NO = 1


Cell: TypeAlias = tuple[Way, Step, Answer]

_GRID = """
HOLD    START   TAKE    STOPPED
HOLD    TAKE    SEND    TAKE
HOLD    SEND    COMMIT  STOPPED
HOLD    COMMIT  TAKE    STOPPED
NAMES   START   NUMBER  STOPPED
NAMES   NUMBER  READ    STOPPED
NAMES   READ    SEND    NUMBER
NAMES   SEND    FORGET  STOPPED
NAMES   FORGET  NUMBER  STOPPED
OFFSETS START   PLACE   STOPPED
OFFSETS PLACE   FORGET  FIRST
OFFSETS FIRST   NUMBER  STOPPED
OFFSETS NUMBER  READ    STOPPED
OFFSETS READ    SEND    NUMBER
OFFSETS SEND    COMMIT  STOPPED
OFFSETS COMMIT  FORGET  STOPPED
OFFSETS FORGET  NUMBER  STOPPED
"""

TABLE: Mapping[Cell, Step] = {
    (Way[way], Step[step], answer): Step[cell]
    for way, step, *cells in map(str.split, _GRID.strip().splitlines())
    for answer, cell in zip(Answer, cells, strict=True)
}


def numbered(last: int, positions: Iterable[int]) -> dict[int, int]:
    """Return the number (seq) that step NUMBER gives to each of these positions. last: the highest that was given
    before.
    """
    return {position: last + nth for nth, position in enumerate(sorted(positions), 1)}


class Writer(NamedTuple):
    """xid, position: 0 before they are taken. seq: 0 before it is numbered."""

    phase: int = OFF
    xid: int = 0
    position: int = 0
    seq: int = 0


class Relay(NamedTuple):
    """epoch: of its producer. seen: `last` as it was read without a lock. batch: the writers whose rows it still has to
    send. sent: those whose rows it has sent since the last READ or TAKE.
    """

    step: Step = Step.START
    epoch: int = 0
    place: Any = NO_OFFSET
    batch: tuple[int, ...] = ()
    sent: tuple[int, ...] = ()
    seen: int = NO_OFFSET


class World(NamedTuple):
    """last: of the relay's row. logs: by key, (writer, epoch of an open transaction or 0) in the order of the log.
    place: the committed offset. highest: what the named producer's sequence has reached; all keys are in one partition.
    """

    writers: tuple[Writer, ...]
    last: int
    logs: tuple[tuple[tuple[int, int], ...], ...]
    place: Any
    highest: int
    epoch: int
    relays: tuple[Relay, Relay]
    faults: int
    rollbacks: int


@dataclass(frozen=True)
class Variant:
    """cells: of the table, where they differ. traits: what else does. naive: how rows are read, if not by seq."""

    way: Way
    traits: frozenset[str] = frozenset()
    cells: Mapping[Cell, Step] = field(default_factory=dict)
    naive: str = ""


class Violated(Exception):
    """Raised by look_at_all(). The text says which rule, and in which state."""


class Model:
    """All steps that are possible in each state. keys: of each writer's row. limit: of rows in a batch."""

    def __init__(
        self, variant: Variant, keys: str = "aab", faults: int = 1, rollbacks: int = 1, limit: int = 2
    ) -> None:
        self.way, self.traits, self.naive = variant.way, variant.traits, variant.naive
        self.table = {**TABLE, **variant.cells}
        names = sorted(set(keys))
        self.keys, self.limit = [names.index(key) for key in keys], limit
        relays = Relay(), Relay()
        nothing: Any = ()
        self.first = World((Writer(),) * len(keys), 0, (nothing,) * len(names), None, 0, 0, relays, faults, rollbacks)

    def following(self, world: World) -> Iterator[World]:
        """Return every state that one step leads to."""
        for number, writer in enumerate(world.writers):
            yield from self._write(world, number, writer)
        for number, relay in enumerate(world.relays):
            if relay.step is Step.STOPPED:
                continue
            dead = relay._replace(step=Step.START, place=NO_OFFSET, batch=(), sent=(), seen=NO_OFFSET)
            if world.faults and relay.step is not Step.START:
                yield world._replace(faults=world.faults - 1, relays=_with(world.relays, number, dead))
            for after in self._relay(world, number, relay):
                yield after
                if world.faults:  # the answer is lost
                    yield after._replace(faults=world.faults - 1, relays=_with(after.relays, number, dead))

    # ---- writers ---------------------------------------------------------------------------------------------

    def _write(self, world: World, number: int, writer: Writer) -> Iterator[World]:
        def become(**changes: Any) -> World:
            return world._replace(writers=_with(world.writers, number, writer._replace(**changes)))

        if writer.phase == OFF:
            yield become(phase=BEGUN, xid=1 + max(one.xid for one in world.writers))
        elif writer.phase == BEGUN and not any(
            one.phase == OPEN and self.keys[at] == self.keys[number] for at, one in enumerate(world.writers)
        ):
            yield become(phase=OPEN, position=1 + max(one.position for one in world.writers))
        elif writer.phase == OPEN:
            yield become(phase=COMMITTED)
            if world.rollbacks:
                yield become(phase=ROLLED_BACK)._replace(rollbacks=world.rollbacks - 1)

    # ---- relays ----------------------------------------------------------------------------------------------

    def _relay(self, world: World, number: int, relay: Relay) -> Iterator[World]:
        """Return the states after this relay's step; none while it waits for a lock."""
        work = {
            Step.START: self._start,
            Step.PLACE: self._read_place,
            Step.FIRST: self._commit_first,
            Step.TAKE: self._take,
            Step.NUMBER: self._number,
            Step.READ: self._read,
            Step.SEND: self._send,
            Step.COMMIT: self._commit,
            Step.FORGET: self._forget,
        }[relay.step]
        found = work(world, number, relay)
        if found is not None:
            after, relay, answer = found
            if answer is not None:
                relay = relay._replace(step=self.table[self.way, relay.step, answer])
            yield after._replace(relays=_with(after.relays, number, relay))

    def _start(self, world: World, _number: int, relay: Relay) -> Any:
        """Fence the former relay, and abort what it has open."""
        if "fences nobody" in self.traits:
            return world, relay._replace(epoch=world.epoch), Answer.OK
        epoch = world.epoch + 1
        logs = tuple(tuple(each for each in log if each[1] == 0) for log in world.logs)
        return world._replace(epoch=epoch, logs=logs), relay._replace(epoch=epoch), Answer.OK

    def _read_place(self, world: World, _number: int, relay: Relay) -> Any:
        if self.naive:
            return world, relay._replace(place=world.place or (0, 0)), Answer.OK
        try:
            place = begin_at(None if world.place is None else Place(world.place, ""), world.last, "")
        except PlaceRefused as refused:
            raise Violated(f"{refused}: {world}") from refused
        if place is None:
            return world, relay._replace(place=0), Answer.NO
        return world, relay._replace(place=place, sent=self._up_to(world, place)), Answer.OK

    def _up_to(self, world: World, place: int) -> tuple[int, ...]:
        return tuple(at for at, one in enumerate(world.writers) if one.phase == COMMITTED and 0 < one.seq <= place)

    def _commit_first(self, world: World, _number: int, relay: Relay) -> Any:
        if relay.epoch != world.epoch:
            return world, relay, Answer.NO
        return world._replace(place=0), relay, Answer.OK

    def _taken(self, world: World) -> set[int]:
        """Return the writers whose rows an open transaction of a relay has deleted."""
        return {at for one in world.relays if one.step in (Step.SEND, Step.COMMIT) for at in (*one.batch, *one.sent)}

    def _take(self, world: World, _number: int, relay: Relay) -> Any:
        rows = self._rows(world, lambda one: True)[: self.limit]
        if "deletes first" not in self.traits and {row.position for row in rows} & {
            world.writers[at].position for at in self._taken(world)
        }:
            return None  # waits for the other relay's transaction
        batch = self._in_order(rows, world)
        if "deletes first" in self.traits:
            world = self._gone(world, batch)
        return world, relay._replace(batch=batch), Answer.OK if batch else Answer.NO

    def _rows(self, world: World, wanted: Any) -> list[Row]:
        """Return the rows that a statement sees, by position."""
        rows = [
            Row(one.position, one.seq, None, None, None, None)
            for one in world.writers
            if one.phase == COMMITTED and wanted(one)
        ]
        return sorted(rows)

    def _in_order(self, rows: list[Row], world: World) -> tuple[int, ...]:
        """Return the writers of these rows in the order in which the product sends them."""
        rows = list(reversed(rows))  # as a database returns deleted rows: in any order
        rows = rows if "in any order" in self.traits else in_order(self.way, rows)
        positions = [one.position for one in world.writers]
        return tuple(positions.index(row.position) for row in rows)

    def _number(self, world: World, _number: int, relay: Relay) -> Any:
        """Number the visible rows. Without the lock these are two steps: read the last number; then write numbers."""
        last = world.last
        if "numbers without a lock" in self.traits:
            if relay.seen == NO_OFFSET:
                return world, relay._replace(seen=last), None
            last = relay.seen
        positions = [row.position for row in self._rows(world, lambda one: not one.seq)][: self.limit]
        given = numbered(last, positions)
        writers = tuple(
            one._replace(seq=given[one.position]) if one.position in given else one for one in world.writers
        )
        last = max([world.last, *given.values()])
        return world._replace(writers=writers, last=last), relay._replace(seen=NO_OFFSET), Answer.OK

    def _read(self, world: World, _number: int, relay: Relay) -> Any:
        if self.naive:
            batch = self._read_naively(world, relay)
        else:
            rows = [row for row in self._rows(world, lambda one: one.seq) if row.seq > relay.place]
            batch = self._in_order(in_order(Way.NAMES, rows)[: self.limit], world)
        if "forgets first" in self.traits:
            world = self._gone(world, batch)
        return world, relay._replace(batch=batch, sent=()), Answer.OK if batch else Answer.NO

    def _read_naively(self, world: World, relay: Relay) -> tuple[int, ...]:
        """Return what relays of the three usual kinds take for the next rows."""
        xmin = min([one.xid for one in world.writers if one.phase in (BEGUN, OPEN)], default=len(world.writers) + 1)
        found = [(at, one) for at, one in enumerate(world.writers) if one.phase == COMMITTED]
        if self.naive == "largest id":
            found = [(at, one) for at, one in found if (0, one.position) > relay.place]
            found.sort(key=lambda each: each[1].position)
        elif self.naive == "id behind xmin":
            found = sorted(((at, one) for at, one in found if one.xid < xmin), key=lambda each: each[1].position)
        else:
            found = [(at, one) for at, one in found if one.xid < xmin and (one.xid, one.position) > relay.place]
            found.sort(key=lambda each: (each[1].xid, each[1].position))
        return tuple(at for at, _ in found[: self.limit])

    def _send(self, world: World, _number: int, relay: Relay) -> Any:
        """Send one record. The step goes on until none is left."""
        if relay.epoch != world.epoch and "fences nobody" not in self.traits:
            return world, relay._replace(batch=(), sent=()), Answer.NO
        at, *rest = relay.batch
        key, one = self.keys[at], world.writers[at]
        sequence = one.position if self.naive else one.seq
        if self.way is not Way.NAMES:
            world = world._replace(logs=_with(world.logs, key, (*world.logs[key], (at, relay.epoch))))
        elif sequence > world.highest:
            world = world._replace(logs=_with(world.logs, key, (*world.logs[key], (at, 0))), highest=sequence)
        relay = relay._replace(batch=tuple(rest), sent=(*relay.sent, at))
        return world, relay, None if rest else Answer.OK

    def _commit(self, world: World, _number: int, relay: Relay) -> Any:
        """End the transaction of the broker; with HOLD, the database's too."""
        if relay.epoch != world.epoch:
            return world, relay._replace(sent=()), Answer.NO
        logs = tuple(tuple((at, 0 if one == relay.epoch else one) for at, one in log) for log in world.logs)
        world, last = world._replace(logs=logs), world.writers[relay.sent[-1]]
        if self.way is Way.HOLD:
            return self._gone(world, relay.sent), relay._replace(sent=()), Answer.OK
        place: Any = last.seq
        if self.naive:
            place = (0 if self.naive == "largest id" else last.xid, last.position)
        if "place apart" not in self.traits:
            world = world._replace(place=place)
        return world, relay._replace(place=place), Answer.OK

    def _forget(self, world: World, _number: int, relay: Relay) -> Any:
        if "place apart" in self.traits and relay.sent:
            world = world._replace(place=relay.place)
        sent = tuple(at for at in relay.sent if world.writers[at].phase == COMMITTED)
        if self.way is Way.OFFSETS and not self.naive:
            sent = self._up_to(world, relay.place)
        return self._gone(world, sent), relay._replace(sent=()), Answer.OK

    def _gone(self, world: World, sent: tuple[int, ...]) -> World:
        writers = tuple(one._replace(phase=GONE) if at in sent else one for at, one in enumerate(world.writers))
        return world._replace(writers=writers)

    # ---- what is checked -------------------------------------------------------------------------------------

    def check(self, world: World) -> None:
        """Raise Violated if readers of a key have got something twice, in another order, or uncommitted."""
        for log in world.logs:
            seen = [world.writers[at] for at, pending in log if not pending]
            if any(one.phase not in (COMMITTED, GONE) for one in seen):
                raise Violated(f"a record of a row that was not committed: {world}")
            positions = [one.position for one in seen]
            if len(set(positions)) < len(positions):
                raise Violated(f"a row was sent twice: {world}")
            if positions != sorted(positions):
                raise Violated(f"rows of a key in another order: {world}")

    def is_end(self, world: World) -> bool:
        """Return whether all is done: nothing of what was committed is missing, or left in the table."""
        sent = {at for log in world.logs for at, pending in log if not pending}
        return all(
            one.phase == ROLLED_BACK or (one.phase == GONE and at in sent) for at, one in enumerate(world.writers)
        )


def look_at_all(model: Model) -> tuple[int, int]:
    """Visit every state, the nearest first. Returns how many states and how many steps there are. Raises: Violated."""
    numbers, order = {model.first: 0}, [model.first]
    waiting = deque(order)
    before: dict[int, list[int]] = {}
    steps = 0
    while waiting:
        world = waiting.popleft()
        at = numbers[world]
        for after in model.following(world):
            steps += 1
            if after not in numbers:
                numbers[after] = len(order)
                order.append(after)
                waiting.append(after)
                model.check(after)
            before.setdefault(numbers[after], []).append(at)
    ends = [at for at, world in enumerate(order) if model.is_end(world)]
    reached = set(ends)
    while ends:
        for at in before.get(ends.pop(), ()):
            if at not in reached:
                reached.add(at)
                ends.append(at)
    stuck = [world for at, world in enumerate(order) if at not in reached]
    if stuck:
        raise Violated(f"{len(stuck)} states from which some row never arrives: {stuck[0]}")
    return len(order), steps


def _with(parts: tuple[Any, ...], number: int, part: Any) -> Any:
    """Return the tuple with one of its parts replaced."""
    return (*parts[:number], part, *parts[number + 1 :])

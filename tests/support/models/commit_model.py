"""One commit over a broker and a database, in every order of steps, with faults.

Two writers share a transactional id; one of them may be a zombie. A resolver ends what a dead writer left, and an
operator may send one InitProducerId. Every request is a message: it arrives at any time, also when its sender is dead
or has gone on. A fault is a death, an answer that does not come, a message that arrives twice, or a restart of the
database, which rolls back open transactions. A restart of the broker loses answers only, so it is one of these. The
session of a dead client lives on until the database notices. The resolver never dies.

With DECIDE a writer sends its last record, and PrepareTxn after it, without waiting for an answer. These three arrive
in any order, too: what is to follow in one connection may be lost with it and sent again. A writer that stops before
COMMIT aborts its transaction, which may be Prepared.

What a client does next, the product's own table says. A variant replaces some of its cells, or has traits, which change
what broker and database do.

Checked in every state: whatever has a record has a row, and whatever has a row has a record or is Prepared with it. At
the end: from every state one can be reached in which nothing is Prepared, no message is under way and no session is
open.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from fencepost.client.transactions.deciding import TABLE, Answer, Cell, Step

OFF, IDLE = 11, 12  # steps of the model alone: a writer that has not started; the resolver between two looks
WRITE, ABORT = 13, 14  # requests that are no steps: Produce, and EndTxn of a writer that has stopped
_RESOLVERS: Mapping[Cell, int] = {
    **TABLE,
    (Step.LOOK, Answer.OK): IDLE,
    (Step.LOOK, Answer.NONE): IDLE,
    (Step.CLOSE, Answer.NO): IDLE,
    (Step.END, Answer.OK): IDLE,
    (Step.END, Answer.NO): IDLE,
}

_OF_EPOCH: Mapping[int, Callable[[Any], int]] = {
    Step.PREPARE: lambda found: found.epoch,
    WRITE: lambda asked: asked[0],
    ABORT: lambda epoch: epoch,
}
"""Requests that the broker refuses after the epoch in their arguments, which these functions return."""
RESOLVER = 2  # the number of this client; 0 and 1 are the writers
Work: TypeAlias = tuple[int, int]  # the writer, and which of its transactions: names a row and its record


class Found(NamedTuple):
    """A Prepared transaction; committed: what the database said about it."""

    epoch: int
    number: int
    work: Work
    committed: bool = False


class Broker(NamedTuple):
    """epoch: of the transactional id. number, committed: of the ledger's entry. record: what the open or Prepared
    transaction has.
    """

    epoch: int = 0
    prepared: Found | None = None
    number: int = 0
    committed: bool = False
    record: Work | None = None


class Row(NamedTuple):
    """The row of the transactional id."""

    generation: int = 0
    number: int = 0
    committed: bool = False


class Session(NamedTuple):
    """An open transaction of the database. locks: it holds the row of the transactional id."""

    work: Work
    number: int
    locks: bool


class Client(NamedTuple):
    """found: what it is ending now. left: how many transactions it will still do, the current one included. taken: the
    requests of its step DECIDE that have succeeded.
    """

    step: int
    generation: int = 0
    epoch: int = 0
    number: int = 0
    left: int = 0
    found: Found | None = None
    taken: frozenset[int] = frozenset()


class Message(NamedTuple):
    """A request under way. arguments: all that the receiver gets."""

    client: int
    step: int
    arguments: Any


class World(NamedTuple):
    """faults, operator: how many faults and InitProducerIds of an operator may still come."""

    broker: Broker
    records: frozenset[Work]
    rows: frozenset[Work]
    row: Row
    sessions: tuple[Session | None, Session | None]
    clients: tuple[Client, Client, Client]
    messages: frozenset[Message]
    faults: int
    operator: int


@dataclass(frozen=True)
class Variant:
    """cells: of the writers' table, where they differ; resolver: of the resolver's. traits: of broker and database."""

    traits: frozenset[str] = frozenset()
    cells: Mapping[Cell, int] = field(default_factory=dict)
    resolver: Mapping[Cell, int] = field(default_factory=dict)
    operator: int = 0


class Violated(Exception):
    """Raised by look_at_all(). The text says which rule, and in which state."""


class Model:
    """All steps that are possible in each state. transactions: how many each of the two writers does."""

    def __init__(self, variant: Variant, faults: int = 1, transactions: tuple[int, int] = (1, 1)) -> None:
        self.traits = variant.traits
        writers = {**TABLE, **variant.cells}
        self.tables = (writers, writers, {**_RESOLVERS, **variant.resolver})
        off, idle = (Client(OFF, left=left) for left in transactions), Client(IDLE)
        clients = (*off, idle)
        nothing: frozenset[Any] = frozenset()
        self.first = World(Broker(), nothing, nothing, Row(), (None, None), clients, nothing, faults, variant.operator)

    def following(self, world: World) -> Iterator[World]:
        """Return every state that one step leads to."""
        for after in self._all_following(world):
            yield self._without_spent(after)

    def _without_spent(self, world: World) -> World:
        """Return the state without messages that nobody awaits and that change nothing whenever they arrive: those of
        a producer's earlier epochs.
        """
        epoch = world.broker.epoch
        spent = {one for one in world.messages if one.step in _OF_EPOCH and _OF_EPOCH[one.step](one.arguments) < epoch}
        if not spent:
            return world
        awaited = frozenset[Message]().union(*(self._requests(*each) for each in enumerate(world.clients)))
        return world._replace(messages=world.messages - (spent - awaited))

    def _all_following(self, world: World) -> Iterator[World]:
        for number, client in enumerate(world.clients):
            if client.step is OFF:
                yield self._send(world, number, client._replace(step=Step.CLAIM))
            elif client.step is IDLE and world.broker.prepared:
                yield self._send(world, number, client._replace(step=Step.LOOK))
            elif client.step <= Step.END_OWN and world.faults:
                fewer = world._replace(faults=world.faults - 1)
                if number != RESOLVER:
                    yield fewer._replace(clients=_with(world.clients, number, Client(Step.STOPPED)))
                yield self._answered(fewer, number, Answer.NONE)
        for message in world.messages:
            yield from self._arrivals(world, message)
        yield from self._database_events(world)
        broker = world.broker
        aborted = broker._replace(epoch=broker.epoch + 1, prepared=None, record=None)
        if "timeout" in self.traits and broker.prepared:
            yield world._replace(broker=aborted)
        if world.operator and (broker.prepared is None or "operator passes the hold" in self.traits):
            yield world._replace(broker=aborted, operator=0)

    def _arrivals(self, world: World, message: Message) -> Iterator[World]:
        """Yield the states after this message arrives, arrives for the first of two times, or is lost."""
        number = message.client
        client = world.clients[number]
        is_awaited = message in self._requests(number, client)
        served = self._serve(world, message)
        if served is not None:
            after, answer, value = served
            once = after._replace(messages=world.messages - {message})
            if is_awaited and client.step is Step.DECIDE:
                yield self._voted(once, number, message.step, answer)
            else:
                yield self._answered(once, number, answer, value) if is_awaited else once
            if world.faults and message.step is not Step.DECIDE:  # a driver of a database does not repeat it
                yield after._replace(faults=world.faults - 1)
        is_early = client.step is Step.DECIDE and message.step is Step.PREPARE
        lost = world._replace(messages=world.messages - {message})
        if not is_awaited:
            yield lost
        elif is_early and world.faults:
            yield lost._replace(faults=world.faults - 1)

    def _database_events(self, world: World) -> Iterator[World]:
        """Yield the states after the database notices that a client has left, or restarts."""
        for number, session in enumerate(world.sessions):
            if session and world.clients[number].step not in (Step.DECIDE, Step.PREPARE, Step.COMMIT):
                yield world._replace(sessions=_with(world.sessions, number, None))
        if not world.faults:
            return
        restarted = world._replace(sessions=(None, None), faults=world.faults - 1)
        yield restarted
        row = world.row
        if "loses commits" in self.traits and row.committed:
            lost = world.broker.prepared.work if world.broker.prepared else None
            rows = world.rows - {lost} if lost else frozenset(sorted(world.rows)[:-1])
            yield restarted._replace(rows=rows, row=Row(row.generation, row.number - 1))

    # ---- clients ---------------------------------------------------------------------------------------------

    def _requests(self, number: int, client: Client) -> frozenset[Message]:
        """Return the messages whose answers this client awaits."""
        step, found = client.step, client.found
        work = (number, client.left)
        if step > Step.END_OWN:
            return frozenset()
        prepare = Message(number, Step.PREPARE, Found(client.epoch, client.number, work))
        if step is Step.DECIDE:
            decide = Message(number, step, (client.generation, client.number, work))
            write = Message(number, WRITE, (client.epoch, work))
            sent = {decide, write} if "waits for records first" in self.traits else {decide, write, prepare}
            return frozenset(each for each in sent if each.step not in client.taken)
        if step is Step.PREPARE:
            return frozenset({prepare})
        arguments: Any = None
        if step is Step.COMMIT:
            arguments = work
        elif step in (Step.CLOSE, Step.CLOSE_OWN):
            assert found is not None
            step, arguments = Step.CLOSE, found.number
        elif step in (Step.END, Step.END_OWN):
            step, arguments = Step.END, found
        return frozenset({Message(number, step, arguments)})

    def _send(self, world: World, number: int, client: Client) -> World:
        """Return the state after the client sent what its step is about."""
        messages = world.messages | self._requests(number, client)
        return world._replace(clients=_with(world.clients, number, client), messages=messages)

    def _voted(self, world: World, number: int, asked: int, answer: Answer) -> World:
        """Return the state after an answer to one of the requests of the step DECIDE. One to PrepareTxn counts only if
        it is OK: else it is sent again at the step PREPARE.
        """
        client = world.clients[number]
        if answer is not Answer.OK:
            return world if asked is Step.PREPARE else self._answered(world, number, answer)
        client = client._replace(taken=client.taken | {asked})
        world = world._replace(clients=_with(world.clients, number, client))
        awaited = {Step.DECIDE} if "does not wait for records" in self.traits else {Step.DECIDE, WRITE}
        if not awaited <= client.taken:
            return world
        world = self._answered(world, number, Answer.OK)
        after = world.clients[number]
        return self._answered(world, number, Answer.OK) if after.step in client.taken else world

    def _answered(self, world: World, number: int, answer: Answer, value: Any = None) -> World:
        """Return the state after an answer to this client, or its absence. value: what the answer says."""
        client = world.clients[number]
        step = client.step
        to = self.tables[number][step, answer]
        if step is Step.CLAIM and value:
            client = client._replace(generation=value.generation, number=max(client.number, value.number))
        elif step is Step.LOOK and value:
            client = client._replace(found=value.prepared, number=max(client.number, value.number))
        elif step in (Step.CLOSE, Step.CLOSE_OWN) and answer is Answer.OK:
            assert client.found is not None
            client = client._replace(found=client.found._replace(committed=value))
        elif step is Step.INIT and answer is Answer.OK:
            client = client._replace(epoch=value, number=client.number + 1)
        elif step is Step.COMMIT or to is Step.CLOSE_OWN:
            committed = answer is Answer.OK or (answer is Answer.NONE and "takes no answer for a commit" in self.traits)
            found = Found(client.epoch, client.number, (number, client.left), committed)
            client = client if step is Step.CLOSE_OWN else client._replace(found=found)
        elif step is Step.END_OWN and answer is not Answer.NONE:
            epoch = value if value else client.epoch
            number_next = client.number + (to is not Step.LOOK)
            client = client._replace(epoch=epoch, number=number_next, left=client.left - 1, found=None)
            to = to if client.left else Step.STOPPED
        if to is Step.STOPPED and step in (Step.DECIDE, Step.PREPARE) and "leaves it to others" not in self.traits:
            world = world._replace(messages=world.messages | {Message(number, ABORT, client.epoch)})
        return self._send(world, number, client._replace(step=to, taken=frozenset()))

    # ---- broker and database ---------------------------------------------------------------------------------

    def _serve(self, world: World, message: Message) -> tuple[World, Answer, Any] | None:
        """Return the state after the message arrived, the answer, and its value; None while it waits for a lock."""
        asked, step = message.arguments, message.step
        row, traits = world.row, self.traits
        is_locked = any(session and session.locks for session in world.sessions)
        if step is Step.CLAIM:
            row = row._replace(generation=row.generation + 1)
            return None if is_locked else (world._replace(row=row), Answer.OK, row)
        if step is Step.CLOSE:
            if "no tombstone" in traits:
                return world, Answer.OK, row.number == asked and row.committed
            if is_locked:
                return None
            if row.number < asked:
                row = Row(row.generation, asked)
            return world._replace(row=row), Answer.NO if row.number > asked else Answer.OK, row.committed
        if step is Step.DECIDE:
            return None if is_locked else self._decide(world, message.client, *asked)
        if step is Step.COMMIT:
            session = world.sessions[message.client]
            if session is None or session.work != asked:
                return world, Answer.NO, None
            if "row outside" not in traits:
                row = Row(row.generation, session.number, True)
            sessions = _with(world.sessions, message.client, None)
            return world._replace(rows=world.rows | {asked}, row=row, sessions=sessions), Answer.OK, None
        return self._serve_at_broker(world, step, asked)

    def _decide(self, world: World, client: int, generation: int, number: int, work: Work) -> tuple[World, Answer, Any]:
        """Serve the statements that write the user's rows and the row of the transactional id. They are refused, and
        rolled back, unless that row has a lower number and the client's generation.
        """
        row, traits = world.row, self.traits
        is_ours = "no generation" in traits or row.generation == generation
        if "no row check" not in traits and not (row.number < number and is_ours):
            return world._replace(sessions=_with(world.sessions, client, None)), Answer.NO, None
        outside = "row outside" in traits
        sessions = _with(world.sessions, client, Session(work, number, not outside))
        row = Row(row.generation, number, True) if outside else row
        return world._replace(sessions=sessions, row=row), Answer.OK, None

    def _serve_at_broker(self, world: World, step: int, asked: Any) -> tuple[World, Answer, Any]:
        broker, traits = world.broker, self.traits
        epoch, prepared, number, committed, record = broker
        if step == WRITE:
            if asked[0] != epoch or (prepared and record != asked[1]):
                return world, Answer.NO, None
            return world._replace(broker=broker._replace(record=asked[1])), Answer.OK, None
        if step == ABORT:
            ended = world._replace(broker=Broker(epoch + 1, None, number, committed))
            return ended if asked == epoch else world, Answer.OK, None
        if step is Step.LOOK:
            return world, Answer.NO if prepared else Answer.OK, broker
        if step is Step.INIT:
            if prepared and "no hold" not in traits:
                return world, Answer.NO, None
            return world._replace(broker=Broker(epoch + 1, None, number, committed)), Answer.OK, epoch + 1
        if step is Step.PREPARE:
            if prepared or asked.epoch != epoch:
                return world, Answer.OK if prepared == asked else Answer.NO, None
            if asked.number <= number and "no ledger" not in traits:
                return world._replace(broker=Broker(epoch + 1, None, number, committed)), Answer.NO, None
            return world._replace(broker=broker._replace(prepared=asked)), Answer.OK, None
        assert step is Step.END
        decision = asked.committed
        if "ends any" in traits and prepared:
            asked = prepared
        if asked.number <= number:
            is_same = (asked.number, decision) == (number, committed)
            return world, Answer.NO, is_same
        if prepared is None or asked[:3] != prepared[:3]:
            return world, Answer.NO, False
        records = world.records | {record} if decision and record else world.records
        broker = Broker(epoch + 1, None, asked.number, decision)
        return world._replace(broker=broker, records=records), Answer.OK, epoch + 1


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
                _check(after)
            before.setdefault(numbers[after], []).append(at)
    _check_ends(order, before)
    return len(order), steps


def _check(world: World) -> None:
    prepared = {world.broker.record} if world.broker.prepared else set()
    if not world.records <= world.rows:
        raise Violated(f"a record without its row: {world}")
    if not world.rows <= world.records | prepared:
        raise Violated(f"a row whose record is lost: {world}")


def _check_ends(order: list[World], before: Mapping[int, list[int]]) -> None:
    """Raise Violated if from some state nothing leads to one with all ended. before: the predecessors of each."""
    ends = [
        at
        for at, world in enumerate(order)
        if not world.broker.prepared and not world.messages and world.sessions == (None, None)
    ]
    reached = set(ends)
    while ends:
        for at in before.get(ends.pop(), ()):
            if at not in reached:
                reached.add(at)
                ends.append(at)
    stuck = [world for at, world in enumerate(order) if at not in reached]
    if stuck:
        raise Violated(f"{len(stuck)} states without an end: {stuck[0]}")


def _with(parts: tuple[Any, ...], number: int, part: Any) -> Any:
    """Return the tuple with one of its parts replaced."""
    return (*parts[:number], part, *parts[number + 1 :])

"""Workers that acknowledge records inside their producers' transactions: every order in which things can happen.

A worker takes a record of one share partition, writes its output into the transaction of its producer, has the record
acknowledged in that transaction, and the producer ends it. Between them and the broker is a network that holds requests
back for as long as it likes, loses any answer, and delivers some requests twice; locks expire, transactions time out,
producers are fenced, the broker crashes, processes die and come back or not, and the log's start moves.

What the broker decides of a record is asked of the real machine (broker/share/machine.py), once for each question.
In every world: a record is acknowledged if and only if one output of it is committed; if not, none is, and where the
log's start has passed a record, at most one. And from every world one can be reached in which no transaction is open
and nothing pending, and in which every record is done with, if any client is left.

A Flaw is one way in which it could be built wrongly: explore() finds what comes of it.
"""

from array import array
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from share_record_answers import (
    DELIVERIES,
    GONE,
    Records,
    Shown,
    after_crash,
    given_back,
    given_out,
    made_pending,
    settled,
    without_first,
)

MAX_WORLDS = 5_000_000
FINAL = ("K", "X", GONE)


class Txn(NamedTuple):
    """A producer's transaction: whether it is open, the outputs in it by record, and how the last one ended."""

    is_open: bool
    outputs: tuple[int, ...]
    ended: str = ""


class Worker(NamedTuple):
    """idle, working on a record, asked for its acknowledgement, or sure of it."""

    phase: str = "idle"
    record: int = -1


class Client(NamedTuple):
    """A producer's process. behind: its epoch less the broker's (-2: or less). doing: what it does now."""

    behind: int = 0
    doing: str = "works"


class Request(NamedTuple):
    """A request on its way: "acknowledge" by a worker, or "end", with the outcome. behind: its epoch less the
    producer's at the broker.
    """

    kind: str
    producer: int
    behind: int
    worker: int = -1
    record: int = -1
    outcome: str = ""


class World(NamedTuple):
    """A whole state. faults, moves: how many may still happen: crashes, deaths and copies; moves of the log's start."""

    records: tuple[Shown, ...]
    outputs: tuple[int, ...]
    txns: tuple[Txn, ...]
    clients: tuple[Client, ...]
    workers: tuple[Worker, ...]
    network: tuple[Request, ...]
    faults: int
    moves: int


class Scene(NamedTuple):
    """producers, members: of each worker."""

    producers: tuple[int, ...]
    members: tuple[int, ...]
    records: int
    faults: int
    moves: int = 0


SCENES = {
    "one record": Scene((0, 1), (0, 1), 1, 3),
    "a member of two producers": Scene((0, 1), (0, 0), 1, 3),
    "one member": Scene((0, 0), (0, 0), 2, 2),
    "one producer": Scene((0, 0), (0, 1), 2, 2),
    "the log's start moves": Scene((0, 0), (0, 1), 2, 1, 2),
    "two producers": Scene((0, 1), (0, 1), 2, 1),
}


class Flaw(StrEnum):
    """Where each is found: FLAWED_SCENES."""

    NONE = "none"
    EXPIRY_FREES_PENDING = "a lock's deadline frees what is pending"
    DEATH_FREES_PENDING = "the death of a process frees what is pending"
    CRASH_FORGETS_PENDING = "a crash forgets what is pending"
    TORN_END = "outputs and acknowledgements are committed in two units"
    ACKNOWLEDGED_AGAIN = "what is acknowledged becomes pending again"
    SECOND_TAKES_PENDING = "a second transaction takes what is pending in the first"
    SAME_EPOCH = "the end of a transaction bumps no epoch"
    ABORT_LEAVES_PENDING = "an abort leaves it pending"
    TIMEOUT_LEAVES_PENDING = "a timeout leaves it pending"
    FENCING_LEAVES_PENDING = "fencing leaves it pending"
    UNKNOWN_IS_COMMITTED = "a client commits although an acknowledgement was not answered"
    PLAIN_ACKNOWLEDGES_PENDING = "a plain acknowledgement takes what is pending"
    LIMIT_ARCHIVES_PENDING = "what was given out too often is archived while it is pending"
    ANY_EPOCH = "an older epoch may acknowledge"
    IDEMPOTENT = "an acknowledgement may be repeated in its own transaction"
    START_SETTLES = "the log's start acknowledges what is pending"


QUIET = Scene((0, 1), (0, 1), 1, 0)
TWO_TASKS = Scene((0, 0), (0, 0), 2, 0)
ALONE = Scene((0,), (0,), 1, 1)
TRIMMED = Scene((0, 0), (0, 1), 1, 0, 1)
SMALL_SCENES = {"nothing fails": QUIET, "two tasks": TWO_TASKS, "one worker": ALONE, "a log that is trimmed": TRIMMED}

FLAWED_SCENES = dict.fromkeys(Flaw, QUIET) | {
    Flaw.DEATH_FREES_PENDING: ALONE,
    Flaw.CRASH_FORGETS_PENDING: ALONE,
    Flaw.TORN_END: ALONE,
    Flaw.TIMEOUT_LEAVES_PENDING: ALONE,
    Flaw.FENCING_LEAVES_PENDING: ALONE,
    Flaw.ANY_EPOCH: TWO_TASKS,
    Flaw.IDEMPOTENT: TWO_TASKS,
    Flaw.START_SETTLES: TRIMMED,
}


class Broken(Exception):
    """Raised for a state that must not be reached."""


def put(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    return (*items[:index], item, *items[index + 1 :])


# ---- what can happen -------------------------------------------------------------------------------------------


class Scenario:
    """All states that can be reached in one scene."""

    def __init__(self, scene: Scene, flaw: Flaw = Flaw.NONE) -> None:
        self.producers, self.members, self.size, faults, moves = scene
        self.flaw = flaw
        count = max(self.producers) + 1
        self.first = World(
            (Shown(),) * self.size,
            (0,) * self.size,
            (Txn(False, (0,) * self.size),) * count,
            (Client(),) * count,
            (Worker(),) * len(self.producers),
            (),
            faults,
            moves,
        )

    def after(self, world: World) -> Iterator[World]:
        """Yield every state to which one step leads from this one."""
        yield from self._of_records(world)
        yield from self._of_workers(world)
        yield from self._of_clients(world)
        yield from self._of_network(world)
        if world.faults:
            yield from self._of_faults(world._replace(faults=world.faults - 1))

    def _of_records(self, world: World) -> Iterator[World]:
        for number, one in enumerate(world.records):
            if one.letter == "A":
                for index, worker in enumerate(world.workers):
                    if worker.phase == "idle" and world.clients[self.producers[index]].doing != "is gone":
                        records = given_out(world.records, number, self.members[index])
                        yield world._replace(
                            records=records, workers=put(world.workers, index, Worker("works", number))
                        )
            if one.letter == "L":  # its lock expires, its member releases it, or its session ends
                yield world._replace(records=given_back(world.records, number))
            if one.letter == "P":
                yield from self._flawed(world, number, one)
            gone = number + 1
            if world.moves and one.letter != GONE and all(each.letter == GONE for each in world.records[:number]):
                records = without_first(world.records, gone)
                if self.flaw is Flaw.START_SETTLES and one.letter == "P":
                    records = put(records, number, Shown("K"))
                yield world._replace(records=records, moves=world.moves - 1)

    def _flawed(self, world: World, number: int, one: Shown) -> Iterator[World]:
        comes_of = {
            Flaw.EXPIRY_FREES_PENDING: "A" if one.deliveries < DELIVERIES else "X",
            Flaw.PLAIN_ACKNOWLEDGES_PENDING: "K",
            Flaw.LIMIT_ARCHIVES_PENDING: "X" if one.deliveries >= DELIVERIES else "",
        }
        letter = comes_of.get(self.flaw)
        if letter:
            yield world._replace(records=put(world.records, number, Shown(letter, deliveries=one.deliveries)))

    def _of_workers(self, world: World) -> Iterator[World]:
        for index, (phase, number) in enumerate(world.workers):
            producer = self.producers[index]
            behind, doing = world.clients[producer]
            if phase != "works" or doing != "works":
                continue
            yield world._replace(workers=put(world.workers, index, Worker()))  # it gives up; its lock goes on
            if behind:
                yield self._starts_anew(world, producer)
                continue
            txn = world.txns[producer]
            outputs = put(txn.outputs, number, min(2, txn.outputs[number] + 1))
            yield world._replace(
                txns=put(world.txns, producer, Txn(True, outputs)),
                workers=put(world.workers, index, Worker("asks", number)),
                network=_sent(world, Request("acknowledge", producer, 0, index, number)),
            )

    def _of_clients(self, world: World) -> Iterator[World]:
        for producer, (behind, doing) in enumerate(world.clients):
            phases = [each.phase for each, of in zip(world.workers, self.producers, strict=True) if of == producer]
            asked = [phase for phase in phases if phase in ("asks", "is sure")]
            if doing == "works" and asked:
                sure = "asks" not in asked or self.flaw is Flaw.UNKNOWN_IS_COMMITTED
                for outcome in ("commit", "abort") if sure else ("abort",):
                    yield world._replace(
                        clients=put(world.clients, producer, Client(behind, outcome)),
                        network=_sent(world, Request("end", producer, behind, outcome=outcome)),
                    )
            if doing in ("commit", "abort") and not any(
                each.kind == "end" and each.producer == producer for each in world.network
            ):
                yield world._replace(network=_sent(world, Request("end", producer, behind, outcome=doing)))  # once more
            if doing == "starts":
                ended = self._ended(world, producer, commit=False, by="fencing")
                yield ended  # it does not hear of it
                yield ended._replace(clients=put(ended.clients, producer, Client()))
            if world.txns[producer].is_open:
                yield self._ended(world, producer, commit=False, by="timeout")

    def _of_network(self, world: World) -> Iterator[World]:
        for index, request in enumerate(world.network):
            left = [world._replace(network=(*world.network[:index], *world.network[index + 1 :]))]
            if world.faults:
                left.append(world._replace(faults=world.faults - 1))  # a copy of it comes later
            for each in left:
                yield from (
                    self._acknowledged(each, request) if request.kind == "acknowledge" else self._end(each, request)
                )

    def _of_faults(self, world: World) -> Iterator[World]:
        records = after_crash(world.records)
        if self.flaw is Flaw.CRASH_FORGETS_PENDING:
            records = tuple(Shown() if one.letter == "P" else one for one in records)
        yield world._replace(records=records)
        for producer, client in enumerate(world.clients):
            if client.doing == "is gone":
                continue
            for doing in ("starts", "is gone"):
                after = self._starts_anew(world, producer, doing)
                if self.flaw is Flaw.DEATH_FREES_PENDING:
                    after = after._replace(records=settled(after.records, producer, False))
                yield after

    # ---- the broker --------------------------------------------------------------------------------------------

    def _acknowledged(self, world: World, request: Request) -> Iterator[World]:
        _, producer, behind, index, number, _ = request
        member = self.members[index]
        records = None if behind and self.flaw is not Flaw.ANY_EPOCH else self._pending(world, number, member, producer)
        if records is None:
            yield world  # refused
            return
        txn = world.txns[producer]
        after = world._replace(records=records, txns=put(world.txns, producer, txn._replace(is_open=True)))
        yield after  # the answer is lost, or nobody waits for it
        if world.workers[index] == Worker("asks", number) and world.clients[producer] == Client(behind):
            yield after._replace(workers=put(after.workers, index, Worker("is sure", number)))

    def _pending(self, world: World, number: int, member: int, producer: int) -> Records | None:
        one = world.records[number]
        if self.flaw is Flaw.IDEMPOTENT and one.letter == "P" and one.who == (member, producer):
            return world.records
        takes = {Flaw.SECOND_TAKES_PENDING: "P", Flaw.ACKNOWLEDGED_AGAIN: "K"}
        if takes.get(self.flaw) == one.letter:
            return put(world.records, number, Shown("P", (member, producer), one.deliveries))
        return made_pending(world.records, number, member, producer)

    def _end(self, world: World, request: Request) -> Iterator[World]:
        _, producer, behind, _, _, outcome = request
        txn = world.txns[producer]
        is_heard = behind == 0 and (txn.is_open or outcome == "abort")
        after = world
        if is_heard:
            after = self._ended(world, producer, commit=outcome == "commit", by="end")
            if self.flaw is Flaw.TORN_END and outcome == "commit" and world.faults:
                torn = self._ended(world, producer, commit=True, by="torn")
                yield torn._replace(records=settled(torn.records, producer, False), faults=world.faults - 1)
        yield after
        if world.clients[producer] == Client(behind, outcome):  # its client waits for it
            is_repeated = behind == -1 and txn.ended == outcome
            yield self._goes_on(after, producer) if is_heard or is_repeated else self._starts_anew(after, producer)

    def _ended(self, world: World, producer: int, *, commit: bool, by: str) -> World:
        """Return the state after a transaction's end: outputs, acknowledgements and the epoch change in one unit, by
        EndTxn, by the timeout, or by InitProducerId.
        """
        records, outputs, clients, network = world.records, world.outputs, world.clients, world.network
        leaves = {
            Flaw.ABORT_LEAVES_PENDING: not commit,
            Flaw.TIMEOUT_LEAVES_PENDING: by == "timeout",
            Flaw.FENCING_LEAVES_PENDING: by == "fencing",
        }
        if by != "torn" and not leaves.get(self.flaw, False):
            records = settled(records, producer, commit)
        if commit:
            written = world.txns[producer].outputs
            outputs = tuple(min(2, before + new) for before, new in zip(outputs, written, strict=True))
        if self.flaw is not Flaw.SAME_EPOCH:
            behind, doing = clients[producer]
            clients = put(clients, producer, Client(max(-2, behind - 1), doing))
            network = _without_older(network, producer)
        outcome = ("commit" if commit else "abort") if by in ("end", "torn") else ""
        txns = put(world.txns, producer, Txn(False, (0,) * self.size, outcome))
        return world._replace(records=records, outputs=outputs, txns=txns, clients=clients, network=network)

    # ---- the client --------------------------------------------------------------------------------------------

    def _goes_on(self, world: World, producer: int) -> World:
        """Return the state in which the producer begins its next transaction; what workers work on stays."""
        workers = tuple(
            Worker() if of == producer and each.phase in ("asks", "is sure") else each
            for each, of in zip(world.workers, self.producers, strict=True)
        )
        return world._replace(workers=workers, clients=put(world.clients, producer, Client()))

    def _starts_anew(self, world: World, producer: int, doing: str = "starts") -> World:
        """Return the state in which a new process of the producer takes the old one's place, and knows nothing of what
        that did.
        """
        workers = tuple(
            Worker() if of == producer else each for each, of in zip(world.workers, self.producers, strict=True)
        )
        behind = world.clients[producer].behind
        return world._replace(workers=workers, clients=put(world.clients, producer, Client(behind, doing)))


def _without_older(network: tuple[Request, ...], producer: int) -> tuple[Request, ...]:
    """Return the requests on their way after the producer's epoch has grown: those of the current epoch are old now.

    Requests that were old already are left out: they are refused whenever they come.
    """
    kept = (each for each in network if each.producer != producer or each.behind == 0)
    return tuple(sorted(each._replace(behind=-1) if each.producer == producer else each for each in kept))


def _sent(world: World, request: Request) -> tuple[Request, ...]:
    return tuple(sorted((*world.network, request)))


# ---- what must hold --------------------------------------------------------------------------------------------


def check(world: World) -> None:
    """Raise Broken if the state violates a rule."""
    for one, outputs in zip(world.records, world.outputs, strict=True):
        if outputs > 1 or (outputs != (one.letter == "K") and one.letter != GONE):
            raise Broken(f"a record in state {one.letter} has {outputs} committed outputs")


def is_over(world: World) -> bool:
    """Return whether nothing is left to be done."""
    if any(txn.is_open for txn in world.txns) or any(one.letter == "P" for one in world.records):
        return False
    return all(one.letter in FINAL for one in world.records) or all(each.doing == "is gone" for each in world.clients)


def explore(first: World, after: Callable[[World], Iterator[World]]) -> int:
    """Visit all states that can be reached, and return how many there are. Raises Broken."""
    numbers, worlds = {first: 0}, [first]
    begins, ends = array("I"), array("I")
    for number, world in enumerate(worlds):
        check(world)
        for later in set(after(world)):
            known = numbers.setdefault(later, len(worlds))
            if known == len(worlds):
                worlds.append(later)
            begins.append(number)
            ends.append(known)
        assert len(worlds) <= MAX_WORLDS
    _check_ends(worlds, begins, ends)
    return len(worlds)


def _check_ends(worlds: list[World], begins: "array[int]", ends: "array[int]") -> None:
    """Check that from every state one can be reached in which everything is done."""
    before: list[list[int]] = [[] for _ in worlds]
    for begin, end in zip(begins, ends, strict=True):
        before[end].append(begin)
    may_end = [is_over(world) for world in worlds]
    left = [number for number, is_end in enumerate(may_end) if is_end]
    while left:
        for number in before[left.pop()]:
            if not may_end[number]:
                may_end[number] = True
                left.append(number)
    if not all(may_end):
        raise Broken(f"for ever: {worlds[may_end.index(False)]}")

"""A mirror's protocol in every order of steps: one source partition, two tasks, one of them perhaps a zombie.

The target has a log, transactions, and the group whose members the tasks are; its offset is the position in the source.
A task joins (a new generation), reads its position, writes records in a transaction, adds the position after them,
commits. Answers are lost, requests arrive late, tasks are killed and come again, transactions time out. What a task
does next, the product's own table says (`client/mirror/machine.py`); a variant replaces functions of it.

Checked in every state: the committed records of the target are 0, 1, 2 ... without a gap or a repetition, as many as
the committed position says.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from fencepost.client.mirror import machine
from fencepost.client.mirror.machine import Positions, Step, Task
from fencepost.client.mirror.positions import Position
from fencepost.client.values import ConsumerGroupMetadata, TopicPartition

PARTITION = TopicPartition("t", 0)
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


@dataclass(frozen=True)
class Size:
    """How much of the world is gone through: records of the source, transactions, generations."""

    records: int = 2
    transactions: int = 3
    generations: int = 3


class Running(NamedTuple):
    """A task: its product's state, its transaction (-1: none), and the next record that it would write."""

    task: Task = Task()
    transaction: int = -1
    following: int = 0


class World(NamedTuple):
    """log: (record, transaction). outcomes: by transaction. pending: (transaction, position) of open ones."""

    log: tuple[tuple[int, int], ...] = ()
    outcomes: tuple[str, ...] = ()
    position: int = 0
    pending: tuple[tuple[int, int], ...] = ()
    generation: int = 0
    tasks: tuple[Running, ...] = (Running(), Running())


def positions_at(offset: int) -> Positions:
    """Return the positions of a task that reads the source's only partition, and goes on at this offset."""
    return ((PARTITION, Position(offset, b"")),)


def table(**replaced: Any) -> Any:
    """Return the product's functions, with some of them replaced."""
    names = ("joined", "left", "doubted", "found", "began", "added", "fence_of", "may_commit", "committed")
    return SimpleNamespace(**{name: getattr(machine, name) for name in names} | replaced)


def end(world: World, transaction: int, outcome: str) -> World:
    """Return the world after the target ended a transaction. A commit moves the position to the one that was added."""
    outcomes = (*world.outcomes[:transaction], outcome, *world.outcomes[transaction + 1 :])
    moved = [position for each, position in world.pending if each == transaction and outcome == COMMITTED]
    pending = tuple(each for each in world.pending if each[0] != transaction)
    return world._replace(outcomes=outcomes, position=[world.position, *moved][-1], pending=pending)


def steps(world: World, size: Size, rules: Any) -> Iterator[World]:
    """Yield every world that may come next."""
    for transaction, outcome in enumerate(world.outcomes):
        if outcome == OPEN:
            yield end(world, transaction, ABORTED)  # its time is over
    for number, running in enumerate(world.tasks):
        yield from steps_of(world, number, running, size, rules)


def steps_of(world: World, number: int, running: Running, size: Size, rules: Any) -> Iterator[World]:
    """Yield the worlds after each thing that one task may do, or that may happen to it."""
    task, mine, following = running
    is_open = mine >= 0 and world.outcomes[mine] == OPEN

    def become(after: Running, target: World = world) -> World:
        return target._replace(tasks=(*target.tasks[:number], after, *target.tasks[number + 1 :]))

    if task.step is Step.OUT:
        if world.generation < size.generations:
            member = ConsumerGroupMetadata("g", world.generation + 1, str(number))
            yield become(Running(rules.joined(task, member)), world._replace(generation=world.generation + 1))
        return
    yield become(Running(rules.left(task)))  # killed
    if task.step is Step.ASKING:
        asked = rules.found(task, positions_at(world.position), pending=bool(world.pending))
        yield become(running._replace(task=asked))
    if task.step is Step.READY:
        at = task.positions[0][1].offset
        if at < size.records and len(world.outcomes) < size.transactions:
            new = len(world.outcomes)
            written = world._replace(log=(*world.log, (at, new)), outcomes=(*world.outcomes, OPEN))
            yield become(Running(rules.began(task), new, at + 1), written)
    if task.step is Step.WRITING:
        yield become(Running(rules.doubted(task)))  # an error, and whatever the target does with the transaction
        if not is_open:
            return
        if following < size.records:
            written = world._replace(log=(*world.log, (following, mine)))
            yield become(running._replace(following=following + 1), written)
        fence = rules.fence_of(task)
        if fence.generation in (world.generation, -1):
            added = world._replace(pending=(*world.pending, (mine, following)))
            yield become(running._replace(task=rules.added(task, positions_at(following))), added)
            yield become(Running(rules.doubted(task)), added)  # the answer is lost
        else:
            yield become(Running(rules.doubted(task)), end(world, mine, ABORTED))
    if task.step in (Step.WRITING, Step.ADDED) and is_open and rules.may_commit(task):
        done = end(world, mine, COMMITTED)
        if task.step is Step.ADDED:
            yield become(Running(rules.committed(task)), done)
        yield become(Running(rules.doubted(task)), done)  # the answer is lost
        yield become(Running(rules.doubted(task)))  # the request is lost, or arrives later: late_commits()
    if mine >= 0 and task.step is Step.ADDED and not is_open:
        yield become(Running(rules.doubted(task)))  # the transaction was aborted meanwhile


def late_commits(world: World) -> Iterator[World]:
    """Yield each world in which a commit that was sent before arrives now: any open transaction with a position may
    have one on its way, whoever sent it.
    """
    for transaction, _ in world.pending:
        yield end(world, transaction, COMMITTED)


def explore(size: Size, rules: Any | None = None) -> tuple[str, int]:
    """Go through all worlds. Returns what is wrong with the first bad one ("" if none is), and how many there were."""
    rules = rules or table()
    start = World()
    seen, queue = {start}, deque([start])
    while queue:
        world = queue.popleft()
        for after in (*steps(world, size, rules), *late_commits(world)):
            if after in seen:
                continue
            done = [record for record, transaction in after.log if after.outcomes[transaction] == COMMITTED]
            if done != list(range(len(done))) or after.position != len(done):
                return f"committed {done}, position {after.position}", len(seen)
            seen.add(after)
            queue.append(after)
    return "", len(seen)

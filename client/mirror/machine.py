"""What one task of a mirror may do next: the table of its steps. Pure.

    step      may be followed by
    OUT       joined → ASKING
    ASKING    found: positions that no open transaction may move → READY; pending ones → ASKING
    READY     began a transaction → WRITING
    WRITING   added the positions after the records to it, by the member that read the first ones → ADDED
    ADDED     committed, as the target answered → READY, at these positions
    any       doubted → ASKING: nothing that was known counts any more; left → OUT

A commit whose answer did not come, an abort, an error of any request, and a generation that is over are doubts. There
is no way from a doubt to a transaction but through positions that the target says are stable, and no commit but from
ADDED. The package's docstring says why that is enough.
"""

from dataclasses import dataclass, replace
from enum import Enum

from ..errors import IllegalStateError
from ..values import ConsumerGroupMetadata, TopicPartition
from .positions import Position

Positions = tuple[tuple[TopicPartition, Position], ...]
"""The position of each partition of a task."""


class Step(Enum):
    """Where a task is in its cycle."""

    OUT = "out"
    ASKING = "asking"
    READY = "ready"
    WRITING = "writing"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class Task:
    """member: with its generation, None out of the group. positions: where the present cycle begins, known from READY
    on. following: where it ends, known in ADDED.
    """

    step: Step = Step.OUT
    member: ConsumerGroupMetadata | None = None
    positions: Positions = ()
    following: Positions = ()


def joined(task: Task, member: ConsumerGroupMetadata) -> Task:
    """Return the task as a member of a new generation, which has to ask for its positions."""
    return Task(Step.ASKING, member)


def left(task: Task) -> Task:
    """Return the task as it is outside of the group: without membership and positions."""
    return Task()


def doubted(task: Task) -> Task:
    """Return the task after an error or an unknown outcome: all is forgotten but the membership."""
    return left(task) if task.member is None else Task(Step.ASKING, task.member)


def found(task: Task, positions: Positions, *, pending: bool) -> Task:
    """Return the task with the positions that the target has answered. pending: an open transaction may still move one
    of them, so the task asks again.
    """
    _check(task, Step.ASKING)
    return task if pending else replace(task, step=Step.READY, positions=positions)


def began(task: Task) -> Task:
    """Return the task with an open transaction, whose records are those from the positions on."""
    _check(task, Step.READY)
    return replace(task, step=Step.WRITING)


def added(task: Task, following: Positions) -> Task:
    """Return the task after `following` was added to the transaction as its new positions, by the member of
    `fence_of`.
    """
    _check(task, Step.WRITING)
    return replace(task, step=Step.ADDED, following=following)


def fence_of(task: Task) -> ConsumerGroupMetadata:
    """Return the member whose generation fences the transaction: the one with which the positions were read."""
    _check(task, Step.WRITING)
    assert task.member is not None
    return task.member


def may_commit(task: Task) -> bool:
    """Return whether the transaction has its positions, so that it may be committed; else it must be aborted."""
    return task.step is Step.ADDED


def committed(task: Task) -> Task:
    """Return the task after its transaction was committed: the following positions are the present ones."""
    _check(task, Step.ADDED)
    return replace(task, step=Step.READY, positions=task.following, following=())


def _check(task: Task, expected: Step) -> None:
    """Raise IllegalStateError if the task is not at this step."""
    if task.step is not expected:
        raise IllegalStateError(f"a mirror's task is {task.step.value}, not {expected.value}")

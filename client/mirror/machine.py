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
    """The task is a member of a new generation."""
    return Task(Step.ASKING, member)


def left(task: Task) -> Task:
    """The task is no member any more."""
    return Task()


def doubted(task: Task) -> Task:
    """Something went wrong, or may have: forget all but the membership."""
    return left(task) if task.member is None else Task(Step.ASKING, task.member)


def found(task: Task, positions: Positions, *, pending: bool) -> Task:
    """The target has answered where the partitions stand. pending: an open transaction may still move one of them."""
    _check(task, Step.ASKING)
    return task if pending else replace(task, step=Step.READY, positions=positions)


def began(task: Task) -> Task:
    """A transaction is open, whose records are those from the positions on."""
    _check(task, Step.READY)
    return replace(task, step=Step.WRITING)


def added(task: Task, following: Positions) -> Task:
    """The positions after the records are in the transaction, by the member that `fence_of` returned."""
    _check(task, Step.WRITING)
    return replace(task, step=Step.ADDED, following=following)


def fence_of(task: Task) -> ConsumerGroupMetadata:
    """Return the member that positions are added by: that of the time when the first ones were read."""
    _check(task, Step.WRITING)
    assert task.member is not None
    return task.member


def may_commit(task: Task) -> bool:
    """Return whether the transaction has its positions, so that it may be committed; else it must be aborted."""
    return task.step is Step.ADDED


def committed(task: Task) -> Task:
    """The target has answered that the transaction is committed."""
    _check(task, Step.ADDED)
    return replace(task, step=Step.READY, positions=task.following, following=())


def _check(task: Task, expected: Step) -> None:
    if task.step is not expected:
        raise IllegalStateError(f"a mirror's task is {task.step.value}, not {expected.value}")

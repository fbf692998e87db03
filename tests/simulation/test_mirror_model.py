"""A mirror's protocol in every order of steps, and the bugs in its table that would break it."""

from dataclasses import replace
from typing import Any

import pytest
from fencepost.client.mirror import machine
from fencepost.client.mirror.machine import Positions, Step, Task
from fencepost.client.values import ConsumerGroupMetadata
from mirror_model import Size, explore, table


@pytest.mark.slow
def test_a_mirror_copies_each_transaction_once_in_every_order_of_steps() -> None:
    wrong, count = explore(Size(transactions=2))
    assert not wrong
    assert count > 2_000


@pytest.mark.long
@pytest.mark.parametrize("size", [Size(), Size(generations=4), Size(records=3)], ids=str)
def test_a_mirror_copies_each_transaction_once_in_every_order_of_a_larger_model(size: Size) -> None:
    wrong, count = explore(size)
    assert not wrong
    print(f"{count:,} worlds")


def unfenced(task: Task) -> ConsumerGroupMetadata:
    """Mutant: the target is told of no generation, as if the group were on the source."""
    return ConsumerGroupMetadata("g", -1, "")


def believe_pending(task: Task, positions: Positions, *, pending: bool) -> Task:
    """Mutant: the position is read without require_stable."""
    return machine.found(task, positions, pending=False)


def remember(task: Task) -> Task:
    """Mutant: after a commit of unknown outcome the task goes on from the positions that it remembers."""
    if task.step is Step.ADDED:
        return replace(task, step=Step.READY, positions=task.following, following=())
    return machine.doubted(task)


def commit_always(task: Task) -> bool:
    """Mutant: a transaction is committed although its offsets were not added."""
    return task.step in (Step.WRITING, Step.ADDED)


MUTANTS: dict[str, dict[str, Any]] = {
    "a group on the source": {"fence_of": unfenced},
    "pending positions": {"found": believe_pending},
    "positions from memory after a doubt": {"doubted": remember},
    "a commit without its offsets": {"may_commit": commit_always},
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_bug_planted_in_the_mirrors_protocol_is_found_by_the_model(name: str) -> None:
    wrong, _ = explore(Size(), table(**MUTANTS[name]))
    assert wrong

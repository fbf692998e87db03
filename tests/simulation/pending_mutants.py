"""The bank of bugs in locks of share groups, and in what is pending there: the simulation of a share group alone
catches each, from a seed that is named.

What these seeds meet: a transaction that is open for longer than a lock lasts, a session that ends in it, a restart in
it, a worker that says again what it has acknowledged, and a member that keeps its connection and says nothing more.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

from fencepost.broker.share import locks
from fencepost.broker.share.ended import find_acquired
from fencepost.broker.share.machine import Decision, SharePartition
from fencepost.broker.share.runs import Standing
from fencepost.broker.share.state_log import ShareStateLog
from fencepost.broker.share.values import State
from simulation.planting import _replaced, around, breaks, caught_with_queues, replaced

NOBODYS = (
    "guarantees.md: While the transaction is open nobody else gets the record: no lock ends it, no session, no restart"
)
UNTIL_ITS_LOCK_ENDS = "guarantees.md: A record that a member has acquired is nobody else's until its lock ends"
IF_AND_ONLY_IF = "guarantees.md: A record is acknowledged if and only if the transaction commits"


def _free(machine: SharePartition, first: int, last: int, is_freed: Callable[[Standing], bool]) -> None:
    """Make these records available, in memory alone, where they are pending and is_freed() is true."""
    for begins, ends, standing in list(machine.runs.pieces(max(first, machine.start), last)):
        if standing is not None and standing.state is State.PENDING and is_freed(standing):
            machine.runs.put(begins, ends, Standing(State.AVAILABLE, standing.deliveries))
            machine._look_from = min(machine._look_from, begins)


@caught_with_queues(seed=1)
@breaks(NOBODYS)
def the_end_of_a_lock_frees_what_is_pending(stack: ExitStack) -> None:
    def wrapper(due_alarms: Any) -> Any:
        def freeing(self: SharePartition, now_ms: int, max_runs: int) -> Any:
            due, runs = due_alarms(self, now_ms, max_runs)
            for _, first, last in due:
                _free(self, first, last, lambda standing: True)
            return due, runs

        return freeing

    around(stack, SharePartition.due_alarms, wrapper)


@caught_with_queues(seed=2)
@breaks(NOBODYS)
def the_end_of_a_session_frees_what_is_pending(stack: ExitStack) -> None:
    def freeing(machine: SharePartition, member: str, offset: int, max_runs: int) -> Any:
        _free(machine, machine.start, machine.end, lambda standing: standing.member == member)
        return find_acquired(machine, member, offset, max_runs)

    _replaced(stack, locks, "find_acquired", freeing)


@caught_with_queues(seed=1)
@breaks(IF_AND_ONLY_IF)
def a_start_forgets_what_is_pending(stack: ExitStack) -> None:
    replaced(stack, SharePartition.apply_pending, lambda self, transaction, position, batches: None)


@caught_with_queues(seed=1)
@breaks(IF_AND_ONLY_IF)
def a_start_takes_what_was_aborted_for_committed(stack: ExitStack) -> None:
    def wrapper(load: Any) -> Any:
        def loading(self: ShareStateLog) -> None:
            end = self.end_transaction

            def committed(home: int, producer_id: int, commit: bool, marker_offset: int) -> None:
                end(home, producer_id, True, marker_offset)

            with mock.patch.object(self, "end_transaction", committed):
                load(self)

        return loading

    around(stack, ShareStateLog.load, wrapper)


def _takes_what_is_pending(stack: ExitStack, decide: Any) -> None:
    """Have this method of SharePartition treat records that are pending for its member as acquired by it."""

    def wrapper(decide: Any) -> Any:
        def decided(self: SharePartition, member: str, acks: Iterable[Any], *more: Any) -> Decision:
            found = list(acks)
            for first, last in [(first, last) for first, last, _ in found]:
                for begins, ends, standing in list(self.runs.pieces(max(first, self.start), last)):
                    if standing is not None and standing.state is State.PENDING and standing.member == member:
                        self.runs.put(begins, ends, standing._replace(state=State.ACQUIRED))
            made: Decision = decide(self, member, found, *more)
            return made

        return decided

    around(stack, decide, wrapper)


@caught_with_queues(seed=1)
@breaks(NOBODYS)
def what_is_pending_is_acknowledged_outside_of_its_transaction(stack: ExitStack) -> None:
    _takes_what_is_pending(stack, SharePartition.decide_acks)


@caught_with_queues(seed=1)
@breaks(NOBODYS)
def what_is_pending_is_acknowledged_in_a_transaction_again(stack: ExitStack) -> None:
    _takes_what_is_pending(stack, SharePartition.decide_pending)


@caught_with_queues(seed=1)
@breaks(UNTIL_ITS_LOCK_ENDS)
def locks_end_with_their_sessions_alone(stack: ExitStack) -> None:
    def expired(machine: Any, due: Sequence[Any]) -> list[Any]:
        return []

    _replaced(stack, locks, "find_expired", expired)


@caught_with_queues(seed=1)
@breaks(UNTIL_ITS_LOCK_ENDS)
def a_renewed_lock_ends_when_it_would_have_ended_before(stack: ExitStack) -> None:
    def wrapper(decide_acks: Any) -> Any:
        def decided(self: SharePartition, *of_request: Any) -> Decision:
            decision: Decision = decide_acks(self, *of_request)
            return decision._replace(runs=[run for run in decision.runs if run[2].state is not State.ACQUIRED])

        return decided

    around(stack, SharePartition.decide_acks, wrapper)

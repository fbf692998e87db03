"""The bank of bugs in the records of share groups that the simulation catches: who has one, and what an end decides."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from fencepost.broker.share.logged import _Piece
from fencepost.broker.share.machine import SharePartition
from fencepost.broker.share.portions import _Portion
from simulation.planting import around, breaks, killed_by, mutant, replaced


def _settles(stack: ExitStack, as_what: Any) -> None:
    """as_what: whether records are settled as of a commit, given whether it is one; None leaves them pending."""

    def wrapper(settle: Any) -> Any:
        def settled(self: Any, transaction: Any, position: int, *, commit: bool) -> None:
            if (said := as_what(commit)) is not None:
                settle(self, transaction, position, commit=said)

        return settled

    around(stack, SharePartition.settle, wrapper)


@mutant
@breaks("guarantees.md: It is available again when the transaction aborts")
def an_abort_leaves_records_pending(stack: ExitStack) -> None:
    _settles(stack, lambda commit: commit or None)


@mutant
@breaks("guarantees.md: It is available again when the transaction aborts")
def an_abort_accepts_what_was_pending(stack: ExitStack) -> None:
    _settles(stack, lambda commit: True)


@mutant
@breaks("guarantees.md: A record is acknowledged if and only if the transaction commits")
def a_commit_gives_back_what_was_pending(stack: ExitStack) -> None:
    _settles(stack, lambda commit: False)


@mutant
@breaks("guarantees.md: A record that a member has acquired is nobody else's until its lock ends")
def anybody_may_acknowledge_what_somebody_has(stack: ExitStack) -> None:
    def wrapper(acquired: Any) -> Any:
        def found(self: Any, member: str, acks: Any, above: int) -> Iterator[Any]:
            for first, last, kind in acks:
                pieces = self.runs.pieces(max(first, self.start), last)
                owner = next((standing.member for _, _, standing in pieces if standing is not None), member)
                yield from acquired(self, owner or member, [(first, last, kind)], above)
                above = last

        return found

    around(stack, SharePartition._acquired, wrapper)


@mutant
@breaks("guarantees.md: A record that a member has acquired is nobody else's until its lock ends")
def locks_end_before_their_time(stack: ExitStack) -> None:
    def wrapper(due_alarms: Any) -> Any:
        return lambda self, now_ms: due_alarms(self, now_ms + 1_500)

    around(stack, SharePartition.due_alarms, wrapper)


@killed_by("tests/broker/share/test_portions.py")
@breaks("guarantees.md: A record that a member has acquired is nobody else's until its lock ends")
def what_others_change_while_a_request_is_decided_is_not_looked_at(stack: ExitStack) -> None:
    replaced(stack, _Portion.is_up_to_date, lambda self, machine: True)


@killed_by("tests/broker/share/test_logged.py")
@breaks("ARCHITECTURE.md: Restart = checkpoint + the same `apply`")
def what_others_change_while_a_snapshot_is_encoded_is_left_out(stack: ExitStack) -> None:
    replaced(stack, _Piece.has_changed, lambda self, machine: False)


@mutant
@breaks("settings.md: from the first that is not done to the last that was delivered")
def windows_have_no_limit(stack: ExitStack) -> None:
    around(stack, SharePartition.room, lambda room: lambda self, limit: room(self, 1_000_000))

"""The bank of bugs in the records of share groups that the simulation catches: who has one, and what an end decides.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

from fencepost.broker.share.acknowledging import Acknowledging
from fencepost.broker.share.logged import Encoding, _Piece
from fencepost.broker.share.machine import SharePartition
from fencepost.broker.share.memory import RUN_BYTES, RunMemory
from fencepost.broker.share.partitions import SharePartitions
from fencepost.broker.share.pending import PendingAcknowledgements
from fencepost.broker.share.portions import _Portion
from fencepost.broker.share.state_log import ShareStateLog
from fencepost.broker.share.values import SharePartitionKey
from fencepost.broker.transactions.ledger_log import Ledger
from simulation.planting import around, breaks, caught_with_queues, killed_by, replaced


def _settles(stack: ExitStack, as_what: Any) -> None:
    """Let the end of a transaction settle its records as as_what(is it a commit?) says: as a commit does, or as an
    abort; None leaves them pending.
    """

    def wrapper(settle: Any) -> Any:
        def settled(self: Any, transaction: Any, position: int, *, commit: bool) -> None:
            if (said := as_what(commit)) is not None:
                settle(self, transaction, position, commit=said)

        return settled

    around(stack, SharePartition.settle, wrapper)


@caught_with_queues(seed=1)
@breaks("guarantees.md: It is available again when the transaction aborts")
def an_abort_leaves_records_pending(stack: ExitStack) -> None:
    _settles(stack, lambda commit: commit or None)


@caught_with_queues(seed=1)
@breaks("guarantees.md: It is available again when the transaction aborts")
def an_abort_accepts_what_was_pending(stack: ExitStack) -> None:
    _settles(stack, lambda commit: True)


@caught_with_queues(seed=1)
@breaks("guarantees.md: A record is acknowledged if and only if the transaction commits")
def a_commit_gives_back_what_was_pending(stack: ExitStack) -> None:
    _settles(stack, lambda commit: False)


@caught_with_queues(seed=4)
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


@caught_with_queues(seed=2)
@breaks("guarantees.md: A record that a member has acquired is nobody else's until its lock ends")
def locks_end_before_their_time(stack: ExitStack) -> None:
    def wrapper(due_alarms: Any) -> Any:
        return lambda self, now_ms, max_runs: due_alarms(self, now_ms + 1_500, max_runs)

    around(stack, SharePartition.due_alarms, wrapper)


@killed_by("tests/broker/share/test_portions.py")
@breaks("guarantees.md: A record that a member has acquired is nobody else's until its lock ends")
def what_others_change_while_a_request_is_decided_is_not_looked_at(stack: ExitStack) -> None:
    replaced(stack, _Portion.is_up_to_date, lambda self, machine: True)


@killed_by("tests/broker/share/test_logged.py")
@breaks("ARCHITECTURE.md: Restart = checkpoint + the same `apply`")
def what_others_change_while_a_snapshot_is_encoded_is_left_out(stack: ExitStack) -> None:
    replaced(stack, _Piece.has_changed, lambda self, machine: False)


@killed_by("tests/broker/share/test_logged.py")
@breaks("ARCHITECTURE.md: Restart = checkpoint + the same `apply`")
def a_snapshot_that_is_being_encoded_goes_on_after_a_reset(stack: ExitStack) -> None:
    replaced(stack, Encoding._begin_again_if_offset_was_set, lambda self: None)


@killed_by("tests/broker/share/test_state_log_starts.py")
@breaks("formats.md: where the log begins later than that end, the log has it all, and the entry is not used")
def a_share_partition_is_as_a_snapshot_says_that_its_log_has_overtaken(stack: ExitStack) -> None:
    def wrapper(put_row: Any) -> Any:
        def put(self: ShareStateLog, row: Any) -> None:
            key, home, end, *rest = row
            put_row(self, (key, home, max(end, self._begins(home)), *rest))

        return put

    around(stack, ShareStateLog.put_row, wrapper)


@killed_by("tests/broker/share/test_state_log_starts.py")
@breaks("formats.md: a replay skips records of that share partition below")
def what_a_snapshot_knows_of_a_share_partition_is_replayed_again(stack: ExitStack) -> None:
    def wrapper(put_row: Any) -> Any:
        def put(self: ShareStateLog, row: Any) -> None:
            put_row(self, row)
            self._read_from.clear()

        return put

    around(stack, ShareStateLog.put_row, wrapper)


@killed_by("tests/broker/share/test_state_log_starts.py")
@breaks("formats.md: its logs begin later as snapshots make what is older superfluous")
def a_start_forgets_how_far_a_share_partition_lies_behind(stack: ExitStack) -> None:
    def wrapper(put_row: Any) -> Any:
        def put(self: ShareStateLog, row: Any) -> None:
            put_row(self, row)
            if row[0] in self.known:
                self.known[row[0]].snapshot_at = self._logged_bytes.get(row[1], 0)

        return put

    around(stack, ShareStateLog.put_row, wrapper)


@killed_by("tests/broker/share/test_state_log_size.py")
@breaks("formats.md: its logs begin later as snapshots make what is older superfluous")
def what_transactions_acknowledge_is_never_written_whole(stack: ExitStack) -> None:
    def wrapper(settlement: Any) -> Any:
        def settled(self: ShareStateLog, *of_what: Any) -> Any:
            made = settlement(self, *of_what)

            def apply(marker_offset: int) -> None:
                self._keep_short = lambda keys: None  # type: ignore[method-assign]
                made.apply(marker_offset)
                del self._keep_short

            return made._replace(apply=apply)

        return settled

    around(stack, ShareStateLog.settlement, wrapper)


@caught_with_queues(seed=5)
@breaks("settings.md: from the first that is not done to the last that was delivered")
def windows_have_no_limit(stack: ExitStack) -> None:
    around(stack, SharePartition.room, lambda room: lambda self, limit: room(self, 1_000_000))


@killed_by("tests/broker/share/test_memory.py")
@breaks("guarantees.md: keeps no other group waiting")
def a_group_full_of_runs_keeps_all_others_waiting(stack: ExitStack) -> None:
    replaced(stack, RunMemory.part_bytes, lambda self, key, max_bytes: -1)


@killed_by("tests/broker/share/test_memory.py")
@breaks("guarantees.md: none of its own partitions of which little is kept")
def a_partition_full_of_runs_keeps_all_of_its_group_waiting(stack: ExitStack) -> None:
    def part_bytes(self: RunMemory, key: SharePartitionKey, max_bytes: int) -> int:
        of_group = sum(runs for each, runs in self._counted.items() if each.group == key.group)
        return max_bytes // max(1, len(self._of_group)) - of_group * RUN_BYTES

    replaced(stack, RunMemory.part_bytes, part_bytes)


@killed_by("tests/broker/handlers/test_share_transactions.py")
@breaks("guarantees.md: Whatever a transaction has pending, it can be ended")
def a_transaction_has_more_pending_than_its_end_can_archive(stack: ExitStack) -> None:
    replaced(stack, PendingAcknowledgements.bytes_of, lambda self, producer_id: 0)


@killed_by("tests/broker/handlers/test_share_transactions.py")
@breaks("guarantees.md: Whatever a transaction has pending, it can be ended")
def a_prepare_does_not_count_what_waits_under_its_ledger_key(stack: ExitStack) -> None:
    around(stack, Ledger.prepare, lambda prepare: lambda self, request, check=None: prepare(self, request))


@killed_by("tests/broker/handlers/test_share_transactions.py")
@breaks("guarantees.md: A record is acknowledged if and only if the transaction commits")
def a_commit_archives_records_at_their_delivery_limit(stack: ExitStack) -> None:
    def wrapper(settle: Any) -> Any:
        def settled(self: SharePartitions, home: int, producer_id: int, commit: bool) -> Any:
            transaction, state_log = (home, producer_id), self.state_log
            archived = []
            for key in state_log.pending_in(transaction):
                update = state_log.known[key].machine.decide_abort(transaction, self._delivery_limit(key.group))
                archived += [] if update is None else [(key, update)]
            made = state_log.settlement(home, producer_id, commit, archived)
            with mock.patch.object(state_log, "settlement", return_value=made):
                return settle(self, home, producer_id, commit)

        return settled

    around(stack, SharePartitions.settle, wrapper)


@killed_by("tests/broker/share/test_partitions.py")
@breaks("ARCHITECTURE.md: Restart = checkpoint + the same `apply`")
def acknowledgements_apply_to_a_share_partition_that_was_recreated(stack: ExitStack) -> None:
    def wrapper(portions_of: Any) -> Any:
        return lambda self, key: self._portions.get(key) or portions_of(self, key)

    around(stack, Acknowledging._portions_of, wrapper)

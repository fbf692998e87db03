"""The bank of bugs, for what the SDK loses, and for what it says of it: each names the test file that catches it.

Records of clients that nobody closed, commits of what was not worked on, transactions that stay open, and errors and
waits without their reason.
"""

from contextlib import ExitStack, nullcontext
from typing import Any

from fencepost.client import unclosed
from fencepost.client.admin.held_offsets import HeldOffsetsAdmin
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.consumer.positions import Positions
from fencepost.client.consumer.reading import Reading
from fencepost.client.errors import error_of
from fencepost.client.group.commits import GroupCommits
from fencepost.client.group.heartbeat import HeartbeatTask
from fencepost.client.group.offsets import GroupOffsets
from fencepost.client.group.subscription import PartitionState
from fencepost.client.net import cluster
from fencepost.client.net.cluster import Cluster
from fencepost.client.producer import sender
from fencepost.client.producer.ending import ProducerParts
from fencepost.client.producer.failures import Failures
from fencepost.client.producer.send_permission import PlainPermission
from fencepost.client.producer.sender import Sender
from fencepost.client.transactions import driver
from fencepost.client.transactions.adding_partitions import AddingPartitions
from fencepost.client.transactions.driver import TransactionDriver
from simulation.code_mutants import _edited, killed_by
from simulation.mutants import _around, _replaced

# ---- clients that nobody closed ---------------------------------------------------------------------------------


@killed_by("tests/client/producer/test_ending.py")
def sdk_nothing_is_said_of_records_that_a_close_drops(stack: ExitStack) -> None:
    _edited(stack, Failures, "drop_all", "if left:", "if False:")


@killed_by("tests/client/producer/test_ending.py")
def sdk_what_may_have_been_written_is_said_to_be_lost(stack: ExitStack) -> None:
    _edited(stack, Failures, "drop_all", " if batch.maybe_written", " if False")


@killed_by("tests/client/producer/test_ending.py")
def sdk_nothing_is_said_of_records_that_fail_after_a_collection(stack: ExitStack) -> None:
    _edited(stack, Failures, "fail", "if silent and", "if False and")


@killed_by("tests/client/producer/test_ending.py")
def sdk_a_producer_that_is_collected_sends_nothing(stack: ExitStack) -> None:
    _replaced(stack, unclosed.Parts, "end_unheld", lambda self, timeout_ms: None)


@killed_by("tests/client/producer/test_ending.py")
def sdk_one_that_is_collected_sends_only_what_is_due(stack: ExitStack) -> None:
    """And what lingers is never due, if its program ends."""
    _edited(stack, Sender, "flush", "accumulator.hurried += 1", "pass")


@killed_by("tests/client/test_exit.py")
def sdk_a_client_is_not_noted_for_the_exit(stack: ExitStack) -> None:
    _edited(stack, unclosed.Parts, "begin", "atexit.register(_end_all)", "pass")


@killed_by("tests/client/test_exit.py")
def sdk_nothing_is_sent_at_the_exit(stack: ExitStack) -> None:
    _replaced(stack, unclosed.Parts, "end_elsewhere", lambda self, timeout_ms: None)


@killed_by("tests/client/test_exit.py")
def sdk_nothing_is_said_of_what_the_exit_loses(stack: ExitStack) -> None:
    _edited(stack, unclosed.Parts, "abandon_once", "self.abandon()", "pass")


@killed_by("tests/client/test_exit.py")
def sdk_what_the_exit_loses_is_said_twice(stack: ExitStack) -> None:
    _edited(stack, unclosed.Parts, "abandon_once", "self._is_open = False", "pass")


@killed_by("tests/client/test_exit.py")
def sdk_an_open_transaction_at_the_exit_is_not_named(stack: ExitStack) -> None:
    _edited(stack, ProducerParts, "abandon", "if self._driver is not None and", "if False and")


# ---- what is committed ------------------------------------------------------------------------------------------


@killed_by("tests/client/consumer/test_automatic_commits.py")
def sdk_an_automatic_commit_covers_a_batch_whose_block_raised(stack: ExitStack) -> None:
    _replaced(stack, GroupCommits, "_finished", lambda self: self._subscription.positions())


@killed_by("tests/client/consumer/test_automatic_commits.py")
def sdk_a_block_that_raised_ends_like_any_other(stack: ExitStack) -> None:
    _edited(stack, Consumer, "__aexit__", "self._close_after(error)", "self._close_after(None)")


@killed_by("tests/client/consumer/test_automatic_commits.py")
def sdk_nothing_is_said_of_what_an_automatic_commit_leaves_out(stack: ExitStack) -> None:
    _edited(stack, GroupCommits, "close", "if unfinished and", "if False and")


@killed_by("tests/client/consumer/test_automatic_commits.py")
def sdk_who_asks_for_more_has_not_worked_on_what_came_before(stack: ExitStack) -> None:
    _edited(stack, Reading, "note_asked", "self._unfinished = {}", "pass")


@killed_by("tests/client/consumer/test_automatic_commits.py")
def sdk_what_a_block_committed_before_it_raised_is_taken_back(stack: ExitStack) -> None:
    _edited(stack, Reading, "note_committed", "for state in [*self._unfinished]:", "for state in ():")


@killed_by("tests/client/consumer/test_what_is_committed.py")
def sdk_commits_are_sent_beside_each_other(stack: ExitStack) -> None:
    """One that is sent again undoes a later one."""

    def wrapper(make: Any) -> Any:
        def made(self: Any, *given: Any) -> None:
            make(self, *given)
            self._commit_lock = nullcontext()

        return made

    _around(stack, GroupOffsets, "__init__", wrapper)


@killed_by("tests/client/consumer/test_what_is_committed.py")
def sdk_a_commit_before_a_seek_counts_after_it(stack: ExitStack) -> None:
    _edited(stack, GroupCommits, "commit", "if state.jumps == jumps:", "if True:")


@killed_by("tests/client/consumer/test_what_is_committed.py")
def sdk_what_was_read_before_hidden_records_is_taken_for_committed(stack: ExitStack) -> None:
    _edited(stack, PartitionState, "note_nothing_given", "if since <= self.committed_below:", "if True:")


# ---- transactions that stay open --------------------------------------------------------------------------------


@killed_by("tests/client/transactions/test_aborts_owed.py")
def sdk_an_abort_that_failed_is_not_owed(stack: ExitStack) -> None:
    _edited(stack, TransactionDriver, "abort", "self._owes_abort = True", "pass")


@killed_by("tests/client/transactions/test_aborts_owed.py")
def sdk_an_abort_after_a_cancelled_commit_is_not_owed(stack: ExitStack) -> None:
    _edited(stack, TransactionDriver, "_run_end", "self._owes_abort = True", "pass")


@killed_by("tests/client/transactions/test_aborts_owed.py")
def sdk_a_close_does_not_abort_what_has_failed(stack: ExitStack) -> None:
    _edited(stack, TransactionDriver, "close", " or self.machine.state is State.ABORTABLE_ERROR:", ":")


@killed_by("tests/client/transactions/test_aborts_owed.py")
def sdk_a_cancelled_commit_does_not_abort_what_has_failed(stack: ExitStack) -> None:
    _edited(stack, TransactionDriver, "_run_end", "(State.FLUSHING, State.ABORTABLE_ERROR)", "(State.FLUSHING,)")


# ---- errors without their reason --------------------------------------------------------------------------------


@killed_by("tests/client/test_broker_words.py")
def sdk_a_delivery_that_times_out_forgets_why(stack: ExitStack) -> None:
    _replaced(stack, Sender, "_why_late", lambda self, batch: None)


@killed_by("tests/client/test_broker_words.py")
def sdk_a_full_buffer_does_not_say_why(stack: ExitStack) -> None:
    _replaced(stack, Sender, "why_full", lambda self: None)


@killed_by("tests/client/test_broker_words.py")
def sdk_what_the_broker_says_of_records_is_dropped(stack: ExitStack) -> None:
    _replaced(stack, sender, "words_of_answer", lambda answer, code: None)


@killed_by("tests/client/test_broker_words.py")
def sdk_nobody_notes_why_there_is_no_producer_id(stack: ExitStack) -> None:
    _replaced(stack, PlainPermission, "_note", lambda self, error: None)


@killed_by("tests/client/test_broker_words.py")
def sdk_nobody_notes_why_partitions_are_not_added(stack: ExitStack) -> None:
    _edited(
        stack,
        AddingPartitions,
        "_add",
        'self.refusal = error_of(code, f"AddPartitionsToTxn: {error_of(code)}")',
        "pass",
    )


@killed_by("tests/client/test_broker_words.py")
def sdk_a_commit_of_unknown_outcome_forgets_the_last_answer(stack: ExitStack) -> None:
    _edited(stack, TransactionDriver, "_end", "self._unanswered = error.with_traceback(None)", "pass")


@killed_by("tests/client/test_broker_words.py")
def sdk_a_timeout_forgets_the_words_of_the_broker(stack: ExitStack) -> None:
    _replaced(stack, cluster, "words_of", lambda response, code: "")


@killed_by("tests/client/test_broker_words.py")
def sdk_a_topic_is_missed_as_if_nobody_had_made_it(stack: ExitStack) -> None:
    _edited(stack, Cluster, "_missing", "if code is None or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:", "if True:")


@killed_by("tests/client/test_broker_words.py")
def sdk_offsets_that_are_refused_name_no_partition(stack: ExitStack) -> None:
    _replaced(stack, driver, "refused", lambda codes, code: error_of(code))


@killed_by("tests/client/test_broker_words.py")
def sdk_a_commit_that_times_out_names_no_partition(stack: ExitStack) -> None:
    _edited(stack, GroupOffsets, "_ask_until", "if error_for is not None and", "if False and")


# ---- waits without their reason ---------------------------------------------------------------------------------


@killed_by("tests/client/consumer/test_held_offsets.py")
def sdk_a_consumer_waits_for_held_offsets_in_silence(stack: ExitStack) -> None:
    _edited(stack, Positions, "_note_unstable", "if text is not None and", "if False and")


@killed_by("tests/client/consumer/test_held_offsets.py")
def sdk_held_offsets_are_warned_of_at_each_look(stack: ExitStack) -> None:
    _edited(stack, Positions, "_note_unstable", "now_ms - self._warned_ms >= WARN_EVERY_MS", "True")


@killed_by("tests/client/consumer/test_held_offsets.py")
def sdk_a_wait_for_held_offsets_is_not_in_the_state(stack: ExitStack) -> None:
    _replaced(stack, PartitionState, "unstable_ms", lambda self, now_ms: 0)


@killed_by("tests/client/consumer/test_held_offsets.py")
def sdk_a_time_out_over_held_offsets_does_not_name_them(stack: ExitStack) -> None:
    _edited(stack, Consumer, "_late", "text if why is None else", "text if True else")


@killed_by("tests/client/group/test_consumer_group.py")
def sdk_a_dead_predecessor_s_instance_id_is_not_waited_for(stack: ExitStack) -> None:
    _edited(stack, HeartbeatTask, "_wait_for_release", "if now_ms - since_ms < RELEASE_MS:", "if False:")


@killed_by("tests/client/group/test_consumer_group.py")
def sdk_an_instance_id_of_another_member_is_waited_for_for_ever(stack: ExitStack) -> None:
    _edited(stack, HeartbeatTask, "_wait_for_release", "if now_ms - since_ms < RELEASE_MS:", "if True:")


@killed_by("tests/client/net/test_cluster.py")
def sdk_a_start_waits_no_longer_than_without_a_setting(stack: ExitStack) -> None:
    _edited(stack, Cluster, "start", "self.settings.start_timeout_ms or usual_ms", "usual_ms")


@killed_by("tests/cli/txn/test_held_offsets.py")
def sdk_held_offsets_are_looked_for_in_another_partition(stack: ExitStack) -> None:
    _edited(stack, HeldOffsetsAdmin, "find_held_offsets", "partition_for(name, len(topic.partitions))", "0")

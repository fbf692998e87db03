"""The bank of bugs, for what the SDK loses, and for what it says of it: each names the test file that catches it.

Records of clients that nobody closed, commits of what was not worked on, transactions that stay open, and errors and
waits without their reason.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack, nullcontext
from typing import Any
from unittest import mock

from fencepost.client import partitioner, unclosed
from fencepost.client.admin import held_offsets
from fencepost.client.consumer import positions
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.consumer.reading import Reading
from fencepost.client.errors import RequestTimedOutError, UnknownTopicError, error_of
from fencepost.client.group import commits, heartbeat
from fencepost.client.group.commits import GroupCommits
from fencepost.client.group.offsets import GroupOffsets
from fencepost.client.group.subscription import PartitionState
from fencepost.client.net import cluster
from fencepost.client.net.cluster import Cluster
from fencepost.client.producer import ending, failures, sender
from fencepost.client.producer.batching import Accumulator, Batch
from fencepost.client.producer.ending import ProducerParts
from fencepost.client.producer.failures import Failures
from fencepost.client.producer.send_permission import PlainPermission
from fencepost.client.producer.sender import Sender
from fencepost.client.serialization import Serializers
from fencepost.client.transactions import writes
from fencepost.client.transactions.adding_partitions import AddingPartitions
from fencepost.client.transactions.driver import TransactionDriver
from fencepost.client.transactions.table import State
from simulation.planting import _replaced, around, breaks, killed_by, replaced


def _silenced(stack: ExitStack, module: Any) -> None:
    """Drop whatever this module logs."""
    _replaced(stack, module, "log", mock.Mock())


def _always(value: Any) -> property:
    """Return an attribute that keeps this value, whatever is assigned."""
    return property(lambda self: value, lambda self, assigned: None)


def _set(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Patch an attribute that instances have, and their class has not."""
    stack.enter_context(mock.patch.object(owner, name, value, create=True))


def _owing_nothing(end: Any) -> Any:
    async def ended(self: Any, *given: Any, **more: Any) -> None:
        try:
            await end(self, *given, **more)
        finally:
            self._owes_abort = False

    return ended


async def _nothing(self: Any, **more: Any) -> None:
    pass


# ---- clients that nobody closed ---------------------------------------------------------------------------------


@killed_by("tests/client/producer/test_ending.py")
@breaks("sdk.md: the rest is dropped, and logged by number and partition")
def sdk_nothing_is_said_of_records_that_a_close_drops(stack: ExitStack) -> None:
    _silenced(stack, failures)


@killed_by("tests/client/producer/test_ending.py")
@breaks("sdk.md: the rest is dropped, and logged by number and partition")
def sdk_what_may_have_been_written_is_said_to_be_lost(stack: ExitStack) -> None:
    def wrapper(drop_all: Any) -> Any:
        def dropped(self: Any, error: Any) -> None:
            with mock.patch.object(Batch, "maybe_written", False):
                drop_all(self, error)

        return dropped

    around(stack, Failures.drop_all, wrapper)


@killed_by("tests/client/producer/test_ending.py")
@breaks("sdk.md: as with `close()`, in the background")
def sdk_a_producer_that_is_collected_sends_nothing(stack: ExitStack) -> None:
    replaced(stack, unclosed.Parts.end_unheld, lambda self, timeout_ms: None)


@killed_by("tests/client/producer/test_ending.py")
@breaks("sdk.md: as with `close()`, in the background")
def sdk_one_that_is_collected_sends_only_what_is_due(stack: ExitStack) -> None:
    """Lingering records of a garbage-collected producer are not due yet, and are lost if the program ends first."""
    _set(stack, Accumulator, "hurried", _always(0))


@killed_by("tests/client/test_exit.py")
@breaks("sdk.md: as with `close()`, in 5 seconds for all clients together")
def sdk_a_client_is_not_noted_for_the_exit(stack: ExitStack) -> None:
    def wrapper(begin: Any) -> Any:
        def begun(self: Any) -> None:
            begin(self)
            unclosed.atexit.unregister(unclosed._end_all)

        return begun

    around(stack, unclosed.Parts.begin, wrapper)


@killed_by("tests/client/test_exit.py")
@breaks("sdk.md: as with `close()`, in 5 seconds for all clients together")
def sdk_nothing_is_sent_at_the_exit(stack: ExitStack) -> None:
    replaced(stack, unclosed.Parts.end_elsewhere, lambda self, timeout_ms: None)


@killed_by("tests/client/test_exit.py")
@breaks("sdk.md: nothing can be sent any more: dropped and logged")
def sdk_nothing_is_said_of_what_the_exit_loses(stack: ExitStack) -> None:
    replaced(stack, ProducerParts.abandon, lambda self: None)


@killed_by("tests/client/test_exit.py")
@breaks("sdk.md: nothing can be sent any more: dropped and logged")
def sdk_what_the_exit_loses_is_said_twice(stack: ExitStack) -> None:
    def wrapper(abandon_once: Any) -> Any:
        def abandoned(self: Any) -> None:
            is_open = self._is_open
            abandon_once(self)
            self._is_open = is_open

        return abandoned

    around(stack, unclosed.Parts.abandon_once, wrapper)


@killed_by("tests/client/test_exit.py")
@breaks("sdk.md: aborted by the broker after `transaction_timeout_ms`, and named in the log")
def sdk_an_open_transaction_at_the_exit_is_not_named(stack: ExitStack) -> None:
    _silenced(stack, ending)


# ---- what is committed ------------------------------------------------------------------------------------------


@killed_by("tests/client/consumer/test_automatic_commits.py")
@breaks("sdk.md: commits everything but what was returned last")
def sdk_an_automatic_commit_covers_a_batch_whose_block_raised(stack: ExitStack) -> None:
    replaced(stack, GroupCommits._finished, lambda self: self._subscription.positions())


@killed_by("tests/client/consumer/test_automatic_commits.py")
@breaks("sdk.md: commits everything but what was returned last")
def sdk_a_block_that_raised_ends_like_any_other(stack: ExitStack) -> None:
    def wrapper(close_after: Any) -> Any:
        return lambda self, error, *given: close_after(self, None, *given)

    around(stack, Consumer._close_after, wrapper)


@killed_by("tests/client/consumer/test_automatic_commits.py")
@breaks("sdk.md: commits everything but what was returned last")
def sdk_nothing_is_said_of_what_an_automatic_commit_leaves_out(stack: ExitStack) -> None:
    _silenced(stack, commits)


@killed_by("tests/client/consumer/test_automatic_commits.py")
@breaks("sdk.md: A block that was waiting for more had done it all")
def sdk_who_asks_for_more_has_not_worked_on_what_came_before(stack: ExitStack) -> None:
    replaced(stack, Reading.note_asked, lambda self: self.settle())


@killed_by("tests/client/consumer/test_automatic_commits.py")
@breaks("sdk.md: commits everything but what was returned last")
def sdk_what_a_block_committed_before_it_raised_is_taken_back(stack: ExitStack) -> None:
    def wrapper(note_committed: Any) -> Any:
        def noted(self: Any, offsets: Any) -> None:
            before = dict(self._unfinished)
            note_committed(self, offsets)
            self._unfinished = before

        return noted

    around(stack, Reading.note_committed, wrapper)


@killed_by("tests/client/consumer/test_what_is_committed.py")
@breaks("guarantees.md: high watermark, last stable offset or committed offset going back")
def sdk_commits_are_sent_beside_each_other(stack: ExitStack) -> None:
    """A commit that is sent again undoes a later one."""

    def wrapper(make: Any) -> Any:
        def made(self: Any, *given: Any) -> None:
            make(self, *given)
            self._commit_lock = nullcontext()

        return made

    around(stack, GroupOffsets.__init__, wrapper)


@killed_by("tests/client/consumer/test_what_is_committed.py")
@breaks("guarantees.md: lost write: acknowledged, never read")
def sdk_a_commit_before_a_seek_counts_after_it(stack: ExitStack) -> None:
    _replaced(stack, PartitionState, "jumps", _always(0))


@killed_by("tests/client/consumer/test_what_is_committed.py")
@breaks("sdk.md: After an abort all of it is read again")
def sdk_what_was_read_before_hidden_records_is_taken_for_committed(stack: ExitStack) -> None:
    replaced(stack, PartitionState.note_nothing_given, lambda self, since: self.note_committed(self.position))


# ---- transactions that stay open --------------------------------------------------------------------------------


@killed_by("tests/client/transactions/test_aborts_owed.py")
@breaks("sdk.md: abort an open transaction")
def sdk_an_abort_that_failed_is_not_owed(stack: ExitStack) -> None:
    around(stack, TransactionDriver.abort, _owing_nothing)


@killed_by("tests/client/transactions/test_aborts_owed.py")
@breaks("sdk.md: before its commit was sent is aborted")
def sdk_an_abort_after_a_cancelled_commit_is_not_owed(stack: ExitStack) -> None:
    around(stack, TransactionDriver.commit, _owing_nothing)


@killed_by("tests/client/transactions/test_aborts_owed.py")
@breaks("sdk.md: abort an open transaction")
def sdk_a_close_does_not_abort_what_has_failed(stack: ExitStack) -> None:
    def wrapper(close: Any) -> Any:
        async def closed(self: Any, *given: Any) -> None:
            if self.machine.state is State.ABORTABLE_ERROR:
                with mock.patch.object(TransactionDriver, "abort", _nothing):
                    await close(self, *given)
            else:
                await close(self, *given)

        return closed

    around(stack, TransactionDriver.close, wrapper)


# ---- errors without their reason --------------------------------------------------------------------------------


@killed_by("tests/client/test_broker_words.py")
@breaks("sdk.md: the error names the last refusal")
def sdk_a_delivery_that_times_out_forgets_why(stack: ExitStack) -> None:
    replaced(stack, Sender._why_late, lambda self, batch: None)


@killed_by("tests/client/test_broker_words.py")
@breaks("sdk.md: the error names the last refusal")
def sdk_a_full_buffer_does_not_say_why(stack: ExitStack) -> None:
    replaced(stack, Sender.why_full, lambda self: None)


@killed_by("tests/client/test_broker_words.py")
@breaks("sdk.md: The broker's own words are kept")
def sdk_what_the_broker_says_of_records_is_dropped(stack: ExitStack) -> None:
    _replaced(stack, sender, "words_of_answer", lambda answer, code: None)


@killed_by("tests/client/test_broker_words.py")
@breaks("sdk.md: the error names the last refusal")
def sdk_nobody_notes_why_there_is_no_producer_id(stack: ExitStack) -> None:
    replaced(stack, PlainPermission._note, lambda self, error: None)


@killed_by("tests/client/test_broker_words.py")
@breaks("sdk.md: the error names the last refusal")
def sdk_nobody_notes_why_partitions_are_not_added(stack: ExitStack) -> None:
    _set(stack, AddingPartitions, "refusal", _always(None))


@killed_by("tests/client/test_broker_words.py")
@breaks("sdk.md: the error names the last refusal")
def sdk_a_commit_of_unknown_outcome_forgets_the_last_answer(stack: ExitStack) -> None:
    _set(stack, TransactionDriver, "_unanswered", _always(None))


@killed_by("tests/client/test_broker_words.py")
@breaks("sdk.md: The broker's own words are kept")
def sdk_a_timeout_forgets_the_words_of_the_broker(stack: ExitStack) -> None:
    _replaced(stack, cluster, "words_of", lambda response, code: "")


@killed_by("tests/client/test_broker_words.py")
@breaks("sdk.md: The broker's own words are kept")
def sdk_a_topic_is_missed_as_if_nobody_had_made_it(stack: ExitStack) -> None:
    def missing(self: Any, topic: str, waited: str) -> UnknownTopicError:
        return UnknownTopicError(f"there is no topic {topic!r}, and it did not appear within {waited}")

    replaced(stack, Cluster._missing, missing)


@killed_by("tests/client/test_broker_words.py")
@breaks("sdk.md: The broker's own words are kept")
def sdk_offsets_that_are_refused_name_no_partition(stack: ExitStack) -> None:
    _replaced(stack, writes, "refused", lambda codes, code: error_of(code))


@killed_by("tests/client/test_broker_words.py")
@breaks("sdk.md: the error names the last refusal")
def sdk_a_commit_that_times_out_names_no_partition(stack: ExitStack) -> None:
    def wrapper(ask_until: Any) -> Any:
        return lambda self, *given, **more: ask_until(self, *given, **more | {"error_for": None})

    around(stack, GroupOffsets._ask_until, wrapper)


# ---- waits without their reason ---------------------------------------------------------------------------------


@killed_by("tests/client/consumer/test_held_offsets.py")
@breaks("sdk.md: after 5 seconds, and then once in a minute, it logs the group")
def sdk_a_consumer_waits_for_held_offsets_in_silence(stack: ExitStack) -> None:
    _silenced(stack, positions)


@killed_by("tests/client/consumer/test_held_offsets.py")
@breaks("sdk.md: after 5 seconds, and then once in a minute, it logs the group")
def sdk_held_offsets_are_warned_of_at_each_look(stack: ExitStack) -> None:
    _replaced(stack, positions, "WARN_EVERY_MS", 0)


@killed_by("tests/client/consumer/test_held_offsets.py")
@breaks("sdk.md: unstable_ms` is how long it has waited")
def sdk_a_wait_for_held_offsets_is_not_in_the_state(stack: ExitStack) -> None:
    replaced(stack, PartitionState.unstable_ms, lambda self, now_ms: 0)


@killed_by("tests/client/consumer/test_held_offsets.py")
@breaks("sdk.md: after 5 seconds, and then once in a minute, it logs the group")
def sdk_a_time_out_over_held_offsets_does_not_name_them(stack: ExitStack) -> None:
    replaced(stack, Consumer._late, lambda self, text: RequestTimedOutError(text))


@killed_by("tests/client/group/test_consumer_group.py")
@breaks("sdk.md: waits until the broker has ended that one's session")
def sdk_a_dead_predecessor_s_instance_id_is_not_waited_for(stack: ExitStack) -> None:
    _replaced(stack, heartbeat, "RELEASE_MS", 0)


@killed_by("tests/client/group/test_consumer_group.py")
@breaks("sdk.md: waits until the broker has ended that one's session")
def sdk_an_instance_id_of_another_member_is_waited_for_for_ever(stack: ExitStack) -> None:
    _replaced(stack, heartbeat, "RELEASE_MS", 1 << 60)


@killed_by("tests/cli/txn/test_held_offsets.py")
@breaks("sdk.md: which names the transaction")
def sdk_held_offsets_are_looked_for_in_another_partition(stack: ExitStack) -> None:
    _replaced(stack, held_offsets, "partition_for", lambda name, count: 0)


# ---- producers -----------------------------------------------------------------------------------------------


@killed_by("tests/client/test_serialization.py")
@breaks("sdk.md: Headers that a serializer adds are sent")
def sdk_what_a_serializer_adds_to_headers_is_not_sent(stack: ExitStack) -> None:
    def wrapper(call: Any) -> Any:
        return lambda self, topic, key, value, headers: (*call(self, topic, key, value, headers)[:2], headers)

    around(stack, Serializers.__call__, wrapper)


@killed_by("tests/client/test_partitioner.py")
@breaks("sdk.md: with its results: `murmur2_random`")
def sdk_keys_go_where_no_other_client_sends_them(stack: ExitStack) -> None:
    around(stack, partitioner.murmur2, lambda murmur2: lambda key: murmur2(key) ^ 1)

"""The bank of bugs, for the SDK where its tests enumerate what a simulation meets seldom: each names its test file.
A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

import asyncio
from contextlib import ExitStack
from math import inf
from typing import Any
from unittest import mock

from fencepost.client import config_names
from fencepost.client.consumer import list_offsets
from fencepost.client.consumer.batches import Batch
from fencepost.client.consumer.fetcher import Fetcher
from fencepost.client.consumer.reading import Reading
from fencepost.client.group import offsets
from fencepost.client.group.commits import GroupCommits
from fencepost.client.group.group import Group
from fencepost.client.group.membership import Membership
from fencepost.client.group.subscription import PartitionState, Rewinds, Subscription
from fencepost.client.producer.pool import ProducerPool, _SlotProducer
from fencepost.client.producer.sequences import Sequences
from fencepost.client.producer.slots import Slots
from fencepost.client.records.fetched import Fetched
from fencepost.client.sync.loop_thread import _Running
from fencepost.client.transactions.answers import Verdict
from fencepost.client.transactions.driver import TransactionDriver
from fencepost.client.transactions.machine import ClientTransaction, fenced
from fencepost.client.transactions.table import State
from simulation.planting import _replaced, around, breaks, killed_by, replaced

# ---- batches and transactions --------------------------------------------------------------------------------


@killed_by("tests/client/consumer/test_batch_once.py")
@breaks("sdk.md: another producer cannot begin one with a batch of the same partitions")
def sdk_two_transactions_work_on_one_partition(stack: ExitStack) -> None:
    """One commits and the other does not: records come twice, or are passed over."""

    def wrapper(check: Any) -> Any:
        def unclaimed(self: Any, state: Any, by: Any) -> None:
            state.claimed_by = None
            check(self, state, by)

        return unclaimed

    around(stack, Batch._check_order, wrapper)


@killed_by("tests/client/consumer/test_batch_once.py")
@breaks("sdk.md: a transaction already committed this batch")
def sdk_what_became_of_a_batch_is_forgotten(stack: ExitStack) -> None:
    """After a time-out, a batch is committed again."""

    def check(self: Any, by: Any) -> None:
        self._claimed_by = None

    replaced(stack, Batch._check_outcome, check)


@killed_by("tests/client/consumer/test_batch_once.py")
@breaks("guarantees.md: high watermark, last stable offset or committed offset going back")
def sdk_a_batch_takes_committed_offsets_back(stack: ExitStack) -> None:
    def committed(self: Any) -> None:
        self._release()
        self._settled(self)

    replaced(stack, Batch.committed, committed)


@killed_by("tests/client/consumer/test_batch_once.py")
@breaks("sdk.md: another producer cannot begin one with a batch of the same partitions")
def sdk_a_partition_comes_back_by_hand_in_mid_transaction(stack: ExitStack) -> None:
    """assign() gives back a partition that a transaction uses: a second one gets its records, too, and both commit."""

    def assign(self: Any, partitions: Any) -> None:
        self.manual = True
        self._set(partitions)

    replaced(stack, Subscription.assign, assign)


@killed_by("tests/client/consumer/test_batch_once.py")
@breaks("sdk.md: a transaction already committed this batch")
def sdk_a_batch_is_committed_though_it_comes_again(stack: ExitStack) -> None:
    replaced(stack, Batch._was_assigned_manually, False)


@killed_by("tests/client/consumer/test_batch_again.py")
@breaks("sdk.md: `enable_auto_commit` cannot be combined with transactions")
def sdk_offsets_are_committed_by_two(stack: ExitStack) -> None:
    """The consumer commits them itself as well, whatever becomes of the transaction."""

    def wrapper(make: Any) -> Any:
        return lambda self, *given, **more: make(self, *given, **(more | {"commits_itself": False}))

    around(stack, Batch.__init__, wrapper)


@killed_by("tests/client/consumer/test_offsets_of_consumer.py")
@breaks("sdk.md: everything that it has returned since the last commit")
def sdk_offsets_of_a_consumer_are_those_of_its_last_batch(stack: ExitStack) -> None:
    """After an abort, the records of partitions that only earlier batches had are not read again."""

    def wrapper(make: Any) -> Any:
        def batch(self: Any, taken: Any, group: Any) -> Any:
            self.last = make(self, taken, group)
            return self.last

        return batch

    around(stack, Reading.batch, wrapper)


@killed_by("tests/client/consumer/test_offsets_of_consumer.py")
@breaks("sdk.md: everything that it has returned since the last commit")
def sdk_a_position_that_is_looked_up_is_committed(stack: ExitStack) -> None:
    """A partition whose position is not known yet is committed at -1: the group begins anew there."""

    def last_batch(self: Any) -> Any:
        firsts = {state: given.first for state, given in self._since.items()}
        return self._make_batch((), firsts, self._since_group, firsts)

    replaced(stack, Reading.last_batch, last_batch)


@killed_by("tests/client/consumer/test_offsets_of_consumer.py")
@breaks("sdk.md: After an abort all of it is read again")
def sdk_what_was_committed_by_number_comes_again(stack: ExitStack) -> None:
    def wrapper(roll_back: Any) -> Any:
        return lambda self, offset, asks=False: roll_back(self, offset)

    around(stack, PartitionState.roll_back, wrapper)


@killed_by("tests/client/consumer/test_offsets_of_consumer.py")
@breaks("sdk.md: After an abort all of it is read again")
def sdk_a_commit_of_the_consumer_does_not_settle_what_it_gave(stack: ExitStack) -> None:
    replaced(stack, Reading.note_committed, lambda self, offsets: None)


@killed_by("tests/client/producer/test_pool.py")
@breaks("sdk.md: After a commit without an answer the slot first finds out its outcome")
def sdk_a_pool_begins_without_asking_what_its_last_commit_became(stack: ExitStack) -> None:
    """The transaction may be taken for aborted though it was committed."""

    async def can_begin(self: Any) -> bool:
        machine = self._driver.machine
        if machine.state is State.UNKNOWN_OUTCOME:
            machine.state, machine.maybe_ended = State.ABORTABLE_ERROR, False
            self._driver._owes_abort = True
        return bool(self.goes_on)

    replaced(stack, _SlotProducer.can_begin, can_begin)


@killed_by("tests/client/test_odd_answers.py")
@breaks("guarantees.md: lost write: acknowledged, never read")
def sdk_minus_one_is_taken_for_the_end_of_a_log(stack: ExitStack) -> None:
    """The answer -1 of ListOffsets (no such offset) is taken for an offset, and the broker is not asked again."""
    _replaced(stack, list_offsets, "EARLIEST", None)
    _replaced(stack, list_offsets, "LATEST", None)


@killed_by("tests/client/producer/test_forgotten_ids.py")
@breaks("guarantees.md: InitProducerId again")
def sdk_a_forgotten_id_is_taken_for_a_fence(stack: ExitStack) -> None:
    def wrapper(refuse: Any) -> Any:
        def refused(self: Any, verdict: Any, error: Any) -> None:
            refuse(self, verdict, fenced("unknown") if verdict is Verdict.FENCED else error)

        return refused

    around(stack, ClientTransaction.refused_write, wrapper)


# ---- what goes on after its end ------------------------------------------------------------------------------


@killed_by("tests/client/sync/test_interrupted.py")
@breaks("sdk.md: as with `close()`, in 5 seconds for all clients together")
def sdk_a_blocking_call_that_is_interrupted_at_once_never_runs(stack: ExitStack) -> None:
    replaced(stack, _Running.cancel, lambda self: self._task.cancel())


@killed_by("tests/client/test_closing.py")
@breaks("sdk.md: leave the group")
def sdk_a_consumer_that_is_closed_in_no_time_keeps_its_heart(stack: ExitStack) -> None:
    def wrapper(close: Any) -> Any:
        async def closed(self: Any, timeout_ms: float = 5_000, unfinished: Any = None) -> None:
            await asyncio.sleep(0)
            await close(self, timeout_ms, unfinished)

        return closed

    around(stack, Group.close, wrapper)


# ---- the pool ------------------------------------------------------------------------------------------------


@killed_by("tests/client/producer/test_pool.py")
@breaks("sdk.md: The newest wins: this pool begins no more transactions")
def sdk_a_second_start_fences_the_pools_own_producers(stack: ExitStack) -> None:
    def wrapper(start: Any) -> Any:
        async def started(self: Any) -> None:
            self._started = False
            await start(self)

        return started

    around(stack, ProducerPool.start, wrapper)


@killed_by("tests/client/producer/test_pool.py")
@breaks("guarantees.md: lost write: acknowledged, never read")
def sdk_a_batch_for_which_no_slot_came_free_is_passed_over(stack: ExitStack) -> None:
    def wrapper(begin: Any) -> Any:
        async def begun(self: Any, batch: Any, label: Any) -> Any:
            with mock.patch.object(Batch, "aborted", Batch._release):
                return await begin(self, batch, label)

        return begun

    around(stack, ProducerPool._begin, wrapper)


@killed_by("tests/client/producer/test_pool.py")
@breaks("sdk.md: The newest wins: this pool begins no more transactions")
def sdk_a_pool_takes_its_ids_back(stack: ExitStack) -> None:
    """A pool that was fenced fences the other pool in turn, which does the same."""

    def wrapper(replace: Any) -> Any:
        def replaced(self: Any, slot: int, producer: Any) -> None:
            replace(self, slot, producer)
            self._fence = None

        return replaced

    around(stack, ProducerPool._replace, wrapper)


@killed_by("tests/client/producer/test_slots.py")
@breaks("sdk.md: were open for `max_wait_ms`")
def sdk_nobody_is_told_of_a_slot_that_is_free(stack: ExitStack) -> None:
    def wrapper(give_back: Any) -> Any:
        def given_back(self: Any, slot: int) -> Any:
            waiting, self._waiting = self._waiting, type(self._waiting)()
            found = give_back(self, slot)
            self._waiting = waiting
            return found

        return given_back

    around(stack, Slots.give_back, wrapper)


# ---- consumers -----------------------------------------------------------------------------------------------


@killed_by("tests/client/group/test_commits.py")
@breaks("sdk.md: commits everything but what was returned last")
def sdk_an_automatic_commit_covers_what_its_poll_gives(stack: ExitStack) -> None:
    """These records are lost if the application dies while it works on them."""

    def wrapper(quietly: Any) -> Any:
        return lambda self, timeout_ms, offsets=None: quietly(self, timeout_ms)

    around(stack, GroupCommits.commit_or_log, wrapper)


@killed_by("tests/client/consumer/test_fetcher_replicas.py")
@breaks("sdk.md: With a `client_rack` the consumer reads from the follower")
def sdk_a_follower_that_is_named_is_not_asked(stack: ExitStack) -> None:
    """The leader goes on to send no records to a consumer that it has sent to the follower."""
    replaced(stack, Fetcher._follow, lambda self, state, replica: None)


@killed_by("tests/client/consumer/test_fetcher_replicas.py")
@breaks("sdk.md: It reads from the leader again for half a minute")
def sdk_a_follower_that_failed_is_named_again(stack: ExitStack) -> None:
    """The consumer goes on telling the leader its rack, so the leader names the same follower again."""
    replaced(stack, Fetcher._rack_id, lambda self, states: self._settings.client_rack)


@killed_by("tests/client/consumer/test_fetcher_replicas.py")
@breaks("sdk.md: With a `client_rack` the consumer reads from the follower")
def sdk_a_follower_that_has_just_been_left_is_taken_at_its_word(stack: ExitStack) -> None:
    """Its late answer counts as the leader's, and may make the consumer reset its offset."""

    def reported(self: Any, node: Any, state: Any) -> bool:
        is_followed: bool = state.replica == node.node_id
        if is_followed:
            self._read_from_leader(state)
        return not is_followed

    replaced(stack, Fetcher._leave_follower, reported)


@killed_by("tests/client/consumer/test_reading_one_by_one.py")
@breaks("sdk.md: are dropped when they fill the buffer")
def sdk_what_is_paused_keeps_its_room(stack: ExitStack) -> None:
    """If it fills the buffer, other partitions are never read."""
    replaced(stack, Fetcher._make_room, lambda self, asking, bytes_needed: 0)


@killed_by("tests/client/records/test_fetched.py")
@breaks("S-105")
def sdk_checksums_are_not_looked_at(stack: ExitStack) -> None:
    def wrapper(make: Any) -> Any:
        return lambda self, *given, **more: make(self, *given, **(more | {"check_crcs": False}))

    around(stack, Fetched.__init__, wrapper)


@killed_by("tests/client/test_serialization.py")
@breaks("sdk.md: Reading again retries it")
def sdk_what_does_not_deserialize_is_passed_over(stack: ExitStack) -> None:
    def wrapper(deserialized: Any) -> Any:
        def passing(self: Any, found: Any) -> Any:
            made = []
            for record in found:
                try:
                    made += deserialized(self, [record])
                except Exception:
                    continue
            return made or found

        return passing

    around(stack, Fetched._deserialize, wrapper)


@killed_by("tests/client/consumer/test_batch_once.py")
@breaks("guarantees.md: high watermark, last stable offset or committed offset going back")
def sdk_an_earlier_batch_takes_back_offsets_of_a_later_one(stack: ExitStack) -> None:
    def wrapper(check: Any) -> Any:
        def forgetful(self: Any, state: Any, by: Any) -> None:
            state.claimed_end = (0, -1)
            check(self, state, by)

        return forgetful

    around(stack, Batch._check_order, wrapper)


@killed_by("tests/client/consumer/test_batch_once.py")
@breaks("sdk.md: After an abort all of it is read again")
def sdk_all_batches_come_again_when_one_is_rolled_back(stack: ExitStack) -> None:
    around(stack, Rewinds.lowest_since, lambda lowest: lambda self, count: 0 if count < self.count else inf)


@killed_by("tests/client/producer/test_sequences.py")
@breaks("S-46")
def sdk_a_sequence_that_is_not_expected_shows_that_nothing_was_written(stack: ExitStack) -> None:
    def wrapper(handle: Any) -> Any:
        def trusting(self: Any, entry: Any, batch: Any) -> Any:
            batch.maybe_written = False
            return handle(self, entry, batch)

        return trusting

    around(stack, Sequences._handle_unexpected, wrapper)


@killed_by("tests/client/consumer/test_offsets_of_consumer.py")
@breaks("sdk.md: everything that it has returned since the last commit")
def sdk_offsets_of_a_consumer_forget_what_was_returned_before_a_rebalance(stack: ExitStack) -> None:
    def wrapper(remember: Any) -> Any:
        def forgetful(self: Any, firsts: Any, group: Any) -> None:
            remember(self, firsts, group)
            self._since_group = group

        return forgetful

    around(stack, Reading._remember, wrapper)


@killed_by("tests/client/consumer/test_several_batches.py")
@breaks("sdk.md: After an abort all of it is read again")
def sdk_an_abort_reads_again_what_was_committed_as_numbers(stack: ExitStack) -> None:
    """Records committed by offset numbers, not as a batch, are read again: the group's offset is not looked up."""

    def roll_back(self: Any, offset: int, *, asks: bool = False) -> None:
        first = min(offset, self.committed_below)
        self.rewinds.add(first)
        self.go_on(first)

    replaced(stack, PartitionState.roll_back, roll_back)


@killed_by("tests/client/test_closing.py")
@breaks("sdk.md: Between two batches the consumer only sends heartbeats")
def sdk_who_polls_does_not_wait_while_another_task_unsubscribes(stack: ExitStack) -> None:
    """The poll spins until the leave was sent to the group."""

    def needs_poll(self: Any) -> bool:
        needs: bool = self._due or self.leaving
        return needs

    replaced(stack, Group.needs_poll, property(needs_poll))


@killed_by("tests/client/group/test_group_patterns.py")
@breaks("sdk.md: A compiled pattern (`re.compile`) is evaluated by the consumer")
def sdk_a_pattern_after_a_poll_without_topics_is_never_matched(stack: ExitStack) -> None:
    def needs_poll(self: Any) -> bool:
        topics, joined = self._subscription.topics, self._membership.joined_topics
        is_other = topics is not joined and topics != joined and self._subscription.is_subscribed
        needs: bool = not self.leaving and (self._due or is_other)
        return needs

    replaced(stack, Group.needs_poll, property(needs_poll))


@killed_by("tests/client/group/test_group.py")
@breaks("sdk.md: Between two batches the consumer only sends heartbeats")
def sdk_a_member_that_left_does_not_join_for_the_same_topics(stack: ExitStack) -> None:
    def wrapper(leave: Any) -> Any:
        def forgetting_nothing(self: Any, reason: str) -> Any:
            topics = self.joined_topics
            request = leave(self, reason)
            self.joined_topics = topics
            return request

        return forgetting_nothing

    around(stack, Membership.leave, wrapper)


@killed_by("tests/client/consumer/test_positions.py")
@breaks("guarantees.md: An open transaction delays `read_committed` readers of the partitions it wrote to")
def sdk_one_partition_that_a_transaction_holds_keeps_all_waiting(stack: ExitStack) -> None:
    around(stack, offsets._unless_later, lambda leave_out: lambda codes: codes)


@killed_by("tests/client/test_config_names.py")
@breaks("sdk.md: An unknown name or an unsupported value is refused")
def sdk_a_setting_that_cannot_be_kept_is_taken_in_silence(stack: ExitStack) -> None:
    replaced(stack, config_names._check_always, lambda name, value: None)


@killed_by("tests/client/transactions/test_offsets.py")
@breaks("S-86")
def sdk_the_end_does_not_wait_for_offsets_that_are_being_sent(stack: ExitStack) -> None:
    """The offsets are left out, or get into the next transaction."""

    async def sent(self: Any) -> None:
        pass

    replaced(stack, TransactionDriver.offsets_sent, sent)


@killed_by("tests/client/group/test_commits.py")
@breaks("guarantees.md: stale generation or fenced member commits")
def sdk_offsets_of_partitions_with_another_owner_are_committed(stack: ExitStack) -> None:
    replaced(stack, GroupCommits._check_owned, lambda self, offsets: None)


@killed_by("tests/client/consumer/test_batch_once.py")
@breaks("sdk.md: another producer cannot begin one with a batch of the same partitions")
def sdk_a_producer_that_cannot_go_on_keeps_its_batches(stack: ExitStack) -> None:
    """No other producer may work on their partitions any more."""

    def tell_no_more(close: Any) -> Any:
        async def closing(self: Any, timeout_ms: float = inf) -> None:
            with mock.patch.object(self.sources, "notify", return_value=None):
                await close(self, timeout_ms)

        return closing

    around(stack, TransactionDriver.close, tell_no_more)


@killed_by("tests/client/transactions/test_faults.py")
@breaks("S-87")
def sdk_what_cannot_be_sent_any_more_is_waited_for(stack: ExitStack) -> None:
    """An abort waits for it until delivery_timeout_ms is over."""
    replaced(stack, TransactionDriver._drop_unsent, lambda self: None)


@killed_by("tests/client/group/test_group.py")
@breaks("sdk.md: A compiled pattern (`re.compile`) is evaluated by the consumer")
def sdk_a_new_pattern_is_compared_with_old_topics(stack: ExitStack) -> None:
    """A topic that exists and matches is read up to metadata_max_age_ms later."""

    def wrapper(topics: Any) -> Any:
        async def once(self: Any) -> Any:
            self._matched = self._matched and self._subscription.pattern
            return await topics(self)

        return once

    around(stack, Group._topics, wrapper)


@killed_by("tests/client/test_closing.py")
@breaks("sdk.md: a rebalance listener that it has called runs to its end")
def sdk_a_listener_hears_twice_that_the_same_partitions_go(stack: ExitStack) -> None:
    replaced(stack, Group._give_up_all_once, Group._give_up_all)

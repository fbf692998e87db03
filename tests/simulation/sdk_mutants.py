"""The bank of bugs, for the SDK: clients that are wrong in one thing, each of which the simulation has to notice.

Most were real once, in librdkafka, franz-go, Kafka's own client and their like.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

import asyncio

from fencepost.client.consumer.batches import Batch
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.consumer.reading import Reading
from fencepost.client.group import offsets
from fencepost.client.group.commits import GroupCommits
from fencepost.client.group.group import Group
from fencepost.client.group.heartbeat_times import HeartbeatTimes
from fencepost.client.group.subscription import PartitionState, Subscription
from fencepost.client.producer.producer import Producer
from fencepost.client.producer.sender import Sender
from fencepost.client.records.fetched import AbortedFilter
from fencepost.client.transactions.driver import TransactionDriver
from fencepost.client.transactions.machine import ClientTransaction
from fencepost.client.transactions.requests import TransactionRequests
from fencepost.client.transactions.sources import Sources
from fencepost.client.transactions.table import Event, State
from fencepost.client.values import NO_IDENTITY, ConsumerGroupMetadata
from simulation.planting import around, breaks, mutant, replaced

# ---- sequences and batches -----------------------------------------------------------------------------------


@mutant
@breaks("S-39")
def sdk_what_was_not_answered_is_numbered_anew(stack):
    """A batch without an answer gets new sequence numbers, as if it was not written."""

    def wrapper(lost):
        def without_asking(self, batch, error):
            lost(self, batch, error)
            if not self._transactional and not batch.done:
                batch.maybe_written = False
                batch.partition.entry.gap = True

        return without_asking

    around(stack, Sender._on_lost, wrapper)


@mutant
@breaks("S-39")
def sdk_a_retried_batch_is_made_anew(stack):
    """The retry has other records than the first attempt (librdkafka #4736)."""

    def wrapper(lost):
        def in_halves(self, batch, error):
            lost(self, batch, error)
            entry = batch.partition.entry
            if not batch.done and batch in entry.window and batch.count > 1:
                self.sequences.split(entry, batch, list(self._accumulator.split(batch, self._transactional)))

        return in_halves

    around(stack, Sender._on_lost, wrapper)


@mutant
@breaks("guarantees.md: consumers see a transaction as a whole or not at all")
def sdk_a_failed_delivery_does_not_spoil_its_transaction(stack):
    replaced(stack, TransactionDriver.failed, lambda self, partition, error: None)


@mutant
@breaks("sdk.md: the record is not sent")
def sdk_a_send_that_is_cancelled_has_taken_its_record(stack):
    """If the application sends the record again, it is written twice."""

    def wrapper(send):
        async def sent(self, *given, **more):
            delivery = await send(self, *given, **more)
            if self._accumulator.filled:  # other tasks run after a record was added, not before
                self._accumulator.filled = False
                await asyncio.sleep(0)
            return delivery

        return sent

    around(stack, Producer.send, wrapper)


# ---- the end of transactions ---------------------------------------------------------------------------------


@mutant
@breaks("S-138")
def sdk_a_commit_without_an_answer_is_aborted(stack):
    """KAFKA-17754: the abort, or the late commit, may end the next transaction."""

    def wrapper(gave_up):
        def given_up(self, error):
            if self.state is State.COMMITTING and self.maybe_ended:
                self.error = error
                self._apply(Event.REFUSED)
            else:
                gave_up(self, error)

        return given_up

    around(stack, ClientTransaction.gave_up, wrapper)


@mutant
@breaks("S-138")
def sdk_a_commit_without_an_answer_is_done(stack):
    """It may have been aborted: then its records are lost. franz-go had this bug (6ecd2f9, 42b3d83)."""

    def wrapper(gave_up):
        def given_up(self, error):
            if self.state is State.COMMITTING:
                self.outcome = "committed"
                self._apply(Event.ENDED)
            else:
                gave_up(self, error)

        return given_up

    around(stack, ClientTransaction.gave_up, wrapper)


@mutant
@breaks("S-87")
def sdk_what_failed_is_not_ended(stack):
    """franz-go de5af46: all produces failed, EndTxn was skipped, and the next transaction joined the old one."""

    def wrapper(ends):
        def without_asking(self):
            if self.state is State.ABORTING:
                self.attempted = self.maybe_ended = self._may_arrive_late = False
            return ends(self)

        return without_asking

    around(stack, ClientTransaction.ends_without_request, wrapper)


@mutant
@breaks("S-62")
def sdk_the_epoch_of_an_answer_is_not_taken(stack):
    """KIP-890: the answer to EndTxn gives a new epoch."""

    def wrapper(ended):
        return lambda self, code, identity: ended(self, code, NO_IDENTITY if code else self.identity)

    around(stack, ClientTransaction.ended, wrapper)


# ---- consumers -----------------------------------------------------------------------------------------------


@mutant
@breaks("guarantees.md: stale generation or fenced member commits")
def sdk_offsets_are_sent_without_their_generation(stack):
    """The broker cannot refuse the offsets of a member that was replaced; before KIP-447 it never could."""

    def wrapper(commit):
        return lambda self, offsets, group: commit(self, offsets, ConsumerGroupMetadata(group.group_id))

    around(stack, TransactionRequests.commit_offsets, wrapper)


@mutant
@breaks("S-86")
def sdk_a_commit_does_not_look_at_writes_that_failed(stack):
    """A transaction is committed without its records that were refused for good."""
    replaced(stack, TransactionDriver.failed, lambda self, topic_partition, error: None)


@mutant
@breaks("sdk.md: After an abort all of it is read again")
def sdk_after_an_abort_the_consumer_goes_on(stack):
    replaced(stack, Batch.aborted, lambda self: self._settled(self))


@mutant
@breaks("sdk.md: After an abort all of it is read again")
def sdk_after_an_unknown_outcome_the_consumer_goes_on(stack):
    def settled(self):
        self._release()
        self._settled(self)

    replaced(stack, Batch.outcome_unknown, settled)


@mutant
@breaks("S-103")
def sdk_the_list_of_aborted_transactions_is_ignored(stack):
    replaced(stack, AbortedFilter.hides, lambda self, batch: batch.is_control)


@mutant
@breaks("sdk.md: cannot be read while an open transaction has written newer ones")
def sdk_offsets_that_are_not_decided_are_begun_at(stack):
    request = offsets.fetch_request
    replaced(
        stack,
        offsets.fetch_request,
        lambda group_id, partitions, _, *reader: request(group_id, partitions, False, *reader),
    )


@mutant
@breaks("S-05")
def sdk_a_partition_that_comes_back_goes_on_where_it_was(stack):
    def wrapper(assign):
        def assigned(self, partitions, held=()):
            kept = self.__dict__.setdefault("kept", {})
            kept.update(self.assigned)
            self.assigned = {**kept}
            assign(self, partitions, held)

        return assigned

    def remembering(revoke):
        def revoked(self, partitions):
            self.__dict__.setdefault("kept", {}).update(self.assigned)
            revoke(self, partitions)

        return revoked

    around(stack, Subscription.assign_from_group, wrapper)
    around(stack, Subscription.revoke, remembering)


@mutant
@breaks("sdk.md: and `seek` sets the position")
def sdk_what_was_fetched_ahead_is_given_after_a_jump(stack):
    def wrapper(drop):
        def dropped(self):
            fetched, size, at = list(self.fetched), self.fetched_bytes, self.fetch_offset
            result = drop(self)
            if fetched:
                self.fetched.extend(fetched)
                self.fetched_bytes, self.fetch_offset = size, at
            return result

        return dropped

    around(stack, PartitionState.drop_fetched, wrapper)


@mutant
@breaks("S-105")
def sdk_a_batch_leaves_out_its_last_record(stack):
    def wrapper(take):
        def taken(self, *arguments):
            found = take(self, *arguments)
            for _, records in found.values():
                if len(records) > 2:
                    del records[-1]
            return found

        return taken

    around(stack, Reading.take, wrapper)


# ---- pauses, slow work, two producers ------------------------------------------------------------------------


@mutant
@breaks("sdk.md: no records of it until resume")
def sdk_what_is_paused_is_given(stack):
    """Records are given that were fetched before the pause."""

    def wrapper(candidates):
        def all_of_them(self, wanted):
            paused = [state for state in self._subscription.assigned.values() if state.paused]
            for state in paused:
                state.paused = False
            found = candidates(self, wanted)
            for state in paused:
                state.paused = True
            return found

        return all_of_them

    around(stack, Reading._candidates, wrapper)


@mutant
@breaks("sdk.md: each record of `async for` and each `getone` counts")
def sdk_records_given_one_by_one_are_one_poll(stack):
    """Records taken one by one do not count as polls: a member is removed from the group although it is polled."""
    replaced(stack, HeartbeatTimes.apply_was_polled, lambda self, now_ms: None)


@mutant
@breaks("sdk.md: another producer cannot begin one with a batch of the same partitions")
def sdk_a_batch_is_given_to_a_second_producer(stack):
    def wrapper(check):
        def unclaimed(self, state, by):
            state.claimed_by = None
            check(self, state, by)

        return unclaimed

    around(stack, Batch._check_order, wrapper)


@mutant
@breaks("sdk.md: a transaction already committed this batch")
def sdk_a_batch_that_is_committed_is_committed_again(stack):
    def claim(self, by):
        self._claimed_by = None
        for state in self._states:
            state.committed = (-1, -1)

    replaced(stack, Batch._check_outcome, claim)


# ---- impatient handlers of a pool ----------------------------------------------------------------------------


@mutant
@breaks("S-138")
def sdk_a_commit_that_is_cancelled_counts_as_aborted(stack):
    """The application reads the batch again, though its transaction may be committed."""

    def wrapper(notify):
        return lambda self, outcome: notify(self, None if outcome == "unknown" else outcome)

    around(stack, Sources.notify, wrapper)


# ---- several batches in one transaction ----------------------------------------------------------------------


@mutant
@breaks("sdk.md: After an abort all of it is read again")
def sdk_an_abort_goes_back_to_its_own_batch_alone(stack):
    """Earlier uncommitted batches are not read again, and the next commit is above their records."""

    def roll_back(self, offset, *, asks=False):
        self.rewinds.add(offset)
        self.go_on(offset)

    replaced(stack, PartitionState.roll_back, roll_back)


# ---- reads beside a commit -----------------------------------------------------------------------------------


@mutant
@breaks("sdk.md: After an abort all of it is read again")
def sdk_what_is_given_beside_a_commit_counts_as_committed(stack):
    """Records returned during a commit are not returned again if the next transaction is rolled back."""

    def wrapper(committed):
        def all_of_it(self):
            committed(self)
            for state in self._own():
                state.note_committed(state.position)

        return all_of_it

    def settle_to(self, offsets):
        self.settle()
        self._since = {state: first for state, first in self._since.items() if state.tp not in offsets}

    around(stack, Batch.committed, wrapper)
    replaced(stack, Reading._settle_to, settle_to)


@mutant
@breaks("sdk.md: everything that it has returned since the last commit")
def sdk_offsets_of_a_consumer_are_those_of_its_positions_at_the_end(stack):
    """Records returned after the offsets were sent are committed, though no transaction has worked on them."""

    def wrapper(commit):
        async def committing(self, offsets=None, writes=(), decide=None):
            for batch in self.sources._batches:
                at = {state.tp: state.offset for state in batch._own()}
                if at:
                    await self._send_offsets(at, batch.group_metadata)
            await commit(self, offsets, writes, decide)

        return committing

    around(stack, TransactionDriver.commit, wrapper)


# ---- several tasks on one consumer ---------------------------------------------------------------------------


@mutant
@breaks("sdk.md: no records of it until resume")
def sdk_a_poll_gives_what_is_paused_while_it_waits(stack):
    """A poll looks at what is paused only when it begins."""

    async def take_when_there(self, most, wanted, deadline_ms):
        states = self._subscription.assigned.values()
        before = {state for state in states if state.paused}
        while True:
            await self._polls.poll(deadline_ms, wanted)
            late = [state for state in states if state.paused and state not in before]
            for state in late:
                state.paused = False
            found = self._reading.take(most, wanted, self._metadata())
            for state in late:
                state.paused = True
            self._fetcher.pump()
            if found or not await self._polls.wait(deadline_ms, wanted):
                return found

    replaced(stack, Consumer._take_when_there, take_when_there)


@mutant
@breaks("sdk.md: and `seek` sets the position")
def sdk_a_seek_beside_a_poll_is_lost(stack):
    """A seek of another task during a poll has no effect: the poll reads on from where it began."""

    def wrapper(seek):
        def sought(self, partition, offset):
            if not self._polls._waiting:
                seek(self, partition, offset)

        return sought

    around(stack, Consumer.seek, wrapper)


@mutant
@breaks("sdk.md: Between two batches the consumer only sends heartbeats")
def sdk_an_unsubscribe_that_is_cancelled_never_ends(stack):
    """No later poll joins the group."""

    async def go(self, reason, deadline_ms, gave_up):
        await self._stop_joining()
        request = self._membership.leave(reason)
        self._failure, self._due, self._matched = None, True, None
        gave_up()
        await self._send_leave(request, deadline_ms - self._clock.monotonic_ms())
        self.leaving = False

    replaced(stack, Group._end_membership, go)


@mutant
@breaks("sdk.md: commits everything but what was returned last")
def sdk_a_commit_covers_what_is_given_before_it_leaves(stack):
    """Records that a poll of another task returns meanwhile are committed, and lost if the application dies while it
    works on them.
    """

    def wrapper(commit):
        async def late(self, wanted, member, **more):
            await asyncio.sleep(0.05)
            moved = {tp: at for tp, at in self.subscription.positions().items() if tp in wanted}
            await commit(self, moved, member, **more)

        return late

    def with_subscription(make):
        def made(self, cluster, settings, subscription, *more):
            make(self, cluster, settings, subscription, *more)
            self._offsets.subscription = subscription

        return made

    around(stack, GroupCommits.__init__, with_subscription)
    around(stack, offsets.GroupOffsets.commit, wrapper)


@mutant
@breaks("guarantees.md: stale generation or fenced member commits")
def sdk_who_lost_its_partitions_speaks_for_its_group_alone(stack):
    """It commits as no member, so nothing fences the commit, though another member has the partitions."""

    def applied(self):
        metadata = self._commits.metadata()
        return metadata if self._membership.may_commit else ConsumerGroupMetadata(metadata.group_id)

    def wrapper(make):
        def made(self, *given):
            make(self, *given)
            self.metadata = lambda: applied(self)

        return made

    def unchecked(self):
        return self._member().metadata()  # without the check that it has joined

    around(stack, Group.__init__, wrapper)
    replaced(stack, Consumer.group_metadata, unchecked)

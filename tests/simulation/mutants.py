"""A bank of bugs: brokers that are wrong in one thing, each of which the simulation has to notice within some seeds.

Most were real once, here or in other brokers (KAFKA-17754, KAFKA-9807, KAFKA-5376, KAFKA-14402 and their like). A
mutant patches classes while brokers run; `hunt` tells by which seed it was caught, and by what.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from fencepost.broker.broker import Broker
from fencepost.broker.groups.coordinator import GroupCoordinator
from fencepost.broker.groups.offset_log import GroupOffsets
from fencepost.broker.groups.offsets import Offsets
from fencepost.broker.net.connection import Connection
from fencepost.broker.net.turns import Job
from fencepost.broker.requests.fast_produce import FastProduce
from fencepost.broker.rounds import Rounds
from fencepost.broker.topics.topics import Topics
from fencepost.broker.transactions import coordinator as coordinator_module
from fencepost.broker.transactions import sweeps as sweeps_module
from fencepost.broker.transactions.admission import Admission
from fencepost.broker.transactions.coordinator import TransactionCoordinator
from fencepost.broker.transactions.deciding import Deciding
from fencepost.broker.transactions.fence_policy import FencePolicy
from fencepost.broker.transactions.ledger_log import Ledger
from fencepost.broker.transactions.states.transaction import Status
from fencepost.broker.transactions.unit import TransactionUnit
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.storage.log.partition_log import PartitionLog
from fencepost.storage.log.reads import AbortedLookup
from fencepost.storage.producers.producers import ProducerStates
from fencepost.storage.store import Store
from simulation.planting import _around, around, breaks, mutant, replaced

# ---- what readers see ----------------------------------------------------------------------------------------


@mutant
@breaks("guarantees.md: Once a commit is answered, it is visible")
def last_stable_offset_does_not_wait_for_the_marker_to_be_durable(stack):
    def stable(self):
        first = self.producers.first_open_offset()
        return self.high_watermark if first is None else min(first, self.high_watermark)

    replaced(stack, PartitionLog.last_stable_offset, property(stable))


@mutant
@breaks("S-98")
def last_stable_offset_is_the_high_watermark(stack):
    replaced(stack, PartitionLog.last_stable_offset, property(lambda self: self.high_watermark))


@mutant
@breaks("S-100")
def the_list_of_aborted_transactions_is_empty(stack):
    replaced(stack, PartitionLog.aborted_between, lambda self, offset, below: [])
    replaced(stack, AbortedLookup.find, lambda self, below: [])


@mutant
@breaks("guarantees.md: No consumer sees a record that a power cut could remove")
def what_is_not_durable_is_shown(stack):
    def wrapper(apply):
        def applied(self, batch, *more):
            apply(self, batch, *more)
            self.released(self.end_offset)

        return applied

    around(stack, PartitionLog.apply, wrapper)
    _no_fast_path(stack)


@mutant
@breaks("guarantees.md: is on disk and is not lost")
def replies_do_not_wait_for_the_sync(stack):
    around(stack, Connection.reply, lambda reply: lambda self, answer, unit: reply(self, answer, 0))
    _no_fast_path(stack)


@mutant
@breaks("guarantees.md: is on disk and is not lost")
def rounds_are_not_synced(stack):
    around(stack, Store.take_round, lambda take: lambda self, sync=None: take(self, sync=False))


@mutant
@breaks("guarantees.md: No consumer sees a record that a power cut could remove")
def rounds_are_released_as_they_end(stack):
    """Of rounds in flight together, a later one may be on the disk while an earlier one is not."""

    def ended(self, result):
        if isinstance(result, BaseException):
            self._in_flight.clear()
            self.halt(result)
        elif any(write.done for write in self._in_flight):
            for write in self._in_flight:
                write.done = True
            while self._in_flight:
                self._release(self._in_flight.popleft())

    replaced(stack, Rounds._ended, ended)


def _no_fast_path(stack: ExitStack) -> None:
    """Send every Produce request through the handler."""
    replaced(stack, FastProduce.serve, lambda self, connection, frame: False)


# ---- what producers may do -----------------------------------------------------------------------------------


@mutant
@breaks("S-20")
def sequences_are_not_looked_at(stack):
    replaced(stack, ProducerStates.judge, lambda self, batch, refuse_unknown_with=None: None)


@mutant
@breaks("S-21")
def a_batch_sent_again_is_appended_again(stack):
    def wrapper(judge):
        def judged(self, batch, refuse_unknown_with=None):
            return judge(self, batch, refuse_unknown_with) and None

        return judged

    around(stack, ProducerStates.judge, wrapper)


@mutant
@breaks("S-22")
def the_last_batches_are_forgotten_at_a_restart(stack):
    def forget(broker):
        for log in broker.store.logs.values():
            for producer in log.producers._producers.values():
                producer.window.clear()

    _after_recovery(stack, forget)


@mutant
@breaks("guarantees.md: A batch that an idempotent producer retries is written once")
def producers_are_forgotten_at_a_restart(stack):
    _after_recovery(stack, lambda broker: [log.producers.evict(10_000) for log in broker.store.logs.values()])


@mutant
@breaks("S-16")
def producer_ids_begin_again_after_a_restart(stack):
    def next_id(self):
        self.given = getattr(self, "given", -1) + 1
        return self.given

    replaced(stack, Topics.next_producer_id, next_id)


def _after_recovery(stack: ExitStack, change: Callable[[Broker], object]) -> None:
    def wrapper(assemble):
        def assembled(self):
            change(self)
            assemble(self)

        return assembled

    around(stack, Broker._assemble, wrapper)


# ---- the fence -----------------------------------------------------------------------------------------------


@mutant
@breaks("guarantees.md: remembers the newest connection that sent a request of each class")
def old_connections_are_not_fenced(stack):
    replaced(stack, FencePolicy.admit, lambda self, *args: None)


@mutant
@breaks("S-62")
def the_epoch_is_not_checked_at_the_partition(stack):
    def wrapper(admit):
        def admitted(self, transactional_id, batch, *more):
            txn = self.transactions.get(transactional_id)
            if txn is not None and txn.producer_epoch != batch.producer_epoch:
                return None
            return admit(self, transactional_id, batch, *more)

        return admitted

    def tolerant(judge):
        def judged(self, *more):
            try:
                return judge(self, *more)
            except KafkaError as error:
                if error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
                    raise
                return None

        return judged

    around(stack, Admission.admit_batch, wrapper)
    around(stack, ProducerStates.judge, tolerant)


@mutant
@breaks("S-62")
def the_epoch_is_not_checked_at_the_end(stack):
    def wrapper(end):
        def ended(txn, commit, producer_id, producer_epoch, *more):
            epoch = producer_epoch if txn is None else txn.producer_epoch
            return end(txn, commit, producer_id, epoch, *more)

        return ended

    around(stack, coordinator_module.machine.end, wrapper)


@mutant
@breaks("guarantees.md: cross-transaction bleed")
def a_batch_of_no_transaction_is_taken(stack):
    """KAFKA-14402: a late batch, after the marker, begins a transaction that nobody ends."""

    def wrapper(admit):
        def admitted(self, *more):
            try:
                return admit(self, *more)
            except Exception:
                return None

        return admitted

    around(stack, Admission.admit_batch, wrapper)


@mutant
@breaks("S-61")
def a_new_incarnation_does_not_get_a_new_epoch(stack):
    def wrapper(init):
        def initialised(txn, *more):
            decision = init(txn, *more)
            if txn is None or not decision.states or decision.error or txn.status is Status.ONGOING:
                return decision
            last = replace_state(decision.states[-1], producer_epoch=txn.producer_epoch)
            return decision._replace(states=(*decision.states[:-1], last), producer_epoch=txn.producer_epoch)

        return initialised

    _around(stack, coordinator_module, "init_producer_id", wrapper)


def replace_state(state: Any, **fields: Any) -> Any:
    return state._replace(**fields) if hasattr(state, "_replace") else replace(state, **fields)


@mutant
@breaks("S-63")
def a_new_incarnation_leaves_the_transaction_open(stack):
    def wrapper(init):
        def initialised(txn, *more):
            return init(txn, *more)._replace(marker=None)

        return initialised

    _around(stack, coordinator_module, "init_producer_id", wrapper)


# ---- the end of transactions ---------------------------------------------------------------------------------


@mutant
@breaks("guarantees.md: Once a commit is answered, it is visible")
def markers_come_after_the_answer(stack):
    """Apache Kafka writes markers after the answer, too, but writes missing ones after a crash. The mutant does not."""

    def wrapper(mark):
        def marked(self, order, *more):
            def later():
                if self._store.halted is None:
                    unit = TransactionUnit(self._store, self._topics, self._participants)
                    mark(unit, order, *more)
                    unit.commit()

            asyncio.get_running_loop().call_later(0.03, later)

        return marked

    around(stack, TransactionUnit.mark, wrapper)


@mutant
@breaks("S-66")
def one_partition_gets_no_marker(stack):
    def wrapper(mark):
        def marked(self, order, *more):
            kept = dict(list(order.partitions.items())[: max(1, len(order.partitions) - 1)])
            mark(self, order._replace(partitions=kept), *more)

        return marked

    around(stack, TransactionUnit.mark, wrapper)


@mutant
@breaks("guarantees.md: torn transaction")
def the_markers_of_one_transaction_are_of_both_kinds(stack):
    def wrapper(mark):
        def marked(self, order, *more):
            for number, item in enumerate(order.partitions.items()):
                mark(self, order._replace(partitions=dict([item]), commit=order.commit and number == 0), *more)

        return marked

    around(stack, TransactionUnit.mark, wrapper)


@mutant
@breaks("guarantees.md: aborted read (G1a)")
def an_abort_is_a_commit(stack):
    def wrapper(mark):
        return lambda self, order, *more: mark(self, order._replace(commit=True), *more)

    around(stack, TransactionUnit.mark, wrapper)


@mutant
@breaks("S-132")
def the_state_of_transactions_is_not_read_at_start(stack):
    replaced(stack, TransactionCoordinator.load, lambda self: None)


@mutant
@breaks("S-110")
def late_transactions_are_left_open(stack):
    replaced(stack, sweeps_module.Sweeps._late, lambda self, ids: [])


@mutant
@breaks("guarantees.md: expiry because a clock was set")
def timeouts_follow_the_wall_clock(stack):
    def age(self):
        if not hasattr(self, "wall_origin_ms"):
            self.wall_origin_ms = self.clock.now_ms() - (self.clock.monotonic_ms() - self._age_origin_ms)
        return self.clock.now_ms() - self.wall_origin_ms

    replaced(stack, Store.age_ms, age)


@mutant
@breaks("S-65")
def a_commit_is_answered_and_not_logged(stack):
    def wrapper(log):
        def logged(self, transactional_id, decision, given, *more):
            if decision.marker is not None and decision.marker.commit and self._store.age_ms() % 5 == 0:
                self.apply(transactional_id, decision.states[-1])
                return
            log(self, transactional_id, decision, given, *more)

        return logged

    around(stack, TransactionCoordinator.log, wrapper)


@mutant
@breaks("guarantees.md: the topic does not exist, or was deleted and created again")
def markers_go_to_whatever_has_the_name_now(stack):
    def wrapper(mark):
        def marked(self, order, *more):
            topics = self._topics.by_name
            places = {key: topics[key[0]].partitions[key[1]].log.log_id for key in order.partitions if key[0] in topics}
            mark(self, order._replace(partitions=places), *more)

        return marked

    around(stack, TransactionUnit.mark, wrapper)


@mutant
@breaks("spark.md: and batch *n* is decided only once")
def the_ledger_is_not_read_at_start(stack):
    replaced(stack, Ledger.load, lambda self: None)


@mutant
@breaks("spark.md: sees a whole batch or nothing of it")
def a_decision_ends_only_the_first(stack):
    def wrapper(mark):
        def marked(self, unit, written, now_ms):
            first = next(iter(self._plans.values()), None)
            for each in written:
                only = [plan for plan in each.plans if plan is first]
                mark(self, unit, [each._replace(plans=only, marks=[], not_made=only)], now_ms)

        return marked

    around(stack, Deciding._mark, wrapper)


# ---- offsets and groups --------------------------------------------------------------------------------------


@mutant
@breaks("S-84")
def offsets_are_visible_before_the_commit(stack):
    def wrapper(put):
        return lambda self, log_partition, place, committed, producer_id=-1: put(self, log_partition, place, committed)

    around(stack, Offsets.put, wrapper)


@mutant
@breaks("S-85")
def offsets_of_aborted_transactions_count(stack):
    def wrapper(end):
        return lambda self, log_partition, producer_id, position, *, commit: end(
            self, log_partition, producer_id, position, commit=True
        )

    around(stack, Offsets.end, wrapper)


@mutant
@breaks("S-85")
def offsets_of_committed_transactions_are_dropped(stack):
    def wrapper(end):
        return lambda self, log_partition, producer_id, position, *, commit: end(
            self, log_partition, producer_id, position, commit=False
        )

    around(stack, Offsets.end, wrapper)


@mutant
@breaks("guarantees.md: offsets without outputs, or the reverse")
def undecided_offsets_are_passed_over(stack):
    """OffsetFetch answers the committed offset while a transaction has another one pending, though the client asks for
    stable offsets (KIP-447).
    """
    replaced(stack, Offsets.is_pending, lambda self, place: False)


@mutant
@breaks("guarantees.md: stale generation or fenced member commits")
def generations_are_not_looked_at(stack):
    replaced(stack, GroupCoordinator.check_commit, lambda self, *args, transactional: None)


@mutant
@breaks("guarantees.md: high watermark, last stable offset or committed offset going back")
def offsets_are_not_read_at_start(stack):
    replaced(stack, GroupOffsets.load, lambda self: None)


# ---- turns ---------------------------------------------------------------------------------------------------


@mutant
@breaks("security.md: What a client can make the broker do is bounded")
def a_request_is_worked_in_one_step(stack):
    def wrapper(work):
        return lambda self, clock, until_ms, most_units: work(self, clock, until_ms, 1 << 60)

    around(stack, Job.work, wrapper)

"""The bank of bugs, for limits: brokers that turn honest clients away, or forget whom they may not forget.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from fencepost.broker.groups.machine import Group
from fencepost.broker.groups.memory import GroupMemory
from fencepost.broker.topics.producer_limit import ProducerLimit
from fencepost.broker.transactions import sweeps as sweeps_module
from fencepost.broker.transactions.coordinator import TransactionCoordinator
from fencepost.broker.transactions.ledger_log import Ledger
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.storage.producers.producers import ProducerStates
from simulation.planting import around, breaks, mutant, replaced

# ---- who is forgotten ----------------------------------------------------------------------------------------


@mutant
@breaks("guarantees.md: A producer with an open transaction is never forgotten")
def producers_in_transactions_make_room_first(stack):
    def wrapper(evict):
        def evicted(self, count=1):
            if not self._open:
                return evict(self, count)
            _, producer_id = self._open.popitem()
            self._idle[producer_id] = self._producers[producer_id]
            self._forget(producer_id)
            return 1

        return evicted

    around(stack, ProducerStates.evict, wrapper)


@mutant
@breaks("guarantees.md: a new one replaces the one that has not written for the longest time")
def the_last_to_write_makes_room(stack):
    def evict(self, count=1):
        count = min(count, len(self._idle))
        for _ in range(count):
            self._forget(next(reversed(self._idle)))
        return count

    replaced(stack, ProducerStates.evict, evict)


@mutant
@breaks("guarantees.md: An id with an open or prepared transaction is never forgotten")
def ids_in_transactions_make_room_first(stack):
    def wrapper(make_room):
        def made(self, most):
            if self.open and len(self.transactions) >= most:
                self.forget([next(iter(self.open))])
            make_room(self, most)

        return made

    around(stack, TransactionCoordinator._make_room, wrapper)


@mutant
@breaks("guarantees.md: a new one replaces the one that has not written for the longest time")
def twice_as_many_producers_make_room_as_there_is_need(stack):
    around(stack, ProducerLimit._evict, lambda evict: lambda self, count: evict(self, 2 * count))


# ---- who is refused ------------------------------------------------------------------------------------------


@mutant
@breaks("guarantees.md: a new one replaces the one that has not written for the longest time")
def at_the_limit_new_producers_are_turned_away(stack):
    replaced(stack, ProducerLimit._evict, lambda self, count: False)
    replaced(stack, ProducerLimit.may_evict, False)


@mutant
@breaks("guarantees.md: a new one replaces the least recently used")
def at_the_limit_new_ids_are_turned_away(stack):
    def make_room(self, most):
        if len(self.transactions) >= most:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "all places are taken")

    replaced(stack, TransactionCoordinator._make_room, make_room)


@mutant
@breaks("guarantees.md: a limit is reached; the message names it")
def producers_that_are_forgotten_still_count(stack):
    def wrapper(look):
        def looked(self, moved):
            gone = sum(max(0, self._counted.get(log.log_id, 0) - len(log.producers)) for log in moved)
            look(self, moved)
            self.count += gone

        return looked

    around(stack, ProducerLimit.look, wrapper)


@mutant
@breaks("guarantees.md: a limit is reached; the message names it")
def members_that_are_gone_still_count(stack):
    def wrapper(count):
        def counted(self, group, record_bytes):
            before = self.size_bytes
            count(self, group, record_bytes)
            self.size_bytes = max(self.size_bytes, before)

        return counted

    around(stack, GroupMemory.count, wrapper)


# ---- what is held for those who vanished ---------------------------------------------------------------------


@mutant
@breaks("guarantees.md: A prepared transaction has its own timeout")
def what_is_prepared_has_no_deadline(stack):
    def wrapper(deadline):
        return lambda txn: None if txn.prepared is not None else deadline(txn)

    around(stack, sweeps_module.machine.deadline_age_ms, wrapper)


@mutant
@breaks("guarantees.md: A prepared transaction has its own timeout")
def whoever_prepares_has_as_long_as_it_says(stack):
    replaced(stack, Ledger._check_limits, lambda self, timeout_ms: None)


@mutant
@breaks("security.md: What a client can make the broker do is bounded")
def members_that_are_silent_stay(stack):
    def session_over(self, member, now_ms):
        if member.deadline_ms is not None and member.deadline_ms <= now_ms:
            member.deadline_ms = now_ms + member.session_timeout_ms

    replaced(stack, Group._session_over, session_over)

"""The bank of bugs in fetching from share groups: what is whose, for how long, and what is nobody's.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack
from typing import Any

from fencepost.broker.requests.aborted_filter import AbortedRanges
from fencepost.broker.requests.share import answers, fetching
from fencepost.broker.requests.share.fetching import ShareFetching
from fencepost.broker.requests.share.sessions import ShareSessions
from fencepost.broker.requests.throttling import Throttling
from fencepost.broker.share import locks
from fencepost.broker.share.ended import find_acquired
from fencepost.broker.share.locks import Locks
from fencepost.broker.share.machine import SharePartition
from fencepost.broker.share.runs import Runs
from fencepost.storage.log.segment import Slice
from simulation.planting import _replaced, around, breaks, killed_by, replaced

FETCH, SESSIONS = "tests/broker/handlers/test_share_fetch.py", "tests/broker/requests/share/test_sessions.py"
FETCHING, LOCKS = "tests/broker/requests/share/test_fetching.py", "tests/broker/share/test_locks.py"


@killed_by(FETCH)
@breaks("guarantees.md: which ends with the connection that opened it and with no other")
def what_was_acquired_outlives_its_connection(stack: ExitStack) -> None:
    def wrapper(of_connection: Any) -> Any:
        return lambda self, connection: of_connection(self, connection)[:0]

    around(stack, ShareSessions.of_connection, wrapper)


@killed_by(SESSIONS)
@breaks("guarantees.md: which ends with the connection that opened it and with no other")
def any_connection_ends_the_session_of_a_member(stack: ExitStack) -> None:
    def wrapper(of_connection: Any) -> Any:
        return lambda self, connection: list(self)

    around(stack, ShareSessions.of_connection, wrapper)


@killed_by(FETCH)
@breaks("guarantees.md: Markers are given to nobody")
def markers_are_given_out(stack: ExitStack) -> None:
    replaced(stack, answers.is_data, lambda batch: True)
    _replaced(stack, fetching, "is_data", lambda batch: True)


@killed_by(FETCH)
@breaks("guarantees.md: neither are records of aborted transactions")
def aborted_records_are_given_out(stack: ExitStack) -> None:
    replaced(stack, AbortedRanges.hold, lambda self, header: False)


@killed_by(FETCH)
@breaks("guarantees.md: the last time alone")
def a_second_look_gives_more_of_what_failed_often(stack: ExitStack) -> None:
    def acquire_of(self: Any, read: Any) -> Any:
        buffers: list[Any] = []
        acquired: list[Any] = []
        while not self._is_full() and self._acquire_next(read):
            buffers, acquired = buffers + read.buffers, acquired + read.acquired
            yield 1
        read.buffers, read.acquired = buffers, acquired

    replaced(stack, ShareFetching._acquire_of, acquire_of)


@killed_by(FETCH)
@breaks("guarantees.md: A member over its quota acquires nothing")
def a_member_over_its_quota_acquires_records(stack: ExitStack) -> None:
    replaced(stack, Throttling.is_over_already, lambda self, meter: False)


@killed_by(FETCHING)
@breaks("guarantees.md: what does not fit into one comes in a later one")
def a_batch_that_does_not_fit_is_taken_for_a_gap(stack: ExitStack) -> None:
    def wrapper(acquire_next: Any) -> Any:
        def reading_on(self: Any, read: Any) -> int:
            offset, below = self._partitions.next_offset(read.key), self._below(read.partition)
            log = read.partition.log
            if self._size_bytes and offset is not None and offset < log.flushed_offset < below:
                found = log.read(offset, read.max_bytes, below, at_least_one=False)
                if isinstance(found, Slice) and not found.size_bytes:
                    tail = log.read(log.flushed_offset, read.max_bytes, below, at_least_one=False)
                    return self._take(read, offset, tail, []) if tail.size_bytes else 0
            return acquire_next(self, read)

        return reading_on

    around(stack, ShareFetching._acquire_next, wrapper)


@killed_by(LOCKS)
@breaks("guarantees.md: A record that a member has acquired is nobody else's until its lock ends")
def a_new_session_loses_what_it_has_to_the_end_of_the_old_one(stack: ExitStack) -> None:
    replaced(stack, Locks.finish_release, lambda self, group, member: iter(()))


@killed_by(LOCKS)
@breaks("security.md: What a client can make the broker do is bounded")
def all_that_a_session_had_is_released_in_one_step(stack: ExitStack) -> None:
    def at_once(machine: Any, member: str, offset: int, max_runs: int) -> Any:
        return find_acquired(machine, member, offset, 1 << 40)

    _replaced(stack, locks, "find_acquired", at_once)


@killed_by(LOCKS)
@breaks("security.md: What a client can make the broker do is bounded")
def all_locks_that_are_due_end_in_one_step(stack: ExitStack) -> None:
    def wrapper(due_alarms: Any) -> Any:
        return lambda self, now_ms, max_runs: due_alarms(self, now_ms, 1 << 40)

    around(stack, SharePartition.due_alarms, wrapper)


@killed_by(LOCKS)
@breaks("security.md: What a client can make the broker do is bounded")
def a_range_is_decided_in_one_step_whatever_it_touches(stack: ExitStack) -> None:
    replaced(stack, Runs.last_of, lambda self, offset, count: None)


@killed_by(FETCHING)
@breaks("guarantees.md: A ShareFetch that waits is answered as soon as its session ends")
def a_fetch_whose_session_has_ended_waits(stack: ExitStack) -> None:
    def wants_records(self: ShareFetching) -> bool:
        return self._max_bytes > 0 and self._wanted.max_records > 0 and bool(self._session.places)

    replaced(stack, ShareFetching._wants_records, wants_records)

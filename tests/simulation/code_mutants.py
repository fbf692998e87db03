"""The bank of bugs, for what a simulation meets seldom or never: each names the test file that catches it.

A disk without descriptors, a folder that is not ours, an executor's order, a bound on memory: what shows them is
enumerated where such tests live. The test runs with the bug in a process of its own, and has to fail.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from collections import deque
from contextlib import ExitStack
from typing import Any
from unittest import mock

from fencepost.broker.config.options import Option
from fencepost.broker.groups.consumer.coordinator import ConsumerGroups
from fencepost.broker.groups.memory import GroupMemory
from fencepost.broker.net import connection, sending
from fencepost.broker.requests import aborted_filter, running_fetch
from fencepost.broker.requests.dispatch import load_handlers
from fencepost.broker.topics import internal_topic, partition
from fencepost.broker.topics.decompression_budget import DecompressionBudget
from fencepost.broker.topics.producer_limit import ProducerLimit
from fencepost.broker.topics.topics import Topics
from fencepost.broker.transactions.coordinator import TransactionCoordinator
from fencepost.broker.transactions.ledger_log import Ledger
from fencepost.broker.transactions.states import renewal
from fencepost.broker.upkeep import cleaning
from fencepost.cli.log.aborts import AbortCheck
from fencepost.cli.serve import serving
from fencepost.client.admin.transactions import TransactionAdmin
from fencepost.effects.disk import SystemLock
from fencepost.effects.disk.held import HeldDirectories
from fencepost.effects.disk_errors import NO_SPACE, DiskFull
from fencepost.effects.net import tcp
from fencepost.effects.simulated import faults
from fencepost.effects.simulated.paths import HeldInodes, parts
from fencepost.effects.simulated.volume import ROOT
from fencepost.effects.threads import executors
from fencepost.storage import layout
from fencepost.storage.log import (
    indexes as log_indexes,
)
from fencepost.storage.log import (
    opening as log_opening,
)
from fencepost.storage.log import (
    reads as log_reads,
)
from fencepost.storage.log import (
    times as log_times,
)
from fencepost.storage.log.partition_log import PartitionLog
from fencepost.storage.log.producer_snapshots import ProducerSnapshots, Snapshot
from fencepost.storage.producers.producers import ProducerStates
from simulation.planting import _around, _replaced, around, breaks, killed_by, replaced

# ---- what stands on the disk ---------------------------------------------------------------------------------


@killed_by("tests/storage/log/test_log_machine.py")
@breaks("guarantees.md: consumers see a transaction as a whole or not at all")
def no_producers_are_known_as_of_the_flushed_offset(stack: ExitStack) -> None:
    """The snapshot without producers is for the flushed offset instead of the log's end. The marker of an ephemeral id
    is above that, and finds no producer when it is applied again.
    """

    def adopt(self: Any) -> bool:
        here = Snapshot(self._log.flushed_offset, empty=True)
        if self.kept[-1:] == [here]:
            return False
        self._mark = self.taken_bytes
        self.kept.append(here)
        return True

    replaced(stack, ProducerSnapshots._adopt_none, adopt)


@killed_by("tests/crash/test_crash_points.py")
@breaks("guarantees.md: is on disk and is not lost")
def a_sync_covers_folders_that_change_while_it_runs(stack: ExitStack) -> None:
    def synced(self: Any, job: Any) -> None:
        for path, number in job.paths.items():
            if self._unsynced.get(path) == number:
                del self._unsynced[path]
        for path in job.directories:
            self._unsynced_directories.pop(path, None)

    replaced(stack, PartitionLog.synced, synced)


@killed_by("tests/storage/test_system_errors.py")
@breaks("guarantees.md: Lack of file descriptors, memory or permissions does not count as damage")
def an_error_of_the_system_is_damage(stack: ExitStack) -> None:
    _replaced(stack, log_opening, "may_pass", lambda error: False)

    def wrapper(restore: Any) -> Any:
        return lambda *arguments, **more: restore(*arguments, **more | {"unreadable_is_damage": True})

    around(stack, log_opening.restore, wrapper)


@killed_by("tests/broker/topics/test_internal_topic.py")
@breaks("guarantees.md: Lack of file descriptors, memory or permissions does not count as damage")
def what_cannot_be_read_a_second_time_is_damaged(stack: ExitStack) -> None:
    _replaced(stack, internal_topic, "why_refused", lambda error, log: log.offline or str(error))


@killed_by("tests/broker/topics/test_topics.py")
@breaks("guarantees.md: Damage to files below the durable point is never ignored")
def damage_in_what_a_start_reads_is_found_behind_the_replay(stack: ExitStack) -> None:
    replaced(stack, log_opening._check_above, lambda log, look_from: None)


@killed_by("tests/broker/test_bounds.py")
@breaks("guarantees.md: a limit is reached; the message names it")
def partitions_of_deleted_topics_count_on(stack: ExitStack) -> None:
    def wrapper(forget: Any) -> Any:
        def forgotten(self: Any, topic: Any) -> None:
            count = self.partition_count
            forget(self, topic)
            self.partition_count = count

        return forgotten

    around(stack, Topics._forget, wrapper)


@killed_by("tests/broker/test_stored_until_refused.py")
@breaks("guarantees.md: a limit is reached; the message names it")
def settings_of_the_brokers_own_topics_have_no_place_of_their_own(stack: ExitStack) -> None:
    def wrapper(check: Any) -> Any:
        return lambda self, before, after, *, internal=False: check(self, before, after)

    around(stack, Topics._check_sizes, wrapper)


@killed_by("tests/effects/disk/test_system.py")
@breaks("deploy.md: A second broker on the same directory is refused")
def the_lock_of_a_data_directory_is_its_file_alone(stack: ExitStack) -> None:
    replaced(stack, SystemLock._lock_directory, lambda self: None)


@killed_by("tests/effects/disk/test_held.py")
@breaks("deploy.md: it halts when its directory is moved")
def a_locked_directory_is_reached_by_its_path(stack: ExitStack) -> None:
    replaced(stack, HeldDirectories.find, lambda self, path: (path, None))
    replaced(stack, HeldInodes.locate, lambda self, path: (ROOT, parts(path)))


@killed_by("tests/broker/test_outsiders.py")
@breaks("deploy.md: it halts when its directory is moved")
def a_directory_that_was_moved_goes_unnoticed(stack: ExitStack) -> None:
    replaced(stack, HeldInodes.check_not_moved, lambda self, path, seen: None)


@killed_by("tests/cli/serve/test_serving.py")
@breaks("guarantees.md: is on disk and is not lost")
def closed_standard_files_stay_closed(stack: ExitStack) -> None:
    replaced(stack, serving._open_standard_files, lambda: None)


@killed_by("tests/broker/upkeep/test_cleaning.py")
@breaks("guarantees.md: Lack of file descriptors, memory or permissions does not count as damage")
def compaction_takes_no_error_for_one_that_passes(stack: ExitStack) -> None:
    _replaced(stack, cleaning, "may_pass", lambda error: False)


@killed_by("tests/broker/test_few_descriptors.py")
@breaks("guarantees.md: Lack of file descriptors, memory or permissions does not count as damage")
def no_descriptor_left_is_a_failed_write(stack: ExitStack) -> None:
    _replaced(stack, faults, "error_class", lambda number: DiskFull if number in NO_SPACE else OSError)


@killed_by("tests/storage/test_leftovers.py")
@breaks("guarantees.md: Damage to files below the durable point is never ignored")
def every_folder_is_taken_for_a_log(stack: ExitStack) -> None:
    replaced(stack, layout.parse_log_directory_name, lambda name: ("t", 0, 0))


@killed_by("tests/storage/producers/test_producers.py")
@breaks("guarantees.md: A producer with an open transaction is never forgotten")
def producers_are_evicted_within_their_transactions(stack: ExitStack) -> None:
    def evict(self: Any, count: int = 1) -> int:
        first = list(self._producers)[:count]
        for producer_id in first:
            self._idle.setdefault(producer_id, None)
            self._forget(producer_id)
        return len(first)

    replaced(stack, ProducerStates.evict, evict)


@killed_by("tests/cli/log/test_verify.py")
@breaks("guarantees.md: Damage to files below the durable point is never ignored")
def verify_believes_the_index_of_aborted_transactions(stack: ExitStack) -> None:
    replaced(stack, AbortCheck.compare, lambda self, entries: [])


# ---- what readers find ---------------------------------------------------------------------------------------


@killed_by("tests/storage/log/test_reads.py")
@breaks("guarantees.md: aborted read (G1a)")
def what_was_aborted_in_segments_that_are_gone_is_nothing(stack: ExitStack) -> None:
    def run(self: Any) -> Any:
        found = self.run()
        try:
            return found, self._lookup.run()
        except log_reads.Gone:
            return found, []

    replaced(stack, log_reads.ColdRead.run_committed, run)


@killed_by("tests/storage/log/test_reads.py")
@breaks("guarantees.md: aborted read (G1a)")
def what_was_aborted_is_looked_up_when_the_data_was_read(stack: ExitStack) -> None:
    def run(self: Any) -> Any:
        found = self.run()
        aborted = self._log.aborted_between(self._span.offset, found.next_offset)
        return found, aborted if isinstance(aborted, list) else aborted.run()

    replaced(stack, log_reads.ColdRead.run_committed, run)


@killed_by("tests/storage/log/test_reads.py")
@breaks("sdk.md: found[web] is None if no record is that recent")
def no_segment_means_no_such_time(stack: ExitStack) -> None:
    def wrapper(run: Any) -> Any:
        def ran(self: Any) -> Any:
            try:
                return run(self)
            except log_reads.Gone:
                return None

        return ran

    around(stack, log_times._Lookup.run, wrapper)


@killed_by("tests/storage/log/test_reads.py")
@breaks("guarantees.md: Lack of file descriptors, memory or permissions does not count as damage")
def every_error_of_a_reader_is_damage(stack: ExitStack) -> None:
    _replaced(stack, PartitionLog, "holds", lambda self, states: True)


@killed_by("tests/storage/log/test_indexes.py")
@breaks("guarantees.md: aborted read (G1a)")
def aborted_transactions_are_derived_from_one_segment(stack: ExitStack) -> None:
    def wrapper(derive: Any) -> Any:
        return lambda log, states, number: derive(log, states[number : number + 1], 0)

    around(stack, log_indexes._derive_aborted, wrapper)


@killed_by("tests/storage/log/test_indexes.py")
@breaks("guarantees.md: aborted read (G1a)")
def a_walk_goes_on_behind_other_segments(stack: ExitStack) -> None:
    def wrapper(derive: Any) -> Any:
        def derive_on(log: Any, states: Any, number: int) -> Any:
            if log.walked is not None:
                log.walked = log.walked._replace(states=tuple(states[: len(log.walked.states)]))
            return derive(log, states, number)

        return derive_on

    around(stack, log_indexes._derive_aborted, wrapper)


# ---- what little input may take ------------------------------------------------------------------------------


@killed_by("tests/effects/threads/test_executors.py")
@breaks("security.md: What a client can make the broker do is bounded")
def executors_run_what_nobody_wants(stack: ExitStack) -> None:
    replaced(stack, executors.Entry.is_dropped, lambda self, closed: False)


@killed_by("tests/effects/threads/test_executors.py")
@breaks("guarantees.md: is on disk and is not lost")
def executors_drop_writes_when_they_are_closed(stack: ExitStack) -> None:
    replaced(
        stack, executors.Entry.is_dropped, lambda self, closed: closed or (bool(self._wanted) and not self._wanted())
    )


@killed_by("tests/effects/threads/test_executors.py")
@breaks("security.md: What a client can make the broker do is bounded")
def connections_do_not_take_turns_in_executors(stack: ExitStack) -> None:
    def put(self: Any, entry: Any) -> None:
        self._lines.setdefault(None, deque()).append(entry)

    def take(self: Any) -> Any:
        entry = self._lines[None].popleft()
        if not self._lines[None]:
            del self._lines[None]
        return entry

    replaced(stack, executors.FairQueue.put, put)
    replaced(stack, executors.FairQueue.take, take)


@killed_by("tests/effects/net/test_tcp.py")
@breaks("security.md: What a client can make the broker do is bounded")
def who_has_left_is_worked_for(stack: ExitStack) -> None:
    for module in (tcp, connection):
        _replaced(stack, module, "has_left", lambda transport: False)


@killed_by("tests/broker/handlers/test_slow_reads.py")
@breaks("security.md: What a client can make the broker do is bounded")
def a_reply_that_is_still_to_come_counts_nothing(stack: ExitStack) -> None:
    replaced(stack, connection.Slot.expect, lambda self, size_bytes: None)


@killed_by("tests/broker/requests/test_long_produce.py")
@breaks("security.md: What a client can make the broker do is bounded")
def small_batches_are_looked_into_on_the_loop(stack: ExitStack) -> None:
    def wrapper(work: Any) -> Any:
        return lambda self, produced, wall_ms: 0 if len(produced) < 4096 else work(self, produced, wall_ms)

    around(stack, partition.Partition.work_inside, wrapper)


@killed_by("tests/broker/requests/test_long_produce.py")
@breaks("security.md: What a client can make the broker do is bounded")
def what_is_decompressed_is_not_counted(stack: ExitStack) -> None:
    def wrapper(payload_of: Any) -> Any:
        def taken(self: Any, batch: Any) -> bytes:
            left = self._bytes_left, self._records_left
            try:
                payload: bytes = payload_of(self, batch)
                return payload
            finally:
                self._bytes_left, self._records_left = left

        return taken

    around(stack, DecompressionBudget.payload_of, wrapper)


@killed_by("tests/broker/net/test_sending.py")
@breaks("security.md: What a client can make the broker do is bounded")
def slow_answers_are_copied_whole(stack: ExitStack) -> None:
    _replaced(stack, sending, "WINDOW_BYTES", 1 << 40)


@killed_by("tests/broker/net/test_idle_connections.py")
@breaks("settings.md: A connection silent for so long is closed")
def a_download_is_no_activity(stack: ExitStack) -> None:
    def is_active(self: Any) -> bool:
        seen, self.seen = self.seen, False
        return bool(seen)

    replaced(stack, connection.Connection.is_active, is_active)


@killed_by("tests/broker/test_own_writes.py")
@breaks("guarantees.md: a connection does not see its own writes")
def a_reader_does_not_wait_for_the_writes_of_its_connection(stack: ExitStack) -> None:
    for handler in load_handlers().values():
        _replaced(stack, handler, "reads_released", False)


@killed_by("tests/broker/topics/test_producer_limit.py")
@breaks("guarantees.md: a new one replaces the one that has not written for the longest time")
def a_full_table_of_producers_refuses_new_ones(stack: ExitStack) -> None:
    replaced(stack, ProducerLimit._evict, lambda self, count: False)


@killed_by("tests/broker/topics/test_producer_limit.py")
@breaks("guarantees.md: a limit is reached; the message names it")
def producers_of_deleted_topics_count(stack: ExitStack) -> None:
    replaced(stack, ProducerLimit._subtract_deleted, lambda self: None)


@killed_by("tests/broker/transactions/test_coordinator.py")
@breaks("guarantees.md: a new one replaces the least recently used")
def an_id_that_made_room_is_back_after_a_restart(stack: ExitStack) -> None:
    def forget(self: Any, transactional_ids: Any) -> None:
        for transactional_id in transactional_ids:
            self.apply(transactional_id, None)

    replaced(stack, TransactionCoordinator.forget, forget)


@killed_by("tests/broker/handlers/test_ledger.py")
@breaks("guarantees.md: A prepared transaction has its own timeout")
def whoever_prepares_may_wait_for_ever(stack: ExitStack) -> None:
    replaced(stack, Ledger._check_limits, lambda self, timeout_ms: None)


@killed_by("tests/broker/groups/test_coordinator.py")
@breaks("security.md: What a client can make the broker do is bounded")
def groups_take_no_memory(stack: ExitStack) -> None:
    replaced(stack, GroupMemory.count, lambda *arguments: None)


@killed_by("tests/broker/groups/consumer/test_coordinator.py")
@breaks("security.md: What a client can make the broker do is bounded")
def each_heartbeat_queues_an_assignment_until_one_is_begun(stack: ExitStack) -> None:
    def assign(self: Any, group: Any, now_ms: int) -> None:
        if group.is_assignment_due(now_ms):
            self._begin(group, self._assign(group))

    _replaced(stack, ConsumerGroups, "_assign_if_due", assign)


@killed_by("tests/broker/handlers/test_configs.py")
@breaks("settings.md: for the day when what was set so keeps everybody out")
def a_setting_that_locks_everybody_out_is_taken(stack: ExitStack) -> None:
    replaced(stack, Option.parse_dynamic, Option.parse)


@killed_by("tests/broker/handlers/test_cluster.py")
@breaks("S-57")
def topics_of_coordinators_are_made_with_one_partition(stack: ExitStack) -> None:
    replaced(stack, Topics.auto_create, lambda self, name: self.create(name, 1))


@killed_by("tests/storage/test_leftovers.py")
@breaks("guarantees.md: Damage to files below the durable point is never ignored")
def numbers_in_names_may_be_written_in_any_way(stack: ExitStack) -> None:
    def parse(name: str, prefix: str) -> int | None:
        digits = name.removeprefix(prefix)
        return int(digits) if name.startswith(prefix) and digits.isdigit() else None

    replaced(stack, layout.parse_number, parse)


@killed_by("tests/console/rest/test_actions.py")
@breaks("console.md: refused if the transaction is")
def a_fence_ends_whatever_the_id_has_open_by_then(stack: ExitStack) -> None:
    async def fence(self: Any, found: Any) -> Any:
        name = found.transactional_id
        return (await self.fence_producers(name))[name]

    replaced(stack, TransactionAdmin.fence_described, fence)


@killed_by("tests/broker/transactions/states/test_renewal.py")
@breaks("guarantees.md: No pair of producer id and epoch is assigned that may have been assigned")
def a_pair_of_before_a_restore_may_come_again(stack: ExitStack) -> None:
    def wrapper(renew: Any) -> Any:
        def renewed(txn: Any, given: Any) -> Any:
            *before, last = (decision := renew(txn, given)).states
            return decision._replace(states=(*before, last._replace(last_producer_epoch=txn.last_producer_epoch)))

        return renewed

    around(stack, renewal.with_new_producer_id, wrapper)


@killed_by("tests/broker/handlers/test_fetch.py")
@breaks("guarantees.md: Damage to files below the durable point is never ignored")
def a_session_is_not_told_that_a_partition_is_offline(stack: ExitStack) -> None:
    def wrapper(has_no_news: Any) -> Any:
        def known(wanted: Any, partition: Any) -> bool:
            with mock.patch.object(partition.log, "offline", None):
                return bool(has_no_news(wanted, partition))

        return known

    _around(stack, running_fetch, "has_no_news", wrapper)


@killed_by("tests/broker/handlers/test_committed_only.py")
@breaks("transactions.md: no reader is given records of transactions that are open or were aborted")
def a_reader_waits_where_all_that_was_read_is_left_out(stack: ExitStack) -> None:
    def wrapper(take: Any) -> Any:
        return lambda self, read, found: take(self, read, found._replace(is_full=True))

    around(stack, running_fetch.RunningFetch._take_committed, wrapper)


@killed_by("tests/broker/requests/test_aborted_filter.py")
@breaks("transactions.md: no reader is given records of transactions that are open or were aborted")
def the_marker_of_what_is_left_out_goes_as_well(stack: ExitStack) -> None:
    def hold(self: Any, header: Any) -> bool:
        return any(first <= header.last_offset <= marker for first, marker in self._ranges.get(header.producer_id, ()))

    replaced(stack, aborted_filter.AbortedRanges.hold, hold)


@killed_by("tests/broker/requests/test_aborted_filter.py")
@breaks("transactions.md: no reader is given records of transactions that are open or were aborted")
def a_producer_that_aborted_once_is_left_out_for_ever(stack: ExitStack) -> None:
    def hold(self: Any, header: Any) -> bool:
        return header.producer_id in self._ranges and not header.is_control

    replaced(stack, aborted_filter.AbortedRanges.hold, hold)

"""The bank of bugs, around the core: what accumulates, what the system does not give, who else touches the directory.

Each names the test file that catches it.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

import importlib
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

from fencepost.broker.config.configuration import accepted_names
from fencepost.broker.groups import offset_log
from fencepost.broker.groups.consumer.machine import ConsumerGroup
from fencepost.broker.handlers import configs as configs_handlers
from fencepost.broker.quotas.mutes import Mutes
from fencepost.broker.requests.services import Services
from fencepost.broker.rounds import Rounds
from fencepost.broker.security import user_changes
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.stopping import Stopping
from fencepost.broker.topics.config_sizes import ConfigSizes
from fencepost.broker.topics.topics import Topics
from fencepost.broker.transactions.admission import Admission
from fencepost.cli import backup as backup_command
from fencepost.effects.disk import aio, locks
from fencepost.effects.threads import executors
from fencepost.protocol import errors
from fencepost.protocol import records as protocol_records
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.storage import checkpoints
from fencepost.storage.backup import journal_copy
from fencepost.storage.free_space import FreeSpace
from fencepost.storage.journal import kept_parts
from fencepost.storage.upkeep import Upkeep
from simulation.planting import _around, _replaced, around, breaks, killed_by, replaced

NO_BOUND = 1 << 60

# ---- what accumulates, and what little input may take ------------------------------------------------------------


@killed_by("tests/broker/topics/test_config_sizes.py")
@breaks("security.md: What a client can make the broker do is bounded")
def settings_grow_without_bounds(stack: ExitStack) -> None:
    replaced(stack, ConfigSizes.check, lambda self, before, after, most_bytes: None)


@killed_by("tests/broker/topics/test_config_sizes.py")
@breaks("guarantees.md: a limit is reached; the message names it")
def settings_of_deleted_topics_keep_their_room(stack: ExitStack) -> None:
    def wrapper(change: Any) -> Any:
        return lambda self, before, after: change(self, before, after) if after else None

    around(stack, ConfigSizes.change, wrapper)


@killed_by("tests/broker/handlers/test_configs.py")
@breaks("security.md: What a client can make the broker do is bounded")
def settings_of_a_broker_that_nobody_knows_are_kept(stack: ExitStack) -> None:
    def wrapper(check: Any) -> Any:
        return lambda names: check([name for name in names if name in accepted_names()])

    around(stack, configs_handlers._check_settable, wrapper)


@killed_by("tests/broker/test_bounds.py")
@breaks("security.md: What a client can make the broker do is bounded")
def partitions_of_all_topics_have_no_bound(stack: ExitStack) -> None:
    replaced(stack, Topics.check_room, lambda self, added: None)


@killed_by("tests/broker/groups/test_offset_log.py")
@breaks("security.md: What a client can make the broker do is bounded")
def offsets_are_judged_when_their_records_are_made(stack: ExitStack) -> None:
    replaced(stack, offset_log._least_bytes, lambda group, keys: 0)


@killed_by("tests/broker/groups/test_offset_log.py")
@breaks("security.md: What a client can make the broker do is bounded")
def all_offsets_of_a_group_are_forgotten_in_one_batch(stack: ExitStack) -> None:
    replaced(stack, offset_log._at_once, lambda group: NO_BOUND)


@killed_by("tests/broker/security/test_authorizer.py")
@breaks("security.md: as Apache Kafka's authorizer of that name does it")
def a_filter_by_principal_finds_no_rules(stack: ExitStack) -> None:
    replaced(stack, Authorizer._of_principal, lambda self, text: [])


@killed_by("tests/broker/net/test_refusals.py")
@breaks("security.md: What a client can make the broker do is bounded")
def an_error_quotes_all_that_a_client_sent(stack: ExitStack) -> None:
    _replaced(stack, errors, "_LONGEST_TEXT", NO_BOUND)


@killed_by("tests/broker/topics/test_large_batches.py")
@breaks("guarantees.md: is on disk and is not lost")
def what_was_committed_is_damaged_because_it_is_large(stack: ExitStack) -> None:
    def wrapper(payload_of: Any) -> Any:
        def bounded(batch: Any, limit: int) -> bytes:
            if batch.size > limit:
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"more than {limit} bytes")
            payload: bytes = payload_of(batch, limit)
            return payload

        return bounded

    around(stack, protocol_records.payload_of, wrapper)


@killed_by("tests/storage/test_checkpoints.py")
@breaks("guarantees.md: is on disk and is not lost")
def a_file_is_written_that_nobody_would_read(stack: ExitStack) -> None:
    def wrapper(write: Any) -> Any:
        def written(disk: Any, path: str, kind: str, version: int, payload: bytes) -> None:
            with mock.patch.object(checkpoints, "LARGEST_BYTES", NO_BOUND):
                write(disk, path, kind, version, payload)

        return written

    around(stack, checkpoints.write_file, wrapper)


@killed_by("tests/broker/quotas/test_mutes.py")
@breaks("security.md: the broker reads nothing more from that connection for so long")
def a_shorter_wait_ends_a_longer_one(stack: ExitStack) -> None:
    def wrapper(mute: Any) -> Any:
        def muted(self: Any, connection: Any, wait_ms: int) -> None:
            if connection in self._until_ms:
                self._until_ms[connection] = 0
            mute(self, connection, wait_ms)

        return muted

    around(stack, Mutes.mute, wrapper)


# ---- what the system does not give, or gives late ----------------------------------------------------------------


@killed_by("tests/effects/threads/test_starting.py")
@breaks("deploy.md: 6 are enough")
def an_executor_begins_without_a_thread(stack: ExitStack) -> None:
    """Its jobs wait for ever, those that make data durable among them."""

    def wrapper(init: Any) -> Any:
        def begun(self: Any, *arguments: Any, **more: Any) -> None:
            with mock.patch.object(executors.ThreadExecutor, "_start_thread"):
                init(self, *arguments, **more)

        return begun

    around(stack, executors.ThreadExecutor.__init__, wrapper)


@killed_by("tests/broker/test_few_threads.py")
@breaks("guarantees.md: Lack of file descriptors, memory or permissions does not count as damage")
def a_thread_that_does_not_start_is_a_failed_write(stack: ExitStack) -> None:
    def wrapper(start: Any) -> Any:
        def started(run: Any, name: str, *arguments: Any) -> Any:
            try:
                return start(run, name, *arguments)
            except executors.CannotStartThread:
                raise RuntimeError("can't start new thread") from None

        return started

    _around(stack, executors, "start_thread", wrapper)


@killed_by("tests/effects/disk/test_aio_waiting.py")
@breaks("security.md: What a client can make the broker do is bounded")
def writes_are_begun_where_the_loop_waits_for_them(stack: ExitStack) -> None:
    replaced(stack, aio.AioWriter._judge, lambda self, took_ns: None)


@killed_by("tests/effects/disk/test_system.py")
@breaks("deploy.md: A second broker on the same directory is refused")
def a_lock_is_not_let_go_where_its_file_system_is_gone(stack: ExitStack) -> None:
    _replaced(stack, locks, "contextlib", SimpleNamespace(suppress=lambda *errors: nullcontext()))


@killed_by("tests/broker/test_rounds.py")
@breaks("ARCHITECTURE.md: A failed write or sync halts the broker")
def who_waits_for_an_idle_journal_is_not_told_of_a_halt(stack: ExitStack) -> None:
    def wrapper(call_idle: Any) -> Any:
        return lambda self: call_idle(self) if self._store.halted is None else None

    around(stack, Rounds._call_idle, wrapper)


@killed_by("tests/broker/test_stopping.py")
@breaks("deploy.md: waits until open writes are durable")
def a_stop_takes_all_the_time_that_its_disk_takes(stack: ExitStack) -> None:
    replaced(stack, Stopping.has_time, lambda self: True)


@killed_by("tests/broker/test_stopping.py")
@breaks("deploy.md: waits until open writes are durable")
def a_stop_does_not_say_what_it_waits_for(stack: ExitStack) -> None:
    replaced(stack, Stopping.waits_for, lambda self, what: nullcontext())


# ---- who else is there: a busy broker, a power cut, a compaction -------------------------------------------------


@killed_by("tests/cli/log/test_verify.py")
@breaks("cli.md: damage counts if the broker did not replace what was read meanwhile")
def verify_believes_its_first_look_at_a_busy_directory(stack: ExitStack) -> None:
    module = importlib.import_module("fencepost.cli.log.verify")  # the package's `verify` is the command
    _replaced(stack, module, "OVERTAKEN_BY", NO_BOUND)


@killed_by("tests/storage/backup/test_journal_copy.py")
@breaks("guarantees.md: A backup is the state of one moment")
def a_backup_believes_one_scan_of_a_journal_in_use(stack: ExitStack) -> None:
    _replaced(stack, journal_copy, "BELIEVED_AFTER", 1)


@killed_by("tests/cli/backup/test_backup.py")
@breaks("guarantees.md: A backup is the state of one moment")
def a_backup_of_damage_ends_as_one_of_all(stack: ExitStack) -> None:
    _replaced(stack, backup_command, "FAILED", 0)


@killed_by("tests/storage/journal/test_kept_names.py")
@breaks("guarantees.md: are kept until the files are restored")
def the_folder_of_kept_parts_may_go_with_a_power_cut(stack: ExitStack) -> None:
    def wrapper(write: Any) -> Any:
        def written(disk: Any, directory: str, *more: Any) -> Any:
            sync = disk.sync_directory

            def skipped(path: str) -> None:
                if path != directory:
                    sync(path)

            with mock.patch.object(disk, "sync_directory", skipped):
                return write(disk, directory, *more)

        return written

    around(stack, kept_parts.write, wrapper)


@killed_by("tests/storage/test_upkeep.py")
@breaks("guarantees.md: Lack of file descriptors, memory or permissions does not count as damage")
def a_folder_goes_under_its_compaction(stack: ExitStack) -> None:
    def wrapper(find: Any) -> Any:
        def found(self: Any, run: Any) -> Any:
            compacting = [log for log in self._leaving if log.compacting]
            for log in compacting:
                log.compacting = False
            gone = find(self, run)
            for log in compacting:
                log.compacting = True
            return gone

        return found

    around(stack, Upkeep._logs_to_remove, wrapper)


# ---- what is said of it ------------------------------------------------------------------------------------------


@killed_by("tests/storage/test_free_space.py")
@breaks("guarantees.md: the disk is nearly full")
def nobody_is_told_that_the_disk_is_low(stack: ExitStack) -> None:
    replaced(stack, FreeSpace._say_low, lambda self: None)


@killed_by("tests/broker/requests/test_services.py")
@breaks("guarantees.md: a limit is reached; the message names it")
def the_limit_that_a_client_met_is_not_named(stack: ExitStack) -> None:
    replaced(stack, Services.note_limit, lambda self, api_name, host, client_id, error: None)


@killed_by("tests/broker/handlers/test_transactions.py")
@breaks("guarantees.md: the topic does not exist, or was deleted and created again")
def a_topic_made_again_in_a_transaction_is_not_named(stack: ExitStack) -> None:
    replaced(stack, Admission.is_remade, lambda self, transactional_id, partition: False)


@killed_by("tests/broker/groups/consumer/test_machine.py")
@breaks("sdk.md: closed consumer's partitions wait for its successor")
def a_static_member_whose_join_was_lost_waits_for_itself(stack: ExitStack) -> None:
    def wrapper(admit: Any) -> Any:
        def admitted(self: Any, beat: Any, instance_id: str) -> None:
            owner = self.static.get(instance_id)
            if owner is not None and beat.epoch == 0:
                self._check_released(owner, beat.member_id, instance_id)
            admit(self, beat, instance_id)

        return admitted

    around(stack, ConsumerGroup._admit_static, wrapper)


@killed_by("tests/broker/security/test_user_changes.py")
@breaks("security.md: have, as often as users have them")
def a_salted_password_has_one_size(stack: ExitStack) -> None:
    def wrapper(why_not: Any) -> Any:
        def judged(users: Any, asked: Any) -> Any:
            if len(getattr(asked, "salted_password", bytes(32))) not in (32, 64):
                return user_changes._unacceptable("Salted password must be of 32 or 64 bytes")
            return why_not(users, asked)

        return judged

    around(stack, user_changes._why_not, wrapper)

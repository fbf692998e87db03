"""The bank of bugs, for the journal and its rounds: each names the test file that catches it.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack
from typing import Any

from fencepost.broker.rounds import Rounds
from fencepost.effects.simulated.disk import SimulatedDisk, SimulatedFile
from fencepost.effects.simulated.operations import Sync
from fencepost.storage import recovery, store_checkpoint
from fencepost.storage.journal import scan as journal_scan
from fencepost.storage.journal.journal import Journal
from fencepost.storage.journal.round_write import RoundWrite
from simulation.planting import _around, around, breaks, killed_by, replaced


@killed_by("tests/storage/journal/test_scan.py")
@breaks("guarantees.md: is on disk and is not lost")
def a_journal_may_lack_what_a_checkpoint_says_was_synced(stack: ExitStack) -> None:
    def wrapper(scan: Any) -> Any:
        return lambda *arguments, **more: scan(*arguments, **more | {"synced_unit": 0})

    for module in (journal_scan, store_checkpoint):
        _around(stack, module, "scan", wrapper)


@killed_by("tests/crash/test_crash_points.py")
@breaks("guarantees.md: transactions and committed offsets are there wholly or not at all")
def a_checkpoint_needs_no_sync_for_units_of_several_logs(stack: ExitStack) -> None:
    """In mode os, after a power cut one log has its part of a unit, from a segment; that of the other log was in a
    journal that was never synced.
    """

    def wrapper(append: Any) -> Any:
        def appended(self: Any, parts: Any) -> Any:
            unit = append(self, parts)
            self.last_joint_unit = 0
            return unit

        return appended

    around(stack, Journal.append, wrapper)
    around(stack, Journal.append_batches, wrapper)


@killed_by("tests/crash/test_crash_points.py")
@breaks("guarantees.md: offset reuse, phantom read after a crash")
def a_journal_is_read_from_its_oldest_file_on(stack: ExitStack) -> None:
    def wrapper(scan: Any) -> Any:
        return lambda *arguments, start, **more: scan(*arguments, **more)

    _around(stack, store_checkpoint, "scan", wrapper)


@killed_by("tests/storage/journal/test_crashes.py")
@breaks("guarantees.md: is on disk and is not lost")
def a_file_that_is_used_again_is_not_synced(stack: ExitStack) -> None:
    replaced(stack, SimulatedFile.write_synced, lambda self, buffers, position: self.write(buffers, position))


@killed_by("tests/storage/journal/test_crashes.py")
@breaks("guarantees.md: is on disk and is not lost")
def blocks_that_are_written_in_one_call_are_not_synced(stack: ExitStack) -> None:
    def written(self: Any, buffers: Any, position: int, size_bytes: int) -> bool:
        self.write(buffers, position)
        return True

    replaced(stack, SimulatedFile.write_blocks_synced, written)


@killed_by("tests/storage/journal/test_syncs.py")
@breaks("guarantees.md: is on disk and is not lost")
def a_round_whose_blocks_were_refused_is_taken_for_written(stack: ExitStack) -> None:
    def wrapper(write: Any) -> Any:
        return lambda self: (write(self), True)[1]

    around(stack, RoundWrite._write_blocks, wrapper)


@killed_by("tests/storage/journal/test_in_flight.py")
@breaks("guarantees.md: is on disk and is not lost")
def a_synced_write_is_taken_for_a_sync_of_all_before(stack: ExitStack) -> None:
    """In modes os and interval, a round is written with a sync of its own alone, although units before it were never
    synced.
    """

    def wrapper(take: Any) -> Any:
        def taken(self: Any, *, sync: bool) -> Any:
            write = take(self, sync=sync)
            if write is not None:
                write._own_sync_is_enough = True
            return write

        return taken

    around(stack, Journal.take_round, wrapper)


@killed_by("tests/storage/journal/test_crashes.py")
@breaks("guarantees.md: Damage to files below the durable point is never ignored")
def a_round_says_of_those_in_flight_before_it_that_they_were_synced(stack: ExitStack) -> None:
    """A crash that leaves this round, and loses one before it, is taken for damage: the broker does not start."""

    def wrapper(close: Any) -> Any:
        def closed(self: Any, *, ends_file: bool = False) -> None:
            synced, self._synced_round = self._synced_round, self._next_round - 1
            close(self, ends_file=ends_file)
            self._synced_round = synced

        return closed

    around(stack, Journal._close_round, wrapper)


@killed_by("tests/effects/simulated/test_writer.py")
@breaks("guarantees.md: is on disk and is not lost")
def a_synced_write_makes_all_before_it_durable(stack: ExitStack) -> None:
    """The simulation would be kinder than a device, and meet no bug of rounds in flight together."""
    replaced(stack, SimulatedDisk.sync, lambda self, file, only=None: _sync_all(self, file))


def _sync_all(disk: Any, file: Any) -> None:
    disk._perform(Sync(disk.next_index, file.path, file.inode))


@killed_by("tests/broker/test_rounds_in_flight.py")
@breaks("guarantees.md: is on disk and is not lost")
def rounds_are_begun_beside_others_though_a_sync_of_all_is_asked_for(stack: ExitStack) -> None:
    """Under a load without a pause, a checkpoint that waits for that sync would wait for ever."""

    def wrapper(may_overlap: Any) -> Any:
        def asked(self: Any) -> bool:
            sync_next, self._sync_next = self._sync_next, False
            try:
                return bool(may_overlap(self))
            finally:
                self._sync_next = sync_next

        return asked

    around(stack, Rounds._may_overlap, wrapper)


@killed_by("tests/storage/journal/test_kept_parts.py")
@breaks("guarantees.md: are kept until the files are restored")
def of_kept_parts_the_damaged_file_alone_is_to_be_removed(stack: ExitStack) -> None:
    replaced(stack, recovery._without, lambda log, path: f"without {path}, removed, the log opens")


@killed_by("tests/storage/journal/test_kept_parts.py")
@breaks("guarantees.md: are kept until the files are restored")
def parts_of_the_journal_that_were_kept_are_not_applied(stack: ExitStack) -> None:
    replaced(stack, recovery._Recovery._apply_kept, lambda self, age_ms: None)

"""A system error at any step of a start, or of a store's work, loses no record, and damages nothing."""

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from failing_steps import fail_each_step
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Open, Read
from fencepost.storage import layout
from fencepost.storage.log import opening as log_opening
from fencepost.storage.system_errors import is_limit, may_pass
from recovery_oracle import SETTINGS, Workload, check
from scripted_workloads import WORKLOADS, producer_snapshots
from store_driver import DIRECTORY, Driven

pytestmark = pytest.mark.slow

GOES_ON = replace(SETTINGS, unreadable_logs_offline=True)
APART = 5  # a sampled test fails every fifth step of a workload

Script = Callable[[SimulatedDisk], Any]


@pytest.mark.parametrize(
    ("numbers", "limit", "passes"),
    [
        ([errno.EMFILE, errno.ENFILE, errno.ENOMEM], True, True),
        ([errno.EINTR, errno.EAGAIN, errno.EACCES, errno.EPERM], False, True),
        ([errno.EIO, errno.ENOSPC, errno.ENOENT, errno.EROFS, errno.ESTALE], False, False),
    ],
)
def test_is_limit_and_may_pass_classify_each_errno_as_listed(numbers, limit, passes):
    for number in numbers:
        error = OSError(number, "")
        assert is_limit(error) is limit
        assert may_pass(error) is passes


def name_of(workload: Script) -> str:
    return workload.__name__


def left_by(workload: Script) -> Callable[[], SimulatedDisk]:
    """Return a function that gives the disk as a crash after this workload leaves it, anew at each call."""
    disk = SimulatedDisk()
    workload(disk)
    return disk.after_process_crash


def start(disk: SimulatedDisk) -> Driven:
    return Driven(disk, settings=SETTINGS)


def check_later_starts(disk: SimulatedDisk) -> None:
    for again in (disk.after_process_crash(), disk.after_power_cut()):
        check(again)


def judge_start(disk: SimulatedDisk, started: Driven | None) -> None:
    """Check that no log is offline after a start that succeeded, and that later starts lose no record."""
    assert started is None or not started.report.offline
    check_later_starts(disk)


@pytest.mark.parametrize("workload", WORKLOADS, ids=name_of)
def test_a_system_error_at_sampled_steps_of_a_start_loses_no_record(workload: Script) -> None:
    turn = WORKLOADS.index(workload)
    assert fail_each_step(left_by(workload), start, judge_start, turn=turn, apart=APART) > 5


def test_a_system_error_at_each_step_of_a_start_loses_no_record() -> None:
    assert fail_each_step(left_by(producer_snapshots), start, judge_start) > 40


def test_a_start_that_fails_by_a_system_error_while_reading_changes_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start only reads until it prepares the first log for appends, which is its first call of tidy()."""
    make = left_by(producer_snapshots)
    before = len(make().operations)
    tidied: list[object] = []
    checked: list[SimulatedDisk] = []
    original = log_opening.tidy
    monkeypatch.setattr(log_opening, "tidy", lambda log: (tidied.append(log), original(log)))

    def begin(disk: SimulatedDisk) -> Driven:
        tidied.clear()
        return start(disk)

    def judge(disk: SimulatedDisk, started: Driven | None) -> None:
        if started is None and not tidied:
            checked.append(disk)
            assert {one.path for one in disk.operations[before:]} <= {f"{DIRECTORY}/lock"}

    fail_each_step(make, begin, judge)
    assert len(checked) > 20


@pytest.mark.parametrize("workload", WORKLOADS, ids=name_of)
def test_a_system_error_in_a_flush_checkpoint_or_journal_write_loses_no_record(
    workload: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[Workload] = []
    original = Workload.__init__

    def note(store: Workload, *arguments: Any, **options: Any) -> None:
        original(store, *arguments, **options)
        alive.append(store)

    def judge(disk: SimulatedDisk, done: object) -> None:
        for each in alive:
            assert {log.offline for log in each.store.logs.values()} == {None}
        alive.clear()
        check_later_starts(disk)

    monkeypatch.setattr(Workload, "__init__", note)
    turn = WORKLOADS.index(workload)
    assert fail_each_step(SimulatedDisk, workload, judge, turn=turn, apart=APART) > 5


@pytest.mark.parametrize("workload", WORKLOADS, ids=name_of)
def test_a_start_goes_on_without_the_log_of_an_unreadable_file_if_it_may(workload: Script) -> None:
    """The setting unreadable_logs_offline is on. No other log is taken offline."""
    make = left_by(workload)
    logs = Driven(make(), settings=SETTINGS).store.logs.values()
    folders = [log.directory for log in logs if log.topic != layout.CATALOGUE_TOPIC]
    paths = [
        f"{folder}/{name}" for folder in folders for name in (make().list(folder) if make().exists(folder) else [])
    ]
    for path in paths:
        disk = make()
        unreadable(disk, path)
        started = Driven(disk, settings=GOES_ON)
        others = [log for log in started.store.logs.values() if not path.startswith(f"{log.directory}/")]
        assert [log.directory for log in others if log.offline is not None] == []
        check_later_starts(disk)


def test_a_producer_snapshot_that_cannot_be_read_is_replaced_by_the_one_before() -> None:
    make = left_by(producer_snapshots)
    disk = Driven(make(), settings=SETTINGS).disk.after_process_crash()
    log = Driven(disk.after_process_crash(), settings=SETTINGS).log("a")
    older, newest = log.snapshots.kept
    assert not older.empty
    unreadable(disk, log.snapshots.path(newest))
    started = Driven(disk, settings=GOES_ON).log("a")
    assert started.offline is None
    assert sorted(map(tuple, started.producers.describe())) == sorted(map(tuple, log.producers.describe()))


def unreadable(disk: SimulatedDisk, path: str) -> None:
    """Let every later open or read of this file fail."""
    disk.fail(lambda one: isinstance(one, Open | Read) and one.path == path, error=errno.EIO, times=None)

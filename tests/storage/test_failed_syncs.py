"""The kernel reports a failed sync to one caller only; the pool of open files reports it to every later caller, too."""

import errno

import pytest
from fencepost.effects.disk import DiskFull
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Sync
from fencepost.storage.store import StoreSettings
from log_driver import LogDriver
from store_driver import Driven, values_of

ONE_OPEN_FILE = StoreSettings(journal_max_bytes=1 << 20, tail_max_bytes=1 << 20, min_free_bytes=0, max_open_files=1)


def flush_and_checkpoint_that_meet_a_failing_file():
    """Return a store with a flush and a checkpoint that have begun, and both have to sync the same file, which fails.

    The flush syncs it to make room in the pool of open files; the checkpoint names it as durable.
    """
    driver = Driven(SimulatedDisk(), settings=ONE_OPEN_FILE)
    log, other = driver.create("t"), driver.create("u")
    driver.append(log, [b"acknowledged"])
    driver.round()
    driver.flush()
    driver.append(other, [b"x"])
    driver.round(sync=True)
    failing = next(f"{log.directory}/{name}" for name in driver.disk.list(log.directory) if name.endswith(".log"))
    flush, checkpoint = driver.upkeep.begin_flush(), driver.begin_checkpoint()
    driver.round(sync=True)
    driver.disk.fail_sync(lambda path: path == failing)
    return driver, flush, checkpoint


def test_a_checkpoint_fails_if_another_worker_failed_to_sync_one_of_its_files():
    _, flush, checkpoint = flush_and_checkpoint_that_meet_a_failing_file()
    with pytest.raises(OSError):
        flush.run()
    with pytest.raises(OSError):
        checkpoint.run()


def test_a_failed_sync_in_one_of_two_workers_loses_no_acknowledged_record():
    driver, flush, checkpoint = flush_and_checkpoint_that_meet_a_failing_file()
    for run in (flush, checkpoint):
        with pytest.raises(OSError):
            run.run()
    again = Driven(driver.disk.after_power_cut())
    assert not again.log("t").offline
    assert values_of(again.log("t")) == [(0, b"acknowledged")]


def test_a_segment_sync_that_fails_with_enospc_does_not_raise_disk_full():
    """After DiskFull the broker tries again. But a failed sync may have lost written bytes, so the broker must halt."""
    disk = SimulatedDisk()
    driver = LogDriver(disk)
    driver.values(b"value")
    driver.flush()
    disk.fail(lambda one: isinstance(one, Sync), error=errno.ENOSPC)
    job = driver.log.sync_job()
    assert job is not None
    with pytest.raises(OSError) as raised:
        job.run()
    assert not isinstance(raised.value, DiskFull)

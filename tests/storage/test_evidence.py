"""What recovery keeps back of a log that it cannot make whole, and that the log stays offline until somebody acts."""

from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol import batches
from store_driver import DIRECTORY, Driven, batch_of, values_of


def test_a_log_that_misses_a_part_of_the_journal_stays_offline_over_restarts():
    driver = Driven(SimulatedDisk())
    log = driver.create("t")
    driver.append(log, [b"a"])
    driver.round()
    batch = batches.check_produced(memoryview(batch_of([b"after a hole"])))
    driver.store.journal.append_batch(log.log_id, 5, batches.stamped(batch, 5), batch.buffer[16:])
    driver.round(sync=True)
    again = Driven(driver.disk.after_power_cut())
    assert "goes on at offset 5" in again.log("t").offline
    once_more = Driven(again.disk.after_power_cut())
    assert "journal-parts-0" in once_more.log("t").offline


def test_evidence_in_a_folder_that_was_gone_survives_a_power_cut():
    driver = Driven(SimulatedDisk())
    log = driver.create("t")
    driver.append(log, [b"a"])
    driver.round()
    driver.flush()
    driver.checkpoint()
    driver.append(log, [b"acknowledged"])
    driver.round(sync=True)
    disk = driver.disk.after_power_cut()
    disk.remove_tree(log.directory)
    disk.sync_directory(f"{DIRECTORY}/logs")
    again = Driven(disk)
    assert again.log("t").offline
    cut = again.disk.after_power_cut()
    assert cut.exists(log.directory + "/journal-parts-0")


def test_an_offline_log_does_not_keep_others_from_starting():
    driver = Driven(SimulatedDisk())
    log, other = driver.create("t"), driver.create("u")
    driver.append(log, [b"a"])
    driver.append(other, [b"b"])
    driver.round()
    driver.flush()
    driver.checkpoint()
    disk = driver.disk.after_power_cut()
    disk.remove_tree(log.directory)
    again = Driven(disk)
    assert again.log("t").offline
    assert values_of(again.log("u")) == [(0, b"b")]

"""Flushes, checkpoints and removals beside each other: what a slow worker still writes to is not taken away."""

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from store_driver import DIRECTORY, Driven


@pytest.mark.parametrize("flushed_before", [True, False], ids=["its folder is there", "its folder is not made yet"])
def test_a_topic_deleted_during_a_slow_flush_neither_fails_that_nor_leaves_its_folder(flushed_before):
    driver = Driven(SimulatedDisk())
    log = driver.create("t")
    if flushed_before:
        driver.append(log, [b"a"])
        driver.round()
        driver.flush()
        driver.checkpoint()
    driver.append(log, [b"b" * 10])
    driver.round()
    flush = driver.upkeep.begin_flush()
    driver.store.commit([driver.store.drop_part(log)])
    driver.round()
    driver.checkpoint()
    driver.checkpoint()
    flush.run()
    driver.upkeep.flushed(flush)
    assert driver.upkeep.behind
    while driver.upkeep.behind:
        driver.checkpoint()
    assert driver.disk.list(f"{DIRECTORY}/logs") == []


def test_a_deleted_topic_goes_from_the_disk_with_the_second_checkpoint_that_does_not_name_it():
    driver = Driven(SimulatedDisk())
    log = driver.create("t")
    driver.append(log, [b"a"])
    driver.round()
    driver.flush()
    driver.checkpoint()
    driver.store.commit([driver.store.drop_part(log)])
    driver.round()
    driver.checkpoint()
    assert driver.disk.exists(log.directory)
    driver.checkpoint()
    assert not driver.disk.exists(log.directory)

"""When "no producer is remembered" counts as the state of a log: as of the offset where it was seen, and not below."""

from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.records import Marker
from fencepost.storage.producers import RETIRED_EPOCH
from log_driver import LogDriver

PRODUCER = 7


def a_transaction_in_segments() -> LogDriver:
    """Its data is flushed, its end is still to come."""
    driver = LogDriver(SimulatedDisk(history=True))
    driver.values(b"plain")
    fields = {"producer_epoch": RETIRED_EPOCH - 1, "base_sequence": 0, "transactional": True}
    driver.values(b"of a transaction", producer_id=PRODUCER, **fields)
    driver.flush()
    return driver


def values(driver: LogDriver) -> list[bytes]:
    return [record.value for record in driver.committed()]


def test_an_abort_in_the_tail_that_forgets_its_producer_still_aborts_after_a_crash():
    driver = a_transaction_in_segments()
    driver.marker(PRODUCER, RETIRED_EPOCH, Marker.ABORT)
    assert not driver.log.producers
    driver.checkpoint()
    driver.reopen()
    assert values(driver) == [b"plain"]
    assert not driver.log.producers


def test_an_abort_in_the_tail_whose_producer_is_evicted_still_aborts_after_a_crash():
    driver = a_transaction_in_segments()
    driver.marker(PRODUCER, RETIRED_EPOCH - 1, Marker.ABORT)
    assert driver.log.producers.evict() == 1
    driver.checkpoint()
    driver.reopen()
    assert values(driver) == [b"plain"]


def test_that_no_producer_is_left_counts_once_all_that_it_is_true_of_is_flushed():
    driver = a_transaction_in_segments()
    driver.marker(PRODUCER, RETIRED_EPOCH, Marker.ABORT)
    for _ in range(2):  # however often it is looked at
        assert driver.log.manifest().snapshot_floor == 0
    driver.flush()
    assert driver.log.manifest().snapshot_floor == 3
    driver.checkpoint()
    driver.reopen()
    assert driver.log.snapshots.taken_bytes == 0  # nothing was scanned
    assert values(driver) == [b"plain"]


def test_producers_that_come_and_go_at_every_checkpoint_do_not_put_it_off_for_ever():
    driver = a_transaction_in_segments()
    for epoch_ends in range(5):
        driver.marker(PRODUCER + epoch_ends, RETIRED_EPOCH, Marker.ABORT)
        driver.checkpoint()
        driver.flush()
        fields = {"producer_epoch": RETIRED_EPOCH - 1, "base_sequence": 0, "transactional": True}
        driver.values(b"of the next", producer_id=PRODUCER + epoch_ends + 1, **fields)
        driver.flush()
        assert driver.log.manifest().snapshot_floor == 3 + 2 * epoch_ends


def test_a_log_of_plain_records_is_not_scanned_whenever_it_is_checkpointed():
    driver = LogDriver()
    for count in range(4):
        driver.values(b"value")
        driver.flush(max_bytes=1)
        driver.values(b"in the tail")
        driver.checkpoint()
        driver.reopen(replay=False)
        assert driver.log.snapshots.taken_bytes == 0
        driver.reopen()
        assert driver.log.end_offset == 2 * count + 2


def test_a_first_producer_of_a_plain_log_is_found_above_the_offset_without_any():
    driver = LogDriver()
    for _ in range(3):
        driver.values(b"value")
    driver.flush()
    plain_bytes = driver.log.segments[0].size_bytes
    driver.checkpoint()
    driver.values(b"in order", producer_id=PRODUCER, producer_epoch=0, base_sequence=0)
    driver.flush()
    driver.checkpoint()
    driver.reopen()
    assert [each.producer_id for each in driver.log.producers.describe()] == [PRODUCER]
    assert driver.log.snapshots.taken_bytes == driver.log.segments[0].size_bytes - plain_bytes

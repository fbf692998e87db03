"""Snapshots of a log's producers, also empty ones: from which offset each counts, and which segments it holds."""

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.records import Marker
from fencepost.storage.log import producer_snapshots as log_snapshots
from fencepost.storage.log.producer_snapshots import Snapshot, parse_name
from fencepost.storage.producers.producers import RETIRED_EPOCH
from log_driver import LogDriver

PRODUCER = 7


def a_transaction_in_segments() -> LogDriver:
    """Return a log whose segments have the data of a transaction, and not its marker, which is still to come."""
    driver = LogDriver(SimulatedDisk(history=True))
    driver.values(b"plain")
    fields = {"producer_epoch": RETIRED_EPOCH - 1, "base_sequence": 0, "transactional": True}
    driver.values(b"of a transaction", producer_id=PRODUCER, **fields)
    driver.flush()
    return driver


def values(driver: LogDriver) -> list[bytes]:
    return [record.value for record in driver.committed()]


def test_an_unflushed_abort_whose_last_epoch_ends_its_producer_survives_a_crash():
    driver = a_transaction_in_segments()
    driver.marker(PRODUCER, RETIRED_EPOCH, Marker.ABORT)
    assert not driver.log.producers
    driver.checkpoint()
    driver.reopen()
    assert values(driver) == [b"plain"]
    assert not driver.log.producers


def test_an_unflushed_abort_of_an_evicted_producer_still_aborts_after_a_crash():
    driver = a_transaction_in_segments()
    driver.marker(PRODUCER, RETIRED_EPOCH - 1, Marker.ABORT)
    assert driver.log.producers.evict() == 1
    driver.checkpoint()
    driver.reopen()
    assert values(driver) == [b"plain"]


def test_an_empty_producer_snapshot_is_used_once_the_batches_below_it_are_flushed():
    driver = a_transaction_in_segments()
    driver.marker(PRODUCER, RETIRED_EPOCH, Marker.ABORT)
    for _ in range(2):  # making a manifest changes nothing
        assert driver.log.manifest().snapshot_floor == 0
    driver.flush()
    assert driver.log.manifest().snapshot_floor == 3
    driver.checkpoint()
    driver.reopen()
    assert driver.log.snapshots.taken_bytes == 0  # nothing was scanned
    assert values(driver) == [b"plain"]


def test_snapshot_floor_advances_although_producers_change_at_every_checkpoint():
    """The snapshot floor is the offset from which the next start scans the log for producers."""
    driver = a_transaction_in_segments()
    for number in range(5):
        driver.marker(PRODUCER + number, RETIRED_EPOCH, Marker.ABORT)
        driver.checkpoint()
        driver.flush()
        fields = {"producer_epoch": RETIRED_EPOCH - 1, "base_sequence": 0, "transactional": True}
        driver.values(b"of the next", producer_id=PRODUCER + number + 1, **fields)
        driver.flush()
        assert driver.log.manifest().snapshot_floor == 3 + 2 * number


def test_reopening_a_log_without_producers_scans_no_segment():
    """taken_bytes counts what was scanned in opening the log and what was appended since. A replay of the journal
    appends, so the first reopen() is without one.
    """
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


def test_the_first_producer_of_a_log_is_found_by_scanning_only_above_the_snapshot():
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


# ---- files, and what is counted --------------------------------------------------------------------------------------


def test_producer_snapshots_have_the_documented_kind_version_and_suffix():
    assert (log_snapshots.KIND, log_snapshots.VERSION, log_snapshots.SUFFIX) == ("producers", 1, ".producers")


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("offset", [0, 12, 10**19])
def test_the_file_name_of_a_snapshot_is_parsed_back_to_the_snapshot(offset, copy):
    snapshot = Snapshot(offset, empty=False, copy=copy)
    assert snapshot.name == f"{offset:020d}{'.copy' * copy}.producers"
    assert parse_name(snapshot.name) == snapshot


@pytest.mark.parametrize("name", ["1.producers", f"{1:020d}", f"{1:020d}.copy", f"{1:020d}.producers.copy", "²" * 20])
def test_parse_name_returns_none_for_names_that_are_not_of_producer_snapshots(name):
    assert parse_name(name) is None


def of_a_producer(driver: LogDriver, sequence: int) -> None:
    driver.values(b"value", producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)


def test_bytes_since_snapshot_counts_the_bytes_appended_after_it():
    driver = LogDriver()
    driver.values(b"plain")
    driver.flush()
    driver.log.snapshots.adopt()
    appended = []
    for sequence in range(5):
        before = driver.log.snapshots.taken_bytes
        of_a_producer(driver, sequence)
        appended.append(driver.log.snapshots.taken_bytes - before)
        assert appended[-1] > 0
        assert driver.log.bytes_since_snapshot == sum(appended[3:] if sequence > 2 else appended)
        if sequence == 2:
            driver.snapshot()
            driver.log.snapshots.adopt()
            assert driver.log.bytes_since_snapshot == 0


def test_wants_snapshot_is_false_after_a_snapshot_of_a_log_that_has_no_segments():
    """There is no segment that could be removed or compacted after a further snapshot."""
    driver = LogDriver(cleanup_policy="compact")
    of_a_producer(driver, 0)
    driver.snapshot()
    assert not driver.log.wants_snapshot
    assert not driver.log.snapshots.hold_segments


def test_adopt_returns_true_once_after_the_last_producer_is_forgotten_then_false():
    """adopt() then keeps a snapshot without producers, at the end of the log."""
    driver = a_transaction_in_segments()
    driver.snapshot()
    driver.log.snapshots.adopt()  # the snapshot just written, which has the producer
    driver.marker(PRODUCER, RETIRED_EPOCH, Marker.ABORT)  # the last epoch: the log forgets its only producer
    assert [driver.log.snapshots.adopt() for _ in range(2)] == [True, False]
    assert driver.log.snapshots.kept[-1] == Snapshot(driver.log.end_offset, empty=True)


def test_with_one_producer_snapshot_segments_that_end_at_the_log_start_are_kept():
    driver = LogDriver(segment_bytes=150)
    for sequence in range(6):
        of_a_producer(driver, sequence)
    driver.flush()
    driver.checkpoint()
    driver.start_at(driver.log.segments[0].end_offset)
    driver.snapshot()
    assert driver.log.snapshots.hold_segments


@pytest.mark.parametrize("start_at", ["end_offset", "in the next"])
def test_with_one_producer_snapshot_a_segment_below_the_log_start_is_kept(start_at):
    driver = LogDriver(segment_bytes=300)
    for sequence in range(9):
        of_a_producer(driver, sequence)
    driver.flush()
    driver.checkpoint()
    first, second, *_ = driver.log.segments
    assert second.end_offset > first.end_offset + 1
    driver.start_at(first.end_offset + (start_at == "in the next"))
    driver.snapshot()
    assert driver.log.snapshots.hold_segments


def kept(driver: LogDriver, *snapshots: Snapshot) -> list[Snapshot]:
    driver.log.snapshots.kept = list(snapshots)
    return driver.log.snapshots.kept


def test_choose_keeps_the_two_newest_flushed_snapshots_and_returns_older_paths():
    driver = LogDriver()
    for sequence in range(5):
        of_a_producer(driver, sequence)
    driver.flush()
    of_a_producer(driver, 5)
    one, two, three, four, ahead = (Snapshot(offset, empty=False) for offset in (1, 2, 4, 5, 6))
    none = Snapshot(3, empty=True)
    snapshots = driver.log.snapshots
    left = kept(driver, one, two, three, four, ahead)
    assert snapshots.choose() == ((three, four), [snapshots.path(one), snapshots.path(two)])
    assert left == [three, four, ahead]
    assert snapshots.choose() == ((three, four), [])
    left = kept(driver, one, none, four)
    assert snapshots.choose() == ((none, four), [snapshots.path(one)])
    assert left == [none, four]
    left = kept(driver, one, two, none)
    assert snapshots.choose() == ((none,), [snapshots.path(one), snapshots.path(two)])
    assert left == [none]


def test_in_a_log_without_producers_bytes_since_snapshot_counts_unflushed_bytes():
    driver = a_transaction_in_segments()
    driver.marker(PRODUCER, RETIRED_EPOCH, Marker.ABORT)
    driver.log.snapshots.adopt()
    driver.values(b"flushed")
    driver.flush()
    driver.values(b"in the tail")
    assert driver.log.snapshots.adopt()
    tail_bytes = driver.log.tail_bytes
    assert tail_bytes > 0
    before = driver.log.snapshots.taken_bytes
    of_a_producer(driver, 0)
    assert driver.log.bytes_since_snapshot == tail_bytes + driver.log.snapshots.taken_bytes - before


@pytest.mark.parametrize(("count", "slices"), [(1, 0), (3, 0), (4, 1), (7, 2)])
def test_a_snapshot_of_many_producers_is_prepared_a_slice_at_a_time(monkeypatch, count, slices):
    monkeypatch.setattr(log_snapshots, "SLICE_PRODUCERS", 3)
    driver = LogDriver()
    for number in range(count):
        driver.values(b"value", producer_id=number, producer_epoch=0, base_sequence=0)
    driver.flush()
    snapshots = driver.log.snapshots
    assert [snapshots.prepare() for _ in range(slices + 1)] == [True] * slices + [False]
    job = snapshots.job()
    assert job is not None
    assert job.offset == count

"""PartitionLog: what may be read, from the tail (batches not flushed yet) and from segments, and what offsets say."""

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol import batches, records
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.records import Marker
from fencepost.storage.log.reads import ColdRead
from fencepost.storage.log.segment import Slice
from log_driver import LogDriver, batch_of


@pytest.fixture(params=["in the tail", "in segments", "in both"])
def driver(request: pytest.FixtureRequest) -> LogDriver:
    """A log of ten batches with three records each, offsets 0 to 29."""
    driver = LogDriver(segment_bytes=400, index_interval_bytes=100)
    for number in range(10):
        driver.values(*[b"%d.%d" % (number, n) for n in range(3)])
        if request.param == "in segments" or (request.param == "in both" and number == 5):
            driver.flush()
    return driver


def test_a_read_begins_with_the_whole_batch_that_contains_the_offset(driver: LogDriver) -> None:
    for offset in range(30):
        got = driver.read(offset, 1)
        (batch,) = batches.walk(memoryview(b"".join(got.buffers)))
        assert batch.base_offset == offset - offset % 3
        assert got.next_offset == batch.base_offset + 3


def test_a_read_with_at_least_one_true_returns_a_first_batch_above_max_bytes(driver: LogDriver) -> None:
    size = driver.read(0, 1).size_bytes
    assert size > 1
    assert driver.read(0, size - 1, at_least_one=True).size_bytes == size
    assert driver.read(0, size - 1, at_least_one=False).size_bytes == 0
    assert driver.read(0, size, at_least_one=False).size_bytes == size


def test_a_read_includes_further_batches_only_if_they_fit_whole_in_max_bytes(driver: LogDriver) -> None:
    size = driver.read(0, 1).size_bytes
    assert driver.read(0, 2 * size - 1).next_offset == 3
    assert driver.read(0, 2 * size).next_offset == 6


def test_a_read_returns_no_batch_that_ends_above_the_given_upper_offset(driver: LogDriver) -> None:
    assert driver.read(0, below=3).next_offset == 3
    assert driver.read(0, 1000, below=5).next_offset == 3
    assert driver.read(0, below=2).size_bytes == 0
    assert driver.read(7, below=7).size_bytes == 0
    assert driver.read(7, below=9).next_offset == 9


def test_reading_below_the_log_start_or_above_its_end_raises_out_of_range(driver: LogDriver) -> None:
    driver.start_at(4)
    for offset in (-1, 0, 3, 31):
        with pytest.raises(KafkaError) as refused:
            driver.read(offset)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert driver.read(4).size_bytes
    assert driver.read(30).size_bytes == 0


def test_successive_reads_of_any_size_return_every_batch_once(driver: LogDriver) -> None:
    for max_bytes in (1, 100, 250, 10_000):
        assert [batch.base_offset for batch in driver.batches(max_bytes)] == list(range(0, 30, 3))


def test_a_read_of_an_unflushed_batch_returns_its_buffer_without_a_copy() -> None:
    driver = LogDriver()
    produced = batch_of([b"value" * 1000])
    driver.append(produced)
    head, rest = driver.read(0).buffers
    assert isinstance(rest, memoryview)
    assert rest.obj is produced
    assert head == batches.stamp_header(batches.read(memoryview(produced)), 0)


def test_a_read_joins_many_small_unflushed_batches_into_one_buffer() -> None:
    driver = LogDriver()
    for number in range(100):
        driver.values(b"%d" % number)
    assert len(driver.read(0).buffers) == 1
    assert len(driver.batches()) == 100


def test_the_high_watermark_ends_before_unreleased_batches() -> None:
    driver = LogDriver()
    driver.append(batch_of([b"one"]))
    driver.append(batch_of([b"two"]), release=False)
    log = driver.log
    assert (log.high_watermark, log.end_offset, log.last_stable_offset) == (1, 2, 1)
    assert driver.read(0).next_offset == 1
    assert log.flush_job(1000).size_bytes == driver.read(0).size_bytes  # type: ignore[union-attr]


def test_a_read_of_bytes_outside_the_page_cache_returns_a_cold_read_job_for_a_worker() -> None:
    disk = SimulatedDisk()
    driver = LogDriver(disk)
    driver.values(b"one")
    driver.flush()
    assert isinstance(driver.log.read(0, 1000, 1, at_least_one=True), Slice)
    disk.is_cold = lambda path: True
    cold = driver.log.read(0, 1000, 1, at_least_one=True)
    assert isinstance(cold, ColdRead)
    assert cold.run().next_offset == 1


def test_the_first_read_after_a_restart_opens_files_in_a_worker() -> None:
    driver = LogDriver(segment_bytes=100)
    for _ in range(5):
        driver.values(b"one")
    driver.settle()
    driver.reopen()
    assert len(driver.files) == 0
    cold = driver.log.read(2, 1000, 5, at_least_one=True)
    assert isinstance(cold, ColdRead)
    assert cold.run().next_offset == 3
    assert isinstance(driver.log.read(2, 1000, 5, at_least_one=True), Slice)


def test_reads_and_time_lookups_of_an_offline_log_raise_kafka_storage_error() -> None:
    driver = LogDriver()
    driver.values(b"one")
    driver.log.offline = "a segment is missing"
    for ask in (
        lambda: driver.read(0),
        lambda: driver.log.offset_for_time(0, 1),
        lambda: driver.log.offset_of_latest_time(1),
    ):
        with pytest.raises(KafkaError, match="a segment is missing") as refused:
            ask()
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def transaction(driver: LogDriver, producer_id: int, sequence: int, *values: bytes, release: bool = True) -> int:
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
    return driver.append(batch_of(values, **fields), release=release)


@pytest.mark.requirement("S-97", "S-98", "S-99")
def test_the_last_stable_offset_stops_at_the_first_open_transaction() -> None:
    driver = LogDriver()
    driver.values(b"plain")
    transaction(driver, 1, 0, b"a")
    transaction(driver, 2, 0, b"b")
    driver.values(b"plain")
    assert driver.log.last_stable_offset == 1
    driver.marker(1, 0, Marker.COMMIT)
    assert driver.log.last_stable_offset == 2
    driver.marker(2, 0, Marker.COMMIT)
    assert driver.log.last_stable_offset == driver.log.end_offset == 6


def test_kafka_9807_a_transaction_is_open_for_readers_until_its_marker_is_released() -> None:
    """KAFKA-9807 and Redpanda #10671: last stable offset and high watermark must be of the same moment."""
    driver = LogDriver()
    transaction(driver, 1, 0, b"a")
    driver.marker(1, 0, Marker.ABORT, release=False)
    log = driver.log
    assert log.producers.first_open_offset() is None
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    assert driver.committed() == []
    driver.release()
    assert log.last_stable_offset == 2
    assert driver.committed() == []


def test_the_last_stable_offset_never_passes_the_high_watermark() -> None:
    driver = LogDriver()
    driver.values(b"one")
    transaction(driver, 1, 0, b"a", release=False)
    assert driver.log.last_stable_offset == 1
    driver.append(batch_of([b"two"]), release=False)
    driver.marker(1, 0, Marker.COMMIT, release=False)
    assert driver.log.last_stable_offset == 1


def test_after_delete_records_in_an_open_transaction_the_lso_is_the_new_log_start() -> None:
    driver = LogDriver()
    transaction(driver, 1, 0, b"a")
    transaction(driver, 1, 1, b"b")
    driver.start_at(1)
    assert driver.log.last_stable_offset == 1
    driver.marker(1, 0, Marker.COMMIT)
    assert driver.log.last_stable_offset == 3


@pytest.mark.requirement("S-100")
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("reopened", [False, True])
def test_aborted_transactions_are_listed_by_first_offset(flushed: bool, reopened: bool) -> None:
    driver = LogDriver(segment_bytes=200)
    transaction(driver, 1, 0, b"a")  # 0
    transaction(driver, 2, 0, b"b")  # 1
    driver.values(b"plain")  # 2
    driver.marker(2, 0, Marker.ABORT)  # 3
    driver.marker(1, 0, Marker.ABORT)  # 4
    transaction(driver, 3, 0, b"c")  # 5
    driver.marker(3, 0, Marker.COMMIT)  # 6
    if flushed:
        driver.settle()
    if reopened:
        driver.reopen()

    def between(offset: int, below: int) -> list[tuple[int, int, int, int]]:
        found = driver.log.aborted_between(offset, below)
        return [tuple(entry) for entry in (found if isinstance(found, list) else found.run())]

    first, second = (1, 0, 4, 5), (2, 1, 3, 0)
    assert between(0, 7) == [first, second]
    assert between(0, 1) == [first]
    assert between(4, 7) == [first]
    assert between(5, 7) == []
    assert [record.value for record in driver.committed()] == [b"plain", b"c"]


def test_an_abort_marker_without_records_before_it_adds_no_aborted_transaction() -> None:
    driver = LogDriver()
    driver.marker(1, 3, Marker.ABORT)
    assert driver.log.aborted_between(0, 1) == []
    assert driver.log.last_stable_offset == 1


def test_size_bytes_leaves_out_segments_below_the_log_start() -> None:
    driver = LogDriver(segment_bytes=200)
    for _ in range(6):
        driver.values(b"x" * 50)
    whole = driver.log.size_bytes
    driver.flush()
    assert driver.log.size_bytes == whole
    driver.start_at(driver.log.segments[0].end_offset)
    assert driver.log.size_bytes == whole - driver.log.segments[0].size_bytes


def test_a_log_append_time_batch_is_stored_with_its_stamped_timestamp() -> None:
    driver = LogDriver()
    driver.append(records.build([records.Record(0, 5, None, b"v")], log_append_time=77))
    (record,) = driver.contents()
    assert record.timestamp == 77


def test_one_read_of_segments_returns_about_4_mb_at_most_or_one_larger_batch() -> None:
    driver = LogDriver()
    for _ in range(6):
        driver.values(b"x" * 1_000_000)
    driver.values(b"y" * 5_000_000)
    driver.flush()
    assert driver.read(0, 1 << 30).next_offset == 4
    for at_least_one in (False, True):
        assert driver.read(6, 1 << 30, at_least_one=at_least_one).next_offset == 7
    assert driver.read(6, 1_000_000, at_least_one=False).size_bytes == 0


def test_a_transaction_stays_open_until_the_journal_unit_of_its_marker_is_released() -> None:
    driver = LogDriver()
    transaction(driver, 1, 0, b"a")
    driver.append(batch_of([b"plain"]), release=False)
    driver.marker(1, 0, Marker.ABORT, release=False)
    driver.log.released(2)
    assert (driver.log.high_watermark, driver.log.last_stable_offset) == (2, 0)
    driver.log.released(3)
    assert driver.log.last_stable_offset == 3


def test_a_read_returns_unflushed_batches_only_if_segments_have_none_at_its_offset() -> None:
    """A first batch above max_bytes also gives an empty slice; that must not count as a segment without batches."""
    driver = LogDriver()
    driver.values(b"x" * 500)
    driver.flush()
    driver.values(b"y")
    assert driver.read(0, 100, at_least_one=False).next_offset == 0
    assert driver.read(0, 100, below=1, at_least_one=False).next_offset == 0
    driver.log.segments.clear()  # as if compaction had removed all batches of the segment
    for at_least_one in (False, True):
        found = driver.read(0, 100, at_least_one=at_least_one)
        assert [batch.base_offset for batch in batches.walk(memoryview(b"".join(found.buffers)))] == [1]
    assert driver.read(0, 1, at_least_one=False).next_offset == 0
    assert driver.read(0, 100, below=1).next_offset == 0

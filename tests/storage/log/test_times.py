"""Look-ups by time: the first record at or after a timestamp, and the one with the largest."""

from collections.abc import Callable

import many_headers
import pytest
import raw_batches
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.records import Marker, Record, build
from lines_run import lines_run
from log_driver import LogDriver, batch_of
from peak_memory import peak_bytes


def stamped(driver: LogDriver, *timestamps: int, codec: int = 0, **fields: int | bool) -> int:
    """Append one batch of records with these timestamps. Returns its base offset."""
    records = [Record(n, timestamp, None, b"v") for n, timestamp in enumerate(timestamps)]
    return driver.append(build(records, codec=codec, **fields))  # type: ignore[arg-type]


def first(driver: LogDriver, timestamp: int, below: int | None = None) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record at or after this timestamp; None if there is none."""
    lookup = driver.log.offset_for_time(timestamp, driver.log.high_watermark if below is None else below)
    found = None if lookup is None else lookup.run()
    return None if found is None else tuple(found)  # type: ignore[return-value]


def latest(driver: LogDriver, below: int | None = None) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record with the largest timestamp; None if there is none."""
    lookup = driver.log.offset_of_latest_time(driver.log.high_watermark if below is None else below)
    found = None if lookup is None else lookup.run()
    return None if found is None else tuple(found)  # type: ignore[return-value]


@pytest.fixture(params=["tail", "segments", "both", "reopened"])
def driver(request: pytest.FixtureRequest) -> LogDriver:
    """A log whose timestamps mostly grow, with one far ahead, in several segments and codecs."""
    driver = LogDriver(segment_bytes=300, index_interval_bytes=50)
    stamped(driver, 10, 20, 15)  # 0-2
    stamped(driver, 30, codec=1)  # 3
    stamped(driver, 25, 90, 40, codec=4)  # 4-6
    if request.param == "both":
        driver.flush()
    stamped(driver, 50, codec=3)  # 7
    stamped(driver, 60, 60)  # 8-9
    stamped(driver, 90, codec=2)  # 10
    stamped(driver, 70)  # 11
    if request.param in ("segments", "reopened"):
        driver.settle()
    if request.param == "reopened":
        driver.reopen()
    return driver


def test_a_lookup_by_time_returns_the_first_record_at_or_after_that_time(driver: LogDriver) -> None:
    assert first(driver, 0) == (0, 10)
    assert first(driver, 10) == (0, 10)
    assert first(driver, 11) == (1, 20)
    assert first(driver, 21) == (3, 30)
    assert first(driver, 31) == (5, 90)
    assert first(driver, 90) == (5, 90)
    assert first(driver, 91) is None


def test_kafka_5522_a_lookup_by_time_finds_no_batch_that_ends_above_the_upper_bound(driver: LogDriver) -> None:
    """KAFKA-5522: a look-up by time may not pass the last stable offset."""
    assert first(driver, 31, below=7) == (5, 90)
    assert first(driver, 31, below=4) is None
    assert first(driver, 31, below=0) is None
    assert latest(driver, below=4) == (3, 30)
    assert latest(driver, below=7) == (5, 90)
    assert latest(driver, below=0) is None


def test_a_lookup_by_time_finds_no_records_below_the_log_start(driver: LogDriver) -> None:
    driver.start_at(6)  # within a batch
    assert first(driver, 0) == (6, 40)
    assert first(driver, 41) == (7, 50)
    assert latest(driver) == (10, 90)
    driver.start_at(11)
    assert latest(driver) == (11, 70)
    driver.start_at(12)
    assert (first(driver, 0), latest(driver)) == (None, None)


def test_lookup_of_the_largest_timestamp_returns_its_first_record(driver: LogDriver) -> None:
    assert latest(driver) == (5, 90)


def test_lookups_by_time_in_an_empty_log_find_nothing() -> None:
    driver = LogDriver()
    assert (first(driver, 0), latest(driver)) == (None, None)


def test_records_of_a_log_append_time_batch_all_have_its_timestamp() -> None:
    driver = LogDriver()
    driver.append(build([Record(0, 5, None, b"v"), Record(1, 6, None, b"v")], log_append_time=100))
    assert first(driver, 7) == (0, 100)
    assert latest(driver) == (0, 100)


def test_a_timestamp_far_ahead_does_not_hide_later_records() -> None:
    """The time index keeps the largest timestamp so far; later records with smaller ones are found by scanning from
    their offset.
    """
    driver = LogDriver(segment_bytes=200, index_interval_bytes=0)
    stamped(driver, 10**15)
    for timestamp in range(20):
        stamped(driver, 1000 + timestamp)
    driver.settle()
    assert first(driver, 1005) == (0, 10**15)
    driver.start_at(1)
    assert first(driver, 1005) == (6, 1005)
    assert latest(driver) == (20, 1019)


def test_a_lookup_by_time_can_return_the_offset_of_a_transaction_marker() -> None:
    driver = LogDriver()
    driver.append(batch_of([b"v"], timestamp=5, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    driver.marker(1, 0, Marker.COMMIT)  # at 1000
    assert first(driver, 6) == (1, 1000)


def test_a_lookup_by_time_skips_batches_without_timestamps() -> None:
    driver = LogDriver(cleanup_policy="compact", segment_bytes=150, min_cleanable_dirty_ratio=0.0)
    for number in range(6):
        driver.values(b"v", key=b"k", timestamp=100 + number, producer_id=1, producer_epoch=number, base_sequence=0)
    driver.settle()
    driver.values(b"v", key=b"l", timestamp=200)
    driver.values(b"v", key=b"l", timestamp=201)
    driver.settle()
    assert driver.compact()
    assert first(driver, 0) == (5, 105)
    assert latest(driver) == (7, 201)


def test_a_lookup_by_time_over_a_batch_with_false_timestamps_raises_corrupt_message() -> None:
    driver = LogDriver()
    lying = raw_batches.record(0, 2**62)
    driver.append(raw_batches.batch(lying, base_timestamp=2**63 - 1, max_timestamp=5))
    for asked in (lambda: latest(driver), lambda: first(driver, 1)):
        with pytest.raises(KafkaError) as caught:
            asked()
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("at", [42, 65], ids=["in the largest timestamp", "in a record"])
@pytest.mark.parametrize(("asked", "number"), [(lambda driver: first(driver, 1_050), 5), (latest, 9)])
def test_a_lookup_by_time_that_reads_a_damaged_batch_puts_the_log_offline(
    at: int, asked: Callable[[LogDriver], object], number: int
) -> None:
    driver = LogDriver()
    for value in range(10):
        driver.values(b"v%d" % value, timestamp=1_000 + 10 * value)
    driver.flush()
    (segment,) = driver.log.segments
    damaged = segment.size_bytes // 10 * number + at
    with driver.files.use(f"{driver.log.directory}/{segment.stem}.log") as file:
        file.write([bytes([file.read(1, damaged)[0] ^ 16])], damaged)
    with pytest.raises(KafkaError) as caught:
        asked(driver)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "the CRC" in str(driver.log.offline)


def test_a_lookup_by_time_does_not_decode_the_headers_of_a_record() -> None:
    """The headers are 1 KB compressed and 2 MB decompressed, of which a few copies may be made; as objects they would
    be far larger.
    """
    driver = LogDriver()
    driver.append(many_headers.batch(1_000_000))
    driver.append(many_headers.batch(1_000_000))
    driver.settle()
    for asked in (lambda: first(driver, many_headers.AT + 2), lambda: latest(driver)):
        driver.files.indexes.clear()
        asked()
        assert peak_bytes(asked) < 4 * many_headers.BYTES_EACH * 1_000_000
        assert lines_run(asked) < 5_000
    assert first(driver, many_headers.AT + 1) == (1, many_headers.AT + 1)

"""Retention: by age and by size, never early, never what is needed."""

import pytest
from fencepost.protocol.records import Marker
from fencepost.storage.cleaning.retention import expired, new_start
from fencepost.storage.log.segment import SegmentState
from fencepost.storage.log.settings import LogSettings
from log_driver import LogDriver

HOUR_MS = 3_600_000


def segments(*ages_ms: int, size_bytes: int = 100) -> list[SegmentState]:
    """Return segments of ten offsets each. ages_ms: the store's age when the newest batch of each was appended."""
    return [
        SegmentState(number * 10, 0, size_bytes, number * 10 + 10, last_age_ms=age_ms)
        for number, age_ms in enumerate(ages_ms)
    ]


def start(
    states: list[SegmentState], now_ms: int, *, bound: int = 1000, start: int = 0, tail: int = 0, **kw: object
) -> int | None:
    settings = LogSettings(**{"retention_ms": -1, **kw})  # type: ignore[arg-type]
    return new_start(states, start, bound, tail, now_ms, settings)


def test_segments_expire_when_their_newest_batch_is_older_than_retention_ms() -> None:
    states = segments(100, 200, 300)
    assert start(states, 1100, retention_ms=1000) is None
    assert start(states, 1101, retention_ms=1000) == 10
    assert start(states, 1250, retention_ms=1000) == 20
    assert start(states, 9999, retention_ms=1000) == 30
    assert start(states, 9999, retention_ms=-1) is None


def test_segments_wholly_below_the_log_start_are_not_counted_in_retention_bytes() -> None:
    """Such segments are removed by the next checkpoint."""
    states = segments(0, 0, 0, 0)
    assert start(states, 0, start=20, retention_bytes=200) is None
    assert start(states, 0, start=25, retention_bytes=200) is None
    assert start(states, 0, start=20, retention_bytes=100) == 30


def test_an_old_segment_does_not_expire_while_a_younger_one_before_it_remains() -> None:
    assert start(segments(100, 5000, 100), 5000, retention_ms=1000) == 10


def test_segments_expire_while_the_remaining_ones_have_at_least_retention_bytes() -> None:
    states = segments(0, 0, 0, 0)
    assert start(states, 0, retention_bytes=400) is None
    assert start(states, 0, retention_bytes=301) is None
    assert start(states, 0, retention_bytes=300) == 10
    assert start(states, 0, retention_bytes=100) == 30
    assert start(states, 0, retention_bytes=0) == 40
    assert start(states, 0, retention_bytes=400, tail=100) == 10
    assert start(states, 0, retention_bytes=-1) is None


def test_retention_moves_the_log_start_no_further_than_its_upper_offset_bound() -> None:
    states = segments(0, 0, 0)
    for bound, expected in ((0, None), (9, None), (10, 10), (19, 10), (20, 20), (99, 30)):
        assert start(states, 10**9, bound=bound, retention_ms=1) == expected
        assert start(states, 0, bound=bound, retention_bytes=0) == expected


def test_a_segment_that_ends_at_the_log_start_does_not_delay_retention() -> None:
    states = segments(5000, 100, 5000)
    assert start(states, 5000, start=10, retention_ms=1000) == 20


def test_a_compacted_log_that_does_not_delete_has_no_retention() -> None:
    assert start(segments(0), 10**9, retention_ms=1, cleanup_policy="compact") is None
    assert start(segments(0), 10**9, retention_ms=1, cleanup_policy="compact,delete") == 10


# ---- of a log ----------------------------------------------------------------------------------------------------


@pytest.fixture
def driver() -> LogDriver:
    driver = LogDriver(segment_bytes=100, retention_ms=HOUR_MS)
    for _ in range(4):
        driver.values(b"value")
        driver.advance(HOUR_MS // 4)
    return driver


def test_only_checkpointed_segments_expire(driver: LogDriver) -> None:
    driver.advance(10 * HOUR_MS)
    assert expired(driver.log, driver.age_ms) is None
    driver.flush()
    assert expired(driver.log, driver.age_ms) is None
    driver.checkpoint()
    assert expired(driver.log, driver.age_ms) == 4


def test_retention_removes_no_segment_of_an_open_transaction(driver: LogDriver) -> None:
    driver.values(b"t", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)  # 4
    driver.values(b"value")
    driver.settle()
    driver.advance(10 * HOUR_MS)
    driver.retain()
    assert driver.log.start_offset == 4
    driver.marker(1, 0, Marker.ABORT)
    driver.retain()
    assert driver.log.start_offset == 6


def test_record_timestamps_do_not_influence_retention() -> None:
    """Timestamps of long ago or far ahead, as producers with a wrong clock send them."""
    for timestamp in (0, 1, 2**62):
        driver = LogDriver(segment_bytes=100, retention_ms=HOUR_MS)
        driver.values(b"value", timestamp=timestamp)
        driver.settle()
        driver.advance(HOUR_MS)
        assert expired(driver.log, driver.age_ms) is None
        driver.advance(1)
        assert expired(driver.log, driver.age_ms) == 1


def test_the_age_of_a_segment_for_retention_continues_after_a_restart(driver: LogDriver) -> None:
    driver.settle()
    log = driver.reopen()
    assert expired(log, driver.age_ms) is None
    driver.advance(HOUR_MS // 4)
    assert expired(log, driver.age_ms) == 1


def test_a_log_whose_segments_all_expired_continues_at_its_next_offset(driver: LogDriver) -> None:
    driver.settle()
    driver.advance(10 * HOUR_MS)
    driver.retain()
    for _ in range(3):
        driver.checkpoint()
    assert driver.log.segments == []
    assert driver.log.size_bytes == 0
    driver.values(b"goes on")
    driver.settle()
    assert [record.offset for record in driver.reopen() and driver.contents()] == [4]
    assert driver.log.start_offset == 4


def test_delete_records_moves_the_log_start_forward_only_and_survives_a_crash() -> None:
    driver = LogDriver()
    for _ in range(4):
        driver.values(b"value")
    driver.settle()
    driver.start_at(3)
    assert driver.reopen().start_offset == 3
    driver.start_at(1)
    assert driver.log.start_offset == 3  # never back
    assert driver.reopen().start_offset == 3


def test_delete_records_may_remove_unflushed_records() -> None:
    driver = LogDriver()
    for _ in range(4):
        driver.values(b"value")
    driver.start_at(4)
    driver.checkpoint()
    log = driver.reopen()
    assert (log.start_offset, log.end_offset) == (4, 4)
    driver.values(b"goes on")
    driver.settle()
    assert [record.offset for record in driver.reopen() and driver.contents()] == [4]

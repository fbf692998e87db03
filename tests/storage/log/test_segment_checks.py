"""The CRC of each batch is checked when it is first read from a segment, and not again while that is remembered.

What is counted is calls, never time.
"""

import pytest
from fencepost.protocol import batches
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.storage.log import segment
from fencepost.storage.log.index import MAX_INTERVALS, Indexes
from fencepost.storage.log.segment import Slice
from hypothesis import given, settings
from hypothesis import strategies as st
from log_driver import DIRECTORY, LogDriver, keyed
from long_runs import share_of

VALUE = b"a value of a record, long enough to be found"


class Checks:
    """Counts the CRCs that readers of segments calculate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = 0
        self._real = segment.crc32c
        monkeypatch.setattr(segment, "crc32c", self._counted)

    def _counted(self, data: memoryview) -> int:
        self._count += 1
        return self._real(data)

    def taken(self) -> int:
        """Return how many were calculated since the last call."""
        count, self._count = self._count, 0
        return count


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    return Checks(monkeypatch)


def flushed(count: int = 10, **settings: int) -> LogDriver:
    """Return a log with one segment of this many batches, of two records each."""
    driver = LogDriver(**settings)
    for number in range(count):
        driver.values(b"%d " % number + VALUE, VALUE)
    driver.flush()
    return driver


def path_of(driver: LogDriver, number: int = 0) -> str:
    return f"{DIRECTORY}/{driver.log.segments[number].stem}.log"


def flip(driver: LogDriver, position: int, bit: int = 0, number: int = 0) -> None:
    """Flip one bit of a byte of a segment's file."""
    file = driver.disk.open(path_of(driver, number))
    file.write([bytes([file.read(1, position)[0] ^ 1 << bit])], position)
    file.close()


def content(driver: LogDriver, number: int = 0) -> bytes:
    """Return all bytes of a segment's file."""
    file = driver.disk.open(path_of(driver, number))
    try:
        return bytes(file.read(file.size(), 0))
    finally:
        file.close()


def read_all(driver: LogDriver, offset: int = 0, max_bytes: int = 300) -> bytes:
    """Read on to the high watermark, as a consumer that checks no CRC. Returns all bytes."""
    found = b""
    while offset < driver.log.high_watermark:
        got = driver.read(offset, max_bytes)
        found += b"".join(got.buffers)
        if got.next_offset == offset:
            break
        offset = got.next_offset
    return found


def refused(driver: LogDriver, offset: int = 0, max_bytes: int = 300) -> str:
    """Read until the log goes offline. Returns why it did."""
    with pytest.raises(KafkaError) as refusal:
        read_all(driver, offset, max_bytes)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.log.offline is not None
    return driver.log.offline


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("max_bytes", [300, 1 << 20])
def test_a_flipped_bit_in_a_record_puts_the_log_offline_and_says_where(cold: bool, max_bytes: int) -> None:
    driver = flushed()
    batch_at = len(content(driver)) // 10 * 7
    flip(driver, batch_at + 100)
    if cold:
        driver.files.indexes.clear()
    assert refused(driver, 0, max_bytes) == (
        f"{path_of(driver)}: at byte {batch_at}: the CRC of the batch does not match"
    )


def test_a_second_read_of_the_same_bytes_does_not_check_their_crcs_again(checks: Checks) -> None:
    driver = flushed()
    first = read_all(driver)
    assert checks.taken() == 10
    assert read_all(driver) == first == read_all(driver, max_bytes=1 << 20)
    assert checks.taken() == 0


def test_a_read_checks_the_crc_only_of_the_batches_it_returns(checks: Checks) -> None:
    driver = flushed()
    driver.read(4, 1)
    assert checks.taken() == 1
    driver.read(5, 1)  # in the same batch
    assert checks.taken() == 0


def test_batches_checked_for_a_reader_from_a_middle_offset_are_not_checked_again(checks: Checks) -> None:
    driver = flushed()
    read_all(driver, 10)
    assert checks.taken() == 5
    read_all(driver, 10)
    read_all(driver, 14)
    assert checks.taken() == 0
    driver.read(0, 1)
    read_all(driver, 2)
    assert checks.taken() == 5
    read_all(driver)
    assert checks.taken() == 0


def test_damage_below_the_offset_of_an_earlier_read_is_found_by_a_read_from_0() -> None:
    driver = flushed()
    read_all(driver, 10)
    flip(driver, 100)
    assert "at byte 0" in refused(driver)


def test_damage_to_checked_bytes_is_found_only_after_the_index_left_the_cache() -> None:
    """Checksums are checked at the first read only, because checking at each read would slow all readers."""
    driver = flushed()
    before = read_all(driver)
    flip(driver, 100)
    assert read_all(driver) != before
    driver.files.indexes.clear()
    assert "at byte 0" in refused(driver)


def test_only_the_new_bytes_of_a_growing_segment_are_checked(checks: Checks) -> None:
    driver = flushed()
    read_all(driver)
    checks.taken()
    for _ in range(3):
        driver.values(VALUE, VALUE)
    driver.flush()
    assert len(driver.log.segments) == 1
    read_all(driver)
    assert checks.taken() == 3
    read_all(driver)
    assert checks.taken() == 0
    grown = len(content(driver))
    driver.values(VALUE)
    driver.flush()
    flip(driver, grown + 70)
    assert f"at byte {grown}: the CRC" in refused(driver)


def test_a_last_batch_with_a_reduced_offset_delta_is_detected_as_damage() -> None:
    """Otherwise a reader in the middle of this batch would continue with the next segment and miss records."""
    driver = flushed(3, segment_bytes=1)
    assert len(driver.log.segments) == 3
    flip(driver, 26)  # in the last offset delta, which becomes 0
    assert "ends at offset 1" in refused(driver, 1)


def test_the_crcs_of_a_segment_are_checked_again_after_compaction_rewrote_it(checks: Checks) -> None:
    driver = LogDriver(cleanup_policy="compact", segment_bytes=300, min_cleanable_dirty_ratio=0.0)
    for number in range(8):
        driver.append(keyed([(b"k%d" % (number % 3), b"v%d" % number)]))
    driver.settle()
    read_all(driver)
    assert driver.compact()
    assert driver.log.segments[0].compacted
    driver.settle()
    checks.taken()
    found = read_all(driver)
    assert checks.taken()
    assert read_all(driver) == found
    assert checks.taken() == 0
    driver.files.indexes.clear()
    flip(driver, len(content(driver)) - 2)
    assert "the CRC of the batch does not match" in refused(driver)


def test_after_a_log_is_reopened_the_crcs_of_its_batches_are_checked_again(checks: Checks) -> None:
    driver = flushed()
    driver.checkpoint()
    read_all(driver)
    driver.reopen()
    checks.taken()
    read_all(driver)
    assert checks.taken() == 10


def test_indexes_are_derived_from_checked_batches_only(checks: Checks) -> None:
    """A damaged timestamp would be written into the new index and used by every later lookup."""
    driver = flushed(index_interval_bytes=100)
    driver.checkpoint()
    for name in driver.disk.list(DIRECTORY):
        if name.endswith("index"):
            driver.disk.unlink(f"{DIRECTORY}/{name}")
    driver.reopen()
    checks.taken()
    read_all(driver)
    assert checks.taken() == 0, "deriving them has checked the whole segment"
    driver.reopen()
    flip(driver, 40)
    lookup = driver.log.offset_for_time(1_001, 99)
    assert lookup is not None
    with pytest.raises(KafkaError) as refused:
        lookup.run()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.log.offline is not None
    assert "at byte 0: the CRC" in driver.log.offline


def test_one_read_checks_and_returns_at_most_a_fixed_number_of_unchecked_batches(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check runs on the event loop, where all other requests wait; the next read checks the following batches."""
    monkeypatch.setattr(segment, "MAX_CHECKS", 4)
    driver = flushed()
    whole = content(driver)
    got = driver.log.read(0, 1 << 20, 99, at_least_one=True)
    assert isinstance(got, Slice)
    assert got.next_offset == 8
    assert checks.taken() == 4
    assert read_all(driver, max_bytes=1 << 20) == whole
    assert checks.taken() == 6
    assert driver.read(0).size_bytes == len(whole)


@pytest.mark.slow
@settings(max_examples=share_of(150))
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), max_bytes=st.sampled_from([1, 400, 1 << 20]))
def test_reading_a_segment_from_its_beginning_finds_any_flipped_bit(place: float, bit: int, max_bytes: int) -> None:
    driver = WHOLE
    size = len(content(driver))
    position = int(place * size)
    flip(driver, position, bit)
    try:
        assert path_of(driver) in refused(driver, 0, max_bytes)
    finally:
        flip(driver, position, bit)
        driver.log.offline = None
        driver.files.indexes.clear()


WHOLE = flushed(6)


# ---- what was checked, as intervals --------------------------------------------------------------------------


def test_adjacent_checked_intervals_are_merged() -> None:
    indexes = Indexes()
    assert indexes.checked_until(0) == 0
    indexes.add_checked(100, 200)
    indexes.add_checked(300, 400)
    assert [indexes.checked_until(at) for at in (0, 99, 100, 150, 199, 200, 300)] == [0, 99, 200, 200, 200, 200, 400]
    indexes.add_checked(200, 300)
    assert indexes.checked == ((100, 400),)
    indexes.add_checked(50, 120)
    assert indexes.checked == ((50, 400),)


def test_if_a_segment_has_too_many_checked_intervals_the_oldest_is_forgotten() -> None:
    indexes = Indexes()
    for number in range(MAX_INTERVALS + 1):
        indexes.add_checked(10 * number, 10 * number + 5)
    assert len(indexes.checked) == MAX_INTERVALS
    assert indexes.checked_until(0) == 0
    assert indexes.checked_until(10) == 15


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=30), st.integers(0, 80))
def test_checked_until_never_counts_bytes_that_were_not_added_as_checked(
    added: list[tuple[int, int]], position: int
) -> None:
    indexes = Indexes()
    checked: set[int] = set()
    for start, size in added:
        indexes.add_checked(start, start + size)
        checked |= set(range(start, start + size))
    assert set(range(position, indexes.checked_until(position))) <= checked


def test_the_crc_position_used_by_segment_reads_is_that_of_the_batch_header() -> None:
    """A segment read takes the CRC at a fixed position, without decoding the batch."""
    driver = flushed(1)
    whole = memoryview(content(driver))
    batch = batches.read(whole)
    assert segment._CRC.unpack_from(whole, segment.CRC_AT)[0] == batch.crc

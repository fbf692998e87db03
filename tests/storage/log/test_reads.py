"""Jobs that read a log run after DeleteRecords, retention or compaction removed segments that they were made for.

Jobs are made before and between the steps of a removal, and run after each step: with indexes in memory and without,
and with lost index files. The records that were appended say which answers are right.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol import batches, records
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.records import Marker
from fencepost.storage.log.reads import ColdRead, Gone
from fencepost.storage.log.segment import Slice
from fencepost.storage.producers.aborted import AbortedTransaction
from log_driver import DIRECTORY, LogDriver, keyed

pytestmark = pytest.mark.slow

Committed = tuple[Slice, list[AbortedTransaction]]

RECORDS = 24  # of data; each is followed by the marker of its transaction, at an odd offset
START = 20  # where DeleteRecords and retention move the log's start: into the middle of a segment
AT_MS = 1_000


def aborts(number: int) -> bool:
    return number % 3 != 0


def filled(disk: SimulatedDisk) -> LogDriver:
    """Return a log with one transaction for each record, two of three aborted. Most markers are in the segment after
    that of their record.
    """
    driver = LogDriver(
        disk,
        segment_bytes=230,
        index_interval_bytes=0,
        cleanup_policy="compact,delete",
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=0,
    )
    for number in range(RECORDS):
        value = b"dead" if aborts(number) else b"live"
        driver.append(
            keyed(
                [(b"k%d" % (number % 4), value)],
                timestamp=AT_MS + 2 * number,
                producer_id=number,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        )
        driver.marker(number, 0, Marker.ABORT if aborts(number) else Marker.COMMIT)
    driver.settle()
    driver.values(b"end", key=b"end", timestamp=AT_MS + 500)
    driver.settle()
    return driver


# ---- what takes segments away, in steps between which a job may be captured, or run -----------------------------


def delete(driver: LogDriver) -> Iterator[None]:
    driver.start_at(START)
    yield
    yield from checkpoints(driver)


def retain(driver: LogDriver) -> Iterator[None]:
    segments = driver.log.segments
    kept = sum(state.size_bytes for state in segments if state.end_offset > START)
    driver.log.settings = replace(driver.settings, retention_bytes=kept)
    driver.retain()
    yield
    yield from checkpoints(driver)


def compact(driver: LogDriver) -> Iterator[None]:
    """Compact four times. That removes aborted records, then their markers, and with these their entries in the
    index.
    """
    for _ in range(4):
        for _ in range(2):
            for _ in range(3):
                driver.values(b"end", key=b"end", timestamp=AT_MS + 500)
            driver.settle()
        driver.advance(1)
        assert driver.compact()
        yield
        yield from checkpoints(driver)


def checkpoints(driver: LogDriver) -> Iterator[None]:
    """Take three checkpoints: the first does not name the removed segments any more, the third removes their files."""
    for _ in range(3):
        driver.snapshot()
        driver.checkpoint()
        yield


# ---- what is asked: each gives a job as a handler does, and says what is wrong with an answer ----------------------


def read_committed(driver: LogDriver, offset: int) -> Callable[[], Committed]:
    log = driver.log
    found = log.read(offset, 300, log.last_stable_offset, at_least_one=True)
    if isinstance(found, ColdRead):
        return found.run_committed
    aborted = log.aborted_between(offset, found.next_offset)
    return lambda: (found, aborted if isinstance(aborted, list) else aborted.run())


def check_committed(driver: LogDriver, offset: int, answer: Committed) -> None:
    found, aborted = answer
    seen = []
    for batch in batches.walk(memoryview(b"".join(found.buffers))):
        batches.verify(batch)
        dead = any(each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset for each in aborted)
        if not batch.is_control and not dead:
            seen += [(record.offset, record.value) for record in records.records(batch)]
    assert b"dead" not in [value for _, value in seen], f"aborted records from {offset} on are shown: {seen}"
    assert found.size_bytes or driver.log.settings.compacts, "an answer without any record does not move the reader"
    must = [each for each in live(driver) if offset <= each < found.next_offset]
    assert not set(must) - {offset for offset, _ in seen}, f"live records are skipped: {seen}"


def live(driver: LogDriver) -> list[int]:
    """Return the offsets of the committed records that neither the log start nor compaction may have removed."""
    kept = {number % 4: 2 * number for number in range(RECORDS) if not aborts(number)}
    return [offset for offset in sorted(kept.values()) if offset >= driver.log.released_start]


def look_up_time(driver: LogDriver, offset: int) -> Callable[[], object]:
    job = driver.log.offset_for_time(AT_MS + offset, driver.log.high_watermark)
    return (lambda: None) if job is None else job.run


def look_up_latest(driver: LogDriver, offset: int) -> Callable[[], object]:
    job = driver.log.offset_of_latest_time(driver.log.high_watermark)
    return (lambda: None) if job is None else job.run


def check_time(driver: LogDriver, offset: int, answer: object) -> None:
    assert answer is not None, "nothing is found in a log that has such a record"
    found, timestamp = answer  # type: ignore[misc]
    first_live = min([each for each in live(driver) if each >= offset], default=driver.log.end_offset)
    assert timestamp >= AT_MS + offset
    assert found <= first_live, f"the live record at {first_live} is skipped for {found}"


def check_latest(driver: LogDriver, offset: int, answer: object) -> None:
    assert answer is not None, "nothing is found in a log that has records"
    assert answer[1] == AT_MS + 500  # type: ignore[index]


ASKED = [(read_committed, check_committed), (look_up_time, check_time), (look_up_latest, check_latest)]


def keep_nothing_in_memory(driver: LogDriver) -> None:
    driver.files.close()


def keep_every_second_index_in_memory(driver: LogDriver) -> None:
    """Drop the indexes of every second segment. A read of a segment with indexes is then answered at once, and only
    its aborted transactions are looked up by a job if their markers are in the next segment.
    """
    for state in driver.log.segments[1::2]:
        driver.files.indexes.drop(f"{DIRECTORY}/{state.stem}")


def lose_the_indexes(driver: LogDriver) -> None:
    """Remove the index files, as a power cut may: they are never synced."""
    driver.files.close()
    for name in driver.disk.list(DIRECTORY):
        if name.endswith("index"):
            driver.disk.unlink(f"{DIRECTORY}/{name}")


MEMORIES = [keep_nothing_in_memory, keep_every_second_index_in_memory, lose_the_indexes]


@pytest.mark.parametrize("forget", MEMORIES)
@pytest.mark.parametrize(("ask", "check"), ASKED)
@pytest.mark.parametrize("remove", [delete, retain, compact])
def test_a_read_whose_segments_are_removed_meanwhile_is_correct_or_raises_gone(
    remove: Callable[[LogDriver], Iterator[None]],
    ask: Callable[[LogDriver, int], Callable[[], object]],
    check: Callable[[LogDriver, int, object], None],
    forget: Callable[[LogDriver], None],
) -> None:
    driver = filled(SimulatedDisk(history=False))
    driver.log.settings = driver.settings
    captured: list[tuple[int, Callable[[], object]]] = []
    outcomes = set()

    def capture() -> None:
        forget(driver)
        offsets = range(driver.log.released_start, 2 * RECORDS, 2)
        captured.extend((offset, ask(driver, offset)) for offset in (offsets[:1] if ask is look_up_latest else offsets))

    def run_all() -> None:
        forget(driver)
        for offset, job in captured:
            outcomes.add(outcome(offset, job))
            assert driver.log.offline is None

    def outcome(offset: int, job: Callable[[], object]) -> str:
        try:
            check(driver, offset, job())
        except Gone:  # then the log as it is now is asked, as a handler does
            if ask is read_committed and offset < driver.log.released_start:
                with pytest.raises(KafkaError) as refused:
                    ask(driver, offset)
                assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
                return "out of range"
            check(driver, offset, ask(driver, offset)())
            return "asked again"
        return "answered"

    capture()
    for _ in remove(driver):
        run_all()
        capture()
    assert "answered" in outcomes
    if ask is not look_up_latest:
        assert outcomes & {"asked again", "out of range"}, "no job met a segment that was gone"


def test_one_read_continues_from_segments_into_unflushed_batches() -> None:
    """Otherwise a flush between the data of a transaction and its marker would split an answer in two."""
    driver = LogDriver()
    driver.values(b"in a segment")
    driver.flush()
    driver.values(b"in the tail")
    driver.values(b"in the tail, too")
    sizes = [batch.size for batch in driver.batches()]

    def read(max_bytes: int, below: int) -> tuple[int, int, int]:
        found = driver.log.read(0, max_bytes, below, at_least_one=True)
        assert isinstance(found, Slice)
        assert sum(map(len, found.buffers)) == found.size_bytes
        offsets = [batch.base_offset for batch in batches.walk(memoryview(b"".join(found.buffers)))]
        assert offsets == list(range(found.next_offset))
        return found.next_offset, found.size_bytes, len(offsets)

    assert read(1 << 20, 3) == (3, sum(sizes), 3)
    assert read(1 << 20, 2) == (2, sum(sizes[:2]), 2)
    assert read(1 << 20, 1) == (1, sizes[0], 1)
    assert read(sum(sizes) - 1, 3) == (2, sum(sizes[:2]), 2)
    assert read(sizes[0], 3) == (1, sizes[0], 1)
    assert read(1, 3) == (1, sizes[0], 1)


def begin_a_cold_read() -> tuple[LogDriver, ColdRead]:
    """Return a log of five segments, none of them open, and a read of all five that has not run yet."""
    driver = LogDriver(segment_bytes=100)
    for _ in range(5):
        driver.values(b"one")
    driver.settle()
    driver.reopen()
    cold = driver.log.read(0, 1000, 5, at_least_one=True)
    assert isinstance(cold, ColdRead)
    return driver, cold


def test_a_cold_read_of_a_segment_that_was_deleted_meanwhile_raises_gone() -> None:
    driver, cold = begin_a_cold_read()
    driver.start_at(4)
    for _ in range(4):
        driver.checkpoint()
    with pytest.raises(Gone):
        cold.run()
    assert driver.log.offline is None


def test_a_missing_segment_above_the_log_start_is_damage() -> None:
    driver, cold = begin_a_cold_read()
    driver.disk.unlink(f"{DIRECTORY}/{driver.log.segments[0].stem}.log")
    with pytest.raises(KafkaError) as refused:
        cold.run()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.log.offline is not None


def test_the_log_of_these_tests_has_transactions_that_end_in_another_segment() -> None:
    driver = filled(SimulatedDisk(history=False))
    assert len(driver.log.segments) > 10
    assert any(a.end_offset % 2 for a, _ in pairwise(driver.log.segments)), "every marker is beside its record"

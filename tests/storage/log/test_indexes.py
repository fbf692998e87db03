"""Index files are never synced and never trusted: whatever happens to them, the segment's batches decide."""

import errno
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from fencepost.effects.simulated.operations import Read, Write
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.records import Marker
from fencepost.storage.log import indexes
from fencepost.storage.log.indexes import load_indexes
from fencepost.storage.log.reads import AbortedLookup
from fencepost.storage.log.segment import SegmentState
from fencepost.storage.producers.aborted import AbortedTransaction
from log_driver import DIRECTORY, LogDriver, keyed


def refuse_to_open(
    driver: LogDriver, monkeypatch: pytest.MonkeyPatch, suffix: str, error: int, times: int = 1 << 30
) -> list[str]:
    """Let this many attempts to open files with this suffix fail. Returns the list of their paths, which grows with
    each attempt.
    """
    refused: list[str] = []
    opened = driver.disk.open

    def open_file(path: str, **how: bool) -> object:
        if path.endswith(suffix) and len(refused) < times:
            refused.append(path)
            raise OSError(error, "a test", path)
        return opened(path, **how)

    monkeypatch.setattr(driver.disk, "open", open_file)
    return refused


Answers = tuple[list[tuple[int, bytes | None]], list[object]]


def plain() -> LogDriver:
    """Return a log of several segments, with transactions that begin in one and are aborted in another."""
    driver = LogDriver(segment_bytes=600, index_interval_bytes=100)
    for number in range(6):
        for producer in (1, 2, 3):
            driver.append(
                keyed(
                    [(b"k", b"%d" % number)],
                    timestamp=1_000 + number,
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=number,
                    transactional=True,
                )
            )
        driver.marker(1, 0, Marker.ABORT)
        if number % 2:
            driver.marker(2, 0, Marker.COMMIT)
        if number == 4:
            driver.marker(3, 0, Marker.ABORT)
    driver.marker(3, 0, Marker.ABORT)
    driver.settle()
    assert len(driver.log.segments) > 3
    return driver


def compacted() -> LogDriver:
    driver = LogDriver(cleanup_policy="compact", segment_bytes=300, min_cleanable_dirty_ratio=0.0)
    for number in range(8):
        driver.append(keyed([(b"k%d" % (number % 3), b"v%d" % number)], timestamp=1_000 + number))
    driver.settle()
    assert driver.compact()
    driver.settle()
    return driver


MADE = [plain, compacted]


def answers(driver: LogDriver) -> Answers:
    """Return the answers to all that readers can ask, with nothing in memory."""
    driver.files.close()
    log = driver.log
    found: list[object] = []
    for offset in range(log.end_offset):
        aborted = log.aborted_between(offset, log.last_stable_offset)
        found.append(aborted if isinstance(aborted, list) else aborted.run())
    for timestamp in range(999, 1_010):
        job = log.offset_for_time(timestamp, log.high_watermark)
        found.append(None if job is None else job.run())
    latest = log.offset_of_latest_time(log.high_watermark)
    found.append(None if latest is None else latest.run())
    return [(record.offset, record.value) for record in driver.committed()], found


def index_files(driver: LogDriver) -> dict[str, bytes]:
    names = [name for name in driver.disk.list(DIRECTORY) if name.endswith("index")]
    return {name: driver.disk.open(f"{DIRECTORY}/{name}").read(1 << 20, 0) for name in names}


def lose(driver: LogDriver) -> None:
    for name in index_files(driver):
        driver.disk.unlink(f"{DIRECTORY}/{name}")


def empty(driver: LogDriver) -> None:
    for name in index_files(driver):
        driver.disk.open(f"{DIRECTORY}/{name}").truncate(0)


def flip(driver: LogDriver) -> None:
    for name, content in index_files(driver).items():
        driver.disk.open(f"{DIRECTORY}/{name}").write([bytes([content[0] ^ 1])], 0)


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("harm", [lose, empty, flip])
def test_damaged_indexes_are_derived_from_the_segment_again_and_written_back(
    make: Callable[[], LogDriver], harm: Callable[[LogDriver], None]
) -> None:
    driver = make()
    before, expected = index_files(driver), answers(driver)
    harm(driver)
    assert index_files(driver) != before
    assert answers(driver) == expected
    assert index_files(driver) == before
    assert driver.log.offline is None


@pytest.mark.parametrize("make", MADE)
def test_an_index_file_that_cannot_be_read_is_derived_from_the_segment(make: Callable[[], LogDriver]) -> None:
    driver = make()
    expected = answers(driver)
    struck = driver.disk.fail(lambda one: isinstance(one, Read) and one.path.endswith("index"), times=None)
    assert answers(driver) == expected
    assert struck.hits
    assert driver.log.offline is None


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES, errno.EISDIR])
def test_an_index_file_that_cannot_be_opened_is_derived_from_the_segment(
    make: Callable[[], LogDriver], error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = make()
    expected = answers(driver)
    refused = refuse_to_open(driver, monkeypatch, "index", error)
    assert answers(driver) == expected
    assert refused
    assert driver.log.offline is None


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_reads_work_although_a_derived_index_could_not_be_written(error: int) -> None:
    driver = plain()
    expected = answers(driver)
    lose(driver)
    driver.files.close()
    reading = True
    struck = driver.disk.fail(lambda one: reading and isinstance(one, Write), error=error, times=None)
    assert answers(driver) == expected
    assert struck.hits
    reading = False
    driver.values(b"goes on")
    driver.settle()
    driver.reopen()
    assert driver.log.offline is None
    assert driver.contents()[-1].value == b"goes on"


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".log"])
def test_a_lack_of_descriptors_or_memory_fails_one_lookup_and_keeps_the_log_online(
    error: int, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = plain()
    expected = answers(driver)
    driver.files.close()
    not_opened = refuse_to_open(driver, monkeypatch, suffix, error, times=1)
    job = driver.log.aborted_between(0, driver.log.last_stable_offset)
    assert isinstance(job, AbortedLookup)
    asked = job.run if suffix != ".log" else lambda: driver.read(0)
    with pytest.raises(KafkaError) as refused:
        asked()
    assert (refused.value.code, len(not_opened)) == (ErrorCode.KAFKA_STORAGE_ERROR, 1)
    assert driver.log.offline is None
    assert answers(driver) == expected


def test_opening_a_log_without_indexes_derives_none_and_reads_no_earlier_segment() -> None:
    driver = LogDriver(index_interval_bytes=1, segment_bytes=400)
    for sequence in range(12):
        driver.values(b"v", producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True)
        if sequence % 2:
            driver.marker(1, 0, Marker.ABORT)
        if sequence == 10:
            driver.settle()  # the snapshot is of the middle of a segment
    driver.flush()
    driver.checkpoint()
    last = driver.log.segments[-1]
    assert last.txn_index.entries
    assert last.base_offset < driver.log.snapshots.kept[-1].offset < last.end_offset
    lose(driver)
    earlier = [state.stem for state in driver.log.segments[:-1]]
    struck = driver.disk.fail(
        lambda one: isinstance(one, Read) and any(stem in one.path for stem in earlier), times=None
    )
    assert driver.reopen().offline is None
    assert not struck.hits
    assert index_files(driver) == {}
    assert [each.last_sequence for each in driver.log.producers.describe()] == [11]


def test_indexes_derived_with_another_interval_give_equal_lookups_and_are_not_stored() -> None:
    driver = plain()
    expected = answers(driver)
    driver.log.settings = replace(driver.settings, index_interval_bytes=1)
    lose(driver)
    assert answers(driver) == expected
    assert answers(driver) == expected
    kinds = {name.rsplit(".", 1)[1] for name in index_files(driver)}
    assert "index" not in kinds, "an index with other entries than the lost one is not written"


# ---- aborted transactions, derived ------------------------------------------------------------------------------


def aborted(driver: LogDriver) -> list[tuple[int, ...]]:
    found = driver.log.aborted_between(0, driver.log.last_stable_offset)
    return [tuple(each) for each in (found if isinstance(found, list) else found.run())]


def derived(driver: LogDriver) -> list[tuple[int, ...]]:
    """Remove the transaction indexes, and return the aborted transactions as they are found in the batches."""
    driver.files.close()
    for name in driver.disk.list(DIRECTORY):
        if name.endswith(".txnindex"):
            driver.disk.unlink(f"{DIRECTORY}/{name}")
    return aborted(driver)


def test_without_indexes_an_aborted_transaction_over_several_segments_is_found() -> None:
    driver = LogDriver(segment_bytes=100)
    for number, producer in enumerate((1, 2, 1)):
        driver.values(b"v", producer_id=producer, producer_epoch=0, base_sequence=number // 2, transactional=True)
    driver.marker(2, 0, Marker.COMMIT)  # 3
    driver.marker(1, 0, Marker.ABORT)  # 4
    driver.values(b"v", producer_id=2, producer_epoch=0, base_sequence=1, transactional=True)  # 5
    driver.marker(2, 0, Marker.ABORT)  # 6
    driver.settle()
    reported = aborted(driver)
    # of each aborted transaction: producer id, first offset, its marker's offset, the last stable offset after it
    assert reported == [(1, 0, 4, 5), (2, 5, 6, 7)]
    assert len(driver.log.segments) == 7
    assert derived(driver) == reported


def test_deriving_indexes_finds_an_aborted_transaction_with_deleted_first_records() -> None:
    driver = LogDriver(segment_bytes=100)
    for sequence in range(4):
        driver.values(b"v", producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True)
    driver.marker(1, 0, Marker.ABORT)
    driver.settle()
    driver.start_at(2)
    for _ in range(3):
        driver.snapshot()
        driver.checkpoint()
    assert driver.log.segments[0].base_offset == 2
    assert aborted(driver) == [(1, 0, 4, 5)]
    assert derived(driver) == [(1, 2, 4, 5)]


def test_deriving_indexes_ignores_transactional_batches_without_records() -> None:
    """Compaction keeps such a batch for its producer's sequence; its transaction has ended, and the next one begins
    with its own records.
    """
    driver = LogDriver(
        cleanup_policy="compact", segment_bytes=160, min_cleanable_dirty_ratio=0.0, delete_retention_ms=0
    )

    def write(sequence: int, key: bytes) -> None:
        driver.append(keyed([(key, b"v")], producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True))

    write(0, b"dead")  # 0
    driver.marker(1, 0, Marker.ABORT)  # 1
    for _ in range(4):
        driver.values(b".", key=b"filler")
        driver.settle()
        driver.values(b".", key=b"filler")
        driver.settle()
        driver.advance(1)
        driver.compact()
    first = driver.batches()[0]
    assert (first.base_offset, first.record_count, first.producer_id) == (0, 0, 1), "emptied"
    begins = driver.log.end_offset
    write(1, b"dead too")
    driver.marker(1, 0, Marker.ABORT)
    driver.settle()
    ours = (1, begins, begins + 1, begins + 2)
    assert aborted(driver)[-1] == ours
    assert derived(driver) == [ours]


def derived_at(driver: LogDriver, states: Sequence[SegmentState], number: int) -> list[AbortedTransaction]:
    """Return the aborted transactions of one of these segments, without index files and with nothing in memory."""
    lose(driver)
    driver.files.close()
    return load_indexes(driver.log, states, number).aborted


def test_deriving_the_indexes_of_a_log_reads_each_segment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = plain()
    log, walked, walk = driver.log, list[str](), indexes._batches
    monkeypatch.setattr(indexes, "_batches", lambda log, state: walked.append(state.stem) or walk(log, state))
    for number in range(len(log.segments)):
        derived_at(driver, log.segments, number)
    with_aborts = [state.stem for state in log.segments if state.txn_index.entries]
    assert len(with_aborts) > 2
    assert set(with_aborts) <= set(walked)
    assert len(walked) == len(set(walked))


def test_deriving_indexes_reuses_an_earlier_walk_only_from_the_same_first_segment() -> None:
    """The first segment was removed meanwhile: transactions that began in it are unknown, as in a derivation from the
    start.
    """
    driver = plain()
    log, states = driver.log, driver.log.segments
    for last in range(len(states)):
        for number in range(len(states) - 1):
            log.walked = None
            fresh = derived_at(driver, states[1:], number)
            log.walked = None
            derived_at(driver, states, last)
            assert derived_at(driver, states[1:], number) == fresh

"""File parts, ranges of segment files that are sent without being read, have the bytes that a read would return.

Their file stays open until they are released.
"""

import errno
import gc

import pytest
from fencepost.effects.simulated.operations import Read
from fencepost.protocol import batches
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.records import Marker
from fencepost.storage.log import open_files
from fencepost.storage.log.file_parts import FilePart, read_as_file_part, release
from fencepost.storage.log.segment import Slice
from hypothesis import given, settings
from hypothesis import strategies as st
from log_driver import DIRECTORY, LogDriver, keyed
from long_runs import share_of
from small_parts import FROM_BYTES, leave_small_parts, uses

pytestmark = pytest.mark.slow

ALL = 1 << 20


@pytest.fixture(autouse=True)
def small(monkeypatch):
    leave_small_parts(monkeypatch)


def flushed(sizes=(100,) * 10, **settings) -> LogDriver:
    """Return a log with one batch per size in segments. None has been read yet; each has an index entry."""
    driver = LogDriver(**{"index_interval_bytes": 0, **settings})
    for size in sizes:
        driver.values(b"v" * size, b"w")
    driver.flush()
    driver.checkpoint()
    return driver


def read_all(driver, offset=0, max_bytes=ALL):
    """Read the log by copying, as its first reader does. Returns (offset, bytes, next offset) of each read."""
    found = []
    while offset < driver.log.high_watermark:
        got = driver.read(offset, max_bytes)
        found.append((offset, b"".join(got.buffers), got.next_offset))
        offset = got.next_offset
    return found


def as_file_part(driver, offset=0, max_bytes=ALL, below=None) -> Slice | None:
    """Return the file part that a consumer would be sent, as a Slice; None if its batches must be read."""
    below = driver.log.high_watermark if below is None else below
    return read_as_file_part(driver.log, offset, max_bytes, below)


def part_of(found: Slice | None) -> FilePart:
    """Return the file part of a Slice."""
    assert found is not None
    (part,) = found.buffers
    assert isinstance(part, FilePart)
    assert len(part) == found.size_bytes
    return part


def text(found: Slice | None) -> bytes:
    """Return the bytes of a Slice's file part, and release the part."""
    part = part_of(found)
    try:
        return part.read()
    finally:
        part.release()


def path_of(driver):
    return f"{DIRECTORY}/{driver.log.segments[0].stem}.log"


def test_a_file_part_is_given_only_for_bytes_whose_crc_a_read_has_checked_before():
    driver = flushed()
    assert as_file_part(driver) is None
    ((_, whole, end),) = read_all(driver)
    found = as_file_part(driver)
    assert (text(found), found.next_offset) == (whole, end)
    assert uses(driver.files) == 0


def test_consecutive_file_parts_give_the_same_batches_as_reads_into_memory():
    driver = flushed()
    read_all(driver)
    copied = read_all(driver, max_bytes=450)
    offset, found = 0, []
    while (got := as_file_part(driver, offset, 450)) is not None:
        found.append((offset, text(got), got.next_offset))
        offset = got.next_offset
    assert found == copied


def test_a_file_part_begins_only_at_a_batch_whose_file_position_is_known():
    driver = flushed()
    read_all(driver)
    assert as_file_part(driver, 6) is None
    at_six = driver.read(6, 300)
    assert as_file_part(driver, at_six.next_offset) is not None
    assert as_file_part(driver, 7) is None, "in the middle of a batch"


def test_cold_small_or_unflushed_reads_do_not_use_file_parts(monkeypatch):
    """Nor those whose segment's index is not in memory."""
    driver = flushed()
    read_all(driver)
    assert as_file_part(driver, max_bytes=FROM_BYTES - 1) is None
    driver.disk.is_cold = lambda path: path == path_of(driver)
    assert as_file_part(driver) is None
    driver.disk.is_cold = lambda path: False
    end = driver.log.end_offset
    driver.values(b"x" * 1000)
    assert as_file_part(driver, end) is None
    assert text(as_file_part(driver)) == b"".join(driver.read(0, below=end).buffers)
    driver.files.indexes.clear()
    assert as_file_part(driver) is None
    assert uses(driver.files) == 0


def test_bytes_the_newest_checkpoint_does_not_name_are_not_sent_from_the_file():
    driver = flushed()
    named = driver.log.end_offset
    for _ in range(10):
        driver.values(b"x" * 100)
    driver.flush()
    read_all(driver)
    found = as_file_part(driver)
    assert 0 < found.next_offset <= named, "a recovery writes anew what follows"
    part_of(found).release()
    assert as_file_part(driver, named) is None
    driver.checkpoint()
    read_all(driver, named)
    found = as_file_part(driver)
    assert found.next_offset == driver.log.end_offset
    part_of(found).release()


def test_file_parts_are_given_of_a_limited_number_of_segment_files_at_once():
    """Further parts of a file that already counts are given."""
    driver = flushed(segment_bytes=500)
    read_all(driver)
    places = [state.base_offset for state in driver.log.segments if state.size_bytes > FROM_BYTES]
    most = open_files.most_lent(driver.limit)
    assert len(places) > most + 1
    found = [as_file_part(driver, offset) for offset in places]
    assert [each is None for each in found] == [False] * most + [True] * (len(places) - most)
    again = as_file_part(driver, places[0])
    assert again is not None, "of the same file more"
    part_of(found[0]).release()
    assert as_file_part(driver, places[-1]) is None
    part_of(again).release()
    last = as_file_part(driver, places[-1])
    part_of(last).release()
    for each in found[1:most]:
        part_of(each).release()
    assert uses(driver.files) == 0
    assert driver.files._lent == 0


def test_a_file_part_is_not_used_if_the_segment_file_is_not_open():
    driver = flushed()
    read_all(driver)
    driver.files.forget(path_of(driver))
    assert as_file_part(driver) is None


def test_a_file_part_for_read_committed_ends_below_the_last_stable_offset():
    driver = flushed()
    driver.append(batch_of_producer(7))
    for _ in range(5):
        driver.values(b"v" * 300)
    driver.flush()
    driver.checkpoint()
    read_all(driver)
    stable = driver.log.last_stable_offset
    assert stable == 20
    found = as_file_part(driver, below=stable)
    assert 16 <= found.next_offset <= stable
    part = part_of(found)
    assert all(batch.next_offset <= stable for batch in batches.walk(memoryview(part.read())))
    part.release()
    driver.marker(7, 0, Marker.COMMIT)
    assert text(as_file_part(driver)) == b"".join(driver.read(0, below=driver.log.flushed_offset).buffers)


def batch_of_producer(producer_id):
    from fencepost.protocol.records import Record, build

    return build(
        [Record(0, 1000, None, b"in a transaction")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def test_file_parts_of_a_compacted_segment_have_the_same_bytes_as_reads_into_memory():
    driver = LogDriver(cleanup_policy="compact", segment_bytes=2000, min_cleanable_dirty_ratio=0.0)
    for number in range(60):
        driver.append(keyed([(b"k%d" % (number % 40), b"v%d" % number * 9)]))
    driver.settle()
    read_all(driver)
    before = as_file_part(driver)
    assert driver.compact()
    driver.settle()
    state = driver.log.segments[0]
    assert state.compacted
    assert text(before), "file parts that were found before the compaction can still be read"
    copied = driver.read(0, below=state.end_offset)
    found = as_file_part(driver, below=state.end_offset)
    assert (text(found), found.next_offset) == (b"".join(copied.buffers), copied.next_offset)
    inside = list(batches.walk(memoryview(b"".join(copied.buffers))))[3].base_offset
    copied, found = driver.read(inside, 400), as_file_part(driver, inside, 400)
    assert (text(found), found.next_offset) == (b"".join(copied.buffers), copied.next_offset)


SIZES = st.lists(st.integers(1, 400), min_size=1, max_size=25)


@settings(max_examples=share_of(200))
@given(
    sizes=SIZES,
    interval=st.sampled_from([0, 300, 1000]),
    segment_bytes=st.sampled_from([1500, 1 << 20]),
    asked=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 3000), st.integers(0, 60)), max_size=12),
)
def test_the_bytes_of_a_file_part_are_a_prefix_of_what_a_read_returns(sizes, interval, segment_bytes, asked):
    driver = flushed(sizes, index_interval_bytes=interval, segment_bytes=segment_bytes)
    end = driver.log.end_offset
    read_all(driver, max_bytes=700)
    for offset, max_bytes, below in [(0, 1 << 20, end), *asked]:
        offset, below = min(offset, end - 1), min(below, end)
        found = as_file_part(driver, offset, max_bytes, below)
        if found is None:
            driver.read(offset, max_bytes, below=below)  # then the position of the next batch is known
            continue
        content = text(found)
        copied = driver.read(offset, max_bytes, below=below)
        assert b"".join(copied.buffers).startswith(content)
        assert FROM_BYTES <= len(content) <= max_bytes
        seen = list(batches.walk(memoryview(content)))
        assert seen[0].base_offset <= offset <= seen[0].last_offset
        assert seen[-1].next_offset == found.next_offset <= below
        assert sum(batch.size for batch in seen) == len(content)
    assert uses(driver.files) == 0


def test_damage_after_the_first_check_is_sent_unnoticed_as_in_kafka():
    driver = flushed()
    ((_, whole, _),) = read_all(driver)
    flip(driver, 100)
    assert text(as_file_part(driver)) != whole


def flip(driver, position):
    file = driver.disk.open(path_of(driver))
    file.write([bytes([file.read(1, position)[0] ^ 1])], position)
    file.close()


def test_no_file_part_is_given_if_the_batch_after_it_contradicts_the_index():
    driver = flushed()
    read_all(driver)
    stop = as_file_part(driver, max_bytes=450).size_bytes
    flip(driver, stop + 7)
    assert as_file_part(driver, max_bytes=450) is None
    assert uses(driver.files) == 0


def test_reading_a_file_part_of_a_truncated_file_puts_the_log_offline():
    driver = flushed()
    read_all(driver)
    part = part_of(as_file_part(driver))
    file = driver.disk.open(path_of(driver))
    file.truncate(len(part) - 1)
    with pytest.raises(KafkaError) as refused:
        part.read(50)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.log.offline == f"{path_of(driver)}: at byte {len(part) - 1}: the file ends early"


def test_an_unreadable_file_part_puts_the_log_offline_if_its_segment_is_still_used():
    driver = flushed()
    read_all(driver)
    part = part_of(as_file_part(driver))
    driver.disk.fail(lambda one: isinstance(one, Read), error=errno.EIO, times=2)
    segments = driver.log.segments[:]
    driver.log.segments.clear()
    with pytest.raises(KafkaError) as refused:
        part.read()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.log.offline is None
    driver.log.segments.extend(segments)
    with pytest.raises(KafkaError) as refused:
        part.read()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "Input/output error" in driver.log.offline


def test_no_file_part_is_given_if_the_batch_after_it_cannot_be_read():
    driver = flushed()
    read_all(driver)
    driver.disk.fail(lambda one: isinstance(one, Read), error=errno.EIO)
    assert as_file_part(driver, max_bytes=450) is None
    assert driver.log.offline is None
    assert uses(driver.files) == 0


def test_a_file_part_stays_readable_after_retention_removed_its_segment():
    driver = flushed(segment_bytes=600)
    driver.values(b"last")
    driver.settle()
    read_all(driver, max_bytes=600)
    part, other = part_of(as_file_part(driver)), part_of(as_file_part(driver))
    path, before = path_of(driver), part.read()
    driver.start_at(driver.log.end_offset)
    driver.snapshot()
    for _ in range(3):
        driver.checkpoint()
    assert not driver.disk.exists(path)
    assert part.read() == before
    release([b"other", part])
    assert other.read() == before
    inode = other._file.inode
    assert driver.disk._opened[inode] == 1
    other.release()
    other.release()  # a second release does nothing
    assert driver.disk._opened[inode] == 0


def test_a_file_part_garbage_collected_unreleased_is_released_at_the_files_next_use():
    """A file part is a range of a segment file that is sent to a socket without being read."""
    driver = flushed()
    read_all(driver)
    found = as_file_part(driver)
    assert uses(driver.files) == 1
    with driver.files._lock:  # the garbage collector may run while the lock is held
        del found
    gc.collect()
    assert len(driver.files._abandoned) == 1
    text(as_file_part(driver))
    assert uses(driver.files) == 0


def test_sending_a_file_part_from_a_disk_without_sendfile_raises():
    driver = flushed()
    read_all(driver)
    part = part_of(as_file_part(driver))
    with pytest.raises(OSError):
        part.send(0, 0)
    part.release()


def test_the_repr_of_a_file_part_names_its_topic_partition():
    driver = flushed()
    read_all(driver)
    part = part_of(as_file_part(driver))
    assert repr(part).endswith("of t-0)")
    part.release()

"""Write-behind: when segments roll, what a full disk does, and what is synced before a checkpoint names it."""

import errno
from collections.abc import Sequence

import pytest
from fencepost.effects.disk import Buffer, DiskFull
from fencepost.effects.gathering import BULK_BYTES, SLICE_BYTES
from fencepost.effects.simulated.disk import SimulatedDisk, SimulatedFile
from fencepost.effects.simulated.operations import Write
from fencepost.protocol.records import Marker, Record, build
from fencepost.storage.log.flush import GATHERED_BYTES
from log_driver import DIRECTORY, LogDriver, batch_of


def names(driver: LogDriver, suffix: str = ".log") -> list[str]:
    return [name for name in driver.disk.list(DIRECTORY) if name.endswith(suffix)]


def bases(driver: LogDriver) -> list[int]:
    return [state.base_offset for state in driver.log.segments]


def test_a_segment_rolls_before_it_exceeds_segment_bytes() -> None:
    size = len(batch_of([b"12345"]))
    driver = LogDriver(segment_bytes=3 * size)
    for _ in range(7):
        driver.values(b"12345")
    driver.flush()
    assert bases(driver) == [0, 3, 6]
    assert names(driver) == [f"{base:020d}.0.log" for base in (0, 3, 6)]
    assert [state.size_bytes for state in driver.log.segments] == [3 * size, 3 * size, size]


def test_a_batch_larger_than_segment_bytes_gets_a_segment_of_its_own() -> None:
    driver = LogDriver(segment_bytes=100)
    driver.values(b"small")
    driver.values(b"x" * 1000)
    driver.values(b"small")
    driver.flush()
    assert bases(driver) == [0, 1, 2]
    assert len(driver.contents()) == 3


def test_a_segment_rolls_when_its_first_batch_is_older_than_segment_ms() -> None:
    driver = LogDriver(segment_ms=1000)
    driver.values(b"one")
    driver.advance(1000)
    driver.values(b"two")
    driver.advance(1)
    driver.values(b"three")
    driver.flush()
    assert bases(driver) == [0, 2]


def test_the_age_of_a_segment_continues_after_a_restart() -> None:
    driver = LogDriver(segment_ms=1000)
    driver.values(b"one")
    driver.settle()
    driver.advance(600)
    driver.reopen()
    driver.advance(600)
    driver.values(b"two")
    driver.flush()
    assert bases(driver) == [0, 1]


def test_a_segment_age_ahead_of_the_restored_store_age_is_set_to_the_store_age() -> None:
    driver = LogDriver(segment_ms=1000)
    driver.advance(50_000)
    driver.values(b"one")
    driver.settle()
    driver.age_ms = 10_000
    driver.reopen()
    assert driver.log.segments[0].last_age_ms == 10_000
    driver.advance(1001)
    driver.values(b"two")
    driver.flush()
    assert bases(driver) == [0, 1]


def test_a_segment_rolls_before_a_relative_offset_exceeds_an_int32() -> None:
    """After compaction few records may span many offsets; index entries hold an int32."""
    driver = LogDriver()
    far = 2**31 - 2
    driver.append(build([Record(0, 1, b"k", b"v")], last_offset_delta=far))
    driver.values(b"fits")
    driver.values(b"fits not")
    driver.values(b"fits")
    driver.flush()
    assert bases(driver) == [0, 2**31]
    assert [record.offset for record in driver.contents()] == [0, far + 1, far + 2, far + 3]


def test_a_segment_rolls_when_its_index_is_full() -> None:
    driver = LogDriver(index_interval_bytes=0, segment_index_bytes=24)
    for _ in range(9):
        driver.values(b"one")
    driver.flush()
    assert [state.offset_index.entries for state in driver.log.segments] == [3, 3, 0]


def test_a_lowered_segment_bytes_applies_from_the_next_flush() -> None:
    driver = LogDriver()
    driver.values(b"x" * 100)
    driver.flush()
    driver.log.settings = type(driver.settings)(segment_bytes=10)
    driver.values(b"x")
    driver.flush()
    assert bases(driver) == [0, 1]


def test_a_flush_leaves_out_batches_that_are_not_released_yet() -> None:
    driver = LogDriver()
    driver.values(b"one")
    driver.append(batch_of([b"two"]), release=False)
    driver.flush()
    assert driver.log.flushed_offset == 1
    assert driver.log.tail_bytes == len(batch_of([b"two"]))
    assert driver.log.first_unflushed_unit == 2
    driver.release()
    driver.flush()
    assert (driver.log.flushed_offset, driver.log.tail_bytes, driver.log.first_unflushed_unit) == (2, 0, None)


def test_a_flush_takes_the_oldest_batches_up_to_max_bytes_but_at_least_one() -> None:
    driver = LogDriver()
    size = len(batch_of([b"12345"]))
    for _ in range(5):
        driver.values(b"12345")
    for max_bytes, count in ((1, 1), (2 * size, 2), (10 * size, 2)):
        job = driver.log.flush_job(max_bytes)
        assert job is not None
        assert job.size_bytes == count * size
        assert driver.log.flush_job(max_bytes) is None  # one job at a time
        job.run()
        driver.log.flushed(job)
    assert driver.log.flush_job(1) is None


def test_large_batches_are_written_in_slices_of_64_kib() -> None:
    disk = SimulatedDisk()
    driver = LogDriver(disk)
    driver.values(b"x" * 150_000)
    for _ in range(100):
        driver.values(b"y" * 1000)
    driver.flush()
    sizes = [len(operation.data) for operation in disk.operations if isinstance(operation, Write)]
    assert max(sizes) == SLICE_BYTES
    assert len(sizes) <= 250_000 // SLICE_BYTES + 2 + 1  # slices, a last short one, and two index files


@pytest.mark.slow
@pytest.mark.parametrize("paced", [True, False])
def test_a_bulk_flush_writes_past_the_page_cache(monkeypatch: pytest.MonkeyPatch, paced: bool) -> None:
    """In pieces of BULK_BYTES to about GATHERED_BYTES, each of them paced if the flush is."""
    sizes: list[int] = []
    paced_seen: set[bool] = set()

    def written(file: SimulatedFile, buffers: Sequence[Buffer], position: int, *, paced: bool) -> None:
        paced_seen.add(paced)
        sizes.append(sum(map(len, buffers)))
        file.write(buffers, position)

    monkeypatch.setattr(SimulatedFile, "write_past_cache", written)
    driver = LogDriver()
    for number in range(300):
        driver.values(bytes([number % 251]) * 30_000)
    contents = driver.contents()
    job = driver.log.flush_job(100 << 20, paced=paced)
    assert job is not None
    job.run()
    driver.log.flushed(job)
    assert paced_seen == {paced}
    assert min(sizes) >= BULK_BYTES
    assert max(sizes) <= GATHERED_BYTES + 31_000
    assert sum(sizes) == driver.log.segments[-1].size_bytes
    assert driver.contents() == contents


def test_batches_whose_flush_failed_on_a_full_disk_are_written_by_a_later_flush() -> None:
    disk = SimulatedDisk()
    driver = LogDriver(disk, segment_bytes=20_000)
    for number in range(50):
        driver.values(b"%d" % number * 500)
    disk.capacity_bytes = 10_000
    job = driver.log.flush_job(1 << 20)
    assert job is not None
    with pytest.raises(DiskFull):
        job.run()
    driver.log.flush_failed(job)
    assert driver.log.flushed_offset == 0
    assert len(driver.contents()) == 50
    driver.checkpoint()
    disk.capacity_bytes = None
    driver.settle()
    assert driver.log.tail_bytes == 0
    assert len(driver.contents()) == 50
    driver.reopen()
    assert len(driver.contents()) == 50


def test_kafka_7866_write_errors_other_than_a_full_disk_are_raised() -> None:
    """KAFKA-7866: an error in writing an index, after the log was written, is raised too, and then no part of the
    flush counts as written.
    """
    for suffix in (".log", ".index", ".txnindex"):
        disk = SimulatedDisk()
        driver = LogDriver(disk, index_interval_bytes=0)
        fields = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
        driver.append(batch_of([b"a"], base_sequence=0, **fields))
        driver.append(batch_of([b"b"], base_sequence=1, **fields))
        driver.marker(1, 0, Marker.ABORT)
        disk.fail(lambda one, suffix=suffix: isinstance(one, Write) and one.path.endswith(suffix))  # type: ignore[misc]
        job = driver.log.flush_job(1 << 20)
        assert job is not None
        with pytest.raises(OSError) as raised:
            job.run()
        assert raised.value.errno == errno.EIO
        assert driver.log.flushed_offset == 0
        assert driver.log.segments == []


def test_a_checkpoint_names_only_files_synced_by_its_job() -> None:
    disk = SimulatedDisk()
    driver = LogDriver(disk, segment_bytes=300)
    for number in range(9):
        driver.values(b"%d" % number * 50)
    driver.settle()
    for number in range(9):
        driver.values(b"%d" % number * 50)
    driver.flush()  # never synced
    before = [batch.buffer.tobytes() for batch in driver.batches()]
    driver.disk = disk.after_power_cut()
    driver.reopen(replay=False)
    assert driver.log.offline is None
    assert driver.log.end_offset == 9
    driver.reopen()
    assert [batch.buffer.tobytes() for batch in driver.batches()] == before


def test_segment_bytes_written_during_a_sync_job_are_synced_by_the_next_sync_job() -> None:
    disk = SimulatedDisk()
    driver = LogDriver(disk)
    driver.values(b"one")
    driver.flush()
    job = driver.log.sync_job()
    assert job is not None
    job.run()
    driver.values(b"two")
    driver.flush()
    driver.log.synced(job)
    assert driver.log.sync_job() is not None
    driver.checkpoint()
    assert driver.log.sync_job() is None


def test_a_failed_sync_of_a_segment_raises_in_the_checkpoints_sync_job() -> None:
    disk = SimulatedDisk()
    driver = LogDriver(disk)
    driver.values(b"one")
    driver.flush()
    disk.fail_sync(lambda path: path.endswith(".log"))
    job = driver.log.sync_job()
    assert job is not None
    with pytest.raises(OSError):
        job.run()


def test_files_above_the_open_file_limit_are_synced_before_they_are_closed() -> None:
    """The kernel reports a failed write-back only to descriptors that were open then; closing first would lose the
    error.
    """
    disk = SimulatedDisk()
    driver = LogDriver(disk, open_files=2, segment_bytes=100)
    for _ in range(20):
        driver.values(b"one")
    driver.flush()
    assert len(driver.files) <= 2
    driver.checkpoint()
    driver.disk = disk.after_power_cut()
    driver.reopen(replay=False)
    assert driver.log.offline is None
    assert len(driver.contents()) == 20


def test_a_sync_that_runs_just_before_a_write_does_not_count_for_that_write() -> None:
    """Otherwise the file would count as synced and be closed, and a power cut could lose checkpointed bytes."""
    disk = SimulatedDisk()
    driver = LogDriver(disk, open_files=1)
    driver.values(b"one")
    driver.flush()
    path = f"{DIRECTORY}/{0:020d}.0.log"
    with driver.files.use(path) as file:
        real = file.write
        file.write = lambda buffers, position: (driver.files.sync(path), real(buffers, position))[1]  # type: ignore[method-assign]
    driver.values(b"two")
    driver.flush()
    with driver.files.use(f"{DIRECTORY}/another", create=True):
        pass
    driver.files.make_room()
    driver.checkpoint()
    driver.disk = disk.after_power_cut()
    assert driver.reopen(replay=False).offline is None
    assert len(driver.contents()) == 2


def test_the_file_name_of_a_segment_made_during_a_checkpoint_is_synced_by_the_next() -> None:
    driver = LogDriver(SimulatedDisk(history=True), segment_bytes=150)
    driver.values(b"value")
    driver.flush()
    job = driver.log.sync_job()
    job.run()
    driver.values(b"in a segment of its own", b"second")
    driver.flush()
    driver.log.synced(job)
    driver.checkpoint()
    driver.files.close()
    driver.disk = driver.disk.after_power_cut()
    log = driver.reopen(replay=False)
    assert log.offline is None
    assert [record.offset for record in driver.contents()] == [0, 1, 2]

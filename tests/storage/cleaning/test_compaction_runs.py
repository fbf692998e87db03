"""A compaction: its slices, its swap of segments, and what a crash, a full disk or damage leaves of the log."""

import errno
import itertools

import many_headers
import pytest
from compacted_log import HORIZON_MS, clean, compacted_log, put, values, visible
from failing_steps import fail_each_step
from fencepost.effects.disk import DiskFull
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Open, Read
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.records import records
from fencepost.storage.cleaning.compaction import SLICE_MS, begin_compaction
from fencepost.storage.log.partition_log import PartitionLog
from log_driver import DIRECTORY, LogDriver
from peak_memory import peak_bytes


def test_kafka_6264_a_crash_after_segments_were_swapped_loses_or_doubles_no_record() -> None:
    """KAFKA-6264 and similar bugs: a kill or a power cut after a compaction has replaced segments; either of the last
    two checkpoints is opened.
    """
    disk = SimulatedDisk()
    driver = LogDriver(
        disk, cleanup_policy="compact", segment_bytes=160, min_cleanable_dirty_ratio=0.0, delete_retention_ms=HORIZON_MS
    )
    for number in range(20):
        put(driver, (b"k%d" % (number % 3), b"%d" % number))
    driver.settle()
    put(driver, (b"filler", b"."))
    driver.settle()
    expected = values(driver)
    driver.compact()
    driver.checkpoint()
    driver.checkpoint()
    for row in range(2):
        for again in (disk.after_process_crash(), disk.after_power_cut()):
            twin = LogDriver(again, cleanup_policy="compact", segment_bytes=160)
            twin.rows, twin.journal = driver.rows, driver.journal
            log = twin.reopen(row=row)
            assert log.offline is None
            assert values(twin) == expected


@pytest.mark.slow
def test_a_crash_at_any_disk_operation_of_a_compaction_loses_no_record() -> None:
    disk = SimulatedDisk()
    settings = {"cleanup_policy": "compact", "segment_bytes": 160, "min_cleanable_dirty_ratio": 0.0}
    driver = LogDriver(disk, **settings)
    for number in range(12):
        put(driver, (b"k%d" % (number % 3), b"%d" % number))
    driver.settle()
    put(driver, (b"filler", b"."))
    driver.settle()
    expected = values(driver)
    first = len(disk.operations)
    driver.compact()
    assert len(disk.operations) > first + 5
    for n in range(first, len(disk.operations) + 1):
        twin = LogDriver(disk.at(n), **settings)
        twin.rows, twin.journal = driver.rows, driver.journal
        log = twin.reopen()
        assert log.offline is None
        assert values(twin) == expected
        clean(twin)  # names of the killed run are not used again
        assert values(twin) == expected
        twin.reopen()
        assert values(twin) == expected


def test_a_compaction_on_a_full_disk_leaves_no_files_and_the_next_one_works() -> None:
    disk = SimulatedDisk()
    driver = LogDriver(disk, cleanup_policy="compact", segment_bytes=2000, min_cleanable_dirty_ratio=0.0)
    for number in range(100):
        put(driver, (b"k%d" % number, b"v" * 20))
    driver.settle()
    names = driver.disk.list(DIRECTORY)
    disk.capacity_bytes = sum(disk.size(f"{DIRECTORY}/{name}") for name in names) + 3000
    run = begin_compaction(driver.log, 0, lambda: 0)
    assert run is not None
    with pytest.raises(DiskFull):
        run.run_slice()
    driver.log.compaction_failed(run)
    for path in driver.log.removable_files():
        driver.disk.unlink(path)
    assert driver.disk.list(DIRECTORY) == names
    disk.capacity_bytes = None
    assert driver.compact()
    assert len(visible(driver)) == 100


def test_a_compaction_that_reads_damaged_bytes_puts_the_log_offline() -> None:
    driver = compacted_log()
    for number in range(12):
        put(driver, (b"k", b"%d" % number))
    driver.settle()
    file = driver.disk.open(f"{DIRECTORY}/{driver.log.segments[1].stem}.log")
    file.write([b"\xff"], 65)
    run = begin_compaction(driver.log, 0, lambda: 0)
    assert run is not None
    with pytest.raises(KafkaError) as raised:
        run.run_slice()
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert driver.log.offline is not None
    driver.log.compaction_failed(run)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EACCES, errno.EIO])
def test_a_compaction_that_cannot_open_or_read_a_file_reports_no_damage(number: int) -> None:
    """Every open and read is made to fail once: of the producer snapshot, the indexes and the segments."""
    for step in range(1_000):
        disk = SimulatedDisk(history=False)
        driver = LogDriver(disk, cleanup_policy="compact", segment_bytes=160, min_cleanable_dirty_ratio=0.0)
        for sequence in range(8):
            put(driver, (b"k%d" % (sequence % 3), b"v"), producer_id=7, producer_epoch=0, base_sequence=sequence)
            if sequence % 3 == 2:
                driver.settle()
        expected = values(driver)
        driver.files.close()
        steps = itertools.count()
        is_struck = lambda one: isinstance(one, Open | Read) and next(steps) in (step, step + 1)  # noqa: B023, E731
        fault = disk.fail(is_struck, error=number, times=2)  # an open without free descriptors is tried twice
        run = begin_compaction(driver.log, driver.age_ms, lambda: 0)
        assert run is not None
        try:
            while not run.finished:
                run.run_slice()
        except (KafkaError, OSError) as error:
            failed = error
            driver.log.compaction_failed(run)
        else:
            failed = None
            driver.log.compacted(run)
        fault.times = fault.hits  # from here on the disk is sound
        assert bool(fault.hits) == (failed is not None), (step, failed)
        assert driver.log.offline is None
        driver.compact()
        assert driver.log.cleaned_offset > 0
        assert values(driver) == expected
        if not fault.hits:
            break
    assert step > 4  # the snapshot and a segment, each opened and read, and more


@pytest.mark.slow
def test_a_system_error_at_any_step_of_a_compaction_loses_no_record() -> None:
    drivers: list[LogDriver] = []

    def make() -> SimulatedDisk:
        driver = LogDriver(SimulatedDisk(), cleanup_policy="compact", segment_bytes=160, min_cleanable_dirty_ratio=0.0)
        for sequence in range(8):
            put(driver, (b"k%d" % (sequence % 3), b"v"), producer_id=7, producer_epoch=0, base_sequence=sequence)
        driver.settle()
        put(driver, (b"filler", b"."))
        driver.settle()
        driver.files.close()
        drivers[:] = [driver]
        return driver.disk

    def work(disk: SimulatedDisk) -> None:
        log = drivers[0].log
        run = begin_compaction(log, 0, lambda: 0)
        assert run is not None
        try:
            while not run.finished:
                run.run_slice()
        except KafkaError:
            log.compaction_failed(run)
        except OSError:
            log.compaction_failed(run)
            raise
        else:
            log.compacted(run)
        drivers[0].checkpoint()

    def judge(disk: SimulatedDisk, done: None) -> None:
        driver = drivers[0]
        assert driver.log.offline is None
        for image in (disk.after_process_crash(), disk.after_power_cut()):
            twin = LogDriver(image, cleanup_policy="compact", segment_bytes=160)
            twin.rows, twin.journal = driver.rows, driver.journal
            assert twin.reopen().offline is None
            assert values(twin) == {b"k0": b"v", b"k1": b"v", b"k2": b"v"}

    assert fail_each_step(make, work, judge) > 10


def test_a_compaction_pauses_after_its_time_slice_and_later_appends_are_kept() -> None:
    driver = compacted_log()
    for number in range(50):
        put(driver, (b"k%d" % (number % 5), b"%d" % number))
    driver.settle()
    now = [0]

    def each_look_takes_a_millisecond() -> int:
        now[0] += 1
        return now[0]

    run = begin_compaction(driver.log, 0, each_look_takes_a_millisecond)
    assert run is not None
    slices = 0
    while not run.finished:
        before = now[0]
        run.run_slice()
        assert now[0] - before <= SLICE_MS + 1
        slices += 1
        put(driver, (b"k1", b"meanwhile"))
        driver.flush()
    assert slices > 10
    driver.log.compacted(run)
    assert values(driver)[b"k1"] == b"meanwhile"
    driver.settle()
    assert driver.compact(), "what was appended meanwhile is a reason for the next compaction"
    assert values(driver) == {b"k0": b"45", b"k1": b"meanwhile"} | {b"k%d" % n: b"%d" % (45 + n) for n in (2, 3, 4)}


def test_a_log_has_one_compaction_at_a_time_and_none_without_cleanup_policy_compact() -> None:
    driver = compacted_log()
    for number in range(12):
        put(driver, (b"k", b"%d" % number))
    driver.settle()
    assert begin_compaction(driver.log, 0, lambda: 0) is not None
    assert begin_compaction(driver.log, 0, lambda: 0) is None
    plain = LogDriver(segment_bytes=160)
    for number in range(12):
        put(plain, (b"k", b"%d" % number))
    plain.settle()
    assert begin_compaction(plain.log, 0, lambda: 0) is None


def test_compacted_segment_files_are_removed_after_two_checkpoints() -> None:
    driver = compacted_log()
    for number in range(12):
        put(driver, (b"k", b"%d" % number))
    clean(driver)
    generations = lambda: {name.split(".")[1] for name in driver.disk.list(DIRECTORY) if name.startswith("0" * 20)}  # noqa: E731
    assert generations() == {"0", "1"}
    driver.checkpoint()
    assert generations() == {"0", "1"}
    driver.checkpoint()
    assert generations() == {"1"}


def test_segments_expired_during_a_compaction_are_removed_for_good_after_it() -> None:
    driver = compacted_log(cleanup_policy="compact,delete", retention_ms=1000)
    for number in range(12):
        put(driver, (b"k%d" % number, b"v"))
    driver.settle()
    run = begin_compaction(driver.log, 0, lambda: 0)
    assert run is not None
    driver.advance(2000)
    put(driver, (b"young", b"v"))
    put(driver, (b"young", b"v"))
    driver.flush()
    driver.retain()
    start = driver.log.start_offset
    assert start == 12
    for _ in range(4):
        driver.checkpoint()
    while not run.finished:
        run.run_slice()
    driver.log.compacted(run)
    for _ in range(4):
        driver.checkpoint()
    assert [(state.base_offset, state.end_offset) for state in driver.log.segments] == [(12, 14)]
    log: PartitionLog = driver.reopen()
    assert log.offline is None
    assert log.start_offset == start
    assert [(state.base_offset, state.end_offset) for state in log.segments] == [(12, 14)]


def test_a_segment_replaced_during_a_checkpoint_is_kept_one_checkpoint_more() -> None:
    driver = compacted_log()
    for number in range(12):
        put(driver, (b"k", b"%d" % number))
    driver.settle()
    driver.log.manifest()
    assert driver.compact()
    driver.log.checkpointed()  # the checkpoint names the segments before the swap
    driver.checkpoint()
    first = "00000000000000000000.0.log"
    assert first in driver.disk.list(DIRECTORY)
    driver.checkpoint()
    assert first not in driver.disk.list(DIRECTORY)


@pytest.mark.slow
def test_compacting_a_record_with_a_million_headers_copies_it_as_bytes() -> None:
    """Its headers are never decoded into objects, which would take far more memory."""
    driver = compacted_log()
    driver.append(many_headers.batch(1_000_000, key=b"kept"))
    put(driver, (b"k", b"newer"))
    size = many_headers.BYTES_EACH * 1_000_000
    assert peak_bytes(lambda: clean(driver)) < 8 * size
    first = driver.batches()[0]
    assert (first.base_offset, first.record_count) == (0, 1), "of two records one stays"
    (record,) = records(first)
    assert (record.key, record.value, len(record.headers)) == (b"kept", b"v", 1_000_000)

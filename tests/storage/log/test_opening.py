"""Opening a log from a manifest: what is cut, what is removed, what puts it offline, and what is rebuilt."""

from collections.abc import Callable

import msgpack
import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol import batches
from fencepost.protocol.errors import KafkaError
from fencepost.protocol.records import Marker
from fencepost.storage.cleaning.retention import expired
from fencepost.storage.log.opening import RESTORE_HINT, open_partition_log
from fencepost.storage.log.partition_log import PartitionLog
from fencepost.storage.producers.producers import ProducerStates
from log_driver import DIRECTORY, LogDriver, batch_of


def produce(driver: LogDriver, count: int, *, producer_id: int = 7) -> None:
    """Append batches of an idempotent producer; the sequence of each is its offset."""
    for _ in range(count):
        sequence = driver.log.end_offset
        driver.values(b"value", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def described(states: ProducerStates) -> list[object]:
    return sorted(tuple(each) for each in states.describe())


def window(log: PartitionLog) -> list[int]:
    """Return the base offsets of the batches of producer 7 that would be answered as duplicates."""
    found = []
    for sequence in range(log.end_offset):
        batch = batches.read(memoryview(batch_of([b"x"], producer_id=7, producer_epoch=0, base_sequence=sequence)))
        try:
            duplicate = log.producers.judge(batch)
        except KafkaError:
            continue
        if duplicate is not None:
            found.append(duplicate.base_offset)
    return found


def snapshot_names(driver: LogDriver) -> list[str]:
    return [name for name in driver.disk.list(DIRECTORY) if name.endswith(".producers")]


def log_names(driver: LogDriver) -> list[str]:
    return [name for name in driver.disk.list(DIRECTORY) if name.endswith(".log")]


def flip(driver: LogDriver, name: str, position: int = -1) -> None:
    """Flip a bit in one byte of a file. position: from the file's end if negative."""
    file = driver.disk.open(f"{DIRECTORY}/{name}")
    position = position % file.size()
    file.write([bytes([file.read(1, position)[0] ^ 0x10])], position)
    file.close()


def test_a_reopened_log_has_the_batches_and_producers_it_had_before() -> None:
    driver = LogDriver(segment_bytes=300)
    produce(driver, 20)
    driver.settle()
    before = [batch.buffer.tobytes() for batch in driver.batches()], described(driver.log.producers)
    log = driver.reopen(replay=False)
    assert log.offline is None
    assert ([batch.buffer.tobytes() for batch in driver.batches()], described(log.producers)) == before
    assert log.manifest() == log.manifest()  # asking for it changes nothing
    assert log.sync_job() is None  # opening has written nothing that must be synced


@pytest.mark.requirement("S-22", "S-23")
def test_the_last_five_batches_of_a_producer_are_remembered_after_a_restart() -> None:
    driver = LogDriver()
    produce(driver, 9)
    driver.settle()
    assert window(driver.reopen()) == [4, 5, 6, 7, 8]


def test_kafka_12520_5249_producer_state_is_rebuilt_from_snapshot_and_later_batches() -> None:
    """KAFKA-12520 threw the snapshot away; KAFKA-5249 used one of another offset."""
    driver = LogDriver(segment_bytes=300, index_interval_bytes=0)
    produce(driver, 8)
    driver.settle()
    produce(driver, 3)
    driver.flush()
    driver.checkpoint()
    produce(driver, 2)
    log = driver.reopen()
    assert window(log) == [8, 9, 10, 11, 12]
    assert log.producers.judge(next_batch(13)) is None


def next_batch(sequence: int) -> batches.Batch:
    return batches.read(memoryview(batch_of([b"x"], producer_id=7, producer_epoch=0, base_sequence=sequence)))


def test_kafka_6683_a_producer_snapshot_is_used_only_if_its_records_are_flushed() -> None:
    """KAFKA-6683: a snapshot must not hold state beyond its offset."""
    driver = LogDriver()
    produce(driver, 3)
    driver.flush()
    driver.checkpoint()
    produce(driver, 3)
    driver.snapshot()
    driver.checkpoint()
    assert snapshot_names(driver) == ["00000000000000000006.producers"]
    log = driver.reopen(replay=False)  # the journal lost the last three
    assert log.end_offset == 3
    assert window(log) == [0, 1, 2]
    assert snapshot_names(driver) == []  # a later snapshot may get this name


def test_a_checkpoint_keeps_the_files_of_the_last_two_producer_snapshots_only() -> None:
    driver = LogDriver()
    for _ in range(5):
        produce(driver, 3)
        driver.settle()
    driver.checkpoint()
    assert snapshot_names(driver) == ["00000000000000000012.producers", "00000000000000000015.producers"]


def test_kafka_9892_15312_a_damaged_producer_snapshot_is_replaced_by_the_older_one() -> None:
    """KAFKA-9892, KAFKA-15312: an empty or torn snapshot."""
    for damage in (flip, truncate, empty, remove):
        driver = LogDriver(segment_bytes=300)
        produce(driver, 6)
        driver.settle()
        produce(driver, 6)
        driver.settle()
        driver.start_at(3)  # so that it cannot be rebuilt from the beginning
        driver.checkpoint()
        before = window(driver.log)
        damage(driver, snapshot_names(driver)[-1])
        log = driver.reopen()
        assert log.offline is None
        assert "00000000000000000012.producers" in log.warnings[0]
        assert window(log) == before == [7, 8, 9, 10, 11]


def truncate(driver: LogDriver, name: str) -> None:
    file = driver.disk.open(f"{DIRECTORY}/{name}")
    file.truncate(file.size() - 1)
    file.close()


def empty(driver: LogDriver, name: str) -> None:
    file = driver.disk.open(f"{DIRECTORY}/{name}")
    file.truncate(0)
    file.close()


def remove(driver: LogDriver, name: str) -> None:
    driver.disk.unlink(f"{DIRECTORY}/{name}")


def test_without_any_snapshot_producers_are_rebuilt_from_a_log_that_begins_at_0() -> None:
    driver = LogDriver(segment_bytes=300)
    produce(driver, 6)
    driver.settle()
    produce(driver, 6)
    driver.settle()
    for name in snapshot_names(driver):
        remove(driver, name)
    log = driver.reopen()
    assert log.offline is None
    assert len(log.warnings) == 2
    assert window(log) == [7, 8, 9, 10, 11]


def test_without_any_snapshot_a_log_that_does_not_begin_at_0_is_offline() -> None:
    """Its files and its row in the checkpoint are left as they are, and nothing is flushed or expired."""
    driver = LogDriver(segment_bytes=150)
    for _ in range(3):
        produce(driver, 6)
        driver.settle()
    driver.start_at(6)
    driver.checkpoint()
    assert driver.log.segments[0].base_offset > 0
    manifest = msgpack.unpackb(driver.rows[-1])
    snapshots = snapshot_names(driver)
    for name in snapshots:
        flip(driver, name)
    files = driver.disk.list(DIRECTORY)
    log = driver.reopen()
    assert log.offline is not None
    lost = [f"{DIRECTORY}/{name}: it fails its checksum" for name in reversed(snapshots)]
    assert log.offline == f"the state of producers is lost ({'; '.join(lost)}); {RESTORE_HINT}"
    assert driver.disk.list(DIRECTORY) == files
    assert msgpack.unpackb(msgpack.packb(log.manifest())) == manifest  # the evidence stays in every checkpoint
    assert log.flush_job(1) is None
    assert expired(log, 10**12) is None


def test_a_log_without_producers_opens_without_a_snapshot_file_or_a_scan() -> None:
    disk = SimulatedDisk()
    driver = LogDriver(disk, segment_bytes=150)
    for _ in range(10):
        driver.values(b"value")
    driver.flush()
    driver.snapshot()
    driver.checkpoint()
    assert snapshot_names(driver) == []
    flip(driver, "00000000000000000000.0.log", 70)  # opening does not read this byte
    log = driver.reopen()
    assert log.offline is None
    assert len(driver.files) == 0


def test_a_log_whose_producers_all_expired_keeps_no_snapshot_file_and_opens() -> None:
    """It opens again after a new producer has written, although that one is in no snapshot yet."""
    driver = LogDriver(segment_bytes=150)
    produce(driver, 6)
    driver.settle()
    driver.log.producers.expire(10**9, 1)
    driver.values(b"plain")
    driver.settle()
    driver.start_at(7)
    for _ in range(3):
        driver.checkpoint()
    assert snapshot_names(driver) == []
    assert driver.log.segments == []
    log = driver.reopen()
    assert log.offline is None
    assert len(log.producers) == 0
    produce(driver, 1)
    driver.flush()
    driver.checkpoint()  # a producer again, in no snapshot yet: the empty snapshot is used
    log = driver.reopen()
    assert log.offline is None
    assert len(log.producers) == 1


def test_kafka_7190_producers_survive_when_retention_took_all_their_records() -> None:
    """KAFKA-7190: sequences continue although no record of the producer is left."""
    driver = LogDriver(segment_bytes=150)
    produce(driver, 12)
    driver.settle()
    driver.values(b"plain")
    driver.settle()
    driver.start_at(13)
    for _ in range(4):
        driver.checkpoint()
    log = driver.reopen()
    assert log.offline is None
    assert window(log) == [7, 8, 9, 10, 11]
    assert log.producers.judge(next_batch(12)) is None


def test_a_producer_snapshot_made_in_slices_has_no_changes_made_meanwhile() -> None:
    driver = LogDriver()
    for producer_id in range(1200):
        driver.values(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    driver.flush()
    log = driver.log
    assert log.prepare_snapshot()
    driver.values(b"later", producer_id=5, producer_epoch=0, base_sequence=1)
    while log.prepare_snapshot():
        pass
    job = log.snapshot_job()
    assert job is not None
    assert job.offset == 1200
    job.run()
    driver.checkpoint()
    log = driver.reopen(replay=False)
    assert len(log.producers) == 1200
    assert (
        log.producers.judge(
            batches.read(memoryview(batch_of([b"x"], producer_id=5, producer_epoch=0, base_sequence=1)))
        )
        is None
    )


# ---- segments ----------------------------------------------------------------------------------------------------


def test_at_opening_segment_and_index_bytes_after_the_checkpointed_end_are_cut_off() -> None:
    """These may be NULs, which ext4 leaves after a file's synced end."""
    for garbage in (b"\0" * 5000, b"garbage", batch_of([b"a batch that was never acknowledged"])):
        driver = LogDriver(index_interval_bytes=0)
        for _ in range(5):
            driver.values(b"value")
        driver.settle()
        for suffix in ("log", "index", "timeindex"):
            file = driver.disk.open(f"{DIRECTORY}/00000000000000000000.0.{suffix}")
            file.write([garbage], file.size())
            file.close()
        log = driver.reopen(replay=False)
        assert log.offline is None
        assert driver.disk.size(f"{DIRECTORY}/00000000000000000000.0.log") == log.segments[0].size_bytes
        driver.values(b"goes on")
        driver.settle()
        assert [record.offset for record in driver.reopen(replay=False) and driver.contents()] == list(range(6))


def test_segment_files_above_the_checkpoint_are_removed_at_the_start() -> None:
    driver = LogDriver(segment_bytes=100)
    for _ in range(3):
        driver.values(b"value")
    driver.settle()
    before = log_names(driver)
    for _ in range(5):
        driver.values(b"value")
    driver.flush()
    assert log_names(driver) != before
    driver.reopen(replay=False)
    assert log_names(driver) == before


def test_opening_and_checkpoints_remove_no_foreign_file_of_a_log_folder() -> None:
    driver = LogDriver()
    driver.values(b"value")
    driver.settle()
    strange = ["journal-parts-0", "notes.txt", "1.0.log", "00000000000000000009.x.log", "core"]
    for name in strange:
        driver.disk.open(f"{DIRECTORY}/{name}", create=True).close()
    driver.reopen()
    for _ in range(4):
        driver.checkpoint()
    assert set(strange) <= set(driver.disk.list(DIRECTORY))


@pytest.mark.parametrize("damage", [remove, truncate], ids=["missing", "a byte short"])
@pytest.mark.parametrize("number", [0, 2])
def test_a_segment_that_is_missing_or_short_puts_the_log_offline(
    damage: Callable[[LogDriver, str], None], number: int
) -> None:
    driver = LogDriver(segment_bytes=100)
    for _ in range(3):
        driver.values(b"value")
    driver.settle()
    name = log_names(driver)[number]
    damage(driver, name)
    left = driver.disk.list(DIRECTORY)
    log = driver.reopen()
    why = "is missing" if damage is remove else "has 72 bytes, the checkpoint counts 73"
    assert log.offline == f"{DIRECTORY}/{name} {why}: offsets {number} to {number} are missing; {RESTORE_HINT}"
    assert driver.disk.list(DIRECTORY) == left
    assert msgpack.packb(log.manifest()) == driver.rows[-1]


def test_a_missing_log_folder_puts_the_log_offline() -> None:
    driver = LogDriver()
    driver.values(b"value")
    driver.settle()
    driver.disk.remove_tree(DIRECTORY)
    segment = f"{DIRECTORY}/00000000000000000000.0.log"
    assert driver.reopen().offline == f"{segment} is missing: offsets 0 to 0 are missing; {RESTORE_HINT}"


def test_a_damaged_batch_above_the_producer_snapshot_puts_the_log_offline_at_opening() -> None:
    driver = LogDriver(index_interval_bytes=0)
    produce(driver, 4)
    driver.settle()
    produce(driver, 4)
    driver.flush()
    driver.checkpoint()
    size = driver.log.segments[0].size_bytes
    flip(driver, "00000000000000000000.0.log", size - 5)
    log = driver.reopen()
    assert log.offline is not None
    at = f"{DIRECTORY}/00000000000000000000.0.log: at byte {size * 7 // 8}"
    assert log.offline == f"{at}: the CRC of the batch does not match; {RESTORE_HINT}"


def test_a_manifest_that_does_not_parse_puts_the_log_offline() -> None:
    driver = LogDriver()
    rows = {
        "a manifest must be a row, not 7": 7,
        "not enough values to unpack (expected 5, got 0)": [],
        "not enough values to unpack (expected 5, got 3)": [1, 2, 3],
        "not enough values to unpack (expected 5, got 4)": "text",
        "too many values to unpack (expected 5": [0, 0, 0, [], [[1]], 5],
        "'int' object is not iterable": [0, 0, 0, [], 9],
    }
    for why, row in rows.items():
        log = open_partition_log(driver.disk, DIRECTORY, 1, "t", 0, driver.settings, driver.files, row, 0)
        assert log.offline is not None
        assert log.offline.startswith(f"its entry in the checkpoint does not parse: {why}")
        assert log.manifest() == row


def test_a_checkpoint_with_overlapping_segments_puts_the_log_offline_at_opening() -> None:
    driver = LogDriver(segment_bytes=100)
    for _ in range(3):
        driver.values(b"value")
    driver.settle()
    row = msgpack.unpackb(driver.rows[-1])
    row[4][1] = row[4][0]
    log = open_partition_log(driver.disk, DIRECTORY, 1, "t", 0, driver.settings, driver.files, row, 0)
    assert log.offline == f"the checkpoint has segments of {DIRECTORY} that overlap at offset 1"


# ---- what two checkpoints need -----------------------------------------------------------------------------------


def test_dropped_segment_files_are_removed_after_two_checkpoints_without_them() -> None:
    driver = LogDriver(segment_bytes=100)
    for _ in range(4):
        driver.values(b"value")
    driver.settle()
    first = "00000000000000000000.0.log"
    driver.start_at(1)
    driver.checkpoint()
    assert first in driver.disk.list(DIRECTORY)
    log = driver.reopen(row=0)  # as if the newest checkpoint were damaged: the older one is enough
    assert log.offline is None
    assert log.start_offset == 1
    driver.checkpoint()
    driver.checkpoint()
    driver.checkpoint()
    assert first not in driver.disk.list(DIRECTORY)


def test_the_older_of_two_checkpoints_can_be_opened_at_any_moment() -> None:
    """Segments are dropped and compacted between the two checkpoints."""
    driver = LogDriver(segment_bytes=150, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.0)
    for turn in range(12):
        for number in range(6):
            sequence = driver.log.end_offset
            driver.append(
                batch_of([b"%d" % turn], key=b"%d" % number, producer_id=7, producer_epoch=0, base_sequence=sequence)
            )
        driver.flush()
        if turn % 2:
            driver.snapshot()
        driver.compact()
        if turn % 3 == 2:
            driver.start_at(driver.log.start_offset + 4)
        driver.checkpoint()
        for row in range(len(driver.rows)):
            twin = LogDriver(driver.disk.after_process_crash(), segment_bytes=150)
            twin.rows, twin.journal, twin.age_ms = driver.rows, driver.journal, driver.age_ms
            log = twin.reopen(row=row)
            assert log.offline is None, (turn, row, log.offline)
            assert [r.offset for r in twin.contents()][-1] == driver.log.end_offset - 1
            assert described(log.producers) == described(driver.log.producers)


def test_open_transactions_of_a_log_survive_a_restart() -> None:
    driver = LogDriver(segment_bytes=200)
    driver.values(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    for _ in range(5):
        driver.values(b"plain")
    driver.settle()
    log = driver.reopen()
    assert log.last_stable_offset == 0
    driver.marker(1, 0, Marker.ABORT)
    assert log.last_stable_offset == 7
    assert len(driver.committed()) == 5


def without_records() -> LogDriver:
    """Return a log after DeleteRecords of all its records: its producers are in a snapshot and in a copy of that
    snapshot.
    """
    driver = LogDriver(segment_bytes=150)
    produce(driver, 12)
    driver.flush()
    driver.checkpoint()
    driver.start_at(12)
    driver.checkpoint()
    assert log_names(driver)
    assert driver.log.wants_snapshot
    turns = 0
    while driver.log.wants_snapshot or driver.log.wants_checkpoint:
        driver.snapshot()
        driver.checkpoint()
        turns += 1
        assert turns < 8
    return driver


def test_segments_below_the_log_start_are_removed_without_new_appends() -> None:
    """On a full disk, records are deleted and none appended. The segments below the log start are removed
    nevertheless.
    """
    driver = without_records()
    assert log_names(driver) == []
    assert snapshot_names(driver) == ["00000000000000000012.copy.producers", "00000000000000000012.producers"]


def test_a_damaged_copy_of_a_producer_snapshot_is_kept_until_the_next_but_one_start() -> None:
    """The log opens from the other snapshot. The damaged file is evidence until newer snapshots replace it."""
    driver = without_records()
    flip(driver, "00000000000000000012.copy.producers")
    log = driver.reopen()
    assert log.offline is None
    assert window(log) == [7, 8, 9, 10, 11]
    produce(driver, 3)
    driver.settle()
    produce(driver, 3)
    driver.settle()
    assert "00000000000000000012.copy.producers" in driver.disk.list(DIRECTORY)
    driver.reopen()  # only now is the damaged file given up
    for _ in range(3):
        driver.checkpoint()
    assert snapshot_names(driver) == ["00000000000000000015.producers", "00000000000000000018.producers"]

"""Compaction of a whole log: what goes, what stays and for how long, and the bugs that Kafka and others had there."""

import dataclasses

import pytest
import raw_batches
from compacted_log import HORIZON_MS, clean, compacted_log, put, values, visible
from fencepost.protocol.batches import Batch
from fencepost.protocol.records import Marker
from fencepost.storage.cleaning.compaction import begin_compaction
from log_driver import DIRECTORY, LogDriver, keyed


def put_in_transaction(driver: LogDriver, producer_id: int, sequence: int, *pairs: tuple[bytes, bytes | None]) -> int:
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
    return driver.append(keyed(pairs, **fields))


def kept(driver: LogDriver) -> list[Batch]:
    """Return the batches in the part of the log that compaction has been through."""
    return [batch for batch in driver.batches() if batch.base_offset < driver.log.cleaned_offset]


def test_compaction_keeps_the_latest_record_of_each_key_at_its_offset() -> None:
    driver = compacted_log()
    for number in range(20):
        put(driver, (b"k%d" % (number % 4), b"%d" % number))
    clean(driver)
    assert {key: (r.offset, r.value) for key, r in visible(driver).items()} == {
        b"k0": (16, b"16"),
        b"k1": (17, b"17"),
        b"k2": (18, b"18"),
        b"k3": (19, b"19"),
    }
    assert len(driver.log.segments) == 3  # those that were emptied are merged


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.requirement("S-105")
def test_compaction_removes_only_superseded_records_of_a_batch(codec: int) -> None:
    driver = compacted_log()
    put(driver, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), codec=codec)
    put(driver, (b"b", b"2"), codec=codec)
    clean(driver)
    assert [(r.offset, r.key, r.value) for r in visible(driver).values()] == [
        (0, b"a", b"1"),
        (2, b"c", b"1"),
        (3, b"b", b"2"),
    ]
    first = kept(driver)[0]
    assert (first.base_offset, first.last_offset, first.codec) == (0, 2, codec)


def test_compaction_never_changes_the_active_segment() -> None:
    driver = compacted_log(segment_bytes=10_000)
    for number in range(20):
        put(driver, (b"k", b"%d" % number))
    driver.settle()
    assert not driver.compact()
    assert len(driver.contents()) == 20


def test_compaction_keeps_records_younger_than_min_compaction_lag() -> None:
    driver = compacted_log(min_compaction_lag_ms=500)
    for number in range(10):
        put(driver, (b"k", b"%d" % number))
    driver.advance(499)
    clean(driver)
    assert len(driver.contents()) == 12  # all ten, and two that clean() appends
    driver.advance(1)
    clean(driver)
    assert values(driver) == {b"k": b"9"}


def test_compaction_waits_for_the_dirty_ratio_or_for_max_compaction_lag() -> None:
    driver = compacted_log(min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=5000)
    for number in range(20):
        put(driver, (b"k%d" % number, b"v"))
    clean(driver)
    cleaned = driver.log.cleaned_offset
    assert cleaned
    put(driver, (b"k1", b"w"))
    clean(driver)
    assert driver.log.cleaned_offset == cleaned
    driver.advance(5001)
    clean(driver)
    assert driver.log.cleaned_offset > cleaned
    assert values(driver)[b"k1"] == b"w"


def test_kafka_4529_8522_tombstones_are_removed_after_delete_retention_ms() -> None:
    """KAFKA-4529 (removed too early) and KAFKA-8522 (never removed): the time counts from when compaction first meets
    the tombstone.
    """
    driver = compacted_log()
    put(driver, (b"k", b"v"))
    put(driver, (b"k", None))
    driver.advance(10 * HORIZON_MS)  # the tombstone's own age does not count
    clean(driver)
    assert values(driver) == {b"k": None}
    (tombstone,) = [batch for batch in kept(driver) if batch.delete_horizon_ms is not None]
    assert tombstone.delete_horizon_ms == 11 * HORIZON_MS
    driver.advance(HORIZON_MS - 1)
    clean(driver)
    assert values(driver) == {b"k": None}
    driver.advance(1)
    clean(driver)
    assert values(driver) == {}


def test_a_batch_rewritten_by_compaction_keeps_its_timestamps() -> None:
    driver = compacted_log()
    put(driver, (b"a", b"1"), (b"k", None), timestamp=123_456)
    put(driver, (b"a", b"2"))
    clean(driver)
    assert visible(driver)[b"k"].timestamp == 123_457


def test_compaction_removes_a_superseded_tombstone_at_once() -> None:
    driver = compacted_log()
    put(driver, (b"k", None))
    put(driver, (b"k", b"v"))
    clean(driver)
    assert [record.offset for record in visible(driver).values()] == [1]


def test_compaction_takes_several_passes_for_more_keys_than_one_pass_may_hold() -> None:
    driver = compacted_log()
    for number in range(60):
        put(driver, (b"k%d" % (number % 20), b"%d" % number))
    cleaned = [0]
    clean(driver, most_keys=7)
    while driver.log.cleaned_offset > cleaned[-1]:
        cleaned.append(driver.log.cleaned_offset)
        assert values(driver) == {b"k%d" % n: b"%d" % (40 + n) for n in range(20)}
        driver.settle()
        driver.compact(most_keys=7)
    assert cleaned[:6] == [0, 7, 14, 21, 28, 35]  # a pass ends before its eighth key
    assert len([record for record in driver.contents() if record.key != b"filler"]) == 20


def test_kafka_13727_compaction_changes_no_records_above_the_end_of_its_pass() -> None:
    """KAFKA-13727: data and marker of an aborted transaction were in the same segment above the end of the pass."""
    driver = compacted_log(segment_bytes=2000)
    put(driver, (b"a", b"1"), (b"b", b"1"))  # 0, 1
    put_in_transaction(driver, 1, 0, (b"x", b"dead"))  # 2
    put(driver, (b"c", b"1"), (b"d", b"1"))  # 3, 4: the pass ends before it
    put_in_transaction(driver, 1, 1, (b"y", b"dead"))  # 5
    driver.marker(1, 0, Marker.ABORT)  # 6
    for _ in range(30):
        put(driver, (b"filler", b"x" * 50))
    expected = {b"a": b"1", b"b": b"1", b"c": b"1", b"d": b"1"}
    driver.settle()
    put(driver, (b"filler", b"."))
    driver.settle()
    assert driver.compact(most_keys=2)
    assert driver.log.cleaned_offset == 3
    assert values(driver) == expected
    assert [b.base_offset for b in driver.batches() if b.is_control] == [6]
    for _ in range(3):
        driver.advance(2 * HORIZON_MS)
        clean(driver)
        assert values(driver) == expected


def test_kafka_14055_a_record_key_that_looks_like_a_marker_removes_no_other_record() -> None:
    """KAFKA-14055: the key of a marker must not be compared with keys of records."""
    driver = compacted_log()
    put_in_transaction(driver, 1, 0, (b"k", b"dead"))
    driver.marker(1, 0, Marker.ABORT)
    put_in_transaction(driver, 1, 1, (b"l", b"alive"))
    driver.marker(1, 0, Marker.COMMIT)
    put(driver, (b"\0\0\0\0", b"looks like an abort"), (b"\0\0\0\1", b"looks like a commit"))
    for _ in range(3):
        clean(driver)
        assert values(driver) == {
            b"l": b"alive",
            b"\0\0\0\0": b"looks like an abort",
            b"\0\0\0\1": b"looks like a commit",
        }


def test_kafka_8351_compacting_a_transaction_of_several_segments_keeps_its_outcome() -> None:
    """KAFKA-8351: a transaction begins in one segment and ends in another. One pass compacts both, or several do."""
    for most_keys in (1, 2, 100):
        driver = compacted_log()
        put(driver, (b"k", b"old"))
        for number in range(6):
            put_in_transaction(driver, 1, number, (b"k", b"dead %d" % number))
            put_in_transaction(driver, 2, number, (b"l", b"alive %d" % number))
        driver.marker(1, 0, Marker.ABORT)
        driver.marker(2, 0, Marker.COMMIT)
        for _ in range(6):
            clean(driver, most_keys=most_keys)
            assert values(driver) == {b"k": b"old", b"l": b"alive 5"}


def test_an_aborted_record_does_not_supersede_a_committed_one_of_its_key() -> None:
    driver = compacted_log()
    put(driver, (b"k", b"committed"))
    put_in_transaction(driver, 1, 0, (b"k", b"aborted"))
    driver.marker(1, 0, Marker.ABORT)
    clean(driver)
    assert values(driver) == {b"k": b"committed"}
    assert [r.value for r in driver.contents() if r.key == b"k"] == [b"committed"]


def test_compaction_removes_an_abort_marker_delete_retention_ms_after_its_records() -> None:
    """The time counts from the first pass that finds nothing of its transaction left."""
    driver = compacted_log()
    put(driver, (b"z", b"."), producer_id=1, producer_epoch=0, base_sequence=0)
    put_in_transaction(driver, 1, 1, (b"k", b"dead"))
    marker = driver.marker(1, 0, Marker.ABORT)
    put(driver, (b"z", b"."), producer_id=1, producer_epoch=0, base_sequence=2)  # the dead batch is not its last
    clean(driver)  # the data goes, the marker stays
    assert [b.base_offset for b in kept(driver) if b.is_control] == [marker]
    assert all(b.base_offset != 1 for b in kept(driver))
    clean(driver)  # nothing is left of it: the horizon is set
    (batch,) = [b for b in kept(driver) if b.is_control]
    assert batch.delete_horizon_ms == HORIZON_MS
    driver.advance(HORIZON_MS - 1)
    clean(driver)
    assert [b.base_offset for b in kept(driver) if b.is_control] == [marker]
    driver.advance(1)
    clean(driver)
    assert [b for b in kept(driver) if b.is_control] == []
    assert driver.log.aborted_between(0, driver.log.end_offset) == []


def test_a_commit_marker_is_kept_while_any_record_of_its_transaction_is() -> None:
    driver = compacted_log()
    put_in_transaction(driver, 1, 0, (b"k", b"v"))
    marker = driver.marker(1, 0, Marker.COMMIT)
    for _ in range(4):
        driver.advance(2 * HORIZON_MS)
        clean(driver)
    assert [b.base_offset for b in kept(driver) if b.is_control] == [marker]
    assert values(driver) == {b"k": b"v"}


def test_kafka_5490_8335_the_last_batch_of_each_known_producer_is_kept() -> None:
    """KAFKA-5490: it is kept without records if need be. KAFKA-8335: its earlier batches are removed, even with the
    same sequence.
    """
    driver = compacted_log()
    for number in range(6):
        put(driver, (b"k", b"%d" % number), producer_id=1, producer_epoch=number, base_sequence=0)
    put(driver, (b"k", b"newest"))
    put(driver, (b"l", b"newest"))
    clean(driver)
    (batch,) = [b for b in kept(driver) if b.producer_id == 1]
    assert (batch.base_offset, batch.producer_epoch, batch.base_sequence, batch.record_count) == (5, 5, 0, 0)
    assert batch.last_sequence == 0
    before = sorted(driver.log.producers.describe())
    driver.reopen()
    assert sorted(driver.log.producers.describe()) == before


def test_compaction_keeps_no_last_batch_of_a_producer_that_has_expired() -> None:
    driver = compacted_log()
    put(driver, (b"k", b"1"), producer_id=1, producer_epoch=0, base_sequence=0)
    driver.advance(100)
    put(driver, (b"k", b"2"), producer_id=2, producer_epoch=0, base_sequence=0)
    driver.log.producers.expire(driver.age_ms, 50)
    put(driver, (b"k", b"3"))
    clean(driver)
    assert [b.producer_id for b in kept(driver) if b.producer_id > 0] == [2]


def test_compaction_keeps_the_last_marker_of_a_producer_whose_records_are_all_gone() -> None:
    driver = compacted_log()
    put_in_transaction(driver, 9, 3, (b"k", b"aborted"))
    driver.marker(9, 4, Marker.ABORT)
    for _ in range(3):
        clean(driver)
        driver.advance(2 * HORIZON_MS)
    (batch,) = [b for b in kept(driver) if b.producer_id == 9]
    assert (batch.producer_epoch, batch.record_count, batch.is_control) == (4, 0, True)
    before = sorted(driver.log.producers.describe())
    driver.reopen()
    assert sorted(driver.log.producers.describe()) == before != []


def test_kafka_13194_compaction_never_passes_the_last_stable_offset() -> None:
    """KAFKA-13194: compaction also stops at the high watermark."""
    driver = compacted_log()
    for number in range(6):
        put(driver, (b"k", b"%d" % number))
    opened = put_in_transaction(driver, 1, 0, (b"t", b"?"))
    for number in range(6):
        put(driver, (b"k", b"later %d" % number))
    clean(driver)
    assert 0 < driver.log.cleaned_offset <= opened
    assert [r.offset for r in driver.contents() if r.key == b"k"] == [5, *range(7, 13)]
    driver.marker(1, 0, Marker.COMMIT, release=False)
    driver.flush()
    clean(driver)
    assert values(driver) == {b"k": b"later 5", b"t": b"?"}


def test_compaction_stays_below_the_checkpoint_and_the_older_producer_snapshot() -> None:
    driver = compacted_log()
    for number in range(12):
        put(driver, (b"k", b"%d" % number), producer_id=1, producer_epoch=0, base_sequence=number)
        if number == 5:
            driver.flush()
            driver.snapshot()
    driver.flush()
    assert begin_compaction(driver.log, 0, lambda: 0) is None  # nothing is in a checkpoint
    driver.snapshot()
    driver.checkpoint()
    assert driver.compact()
    assert driver.log.cleaned_offset <= 6
    before = sorted(driver.log.producers.describe())
    for name in driver.disk.list(DIRECTORY):
        if name == "00000000000000000012.producers":
            driver.disk.unlink(f"{DIRECTORY}/{name}")
    driver.checkpoint()
    assert sorted(driver.reopen().producers.describe()) == before


def test_kafka_17076_the_end_offset_survives_when_compaction_leaves_nothing() -> None:
    """KAFKA-17076: cleaning could lose the end offset of a log."""
    driver = compacted_log()
    for _ in range(6):
        put(driver, (b"k", None))
    clean(driver)
    driver.advance(2 * HORIZON_MS)
    clean(driver)
    assert values(driver) == {}
    end = driver.log.end_offset
    assert driver.reopen().end_offset == end
    offset = driver.log.start_offset
    while offset < end:
        offset = driver.read(offset).next_offset  # a reader gets over the gap


def test_redpanda_a5e4544_reads_advance_after_the_last_aborted_batch_was_removed() -> None:
    driver = compacted_log()
    put(driver, (b"a", b"1"))
    put_in_transaction(driver, 1, 0, (b"k", b"dead"))
    driver.marker(1, 0, Marker.ABORT)
    clean(driver)
    driver.advance(2 * HORIZON_MS)
    clean(driver)
    for offset in range(driver.log.end_offset):
        assert driver.read(offset).next_offset > offset


def test_redpanda_abd7716_after_a_restart_compaction_still_removes_aborted_records() -> None:
    """Redpanda abd7716: after a restart the list of aborted transactions has to be complete, or rebuilt, before
    anything is compacted.
    """
    driver = compacted_log()
    put(driver, (b"k", b"old"))
    put_in_transaction(driver, 1, 0, (b"k", b"dead"))
    driver.marker(1, 0, Marker.ABORT)
    driver.settle()
    put(driver, (b"filler", b"."))
    put(driver, (b"filler", b"."))
    driver.settle()
    driver.files.close()
    for name in driver.disk.list(DIRECTORY):
        if name.endswith(".txnindex"):
            driver.disk.unlink(f"{DIRECTORY}/{name}")
    driver.reopen()
    driver.checkpoint()
    assert driver.compact()
    assert values(driver) == {b"k": b"old"}


def test_compaction_removes_keyless_records_and_keeps_undecodable_batches() -> None:
    driver = compacted_log()
    put(driver, (None, b"keyless"), (b"k", b"v"))  # type: ignore[arg-type]
    lying = bytearray(keyed([(b"k", b"v")]))
    lying[-1] = 40  # more headers than there are bytes
    driver.append(with_crc(bytes(lying)))
    clean(driver)
    assert [batch.base_offset for batch in kept(driver)][:2] == [0, 2]
    assert [batch.record_count for batch in kept(driver)][:2] == [1, 1]


def test_compaction_keeps_batches_with_unencodable_timestamps_unchanged() -> None:
    driver = compacted_log()
    twice_k = raw_batches.record(0, 2**62, b"k") + raw_batches.record(1, 2**62, b"k")
    driver.append(raw_batches.batch(twice_k, records=2, base_timestamp=2**63 - 1, max_timestamp=5))
    for value in (None, b"v"):  # a tombstone's horizon is written into the header, and moves the deltas
        apart = [(0, -(2**63), b"a%r" % value, value), (1, 0, b"k"), (2, 2**63 - 1, b"b%r" % value)]
        payload = b"".join(raw_batches.record(*each) for each in apart)
        driver.append(raw_batches.batch(payload, records=3, base_timestamp=0, max_timestamp=5))
    put(driver, (b"k", b"last"))
    clean(driver)
    assert [(batch.base_offset, batch.record_count) for batch in kept(driver)][:3] == [(0, 2), (2, 3), (5, 2)]


def with_crc(batch: bytes) -> bytes:
    from crc32c import crc32c

    return batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:]


def test_compaction_distinguishes_keys_that_differ_only_after_100_equal_bytes() -> None:
    driver = compacted_log(segment_bytes=400)
    for number in range(10):
        put(driver, (b"x" * 100 + b"%d" % (number % 3), b"%d" % number))
    clean(driver)
    assert sorted(values(driver).values()) == [b"7", b"8", b"9"]


def test_compaction_merges_small_segments_up_to_segment_bytes() -> None:
    driver = compacted_log()
    for number in range(40):
        put(driver, (b"k%d" % number, b"v"))
    driver.settle()
    assert len(driver.log.segments) == 20
    driver.log.settings = dataclasses.replace(driver.settings, segment_bytes=1000)
    clean(driver)
    assert all(state.size_bytes <= 1000 for state in driver.log.segments)
    assert len(driver.log.segments) == 4
    assert len(visible(driver)) == 40
    ends = [state.end_offset for state in driver.log.segments]
    assert [state.base_offset for state in driver.log.segments][1:] == ends[:-1]


def test_compaction_does_not_bring_back_records_below_the_log_start() -> None:
    driver = compacted_log()
    for number in range(8):
        put(driver, (b"k%d" % number, b"v"))
    driver.start_at(5)
    clean(driver)
    driver.checkpoint()
    driver.checkpoint()
    driver.reopen()
    assert sorted(visible(driver)) == [b"k5", b"k6", b"k7"]


def test_retention_of_a_merged_segment_counts_from_its_youngest_input_segment() -> None:
    driver = compacted_log(cleanup_policy="compact,delete", retention_ms=1000)
    for number in range(6):
        put(driver, (b"k%d" % number, b"v"))
        driver.advance(100)
    driver.settle()
    driver.log.settings = dataclasses.replace(driver.settings, segment_bytes=100_000)
    clean(driver)
    driver.checkpoint()
    (first, *_) = driver.log.segments
    assert (first.base_offset, first.end_offset, first.first_age_ms, first.last_age_ms) == (0, 4, 0, 300)
    driver.advance(300 + 1000 - driver.age_ms)
    driver.retain()
    assert driver.log.start_offset == 0
    driver.advance(1)
    driver.retain()
    assert driver.log.start_offset == 4


def test_compaction_does_not_change_batches_above_the_end_of_its_pass() -> None:
    driver = compacted_log(segment_bytes=2000)
    put(driver, (b"a", b"1"), (b"b", b"1"))  # 0, 1: the pass ends after it
    put(driver, (b"c", None), (b"d", b"1"))
    put(driver, (b"a", None))
    driver.marker(3, 0, Marker.COMMIT)
    for _ in range(30):
        put(driver, (b"filler", b"x" * 50))
    driver.settle()
    put(driver, (b"filler", b"."))
    driver.settle()
    before = {batch.base_offset: batch.buffer.tobytes() for batch in driver.batches()}
    assert driver.compact(most_keys=2)
    assert driver.log.cleaned_offset == 2
    assert {batch.base_offset: batch.buffer.tobytes() for batch in driver.batches()} == before

"""Flushes, snapshots, checkpoints and removals at the same time: no file that one needs is removed or missing."""

from dataclasses import replace

import pytest
from fencepost.effects.gathering import BULK_BYTES
from fencepost.effects.simulated.disk import SimulatedDisk, SimulatedFile
from fencepost.protocol import batches
from fencepost.storage import layout, store_checkpoint, upkeep
from fencepost.storage.cleaning.compaction import begin_compaction
from fencepost.storage.journal.format import BLOCK_BYTES
from fencepost.storage.journal.scan import JournalDamaged, scan
from fencepost.storage.log.partition_log import PartitionLog
from fencepost.storage.store import TAIL_BATCH_BYTES, StoreSettings
from fencepost.storage.upkeep import LOST_AGE_MS, Upkeep
from store_driver import DIRECTORY, SMALL, Driven, batch_of, values_of
from store_dump import dump_log


@pytest.mark.parametrize("flushed_before", [True, False], ids=["its folder is there", "its folder is not made yet"])
def test_deleting_a_topic_during_its_flush_fails_no_flush_and_removes_its_folder(flushed_before):
    driver = Driven(SimulatedDisk())
    log = driver.create("t")
    if flushed_before:
        driver.append(log, [b"a"])
        driver.round()
        driver.flush()
        driver.checkpoint()
    driver.append(log, [b"b" * 10])
    driver.round()
    flush = driver.upkeep.begin_flush()
    driver.store.commit([driver.store.drop_part(log)])
    driver.round()
    driver.checkpoint()
    driver.checkpoint()
    flush.run()
    driver.upkeep.flushed(flush)
    assert driver.upkeep.behind
    while driver.upkeep.behind:
        driver.checkpoint()
    assert driver.disk.list(f"{DIRECTORY}/logs") == []


def test_the_folder_of_a_deleted_topic_is_kept_until_its_compaction_ends():
    driver = Driven(SimulatedDisk())
    log = driver.create("t", cleanup_policy="compact")
    driver.append(log, [b"a"])
    driver.round()
    driver.flush()
    driver.checkpoint()
    log.begin_compaction()
    driver.store.commit([driver.store.drop_part(log)])
    driver.round()
    for _ in range(4):
        driver.checkpoint()
        assert driver.disk.exists(log.directory)
    log.compacting = False
    driver.checkpoint()
    assert not driver.disk.exists(log.directory)


def test_the_folder_of_a_deleted_topic_is_removed_at_the_second_checkpoint():
    driver = Driven(SimulatedDisk())
    log = driver.create("t")
    driver.append(log, [b"a"])
    driver.round()
    driver.flush()
    driver.checkpoint()
    driver.store.commit([driver.store.drop_part(log)])
    driver.round()
    driver.checkpoint()
    assert driver.disk.exists(log.directory)
    driver.checkpoint()
    assert not driver.disk.exists(log.directory)


@pytest.mark.parametrize("dropped", [True, False], ids=["topic deleted", "log start moved"])
def test_a_segment_file_read_just_before_its_removal_is_closed_by_the_removal(dropped):
    """An open descriptor would keep the removed file's disk space in use."""
    driver = Driven(SimulatedDisk())
    log = driver.create("t", segment_bytes=100)
    for _ in range(3):
        driver.append(log, [b"a" * 60])
        driver.round()
        driver.flush()
    driver.checkpoint()
    path = f"{log.directory}/{log.segments[0].stem}.log"
    part = driver.store.drop_part(log) if dropped else driver.store.log_start_part(log, 2)
    driver.store.commit([part])
    driver.round()
    driver.checkpoint()
    run = driver.begin_checkpoint()
    run.run()
    removal = driver.upkeep.checkpointed(run)
    files = driver.store.open_files
    with files.use(path):
        pass
    removal.run()
    assert not driver.disk.exists(path)
    assert files.use_if_open(path) is None


def test_a_checkpoint_captured_in_slices_covers_journal_units_up_to_its_beginning():
    """The checkpoint has neither a log that is created during the capture nor one that is dropped before the capture
    comes to it. The folder of the dropped log stays. The next start replays the rest from the journal.
    """
    driver = Driven(SimulatedDisk())
    logs = [driver.create(name) for name in "abc"]
    for log in logs:
        driver.append(log, [b"before"])
    driver.round()
    driver.flush()
    driver.checkpoint()
    through = driver.store.last_unit
    capture = driver.upkeep.begin_capture()
    assert capture.advance(2)
    for log in logs:
        driver.append(log, [b"meanwhile"])
    driver.store.commit([driver.store.drop_part(logs[2])])
    new = driver.create("d")
    driver.round()
    driver.flush()
    assert capture.advance(1)
    assert not capture.advance(5)
    run = driver.upkeep.captured(capture)
    assert (run.content.through_unit, run.content.synced_unit) == (through, driver.store.last_unit)
    ends = {entry.log_id: entry.manifest.end_offset for entry in run.content.logs}
    assert ends == {0: 0, logs[0].log_id: 1, logs[1].log_id: 2}
    run.run()
    assert new.log_id not in ends
    driver.upkeep.checkpointed(run).run()
    assert driver.disk.exists(logs[2].directory)
    again = Driven(driver.disk.after_power_cut())
    assert {log.topic: log.end_offset for log in again.store.logs.values() if log.log_id} == {"a": 2, "b": 2, "d": 0}
    assert not again.report.offline


def test_a_checkpoint_waits_only_for_the_sync_of_joint_journal_units():
    """A joint unit is any but the single batch of one client, on which nothing else builds. content.synced_unit is the
    unit through which the journal must be synced before the checkpoint is written.
    """
    driver = Driven(SimulatedDisk())
    a, b = (driver.create(name, durability_mode="os") for name in "ab")
    driver.round()
    driver.append(a, [b"alone"])
    driver.round()
    content = driver.begin_checkpoint().content
    assert content.synced_unit == driver.store.synced_unit < driver.store.last_unit
    driver.store.append_together([(log, batches.read(memoryview(batch_of([b"joint"])))) for log in (a, b)])
    driver.append(a, [b"alone again"])
    driver.round()
    assert driver.begin_checkpoint().content.synced_unit == driver.store.last_unit - 1
    driver.flush_only(a)
    content = driver.begin_checkpoint().content
    assert content.through_unit == content.synced_unit - 1 == driver.store.last_unit - 2  # the joint unit is the next
    driver.flush()
    assert driver.begin_checkpoint().content.synced_unit == driver.store.synced_unit


@pytest.mark.slow
@pytest.mark.parametrize("all_flushed", [True, False], ids=["all is flushed", "units after the checkpoint"])
def test_without_the_newest_checkpoint_a_store_with_an_unsynced_journal_opens(all_flushed):
    driver = Driven(SimulatedDisk(), settings=replace(SMALL, journal_max_bytes=256 << 10))
    log = driver.create("t", durability_mode="os")
    driver.round()
    for number in range(40):
        driver.fill()
        driver.append(log, [bytes([number]) * 5_000])
        driver.round()
        if number % 3 == 2:
            if all_flushed:
                driver.flush()
            driver.checkpoint()
            driver.flush()
            _check_start_without_the_newest_checkpoint(driver.disk.after_process_crash(), number + 1)
            # The journal is not synced: without the newest checkpoint, appends of two turns (three each) may be lost.
            _check_start_without_the_newest_checkpoint(driver.disk.after_power_cut(), number + 1 - 2 * 3)
    assert driver.store.synced_unit < 5


def _check_start_without_the_newest_checkpoint(disk, at_least):
    newest = max(store_checkpoint.numbers(disk, DIRECTORY))
    disk.unlink(layout.checkpoint_path(DIRECTORY, newest))
    found = values_of(Driven(disk).log("t"))
    assert [value[0] for _, value in found] == list(range(len(found)))
    assert len(found) >= at_least


def test_a_store_whose_journal_lost_units_synced_before_a_checkpoint_does_not_open():
    """No later round in the journal says that they were synced; only the checkpoint does."""
    driver = Driven(SimulatedDisk())
    log = driver.create("t")
    driver.append(log, [b"a"])
    driver.round(sync=True)
    driver.append(log, [b"acknowledged"])
    driver.round(sync=True)
    driver.checkpoint()
    assert driver.upkeep.checkpointed_unit < driver.store.last_unit  # the acknowledged record is in the journal only
    disk = driver.disk.after_process_crash()
    folder = f"{DIRECTORY}/journal"
    *_, (path, position) = ((unit.path, unit.position) for unit in scan(disk, folder).units())
    file = disk.open(path)
    size = file.size()
    begin = position // BLOCK_BYTES * BLOCK_BYTES
    file.write([bytes(size - begin)], begin)
    with pytest.raises(JournalDamaged, match="a checkpoint says that 3 was synced"):
        Driven(disk)


def test_a_flush_is_split_between_workers_only_if_it_and_its_batches_are_large(monkeypatch):
    monkeypatch.setattr(upkeep, "SHARED_RUN_BYTES", 5_000)
    monkeypatch.setattr(upkeep, "SMALL_BATCH_BYTES", 1_000)
    driver = Driven(SimulatedDisk())
    logs = [driver.create(name, durability_mode="os") for name in "abcde"]
    driver.round()
    for log in logs:
        driver.append(log, [b"x" * 1_000])
    driver.round()
    run = driver.upkeep.begin_flush()
    parts = run.parts(2)
    assert len(parts) == 2
    for part in reversed(parts):
        part()
    driver.upkeep.flushed(run)
    assert [log.flushed_offset for log in logs] == [1] * 5
    driver.append(logs[0], [b"small"])
    driver.append(logs[1], [b"small"])
    driver.round()
    assert len(driver.upkeep.begin_flush().parts(2)) == 1
    driver = Driven(SimulatedDisk())
    logs = [driver.create(name, durability_mode="os") for name in "ab"]
    driver.round()
    for number in range(100):
        driver.append(logs[number % 2], [b"small"])
    driver.round()
    run = driver.upkeep.begin_flush()
    assert run.size_bytes > upkeep.SHARED_RUN_BYTES
    assert not run.paced
    assert len(run.parts(2)) == 1


def test_with_fsync_durability_one_worker_writes_a_flush_in_paced_pieces(monkeypatch):
    monkeypatch.setattr(upkeep, "SHARED_RUN_BYTES", 5_000)
    monkeypatch.setattr(upkeep, "SMALL_BATCH_BYTES", 1_000)
    paced_seen = []

    def written(file, buffers, position, *, paced):
        paced_seen.append(paced)
        file.write(buffers, position)

    monkeypatch.setattr(SimulatedFile, "write_past_cache", written)
    driver = Driven(SimulatedDisk(), settings=StoreSettings())
    logs = [driver.create(name) for name in "ab"]
    driver.round()
    driver.fill()
    for log in logs:
        driver.append(log, [bytes(BULK_BYTES)])
    driver.round()
    paced_seen.clear()
    driver.fill()
    run = driver.upkeep.begin_flush()
    assert len(run.parts(2)) == 1
    for part in run.parts(2):
        part()
    driver.upkeep.flushed(run)
    assert paced_seen == [True, True]
    assert [log.flushed_offset for log in logs] == [1, 1]


@pytest.mark.parametrize(("beside_a_quarter", "paced"), [(1, True), (0, False)])
def test_a_flush_is_not_paced_once_unflushed_batches_use_a_quarter_of_their_limit(beside_a_quarter, paced):
    def filled(tail_max_bytes):
        driver = Driven(SimulatedDisk(), settings=replace(SMALL, tail_max_bytes=tail_max_bytes))
        log = driver.create("t")
        for _ in range(4):
            driver.append(log, [bytes(1_000)])
        driver.round()
        driver.fill()
        return driver

    taken = filled(SMALL.tail_max_bytes).store.tail_memory_bytes
    assert taken > 4_000 + 4 * TAIL_BATCH_BYTES
    assert filled(4 * (taken + beside_a_quarter)).upkeep.begin_flush().paced == paced


def test_a_flush_is_not_paced_when_the_journal_is_nearly_full():
    driver = Driven(SimulatedDisk(), settings=replace(SMALL, tail_max_bytes=64 << 20))
    log = driver.create("t")
    driver.round()
    paced = []
    for _ in range(40):
        driver.fill()
        driver.append(log, [bytes(20_000)])
        driver.round()
        driver.fill()
        run = driver.upkeep.begin_flush()
        paced.append((run.paced, driver.store.journal.nearly_full))
        run.run()
        driver.upkeep.flushed(run)
    assert set(paced) == {(True, False), (False, True)}


def test_begin_flush_with_pace_false_is_not_paced():
    driver = Driven(SimulatedDisk())
    driver.append(driver.create("t"), [b"x"])
    driver.round()
    driver.fill()
    assert not driver.upkeep.begin_flush(pace=False).paced


def test_a_flush_takes_at_most_a_fixed_number_of_batches(monkeypatch):
    monkeypatch.setattr(upkeep, "FLUSH_RUN_BATCHES", 5)
    driver = Driven(SimulatedDisk())
    logs = [driver.create(name) for name in "abc"]
    for log in logs:
        for _ in range(4):
            driver.append(log, [b"small"])
    driver.round()
    taken = []
    while (run := driver.upkeep.begin_flush()) is not None:
        taken.append([(log.topic, len(job.batches)) for log, job in run.jobs])
        run.run()
        driver.upkeep.flushed(run)
    assert taken == [[("a", 4), ("b", 1)], [("c", 4), ("b", 1)], [("b", 2)]]
    assert driver.store.tail_bytes == 0


def test_a_flush_takes_more_bytes_while_journal_rounds_are_not_synced(monkeypatch):
    monkeypatch.setattr(upkeep, "FLUSH_RUN_BYTES", 2_000)
    monkeypatch.setattr(upkeep, "FLUSH_RUN_UNSYNCED_BYTES", 4_000)
    driver = Driven(SimulatedDisk())
    log = driver.create("t", durability_mode="os")
    driver.round()  # a topic's creation is synced
    for _ in range(8):
        driver.append(log, [b"x" * 1_000])
    driver.round()
    unsynced = driver.upkeep.begin_flush()
    unsynced.run()
    driver.upkeep.flushed(unsynced)
    driver.round(sync=True)
    assert driver.store.synced_unit == driver.store.released_unit
    synced = driver.upkeep.begin_flush()
    assert (len(unsynced.jobs[0][1].batches), len(synced.jobs[0][1].batches)) == (3, 1)


def test_a_flush_of_one_large_log_is_not_split_between_workers(monkeypatch):
    monkeypatch.setattr(upkeep, "SHARED_RUN_BYTES", 5_000)
    driver = Driven(SimulatedDisk())
    log = driver.create("t")
    driver.append(log, [b"x" * 10_000])
    driver.round()
    assert len(driver.upkeep.begin_flush().parts(2)) == 1


def test_upkeep_is_behind_once_the_time_since_the_checkpoint_reaches_may_lose_ms():
    """A checkpoint restarts that time. After a power cut, the directory has the age that the last checkpoint noted."""
    driver = Driven(SimulatedDisk())
    may_lose = [LOST_AGE_MS]
    driver.upkeep = Upkeep(driver.store, lambda: may_lose[0])
    driver.clock.advance(9_000)
    assert not driver.upkeep.behind
    assert driver.upkeep.ms_until_behind == LOST_AGE_MS - 9_000
    may_lose[0] = 10_000
    assert not driver.upkeep.behind
    assert driver.upkeep.ms_until_behind == 1_000
    driver.clock.advance(1_000)
    assert driver.upkeep.behind
    driver.checkpoint()
    assert not driver.upkeep.behind
    assert driver.upkeep.ms_until_behind == 10_000
    assert Driven(driver.disk.after_power_cut()).store.age_ms() == 10_000


def test_an_idle_log_can_be_compacted_after_further_producer_snapshots():
    driver = Driven(SimulatedDisk())
    log = driver.create("t", cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.001)
    driver.append(log, [b"1"], producer_id=5, producer_epoch=0, base_sequence=0)
    for values, wait_ms in (([b"2"], 0), ([b"3"], 150), ([b"4"], 0)):
        driver.round()
        driver.flush()
        checkpoint_with_snapshots(driver)
        driver.clock.advance(wait_ms)
        driver.append(log, values)
    driver.round()
    driver.flush()
    for _ in range(3):
        checkpoint_with_snapshots(driver)
    assert begin_compaction(log, driver.store.age_ms(), driver.clock.monotonic_ms) is not None


def checkpoint_with_snapshots(driver):
    for one in driver.upkeep.snapshots_due():
        job = one.snapshot_job()
        if job is not None:
            job.run()
            one.snapshotted(job)
    driver.checkpoint()


@pytest.mark.slow
def test_producer_snapshots_keep_the_bytes_a_recovery_scans_within_the_interval():
    driven = Driven(SimulatedDisk(history=False), settings=replace(SMALL, snapshot_interval_bytes=20_000))
    driven.fill()
    logs = [driven.create("t", partition) for partition in range(150)]
    for sequence in range(3):
        for log in logs:
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            driven.append(log, [b"x" * (100 + log.partition)], **fields)
        driven.round(sync=True)
        driven.flush()
        driven.fill()
    due = driven.upkeep.snapshots_due()
    assert len(due) > 64
    for log in due:
        job = log.snapshot_job()
        job.run()
        log.snapshotted(job)
    assert sum(log.bytes_since_snapshot for log in logs) <= 20_000
    assert {log.partition for log in logs if log.bytes_since_snapshot} == set(range(150 - len(due)))  # the smallest
    driven.checkpoint()
    again = Driven(driven.disk.after_process_crash(), settings=driven.store.settings)
    assert sum(log.snapshots.taken_bytes for log in again.store.logs.values()) <= 20_000


def test_after_every_checkpoint_all_files_of_the_older_one_still_exist():
    """Segments, snapshots, folders and journal files are removed one checkpoint later."""
    driven = Driven(SimulatedDisk(history=False), settings=replace(SMALL, journal_max_bytes=512 << 10))
    driven.fill()
    log = driven.create("t", segment_bytes=30_000)
    driven.append(driven.create("dropped"), [b"value"])
    for turn in range(12):
        for _ in range(3):
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": log.end_offset}
            driven.append(log, [b"%d" % turn * 15_000], **fields)
            driven.round(sync=True)
            driven.fill()
        driven.flush()
        job = log.snapshot_job()
        job.run()
        log.snapshotted(job)
        if turn == 5:
            driven.store.commit([driven.store.drop_part(driven.log("dropped"))])
        if turn > 3:
            driven.store.commit([driven.store.log_start_part(log, 3 * turn - 6)])
            driven.round(sync=True)
        driven.checkpoint()
        if turn:
            recovers_from_the_older(driven, log)
    assert len(log.segments) < 12  # old segments were removed


def recovers_from_the_older(driven: Driven, log: PartitionLog) -> None:
    disk = driven.disk.after_process_crash()
    newest, older = store_checkpoint.numbers(disk, DIRECTORY)
    disk.unlink(f"{DIRECTORY}/checkpoint-{newest}")
    again = Driven(disk, settings=driven.store.settings)
    assert again.report.checkpoint == older
    assert not again.report.offline
    assert not again.log("t").warnings
    assert dump_log(again.log("t")) == dump_log(log)


def test_each_call_of_let_go_frees_at_most_a_fixed_number_of_flushed_batches(monkeypatch):
    monkeypatch.setattr(upkeep, "LET_GO_BATCHES", 3)
    driver = Driven(SimulatedDisk())
    for name, count in (("a", 7), ("b", 2)):
        log = driver.create(name)
        for _ in range(count):
            driver.append(log, [b"x"])
    driver.round()
    run = driver.upkeep.begin_flush()
    run.run()
    driver.upkeep.flushed(run)
    kept = [job.batches for _, job in run.jobs]
    left = [sum(map(len, kept))]
    more = True
    while more:
        more = run.let_go()
        left.append(sum(map(len, kept)))
    assert left == [9, 6, 3, 0]
    assert driver.store.tail_bytes == 0

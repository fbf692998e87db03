"""Bugs of other brokers' log layers, one test each: what was lost, doubled or believed there is not here.

Those about producer state are in tests/storage/producers/test_producers_history.py, those about compaction in
tests/storage/cleaning.
"""

import errno
import signal
import time

import pytest
from broker_lives import end, kill, offset_at, read_all, slow, small, unplug
from broker_oracle import run_traffic
from broker_process import broker_process
from crash_points import crash_images
from fencepost.effects.disk import DiskFull
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Rename, Sync, SyncDirectory, Truncate, Write
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from produce_requests import answers, batch, bytes_of, create, fetch, fetched, idempotent, produce
from recovery_oracle import Workload, check
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from store_driver import Driven, values_of
from wire_client import Closed, WireClient

OK = ErrorCode.NONE
FAST = 11
ME = (1000, 0)
QUICK = small(log_checkpoint_interval_ms=1_000, log_cleaner_backoff_ms=1_000)


# Apache Kafka, the log layer


def test_kafka_3968_a_new_segment_survives_a_power_cut():
    """In Kafka, the directory was not synced: a segment whose bytes were all on disk had no name."""
    disk = SimulatedDisk()
    w = Workload(disk)
    log = w.make("a", segment_bytes=200)
    for number in range(6):
        w.send(log, b"record %d" % number * 10)
        w.sync()
        w.flush()
    w.checkpoint()
    assert len(log.segments) == 6
    after = check(disk.after_power_cut())
    assert len(after.log("a").segments) == 6
    assert len(values_of(after.log("a"))) == 6


def busy_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    slow(disk, journal=0.004, segments=0.003)
    broker = SimulatedBroker(small(log_checkpoint_interval_ms=2_000), disk=disk)
    run_traffic(broker, "busy", 9.0)
    end(broker)
    return disk


def test_kafka_16541_a_file_is_synced_before_its_rename_and_the_directory_after():
    """In Kafka, the sync was taken out of a checkpoint for speed; after a crash the file had its name and not its
    bytes.
    """
    operations = busy_disk().operations
    renames = [one for one in operations if isinstance(one, Rename)]
    assert len(renames) > 8  # else the broker did too little to show anything
    for rename in renames:
        last_sync = max(
            (one.index for one in operations[: rename.index] if isinstance(one, Sync) and one.inode == rename.inode),
            default=-1,
        )
        later_bytes = [
            one
            for one in operations[last_sync + 1 : rename.index]
            if isinstance(one, Write | Truncate) and one.inode == rename.inode
        ]
        recycled = rename.path.endswith(".preparing")  # an old journal file leaves its name before its header changes
        assert recycled or (last_sync >= 0 and not later_bytes), str(rename)
        directory_syncs = [
            one.index
            for one in operations[rename.index :]
            if isinstance(one, SyncDirectory) and one.directory == rename.new_directory
        ]
        assert directory_syncs, str(rename)
        # Within a few operations of the same work, not only by the next work that syncs this directory.
        assert directory_syncs[0] - rename.index < 12, f"{rename} is made durable only by {directory_syncs[0]}"


def test_kafka_17181_a_short_write_on_a_full_disk_damages_no_recovered_data():
    """A full disk writes a part of the bytes before it returns ENOSPC: tried for segments, indexes, checkpoints and
    snapshots.
    """
    for part in ("/logs/a-0.1/", "checkpoint-", ".index", ".producers"):
        for short in (1, 60, -1):
            disk = SimulatedDisk()
            w = Workload(disk)
            log = w.make("a", segment_bytes=500, index_interval_bytes=60)
            fault = disk.fail(
                lambda one, part=part: isinstance(one, Write) and part in one.path,
                error=errno.ENOSPC,
                times=2,
                after_bytes=short,
            )
            for number in range(8):
                w.send(log, b"record %d" % number * 5, producer=ME)
                w.sync()
                _flush_and_checkpoint_when_there_is_space(w)
            assert fault.hits == 2, part
            check(disk.killed_at(len(disk.operations)))
            check(disk.after_power_cut())


def _flush_and_checkpoint_when_there_is_space(w: Workload) -> None:
    for step in (w.flush, lambda: _snapshot(w), w.checkpoint):
        run = None
        try:
            if step == w.flush:
                run = w.upkeep.begin_flush()
                if run is not None:
                    run.run()
                    w.upkeep.flushed(run)
            else:
                step()
        except DiskFull:
            if run is not None:
                w.upkeep.flush_failed(run)


def _snapshot(w: Workload) -> None:
    for log in w.upkeep.snapshots_due() or [w.log("a")]:
        job = log.snapshot_job()
        if job is not None:
            job.run()
            log.snapshotted(job)


def test_kafka_10471_a_crash_in_the_middle_of_recovery_is_not_taken_for_a_clean_end():
    """In Kafka, the recovery itself left a file that said "shut down cleanly", and the next start checked nothing."""
    disk = SimulatedDisk()
    w = Workload(disk)
    log = w.make("a")
    for number in range(4):
        w.send(log, b"%d" % number, producer=ME)
        w.sync()
        w.flush()
    left = disk.killed_at(len(disk.operations))
    began = len(left.operations)
    Driven(left, settings=w.store.settings)
    for moment in range(began, len(left.operations) + 1):
        again = left.killed_at(moment)
        check(again)
        check(again.after_power_cut())
    for _, image in crash_images(left, first=began, limit=20, seed=3):
        check(image)


def test_recovery_does_not_truncate_the_log_at_a_damaged_batch_before_good_ones():
    """Kafka truncates there: replicas have the rest, but on a single broker acknowledged records would be lost
    silently. Here reading the damaged batch raises.
    """
    disk = SimulatedDisk()
    driven = Driven(disk)
    log = driven.create("a")
    for number in range(20):
        driven.append(log, [b"record %d" % number])
        driven.round(sync=True)
    driven.flush()
    driven.checkpoint()
    path = f"{log.directory}/{log.segments[0].stem}.log"
    image = disk.after_power_cut()
    file = image.open(path)
    middle = file.size() // 2
    (byte,) = file.read(1, middle)
    file.write([bytes([byte ^ 0x10])], middle)
    again = Driven(image)
    found = again.log("a")
    assert found.end_offset == 20, "nothing is cut"
    with pytest.raises(KafkaError) as refused:
        values_of(found)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_kafka_9065_a_fetch_of_any_offset_in_a_compacted_log_makes_progress():
    """In Kafka, a coordinator that loaded its log asked for ever for an offset that compaction had removed."""
    with SimulatedBroker(QUICK, disk=SimulatedDisk(history=False)) as broker:
        broker.ask(create("c", cleanup_policy="compact", segment_ms=1_000, min_cleanable_dirty_ratio=0))
        for number in range(12):
            broker.ask(produce("c", batch(key=b"same", value=b"%d" % number)), FAST)
            broker.wait(2.5)
        broker.wait(10)
        left = [record.offset for record in read_all(broker, "c")]
        assert len(left) < 6, "compaction did nothing"
        for offset in range(13):
            part = fetched(broker.ask(fetch("c", offset), FAST))
            assert part.error_code == OK
            assert bytes_of(part) or offset == 12  # the end
        for number in range(30):  # of the catalogue, which is compacted itself
            broker.ask(create(f"t{number}"))
            broker.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=f"t{number}")], timeout_ms=1))
            broker.wait(1)
        broker.wait(20)
        with broker.again() as again:
            assert [topic.name for topic in again.ask(MetadataRequest(topics=None)).topics] == ["c"]
            assert [record.offset for record in read_all(again, "c")] == left


def test_kafka_9666_retried_init_producer_id_on_a_full_disk_uses_up_no_producer_id():
    """In Kafka, every retry of InitProducerId raised the epoch although its record could not be written."""
    disk = SimulatedDisk(capacity_bytes=24 << 20, history=False)
    with SimulatedBroker(small(storage_min_free_bytes=4 << 20), disk=disk) as broker:
        capacity, disk.capacity_bytes = disk.capacity_bytes, 24 << 20
        disk.capacity_bytes -= disk.free_bytes("/")
        broker.wait(1)
        codes = {broker.ask(InitProducerIdRequest(transaction_timeout_ms=0)).error_code for _ in range(50)}
        assert OK not in codes
        assert all(ErrorCode(code).retriable for code in codes)
        disk.capacity_bytes = capacity
        broker.wait(1)
        assert broker.ask(InitProducerIdRequest(transaction_timeout_ms=0)).producer_id == 0


# Redpanda, NATS, kfake


def test_redpanda_def3776_a_batch_behind_a_failed_write_is_not_acknowledged():
    """In Redpanda, sequence 5 failed to reach the disk, and 6, in the next write, was acknowledged."""
    disk = SimulatedDisk()
    delays = slow(disk)
    broker = SimulatedBroker(small(), disk=disk)
    broker.ask(create("t"))
    client = SimulatedClient(broker)
    for sequence in range(5):
        assert answers(client.ask(produce("t", idempotent(sequence)), FAST)) == [(OK, sequence)]
    broker.wait(1)
    delays["journal"] = 0.1
    disk.fail_sync(lambda path: "/journal/" in path)
    client.send(produce("t", idempotent(5)), FAST)
    broker.wait(0.05)
    client.send(produce("t", idempotent(6)), FAST)
    broker.wait(1)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            client.receive()
    for left in (broker.disk.after_process_crash(), broker.disk.after_power_cut()):
        again = SimulatedBroker(small(), disk=left)
        known = offset_at(again, "t", -1)
        assert known >= 5  # 0…4 were acknowledged; 5 and 6 may be there, too
        for sequence in (5, 6):
            assert answers(again.ask(produce("t", idempotent(sequence)), FAST)) == [(OK, sequence)]
        assert [record.offset for record in read_all(again, "t")] == list(range(7))
        end(again)
    end(broker)


def test_nats_2026_compacted_segments_are_synced_before_a_checkpoint_names_them():
    """In NATS, block compaction bypassed the sync of all other writes, and the next sync skipped the blocks just
    compacted.
    """
    disk = SimulatedDisk()
    broker = SimulatedBroker(QUICK, disk=disk)
    broker.ask(create("c", cleanup_policy="compact", segment_ms=1_000, min_cleanable_dirty_ratio=0))
    for number in range(10):
        broker.ask(produce("c", batch(key=b"%d" % (number % 2), value=b"%d" % number)), FAST)
        broker.wait(2.5)
    broker.wait(10)
    before = [(record.offset, record.value) for record in read_all(broker, "c")]
    assert len(before) < 6  # else compaction did nothing
    for left in (unplug(broker), kill(SimulatedBroker(QUICK, disk=disk.after_power_cut()))):
        again = SimulatedBroker(QUICK, disk=left)
        assert [(record.offset, record.value) for record in read_all(again, "c")] == before
        end(again)


def test_kfake_c7cc61e_stopping_under_load_loses_and_repeats_no_acknowledged_record(tmp_path):
    """In kfake, requests were served between the saving of the state and the exit, and came twice after the restart."""
    with broker_process(str(tmp_path / "data")) as broker:
        with WireClient("127.0.0.1", broker.port) as client:
            client.call(create("t"))
        acknowledged = 0
        for _ in range(3):
            acknowledged = _send_until_it_ends(broker, acknowledged)
            assert broker.process.wait(20) == 0
            broker.start()
        with WireClient("127.0.0.1", broker.port) as client:
            ends = client.call(fetch("t"), FAST)
            # One more, if the request whose answer did not come before the last stop was carried out.
            assert fetched(ends).high_watermark in (acknowledged, acknowledged + 1)


def _send_until_it_ends(broker, acknowledged: int) -> int:
    """Send numbered batches until the connection ends; SIGTERM is sent after 0.3 s. Return how many were acknowledged.

    acknowledged: how many were before. The batch that is sent first may be written already: an earlier call sent it and
    got no answer.
    """
    with WireClient("127.0.0.1", broker.port) as client:
        until = time.monotonic() + 0.3
        reported = False
        while True:
            if not reported and time.monotonic() > until:
                broker.process.send_signal(signal.SIGTERM)
                reported = True
            try:
                ((code, offset),) = answers(client.call(produce("t", idempotent(acknowledged)), FAST))
            except (Closed, ConnectionError):
                return acknowledged
            assert (code, offset) == (OK, acknowledged)
            acknowledged += 1


def test_kfake_d222eb3_no_record_of_a_deleted_topic_gets_into_the_recreated_one():
    """Neither requests of a producer that knows the old topic nor its unflushed records reach the new topic."""
    disk = SimulatedDisk()
    delays = slow(disk)
    broker = SimulatedBroker(QUICK, disk=disk)
    broker.ask(create("t"))
    for sequence in range(3):
        broker.ask(produce("t", idempotent(sequence)), FAST)
    broker.wait(1)
    delays.update(journal=0.1, segments=5.0)
    client = SimulatedClient(broker)
    client.send(produce("t", idempotent(3)), FAST)
    client.send(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=1))
    client.send(create("t"))
    client.send(produce("t", idempotent(0, value=b"new")), FAST)
    assert answers(client.receive()) == [(OK, 3)]
    client.receive()
    client.receive()
    assert answers(client.receive()) == [(OK, 0)]
    broker.wait(30)
    assert [record.value for record in read_all(broker, "t")] == [b"new"]
    for left in (broker.disk.after_process_crash(), unplug(broker)):
        again = SimulatedBroker(QUICK, disk=left)
        assert [record.value for record in read_all(again, "t")] == [b"new"]
        assert answers(again.ask(produce("t", idempotent(1, value=b"newer")), FAST)) == [(OK, 1)]
        end(again)

"""Workloads for crash tests: small scripts that between them make every kind of operation a store does on its disk."""

from collections.abc import Callable
from itertools import permutations

from fencepost.protocol.records import Marker
from fencepost.storage.producers.producers import RETIRED_EPOCH
from recovery_oracle import Acknowledged, Workload

ME, OTHER = (1000, 0), (1001, 0)
ONCE = 2000  # the first producer id of those that are used for one transaction
LAST_EPOCH = RETIRED_EPOCH - 1


def one_log(disk):
    """Append to one log, in rounds with a batch of one record and a batch of two."""
    w = Workload(disk)
    log = w.make("a")
    w.sync()
    for i in range(4):
        w.send(log, b"one %d" % i)
        w.send(log, b"two", b"three")
        w.sync()


def several_logs_in_one_unit(disk):
    """Append to two logs in one unit, of which a crash must leave all or nothing."""
    w = Workload(disk)
    a, b = w.make("a"), w.make("b")
    w.sync()
    for i in range(3):
        w.send(a, b"before %d" % i)
        w.send_together((a, [b"x%d" % i]), (b, [b"y%d" % i, b"z"]), (a, [b"again"]))
        w.sync()


def a_topic_and_its_first_batch_in_one_round(disk):
    w = Workload(disk)
    for name in ("a", "b", "c"):
        w.send(w.make(name), name.encode())
        w.sync()


def an_idempotent_producer_with_five_in_flight(disk):
    w = Workload(disk)
    log = w.make("a")
    w.sync()
    for _ in range(3):
        for i in range(5):
            w.send(log, b"%d" % i, producer=ME)
        w.sync()


def producers_and_epochs(disk):
    w = Workload(disk)
    log = w.make("a")
    w.sync()
    w.send(log, b"old", producer=ME)
    w.send(log, b"other", producer=OTHER)
    w.sync()
    w.send(log, b"newer", producer=(1000, 1))
    w.send(log, b"newer still", producer=(1000, 1))
    w.sync()
    w.send(log, b"last", producer=OTHER)
    w.sync()


def flush_and_checkpoint(disk):
    w = Workload(disk)
    log = w.make("a")
    w.send(log, b"first", producer=ME)
    w.sync()
    w.flush()
    w.checkpoint()
    w.send(log, b"second", producer=ME)
    w.sync()
    w.flush()
    w.send(log, b"third", producer=ME)
    w.sync()
    w.checkpoint()


def segments_roll(disk):
    w = Workload(disk)
    log = w.make("a", segment_bytes=300, index_interval_bytes=100)
    w.sync()
    for i in range(6):
        w.send(log, b"record %d" % i * 8, producer=ME)
        w.sync()
        w.flush()
    w.checkpoint()
    w.send(log, b"after", producer=ME)
    w.sync()


def delete_records(disk):
    w = Workload(disk)
    log = w.make("a", segment_bytes=200)
    for i in range(5):
        w.send(log, b"record %d" % i * 8)
    w.sync()
    w.flush()
    w.checkpoint()
    w.trim(log, 3)
    w.sync()
    w.send(log, b"after")
    w.sync()
    w.checkpoint()
    w.checkpoint()  # two that do not name the files: they go


def delete_and_recreate_a_topic(disk):
    w = Workload(disk)
    w.send(w.make("a"), b"doomed")
    w.send(w.make("b"), b"stays")
    w.sync()
    w.flush()
    w.checkpoint()
    w.drop(w.log("a"))
    w.sync()
    w.send(w.log("b"), b"more")
    w.sync()
    w.checkpoint()
    w.checkpoint()


def journal_files_change_and_are_used_again(disk):
    w = Workload(disk)
    log = w.make("a")
    w.sync()
    for i in range(12):
        w.send(log, bytes([i]) * 30_000, producer=ME)
        w.sync()
        if i % 4 == 3:
            w.flush()
            w.checkpoint()


def journal_files_are_used_again_that_were_never_synced(disk):
    """Append to logs of durability mode os, whose units nothing syncs, until the journal's files are used again. One
    of the logs is flushed when a checkpoint is written, and the other is not; a log of the usual mode is synced once.

    Only what is in segments, under the older of two checkpoints, or before a sync has to survive a crash.
    """
    w = Workload(disk)
    a, b, synced = w.make("a", durability_mode="os"), w.make("b", durability_mode="os"), w.make("synced")
    w.sync()
    for i in range(20):
        w.send(a, bytes([i]) * 15_000, producer=ME)
        w.send(b, bytes([i]) * 15_000, producer=OTHER)
        w.round()
        if i in (1, 15):
            w.send_together((a, [b"x"]), (b, [b"y"]))
            w.round()
            w.flush_only(a)
        if i == 17:
            w.send(synced, b"synced")
            w.sync()
        if i % 2:
            sure = w.upkeep.checkpointed_unit
            w.checkpoint()
            w.disk.note(Acknowledged(sure))
            w.flush()


def a_unit_larger_than_a_journal_file(disk):
    w = Workload(disk)
    log = w.make("a")
    w.send(log, b"small")
    w.sync()
    large = b"L" * 100_000
    while not w.store.admits(len(large) + 200):
        w.fill()
    w.send(log, large)
    w.sync()
    w.send(log, b"small again")
    w.sync()


def producer_snapshots(disk):
    w = Workload(disk)
    log = w.make("a")
    for i in range(7):
        w.send(log, b"%d" % i, producer=ME)
        w.send(log, b"other %d" % i, producer=OTHER)
    w.sync()
    w.flush()
    for _ in range(2):
        job = log.snapshot_job()
        job.run()
        log.snapshotted(job)
        w.checkpoint()
        w.send(log, b"after", producer=ME)
        w.sync()
        w.flush()
    w.checkpoint()


def a_restart_between(disk):
    """End the store while a unit is written and not synced, and go on with another: their units must not be mixed
    up.
    """
    w = Workload(disk)
    log = w.make("a")
    w.send(log, b"acknowledged", producer=ME)
    w.sync()
    w.send(log, b"on its way", producer=ME)
    w.round(sync=False)
    w.store.close()
    again = Workload(disk, clock=w.clock)
    again.sequences = w.sequences
    again.send(again.log("a"), b"second life", producer=ME)
    again.sync()
    again.flush()
    again.checkpoint()


def a_folder_made_after_a_checkpoint(disk):
    """Write a checkpoint that names an empty log, and then flush: nothing syncs its new folder and first segment."""
    w = Workload(disk)
    log = w.make("a")
    w.sync()
    w.checkpoint()
    w.send(log, b"first", producer=ME)
    w.sync()
    w.flush()
    w.send(log, b"second", producer=ME)
    w.sync()
    w.flush()


def a_checkpoint_captured_while_things_go_on(disk):
    """Capture one log after the other for a checkpoint, while logs grow, are flushed, trimmed, made and dropped."""
    w = Workload(disk)
    a, b, gone = w.make("a", segment_bytes=300), w.make("b", segment_bytes=300), w.make("gone")
    for log in (a, b, gone):
        for i in range(4):
            w.send(log, b"%d" % i * 60, producer=ME)
    w.sync()
    w.flush()
    w.checkpoint()
    capture = w.upkeep.begin_capture()
    while capture.advance(1):
        for log in (a, b):
            w.send(log, b"between", producer=ME)
        w.send_together((a, [b"x"]), (b, [b"y"]))
        w.sync()
        w.flush()
        if w.store.logs.get(gone.log_id):
            w.trim(a, 2)
            w.trim(b, 3)
            w.drop(gone)
            w.send(w.make("new"), b"new")
    run = w.upkeep.captured(capture)
    w.send(a, b"after", producer=ME)
    w.sync()
    run.run()
    w.upkeep.checkpointed(run).run()
    w.checkpoint()
    w.checkpoint()


def segments_roll_while_a_checkpoint_is_written(disk):
    """Flush into a new segment after a checkpoint's syncs and before its end. Only later checkpoints name the
    segment.
    """
    w = Workload(disk)
    log = w.make("a", segment_bytes=200)
    for i in range(2):
        w.send(log, b"record %d" % i * 8, producer=ME)
        w.sync()
        w.flush()
    run = w.begin_checkpoint()
    w.sync()
    run.run()
    for i in range(2):
        w.send(log, b"rolls %d" % i * 16, producer=ME)
    w.sync()
    w.flush()
    w.upkeep.checkpointed(run).run()
    w.checkpoint()
    w.checkpoint()


def transactions_of_several_logs(disk):
    """End transactions in two logs by one unit: of a producer that goes on, and of one that is forgotten with its
    transaction.
    """
    w = Workload(disk)
    a, b = w.make("a"), w.make("b")
    w.sync()
    for turn, kind in enumerate((Marker.COMMIT, Marker.ABORT, Marker.ABORT)):
        once = ONCE + turn
        for log in (a, b):
            w.send(log, b"mine", producer=ME, transactional=True)
            w.send(log, b"of its only one", producer=(once, LAST_EPOCH), transactional=True)
            w.send(log, b"plain")
        w.sync()
        w.flush()
        w.end(kind, (once, RETIRED_EPOCH), a, b)
        w.checkpoint()
        w.end(kind, ME, a, b)
        w.sync()
    w.flush()
    w.checkpoint()


def _steps_in_order(steps: tuple[str, ...]) -> Callable[[object], None]:
    """Return a workload that syncs a transaction's batch, and then takes these steps: marker, flush, checkpoint,
    sync.
    """

    def workload(disk):
        w = Workload(disk)
        log = w.make("a")
        w.send(log, b"plain")
        w.sync()
        w.checkpoint()
        for turn, kind in enumerate((Marker.ABORT, Marker.COMMIT)):
            producer = ONCE + turn
            w.send(log, b"of a transaction", producer=(producer, LAST_EPOCH), transactional=True)
            w.sync()
            actions = {"flush": w.flush, "checkpoint": w.checkpoint, "sync": w.sync}
            for step in steps:
                if step == "marker":
                    w.end(kind, (producer, RETIRED_EPOCH), log)
                else:
                    actions[step]()
            w.sync()

    workload.__name__ = "_then_".join(steps)
    return workload


# Flush, checkpoint, the end of a transaction and the round that makes it durable: each before and after each other.
ORDERS = [_steps_in_order(steps) for steps in permutations(("flush", "checkpoint", "marker", "sync"))]

WORKLOADS = [
    one_log,
    several_logs_in_one_unit,
    a_topic_and_its_first_batch_in_one_round,
    an_idempotent_producer_with_five_in_flight,
    producers_and_epochs,
    flush_and_checkpoint,
    segments_roll,
    delete_records,
    delete_and_recreate_a_topic,
    journal_files_change_and_are_used_again,
    journal_files_are_used_again_that_were_never_synced,
    a_unit_larger_than_a_journal_file,
    producer_snapshots,
    a_restart_between,
    a_folder_made_after_a_checkpoint,
    a_checkpoint_captured_while_things_go_on,
    segments_roll_while_a_checkpoint_is_written,
    transactions_of_several_logs,
]

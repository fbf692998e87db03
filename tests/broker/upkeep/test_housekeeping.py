"""What goes on beside requests: nothing at all, where nothing changes."""

import asyncio
import errno

import pytest
from broker_lives import append_jointly, small
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.upkeep.housekeeping import TICK_S
from fencepost.effects.disk import DiskFull
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Rename, Sync, Unlink
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from fencepost.storage import upkeep
from fencepost.storage.journal.journal import Journal, SyncJob
from fencepost.storage.upkeep import SHARED_RUN_BYTES, SNAPSHOTS_A_RUN, FlushRun, Removal
from produce_requests import answers, batch, create, idempotent, produce
from simulated_broker import SimulatedBroker
from txn_client import begun

OK = 0
BY_NAME = 11  # a version of Produce
UNTIL_IDLE_S = 60  # two checkpoints, and a look whether any log wants one
IDLE_S = 240  # below the interval of retention


def looks(broker, monkeypatch):
    """Return a list that gets an entry for each timer that is set from now on."""
    asked = []
    call_at = broker.loop.call_at

    def counted(when, callback, *args, **kwargs):
        asked.append(callback)
        return call_at(when, callback, *args, **kwargs)

    monkeypatch.setattr(broker.loop, "call_at", counted)
    return asked


@pytest.fixture
def idle():
    with SimulatedBroker(BrokerSettings()) as broker:
        broker.ask(create("t", 20))
        for partition in range(20):
            broker.ask(produce("t", batch(), partition=partition), BY_NAME)
        broker.wait(UNTIL_IDLE_S)
        yield broker


def test_an_idle_broker_examines_its_logs_less_than_once_in_four_seconds(idle, monkeypatch):
    asked = looks(idle, monkeypatch)
    idle.wait(IDLE_S)
    assert len(asked) < IDLE_S / 4  # each timer is a pass over all logs; ten passes a second would be 2,400


def test_after_a_long_idle_time_housekeeping_flushes_and_checkpoints_again(idle):
    idle.wait(IDLE_S)
    store, housekeeping = idle.broker.store, idle.broker.housekeeping
    flushes, checkpoints = housekeeping.flushes, housekeeping.checkpoints
    assert answers(idle.ask(produce("t", batch()), BY_NAME))[0][0] == OK
    assert store.tail_bytes > 0
    idle.wait(5)
    assert (store.tail_bytes, housekeeping.flushes) == (0, flushes + 1)
    idle.wait(30)
    # Two, because the journal keeps what only the newest checkpoint covers.
    assert housekeeping.checkpoints == checkpoints + 2
    idle.wait(60)
    assert housekeeping.checkpoints == checkpoints + 2


@pytest.mark.slow
def test_checkpoints_continue_every_interval_while_a_transaction_is_open(idle):
    housekeeping = idle.broker.housekeeping
    txn = begun(idle, timeout_ms=600_000)
    txn.write("t", b"x")
    idle.wait(UNTIL_IDLE_S)
    before = housekeeping.checkpoints
    idle.wait(110)
    assert 9 <= housekeeping.checkpoints - before <= 11  # one about every ten seconds
    assert txn.commit() == OK
    idle.wait(UNTIL_IDLE_S)
    before = housekeeping.checkpoints
    idle.wait(IDLE_S)
    assert housekeeping.checkpoints == before


def test_after_idle_time_the_age_is_saved_within_two_seconds_of_a_transactions_begin(idle):
    idle.wait(IDLE_S)
    begun(idle).write("t", b"x")
    idle.wait(2)
    assert idle.broker.housekeeping._upkeep.unsaved_age_ms < 2_000


def test_a_request_without_room_in_the_journal_wakes_the_task_that_makes_files():
    """The request is larger than the files made ahead."""
    with SimulatedBroker(small(journal_max_bytes=32 << 20, message_max_bytes=8 << 20)) as broker:
        broker.ask(create("t"))
        broker.wait(UNTIL_IDLE_S)
        large = produce("t", batch(value=bytes(5 << 20)))
        assert answers(broker.ask(large, BY_NAME))[0][0] == OK
        assert broker.broker.metrics.stalls == 1


def test_a_broker_idle_since_its_start_has_journal_files_ready():
    with SimulatedBroker(small()) as broker:
        broker.ask(create("t"))
        with broker.again() as rested:
            rested.wait(5)
            assert not rested.broker.store.journal.nearly_full
            assert answers(rested.ask(produce("t", batch()), BY_NAME))[0][0] == OK


@pytest.mark.slow
def test_a_journal_filled_at_400_mb_a_second_is_recycled_without_congestion():
    with SimulatedBroker(small(journal_max_bytes=32 << 20, message_max_bytes=8 << 20)) as broker:
        broker.ask(create("t"))
        broker.wait(UNTIL_IDLE_S)
        large = produce("t", batch(value=bytes(2 << 20)))
        for _ in range(40):  # 2 MiB each 5 ms: 400 MB a second
            assert answers(broker.ask(large, BY_NAME))[0][0] == OK
            broker.wait(0.005)
            assert not broker.broker.store.congested


def test_the_files_of_a_deleted_topic_are_removed_within_five_seconds():
    with SimulatedBroker(BrokerSettings()) as broker:
        broker.ask(create("t"))
        broker.ask(produce("t", batch()), BY_NAME)
        broker.wait(UNTIL_IDLE_S)
        (log,) = [log for log in broker.broker.store.logs.values() if log.topic == "t"]
        assert broker.disk.exists(log.directory)
        broker.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=1_000))
        broker.wait(5)
        assert not broker.disk.exists(log.directory)


@pytest.mark.parametrize("error", [errno.EACCES, errno.EPERM, errno.EBUSY, errno.ENOTEMPTY, errno.EIO])
def test_a_deleted_topic_whose_files_cannot_be_removed_is_logged(error, caplog):
    with SimulatedBroker(BrokerSettings()) as broker:
        for name in ("t", "u"):
            broker.ask(create(name))
            broker.ask(produce(name, batch()), BY_NAME)
        broker.wait(UNTIL_IDLE_S)
        (log,) = [log for log in broker.broker.store.logs.values() if log.topic == "t"]
        broker.disk.fail(lambda one: isinstance(one, Unlink) and "/t-0." in one.path, error=error, times=None)
        broker.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=1_000))
        broker.wait(5)
        assert broker.broker.store.halted is None
        assert broker.disk.exists(log.directory)
        assert f"{log.directory} is not needed any more and cannot be removed" in caplog.text
        assert answers(broker.ask(produce("u", batch()), BY_NAME))[0][0] == OK


def held_back(broker, monkeypatch, kind):
    """Hold back the blocking jobs of this kind from now on. Return the event that lets them run."""
    free = asyncio.Event()
    before_each(broker, monkeypatch, kind, free.wait)
    return free


def before_each(broker, monkeypatch, kind, work):
    """From now on, await work() before each blocking job of this kind is run."""
    housekeeping = broker.broker.housekeeping
    job = housekeeping.job

    async def later(run):
        if isinstance(getattr(run, "__self__", None), kind):
            await work()
        return await job(run)

    monkeypatch.setattr(housekeeping, "job", later)


def test_slow_removal_of_files_does_not_delay_checkpoints(monkeypatch):
    with SimulatedBroker(small()) as broker:
        broker.ask(create("t"))
        broker.ask(produce("t", batch()), BY_NAME)
        broker.wait(UNTIL_IDLE_S)
        housekeeping = broker.broker.housekeeping
        free = held_back(broker, monkeypatch, Removal)
        before = housekeeping.checkpoints
        for _ in range(4):
            broker.ask(produce("t", batch()), BY_NAME)
            broker.wait(30)
        assert housekeeping.checkpoints >= before + 4
        assert len(checkpoint_files(broker)) > 2
        free.set()
        broker.wait(1)
        assert len(checkpoint_files(broker)) == 2


def test_a_stopping_broker_waits_until_files_due_for_removal_are_removed(monkeypatch):
    with SimulatedBroker(small()) as broker:
        broker.ask(create("t"))
        free = held_back(broker, monkeypatch, Removal)
        for _ in range(4):
            broker.ask(produce("t", batch()), BY_NAME)
            broker.wait(30)
        assert len(checkpoint_files(broker)) > 2
        broker.loop.call_later(1, free.set)
        with broker.again() as again:
            assert len(checkpoint_files(again)) == 2


@pytest.mark.slow
def test_a_checkpoint_that_frees_no_journal_file_is_not_repeated_at_once(monkeypatch):
    """A flush takes long or lacks disk space, so the journal stays half used while produce requests continue."""
    with SimulatedBroker(small()) as broker:
        broker.ask(create("t"))
        broker.wait(UNTIL_IDLE_S)
        free = held_back(broker, monkeypatch, FlushRun)
        store, housekeeping = broker.broker.store, broker.broker.housekeeping
        while not store.journal.half_used:
            assert answers(broker.ask(produce("t", batch(value=bytes(200_000))), BY_NAME))[0][0] == OK
            broker.wait(0.1)
        broker.wait(1)
        before, began = housekeeping.checkpoints, broker.loop.time()
        for _ in range(100):
            assert answers(broker.ask(produce("t", batch()), BY_NAME))[0][0] == OK
            broker.wait(0.005)
        ticks = (broker.loop.time() - began) / TICK_S
        assert housekeeping.checkpoints - before <= ticks + 1
        free.set()
        broker.wait(1)
        assert store.tail_bytes < 200_000
        assert not store.journal.half_used


def test_stopping_a_halted_broker_removes_no_files():
    with SimulatedBroker(small()) as broker:
        broker.ask(create("t"))
        broker.wait(UNTIL_IDLE_S)
        broker.broker.rounds.halt(OSError(errno.EIO, "what is on disk is unknown"))
        kept = checkpoint_files(broker)
        store, housekeeping = broker.broker.store, broker.broker.housekeeping
        housekeeping._removals.append(Removal(store.open_files, [f"{store.directory}/{min(kept)}"], []))
        broker.stop()
        assert checkpoint_files(broker) == kept


def checkpoint_files(broker):
    store = broker.broker.store
    return {name for name in store.disk.list(store.directory) if name.startswith("checkpoint-")}


def test_a_flush_by_several_threads_of_which_one_failed_ends_when_all_have_ended(monkeypatch):
    """Nothing is flushed again before that."""
    with SimulatedBroker(small()) as broker:
        broker.ask(create("t", 2))
        for partition in range(2):
            broker.ask(produce("t", batch(value=bytes(SHARED_RUN_BYTES)), partition=partition), BY_NAME)
        store, upkeep = broker.broker.store, broker.broker.housekeeping._upkeep
        ended = []
        failed, begin = upkeep.flush_failed, upkeep.begin_flush
        monkeypatch.setattr(upkeep, "flush_failed", lambda run: (ended.append("failed"), failed(run)))
        monkeypatch.setattr(FlushRun, "parts", lambda run, threads: [no_room, slow(ended, run)])
        broker.wait(5)
        assert ended[:2] == ["ran", "failed"]
        assert store.tail_bytes > 0
        monkeypatch.undo()
        broker.wait(5)
        assert store.tail_bytes == 0
        assert begin() is None


def test_the_last_flush_before_a_stop_is_written_at_full_speed(monkeypatch):
    with SimulatedBroker(small()) as broker:
        broker.ask(create("t", 1))
        upkeep = broker.broker.housekeeping._upkeep
        paces, begin = [], upkeep.begin_flush
        monkeypatch.setattr(upkeep, "begin_flush", lambda *, pace: (paces.append(pace), begin(pace=pace))[1])
        broker.ask(produce("t", batch()), BY_NAME)
        broker.wait(5)
        assert set(paces) == {True}
        broker.ask(produce("t", batch()), BY_NAME)
        paces.clear()
        broker.stop()
        assert paces[-1:] == [False]
        assert broker.broker.store.tail_bytes == 0


def test_unflushed_batches_above_a_quarter_of_their_limit_are_flushed_within_300_ms():
    with SimulatedBroker(small(log_tail_max_bytes=1 << 20)) as broker:
        broker.ask(create("t", 1))
        broker.wait(5)
        broker.ask(produce("t", batch(value=bytes(200_000))), BY_NAME)
        broker.wait(0.3)
        assert broker.broker.store.tail_bytes > 0
        broker.ask(produce("t", batch(value=bytes(100_000))), BY_NAME)
        broker.wait(0.3)
        assert broker.broker.store.tail_bytes == 0


def no_room():
    raise DiskFull(errno.ENOSPC, "no room")


def slow(ended, run):
    def write():
        run.run()
        ended.append("ran")

    return write


def test_a_flush_writes_only_batches_that_were_appended_before_it_began(monkeypatch):
    monkeypatch.setattr(upkeep, "FLUSH_RUN_BATCHES", 4)
    with SimulatedBroker(small()) as broker:
        broker.ask(create("t"))
        broker.wait(UNTIL_IDLE_S)
        store, housekeeping = broker.broker.store, broker.broker.housekeeping
        (log,) = [log for log in store.logs.values() if log.topic == "t"]
        for _ in range(20):
            assert answers(broker.ask(produce("t", batch()), BY_NAME))[0][0] == OK
        came = []

        async def as_much_comes():
            # At most 200, so that a flush that would also write these ends at some time, and the test fails.
            for _ in range(4 if len(came) < 200 else 0):
                came.append(await broker._ask(produce("t", batch()), BY_NAME))

        before_each(broker, monkeypatch, FlushRun, as_much_comes)
        before = housekeeping.flushes
        broker.wait(3)
        assert housekeeping.flushes == before + 5
        assert (log.flushed_offset, log.end_offset) == (20, 40)
        broker.wait(2)
        assert housekeeping.flushes == before + 10
        assert (log.flushed_offset, log.end_offset) == (40, 60)


@pytest.mark.parametrize("nearly_full", [False, True])
def test_with_a_nearly_full_journal_a_checkpoint_takes_few_producer_snapshots(monkeypatch, nearly_full):
    """Otherwise it takes a snapshot of every log that is due. A nearly full journal needs a checkpoint soon."""
    count = SNAPSHOTS_A_RUN + 6
    with SimulatedBroker(small()) as broker:
        broker.ask(create("t", count))
        for partition in range(count):
            broker.ask(produce("t", idempotent(0), partition=partition), BY_NAME)
        logs = [partition.log for partition in broker.broker.topics.by_name["t"].partitions]
        broker.wait(3)  # flushed
        monkeypatch.setattr(broker.broker.housekeeping._upkeep, "snapshots_due", lambda: logs)
        monkeypatch.setattr(Journal, "nearly_full", nearly_full)
        broker.loop.run_until_complete(broker.broker.housekeeping._checkpoint_once())
        taken = [log for log in logs if not log.bytes_since_snapshot]
        assert taken == (logs[:SNAPSHOTS_A_RUN] if nearly_full else logs)


def test_in_mode_os_a_checkpoint_is_synced_without_a_synced_journal_round(monkeypatch):
    """All answers would have to wait for a synced round of the journal, so a separate job syncs the files."""
    with SimulatedBroker(small(durability_mode="os")) as broker:
        broker.ask(create("t"))
        broker.wait(UNTIL_IDLE_S)
        store, housekeeping = broker.broker.store, broker.broker.housekeeping
        taken, take_round = [], store.take_round

        def noted(*, sync=None):
            if (write := take_round(sync=sync)) is not None:
                taken.append(write)
            return write

        monkeypatch.setattr(store, "take_round", noted)
        before = housekeeping.checkpoints
        append_jointly(broker, "t")
        unit = store.last_unit
        housekeeping.hurry()
        while housekeeping.checkpoints == before:
            assert answers(broker.ask(produce("t", batch()), BY_NAME))[0][0] == OK
            broker.wait(0.002)
        assert len(taken) >= 2
        assert not any(write.sync for write in taken)
        assert store.synced_unit >= unit


@pytest.mark.slow
def test_in_mode_os_journal_files_are_reused_and_synced_only_when_made():
    with SimulatedBroker(small(durability_mode="os"), disk=SimulatedDisk()) as broker:
        broker.ask(create("t"))
        broker.wait(UNTIL_IDLE_S)
        begun, synced_unit = len(broker.disk.operations), broker.broker.store.synced_unit
        for _ in range(40):
            assert answers(broker.ask(produce("t", batch(value=bytes(300_000))), BY_NAME))[0][0] == OK
            broker.wait(0.5)
        assert broker.broker.store.synced_unit == synced_unit
        of_journal = [one for one in broker.disk.operations[begun:] if "/journal/" in one.path]
        assert len([one for one in of_journal if isinstance(one, Rename)]) > 8
        synced = [one.inode for one in of_journal if isinstance(one, Sync) and one.only is None]
        assert len(synced) == len(set(synced))  # each file once, when it was made


def test_a_halt_during_a_capture_that_needs_no_sync_prevents_the_checkpoint(monkeypatch):
    """A capture is the state that a checkpoint writes; this one needs no sync before."""
    with SimulatedBroker(small(durability_mode="os")) as broker:
        broker.ask(create("t"))
        broker.wait(UNTIL_IDLE_S)
        kept, upkeep = checkpoint_files(broker), broker.broker.housekeeping._upkeep
        captured = upkeep.captured

        def halting(capture):
            broker.broker.rounds.halt(OSError(errno.EIO, "what is on disk is unknown"))
            return captured(capture)

        monkeypatch.setattr(upkeep, "captured", halting)
        broker.ask(produce("t", batch()), BY_NAME)
        broker.broker.housekeeping.hurry()
        broker.wait(1)
        assert broker.broker.halted is not None
        assert checkpoint_files(broker) == kept


def test_a_sync_job_that_ends_after_a_halt_is_followed_by_no_checkpoint(monkeypatch):
    with SimulatedBroker(small(durability_mode="os")) as broker:
        broker.ask(create("t"))
        broker.wait(UNTIL_IDLE_S)
        kept, synced_unit = checkpoint_files(broker), broker.broker.store.synced_unit
        free = held_back(broker, monkeypatch, SyncJob)
        append_jointly(broker, "t")
        broker.broker.housekeeping.hurry()
        broker.wait(1)
        broker.broker.rounds.halt(OSError(errno.EIO, "what is on disk is unknown"))
        free.set()
        broker.wait(1)
        assert checkpoint_files(broker) == kept
        assert broker.broker.store.synced_unit == synced_unit

"""What a store counts of its tails (batches not flushed yet), when clients have to wait for a flush; new log ids."""

import tracemalloc

import pytest
from fencepost.effects.disk import SystemDisk
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.rng import SeededRng
from fencepost.protocol import batches
from fencepost.storage.recovery import open_store
from fencepost.storage.store import StoreSettings
from store_driver import Driven, batch_of
from store_dump import dump_log

SMALL_BATCH = batch_of([b"x" * 20])


def send(driven: Driven, log, count: int) -> None:
    """Append `count` batches that share one buffer, like the batches of one request."""
    request = memoryview(bytearray(SMALL_BATCH * count))
    for place in range(0, len(request), len(SMALL_BATCH)):
        driven.store.append(log, batches.check_produced(request[place : place + len(SMALL_BATCH)]))


@pytest.mark.slow
def test_the_memory_count_of_small_unflushed_batches_is_near_their_measured_memory(tmp_path):
    store, _ = open_store(SystemDisk(), SimulatedClock(), SeededRng(1), str(tmp_path / "data"), StoreSettings())
    driven = Driven.__new__(Driven)
    driven.store = store
    log = driven.create("t")
    driven.round()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            driven.fill()
            send(driven, log, 100)
            driven.round()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    counted = store.tail_memory_bytes
    store.close()
    assert 0.8 * taken < counted < 1.5 * taken
    assert taken > 4 * store.tail_bytes


def test_the_store_is_congested_while_unflushed_batches_use_more_than_tail_max_bytes():
    driven = Driven(SimulatedDisk(history=False), settings=StoreSettings(tail_max_bytes=100_000, min_free_bytes=0))
    driven.fill()
    log = driven.create("t")
    send(driven, log, 300)
    driven.store.look()
    assert driven.store.tail_bytes < 30_000  # the objects of small batches use far more memory than their bytes
    assert driven.store.congested
    driven.round()
    driven.flush()
    driven.store.look()
    assert not driven.store.congested
    assert driven.store.tail_memory_bytes == 0


def test_unflushed_bytes_of_a_dropped_log_are_not_counted_even_during_its_flush():
    driven = Driven(SimulatedDisk(history=False))
    driven.fill()
    for is_flushing in (False, True):
        log = driven.create("t")
        send(driven, log, 10)
        driven.round()
        run = driven.upkeep.begin_flush() if is_flushing else None
        driven.store.commit([driven.store.drop_part(log)])
        if run is not None:
            run.run()
            driven.upkeep.flushed(run)
        assert driven.store.tail_memory_bytes == 0
        driven.round()


def test_append_next_changes_the_counts_and_the_log_exactly_as_append():
    found = []
    for short in (False, True):
        driven = Driven(SimulatedDisk(history=False))
        driven.fill()
        log = driven.create("t")
        for sequence in range(3):
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            if short and sequence:
                data = memoryview(batch_of([b"value"], **fields))
                driven.store.append_next(log, data[16:], 0, batches.read(data).max_timestamp, 7, sequence)
            else:
                driven.append(log, [b"value"], **fields)
        counted = log.bytes_since_snapshot, log.snapshots.taken_bytes, log.tail_bytes, log.end_offset, log.size_bytes
        driven.round()
        of_store = driven.store.tail_bytes, driven.store.tail_batches, driven.store.last_unit
        found.append((counted, of_store, dump_log(log)))
    assert found[0] == found[1]
    assert found[1][0][0] > 0


@pytest.mark.parametrize("beside", [100_000, 3_000])
@pytest.mark.parametrize("together", [True, False])
def test_an_unflushed_batch_keeps_at_most_4_times_its_size_of_request_bytes_alive(together, beside):
    """Otherwise the batch is copied out of its request. beside: how many other bytes the request has."""
    driven = Driven(SimulatedDisk())
    log = driven.create("t")
    driven.round()
    content = batch_of([b"v" * 1_000])
    request = bytes(beside) + content
    batch = batches.check_produced(memoryview(request)[beside:])
    if together:
        driven.store.append_together([(log, batch)])
    else:
        driven.store.append(log, batch)
    driven.round()
    (_, rest) = log._tail[-1][6]
    assert bytes(rest) == content[16:]
    assert (isinstance(rest, memoryview) and rest.obj is request) == (beside == 3_000)


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("dropped", [False, True])
def test_a_log_id_is_never_reused_after_a_drop_or_a_restart(checkpointed, dropped):
    driven = Driven(SimulatedDisk())
    ids = set()
    for name in ("a", "b", "c"):
        log = driven.create(name)
        assert log.log_id not in ids | {0}
        ids.add(log.log_id)
        driven.round(sync=True)
        if dropped:
            driven.store.commit([driven.store.drop_part(log)])
            driven.round(sync=True)
        if checkpointed:
            for _ in range(3):  # then no checkpoint names the log
                driven.checkpoint()
        driven = Driven(driven.disk.after_process_crash())


def test_a_log_id_in_an_unsynced_journal_unit_of_a_killed_process_is_not_reused():
    driven = Driven(SimulatedDisk())
    first = driven.create("a").log_id
    driven.round(sync=False)
    again = Driven(driven.disk.after_process_crash())
    assert again.create("b").log_id > first

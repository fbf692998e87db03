"""The work of a start with share partitions of thousands of runs: few Python lines are executed for each run."""

import gc
import time

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.share import records
from fencepost.broker.share.machine import SharePartition
from fencepost.broker.share.state_log import ShareStateLog
from fencepost.broker.share.values import AckRange, AckType, AcquiredRange, Snapshot, State, StateBatch, Update
from lines_run import lines_run
from share_acknowledging import acknowledge_now
from share_transactions import ShareWorker, begin
from simulated_broker import SimulatedBroker

RUNS, SHARE_PARTITIONS = 2_000, 4
LINES_OF_A_PENDING_RUN = 50  # each names its member, which takes some lines
LINES_OF_A_RUN = 0.5  # with a line for each run in Python alone, a thousand share partitions would take too long


@pytest.mark.slow
@pytest.mark.parametrize("source", ["the log", "a snapshot of the coordinators"])
def test_loading_share_state_at_a_start_executes_few_python_lines_per_run(source: str) -> None:
    """A run is consecutive records in the same state."""
    with SimulatedBroker(BrokerSettings(share_coordinator_state_topic_num_partitions=1)) as world:
        world.broker.topics.create("orders", SHARE_PARTITIONS)
        keys, state_log = begin(world, "orders", partitions=SHARE_PARTITIONS), world.broker.share_partitions.state_log
        states = (State.AVAILABLE, State.ACKNOWLEDGED)
        batches = [StateBatch(offset, offset, states[offset % 2], 1) for offset in range(2, RUNS + 2)]
        state_log.commit([(key, Snapshot(1, 0, 0, RUNS // 2, batches, 1, 2)) for key in keys])
        world.wait(1)
        fresh = ShareStateLog(world.broker.shared)
        rows = [] if source == "the log" else list(state_log.rows())
        if rows:
            fresh.topic.replay_from = {0: state_log.topic.log(0).end_offset}

        def start() -> None:
            for row in rows:
                fresh.put_row(fresh.read_row(row))
            fresh.load()

        lines = lines_run(start)
        assert [len(fresh.known[key].machine.runs) for key in keys] == [RUNS] * SHARE_PARTITIONS
        assert lines < LINES_OF_A_RUN * RUNS * SHARE_PARTITIONS


def test_applying_a_large_update_of_share_state_executes_few_python_lines_per_range() -> None:
    states = (State.AVAILABLE, State.ACKNOWLEDGED)
    batches = [StateBatch(offset, offset, states[offset % 2], 1) for offset in range(RUNS)]
    value = records.update_value(Update(0, RUNS // 2, batches), 0)
    machine = SharePartition(0)
    lines = lines_run(lambda: machine.apply(records.read_update(value)))
    assert machine.durable() == batches
    assert lines < LINES_OF_A_RUN * RUNS


@pytest.mark.slow
@pytest.mark.parametrize("source", ["the log", "a snapshot of the coordinators"])
def test_a_start_restores_the_pending_runs_of_one_request_together(source: str) -> None:
    """It executes few Python lines per run. A pending run is consecutive records acknowledged in a transaction that has
    not ended.
    """
    with SimulatedBroker() as world:
        world.broker.topics.create("orders", 1)
        (key,), state_log = begin(world, "orders"), world.broker.share_partitions.state_log
        acquired = [AcquiredRange(offset, offset, 1 + offset % 2) for offset in range(RUNS)]
        state_log.known[key].machine.acquire(acquired, "m", 1 << 60)
        assert ShareWorker(world).acknowledge((key, 0, RUNS - 1)) == [0]
        world.wait(1)
        fresh = ShareStateLog(world.broker.shared)
        rows = [] if source == "the log" else list(state_log.rows())
        if rows:
            home = state_log.home(key)
            fresh.topic.replay_from = {home: state_log.topic.log(home).end_offset}

        def start() -> None:
            for row in rows:
                fresh.put_row(fresh.read_row(row))
            fresh.load()

        lines = lines_run(start)
        before, after = state_log.known[key].machine, fresh.known[key].machine
        assert after.pending_runs() == before.pending_runs()
        assert list(after.pending_batches()) == list(before.pending_batches())
        assert lines < LINES_OF_A_PENDING_RUN * RUNS


@pytest.mark.long
@pytest.mark.parametrize("after", ["an orderly stop", "a crash, without a snapshot of the coordinators"])
def test_a_start_restores_a_thousand_share_partitions(after: str) -> None:
    """Prints the CPU time of the whole start."""
    world = SimulatedBroker()
    world.broker.topics.create("orders", 1_000)
    keys, shares = begin(world, "orders", partitions=1_000), world.broker.share_partitions
    types = [(AckType.ACCEPT, AckType.RELEASE)[offset % 2] for offset in range(RUNS)]
    for number, key in enumerate(keys):
        shares.state_log.known[key].machine.acquire([AcquiredRange(0, RUNS - 1, 1)], "m", 1 << 60)
        acknowledge_now(shares, key.group, "m", {key[1:]: [AckRange(0, RUNS - 1, types)]})
        if number % 50 == 0:
            world.wait(0.2)
    world.wait(0.2)
    if after == "an orderly stop":
        world.stop()
        disk = world.disk
    else:
        disk = world.disk.after_process_crash()
        world.abandon()
    gc.collect()
    gc.disable()  # the command `serve` does so while it starts
    try:
        began_s = time.process_time()
        later = SimulatedBroker(disk=disk)
        print(f"start after {after}: {time.process_time() - began_s:.2f} s of CPU")
    finally:
        gc.enable()
    with later:
        known = later.broker.share_partitions.state_log.known
        assert [len(known[key].machine.runs) for key in keys] == [RUNS - 1] * 1_000

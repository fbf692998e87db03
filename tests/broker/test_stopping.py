"""How long an orderly stop takes, and what it says of that. Simulated disk, network and time."""

import logging
import re

import pytest
from broker_lives import read_all, slow, small
from fencepost.broker.stopping import SAID_AFTER_MS, TIDY_MS
from fencepost.effects.simulated.disk import SimulatedDisk
from produce_requests import batch, create, produce
from simulated_broker import SimulatedBroker

pytestmark = pytest.mark.slow

TOPICS = 40
JOB_S = 1.5  # what each job of the segments' workers takes on this disk


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, "fencepost.broker")
    return caplog


def filled(disk):
    """Start a broker, and write a batch to each of its topics. None of them is in a segment yet."""
    broker = SimulatedBroker(small(), disk=disk)
    for number in range(TOPICS):
        broker.ask(create(f"t{number}"))
        broker.ask(produce(f"t{number}", batch()))
    return broker


def stop(broker, **how):
    """Stop the broker. Return how many seconds of virtual time that takes."""
    began_s = broker.loop.time()
    broker.loop.run_until_complete(broker.broker.stop(**how))
    took_s = broker.loop.time() - began_s
    broker.loop.close()
    return took_s


def assert_all_there(disk):
    with SimulatedBroker(small(), disk=disk, seed=1) as broker:
        assert all(read_all(broker, f"t{number}") for number in range(TOPICS))


def test_a_stop_on_a_slow_disk_ends_in_time_without_flushing_everything(said):
    """After TIDY_MS (4 s) the stop waits only for jobs that have begun. The journal has what was not flushed."""
    disk = SimulatedDisk(history=False)
    delays = slow(disk)
    broker = filled(disk)
    delays["segments"] = JOB_S
    broker.broker.housekeeping._upkeep.snapshots_due = lambda: list(broker.broker.store.logs.values())  # a job each
    assert TIDY_MS / 1000 < stop(broker) < TIDY_MS / 1000 + 4 * JOB_S
    assert [line for line in said.messages if line.startswith("stopping: waiting for the last checkpoint")]
    assert [line for line in said.messages if re.match(r"stopping: waited .* s for the last checkpoint", line)]
    delays.clear()
    assert_all_there(disk)


def test_stopping_a_broker_whose_directory_is_not_used_again_writes_no_checkpoint():
    """It flushes nothing and takes no coordinator snapshot either; the journal still has all records."""
    disk = SimulatedDisk(history=False)
    broker = filled(disk)
    housekeeping = broker.broker.housekeeping
    done = housekeeping.flushes, housekeeping.checkpoints, broker.broker.coordinator_snapshots.taken
    stop(broker, is_used_again=False)
    assert done == (housekeeping.flushes, housekeeping.checkpoints, broker.broker.coordinator_snapshots.taken)
    assert_all_there(disk)


def test_a_stop_that_takes_a_short_time_logs_no_progress(said):
    broker = filled(SimulatedDisk(history=False))
    assert stop(broker) * 1000 < SAID_AFTER_MS
    assert not [line for line in said.messages if line.startswith("stopping")]


def test_a_stop_logs_that_it_waits_for_a_disk_that_does_not_answer(said):
    disk = SimulatedDisk(history=False)
    delays = slow(disk)
    broker = filled(disk)
    delays["journal"] = 3.0
    broker.broker.rounds.sync_soon()
    assert stop(broker) >= 3
    assert "stopping: waiting for open writes to become durable" in said.messages
    assert "stopping: waited 3.0 s for open writes to become durable" in said.messages

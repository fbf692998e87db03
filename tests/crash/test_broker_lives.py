"""Whole brokers, killed and unplugged under traffic: what clients were told and shown is what the next one serves.

The real broker on a simulated disk, network and clock. A sync takes some milliseconds, so that crashes meet requests
that are written and not synced, replies that wait, and rounds that fill meanwhile. `make lives` runs many more.
"""

import os
import random

import pytest
from broker_lives import end, slow, small
from broker_oracle import check, run_traffic
from crash_points import crash_images
from fencepost.effects.simulated.disk import SimulatedDisk
from long_runs import share_of
from simulated_broker import SimulatedBroker

pytestmark = pytest.mark.sampled

LIMIT = int(os.environ.get("LIVES", share_of(18)))
SEED = int(os.environ.get("SEED", "1"))
SECONDS = 25.0  # virtual; two checkpoints


def begin(disk: SimulatedDisk, seed: int = 0) -> SimulatedBroker:
    slow(disk, journal=0.004, segments=0.003, reads=0.001)
    return SimulatedBroker(small(), disk=disk, seed=seed)


@pytest.fixture(scope="module")
def busy():
    """The disk of a broker that was busy, with all that happened to it and what its clients were told when."""
    print(f"seed {SEED}, {LIMIT} power cuts, and more of the other kinds")
    disk = SimulatedDisk()
    broker = begin(disk, SEED)
    run_traffic(broker, f"life {SEED}", SECONDS)
    assert broker.broker.housekeeping.checkpoints >= 2
    assert not broker.broker.metrics.failures
    end(broker)
    return disk


def judged(disk: SimulatedDisk, seed: int, description: str) -> SimulatedDisk:
    """Begin a broker on an image and ask it. Returns the disk, on which it was served and sent to."""
    broker = begin(disk, seed)
    try:
        check(broker)
    except BaseException as error:
        error.add_note(description)
        raise
    finally:
        end(broker)
    return disk


@pytest.mark.requirement("S-11", "S-14", "S-31")
def test_records_acknowledged_or_fetched_before_a_power_cut_are_there_after_it(busy):
    for number, (description, image) in enumerate(crash_images(busy, limit=LIMIT, seed=SEED)):
        judged(image, number, description)


@pytest.mark.requirement("S-11", "S-31")
def test_a_kill_a_restart_and_a_power_cut_lose_no_acknowledged_record(busy):
    moments = random.Random(SEED).sample(range(len(busy.operations)), LIMIT // 3)
    for moment in moments:
        disk = judged(busy.killed_at(moment), moment, f"killed after {moment}")
        began = moment
        for description, image in crash_images(disk, first=began, limit=4, seed=moment):
            judged(image, moment, f"killed after {moment}, then {description}")


def test_after_two_power_cuts_records_lost_in_the_first_do_not_return(busy):
    for number, (description, image) in enumerate(crash_images(busy, limit=LIMIT // 6, seed=-SEED)):
        disk = judged(image, number, description)
        for again, twice in crash_images(disk, limit=4, seed=number):
            judged(twice, number, f"{description}, then {again}")

"""A cut after every operation of scripted workloads, unsynced writes landing in any order: the recovery oracle holds.

The suite samples; `make crash-points` runs all of them, and crashes in more of the recoveries.
"""

import os

import pytest
from crash_points import crash_images
from fencepost.effects.simulated.disk import SimulatedDisk
from recovery_oracle import check
from scripted_workloads import ORDERS, WORKLOADS

LIMIT = int(os.environ.get("CRASH_LIMIT", "30")) or None
LIMIT_OF_ORDERS = int(os.environ.get("CRASH_LIMIT", "10")) or None  # they are short, and there are many
TWICE = int(os.environ.get("CRASH_TWICE", "5")) or None  # so many recoveries crash too; None: each, at each point


def name_of(workload) -> str:
    return workload.__name__


def check_each_cut(workload, limit: int | None) -> None:
    disk = SimulatedDisk()
    workload(disk)
    seen = 0
    for description, image in crash_images(disk, limit=limit, seed=1):
        try:
            check(image)
        except BaseException as error:
            error.add_note(f"{workload.__name__}: {description}")
            raise
        seen += 1
    assert seen


@pytest.mark.parametrize("workload", WORKLOADS, ids=name_of)
def test_every_state_after_a_power_cut_recovers_all_acknowledged_records(workload):
    check_each_cut(workload, LIMIT)


@pytest.mark.parametrize("workload", ORDERS, ids=name_of)
def test_a_transactions_outcome_survives_a_crash_at_any_flush_and_checkpoint(workload):
    check_each_cut(workload, LIMIT_OF_ORDERS)


@pytest.mark.parametrize("workload", WORKLOADS, ids=name_of)
def test_a_crash_during_recovery_still_recovers_all_acknowledged_records(workload):
    disk = SimulatedDisk()
    workload(disk)
    for description, image in crash_images(disk, limit=TWICE, seed=2):
        first = image.at(0)
        check(first)
        for again, twice in crash_images(first, limit=TWICE and 6, seed=3):
            try:
                check(twice)
            except BaseException as error:
                error.add_note(f"{workload.__name__}: {description}, then {again}")
                raise

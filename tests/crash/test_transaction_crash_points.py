"""A cut after every operation of scripted transactions: each is there whole, or not at all, offsets and all.

The suite samples; `make crash-points` runs all of them, and crashes in more of the recoveries.
"""

import os

import pytest
from crash_points import crash_images
from fencepost.effects.simulated.disk import SimulatedDisk
from long_runs import share_of
from txn_oracle import Script, check
from txn_scripts import SCRIPTS

pytestmark = pytest.mark.sampled

LIMIT = int(os.environ.get("CRASH_LIMIT", share_of(20))) or None
TWICE = int(os.environ.get("CRASH_TWICE", "2")) or None  # so many recoveries crash too; None: each, at each point


def played(script) -> tuple[SimulatedDisk, int]:
    """Run a script on a simulated disk. Return the disk, and its first operation that belongs to the script."""
    disk = SimulatedDisk()
    stage = Script(disk)
    script(stage)
    stage.over()
    return disk, stage.begins_at


@pytest.mark.requirement("S-67", "S-71", "S-89", "S-90")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_after_a_power_cut_a_transaction_is_complete_or_absent(script):
    disk, first = played(script)
    seen = 0
    for description, image in crash_images(disk, first=first, limit=LIMIT, seed=1):
        try:
            check(image)
        except BaseException as error:
            error.add_note(f"{script.__name__}: {description}")
            raise
        seen += 1
    assert seen


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_crash_during_recovery_of_a_transaction_keeps_its_outcome(script):
    disk, first = played(script)
    for description, image in crash_images(disk, first=first, limit=TWICE, seed=2):
        once = image.at(0)
        check(once)
        for again, twice in crash_images(once, limit=TWICE and 2, seed=3):
            try:
                check(twice, seed=1)
            except BaseException as error:
                error.add_note(f"{script.__name__}: {description}, then {again}")
                raise

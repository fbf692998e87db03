"""A disk on which a round is written and synced in one call, and one on which its files are synced."""

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk


@pytest.fixture(params=[True, False], ids=["blocks are synced", "files are synced"])
def disk(request: pytest.FixtureRequest) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.syncs_blocks = request.param
    return disk

"""An empty disk, a journal on it that a test drives, and a partition as its producers see it."""

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from journal_driver import Driven
from one_partition import OnePartition


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def driven(disk: SimulatedDisk) -> Driven:
    return Driven(disk)


@pytest.fixture
def partition() -> OnePartition:
    return OnePartition()

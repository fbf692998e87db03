"""An empty disk, and a journal on it that a test drives."""

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from journal_driver import Driven


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def driven(disk: SimulatedDisk) -> Driven:
    return Driven(disk)

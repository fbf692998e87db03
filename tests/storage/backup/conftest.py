"""A data directory that nobody uses, with segments, producer snapshots and units that are in the journal only."""

import pytest
from fencepost.effects.simulated.disk import SimulatedDisk
from scripted_workloads import producer_snapshots


@pytest.fixture
def disk() -> SimulatedDisk:
    written = SimulatedDisk()
    producer_snapshots(written)
    return written.found(written.after_process_crash()._seen)

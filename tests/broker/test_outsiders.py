"""Somebody else in the file system: a directory that is renamed, removed or served by another broker meanwhile."""

from collections.abc import Callable

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.effects.disk import AlreadyLocked, DirectoryMoved
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.messages.cluster import DescribeLogDirsRequest
from fencepost.protocol.messages.monitoring import DescribeMetricsRequest
from produce_requests import batch, create, produce
from simulated_broker import SimulatedBroker

SETTINGS = BrokerSettings(log_dir="/data/fencepost")
MOVED = "/data/moved"

Change = Callable[[SimulatedDisk], None]


def rename(disk: SimulatedDisk) -> None:
    disk.rename(SETTINGS.log_dir, MOVED)


def rename_parent(disk: SimulatedDisk) -> None:
    disk.rename("/data", "/elsewhere")


def remove(disk: SimulatedDisk) -> None:
    disk.remove_tree(SETTINGS.log_dir)


def end_of(world: SimulatedBroker, topic: str) -> int:
    found: int = world.broker.topics.by_name[topic].partitions[0].log.end_offset
    return found


def served(world: SimulatedBroker, records: int = 3) -> SimulatedBroker:
    world.ask(create("t"))
    for _ in range(records):
        world.ask(produce("t", batch()))
    return world


@pytest.mark.slow
@pytest.mark.parametrize("waits_s", [0, 1, 60], ids=["at once", "a moment later", "later"])
@pytest.mark.parametrize("change", [rename, rename_parent, remove])
def test_stopping_the_broker_of_a_moved_directory_keeps_records_of_its_replacement(
    change: Change, waits_s: int
) -> None:
    disk = SimulatedDisk(history=False)
    old = served(SimulatedBroker(SETTINGS, disk=disk), records=2)
    outsider = disk.beside()
    change(outsider)
    new = served(SimulatedBroker(SETTINGS, disk=disk.beside()), records=300)
    old.wait(waits_s)
    old.stop()
    assert isinstance(old.broker.halted, DirectoryMoved)
    with new.after_power_cut() as again:
        assert end_of(again, "t") == 300


@pytest.mark.parametrize("change", [rename, rename_parent, remove])
def test_a_running_broker_halts_within_5_seconds_when_its_directory_is_moved(change: Change) -> None:
    disk = SimulatedDisk(history=False)
    world = served(SimulatedBroker(SETTINGS, disk=disk))
    change(disk.beside())
    world.wait(5)
    assert isinstance(world.broker.halted, DirectoryMoved)
    world.stop()


@pytest.mark.parametrize("asked", [DescribeLogDirsRequest(topics=None), DescribeMetricsRequest()])
def test_a_request_to_a_broker_with_a_moved_directory_halts_it_unanswered(asked: object) -> None:
    disk = SimulatedDisk(history=False)
    world = served(SimulatedBroker(SETTINGS, disk=disk))
    rename(disk.beside())
    with pytest.raises(ConnectionError):
        world.ask(asked)
    assert isinstance(world.broker.halted, DirectoryMoved)
    assert world.broker.metrics.failures == []
    world.stop()


def test_a_moved_directory_contains_all_acknowledged_records() -> None:
    disk = SimulatedDisk(history=False)
    old = served(SimulatedBroker(SETTINGS, disk=disk))
    outsider = disk.beside()
    rename(outsider)
    with pytest.raises(AlreadyLocked):
        outsider.lock(f"{MOVED}/lock")
    old.stop()
    outsider.rename(MOVED, SETTINGS.log_dir)
    with SimulatedBroker(SETTINGS, disk=outsider) as again:
        assert end_of(again, "t") == 3


def test_a_data_directory_moved_and_moved_back_at_once_does_not_halt_the_broker() -> None:
    disk = SimulatedDisk(history=False)
    world = served(SimulatedBroker(SETTINGS, disk=disk))
    world.wait(60)
    outsider = disk.beside()
    rename(outsider)
    outsider.rename(MOVED, SETTINGS.log_dir)
    with world.again() as later:
        assert end_of(later, "t") == 3

"""A power cut after every operation of a named producer's life: its highest sequence is what is in the log.

A client opens a name, writes, repeats what it has written, is replaced, removed, and a topic goes. What a recovered
broker has is what was there after the last answer, or with the one request under way; and its next life writes what is
missing, and nothing twice.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
from cut_lives import check_cuts, run_steps
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.producers.names import NOTHING
from fencepost.effects.simulated.disk import SimulatedDisk
from named_requests import opened, remove, write
from simulated_broker import SimulatedBroker
from txn_client import values

LIMIT = int(os.environ.get("CRASH_LIMIT", "12")) or None
SETTINGS = BrokerSettings(log_dir="/d", journal_max_bytes=4 << 20)


def known(world: SimulatedBroker) -> Any:
    """Return the names, how far each is, and what is in the partitions; check that the two agree."""
    names, topics = world.broker.named_producers.names, world.broker.topics
    written = {(name, index): values(world, name, index) for name in "tu" if name in topics.by_name for index in (0, 1)}
    for found in names.by_name.values():
        for (topic_id, index), highest in found.highest.items():
            in_log = written[topics.by_id[topic_id].name, index]
            assert max(map(int, in_log), default=NOTHING) == highest
            assert len(set(in_log)) == len(in_log)
    return {name: (each.epoch, dict(each.highest)) for name, each in names.by_name.items()}, written


def steps_of(world: SimulatedBroker) -> list[Callable[[], Any]]:
    epochs: list[int] = []

    def take() -> None:
        world.loop.run_until_complete(world.broker.coordinator_snapshots.take())

    def delete() -> None:
        world.broker.topics.delete(world.broker.topics.by_name["u"])
        world.wait(0.05)

    def put(topic: str, partition: int, *sequences: int) -> None:
        assert write(world, "x", epochs[-1], *sequences, topic=topic, partition=partition).error_code == 0

    return [
        lambda: epochs.append(opened(world, "x")),
        lambda: epochs.append(opened(world, "x", t=2)),
        lambda: put("t", 0, 1, 2),
        lambda: put("t", 0, 1, 2),
        lambda: put("t", 1, 7),
        take,
        lambda: epochs.append(opened(world, "x", u=2)),
        lambda: put("u", 0, 5, 9),
        lambda: put("t", 0, 3),
        delete,
        take,
        lambda: put("t", 0, 8),
        lambda: remove(world, "x"),
    ]


def check(image: SimulatedDisk, states: list[Any]) -> None:
    answered = image.notes[-1]
    world = SimulatedBroker(SETTINGS, disk=image, seed=5)
    try:
        names, written = known(world)
        newest = max((epoch for epoch, _ in names.values()), default=0)
        names.pop("y", None)  # of a life between
        assert (names, written) in states[answered : answered + 2]
        assert opened(world, "y", t=2) > newest
    finally:
        world.abandon()


def played() -> tuple[SimulatedDisk, int, list[Any]]:
    """Run the steps on a simulated disk.

    Return the disk, its first operation that belongs to the steps, and known() after 0, 1, 2, … answered steps.
    """
    disk = SimulatedDisk()
    world = SimulatedBroker(SETTINGS, disk=disk)
    for topic in "tu":
        world.broker.topics.create(topic, 2)
    steps = steps_of(world)
    world.wait(3)
    begins_at = len(disk.operations)
    states = run_steps(disk, steps, lambda: known(world))
    world.wait(1)
    world.abandon()
    return disk, begins_at, states


@pytest.mark.slow
def test_after_a_power_cut_a_named_producers_highest_sequence_matches_the_log() -> None:
    disk, begins_at, states = played()
    check_cuts(disk, lambda image: check(image, states), LIMIT, begins_at)

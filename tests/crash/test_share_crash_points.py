"""A power cut after every operation of a worker's life: acknowledgement and output are both there, or neither.

A worker takes records of a share group, writes an output for each into its transaction, and acknowledges them in it.
What a recovered broker knows is what was known after the last answer, locks left out, or with the one request under
way as well; and that over two cuts. The suite samples the cuts.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest
from cut_lives import check_cuts, run_steps
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.share.values import AckRange, AckType, SharePartitionKey
from fencepost.broker.topics.reading import checked_batches
from fencepost.broker.upkeep import coordinator_snapshots
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.records import read_marker
from fencepost.storage.log.partition_log import PartitionLog
from offset_requests import Producer, commit
from share_acknowledging import acknowledge_now
from share_driver import durable_view
from share_transactions import ShareWorker, acquire, begin
from simulated_broker import SimulatedBroker

LIMIT = int(os.environ.get("CRASH_LIMIT", "12")) or None
SETTINGS = BrokerSettings(
    log_dir="/d",
    share_coordinator_state_topic_num_partitions=2,
    transaction_state_log_num_partitions=1,
    journal_max_bytes=4 << 20,
)

Steps = list[Callable[[], Any]]


def known(world: SimulatedBroker) -> Any:
    """Return what a restart must find: the durable state of each share partition, and the batches and markers of topic
    out.
    """
    shares = {key: durable_view(kept.machine) for key, kept in world.broker.share_partitions.state_log.known.items()}
    topic = world.broker.topics.by_name["out"]
    return shares, [_outcomes(part.log) for part in topic.partitions]


def _outcomes(log: PartitionLog) -> Any:
    """Return (offset, producer id, epoch, COMMIT or ABORT; None for a batch of records) of each batch in a log."""
    found = []
    for batch in checked_batches(log, 0):
        marker = read_marker(batch) if batch.is_control else None
        found.append((batch.base_offset, batch.producer_id, batch.producer_epoch, marker and marker[0].name))
    return found


def plain_acknowledgements(world: SimulatedBroker, keys: list[SharePartitionKey]) -> Steps:
    shares = world.broker.share_partitions

    def acknowledge(*asked: tuple[SharePartitionKey, int, int, AckType]) -> None:
        acks = {(key.topic_id, key.partition): [AckRange(first, last, [kind])] for key, first, last, kind in asked}
        assert not any(acknowledge_now(shares, "g", "m", acks).values())
        world.wait(0.05)

    return [
        lambda: [acquire(world, key, 0, 9) for key in keys],
        lambda: acknowledge(*((key, 0, 4, AckType.ACCEPT) for key in keys)),
        lambda: acknowledge((keys[0], 6, 7, AckType.RELEASE)),
        lambda: (shares.begin_release("g", "m", [(key.topic_id, key.partition) for key in keys]), world.wait(0.05)),
        lambda: acquire(world, keys[0], 5, 9, "other"),
    ]


def transactions(world: SimulatedBroker, keys: list[SharePartitionKey]) -> Steps:
    worker = ShareWorker(world)
    return [
        lambda: [acquire(world, key, 0, 9) for key in keys],
        lambda: worker.write("out"),
        lambda: worker.acknowledge((keys[0], 0, 0)),
        lambda: worker.acknowledge((keys[0], 2, 4), (keys[1], 0, 3)),
        lambda: worker.end(commit=True),
        lambda: worker.acknowledge((keys[1], 5, 6)),
        lambda: worker.write("out"),
        lambda: worker.end(commit=False),
    ]


def two_at_once(world: SimulatedBroker, keys: list[SharePartitionKey]) -> Steps:
    one, other = ShareWorker(world, "x"), ShareWorker(world, "y", member="n")
    return [
        lambda: (acquire(world, keys[0], 0, 4), acquire(world, keys[0], 5, 9, "n")),
        lambda: one.acknowledge((keys[0], 0, 1)),
        lambda: other.write("out"),
        lambda: other.acknowledge((keys[0], 5, 5)),
        lambda: one.write("out"),
        lambda: one.end(commit=True),
        lambda: Producer(world, "y", tv=2),  # which fences the other
    ]


def snapshots(world: SimulatedBroker, keys: list[SharePartitionKey]) -> Steps:
    worker = ShareWorker(world)

    def take() -> None:
        world.loop.run_until_complete(world.broker.coordinator_snapshots.take())

    def prune() -> None:
        write_whole_and_prune(world, keys)

    return [
        lambda: [acquire(world, key, 0, 9) for key in keys],
        lambda: worker.acknowledge((keys[0], 0, 3), (keys[1], 1, 1)),
        take,
        prune,
        lambda: worker.end(commit=True),
        prune,
        lambda: worker.acknowledge((keys[1], 2, 2)),
        take,
        lambda: worker.end(commit=False),
    ]


def write_whole_and_prune(world: SimulatedBroker, keys: list[SharePartitionKey]) -> None:
    state_log = world.broker.share_partitions.state_log
    state_log.write_snapshots(keys)
    world.wait(0.05)
    for home in range(2):
        state_log.prune(home, [key for key in keys if state_log.home(key) == home])
    world.wait(0.05)


def snapshots_meanwhile(world: SimulatedBroker, keys: list[SharePartitionKey]) -> Steps:
    """Take a snapshot of the coordinators while a transaction acknowledges and is committed."""
    worker, shares = ShareWorker(world), world.broker.share_partitions
    taking: list[asyncio.Task[None]] = []
    for number in range(20):  # whose rows come first
        commit(world, f"g{number}", "in", {0: 1})

    def begin_to_take() -> None:
        taking.append(world.loop.create_task(world.broker.coordinator_snapshots.take()))
        world.loop.run_until_complete(asyncio.sleep(0))

    def end_of_transaction() -> None:
        worker.end(commit=True)
        assert not taking[-1].done(), "the rows of share partitions are taken after the marker"

    return [
        lambda: [acquire(world, key, 0, 9) for key in keys],
        begin_to_take,
        lambda: worker.write("out"),
        lambda: worker.acknowledge((keys[0], 0, 3), (keys[1], 1, 1)),
        lambda: shares.state_log.write_snapshots(keys),
        end_of_transaction,
        lambda: world.loop.run_until_complete(taking[-1]),
        lambda: worker.acknowledge((keys[1], 0, 0)),
    ]


def resets(world: SimulatedBroker, keys: list[SharePartitionKey]) -> Steps:
    """Set a group's offsets lower than what a snapshot of the coordinators knows, and then prune its log."""
    worker, shares = ShareWorker(world), world.broker.share_partitions

    def reset() -> None:
        unit = shares.alter("g", {key[1:]: 0 for key in keys})
        shares.state_log.topic.commit(unit.parts)
        unit.apply()
        world.wait(0.05)

    return [
        lambda: [acquire(world, key, 0, 9) for key in keys],
        lambda: (acknowledge_now(shares, "g", "m", {key[1:]: [AckRange(0, 9, [1])] for key in keys}), world.wait(0.05)),
        lambda: world.loop.run_until_complete(world.broker.coordinator_snapshots.take()),
        reset,
        lambda: [acquire(world, key, 0, 9) for key in keys],
        lambda: worker.acknowledge((keys[0], 2, 4), (keys[1], 5, 5)),
        lambda: write_whole_and_prune(world, keys),
        lambda: worker.write("out"),
        lambda: worker.end(commit=True),
    ]


SCRIPTS = [plain_acknowledgements, transactions, two_at_once, snapshots, snapshots_meanwhile, resets]


def played(script: Callable[[SimulatedBroker, list[SharePartitionKey]], Steps]) -> tuple[SimulatedDisk, int, list[Any]]:
    """Run a script on a simulated disk.

    Return the disk, its first operation that belongs to the script, and known() after 0, 1, 2, … answered steps.
    """
    disk = SimulatedDisk()
    world = SimulatedBroker(SETTINGS, disk=disk)
    world.broker.topics.create("in", 2)
    world.broker.topics.create("out", 1)
    keys = begin(world, "in", partitions=2)
    steps = script(world, keys)
    world.wait(3)
    begins_at = len(disk.operations)
    states = run_steps(disk, steps, lambda: known(world))
    world.wait(1)
    world.abandon()
    return disk, begins_at, states


def check(image: SimulatedDisk, states: list[Any]) -> None:
    answered = image.notes[-1]
    world = SimulatedBroker(SETTINGS, disk=image, seed=5)
    try:
        assert known(world) in states[answered : answered + 2]
    finally:
        world.abandon()


@pytest.mark.slow
@pytest.mark.requirement("S-121", "S-128", "S-129", "S-131")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_after_a_power_cut_a_share_acknowledgement_exists_exactly_if_its_output_does(
    script: Callable[[SimulatedBroker, list[SharePartitionKey]], Steps], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_snapshots, "SLICE_ROWS", 1)
    disk, begins_at, states = played(script)
    check_cuts(disk, lambda image: check(image, states), LIMIT, begins_at)

"""A power cut after every operation of a group's life: what was committed is there, whole, and what was not is not.

Each script is a client that asks one thing after another. What a recovered broker knows is what was known after the
last answer, or with the one request under way as well; and that over two cuts. The suite samples the cuts.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
from cut_lives import check_cuts, run_steps
from fencepost.broker.broker import Broker
from fencepost.broker.config.settings import BrokerSettings
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from offset_requests import Producer, commit, delete
from simulated_broker import SimulatedBroker

LIMIT = int(os.environ.get("CRASH_LIMIT", "16")) or None
SETTINGS = BrokerSettings(
    log_dir="/d", offsets_topic_num_partitions=2, transaction_state_log_num_partitions=1, journal_max_bytes=4 << 20
)

Steps = list[Callable[[], Any]]


def known(broker: Broker) -> Any:
    """Return the committed offsets of both groups, and the partitions with an offset that a transaction has not
    decided.
    """
    offsets = broker.group_offsets
    committed = {group: {key: found.offset for key, found in offsets.all_of(group).items()} for group in "gh"}
    live = {topic.name for topic in broker.topics.by_name.values()}
    pending = {group: sorted(key for key in offsets.state.pending_places(group) if key[0] in live) for group in "gh"}
    return committed, pending


def plain_commits(world: SimulatedBroker) -> Steps:
    return [
        lambda: commit(world, "g", "t", {0: 1}),
        lambda: commit(world, "g", "t", {0: 2, 1: 3, 2: 4}),
        lambda: commit(world, "h", "t", {0: 9}),
        lambda: commit(world, "g", "t", {0: 1, 2: 1}),
    ]


def deletions(world: SimulatedBroker) -> Steps:
    return [
        lambda: commit(world, "g", "t", {0: 1, 1: 2}),
        lambda: delete(world, "g", "t", 0, 1, 2),
        lambda: commit(world, "g", "t", {1: 7}),
        lambda: delete(world, "g", "t", 1),
    ]


def transactions(world: SimulatedBroker, tv: int) -> Steps:
    producer = Producer(world, "x", tv=tv)
    return [
        lambda: commit(world, "g", "t", {0: 1}),
        lambda: producer.send_offsets("g", "t", {0: 5, 1: 5}),
        lambda: producer.send_offsets("h", "u", {0: 6}),
        lambda: producer.end(commit=True),
        lambda: producer.send_offsets("g", "t", {0: 7}),
        lambda: producer.end(commit=False),
    ]


def old_transactions(world: SimulatedBroker) -> Steps:
    return transactions(world, 1)


def new_transactions(world: SimulatedBroker) -> Steps:
    return transactions(world, 2)


def commits_beside_transactions(world: SimulatedBroker) -> Steps:
    one, other = Producer(world, "x"), Producer(world, "y", tv=2)
    return [
        lambda: one.send_offsets("g", "t", {0: 5}),
        lambda: commit(world, "g", "t", {0: 6}),
        lambda: other.send_offsets("g", "t", {0: 7}),
        lambda: one.end(commit=True),
        lambda: delete(world, "g", "t", 0),
        lambda: other.end(commit=True),
    ]


def a_topic_deleted_and_made_again(world: SimulatedBroker) -> Steps:
    producer = Producer(world, "x")
    return [
        lambda: commit(world, "g", "t", {0: 1}),
        lambda: producer.send_offsets("g", "t", {1: 5}),
        lambda: world.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=0)),
        lambda: world.broker.topics.create("t", 3) and world.wait(0.1),
        lambda: producer.end(commit=True),
        lambda: commit(world, "g", "t", {2: 2}),
    ]


def snapshots(world: SimulatedBroker) -> Steps:
    producer = Producer(world, "x")

    def take() -> None:
        world.loop.run_until_complete(world.broker.coordinator_snapshots.take())

    return [
        lambda: commit(world, "g", "t", {0: 1}),
        lambda: producer.send_offsets("g", "t", {1: 5}),
        take,
        lambda: producer.end(commit=True),
        take,
        lambda: commit(world, "h", "t", {0: 1}),
        take,
    ]


SCRIPTS = [
    plain_commits,
    deletions,
    old_transactions,
    new_transactions,
    commits_beside_transactions,
    a_topic_deleted_and_made_again,
    snapshots,
]


def played(script: Callable[[SimulatedBroker], Steps]) -> tuple[SimulatedDisk, list[Any]]:
    """Run a script on a simulated disk. Return the disk, and known() after 0, 1, 2, … answered steps."""
    disk = SimulatedDisk()
    world = SimulatedBroker(SETTINGS, disk=disk)
    for name in ("t", "u"):
        world.broker.topics.create(name, 3)
    world.broker.group_offsets.topic.ensure()
    steps = script(world)
    world.wait(3)
    states = run_steps(disk, steps, lambda: known(world.broker))
    world.wait(30)  # flushes, and a checkpoint
    world.abandon()
    return disk, states


def check(image: SimulatedDisk, states: list[Any]) -> None:
    answered = image.notes[-1] if image.notes else None
    world = SimulatedBroker(SETTINGS, disk=image, seed=5)
    try:
        if answered is not None:
            assert known(world.broker) in states[answered : answered + 2]
        else:
            assert known(world.broker) in states[:1]
    finally:
        world.abandon()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
@pytest.mark.requirement("S-89")
def test_after_a_power_cut_no_offset_commit_is_partial_and_no_answered_one_is_lost(
    script: Callable[[SimulatedBroker], Steps],
) -> None:
    disk, states = played(script)
    check_cuts(disk, lambda image: check(image, states), LIMIT)

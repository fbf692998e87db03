"""Snapshots of what coordinators know: the same state as a replay of everything, whatever happens to them (law 4)."""

import errno
import logging
import random
from typing import Any

import msgpack
import pytest
from fencepost.broker.broker import Broker
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.topics.names import OFFSETS_TOPIC
from fencepost.broker.upkeep import coordinator_snapshots
from fencepost.effects.disk import DiskFull
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from fencepost.storage.checkpoints import NewerFormat, write_file
from offset_requests import Producer, commit, delete
from simulated_broker import SimulatedBroker

NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
SETTINGS = BrokerSettings(log_dir="/d", offsets_topic_num_partitions=3, transaction_state_log_num_partitions=3)


def pictured(broker: Broker) -> Any:
    """Return all that the coordinators know."""
    state = broker.group_offsets.state
    return (
        {group: dict(found) for group, found in state.committed.items()},
        {owner: dict(found) for owner, found in state.pending.items()},
        {group: sorted(state.pending_places(group)) for group in state.pending_groups},
        broker.transactions.transactions,
        broker.transactions.by_producer_id,
        set(broker.transactions.open),
        dict(broker.groups.records()),
        broker.ledger.entries,
    )


def busy(world: SimulatedBroker, seed: int, steps: int = 60) -> None:
    """Commit and delete offsets and run transactions, at random, with several groups and producers."""
    chance = random.Random(seed)
    for name in ("t", "u"):
        if name not in world.broker.topics.by_name:
            world.broker.topics.create(name, 3)
    producers = [Producer(world, f"x{number}", tv=1 + number % 2) for number in range(4)]
    for step in range(steps):
        group, topic, partition = f"g{chance.randrange(4)}", chance.choice("tu"), chance.randrange(3)
        action = chance.randrange(10)
        if action < 4:
            commit(world, group, topic, {partition: step})
        elif action < 7:
            chance.choice(producers).send_offsets(group, topic, {partition: step, 0: step})
        elif action == 7:
            delete(world, group, topic, partition)
        else:
            producer = chance.choice(producers)
            producer.send_offsets(group, topic, {partition: step})
            producer.end(commit=chance.random() < 0.5)


def snapshots_of(world: SimulatedBroker) -> list[str]:
    return sorted(name for name in world.disk.list("/d") if name.startswith("coordinators"))


def without_snapshots(world: SimulatedBroker) -> Any:
    """Return pictured() of a broker that recovers the same directory without any snapshot."""
    left = world.disk.after_power_cut()
    for name in left.list("/d"):
        if name.startswith("coordinators"):
            left.unlink(f"/d/{name}")
    left.sync_directory("/d")
    replaying = SimulatedBroker(SETTINGS, disk=left, seed=99)
    found = pictured(replaying.broker)
    replaying.abandon()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_coordinator_snapshot_gives_the_same_state_as_a_full_replay(seed: int) -> None:
    world = SimulatedBroker(SETTINGS, seed=seed)
    busy(world, seed)
    world.loop.run_until_complete(world.broker.coordinator_snapshots.take())
    busy(world, seed + 100)
    before = pictured(world.broker)
    assert without_snapshots(world) == before
    with world.after_power_cut() as later:
        assert later.broker.group_offsets.topic.replay_from
        assert pictured(later.broker) == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_coordinator_snapshot_taken_during_changes_gives_the_state_of_a_replay(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_snapshots, "SLICE_ROWS", 1)
    world = SimulatedBroker(SETTINGS, seed=seed)
    busy(world, seed)
    taking = world.loop.create_task(world.broker.coordinator_snapshots.take())
    busy(world, seed + 100, steps=100)
    world.loop.run_until_complete(taking)
    busy(world, seed + 200, steps=5)
    before = pictured(world.broker)
    assert without_snapshots(world) == before
    with world.after_power_cut() as later:
        assert later.broker.group_offsets.topic.replay_from
        assert pictured(later.broker) == before


def test_after_an_orderly_stop_the_next_start_replays_no_coordinator_log() -> None:
    world = SimulatedBroker(SETTINGS)
    busy(world, 1)
    before = pictured(world.broker)
    with world.again() as later:
        topic = later.broker.group_offsets.topic
        assert topic.replay_from == {index: topic.log(index).end_offset for index in range(3)}
        assert pictured(later.broker) == before


@pytest.mark.slow
def test_coordinator_snapshots_are_taken_as_logs_grow_and_the_last_two_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_snapshots, "AFTER_BYTES", 2_000)
    with SimulatedBroker(SETTINGS) as world:
        for seed in range(4):
            busy(world, seed, steps=100)
            world.wait(15)
        assert world.broker.coordinator_snapshots.taken == 4
        assert snapshots_of(world) == ["coordinators-3", "coordinators-4"]
        before = pictured(world.broker)
        with world.after_power_cut() as later:
            assert pictured(later.broker) == before


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [1, 2])
def test_damaged_coordinator_snapshots_are_logged_and_the_state_is_replayed(
    damaged: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = SimulatedBroker(SETTINGS)
    for seed in (1, 2):
        busy(world, seed)
        world.loop.run_until_complete(world.broker.coordinator_snapshots.take())
    busy(world, 3)
    before = pictured(world.broker)
    disk = world.disk.after_power_cut()
    world.abandon()
    for name in ("coordinators-2", "coordinators-1")[:damaged]:
        file = disk.open(f"/d/{name}")
        file.write([b"damage"], file.size() // 2)
        file.close()
    with caplog.at_level(logging.WARNING), SimulatedBroker(SETTINGS, disk=disk, seed=7) as later:
        assert pictured(later.broker) == before
        assert bool(later.broker.group_offsets.topic.replay_from) == (damaged == 1)
    assert "/d/coordinators-2 is not used" in caplog.text
    assert ("no snapshot of the coordinators" in caplog.text) == (damaged == 2)


@pytest.mark.slow
def test_files_with_names_similar_to_snapshots_are_ignored_and_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = SimulatedBroker(SETTINGS)
    busy(world, 1)
    world.loop.run_until_complete(world.broker.coordinator_snapshots.take())
    before = pictured(world.broker)
    disk = world.disk.after_process_crash()
    world.abandon()
    foreign = ["coordinators-07", "coordinators-²", "coordinators-x"]
    for name in foreign:
        disk.open(f"/d/{name}", create=True).close()
    disk.make_directory("/d/coordinators-9")
    with caplog.at_level(logging.WARNING), SimulatedBroker(SETTINGS, disk=disk, seed=7) as later:
        assert "not made by fencepost, left alone: coordinators-07, coordinators-x, coordinators-²" in caplog.text
        assert later.broker.group_offsets.topic.replay_from
        assert pictured(later.broker) == before
        for _ in range(3):
            busy(later, 2)
            later.loop.run_until_complete(later.broker.coordinator_snapshots.take())
    assert {*foreign, "coordinators-9"} <= set(disk.list("/d"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        7,
        [[], {}, {}],
        [{}, 5, {}],
        [{}, {}, [1]],
        [{OFFSETS_TOPIC: 5}, {}, {}],
        [{OFFSETS_TOPIC: [[0, "1", 2]]}, {}, {}],
        [{}, {}, {OFFSETS_TOPIC: [5]}],
        [{}, {}, {OFFSETS_TOPIC: [msgpack.packb([5])]}],
    ],
)
def test_a_coordinator_snapshot_with_unexpected_content_is_ignored(
    content: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world = SimulatedBroker(SETTINGS)
    busy(world, 1)
    before = pictured(world.broker)
    disk = world.disk.after_power_cut()
    world.abandon()
    write_file(disk, "/d/coordinators-1", coordinator_snapshots.KIND, 1, msgpack.packb(content))
    with caplog.at_level(logging.WARNING), SimulatedBroker(SETTINGS, disk=disk, seed=7) as later:
        assert pictured(later.broker) == before
    assert "/d/coordinators-1 is not used" in caplog.text


@pytest.mark.slow
def test_a_coordinator_snapshot_newer_than_its_directorys_logs_is_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = SimulatedBroker(SETTINGS)
    busy(world, 1)
    early = world.disk.after_power_cut()
    busy(world, 2)
    world.loop.run_until_complete(world.broker.coordinator_snapshots.take())
    content = world.disk.open("/d/coordinators-1", read_only=True)
    whole = content.read(content.size(), 0)
    content.close()
    world.abandon()
    file = early.open("/d/coordinators-1", create=True)
    file.write([whole], 0)
    file.sync()
    file.close()
    early.sync_directory("/d")
    with SimulatedBroker(SETTINGS, disk=early, seed=7) as later:
        assert not later.broker.group_offsets.topic.replay_from
    assert "not the log that it was taken of" in caplog.text


def test_a_coordinator_snapshot_of_a_later_version_fails_the_start_with_newer_format() -> None:
    world = SimulatedBroker(SETTINGS)
    world.stop()
    write_file(world.disk, "/d/coordinators-1", "coordinators", 2, b"")
    with pytest.raises(NewerFormat):
        SimulatedBroker(SETTINGS, disk=world.disk)


@pytest.mark.slow
def test_a_coordinator_snapshot_contains_only_durable_state() -> None:
    """A snapshot is written only after all units that it knows are synced."""
    settings = BrokerSettings(log_dir="/d", durability_mode="os", offsets_topic_num_partitions=3)
    for seed in range(5):
        world = SimulatedBroker(settings, seed=seed)
        busy(world, seed, steps=20)
        taking = world.loop.create_task(world.broker.coordinator_snapshots.take())
        busy(world, seed + 1, steps=20)
        world.loop.run_until_complete(taking)
        expected = without_snapshots(world)
        with world.after_power_cut() as later:
            assert later.broker.group_offsets.topic.replay_from
            assert pictured(later.broker) == expected


def test_the_offsets_of_a_deleted_topic_do_not_come_back_from_a_snapshot() -> None:
    world = SimulatedBroker(SETTINGS)
    busy(world, 1)
    world.loop.run_until_complete(world.broker.coordinator_snapshots.take())
    world.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=0))
    world.broker.topics.create("t", 3)
    with world.after_power_cut() as later:
        assert {key[0] for group in ("g0", "g1", "g2", "g3") for key in later.broker.group_offsets.all_of(group)} == {
            "u"
        }


OFTEN_CLEANED = BrokerSettings(
    log_dir="/d",
    offsets_topic_num_partitions=1,
    log_roll_ms=1000,
    log_checkpoint_interval_ms=300,
    log_cleaner_backoff_ms=300,
    log_cleaner_delete_retention_ms=500,
    log_cleaner_min_cleanable_ratio=0,
)


@pytest.mark.parametrize("with_newer_snapshot", [False, True])
def test_offsets_deleted_long_ago_do_not_come_back_from_an_older_snapshot(
    with_newer_snapshot: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot is older than the deletion, and compaction has removed the tombstone: a replay from the snapshot on
    would not find it.
    """
    if not with_newer_snapshot:
        monkeypatch.setattr(coordinator_snapshots.CoordinatorSnapshots, "take_if_due", _never_due)
    world = SimulatedBroker(OFTEN_CLEANED)
    world.broker.topics.create("t", 1)
    commit(world, "g", "t", {0: 5})
    world.loop.run_until_complete(world.broker.coordinator_snapshots.take())
    delete(world, "g", "t", 0)
    for step in range(12):
        commit(world, "h", "t", {0: step})
        world.wait(1)
    tombstone = 1
    assert world.broker.group_offsets.topic.log(0).cleaned_offset > tombstone
    before = pictured(world.broker)
    with world.after_power_cut() as later:
        # Without a newer snapshot, the older one is not used either.
        assert bool(later.broker.group_offsets.topic.replay_from) is with_newer_snapshot
        assert pictured(later.broker) == before


async def _never_due(_: object) -> None:
    pass


def flip(disk: SimulatedDisk, directory: str) -> None:
    """Flip a bit of the newest record in a log. A second call flips it back."""
    path = next(f"{directory}/{name}" for name in disk.list(directory) if name.endswith(".log"))
    file = disk.open(path)
    at = file.size() - 20
    (found,) = file.read(1, at)
    file.write([bytes([found ^ 1])], at)
    file.sync()
    file.close()


def content(disk: SimulatedDisk, directory: str) -> dict[str, bytes]:
    found = {}
    for name in disk.list(directory):
        file = disk.open(f"{directory}/{name}", read_only=True)
        found[name] = bytes(file.read(file.size(), 0))
        file.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_damaged_coordinator_partition_is_offline_and_left_out_of_new_snapshots(with_snapshot: bool) -> None:
    """Neither the snapshot nor the readable part of the log is used for it, because each alone is incomplete."""
    world = SimulatedBroker(SETTINGS)
    busy(world, 1)
    world.loop.run_until_complete(world.broker.coordinator_snapshots.take())
    busy(world, 2)
    world.wait(60)
    before = pictured(world.broker)
    topic = world.broker.group_offsets.topic
    damaged = topic.partition_for("g0")
    lost = {group for group in before[0] if topic.partition_for(group) == damaged}
    directory = topic.log(damaged).directory
    disk = world.disk.after_power_cut()
    world.abandon()
    if not with_snapshot:
        for name in snapshots_of(world):
            disk.unlink(f"/d/{name}")
    kept = {name for name in disk.list("/d") if name.startswith("coordinators")}
    flip(disk, directory)
    evidence = content(disk, directory)
    assert lost < set(before[0])
    with SimulatedBroker(SETTINGS, disk=disk, seed=3) as crippled:
        assert pictured(crippled.broker)[0] == {group: of for group, of in before[0].items() if group not in lost}
        assert list(crippled.broker.recovery.offline) == [directory]
        for group in before[0]:
            assert commit(crippled, group, "u", {0: 1}) == [NOT_AVAILABLE if group in lost else 0]
        crippled.loop.run_until_complete(crippled.broker.coordinator_snapshots.take())
        crippled.wait(120)
    assert {name for name in disk.list("/d") if name.startswith("coordinators")} == kept
    assert content(disk, directory) == evidence
    flip(disk, directory)
    with SimulatedBroker(SETTINGS, disk=disk, seed=4) as mended:
        found = pictured(mended.broker)
        assert not mended.broker.recovery.offline
        assert {group: found[0][group] for group in lost} == {group: before[0][group] for group in lost}
        assert set(found[0]) == set(before[0])


@pytest.mark.slow
@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_damaged_coordinator_partition_is_restored_from_a_copy_and_the_journal(with_snapshot: bool) -> None:
    world = SimulatedBroker(SETTINGS)
    busy(world, 1)
    world.wait(60)
    if with_snapshot:
        world.loop.run_until_complete(world.broker.coordinator_snapshots.take())
    busy(world, 2)
    world.wait(60)
    assert commit(world, "g0", "t", {0: 1_000}) == [0]
    before = pictured(world.broker)
    topic = world.broker.group_offsets.topic
    directory = topic.log(topic.partition_for("g0")).directory
    disk = world.disk.after_process_crash()
    world.abandon()
    copy = content(disk, directory)
    flip(disk, directory)
    with SimulatedBroker(SETTINGS, disk=disk, seed=3) as crippled:
        assert "; stop the broker, restore this folder from a copy" in crippled.broker.recovery.offline[directory]
    for name, whole in copy.items():
        file = disk.open(f"{directory}/{name}", create=True)
        file.truncate(0)
        file.write([whole], 0)
        file.close()
    with SimulatedBroker(SETTINGS, disk=disk, seed=4) as mended:
        assert not mended.broker.recovery.offline
        assert pictured(mended.broker)[0] == before[0]  # the committed offsets, which the damaged partition has


def test_an_offline_coordinator_partition_is_replayed_once_its_file_is_back() -> None:
    """No snapshot written while it was offline may count as having its state."""
    world = SimulatedBroker(SETTINGS)
    busy(world, 1)
    world.wait(60)
    before = pictured(world.broker)
    directory = next(
        each.log.directory
        for each in world.broker.topics.by_name["__consumer_offsets"].partitions
        if each.log.segments and each.log.producers
    )
    world.stop()
    path = next(f"{directory}/{name}" for name in world.disk.list(directory) if name.endswith(".log"))
    world.disk.rename(path, f"{path}.away")
    with SimulatedBroker(SETTINGS, disk=world.disk, seed=3) as crippled:
        assert pictured(crippled.broker) != before
        crippled.broker.topics.create("v", 1)
        commit(crippled, "g-elsewhere", "v", {0: 1})
        crippled.loop.run_until_complete(crippled.broker.coordinator_snapshots.take())
    world.disk.rename(f"{path}.away", path)
    with SimulatedBroker(SETTINGS, disk=world.disk, seed=4) as mended:
        found = pictured(mended.broker)
        found[0].pop("g-elsewhere", None)
        assert found == before


@pytest.mark.slow
@pytest.mark.parametrize("error", [DiskFull(errno.ENOSPC, "full"), OSError(errno.EIO, "broken")])
def test_the_broker_stops_although_its_last_snapshot_cannot_be_written(
    error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = SimulatedBroker(SETTINGS)
    busy(world, 1)
    before = pictured(world.broker)

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(world.broker.coordinator_snapshots, "_write", fails)
    world.stop()
    assert world.broker.halted is (None if isinstance(error, DiskFull) else error)
    assert not snapshots_of(world)
    with SimulatedBroker(SETTINGS, disk=world.disk, seed=4) as later:
        assert pictured(later.broker) == before

"""Starts from the rows of a coordinator snapshot and the rest of the log, wherever that begins by then."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.share import state_log
from fencepost.broker.share.records import Kind, record_key
from fencepost.broker.share.values import AckRange, AckType, SharePartitionKey, State, StateBatch
from fencepost.broker.topics.internal_topic import InternalTopicDamaged
from fencepost.broker.topics.names import SHARE_STATE_TOPIC
from fencepost.broker.upkeep import coordinator_snapshots
from fencepost.storage.checkpoints import read_file, write_file
from offset_requests import commit
from produce_requests import create
from share_acknowledging import acknowledge_now
from share_lives import positions, replayed, view
from share_transactions import ShareWorker, acquire, begin, states
from simulated_broker import SimulatedBroker

SETTINGS = BrokerSettings(log_dir="/d", share_coordinator_state_topic_num_partitions=1)


@pytest.fixture
def world() -> Iterator[SimulatedBroker]:
    made = SimulatedBroker(SETTINGS)
    made.ask(create("t", 1))
    yield made
    if not made.loop.is_closed():
        made.abandon()


def reset(world: SimulatedBroker, key: SharePartitionKey, offset: int) -> None:
    shares = world.broker.share_partitions
    unit = shares.alter(key.group, {key[1:]: offset})
    shares.state_log.topic.commit(unit.parts)
    unit.apply()


def accept(world: SimulatedBroker, key: SharePartitionKey, first: int, last: int, member: str = "m") -> None:
    acks = {key[1:]: [AckRange(first, last, [AckType.ACCEPT])]}
    assert acknowledge_now(world.broker.share_partitions, key.group, member, acks) == {key[1:]: None}


def prune(world: SimulatedBroker) -> None:
    log = world.broker.share_partitions.state_log
    world.wait(0.1)
    log.prune(0, [key for key in log.known if log.home(key) == 0])
    world.wait(0.1)


def take(world: SimulatedBroker) -> None:
    world.loop.run_until_complete(world.broker.coordinator_snapshots.take())


@pytest.mark.slow
def test_a_record_pending_after_an_offset_reset_is_not_delivered_after_a_restart(world: SimulatedBroker) -> None:
    """After the reset one record (P) is acknowledged in a transaction that stays open. The snapshot of the coordinators
    was taken before the reset, so it has a higher start offset, and the record of the reset was pruned from the state
    log.
    """
    (key,) = begin(world, "t")
    acquire(world, key, 0, 9)
    accept(world, key, 0, 9)
    take(world)
    reset(world, key, 0)
    acquire(world, key, 0, 9)
    assert ShareWorker(world).acknowledge((key, 5, 5)) == [0]
    log = world.broker.share_partitions.state_log
    log.write_snapshots([key])
    prune(world)
    assert log.topic.log(0).start_offset == log.known[key].needs_from > 2
    with world.after_power_cut() as later:
        acquire(later, key, 0, 9, "n")
        assert states(later, key) == "0 LLLLLPLLLL", "L: delivered to n. P: still pending"


@pytest.mark.slow
def test_share_acknowledgements_during_a_coordinator_snapshot_survive_a_restart(
    world: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator snapshot has the acknowledgement; the replay begins at a state snapshot that has the records as
    available.
    """
    monkeypatch.setattr(coordinator_snapshots, "SLICE_ROWS", 1)
    (key,) = begin(world, "t")
    for number in range(9):
        commit(world, f"g{number}", "t", {0: 5})
    worker = ShareWorker(world)
    acquire(world, key, 0, 9)
    world.wait(0.1)
    taking = world.loop.create_task(world.broker.coordinator_snapshots.take())
    world.loop.run_until_complete(asyncio.sleep(0))
    assert worker.acknowledge((key, 0, 3)) == [0]
    world.broker.share_partitions.state_log.write_snapshots([key])
    worker.end(commit=True)
    assert not taking.done()
    assert states(world, key) == "4 LLLLLL"
    world.loop.run_until_complete(taking)
    with world.after_power_cut() as later:
        assert later.broker.share_partitions.state_log.topic.replay_from
        assert states(later, key) == "4"


def test_a_coordinator_snapshot_has_all_rows_although_a_state_log_goes_offline(world: SimulatedBroker) -> None:
    keys = [*begin(world, "t"), *begin(world, "t", "h")]
    log = world.broker.share_partitions.state_log
    rows = log.rows()
    first = next(rows)
    world.broker.topics.by_name[SHARE_STATE_TOPIC].partitions[0].log.offline = "its disk says nothing"
    assert [log.read_row(row)[0] for row in (first, *rows)] == keys


def rewrite_snapshot(world: SimulatedBroker, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Rewrite the newest snapshot of the coordinators. change: changes its fields and entries in place."""
    disk = world.disk
    path = max(f"/d/{name}" for name in disk.list("/d") if name.startswith("coordinators-"))
    where, fields, slices = coordinator_snapshots._unpack(read_file(disk, path, "coordinators", 1))
    entries = {name: [row for rows in of for row in coordinator_snapshots._unpack(rows)] for name, of in slices.items()}
    change(fields, entries)
    packed = {name: [coordinator_snapshots._pack(rows)] for name, rows in entries.items()}
    payload = coordinator_snapshots._pack([where, fields, packed])
    write_file(disk, path, "coordinators", 1, payload)


def as_of_an_earlier_version(fields: dict[str, Any], entries: dict[str, Any]) -> None:
    fields[SHARE_STATE_TOPIC] = tuple(
        name for name in fields[SHARE_STATE_TOPIC] if name not in ("log end", "bytes since")
    )
    entries[SHARE_STATE_TOPIC] = [(*row[:4], *row[5:8], *row[9:]) for row in entries[SHARE_STATE_TOPIC]]


def of_a_longer_log(fields: dict[str, Any], entries: dict[str, Any]) -> None:
    entries[SHARE_STATE_TOPIC] = [(*row[:4], 1_000, *row[5:]) for row in entries[SHARE_STATE_TOPIC]]


@pytest.mark.slow
@pytest.mark.parametrize("change", [as_of_an_earlier_version, of_a_longer_log])
def test_a_start_ignores_an_unusable_coordinator_snapshot_and_replays_the_log(
    change: Callable[[dict[str, Any], dict[str, Any]], None], world: SimulatedBroker
) -> None:
    (key,) = begin(world, "t")
    acquire(world, key, 0, 9)
    accept(world, key, 0, 3)
    take(world)
    accept(world, key, 6, 7)
    world.wait(0.1)
    rewrite_snapshot(world, change)
    with world.after_power_cut() as later:
        found = later.broker.share_partitions.state_log
        assert not found.topic.replay_from
        assert states(later, key) == "4 AAKK"


@pytest.mark.slow
def test_the_state_log_is_pruned_past_an_idle_partition_if_restarts_are_frequent(
    world: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two restarts too little is logged to make the idle share partition due for a full snapshot. What was
    logged before a restart counts, too.
    """
    monkeypatch.setattr(state_log, "COLD_BYTES", 5_000)
    (cold,), (busy,) = begin(world, "t"), begin(world, "t", "busy")
    at = 0
    for _ in range(6):
        acquire(world, busy, at, at + 9)
        for offset in range(at, at := at + 10):
            accept(world, busy, offset, offset)
        world = world.again()
        world.broker.share_partitions.state_log.write_snapshots([busy])
        prune(world)
    log = world.broker.share_partitions.state_log
    assert log.topic.log(0).start_offset > 20  # so it was pruned
    assert log.known[cold].epoch > 0
    assert replayed(world, list(log.rows()), positions(world)) == view(log)
    world.stop()


def test_a_start_does_not_decode_share_records_that_a_snapshot_replaces(world: SimulatedBroker) -> None:
    (key,) = begin(world, "t")
    write_undecodable(world, key, Kind.SNAPSHOT)
    write_undecodable(world, key, Kind.UPDATE)
    acquire(world, key, 0, 9)
    accept(world, key, 3, 3)
    world.broker.share_partitions.state_log.write_snapshots([key])
    accept(world, key, 5, 5)
    world.wait(0.1)
    assert replayed(world) == view(world.broker.share_partitions.state_log)


@pytest.mark.parametrize("kind", Kind)
def test_a_start_names_the_offset_of_an_undecodable_share_record(world: SimulatedBroker, kind: Kind) -> None:
    (key,) = begin(world, "t")
    acquire(world, key, 0, 9)
    accept(world, key, 3, 3)
    write_undecodable(world, key, kind)
    accept(world, key, 5, 5)
    with pytest.raises(InternalTopicDamaged, match=rf"{SHARE_STATE_TOPIC}-0.*: at offset 2: .* cannot be decoded"):
        replayed(world)


def write_undecodable(world: SimulatedBroker, key: SharePartitionKey, kind: Kind) -> None:
    """Write a record of this share partition whose value cannot be decoded."""
    topic = world.broker.share_partitions.state_log.topic
    topic.commit([topic.part(0, [(record_key(kind, key), b"no")], now_ms=1)])
    world.wait(0.1)


def test_a_replayed_transaction_marker_leaves_later_acknowledgements_pending(world: SimulatedBroker) -> None:
    """Such an acknowledgement is known from a snapshot taken after the marker; the next marker of the producer has to
    find it.
    """
    (key,) = begin(world, "t")
    acquire(world, key, 0, 0)
    log = world.broker.share_partitions.state_log
    log._make_pending(0, key, 7, 200, [StateBatch(0, 0, State.ACKNOWLEDGED, 1, "m")])
    log.end_transaction(0, 7, True, 100)
    assert states(world, key) == "0 P"
    log.end_transaction(0, 7, True, 201)
    assert states(world, key) == "1"


def test_share_records_below_the_start_offset_are_not_pending_after_a_restart(world: SimulatedBroker) -> None:
    """In the state log, the acknowledgement comes first, then the update that moved the start offset, then the
    snapshot.
    """
    (key,) = begin(world, "t")
    acquire(world, key, 0, 9)
    assert ShareWorker(world).acknowledge((key, 0, 3)) == [0]
    log = world.broker.share_partitions.state_log
    log.commit([(key, log.known[key].machine.decide_start(5))])
    log.write_snapshots([key])
    world.broker.share_partitions.check_nothing_pending(key.group)
    world.wait(0.1)
    with world.after_power_cut() as later:
        assert states(later, key) == "5"
        later.broker.share_partitions.check_nothing_pending(key.group)
        assert view(later.broker.share_partitions.state_log) == view(log)

"""The states of share partitions through a broker's life: a replay restores what was in memory, whatever was pruned."""

from typing import Any

import pytest
from fencepost.broker.share.records import home_name
from fencepost.broker.share.values import AckRange, AckType, SharePartitionKey
from fencepost.broker.transactions.states.transaction import MarkerOrder
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.java_hash import partition_for
from long_runs import first_only
from share_acknowledging import acknowledge_now
from share_lives import (
    HOMES,
    Life,
    accept,
    acknowledge,
    acquire,
    begin,
    one_partition,
    positions,
    replayed,
    settings,
    state_partitions,
    view,
)
from simulated_broker import SimulatedBroker


def check_a_life(seed: int, steps: int) -> None:
    with SimulatedBroker(settings(share_coordinator_snapshot_update_records_per_snapshot=7)) as world:
        life, state_log = Life(world, seed), world.broker.share_partitions.state_log
        taken: list[tuple[list[Any], dict[int, int]]] = []
        for number in range(steps):
            unit = world.broker.store.last_unit
            life.step()
            if number % 20 == 10:
                rows: list[Any] = []
                taken = [*taken[-2:], (rows, positions(world))]
                for row in state_log.rows():  # taken in slices, while others go on
                    rows.append(row)
                    for _ in range(life.chance.choice([0, 0, 1, 8])):
                        life.step()
            if number % 30 == 25:
                life.prune()
            if world.broker.store.last_unit != unit:
                live = view(state_log)
                assert replayed(world) == live
                for rows, since in taken:
                    assert replayed(world, rows, since) == live
        assert any(part.log.start_offset for part in state_partitions(world)), "something was pruned"
        world.wait(1)
        live = view(state_log)
    with world.after_power_cut() as later:
        assert view(later.broker.share_partitions.state_log) == live


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_only(range(3)))
@pytest.mark.requirement("S-132")
def test_share_state_in_memory_equals_replayed_and_restored_state_after_each_unit(seed: int) -> None:
    check_a_life(seed, 120)


@pytest.mark.long
def test_share_state_in_memory_equals_replayed_and_restored_state_in_many_histories() -> None:
    for seed in range(100, 115):
        check_a_life(seed, 400)


def test_share_acknowledgements_of_one_request_are_one_unit_of_the_state_log() -> None:
    with SimulatedBroker(settings()) as world:
        topic = world.broker.topics.create("t", 5)
        begin(world, "g", {(topic.id, index): 0 for index in range(5)})
        keys = [SharePartitionKey("g", topic.id, index) for index in range(5)]
        for key in keys:
            acquire(world, key, 0, 9)
        unit = world.broker.store.last_unit
        acks = {(topic.id, index): [AckRange(0, 4, [AckType.ACCEPT])] for index in range(5)}
        assert not any(acknowledge_now(world.broker.share_partitions, "g", "me", acks).values())
        assert world.broker.store.last_unit == unit + 1
        assert [world.broker.share_partitions.describe(key).start_offset for key in keys] == [5] * 5


def test_share_states_are_stored_as_in_kafka_in_an_uncompacted_topic() -> None:
    with SimulatedBroker(settings()) as world:
        key = one_partition(world)
        topic = world.broker.topics.by_name["__share_group_state"]
        home = partition_for(home_name(key), HOMES)
        assert [part.log.end_offset for part in topic.partitions] == [int(index == home) for index in range(HOMES)]
        assert dict(topic.configs) == {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "segment.bytes": str(world.broker.settings.share_coordinator_state_topic_segment_bytes),
        }


@pytest.mark.parametrize("configs", [{"cleanup.policy": "compact"}, {"retention.ms": "1", "retention.bytes": "1"}])
def test_configs_of_the_share_state_topic_enable_neither_retention_nor_compaction(configs: dict[str, str]) -> None:
    with SimulatedBroker(settings()) as world:
        one_partition(world)
        topic = world.broker.topics.by_name["__share_group_state"]
        world.broker.topics.alter_configs(topic, configs)
        logs = [part.log.settings for part in topic.partitions]
        assert {(each.compacts, each.deletes, each.retention_ms, each.retention_bytes) for each in logs} == {
            (False, True, -1, -1)
        }


def test_a_snapshot_of_a_share_partition_is_logged_after_a_number_of_updates() -> None:
    with SimulatedBroker(settings(share_coordinator_snapshot_update_records_per_snapshot=3)) as world:
        key = one_partition(world)
        kept = world.broker.share_partitions.state_log.known[key]
        epochs = []
        for offset in range(7):
            accept(world, key, offset)
            world.wait(0)
            epochs.append(kept.epoch)
        assert epochs == [0, 0, 1, 1, 1, 2, 2]


@pytest.mark.slow
def test_a_snapshot_of_a_share_partition_is_logged_after_a_number_of_bytes() -> None:
    with SimulatedBroker(settings()) as world:
        key = one_partition(world)
        kept = world.broker.share_partitions.state_log.known[key]
        acquire(world, key, 0, 1999)
        for first in range(0, 1999, 200):
            acknowledge(world, key, AckRange(first, first + 199, [AckType.ACCEPT, AckType.RELEASE] * 100))
            world.wait(0)
        assert 1 <= kept.epoch <= 3  # the number of snapshots; when one is due depends on the size of the last one
        assert kept.update_bytes < max(16 << 10, 4 * kept.snapshot_bytes)


def test_kafka_19695_nothing_is_pruned_that_a_live_share_partition_needs() -> None:
    with SimulatedBroker(settings(share_coordinator_snapshot_update_records_per_snapshot=2)) as world:
        shares = world.broker.share_partitions
        busy = one_partition(world)
        home = shares.state_log.home(busy)
        topic = world.broker.topics.by_name["t"]
        names = (f"cold-{number}" for number in range(100))
        cold = next(key for name in names if shares.state_log.home(key := SharePartitionKey(name, topic.id, 0)) == home)
        begin(world, cold.group, {(topic.id, 0): 0})
        for offset in range(10):
            accept(world, busy, offset)
        world.wait(1)
        log = state_partitions(world)[home].log
        shares.state_log.prune(home, [busy, cold])
        assert log.start_offset == shares.state_log.known[cold].snapshot_offset == 1
        shares.state_log.write_snapshots([cold])
        world.wait(1)
        shares.state_log.prune(home, [busy, cold])
        assert log.start_offset == shares.state_log.known[busy].snapshot_offset > 1
        live = view(shares.state_log)
        assert replayed(world) == live


def test_an_idle_share_partition_gets_a_snapshot_so_that_the_state_log_can_be_pruned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencepost.broker.share.state_log.COLD_BYTES", 200)
    with SimulatedBroker(settings()) as world:
        shares = world.broker.share_partitions
        key = one_partition(world)
        for offset in range(10):
            accept(world, key, offset)
        world.wait(301)
        home = shares.state_log.home(key)
        assert shares.state_log.known[key].epoch == 1
        assert state_partitions(world)[home].log.start_offset == 11


def test_pruning_writes_snapshots_of_many_share_partitions_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.broker.share.state_log.COLD_BYTES", 200)
    monkeypatch.setattr("fencepost.broker.share.state_log.COLD_AT_ONCE", 2)
    with SimulatedBroker(settings()) as world:
        for number in range(12):
            one_partition(world, group=f"g{number}")
        state_log = world.broker.share_partitions.state_log
        for _ in range(6):
            for home, of_home in state_log._by_home().items():
                world.wait(1)
                unit = world.broker.store.last_unit
                state_log.prune(home, of_home)
                assert world.broker.store.last_unit <= unit + 2
        assert all(part.log.start_offset for part in state_partitions(world))
        assert replayed(world) == view(state_log)


@pytest.mark.slow
def test_a_fast_growing_state_log_is_pruned_before_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.broker.share.state_log.PRUNE_AFTER_BYTES", 1_000)
    with SimulatedBroker(settings(share_coordinator_snapshot_update_records_per_snapshot=5)) as world:
        key = one_partition(world)
        log = state_partitions(world)[world.broker.share_partitions.state_log.home(key)].log
        for offset in range(200):
            accept(world, key, offset)
            world.wait(0.01)
            assert log.end_offset - log.start_offset <= 40  # in the end more than 200 were written
        assert replayed(world) == view(world.broker.share_partitions.state_log)


def test_a_deleted_share_state_stays_deleted_after_its_tombstone_was_pruned() -> None:
    with SimulatedBroker(settings()) as world:
        shares = world.broker.share_partitions
        key = one_partition(world)
        rows, since = list(shares.state_log.rows()), positions(world)
        unit = shares.delete("g")
        shares.state_log.topic.commit(unit.parts)
        unit.apply()
        world.wait(1)
        for home in range(HOMES):
            shares.state_log.prune(home, [])
        assert state_partitions(world)[partition_for(home_name(key), HOMES)].log.start_offset == 2
        assert replayed(world, rows, since) == {} == replayed(world)


def test_pruning_keeps_acknowledgements_that_were_pending_at_the_newest_snapshot() -> None:
    """Without them a replay would find the marker of the transaction, but not the acknowledgement that it decides, and
    the record would be delivered again.
    """
    with SimulatedBroker(settings()) as world:
        shares, key = world.broker.share_partitions, one_partition(world)
        home = shares.state_log.home(key)
        acquire(world, key, 0, 0)
        acks = {(key.topic_id, key.partition): [AckRange(0, 0, [AckType.ACCEPT])]}
        changes, _ = shares.begin_acknowledging_in_transaction("g", "me", 7, acks).finish_in_transaction()
        unit = shares.state_log.pending_unit(changes, 7, 0)
        shares.state_log.topic.commit(unit.parts)
        unit.apply()
        shares.state_log.write_snapshots([key])
        ended = world.broker.transactions.new_unit()
        log = state_partitions(world)[home].log
        ended.mark(MarkerOrder(True, 7, 0, {("__share_group_state", home): log.log_id}), 1_000)
        ended.commit()
        world.wait(1)
        shares.state_log.prune(home, [key])
        assert log.start_offset == 1
        assert shares.describe(key).start_offset == 1
        assert replayed(world) == view(shares.state_log)
        shares.state_log.write_snapshots([key])
        world.wait(1)
        shares.state_log.prune(home, [key])
        assert log.start_offset == 4
        assert replayed(world) == view(shares.state_log)


def test_on_a_full_disk_acknowledging_gets_coordinator_not_available_and_locks_stay() -> None:
    with SimulatedBroker(settings()) as world:
        shares = world.broker.share_partitions
        key = one_partition(world)
        place = key.topic_id, key.partition
        acquire(world, key, 0, 9)
        world.broker.store.space_exhausted = True
        answer = acknowledge_now(shares, "g", "me", {place: [AckRange(0, 4, [AckType.ACCEPT])]})[place]
        assert answer is not None
        assert answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(KafkaError) as refused:
            begin(world, "h", {place: 0})
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        shares.begin_release("g", "me", [place])
        assert [run[2].state for run in shares.state_log.known[key].machine.runs] == [1]  # acquired
        world.broker.store.space_exhausted = False
        world.wait(2)
        assert [(run[2].state, run[2].deliveries) for run in shares.state_log.known[key].machine.runs] == [(0, 1)]

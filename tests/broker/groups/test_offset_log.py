"""Offsets through a broker's life: restarts, deleted topics, transactions, and how long they are kept."""

from collections.abc import Collection
from types import SimpleNamespace

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.groups import offset_log
from fencepost.broker.groups.records import Committed, Place
from fencepost.broker.groups.states import State
from fencepost.protocol.batches import read
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.groups import DeleteGroupsRequest
from fencepost.protocol.messages.offsets import OffsetCommitRequest
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from fencepost.storage.journal.journal import Part
from group_client import alone
from offset_requests import Producer, commit, delete, fetch
from peak_memory import peak_bytes
from simulated_broker import SimulatedBroker

UNSTABLE = -100 - ErrorCode.UNSTABLE_OFFSET_COMMIT
DAY_MS = 86_400_000
HOUR_S = 3600


def kept_for(minutes: int, **more: object) -> BrokerSettings:
    return BrokerSettings(
        offsets_retention_minutes=minutes,
        offsets_retention_check_interval_ms=1_000,
        offsets_topic_num_partitions=2,
        log_checkpoint_interval_ms=60_000,
        **more,  # type: ignore[arg-type]
    )


def end_offsets(world: SimulatedBroker) -> list[int]:
    return [part.log.end_offset for part in world.broker.topics.by_name["__consumer_offsets"].partitions]


@pytest.mark.requirement("S-05", "S-09")
def test_a_power_cut_keeps_exactly_the_committed_offsets() -> None:
    world = SimulatedBroker()
    world.broker.topics.create("t", 3)
    assert commit(world, "g", "t", {0: 5, 2: 7}) == [0, 0]
    with world.after_power_cut() as later:
        assert fetch(later, "g", {"t": [0, 1, 2]}) == {("t", 0): 5, ("t", 1): -1, ("t", 2): 7}
        assert fetch(later, "h") == {}


def test_kafka_15784_a_commit_is_one_unit_and_memory_never_differs_from_the_log() -> None:
    """KAFKA-15784: the state in memory could differ from the records in the log. A unit is an entry of the journal."""
    with SimulatedBroker() as world:
        world.broker.topics.create("t", 2)
        commit(world, "g", "t", {0: 1})
        unit = world.broker.store.last_unit
        commit(world, "g", "t", {0: 2, 1: 3})
        assert world.broker.store.last_unit == unit + 1
        world.broker.store.space_exhausted = True
        assert commit(world, "g", "t", {0: 9, 1: 9}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
        assert fetch(world, "g") == {("t", 0): 2, ("t", 1): 3}
        assert world.broker.store.last_unit == unit + 1


@pytest.mark.parametrize("tv", [1, 2])
@pytest.mark.requirement("S-84", "S-85", "S-82", "C-7")
def test_offsets_of_a_transaction_become_visible_at_commit_and_survive_a_power_cut(tv: int) -> None:
    """Until then OffsetFetch returns the earlier offset, or UNSTABLE_OFFSET_COMMIT with require_stable."""
    world = SimulatedBroker()
    world.broker.topics.create("t", 2)
    commit(world, "g", "t", {0: 1})
    producer = Producer(world, "x", tv=tv)
    assert producer.send_offsets("g", "t", {0: 5, 1: 6}) == [0, 0]
    expected = {("t", 0): 1, ("t", 1): -1}
    assert fetch(world, "g", {"t": [0, 1]}) == expected
    assert fetch(world, "g", {"t": [0, 1]}, stable=True) == {("t", 0): UNSTABLE, ("t", 1): UNSTABLE}
    with world.after_power_cut() as later:
        assert fetch(later, "g", {"t": [0, 1]}) == expected
        assert fetch(later, "g", {"t": [0, 1]}, stable=True) == {("t", 0): UNSTABLE, ("t", 1): UNSTABLE}
        producer.asked = later
        producer.end(commit=True)
        assert fetch(later, "g", {"t": [0, 1]}, stable=True) == {("t", 0): 5, ("t", 1): 6}
        with later.after_power_cut() as last:
            assert fetch(last, "g", {"t": [0, 1]}, stable=True) == {("t", 0): 5, ("t", 1): 6}


@pytest.mark.parametrize("tv", [1, 2])
@pytest.mark.requirement("S-85")
def test_offsets_of_an_aborted_transaction_leave_the_committed_ones_unchanged(tv: int) -> None:
    with SimulatedBroker() as world:
        world.broker.topics.create("t", 1)
        commit(world, "g", "t", {0: 1})
        producer = Producer(world, "x", tv=tv)
        producer.send_offsets("g", "t", {0: 5})
        producer.end(commit=False)
        assert fetch(world, "g", {"t": [0]}, stable=True) == {("t", 0): 1}


def test_deleting_a_topic_deletes_its_offsets_and_a_recreated_one_has_none() -> None:
    world = SimulatedBroker(kept_for(10_000))
    world.broker.topics.create("t", 1)
    world.broker.topics.create("u", 1)
    commit(world, "g", "t", {0: 5})
    commit(world, "g", "u", {0: 6})
    world.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=0))
    assert fetch(world, "g", {"t": [0]}) == {("t", 0): -1}
    world.broker.topics.create("t", 1)
    assert fetch(world, "g") == {("u", 0): 6}
    with world.after_power_cut() as later:
        assert fetch(later, "g") == {("u", 0): 6}
        later.wait(5)
        assert set(later.broker.group_offsets.state.of_group("g")) == {("u", 0)}  # forgotten for good
        commit(later, "g", "t", {0: 1})
        later.wait(5)
        assert fetch(later, "g") == {("t", 0): 1, ("u", 0): 6}


def test_offsets_committed_in_a_transaction_for_a_deleted_topic_are_dropped() -> None:
    with SimulatedBroker() as world:
        world.broker.topics.create("t", 1)
        producer = Producer(world, "x")
        producer.send_offsets("g", "t", {0: 5})
        world.broker.topics.delete(world.broker.topics.by_name["t"])
        world.broker.topics.create("t", 1)
        producer.end(commit=True)
        assert fetch(world, "g", {"t": [0]}) == {("t", 0): -1}


@pytest.mark.slow
def test_offsets_expire_at_their_retention_time_and_not_one_check_earlier() -> None:
    with SimulatedBroker(kept_for(60)) as world:
        world.broker.topics.create("t", 2)
        commit(world, "g", "t", {0: 5})
        world.wait(HOUR_S // 2)
        commit(world, "g", "t", {1: 6})
        world.wait(HOUR_S // 2 - 10)
        assert fetch(world, "g") == {("t", 0): 5, ("t", 1): 6}
        world.wait(20)
        assert fetch(world, "g") == {("t", 1): 6}
        world.wait(HOUR_S // 2)
        assert fetch(world, "g") == {}
        with world.after_power_cut() as later:
            assert fetch(later, "g") == {}


def test_a_restart_and_a_snapshot_restore_each_committed_offset_exactly() -> None:
    world = SimulatedBroker(kept_for(60))
    world.broker.topics.create("t", 3)
    commit(world, "g", "t", {0: 5, 1: 6, 2: 7})
    Producer(world, "x").send_offsets("g", "t", {0: 8, 1: 9})
    alone(world, "members")
    offsets = world.broker.group_offsets
    before = offsets.all_of("g")
    assert [found.position for found in before.values()] == [0, 1, 2]
    rows = list(offsets.rows())
    assert {len(row) for row in rows} == {2, 4}  # rows of groups and of offsets: see rows()
    with world.after_power_cut() as later:
        assert later.broker.group_offsets.all_of("g") == before
        assert sorted(later.broker.group_offsets.rows(), key=repr) == sorted(rows, key=repr)
    with SimulatedBroker(kept_for(60)) as other:
        taken = other.broker.group_offsets
        for row in rows:
            taken.put_row(taken.read_row(tuple(row)))
        assert sorted(taken.rows(), key=repr) == sorted(rows, key=repr)


def test_offset_retention_minutes_count_to_the_millisecond() -> None:
    with SimulatedBroker(kept_for(60)) as world:
        world.broker.topics.create("t", 1)
        offsets = world.broker.group_offsets
        age_ms = world.broker.store.age_ms()
        offsets.commit("g", [(("t", 0), Committed(5, -1, "", 0, age_ms))])
        world.broker.store.age_ms = lambda: age_ms + 60 * 60_000 - 1  # type: ignore[method-assign]
        offsets.forget_expired("g")
        assert offsets.has_committed("g")
        world.broker.store.age_ms = lambda: age_ms + 60 * 60_000  # type: ignore[method-assign]
        offsets.forget_expired("g")
        assert not offsets.has_committed("g")


@pytest.mark.parametrize("producer_id", [-1, 0, 1, 2**40])
def test_offsets_of_a_transactional_producer_are_written_in_a_transactional_batch(
    monkeypatch: pytest.MonkeyPatch, producer_id: int
) -> None:
    with SimulatedBroker() as world:
        offsets = world.broker.group_offsets
        written: list[Part] = []
        offsets.topic.ensure()
        monkeypatch.setattr(offsets.topic, "commit", written.extend)
        offset = Committed(5, -1, "", 0, 0)
        producer = {} if producer_id < 0 else {"producer_id": producer_id, "producer_epoch": 0}
        offsets.commit("g", [(("t", 0), offset)], **producer)
        (part,) = written
        batch = read(memoryview(b"".join(part.data)))
        assert (batch.producer_id, batch.producer_epoch) == (producer_id, min(producer_id, 0))
        assert batch.is_transactional is (producer_id >= 0)


@pytest.mark.slow
@pytest.mark.parametrize("jump_ms", [400 * DAY_MS, -400 * DAY_MS])
def test_wall_clock_jumps_do_not_change_when_offsets_expire(jump_ms: int) -> None:
    with SimulatedBroker(kept_for(60)) as world:
        world.broker.topics.create("t", 1)
        commit(world, "g", "t", {0: 5})
        world.broker.clock.jump_wall(jump_ms)  # type: ignore[attr-defined]
        world.wait(HOUR_S - 60)
        assert fetch(world, "g") == {("t", 0): 5}
        world.wait(120)
        assert fetch(world, "g") == {}


@pytest.mark.slow
def test_the_time_until_offsets_expire_continues_after_a_restart() -> None:
    world = SimulatedBroker(kept_for(60))
    world.broker.topics.create("t", 1)
    commit(world, "g", "t", {0: 5})
    world.wait(HOUR_S - 100)
    with world.again() as later:
        assert fetch(later, "g") == {("t", 0): 5}
        later.wait(200)
        assert fetch(later, "g") == {}


@pytest.mark.parametrize("committed", [False, True])
def test_kafka_19163_offsets_do_not_expire_while_the_group_has_an_open_transaction(committed: bool) -> None:
    """KAFKA-19163: the group was removed together with offsets of a transaction that was still open."""
    settings = kept_for(1)
    with SimulatedBroker(settings) as world:
        world.broker.topics.create("t", 2)
        commit(world, "g", "t", {1: 1})
        producer = Producer(world, "x")
        producer.send_offsets("g", "t", {0: 5})
        world.wait(50)
        producer.end(committed)
        producer.send_offsets("g", "t", {0: 6})
        world.wait(20)  # the retention time of the first offset has passed now
        assert fetch(world, "g", {"t": [1]}) == {("t", 1): 1}
        producer.end(committed)
        world.wait(5)
        assert fetch(world, "g") == ({("t", 0): 6} if committed else {})


def test_an_offset_with_its_own_retention_time_expires_after_that_time() -> None:
    with SimulatedBroker(kept_for(60)) as world:
        world.broker.topics.create("t", 1)
        part = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=5)
        topics = [OffsetCommitRequest.Topic(name="t", partitions=[part])]
        world.ask(OffsetCommitRequest(group_id="g", retention_time_ms=10_000, topics=topics), 2)
        world.wait(8)
        assert fetch(world, "g") == {("t", 0): 5}
        world.wait(5)
        assert fetch(world, "g") == {}


@pytest.mark.slow
def test_2500_offsets_expire_and_each_gets_a_tombstone() -> None:
    with SimulatedBroker(kept_for(1)) as world:
        world.broker.topics.create("t", 2_500)
        commit(world, "g", "t", dict.fromkeys(range(2_500), 5))
        world.wait(120)
        assert fetch(world, "g") == {}
        assert sum(end_offsets(world)) == 5_000  # 2,500 offsets and as many tombstones


@pytest.mark.parametrize("count", [1, 9, 10, 11, 20, 21])
def test_offset_expiry_is_repeated_only_after_it_removed_a_full_portion(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(offset_log, "FEW_OFFSETS", 10)
    with SimulatedBroker() as world:
        world.broker.topics.create("t", count)
        commit(world, "g", "t", dict.fromkeys(range(count), 5))
        world.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="t")], timeout_ms=1))
        left = []
        while world.broker.group_offsets.forget_expired("g"):
            left.append(len(world.broker.group_offsets.state.of_group("g")))
        assert left == [max(0, count - 10 * turn) for turn in range(1, count // 10 + 1)]
        assert not world.broker.group_offsets.state.of_group("g")


def test_an_offset_without_topic_id_is_returned_but_not_one_with_another_topics_id() -> None:
    with SimulatedBroker() as world:
        world.broker.topics.create("t", 1)
        commit(world, "g", "t", {0: 5})
        offsets, place = world.broker.group_offsets, Place("g", "t", 0)
        committed = offsets.state.get(place)
        assert committed is not None
        ids = ((bytes(16), True), (b"another topic's.", False), (committed.topic_id, True))
        for position, (topic_id, counts) in enumerate(ids, committed.position + 1):
            offsets.state.put(0, place, committed._replace(topic_id=topic_id, position=position), -1)
            assert (offsets.fetch("g", ("t", 0)) is not None) is counts


def test_deleting_an_offset_also_deletes_its_pending_transactional_commit() -> None:
    world = SimulatedBroker()
    world.broker.topics.create("t", 2)
    commit(world, "g", "t", {0: 1, 1: 2})
    producer = Producer(world, "x")
    producer.send_offsets("g", "t", {0: 5})
    assert not delete(world, "g", "t", 0).error_code
    producer.end(commit=True)
    assert fetch(world, "g") == {("t", 1): 2}
    with world.after_power_cut() as later:
        assert fetch(later, "g") == {("t", 1): 2}


def test_a_commit_larger_than_a_batch_may_be_is_refused_and_changes_nothing() -> None:
    with SimulatedBroker(BrokerSettings(offset_metadata_max_bytes=30_000)) as world:
        world.broker.topics.create("t", 100)
        made = OffsetCommitRequest.Topic
        parts = [
            made.Partition(partition_index=index, committed_offset=5, committed_metadata="m" * 20_000)
            for index in range(100)
        ]
        answer = world.ask(OffsetCommitRequest(group_id="g", topics=[made(name="t", partitions=parts)]), 9)
        errors = {part.error_code for part in answer.topics[0].partitions}
        assert errors == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert fetch(world, "g") == {}


@pytest.mark.slow
def test_committing_many_partitions_with_a_long_group_id_is_refused_in_little_memory() -> None:
    """Each record would contain the name: a request of 400 KB would make a batch of 600 MB."""
    name, many = "g" * 30_000, dict.fromkeys(range(9_000), 1)
    with SimulatedBroker() as world:
        world.broker.topics.create("t", 9_000)
        commit(world, "g", "t", {0: 1})
        errors: list[int] = []
        peak = peak_bytes(lambda: errors.extend(commit(world, name, "t", many)))
        assert set(errors) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert peak < 50_000_000  # far less than that batch
        assert fetch(world, name) == {}


@pytest.mark.slow
def test_deleting_a_group_with_a_long_id_writes_batches_of_bounded_size() -> None:
    name = "g" * 30_000
    with SimulatedBroker(kept_for(60)) as world:
        world.broker.topics.create("t", 300)
        for begin in range(0, 300, 30):
            assert not any(commit(world, name, "t", dict.fromkeys(range(begin, begin + 30), 1)))
        written: list[int] = []
        kept_commit = world.broker.store.commit

        def commit_and_note(parts: Collection[Part]) -> int:
            written.extend(len(data) for part in parts for data in part.data)
            return kept_commit(list(parts))

        world.broker.store.commit = commit_and_note  # type: ignore[method-assign, assignment]
        assert world.ask(DeleteGroupsRequest(groups_names=[name])).results[0].error_code == 0
        assert sum(written) > 300 * 30_000
        assert max(written) < 1_100_000  # each batch has about 1 MB at most
        assert fetch(world, name) == {}
        with world.again() as later:
            assert fetch(later, name) == {}


@pytest.mark.slow
def test_compaction_of_the_offsets_topic_keeps_current_and_pending_offsets() -> None:
    settings = BrokerSettings(
        offsets_topic_num_partitions=1, offsets_topic_segment_bytes=1 << 20, log_cleaner_backoff_ms=1_000
    )
    world = SimulatedBroker(settings)
    world.broker.topics.create("t", 50)
    early, late = Producer(world, "early"), Producer(world, "late")
    early.send_offsets("g", "t", {49: 77})
    early.end(commit=True)
    for number in range(500):
        commit(world, "g", "t", dict.fromkeys(range(48), number))
    late.send_offsets("g", "t", {48: 88})
    for number in range(500):
        commit(world, "h", "t", dict.fromkeys(range(48), number))
    world.wait(120)
    log = world.broker.topics.by_name["__consumer_offsets"].partitions[0].log
    assert log.cleaned_offset > 0
    expected = {("t", index): 499 for index in range(48)} | {("t", 49): 77}
    with world.after_power_cut() as later:
        assert fetch(later, "g") == expected
        late.asked = later
        late.end(commit=True)
        assert fetch(later, "g") == expected | {("t", 48): 88}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "protocol_type", "subscribed", "kept"),
    [
        (State.EMPTY, "consumer", (), set()),
        (State.EMPTY, "connect", None, set()),
        (State.STABLE, "consumer", ("t",), {"t"}),
        (State.STABLE, "consumer", (), set()),
        (State.STABLE, "consumer", None, {"t", "u"}),
        (State.STABLE, "connect", None, {"t", "u"}),
        (State.PREPARING_REBALANCE, "consumer", ("t",), {"t", "u"}),
        (State.COMPLETING_REBALANCE, "consumer", ("t",), {"t", "u"}),
    ],
)
def test_kafka_13636_the_groups_state_and_topics_decide_which_offsets_expire(
    state: State,
    protocol_type: str,
    subscribed: Collection[str] | None,
    kept: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KAFKA-13636: offsets of a group in a rebalance expired. The rules are those of KIP-211."""
    with SimulatedBroker(kept_for(60)) as world:
        for name in ("t", "u"):
            world.broker.topics.create(name, 1)
            commit(world, "g", name, {0: 5})
        group = SimpleNamespace(
            state=state, protocol_type=protocol_type, subscribed_topics=subscribed, empty_since_ms=0, pending=()
        )
        monkeypatch.setattr(world.broker.groups, "group", lambda group_id: group)
        world.wait(HOUR_S + 10)
        assert {topic for topic, _ in fetch(world, "g")} == kept


@pytest.mark.slow
def test_a_groups_offsets_are_retained_from_when_it_became_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    with SimulatedBroker(kept_for(60)) as world:
        world.broker.topics.create("t", 1)
        commit(world, "g", "t", {0: 5})
        world.wait(HOUR_S // 2)
        group = SimpleNamespace(
            state=State.EMPTY, protocol_type="consumer", empty_since_ms=world.broker.store.age_ms(), pending=()
        )
        monkeypatch.setattr(world.broker.groups, "group", lambda group_id: group)
        world.wait(HOUR_S - 10)
        assert fetch(world, "g") == {("t", 0): 5}
        world.wait(20)
        assert fetch(world, "g") == {}


def test_an_offline_offsets_partition_does_not_stop_the_other_ones() -> None:
    settings = BrokerSettings(log_dir="/d", offsets_topic_num_partitions=2)
    world = SimulatedBroker(settings)
    world.broker.topics.create("t", 1)
    topic = world.broker.group_offsets.topic
    for group in ("a", "b"):
        commit(world, group, "t", {0: 5})
    assert {topic.partition_for(group) for group in "ab"} == {0, 1}
    world.wait(60)
    directory = topic.log(topic.partition_for("a")).directory
    world.stop()
    disk = world.disk
    (name,) = (name for name in disk.list(directory) if name.endswith(".log"))
    disk.unlink(f"{directory}/{name}")
    with SimulatedBroker(settings, disk=disk, seed=3) as later:
        log = later.broker.topics.by_name["__consumer_offsets"].partitions[topic.partition_for("a")].log
        assert log.offline is not None
        assert commit(later, "a", "t", {0: 6}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert fetch(later, "b") == {("t", 0): 5}
        assert commit(later, "b", "t", {0: 6}) == [0]


def test_a_bug_while_one_groups_offsets_expire_does_not_affect_other_groups(monkeypatch):
    settings = BrokerSettings(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000)
    with SimulatedBroker(settings) as broker:
        broker.broker.topics.create("t", 1)
        for group in ("bad", "good"):
            assert commit(broker, group, "t", {0: 1}) == [0]
        offsets = broker.broker.group_offsets
        delete = offsets.delete
        monkeypatch.setattr(offsets, "delete", lambda group, gone: 1 / 0 if group == "bad" else delete(group, gone))
        broker.wait(70)
        assert (offsets.knows("bad"), offsets.knows("good")) == (True, False)
        assert broker.broker.halted is None
        monkeypatch.undo()
        broker.wait(2)
        assert not offsets.knows("bad")


def test_offset_delete_removes_an_offset_that_is_only_pending() -> None:
    """Nothing was committed before, so only the open transaction has the offset."""
    world = SimulatedBroker()
    world.broker.topics.create("t", 2)
    producer = Producer(world, "x")
    producer.send_offsets("g", "t", {0: 5, 1: 6})
    assert not delete(world, "g", "t", 0).error_code
    producer.end(commit=True)
    assert fetch(world, "g") == {("t", 1): 6}
    with world.after_power_cut() as later:
        assert fetch(later, "g") == {("t", 1): 6}

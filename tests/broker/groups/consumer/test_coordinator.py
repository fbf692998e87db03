"""Consumer groups in a whole broker: under its clock, in its log, across restarts, sliced where they are large."""

import time
from contextlib import nullcontext

import pytest
from fencepost.broker.groups.assigned import coordinator as assigned_groups
from fencepost.broker.groups.consumer import coordinator, machine
from fencepost.broker.groups.consumer.heartbeats import Heartbeat
from fencepost.broker.handlers import consumer_groups
from fencepost.broker.requests import group_requests
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.groups import DeleteGroupsRequest
from group_client import alone, begin, leaving, listed
from lines_run import lines_run
from offset_requests import commit
from produce_requests import create
from simulated_client import SimulatedClient

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
TOO_MANY = ErrorCode.GROUP_MAX_SIZE_REACHED
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture
def broker():
    with begin(group_consumer_assignment_interval_ms=0) as broker:
        broker.ask(create("t", 4))
        yield broker


def beat(broker, member, epoch, group="g", topics=None, **more):
    fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": topics or ["t"], "topic_partitions": []}
    return broker.ask(
        ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, **(fields if epoch == 0 else {}), **more
        )
    )


def described(broker, group="g"):
    return broker.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups[0]


def settled(broker, *members, group="g"):
    """Let these members join and send heartbeats, each of which reports exactly the last assignment as owned. Return
    their epochs.
    """
    epochs, owned = dict.fromkeys(members, 0), {}
    for _ in range(4):
        for member in members:
            own = {} if epochs[member] == 0 else {"topic_partitions": owned.get(member, [])}
            answer = beat(broker, member, epochs[member], group, **own)
            assert answer.error_code == 0
            epochs[member] = answer.member_epoch
            if answer.assignment is not None:
                made = ConsumerGroupHeartbeatRequest.TopicPartitions
                owned[member] = [
                    made(topic_id=each.topic_id, partitions=each.partitions)
                    for each in answer.assignment.topic_partitions
                ]
    return epochs


@pytest.mark.slow
@pytest.mark.parametrize("orderly", [True, False], ids=["orderly", "power cut"])
def test_a_broker_restart_changes_no_consumer_group_epoch_and_moves_no_partition(broker, orderly):
    epochs = settled(broker, "a", "b")
    before = described(broker)
    again = broker.again() if orderly else broker.after_power_cut()
    with again:
        assert described(again) == before
        assert {name: beat(again, name, epoch).member_epoch for name, epoch in epochs.items()} == epochs
        assert described(again) == before


def test_a_snapshot_restores_consumer_groups(broker):
    settled(broker, "a", "b")
    before = described(broker)
    broker.loop.run_until_complete(broker.broker.coordinator_snapshots.take())
    beat(broker, "c", 0, "later")
    with broker.after_power_cut() as again:
        assert described(again) == before
        assert described(again, "later").members[0].member_id == "c"


def test_a_consumer_group_member_is_removed_when_its_session_times_out(broker):
    settled(broker, "a")
    broker.wait(44)
    assert len(described(broker).members) == 1
    broker.wait(2)
    assert (described(broker).members, described(broker).group_state) == ([], "Empty")
    assert beat(broker, "a", 2).error_code == UNKNOWN


def test_an_empty_group_is_forgotten_once_it_has_no_committed_offsets():
    with begin(offsets_retention_check_interval_ms=1000) as broker:
        broker.ask(create("t", 1))
        for group in ("bare", "kept"):
            settled(broker, "a", group=group)
        more = {"generation_id_or_member_epoch": 2, "member_id": "a"}
        assert commit(broker, "kept", "t", {0: 1}, **more) == [0]
        for group in ("bare", "kept"):
            beat(broker, "a", -1, group)
        broker.wait(3)
        assert listed(broker) == ["kept"]
        assert described(broker, "bare").error_code == NOT_FOUND


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True])
def test_the_retention_of_offsets_begins_when_the_last_member_leaves(restarts):
    with begin(offsets_retention_check_interval_ms=1000, offsets_retention_minutes=1) as broker:
        broker.ask(create("t", 1))
        settled(broker, "a")
        assert commit(broker, "g", "t", {0: 1}, generation_id_or_member_epoch=2, member_id="a") == [0]
        for _ in range(5):
            broker.wait(20)
            beat(broker, "a", 2)
        beat(broker, "a", -1)
        broker.wait(50)
        assert listed(broker) == ["g"]
        with broker.after_power_cut() if restarts else nullcontext(broker) as again:
            again.wait(5)
            assert listed(again) == ["g"]
            again.wait(70)  # a power cut may have lost some of the data directory's age
            assert listed(again) == []


def test_a_deleted_consumer_group_stays_deleted_after_a_restart(broker):
    settled(broker, "a")
    beat(broker, "a", -1)
    assert broker.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == 0
    with broker.after_power_cut() as again:
        assert described(again).error_code == NOT_FOUND
        assert listed(again) == []


def test_a_classic_group_with_unreadable_metadata_refuses_consumer_joins_until_empty(broker):
    """The metadata of its member is b"x", which is no subscription."""
    member, _ = alone(broker, "g")
    assert beat(broker, "a", 0).error_code == NOT_FOUND
    broker.ask(leaving("g", member))
    assert beat(broker, "a", 0).error_code == 0
    assert described(broker).group_state == "Stable"
    with broker.after_power_cut() as again:
        assert described(again).members[0].member_id == "a"


def test_the_error_for_an_unknown_group_has_kafkas_text(broker):
    """A heartbeat of a member speaks of a consumer group, any other request of a group."""
    assert beat(broker, "m", 3, "nosuch").error_message == "Consumer group nosuch not found."
    assert beat(broker, "m", -1, "nosuch").error_message == "Group nosuch not found."
    assert described(broker, "nosuch").error_message == "Group nosuch not found."


def test_joins_are_refused_when_groups_use_all_their_memory():
    with begin(group_metadata_max_bytes=1 << 20) as broker:
        broker.ask(create("t", 1))
        topics = [f"{number:0200}" for number in range(300)]
        errors = [beat(broker, f"m{number}", 0, topics=topics).error_code for number in range(8)]
        assert (errors[0], errors[-1]) == (0, TOO_MANY)
        assert beat(broker, "m0", described(broker).members[0].member_epoch).error_code == 0


def test_subscribing_to_missing_topics_does_not_make_later_heartbeats_long(broker):
    """A member joins, or gets a new topic, in a group whose other members subscribe to thousands of topics."""
    for number in range(3):
        beat(broker, f"m{number}", 0, topics=[f"nosuch-{number}-{each}" for each in range(6_000)])
    groups, member = broker.broker.consumer_groups, Heartbeat("a", 0, rebalance_timeout_ms=60_000, topics=("t",))
    assert lines_run(lambda: groups.heartbeat("g", member._replace(owned={}))) < 1_000  # for 18,000 names of topics
    broker.ask(create("new", 1))
    epoch = groups.groups["g"].current("a").epoch
    assert lines_run(lambda: groups.heartbeat("g", Heartbeat("a", epoch))) < 1_000  # for 18,000 names of topics


def test_a_heartbeat_listing_a_topic_twice_owns_the_partitions_of_both_entries(broker):
    made = ConsumerGroupHeartbeatRequest.TopicPartitions
    first = beat(broker, "a", 0)
    newcomer = beat(broker, "b", 0)
    (kept,) = beat(broker, "a", first.member_epoch).assignment.topic_partitions
    given_up = {0, 1, 2, 3} - set(kept.partitions)
    entries = [made(topic_id=kept.topic_id, partitions=list(each)) for each in (given_up, kept.partitions)]
    assert beat(broker, "a", first.member_epoch, topic_partitions=entries).member_epoch == first.member_epoch
    assert beat(broker, "b", newcomer.member_epoch).assignment is None
    beat(broker, "a", first.member_epoch, topic_partitions=entries[1:])
    (given,) = beat(broker, "b", newcomer.member_epoch).assignment.topic_partitions
    assert set(given.partitions) == given_up


def test_the_30_topics_a_regex_matches_are_assigned_at_a_heartbeat_after_the_join(broker):
    for number in range(30):
        broker.ask(create(f"x{number}", 1))
    fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_regex": "x.*", "topic_partitions": []}
    answer = broker.ask(ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=0, **fields))
    broker.wait(1)
    answer = beat(broker, "a", answer.member_epoch)
    assert len(answer.assignment.topic_partitions) == 30


def test_many_regex_subscriptions_are_resolved_and_logged_in_portions(broker, monkeypatch):
    monkeypatch.setattr(coordinator, "NAMES_AT_ONCE", 3)
    portions = []
    resolved = machine.ConsumerGroup.set_resolved_topics

    def counted(group, found, now_ms, *, more=False):
        portions.append((len(found), more))
        resolved(group, found, now_ms, more=more)

    monkeypatch.setattr(machine.ConsumerGroup, "set_resolved_topics", counted)
    for number in range(4):
        broker.ask(create(f"x{number}", 1))
    groups, members = broker.broker.consumer_groups, [f"m{number}" for number in range(5)]
    for name in members:
        joins = Heartbeat(name, 0, rebalance_timeout_ms=60_000, regex=f"x.*|{name}", owned={})
        groups.heartbeat("g", joins)
    broker.wait(1)
    beat(broker, "m0", 1)  # the first was looked up alone: the others were not there yet
    broker.wait(1)
    assert portions == [(1, False), (1, True), (1, True), (1, True), (1, False)]
    group = groups.groups["g"]
    assert [len(each.topics) for each in group.regexes.values()] == [4] * 5
    assert group.matched == dict.fromkeys(["x0", "x1", "x2", "x3"], 5)
    for name in members:
        groups.heartbeat("g", Heartbeat(name, group.current(name).epoch))
    assert group.regexes_due(broker.broker.clock.monotonic_ms()) == []


def test_members_that_join_while_an_assignment_is_computed_start_no_second_one(broker, monkeypatch):
    """A computation that is due begins in a later turn of the loop; each heartbeat until then finds it due."""
    monkeypatch.setattr(machine, "ASSIGNED_AT_ONCE", 3)
    begun = []
    begin_assignment = machine.ConsumerGroup.begin_assignment
    monkeypatch.setattr(
        machine.ConsumerGroup, "begin_assignment", lambda group: begun.append(group) or begin_assignment(group)
    )
    groups = broker.broker.consumer_groups
    for number in range(50):
        joins = Heartbeat(f"m{number}", 0, rebalance_timeout_ms=60_000, topics=("t",), owned={})
        groups.heartbeat("g", joins)
    broker.wait(1)
    assert len(begun) == 2  # that of the first member, at once, and one for all others
    assert described(broker).assignment_epoch == described(broker).group_epoch


def test_an_assignment_computed_for_a_deleted_group_is_discarded(broker, monkeypatch):
    monkeypatch.setattr(machine, "ASSIGNED_AT_ONCE", 3)
    groups = broker.broker.consumer_groups
    for name in ("a", "b"):
        joins = Heartbeat(name, 0, rebalance_timeout_ms=60_000, topics=("t",), owned={})
        groups.heartbeat("g", joins)
    assert groups.groups["g"].is_assigning
    for name in ("a", "b"):
        groups.leave("g", Heartbeat(name, -1))
    broker.broker.group_kinds.delete("g")
    broker.wait(1)
    with broker.after_power_cut() as again:
        assert listed(again) == []


def test_assigning_a_large_group_does_not_delay_short_requests(broker, monkeypatch):
    monkeypatch.setattr(consumer_groups, "MEMBERS_OF_A_LARGE_GROUP", 1)
    settled(broker, "a", "b")
    member, other = SimulatedClient(broker), SimulatedClient(broker)
    fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    member.send(ConsumerGroupHeartbeatRequest(group_id="g", member_id="c", member_epoch=0, **fields))
    other.send(ConsumerGroupDescribeRequest(group_ids=["g"]))
    assert len(other.receive().groups[0].members) == 2
    assert member.receive().member_epoch == described(broker).group_epoch
    assert len(described(broker).members) == 3


def test_a_join_with_many_topics_does_not_delay_short_requests(broker, monkeypatch):
    monkeypatch.setattr(consumer_groups, "MANY_TOPICS", 3)
    monkeypatch.setattr(group_requests, "TOPICS_OF_A_STEP", 2)
    beat(broker, "a", 0)
    member, other = SimulatedClient(broker), SimulatedClient(broker)
    topics = ["z", "t", "z", "a", "t"]
    fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": topics, "topic_partitions": []}
    member.send(ConsumerGroupHeartbeatRequest(group_id="g", member_id="b", member_epoch=0, **fields))
    other.send(ConsumerGroupDescribeRequest(group_ids=["g"]))
    assert len(other.receive().groups[0].members) == 1
    assert member.receive().error_code == 0
    assert described(broker).members[1].subscribed_topic_names == ["a", "t", "z"]


@pytest.mark.slow
def test_300_members_share_300_partitions_and_all_survive_a_restart(monkeypatch):
    """The assignment is too large to be computed in one heartbeat, or to be logged in one batch."""
    members = 300
    monkeypatch.setattr(machine, "ASSIGNED_AT_ONCE", members // 2)
    monkeypatch.setattr(assigned_groups, "BATCH_BYTES", 600)
    with begin(group_consumer_assignment_interval_ms=0) as broker:
        broker.ask(create("t", members))
        names = [f"member-{number:04}" for number in range(members)]
        began = time.process_time()
        for name in names:
            beat(broker, name, 0)
        print(f"joined in {time.process_time() - began:.2f} s")
        broker.wait(1)
        began = time.process_time()
        epochs = settled(broker, *names)
        print(f"settled in {time.process_time() - began:.2f} s")
        found = described(broker)
        assert (found.group_state, set(epochs.values())) == ("Stable", {found.group_epoch})
        loads = [sum(len(each.partitions) for each in of.assignment.topic_partitions) for of in found.members]
        assert loads == [1] * members
        with broker.after_power_cut() as again:
            assert described(again) == found

"""Share groups in a whole broker: under its clock, in its log, across restarts, beside groups of other kinds."""

import pytest
from fencepost.broker.groups.share import machine
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from group_client import alone, begin, joining, listed
from offset_requests import commit
from produce_requests import answers, batch, create, produce
from share_group_requests import assigned, beat, delete_topic, described, grow, reset, starts

INVALID = ErrorCode.INVALID_REQUEST
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
NOT_EMPTY = ErrorCode.NON_EMPTY_GROUP
TOO_MANY = ErrorCode.GROUP_MAX_SIZE_REACHED
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.fixture
def broker():
    with begin() as broker:
        broker.ask(create("t", 2))
        yield broker


def share_group(broker, group="g"):
    return broker.broker.share_groups.groups[group]


def write(broker, count, partition=0):
    """Write this many records with the broker's current time as their timestamp."""
    records = batch(count, timestamp=broker.broker.clock.now_ms())
    assert answers(broker.ask(produce("t", records, partition=partition)))[0][0] == 0


# ---- one group -----------------------------------------------------------------------------------------------


def test_the_first_share_heartbeat_returns_the_assignment(broker):
    answer = beat(broker, "m-1", 0)
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (0, 2, 5000)
    assert assigned(answer) == [0, 1]
    again = beat(broker, "m-1", 2)
    assert (again.member_epoch, again.assignment) == (2, None)


def test_describing_a_share_group_returns_members_and_their_assignments(broker):
    beat(broker, "m-1", 0)
    found = described(broker)
    member = found.members[0]
    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
    assert (found.group_epoch, found.assignment_epoch, member.member_epoch) == (2, 2, 2)
    assert (member.member_id, member.subscribed_topic_names) == ("m-1", ["t"])
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("t", [0, 1])]


@pytest.mark.parametrize("orderly", [True, False], ids=["orderly", "power cut"])
def test_a_broker_restart_changes_no_share_group_epoch_and_moves_no_partition(broker, orderly):
    beat(broker, "m-1", 0)
    beat(broker, "m-2", 0)
    before, kept, begins = described(broker), list(share_group(broker).changes()), starts(broker)
    again = broker.again() if orderly else broker.after_power_cut()
    with again:
        assert (described(again), list(share_group(again).changes()), starts(again)) == (before, kept, begins)
        assert beat(again, "m-2", 3).error_code == 0


def test_a_snapshot_restores_share_groups(broker):
    beat(broker, "m-1", 0)
    before, begins = described(broker), starts(broker)
    broker.loop.run_until_complete(broker.broker.coordinator_snapshots.take())
    beat(broker, "m-1", 0, "later")
    with broker.after_power_cut() as again:
        assert (described(again), starts(again)) == (before, begins)
        assert described(again, "later").members[0].member_id == "m-1"


def test_a_share_group_member_is_removed_when_its_session_times_out(broker):
    beat(broker, "m-1", 0)
    broker.wait(44)
    assert len(described(broker).members) == 1
    broker.wait(2)
    assert (described(broker).members, described(broker).group_state) == ([], "Empty")
    assert beat(broker, "m-1", 2).error_code == UNKNOWN


def test_an_empty_share_group_is_never_forgotten():
    with begin(offsets_retention_check_interval_ms=1000, offsets_retention_minutes=1) as broker:
        broker.ask(create("t", 1))
        beat(broker, "m-1", 0)
        assert beat(broker, "m-1", -1).error_code == 0
        broker.wait(300)
        assert listed(broker) == ["g"]


def test_a_share_group_that_could_not_be_logged_does_not_exist(broker, monkeypatch):
    monkeypatch.setattr(broker.broker.store, "admits", lambda *args, **kwargs: False)
    assert beat(broker, "m-1", 0).error_code == NOT_AVAILABLE
    monkeypatch.undo()
    assert (listed(broker), broker.broker.share_groups.size_bytes) == ([], 0)
    assert beat(broker, "m-1", 0).error_code == 0


def test_a_share_join_that_exceeds_the_group_memory_is_refused():
    with begin(group_metadata_max_bytes=1 << 20) as broker:
        broker.ask(create("t", 100))
        answers = [beat(broker, "m-1", 0, f"g-{number}").error_code for number in range(12)]
        assert answers == [0] * answers.count(0) + [TOO_MANY] * answers.count(TOO_MANY)
        assert 2 <= answers.count(0) < 12  # 1 MiB has room for some of the 12 groups with 100 partitions each
        gone = answers.index(TOO_MANY) - 1
        beat(broker, "m-1", -1, f"g-{gone}")
        assert broker.ask(DeleteGroupsRequest(groups_names=[f"g-{gone}"])).results[0].error_code == 0
        assert beat(broker, "m-1", 0, "another").error_code == 0


def test_share_offset_resets_cannot_exceed_the_group_memory():
    with begin(group_metadata_max_bytes=1 << 20) as broker:
        broker.ask(create("t", 100))
        share_groups, place = broker.broker.share_groups, (broker.broker.topics.by_name["t"].id, 0)
        for number in range(10):  # each takes 102,000 bytes
            share_groups.alter(f"g-{number}", {place: 0})
        with pytest.raises(KafkaError) as refused:
            share_groups.alter("one-more", {place: 0})
        assert (refused.value.code, len(listed(broker))) == (ErrorCode.POLICY_VIOLATION, 10)
        share_groups.alter("g-0", {place: 5})  # what is there may be altered
        broker.ask(delete_topic("t"))
        assert share_groups.size_bytes < 100_000  # nearly all of the 1 MB was freed
        broker.ask(create("t", 100))
        share_groups.alter("another", {(broker.broker.topics.by_name["t"].id, 0): 0})


def test_a_share_group_too_large_for_one_heartbeat_is_assigned_in_the_background(broker, monkeypatch):
    monkeypatch.setattr(machine, "ASSIGNED_AT_ONCE", 3)
    beat(broker, "m-1", 0)
    beat(broker, "m-2", 0)
    broker.wait(2)
    assert sorted(assigned(beat(broker, name, 0))[0] for name in ("m-1", "m-2")) == [0, 1]


def test_a_share_member_may_subscribe_to_thousands_of_topics(broker):
    answer = beat(broker, "m-1", 0, topics=[*(f"none-{number}" for number in range(3_000)), "t"])
    assert (answer.error_code, assigned(answer)) == (0, [0, 1])
    assert len(share_group(broker).members["m-1"].topics) == 3_001


# ---- where it begins -----------------------------------------------------------------------------------------


def test_a_share_group_begins_at_the_log_end_by_default(broker):
    write(broker, 3)
    beat(broker, "m-1", 0)
    assert starts(broker) == {0: 3, 1: 0}


def test_the_start_offset_of_a_share_group_survives_a_crash_before_the_first_read(broker):
    """In Kafka, a group that begins at the log end looks up the end again after a restart, and misses records written
    meanwhile.
    """
    write(broker, 3)
    beat(broker, "m-1", 0)
    write(broker, 2)
    with broker.after_power_cut() as again:
        assert starts(again) == {0: 3, 1: 0}


def test_a_share_group_begins_at_the_first_record_with_auto_offset_reset_earliest(broker):
    write(broker, 3)
    reset(broker, "earliest")
    beat(broker, "m-1", 0)
    assert starts(broker) == {0: 0, 1: 0}


def test_a_share_group_with_reset_by_duration_begins_with_records_of_that_period(broker):
    write(broker, 3)
    broker.wait(100)
    write(broker, 2)
    broker.wait(1)
    reset(broker, "by_duration:PT50S")
    answer = beat(broker, "m-1", 0)
    assert (answer.error_code, assigned(answer), starts(broker)) == (0, [0, 1], {0: 3, 1: 0})


def test_a_share_group_with_reset_by_duration_begins_at_the_end_if_all_is_older(broker):
    write(broker, 3)
    broker.wait(100)
    reset(broker, "by_duration:PT50S")
    beat(broker, "m-1", 0)
    assert starts(broker) == {0: 3, 1: 0}


def test_a_share_group_reads_an_added_partition_from_its_first_record(broker):
    beat(broker, "m-1", 0)
    assert broker.ask(grow("t", 3)).results[0].error_code == 0
    write(broker, 4, partition=2)
    broker.wait(2)
    assert assigned(beat(broker, "m-1", 2)) == [0, 1, 2]
    assert starts(broker) == {0: 0, 1: 0, 2: 0}


def test_resetting_one_share_partition_leaves_the_default_start_of_the_others(broker):
    """If they counted as partitions added to a known topic, they would begin at their first record."""
    write(broker, 3)
    write(broker, 3, partition=1)
    broker.broker.share_groups.alter("g", {(broker.broker.topics.by_name["t"].id, 0): 1})
    beat(broker, "m-1", 0)
    assert starts(broker) == {0: 1, 1: 3}


def test_a_share_group_initializes_an_offline_partition_once_it_is_back(broker):
    log = broker.broker.topics.by_name["t"].partitions[1].log
    log.offline = "for a while"
    assert assigned(beat(broker, "m-1", 0)) == [0]
    log.offline = None
    write(broker, 2, partition=1)
    broker.wait(2)
    assert (assigned(beat(broker, "m-1", 2)), starts(broker)) == ([0, 1], {0: 0, 1: 2})


# ---- the end of topics and groups ----------------------------------------------------------------------------


@pytest.mark.parametrize("crashes", [False, True])
def test_a_deleted_topic_is_removed_from_the_share_group(broker, crashes):
    beat(broker, "m-1", 0)
    assert broker.ask(delete_topic("t")).responses[0].error_code == 0
    broker = broker.after_power_cut() if crashes else broker
    assert (share_group(broker).state_partitions.initialized, broker.broker.share_partitions.of_group("g")) == ({}, [])
    broker.wait(2)
    assert assigned(beat(broker, "m-1", 2)) == []
    broker.stop()


@pytest.mark.parametrize("crashes", [False, True])
def test_a_deleted_share_group_is_not_found_and_has_no_share_partitions(broker, crashes):
    beat(broker, "m-1", 0)
    delete = DeleteGroupsRequest(groups_names=["g"])
    assert broker.ask(delete).results[0].error_code == NOT_EMPTY
    beat(broker, "m-1", -1)
    assert broker.ask(delete).results[0].error_code == 0
    broker = broker.after_power_cut() if crashes else broker
    assert (listed(broker), broker.broker.share_partitions.of_group("g")) == ([], [])
    assert broker.ask(delete).results[0].error_code == NOT_FOUND
    assert described(broker).error_code == NOT_FOUND
    broker.stop()


# ---- beside groups of other kinds ----------------------------------------------------------------------------


def test_list_groups_returns_a_share_group_with_type_share(broker):
    beat(broker, "m-1", 0)
    found = broker.ask(ListGroupsRequest(types_filter=["share"])).groups
    assert [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in found] == [
        ("g", "share", "Stable", "share")
    ]
    assert broker.ask(ListGroupsRequest(types_filter=["consumer", "classic"])).groups == []


def test_a_share_group_refuses_members_and_requests_of_other_group_types(broker):
    beat(broker, "m-1", 0)
    newer = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m-9",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    refused = broker.ask(newer)
    assert (refused.error_code, refused.error_message) == (NOT_FOUND, "Group g is not a consumer group.")
    assert broker.ask(joining("g")).error_code == INCONSISTENT
    assert commit(broker, "g", "t", {0: 1}) == [NOT_FOUND]
    assert broker.ask(ConsumerGroupDescribeRequest(group_ids=["g"])).groups[0].error_code == NOT_FOUND
    classic = broker.ask(DescribeGroupsRequest(groups=["g"])).groups[0]
    assert (classic.error_code, classic.error_message) == (NOT_FOUND, "Group g is not a classic group.")
    assert listed(broker) == ["g"]


def test_a_share_heartbeat_does_not_convert_a_group_of_another_type(broker):
    alone(broker, "classic")
    assert commit(broker, "offsets", "t", {0: 1}) == [0]
    for group in ("classic", "offsets"):
        refused = beat(broker, "m-1", 0, group)
        assert (refused.error_code, refused.error_message) == (NOT_FOUND, f"Group {group} is not a share group.")
        assert beat(broker, "m-1", -1, group).error_code == NOT_FOUND
        assert described(broker, group).error_message == f"Group {group} is not a share group."


def test_an_empty_share_group_refuses_classic_and_consumer_members(broker):
    beat(broker, "m-1", 0)
    beat(broker, "m-1", -1)
    assert broker.ask(joining("g")).error_code == INCONSISTENT
    assert commit(broker, "g", "t", {0: 1}) == [NOT_FOUND]

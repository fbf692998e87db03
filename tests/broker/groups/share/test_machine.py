"""One share group: members, epochs, what is assigned and initialized, and the errors in Kafka's order."""

import pytest
from consumer_group_driver import NoRules, topic_id
from fencepost.broker.deadlines import NEVER
from fencepost.broker.groups.share.machine import ASSIGNED_AT_ONCE, INITIALIZED_AT_ONCE, Rules
from fencepost.broker.groups.share.records import Kind, read
from fencepost.broker.security.principals import ANONYMOUS, Session
from fencepost.protocol.errors import ErrorCode, KafkaError
from share_group_driver import ShareGroupDriver

T, U = topic_id("t"), topic_id("u")
FENCED, UNKNOWN = ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID


def places(*partitions, topic=T):
    return frozenset((topic, partition) for partition in partitions)


def refusal(call, *args, **kwargs):
    with pytest.raises(KafkaError) as refused:
        call(*args, **kwargs)
    return refused.value.code, refused.value.text


def code_of(call, *args, **kwargs):
    return refusal(call, *args, **kwargs)[0]


def kinds(driver):
    return [read(key, value)[1].kind for key, value in driver.log]


@pytest.fixture
def driver():
    return ShareGroupDriver(t=2, u=1)


# ---- joining, and what is assigned ---------------------------------------------------------------------------


def test_a_first_share_heartbeat_logs_one_record_of_each_kind_and_gets_partitions(driver):
    one = driver.join("m-1", "t", "u")
    assert (one.epoch, one.owned) == (2, places(0, 1) | places(0, topic=U))
    assert (driver.group.state, driver.share_partitions) == ("Stable", one.owned)
    assert sorted(kinds(driver)) == sorted(Kind)


def test_two_share_members_that_join_in_succession_are_assigned_without_waiting(driver):
    one, two = driver.join("m-1"), driver.join("m-2")
    assert (two.epoch, len(two.owned)) == (3, 1)
    one.beat()
    assert (one.epoch, one.owned | two.owned, one.owned & two.owned) == (3, places(0, 1), frozenset())


def test_a_share_partition_may_be_assigned_to_several_members(driver):
    members = [driver.join(f"m-{number}", "u") for number in range(3)]
    for each in members:
        each.beat()
    assert [each.owned for each in members] == [places(0, topic=U)] * 3


def test_an_unchanged_share_heartbeat_logs_nothing_and_returns_no_assignment(driver):
    one = driver.join("m-1")
    before = list(driver.log)
    answer = driver.beat("m-1", one.epoch)
    assert (answer.epoch, answer.assigned, driver.log) == (one.epoch, None, before)


def test_a_share_heartbeat_that_repeats_the_topics_returns_the_assignment_again(driver):
    one = driver.join("m-1")
    answer = driver.beat("m-1", one.epoch, ["t"])
    assert (answer.epoch, answer.assigned) == (one.epoch, {T: frozenset({0, 1})})
    assert driver.beat("m-1", 0, ["t"]).assigned == {T: frozenset({0, 1})}


def test_a_changed_share_subscription_is_assigned_in_the_same_answer():
    driver = ShareGroupDriver(Rules(assignment_interval_ms=0), t=2, u=1)
    one = driver.join("m-1")
    answer = driver.beat("m-1", one.epoch, ["u"])
    assert (answer.epoch, answer.assigned) == (3, {U: frozenset({0})})


def test_a_changed_share_subscription_waits_for_the_assignment_interval(driver):
    one = driver.join("m-1")
    assert driver.beat("m-1", one.epoch, ["u"]).assigned == {}
    driver.wait(1_000)
    assert driver.beat("m-1", one.epoch).assigned == {U: frozenset({0})}


def test_partitions_of_a_departed_share_member_are_reassigned_after_the_interval(driver):
    one, two = driver.join("m-1"), driver.join("m-2")
    two.leave()
    driver.wait(1_000)
    one.beat()
    assert (one.epoch, one.owned) == (4, places(0, 1))


def test_a_topic_created_later_is_initialized_and_assigned(driver):
    one = driver.join("m-1", "t", "later")
    driver.wait(1_000)
    driver.topics.set("later", 1)
    one.beat()
    later = places(0, topic=topic_id("later"))
    assert (one.owned, later <= driver.share_partitions, driver.grown) == (places(0, 1) | later, True, set())


def test_a_share_partition_added_to_a_known_topic_begins_at_its_first_record(driver):
    one = driver.join("m-1")
    driver.wait(1_000)
    driver.topics.set("t", 4)
    one.beat()
    assert (one.owned, driver.grown) == (places(0, 1, 2, 3), set(places(2, 3)))


def test_a_recreated_topic_is_initialized_again_and_its_predecessor_dropped(driver):
    one = driver.join("m-1")
    driver.wait(1_000)
    driver.topics.set("t", None)
    one.beat()
    assert one.owned == frozenset()
    driver.wait(1_000)
    driver.topics.set("t", 1)
    one.beat()
    assert (one.owned, driver.grown) == (places(0, topic=topic_id("t", 1)), set())


# ---- share partitions ----------------------------------------------------------------------------------------


def test_a_share_partition_that_cannot_be_initialized_now_is_initialized_later(driver):
    driver.offline = set(places(1))
    one = driver.join("m-1")
    assert (one.owned, driver.group.state_partitions.initializing[T].partitions) == (places(0), {1})
    driver.restart()
    driver.wait(1_000)
    one.beat()
    assert one.owned == places(0)
    driver.offline = set()
    one.beat()
    assert (one.owned, driver.grown, driver.group.state_partitions.initializing) == (places(0, 1), set(), {})


def test_many_share_partitions_initialized_in_portions_begin_at_auto_offset_reset():
    """Partitions added to a known topic would begin at their first record instead of share.auto.offset.reset."""
    driver = ShareGroupDriver(t=INITIALIZED_AT_ONCE + 5)
    one = driver.join("m-1")
    assert len(one.owned) == INITIALIZED_AT_ONCE
    driver.wait(1_000)
    one.beat()
    assert (len(one.owned), driver.grown) == (INITIALIZED_AT_ONCE + 5, set())


def test_share_partitions_initialized_later_are_not_new_but_use_auto_offset_reset(driver):
    """New means added to a known topic; only such a partition begins at its first record."""
    driver.offline = set(places(1))
    driver.join("m-1")
    driver.offline = set()
    assert [each for each in driver.group.missing() if each.is_new] == []


def test_a_partition_without_share_state_is_not_assigned(driver):
    driver.offline = set(places(0, 1))
    assert driver.join("m-1").owned == frozenset()


def test_a_share_join_that_cannot_be_logged_changes_and_initializes_nothing(driver):
    driver.refuse = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert code_of(driver.beat, "m-1", 0, ["t"]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (list(driver.group.changes()), driver.share_partitions, driver.group.size_bytes) == ([], frozenset(), 0)
    driver.refuse = None
    assert driver.join("m-1").owned == places(0, 1)


def test_after_a_reset_of_one_share_partition_others_begin_at_auto_offset_reset(driver):
    driver.group.begin_anew([(T, 1)], driver.states((T, 1)))
    assert driver.group.state_partitions.initializing[T].partitions == {0}
    driver.restart()
    driver.topics.set("t", 3)
    assert driver.join("m-1").owned == places(0, 1, 2)
    assert driver.grown == set(places(2))


def test_after_a_reset_of_all_share_partitions_none_is_left_to_initialize(driver):
    driver.join("m-1").leave()
    driver.group.begin_anew(places(0, 1), driver.states(*places(0, 1)))
    assert (driver.group.state_partitions.initializing, driver.group.epoch.epoch) == ({}, 4)
    driver.topics.set("t", 3)
    driver.join("m-1")
    assert driver.grown == set(places(2))


# ---- epochs --------------------------------------------------------------------------------------------------


def test_a_share_member_whose_answer_was_lost_may_use_its_previous_epoch_again(driver):
    one, _ = driver.join("m-1"), driver.join("m-2")
    one.beat(lost=True)
    assert (one.epoch, driver.group.current("m-1").epoch) == (2, 3)
    one.beat()
    assert (one.epoch, len(one.owned), one.errors) == (3, 1, [])


def test_a_wrong_share_member_epoch_is_fenced_with_kafkas_text(driver):
    one = driver.join("m-1")
    assert refusal(driver.beat, "m-1", one.epoch + 1) == (
        FENCED,
        "The share group member has a greater member epoch (3) than the one known by the group coordinator (2). "
        "The member must abandon all its partitions and rejoin.",
    )
    assert refusal(driver.beat, "m-1", 1) == (
        FENCED,
        "The share group member has a smaller member epoch (1) than the one known by the group coordinator (2), and it "
        "does not match the previous member epoch (0). The member must abandon all its partitions and rejoin.",
    )


def test_a_share_heartbeat_of_an_unknown_member_gets_unknown_member_id(driver):
    driver.join("m-1")
    assert refusal(driver.beat, "m-2", 1) == (UNKNOWN, "Member m-2 is not a member of group g.")
    gone = driver.join("m-3")
    gone.leave()
    assert code_of(gone.leave) is UNKNOWN


def test_a_full_share_group_refuses_new_members_and_serves_its_own():
    driver = ShareGroupDriver(Rules(max_size=2), t=1)
    one, _ = driver.join("m-1"), driver.join("m-2")
    assert refusal(driver.beat, "m-3", 0, ["t"]) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The share group has reached its maximum capacity of 2 members.",
    )
    one.beat()
    assert one.errors == []


# ---- time, restarts, the end ---------------------------------------------------------------------------------


def test_a_silent_share_member_is_removed_and_one_that_heartbeats_stays(driver):
    one, two = driver.join("m-1"), driver.join("m-2")
    driver.wait(44_000)
    one.beat()
    driver.wait(1_000)
    assert set(driver.group.members) == {"m-1"}
    one.beat()
    assert (one.owned, two.beat(), two.errors) == (places(0, 1), None, [UNKNOWN])


def test_a_member_removal_that_cannot_be_logged_is_retried(driver):
    driver.join("m-1")
    driver.refuse = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert code_of(driver.wait, 45_000) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.refuse = None
    driver.wait(0)
    assert (driver.group.state, driver.group.wake_ms) == ("Empty", NEVER)


def test_a_restart_keeps_share_assignments_and_restarts_sessions(driver):
    one, two = driver.join("m-1"), driver.join("m-2")
    one.beat()
    driver.wait(44_000)  # less than the session timeout, 45 s
    driver.restart()
    driver.wait(44_000)
    one.beat()
    two.beat()
    assert (one.errors + two.errors, one.owned | two.owned, one.epoch) == ([], places(0, 1), 3)


def test_an_empty_share_group_keeps_share_partitions_and_assigns_a_joiner_at_once(driver):
    driver.join("m-1").leave()
    assert (driver.group.state, driver.group.epoch.epoch, driver.group.target_epoch.epoch) == ("Empty", 3, 2)
    assert 1 in driver.group.state_partitions.initialized[T].partitions
    assert driver.join("m-2").owned == places(0, 1)


def test_deleting_a_share_group_removes_its_records_unless_it_has_members(driver):
    one = driver.join("m-1")
    assert code_of(driver.group.tombstones) is ErrorCode.NON_EMPTY_GROUP
    one.leave()
    gone = driver.group.tombstones()
    assert {change.kind for change in gone} == {Kind.EPOCH, Kind.TARGET_EPOCH, Kind.STATE_PARTITIONS}
    assert all(change.value is None for change in gone)


# ---- large groups, and rights --------------------------------------------------------------------------------


def test_a_large_share_group_is_assigned_in_the_background_not_in_a_heartbeat():
    driver = ShareGroupDriver(Rules(max_size=1_000), t=1, u=ASSIGNED_AT_ONCE)
    first = driver.join("m-1")
    assert len(first.owned) == 1
    big = driver.join("m-2", "u")
    assert big.owned == frozenset()
    driver.wait(1_000)
    driver.work_out()
    big.beat()
    assert len(big.owned) == INITIALIZED_AT_ONCE


class Only(NoRules):
    """Everybody may describe some topics, and read some of these."""

    is_enforced = True

    def __init__(self, describes, reads):
        self.described, self.readable, self.version = set(describes), set(reads), 1

    def describes(self, user, topic):
        return topic in self.described

    def reads(self, user, topic):
        return topic in self.readable


def test_a_share_member_loses_topics_that_it_may_no_longer_describe():
    rights = Only({"t", "u"}, {"t", "u"})
    driver = ShareGroupDriver(rights=rights, t=1, u=1)
    one = driver.join("m-1", "t", "u", user=Session(ANONYMOUS, "127.0.0.1"))
    assert one.owned == places(0) | places(0, topic=U)
    rights.described, rights.version = {"t"}, 2
    driver.wait(1_000)
    driver.work_out()
    one.beat()
    assert one.owned == places(0)

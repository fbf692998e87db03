"""One consumer group: epochs, reconciliation, static members, timeouts, commits, and the errors in Kafka's order."""

import pytest
from consumer_group_driver import REBALANCE_MS, ConsumerGroupDriver, topic_id
from fencepost.broker.groups.consumer.heartbeats import LEAVES_FOR_A_WHILE, Heartbeat
from fencepost.broker.groups.consumer.machine import ASSIGNED_AT_ONCE, Rules
from fencepost.broker.groups.consumer.records import Kind, MemberState, Resolved, read
from fencepost.broker.groups.consumer.states import GroupState
from fencepost.protocol.errors import ErrorCode, KafkaError

T = topic_id("t")
AT_ONCE = Rules(assignment_interval_ms=0)
STALE, FENCED, UNKNOWN = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION


def places(*partitions, topic=T):
    return frozenset((topic, partition) for partition in partitions)


def code_of(call, *args, **kwargs):
    with pytest.raises(KafkaError) as refused:
        call(*args, **kwargs)
    return refused.value.code


def settle(*clients):
    for _ in range(4):
        for client in clients:
            client.beat()


@pytest.fixture
def driver():
    return ConsumerGroupDriver(AT_ONCE, t=4, u=2)


# ---- epochs and assignments ----------------------------------------------------------------------------------


def test_the_first_heartbeat_of_the_first_member_returns_all_partitions(driver):
    one = driver.join()
    assert (one.epoch, one.owned) == (2, places(0, 1, 2, 3))
    assert driver.group.state is GroupState.STABLE


def test_a_partition_moves_only_after_its_owner_revoked_it(driver):
    one = driver.join()
    two = driver.join()
    assert (two.epoch, two.owned, driver.group.state) == (3, frozenset(), GroupState.RECONCILING)
    one.beat()
    assert (one.epoch, len(one.allowed), len(one.owned)) == (2, 2, 4)
    two.beat()
    assert two.owned == frozenset()
    one.beat(revoke=False)
    two.beat()
    assert two.owned == frozenset()
    one.beat()
    assert one.epoch == 3
    two.beat()
    assert (one.owned | two.owned, one.owned & two.owned) == (places(0, 1, 2, 3), frozenset())
    assert driver.group.state is GroupState.STABLE


def test_a_heartbeat_without_changes_returns_no_assignment(driver):
    one = driver.join()
    answer = driver.beat(one.member_id, one.epoch)
    assert (answer.epoch, answer.assigned) == (2, None)
    assert len(driver.log) == 5  # the join has logged five records, the heartbeat none


def test_added_partitions_are_assigned_without_moving_others(driver):
    one, two = driver.join(), driver.join()
    settle(one, two)
    before = one.owned, two.owned
    driver.topics.set("t", 6)
    settle(one, two)
    assert (before[0] <= one.owned, before[1] <= two.owned) == (True, True)
    assert one.owned | two.owned == places(*range(6))


def test_new_topics_are_assigned_and_deleted_topics_are_revoked(driver):
    one = driver.join(topics=["t", "later"])
    driver.topics.set("later", 1)
    settle(one)
    assert places(0, topic=topic_id("later")) <= one.owned
    driver.topics.set("t", None)
    settle(one)
    assert one.owned == places(0, topic=topic_id("later"))
    driver.topics.set("t", 1)
    settle(one)
    assert places(0, topic=topic_id("t", 1)) <= one.owned


def test_a_member_that_changes_its_topics_first_revokes_the_old_partitions(driver):
    one = driver.join()
    one.topics = ("u",)
    one.beat()
    assert one.allowed == frozenset()
    settle(one)
    assert one.owned == places(0, 1, topic=topic_id("u"))


def test_members_keep_their_assignment_until_the_assignment_interval_has_passed():
    driver = ConsumerGroupDriver(Rules(assignment_interval_ms=1_000), t=2)
    one = driver.join()
    two = driver.join()
    assert (driver.group.state, two.epoch) == (GroupState.ASSIGNING, 2)
    settle(one, two)
    assert two.owned == frozenset()
    driver.wait(1_000)
    settle(one, two)
    assert (len(one.owned), len(two.owned), two.epoch) == (1, 1, 3)


def test_the_assignor_named_by_most_members_is_used(driver):
    one = driver.join(topics=["t", "u"], assignor="range")
    two = driver.join(topics=["t", "u"], assignor="range")
    settle(one, two)
    assert driver.group.assignor == "range"
    assert sorted([one.owned, two.owned], key=sorted) == [
        places(0, 1) | places(0, topic=topic_id("u")),
        places(2, 3) | places(1, topic=topic_id("u")),
    ]


def test_a_large_group_keeps_its_assignment_until_the_next_is_computed():
    driver = ConsumerGroupDriver(AT_ONCE, t=ASSIGNED_AT_ONCE)
    one, two = driver.join(), driver.join()
    assert (one.epoch, len(one.owned), two.epoch) == (2, ASSIGNED_AT_ONCE, 2)
    settle(one, two)
    assert driver.group.is_assignment_due(driver.now_ms)
    driver.work_out()
    settle(one, two)
    assert (len(one.owned), len(two.owned), one.epoch) == (ASSIGNED_AT_ONCE // 2, ASSIGNED_AT_ONCE // 2, 3)


def test_the_replacement_of_a_static_member_during_an_assignment_gets_its_partitions():
    driver = ConsumerGroupDriver(AT_ONCE, t=ASSIGNED_AT_ONCE)
    one = driver.join(instance_id="i")
    driver.join()
    epoch, steps = driver.group.begin_assignment()
    one.leave(LEAVES_FOR_A_WHILE)
    successor = driver.join("successor", instance_id="i")
    while True:
        try:
            next(steps)
        except StopIteration as end:
            driver.group.take_assignment(epoch, end.value, driver.now_ms, driver.now_ms)
            break
    settle(successor)
    assert len(successor.owned) == ASSIGNED_AT_ONCE // 2


# ---- who is refused ------------------------------------------------------------------------------------------


def test_a_wrong_member_epoch_is_fenced_but_a_retry_after_a_lost_answer_is_not(driver):
    one = driver.join()
    two = driver.join()
    assert code_of(driver.beat, one.member_id, one.epoch + 1) is FENCED
    one.beat()
    one.beat(lost=True)
    assert driver.group.current(one.member_id).epoch == one.epoch + 1
    one.beat()
    assert (one.errors, one.epoch) == ([], 3)
    settle(one, two)
    driver.join()
    settle(one, two)
    assert code_of(driver.beat, one.member_id, 2) is FENCED


def test_the_previous_epoch_is_fenced_unless_all_reported_partitions_are_assigned(driver):
    """A heartbeat that reports no owned partitions (None) is fenced, too."""
    one = driver.join()
    driver.join()
    one.beat()
    one.beat(lost=True)
    assert code_of(driver.beat, one.member_id, one.epoch, owned={T: [0, 1, 2, 3]}) is FENCED
    assert code_of(driver.beat, one.member_id, one.epoch, owned=None) is FENCED


def test_requests_of_an_unknown_member_fail_unless_it_joins(driver):
    driver.join()
    assert code_of(driver.beat, "nobody", 2) is UNKNOWN
    assert code_of(driver.group.leave, _leaving("nobody")) is UNKNOWN
    assert len(driver.join("nobody").allowed) == 0


def _leaving(member_id, instance_id=None):

    return Heartbeat(member_id, -1, instance_id=instance_id)


def test_a_full_group_refuses_new_members_and_serves_its_own():
    driver = ConsumerGroupDriver(Rules(max_size=1), t=1)
    one = driver.join()
    two = driver.join()
    assert two.errors == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    one.beat()
    assert one.errors == []


def test_a_change_that_the_log_refuses_leaves_the_group_unchanged(driver):
    one = driver.join()
    before = list(driver.group.changes())
    driver.refuse = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    two = driver.join()
    assert two.errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert code_of(one.leave) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert list(driver.group.changes()) == before
    driver.refuse = None
    settle(one, two)
    assert len(one.owned) == len(two.owned) == 2


# ---- static members ------------------------------------------------------------------------------------------


def test_a_returning_static_member_gets_its_partitions_back_and_nobody_moves(driver):
    one, two = driver.join(instance_id="i"), driver.join()
    settle(one, two)
    had, epoch = one.owned, driver.group.epoch
    one.leave(LEAVES_FOR_A_WHILE)
    assert driver.group.current(one.member_id).epoch == LEAVES_FOR_A_WHILE
    settle(two)
    again = driver.join("again", instance_id="i")
    assert (again.owned, again.epoch, driver.group.epoch) == (had, epoch.epoch, epoch)
    assert one.member_id not in driver.group.subscriptions


def test_joining_with_the_instance_id_of_a_live_member_is_refused(driver):
    one = driver.join(instance_id="i")
    other = driver.join("other", instance_id="i")
    assert other.errors == [ErrorCode.UNRELEASED_INSTANCE_ID]
    one.leave(LEAVES_FOR_A_WHILE)
    other.beat()
    assert len(other.owned) == 4
    assert code_of(driver.beat, one.member_id, 2, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert code_of(driver.beat, "x", 2, instance_id="unknown") is UNKNOWN
    assert code_of(driver.group.leave, _leaving(one.member_id, "i")) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_whose_join_was_not_answered_gets_the_same_answer_again(driver):
    one, two = driver.join(topics=["t"]), driver.join(instance_id="i")
    settle(one, two)
    had, epoch, logged = two.owned, two.epoch, len(driver.log)
    two.epoch = 0
    two.beat(lost=True)
    again = two.beat()
    assert (two.errors, two.epoch, two.owned) == ([], epoch, had)
    assert (again.assigned is not None, len(driver.log)) == (True, logged)
    driver.wait(44_000)  # less than the session timeout, 45 s
    assert driver.group.static == {"i": two.member_id}


def test_a_static_member_that_left_temporarily_may_return_with_its_member_id(driver):
    one = driver.join(instance_id="i")
    had, epoch = one.owned, driver.group.epoch
    one.leave(LEAVES_FOR_A_WHILE)
    one.beat()
    assert (one.owned, one.epoch, one.errors, driver.group.epoch) == (had, epoch.epoch, [], epoch)


def test_an_absent_static_member_is_not_removed_for_not_revoking_in_time(driver):
    fields = {"instance_id": "i", "rebalance_timeout_ms": 10_000, "topics": ("t",)}
    first = driver.beat("a", 0, owned={}, **fields)
    driver.join()
    driver.beat("a", first.epoch, instance_id="i")
    assert driver.group.current("a").state is MemberState.UNREVOKED
    driver.leave(Heartbeat("a", LEAVES_FOR_A_WHILE, instance_id="i"))
    driver.wait(20_000)
    assert "a" in driver.group.subscriptions


def test_an_assignment_that_could_not_be_logged_starts_no_assignment_interval():
    driver = ConsumerGroupDriver(Rules(assignment_interval_ms=1_000), t=4)
    one = driver.join()
    driver.wait(1_000)
    driver.topics.set("t", 5)
    driver.refuse = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    one.beat()
    driver.refuse = None
    one.beat()
    assert len(one.owned) == 5


# ---- time ----------------------------------------------------------------------------------------------------


def test_partitions_of_a_member_whose_session_timed_out_go_to_others(driver):
    one, two = driver.join(), driver.join()
    settle(one, two)
    driver.wait(30_000)
    one.beat()
    driver.wait(15_000)
    assert list(driver.group.subscriptions) == [one.member_id]
    settle(one)
    assert len(one.owned) == 4
    two.beat()
    assert two.errors == [UNKNOWN]


def test_a_member_that_does_not_give_up_its_partitions_in_time_is_removed(driver):
    one = driver.join()
    two = driver.join()
    one.beat()
    assert driver.group.current(one.member_id).state is MemberState.UNREVOKED
    for _ in range(3):
        driver.wait(REBALANCE_MS // 3)
        one.beat(revoke=False)
        two.beat()
    assert one.errors == [UNKNOWN]
    settle(two)
    assert len(two.owned) == 4


def test_session_timeouts_of_members_begin_anew_with_a_restart(driver):
    one = driver.join()
    driver.wait(40_000)
    driver.restart()
    driver.wait(40_000)
    one.beat()
    driver.wait(45_000)
    assert (one.errors, driver.group.state) == ([], GroupState.EMPTY)


# ---- regular expressions -------------------------------------------------------------------------------------


def resolve(driver, **topics):
    due = driver.group.regexes_due(driver.now_ms)
    if due:
        found = {regex: Resolved(tuple(topics.get(regex, ())), driver.topics.version, 1) for regex in due}
        driver.group.set_resolved_topics(found, driver.now_ms)
    return due


def test_topics_matching_a_regex_are_assigned_once_resolved_and_after_each_refresh(driver):
    """Resolving: the broker looks up which topics match. It does so again after regex_refresh_ms, or, if topics were
    created meanwhile, after REGEX_PAUSE_MS (10 s).
    """
    one = driver.join(topics=None, regex="x")
    assert (one.epoch, one.owned) == (1, frozenset())
    assert resolve(driver, x=["t"]) == ["x"]
    settle(one)
    assert (one.owned, driver.group.subscribes_to("t")) == (places(0, 1, 2, 3), True)
    assert resolve(driver) == []
    driver.topics.set("v", 1)
    assert resolve(driver) == []
    driver.wait(10_000)
    assert resolve(driver, x=["t", "v"]) == ["x"]
    settle(one)
    assert places(0, topic=topic_id("v")) <= one.owned
    driver.wait(10_000)
    assert resolve(driver) == []
    one.beat()
    driver.rules = driver.rules._replace(regex_refresh_ms=9_000)
    assert resolve(driver, x=["t", "v"]) == ["x"]


def test_new_partitions_of_a_regexs_topic_are_assigned_if_other_topics_are_missing(driver):
    one = driver.join(topics=["a", "b", "c"], regex="x")
    resolve(driver, x=["t"])
    settle(one)
    driver.topics.set("t", 5)
    settle(one)
    assert one.owned == places(0, 1, 2, 3, 4)


def test_a_group_refuses_an_invalid_regex_and_forgets_one_no_member_subscribes_to(driver):
    one = driver.join(topics=None, regex="(")
    assert (one.errors, driver.log) == ([ErrorCode.INVALID_REGULAR_EXPRESSION], [])
    one.fields["regex"] = "x"
    one.beat()
    resolve(driver, x=["t"])
    settle(one)
    one.fields["regex"], one.topics = "", ("u",)
    settle(one)
    assert (one.owned, driver.group.regexes) == (places(0, 1, topic=topic_id("u")), {})
    one.fields["regex"] = "x"
    one.beat()
    resolve(driver, x=["t"])
    one.leave()
    assert (driver.group.regexes, driver.group.epoch.metadata_hash) == ({}, 0)


# ---- commits -------------------------------------------------------------------------------------------------


def test_an_older_epoch_may_commit_only_partitions_assigned_up_to_it(driver):
    """Partitions that the member got later, and any newer epoch, are refused as STALE_MEMBER_EPOCH."""
    one, two = driver.join(), driver.join()
    settle(one, two)
    group, kept = driver.group, next(iter(one.owned))[1]
    got = next(iter(two.owned))[1]

    def check(client, epoch, partition, version=9):
        group.check_commit(client.member_id, None, epoch, [(T, partition)], version=version)

    check(one, 3, kept)
    check(one, 2, kept)
    check(two, 3, got)
    assert code_of(check, one, 1, kept) is STALE
    assert code_of(check, one, 4, kept) is STALE
    assert code_of(check, one, 2, got) is STALE
    assert code_of(check, two, 2, got) is STALE
    assert code_of(check, two, 2, got, version=None) is ILLEGAL
    assert code_of(check, two, 3, got, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert code_of(group.check_commit, "x", None, 3, [], version=9) is UNKNOWN
    assert code_of(group.check_commit, "", None, -1, [], version=9) is UNKNOWN
    group.check_commit("", None, -1, [], version=None)
    assert code_of(group.check_commit, "", "i", -1, [], version=None) is UNKNOWN


def test_offsets_of_partitions_being_revoked_can_still_be_committed(driver):
    one = driver.join()
    driver.join()
    one.beat()
    for _, partition in one.owned:
        driver.group.check_commit(one.member_id, None, 2, [(T, partition)], version=9)


def test_an_older_epoch_may_commit_partitions_that_are_being_revoked(driver):
    one = driver.join()
    driver.topics.set("t", 5)
    one.beat()
    driver.join()
    one.beat()
    current = driver.group.current(one.member_id)
    assert (one.epoch, current.state, sorted(current.revoking[T])) == (3, MemberState.UNREVOKED, [3, 4])
    driver.group.check_commit(one.member_id, None, 2, [(T, 3)], version=9)
    assert code_of(driver.group.check_commit, one.member_id, None, 2, [(T, 4)], version=9) is STALE


def test_an_empty_group_accepts_commits_without_a_member_id_but_not_with_a_wrong_one(driver):
    driver.group.check_commit("", None, -1, [], version=2)
    one = driver.join()
    one.leave()
    driver.group.check_commit("", None, -1, [], version=2)
    assert code_of(driver.group.check_commit, "x", None, 3, [], version=9) is UNKNOWN


def test_fetching_offsets_needs_the_current_epoch_or_no_member_id_at_all(driver):
    one = driver.join()
    driver.group.check_fetch(None, -1)
    driver.group.check_fetch(one.member_id, one.epoch)
    assert code_of(driver.group.check_fetch, one.member_id, one.epoch - 1) is STALE
    assert code_of(driver.group.check_fetch, "x", 2) is UNKNOWN
    assert code_of(driver.group.check_fetch, None, 2) is UNKNOWN
    assert code_of(driver.group.check_fetch, "x", -1) is UNKNOWN


# ---- the end -------------------------------------------------------------------------------------------------


def test_only_an_empty_group_is_deleted(driver):
    one = driver.join()
    assert code_of(driver.group.tombstones) is ErrorCode.NON_EMPTY_GROUP
    one.leave()
    written = {key for key, value in dict(driver.log).items() if value is not None}
    assert {read(key, None)[1] for key in written} < set(driver.group.tombstones())
    assert {change.kind for change in driver.group.tombstones()} == {
        Kind.EPOCH,
        Kind.TARGET_EPOCH,
        Kind.PARTITION_METADATA,
    }

"""What a group does over time: delays, timeouts, votes, limits, and a log that cannot be written."""

import pytest
from fencepost.broker.groups.members import Leaving
from fencepost.broker.groups.states import State
from fencepost.protocol.errors import ErrorCode, KafkaError
from group_driver import REBALANCE_MS, SESSION_MS, GroupDriver

DELAY_MS = 3_000
NO_ROOM = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no room")


# ---- joining -------------------------------------------------------------------------------------------------


def test_the_first_member_waits_for_others_no_longer_than_the_initial_delay() -> None:
    driver = GroupDriver(initial_delay_ms=DELAY_MS)
    _, answer = driver.member()
    driver.wait(DELAY_MS - 1)
    assert answer.got is None
    driver.wait(1)
    assert (answer.error, answer.got.generation) == (ErrorCode.NONE, 1)


def test_members_joining_in_the_initial_delay_extend_it_up_to_the_rebalance_timeout() -> None:
    driver = GroupDriver(initial_delay_ms=DELAY_MS)
    answers = [driver.member(rebalance_timeout_ms=10_000)[1]]
    for _ in range(19):
        driver.wait(500)
        answers.append(driver.member(rebalance_timeout_ms=10_000)[1])
    driver.wait(499)
    assert all(answer.got is None for answer in answers)
    driver.wait(1)  # now the first member has waited for its rebalance timeout
    assert [answer.got.generation for answer in answers] == [1] * 20


def test_the_initial_delay_ends_after_one_such_period_without_a_new_member() -> None:
    """The second member joins in the first period of group.initial.rebalance.delay.ms: the join ends after two."""
    driver = GroupDriver(initial_delay_ms=DELAY_MS)
    driver.member()
    driver.wait(1_000)
    _, second = driver.member()
    driver.wait(DELAY_MS - 1_000)
    assert second.got is None
    driver.wait(DELAY_MS)
    assert second.error is ErrorCode.NONE


def test_a_later_rebalance_ends_as_soon_as_all_members_rejoined() -> None:
    driver = GroupDriver(initial_delay_ms=DELAY_MS)
    (first,) = driver.stable()
    _, second = driver.member()
    answer = driver.join(first)
    assert (answer.got.generation, second.got.generation) == (2, 2)


def test_the_common_protocol_with_most_votes_wins_and_the_oldest_member_breaks_ties() -> None:
    driver = GroupDriver(initial_delay_ms=DELAY_MS)
    preferences = [("range", "sticky"), ("sticky", "range"), ("sticky", "other", "range"), ("range", "sticky")]
    answers = [driver.member(protocols=tuple((name, b"") for name in names))[1] for names in preferences]
    driver.wait(2 * DELAY_MS)
    assert {answer.got.protocol for answer in answers} == {"range"}
    roster = answers[0].got.roster
    assert answers[0].got.leader == roster[0].member_id
    assert all(not answer.got.roster for answer in answers[1:])


def test_a_protocol_unknown_only_to_departed_members_can_be_chosen() -> None:
    driver = GroupDriver()
    (first,) = driver.stable(protocols=(("range", b""), ("sticky", b"")))
    second, _ = driver.member(protocols=(("range", b""),))
    assert driver.join(protocols=(("sticky", b""),)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    driver.leave(second)
    assert driver.join(protocols=(("sticky", b""),)).error is ErrorCode.MEMBER_ID_REQUIRED
    assert first in driver.group.members


def test_a_pending_member_that_does_not_rejoin_is_removed_after_its_session() -> None:
    driver = GroupDriver()
    (first,) = driver.stable()
    driver.join()
    answer = driver.join(first)
    driver.wait(SESSION_MS - 1)
    assert answer.got is None
    driver.wait(1)
    assert answer.error is ErrorCode.NONE
    assert not driver.group.pending


def test_a_group_accepts_members_up_to_its_maximum_size() -> None:
    driver = GroupDriver(max_size=2)
    ids = driver.stable(2)
    refused = driver.join(must_know_id=False)
    assert (refused.error, refused.got.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert driver.group.state is State.STABLE
    driver.join(ids[0])
    assert driver.join(ids[1]).error is ErrorCode.NONE


def test_lowering_the_group_size_limit_refuses_the_last_members_to_rejoin() -> None:
    driver = GroupDriver()
    ids = driver.stable(3)
    driver.rules = driver.rules._replace(max_size=2)
    driver.restarted()
    assert driver.group.state is State.PREPARING_REBALANCE
    answers = [driver.join(member_id) for member_id in ids]
    assert [answer.error for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]


def test_a_client_of_a_version_without_member_id_required_is_a_member_at_once() -> None:
    """Before version 4 of JoinGroup no client knows MEMBER_ID_REQUIRED (KIP-394)."""
    driver = GroupDriver()
    answer = driver.join(must_know_id=False)
    driver.wait(0)
    assert (answer.error, answer.got.member_id) == (ErrorCode.NONE, "m1")
    driver.join(must_know_id=False)
    assert list(driver.group.members) == ["m1", "m2"]
    assert not driver.group.pending


@pytest.mark.parametrize("most", [3, 300])
def test_only_a_limited_number_of_pending_members_get_ids(most: int) -> None:
    driver = GroupDriver(max_pending=most)
    errors = [driver.join().error for _ in range(most + 1)]
    assert errors == [ErrorCode.MEMBER_ID_REQUIRED] * most + [ErrorCode.GROUP_MAX_SIZE_REACHED]
    driver.wait(SESSION_MS)
    assert driver.join().error is ErrorCode.MEMBER_ID_REQUIRED


def test_a_join_retried_on_another_connection_is_answered_there_only() -> None:
    driver = GroupDriver(initial_delay_ms=DELAY_MS)
    member_id, first = driver.member()
    second = driver.join(member_id)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.wait(DELAY_MS)
    assert second.error is ErrorCode.NONE


def test_a_sync_retried_on_another_connection_is_answered_there() -> None:
    driver = GroupDriver()
    ids = driver.stable(2)
    driver.join(ids[0])
    driver.join(ids[1])
    first, second = driver.sync(ids[1]), driver.sync(ids[1])
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.sync(ids[0], {ids[1]: b"x"})
    assert second.got.assignment == b"x"


# ---- time ----------------------------------------------------------------------------------------------------


def test_a_member_silent_for_its_session_is_removed_and_the_others_rebalance() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2)
    for _ in range(4):
        driver.wait(SESSION_MS // 4)
        if driver.group.state is State.STABLE:
            assert driver.heartbeat(first) is ErrorCode.NONE
    assert driver.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(second) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_keep_a_member_alive_as_heartbeats_do() -> None:
    driver = GroupDriver()
    (member_id,) = driver.stable()
    for _ in range(5):
        driver.wait(SESSION_MS - 1)
        assert driver.commit(member_id) is ErrorCode.NONE


@pytest.mark.parametrize("off", [-1, 1])
def test_commits_and_syncs_of_another_generation_are_refused(off: int) -> None:
    driver = GroupDriver()
    (member_id,) = driver.stable()
    driver.join(member_id)
    assert driver.sync(member_id, generation=driver.group.generation + off).error is ErrorCode.ILLEGAL_GENERATION
    assert driver.sync(member_id, {member_id: b"x"}).error is ErrorCode.NONE
    for transactional in (False, True):
        reported = driver.commit(member_id, driver.group.generation + off, transactional=transactional)
        assert reported is ErrorCode.ILLEGAL_GENERATION


def test_a_sync_with_a_protocol_other_than_the_generations_is_refused() -> None:
    driver = GroupDriver()
    (member_id,) = driver.stable()
    for fields in (
        {"protocol_type": "consumer"},
        {"protocol": "range"},
        {"protocol_type": "consumer", "protocol": "range"},
    ):
        assert driver.sync(member_id, **fields).error is ErrorCode.NONE
    for fields in (
        {"protocol_type": "connect"},
        {"protocol_type": "stream"},
        {"protocol": "a"},
        {"protocol": "sticky"},
    ):
        assert driver.sync(member_id, **fields).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("changed", [b"a", b"z"])
def test_a_join_with_a_changed_subscription_starts_a_rebalance(changed: bytes) -> None:
    driver = GroupDriver()
    _, follower = driver.stable(2, protocols=(("range", b"m"),))
    assert driver.join(follower, protocols=(("range", b"m"),)).got.generation == 1, "unchanged: told again"
    assert driver.join(follower, protocols=(("range", changed),)).got is None
    assert driver.group.state is State.PREPARING_REBALANCE


def test_a_commit_without_a_member_id_needs_an_empty_group_or_a_transaction() -> None:
    """Such commits come from clients that assign their partitions themselves, and from old clients in transactions."""
    driver = GroupDriver()
    assert driver.commit("", -1) is ErrorCode.NONE
    (member_id,) = driver.stable()
    assert driver.commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit("", -1, transactional=True) is ErrorCode.NONE
    for transactional in (False, True):
        assert driver.commit("", driver.group.generation, transactional=transactional) is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.commit("gone", transactional=transactional) is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.commit(member_id, transactional=transactional) is ErrorCode.NONE


def test_a_member_waiting_for_its_join_answer_needs_no_heartbeats() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2, session_timeout_ms=6_000)
    answer = driver.join(first, session_timeout_ms=6_000)
    for _ in range(10):
        driver.wait(5_000)
        driver.heartbeat(second)  # alive, but not back
    assert first in driver.group.members
    driver.wait(10_000)
    assert (answer.error, list(driver.group.members)) == (ErrorCode.NONE, [first])


def test_a_group_whose_members_all_timed_out_is_logged_as_empty() -> None:
    driver = GroupDriver()
    driver.stable(3)
    driver.wait(SESSION_MS + REBALANCE_MS)
    assert (driver.group.state, driver.logged[-1].members) == (State.EMPTY, ())
    assert driver.logged[-1].generation == driver.group.generation


def test_a_static_member_that_does_not_rejoin_stays_until_its_session_ends() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2, static=True, rebalance_timeout_ms=2_000)
    answer = driver.join(first, "i0", rebalance_timeout_ms=2_000)
    driver.wait(2_000)
    assert [each.member_id for each in answer.got.roster] == [first, second]
    driver.wait(SESSION_MS + 4_000)
    assert second not in driver.group.members


def test_a_rebalance_waits_while_no_static_member_has_rejoined() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2, static=True, rebalance_timeout_ms=2_000)
    driver.leave(Leaving("", "i0"))
    for _ in range(4):
        driver.wait(2_000)
        assert driver.heartbeat(second, instance_id="i1") is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(second, "i1", rebalance_timeout_ms=2_000).got.leader == second
    assert first not in driver.group.members


def test_a_late_static_member_does_not_extend_the_rebalance_timeout() -> None:
    """While no member is back, the timeout begins again each time. A join in between does not move its end."""
    driver = GroupDriver()
    _, second, third = driver.stable(3, static=True, rebalance_timeout_ms=2_000)
    driver.leave(Leaving("", "i0"))
    driver.wait(3_000)  # nobody was back in time
    answer = driver.join(second, "i1", rebalance_timeout_ms=2_000)
    assert answer.got is None
    driver.wait(1_000)
    assert [each.member_id for each in answer.got.roster] == [second, third]


def test_a_static_member_waiting_for_sync_is_fenced_by_its_replacement() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2, static=True)
    driver.join(first, "i0")
    driver.join(second, "i1")
    waits = driver.sync(second, instance_id="i1")
    driver.join("", "i1")
    assert waits.error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_rejoins_before_its_sync_has_the_remaining_sync_time() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2, static=True)
    driver.join(first, "i0")
    driver.join(second, "i1")
    driver.sync(first, {}, instance_id="i0")
    new = driver.join("", "i1").got.member_id
    for _ in range(REBALANCE_MS // 5_000):
        driver.heartbeat(first, instance_id="i0")
        driver.heartbeat(new, instance_id="i1")
        driver.wait(5_000)
    assert (driver.group.state, list(driver.group.members)) == (State.PREPARING_REBALANCE, [first])


def test_a_member_missing_from_the_leaders_assignment_gets_an_empty_one() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2)
    driver.join(first)
    driver.join(second)
    driver.sync(first, {first: b"all"})
    assert driver.sync(second).got.assignment == b""
    driver.restarted()
    assert driver.sync(second).got.assignment == b""


def test_a_returning_static_member_that_changes_the_protocol_starts_a_rebalance() -> None:
    driver = GroupDriver()
    driver.stable(static=True, protocols=(("range", b""), ("sticky", b"")))
    answer = driver.join("", "i0", protocols=(("sticky", b""), ("range", b"")))
    assert (answer.got.generation, answer.got.protocol) == (2, "sticky")


# ---- nobody is left waiting ----------------------------------------------------------------------------------


def test_of_two_members_with_the_same_instance_id_only_the_later_stays() -> None:
    driver = GroupDriver(initial_delay_ms=3_000)
    first, second = driver.join("", "i"), driver.join("", "i")
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    driver.wait(6_000)
    assert second.error is ErrorCode.NONE
    assert len(driver.group.members) == 1


def test_a_member_waiting_for_its_sync_answer_needs_no_heartbeats() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2, session_timeout_ms=6_000)
    driver.join(first, session_timeout_ms=6_000)
    driver.join(second, session_timeout_ms=6_000)
    waits = driver.sync(second)
    for _ in range(10):
        driver.wait(4_000)
        driver.heartbeat(first)
    driver.sync(first, {first: b"1", second: b"2"})
    assert waits.got.assignment == b"2"
    driver.wait(5_999)
    assert driver.heartbeat(second) is ErrorCode.NONE


def test_when_the_leader_leaves_members_waiting_for_sync_get_rebalance_in_progress() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2)
    driver.join(first)
    driver.join(second)
    waits = driver.sync(second)
    driver.leave(first)
    assert waits.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(second).got.leader == second


def test_a_member_removed_while_it_waits_gets_unknown_member_id() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2, static=True)
    driver.join(first, "i0")
    driver.join(second, "i1")
    waits = driver.sync(second, instance_id="i1")
    driver.leave(Leaving("", "i1"))
    assert waits.error is ErrorCode.UNKNOWN_MEMBER_ID


# ---- the log -------------------------------------------------------------------------------------------------


def test_an_assignment_that_cannot_be_logged_is_sent_to_no_member() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2)
    driver.join(first)
    driver.join(second)
    follower = driver.sync(second)
    driver.log_fails = NO_ROOM
    leader = driver.sync(first, {first: b"1", second: b"2"})
    assert (leader.error, follower.error) == (NO_ROOM.code, NO_ROOM.code)
    assert (leader.got.assignment, driver.group.state) == (b"", State.PREPARING_REBALANCE)
    driver.log_fails = None
    driver.join(first)
    assert driver.join(second).error is ErrorCode.NONE


def test_if_a_returning_static_member_cannot_be_logged_the_old_member_stays() -> None:
    driver = GroupDriver()
    (member_id,) = driver.stable(static=True)
    driver.log_fails = NO_ROOM
    assert driver.join("", "i0").error is NO_ROOM.code
    assert driver.heartbeat(member_id, instance_id="i0") is ErrorCode.NONE
    assert driver.group.leader == member_id


def test_a_restart_restores_the_last_generation_and_its_assignments() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2)
    driver.now_ms += 3_600_000  # the broker was away for an hour
    driver.restarted()
    assert driver.group.state is State.STABLE
    for member_id in (first, second):
        assert driver.heartbeat(member_id) is ErrorCode.NONE
        assert driver.sync(member_id).got.assignment == member_id.encode()
        assert driver.commit(member_id) is ErrorCode.NONE


def test_a_restored_group_is_written_as_the_same_record() -> None:
    driver = GroupDriver()
    driver.stable(3, static=True)
    driver.restarted()
    assert driver.group.to_keep() == driver.logged[-1]


def test_restored_members_that_stay_silent_are_removed_after_a_session() -> None:
    driver = GroupDriver()
    driver.stable(2)
    driver.restarted()
    driver.wait(SESSION_MS + REBALANCE_MS)
    assert driver.group.state is State.EMPTY


@pytest.mark.parametrize(
    ("protocol_type", "subscription", "topics"),
    [
        ("consumer", b"\0\3\0\0\0\1\0\5topicwhatever", {"topic"}),
        ("consumer", b"\0\0\0\0\0\0", set()),
        ("consumer", b"x", None),
        ("consumer", b"\0\0\x7f\xff\xff\xff", None),
        ("connect", b"\0\3\0\0\0\1\0\5topic", None),
    ],
)
def test_subscribed_topics_of_a_classic_group_are_read_from_its_members_metadata(
    protocol_type: str, subscription: bytes, topics: object
) -> None:
    """They are unknown (None) if the metadata does not parse, or if the protocol type is not "consumer"."""
    driver = GroupDriver()
    driver.stable(protocol_type=protocol_type, protocols=(("range", subscription),))
    assert driver.group.subscribed_topics == topics


def test_after_the_largest_generation_comes_generation_1() -> None:
    driver = GroupDriver()
    (member_id,) = driver.stable()
    for before, after in ((29, 30), (2**31 - 2, 2**31 - 1), (2**31 - 1, 1)):
        driver.group.generation = before
        driver.group.leader = member_id
        assert driver.join(member_id, protocols=(("range", b"%d" % before),)).got.generation == after
        driver.sync(member_id, {member_id: b"all"})


@pytest.mark.parametrize("next_id", [0, 800])  # ids that come before and after the others'
@pytest.mark.parametrize("leads", [False, True])
def test_a_returning_static_member_is_leader_only_if_it_was_before(next_id: int, leads: bool) -> None:
    driver = GroupDriver()
    driver.ids = 500
    led, _ = driver.stable(2, static=True)
    driver.ids = next_id
    returned = driver.join("", "i0" if leads else "i1").got
    assert (returned.leader == returned.member_id, returned.skip_assignment) == (leads, leads)
    assert leads or returned.leader == led

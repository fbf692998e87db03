"""Bugs that other brokers had in their groups, one named test each."""

from fencepost.broker.groups.states import State
from fencepost.protocol.errors import ErrorCode
from group_driver import REBALANCE_MS, SESSION_MS, GroupDriver

NONE = ErrorCode.NONE
FIVE_MINUTES_MS = 300_000


def test_kafka_7610_old_clients_dead_in_their_first_join_are_removed_in_5_minutes() -> None:
    driver = GroupDriver()
    (first,) = driver.stable(rebalance_timeout_ms=3_600_000)
    ghosts = [driver.join(must_know_id=False, rebalance_timeout_ms=3_600_000) for _ in range(3)]
    for _ in range(FIVE_MINUTES_MS // 5_000):
        driver.heartbeat(first)
        driver.wait(5_000)
    assert [ghost.error for ghost in ghosts] == [ErrorCode.UNKNOWN_MEMBER_ID] * 3
    assert list(driver.group.members) == [first]


def test_kafka_7824_a_newcomer_that_tries_again_and_again_does_not_fill_the_group() -> None:
    driver = GroupDriver()
    driver.stable()
    for _ in range(100):
        driver.join()
    assert len(driver.group.members) == 1
    assert driver.group.state is State.STABLE


def test_kafka_9232_a_new_member_that_falls_silent_is_removed_after_its_session() -> None:
    driver = GroupDriver()
    (first,) = driver.stable()
    second = driver.join(must_know_id=False)
    driver.join(first)
    ids = driver.synced([first, second.got.member_id])
    for _ in range(3):
        driver.heartbeat(first)
        driver.wait(SESSION_MS // 2)
    assert ids[1] not in driver.group.members


def test_kafka_9801_a_static_member_that_rejoins_during_a_sync_gets_its_assignment() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2, static=True)
    driver.join(first, "i0")
    driver.join(second, "i1")
    returned = driver.join("", "i1")  # the leader was told of the old id, and will assign to that
    assert driver.sync(first, {first: b"1", second: b"2"}).error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(first, "i0")
    new = returned.got.member_id
    assigned = driver.sync(new, generation=returned.got.generation, instance_id="i1")
    driver.sync(first, {first: b"1", new: b"2"})
    assert assigned.got.assignment == b"2"


def test_kafka_10284_the_new_id_of_a_static_member_survives_a_restart() -> None:
    driver = GroupDriver()
    (old,) = driver.stable(static=True)
    new = driver.join("", "i0").got.member_id
    driver.restarted()
    assert driver.heartbeat(new, instance_id="i0") is NONE
    assert driver.heartbeat(old, instance_id="i0") is ErrorCode.FENCED_INSTANCE_ID
    assert driver.sync(new, instance_id="i0").got.assignment == old.encode()


def test_kafka_12890_members_that_never_sync_do_not_hold_up_a_group_for_ever() -> None:
    driver = GroupDriver()
    first, second = driver.stable(2)
    driver.join(first)
    driver.join(second)
    waits = driver.sync(second)
    for _ in range(REBALANCE_MS // 5_000):
        driver.heartbeat(first)  # the leader lives, and never assigns
        driver.wait(5_000)
    assert waits.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(driver.group.members) == [second]


def test_kafka_13435_a_returning_static_leader_gets_the_members_and_skips_assignment() -> None:
    """A client that does not know skip_assignment gets no members, so that it does not assign either."""
    driver = GroupDriver()
    old, other = driver.stable(2, static=True)
    returned = driver.join("", "i0").got
    assert (returned.leader, returned.skip_assignment) == (returned.member_id, True)
    assert {each.member_id for each in returned.roster} == {returned.member_id, other}
    again = driver.join("", "i0", may_skip_assignment=False).got
    assert (again.leader, again.skip_assignment, again.roster) == (returned.member_id, False, ())
    assert old not in driver.group.members

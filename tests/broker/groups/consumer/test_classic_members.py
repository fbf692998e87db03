"""Members of the classic protocol in a consumer group: joins, assignments, deadlines, and the way back."""

import pytest
from consumer_group_driver import REBALANCE_MS, topic_id
from fencepost.broker.groups.consumer.classic_members import Caller
from fencepost.broker.groups.consumer.migration import Policy
from fencepost.broker.groups.consumer.records import MemberState
from fencepost.broker.groups.members import Leaving
from fencepost.broker.groups.states import State
from fencepost.protocol.errors import ErrorCode, KafkaError
from migration_driver import COOPERATIVE, SESSION_MS, MigrationDriver

T = topic_id("t")
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


def places(*partitions):
    return frozenset((T, partition) for partition in partitions)


@pytest.fixture
def driver():
    return MigrationDriver(t=4)


def settle(*clients):
    for _ in range(9):
        for client in clients:
            client.step() if hasattr(client, "step") else client.beat()


def mixed(driver, protocol="range"):
    """A classic member with two partitions and one of the newer protocol with the others."""
    old = driver.classic_member(protocol)
    old.settle()
    new = driver.join()
    settle(old, new)
    assert (old.owned | new.owned, old.owned & new.owned) == (places(0, 1, 2, 3), frozenset())
    return old, new


# ---- in the group --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["range", COOPERATIVE])
def test_members_of_both_protocols_share_the_partitions(driver, protocol):
    old, new = mixed(driver, protocol)
    assert (len(old.owned), len(new.owned)) == (2, 2)
    assert old.generation == new.epoch == driver.group.epoch.epoch
    assert [driver.heartbeat(Caller(old.member_id, None, old.generation))] == [ErrorCode.NONE]


def test_a_cooperative_members_partition_moves_only_after_the_member_gave_it_up(driver):
    old = driver.classic_member(COOPERATIVE)
    old.settle()
    new = driver.join()
    old.step()  # is told to rejoin
    old.step()  # joins, and learns what to give up when it asks for its assignment
    old.step()
    assert driver.group.current(old.member_id).state is MemberState.UNREVOKED
    new.beat()
    assert new.owned == frozenset()
    settle(old, new)
    assert (len(old.owned), len(new.owned)) == (2, 2)


def test_a_classic_member_is_told_to_rejoin_when_its_target_partition_is_free(driver):
    new = driver.join()
    old = driver.classic_member()
    old.settle()
    assert (old.owned, old.is_stable) == (frozenset(), True)
    old.step()
    assert old.errors == []
    new.beat()
    old.step()
    assert old.errors == []
    new.beat()  # reports that it has given up the partition
    old.step()
    assert old.errors == [REBALANCING]
    old.settle()
    assert len(old.owned) == 2


def test_a_classic_members_session_timeout_is_the_one_of_its_last_join(driver):
    old, new = mixed(driver)
    for _ in range(2):
        driver.wait(SESSION_MS - 1_000)
        new.beat()
        old.step()
    assert old.member_id in driver.member_ids
    driver.wait(SESSION_MS - 1_000)
    new.beat()
    driver.wait(1_001)
    assert driver.member_ids == {new.member_id}


def test_a_classic_member_that_does_not_rejoin_in_time_is_removed(driver):
    old, new = mixed(driver)
    new.topics = ("t", "u")
    new.beat()
    for _ in range(REBALANCE_MS // 10_000):
        assert driver.heartbeat(Caller(old.member_id, None, old.generation)) is REBALANCING
        driver.wait(10_000)
        new.beat()
    assert driver.member_ids == {new.member_id}


def test_a_classic_member_that_does_not_sync_in_time_is_removed(driver):
    new = driver.join()
    old = driver.classic_member()
    old.step()
    assert old.member_id in driver.member_ids
    old._waiting = None  # it never asks for its assignment
    for _ in range(REBALANCE_MS // 10_000):
        assert old.member_id in driver.member_ids
        driver.heartbeat(Caller(old.member_id, None, driver.group.current(old.member_id).epoch))
        driver.wait(10_000)
        new.beat()
    assert driver.member_ids == {new.member_id}


def test_consumer_group_heartbeat_makes_a_classic_member_a_consumer_protocol_member(driver):
    old, new = mixed(driver)
    driver.heartbeat(Caller(old.member_id, None, old.generation))
    driver.beat(old.member_id, 0, rebalance_timeout_ms=REBALANCE_MS, topics=("t",), owned={})
    assert driver.group.classic_members == 0
    assert driver.heartbeat(Caller(old.member_id, None, old.generation)) is ErrorCode.UNKNOWN_MEMBER_ID
    new.beat()
    driver.wait(30_000)
    assert len(driver.member_ids) == 2


def test_a_classic_members_request_with_a_wrong_generation_is_refused(driver):
    old, _ = mixed(driver)
    for generation in (old.generation - 1, old.generation + 1):
        assert driver.heartbeat(Caller(old.member_id, None, generation)) is ErrorCode.ILLEGAL_GENERATION


def test_a_classic_member_without_a_protocol_in_common_is_refused(driver):
    mixed(driver, "range")
    other = driver.classic_member(COOPERATIVE)
    other.step()
    assert (other.errors, driver.group.classic_members) == ([ErrorCode.INCONSISTENT_GROUP_PROTOCOL], 1)


def test_everything_a_classic_member_reported_survives_a_restart(driver):
    old, new = mixed(driver)
    before = {change[:2]: change.value for change in driver.group.changes()}
    driver.restart()
    assert {change[:2]: change.value for change in driver.group.changes()} == before
    assert driver.group.classic_protocols == {"range": 1}
    old.errors.clear()
    old.step()
    new.beat()
    assert old.errors == new.errors == []


def test_a_classic_members_join_that_cannot_be_logged_leaves_the_group_unchanged(driver):
    new = driver.join()
    old = driver.classic_member()
    before = {change[:2]: change.value for change in driver.group.changes()}
    driver.refuse = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    other = driver.classic_member(instance_id="i")
    other.step()
    driver.refuse = None
    assert other.errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert {change[:2]: change.value for change in driver.group.changes()} == before
    old.settle()
    settle(new, old)
    assert len(old.owned) == 2


# ---- upgrade -------------------------------------------------------------------------------------------------


def test_upgrading_a_classic_group_moves_no_partition(driver):
    one, two = driver.classic_member(), driver.classic_member()
    settle(one, two)
    had = {one.member_id: one.owned, two.member_id: two.owned}
    new = driver.join()
    held = {
        member_id: frozenset((t, p) for t, epochs in driver.group.current(member_id).assigned.items() for p in epochs)
        for member_id in had
    }
    assert (held, new.owned, driver.classic) == (had, frozenset(), None)


def test_partitions_a_cooperative_member_still_reads_are_not_reassigned(driver):
    one = driver.classic_member(COOPERATIVE)
    one.settle()
    two = driver.classic_member(COOPERATIVE)
    two.step()
    one.step()  # is told to rejoin
    one.step()  # joins
    two.step()
    assert driver.classic is not None
    assert driver.classic.state is State.COMPLETING_REBALANCE
    driver.classic_member(COOPERATIVE).step()  # another rebalance: assignments are dropped
    assert driver.classic.state is State.PREPARING_REBALANCE
    assert one.owned == places(0, 1, 2, 3)
    new = driver.join()
    current = driver.group.current(one.member_id)
    assert (current.state, set(current.revoking[T])) == (MemberState.UNREVOKED, {0, 1, 2, 3})
    for _ in range(3):
        new.beat()
    assert new.owned == frozenset()


@pytest.mark.parametrize("policy", [Policy.DISABLED, Policy.DOWNGRADE])
def test_with_upgrades_off_a_classic_group_refuses_consumer_protocol_members(driver, policy):
    driver.policy = policy
    old = driver.classic_member()
    old.settle()
    new = driver.join()
    assert new.errors == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert old.step() is None
    assert (old.errors, len(old.owned)) == ([], 4)


def test_a_classic_group_above_the_consumer_group_size_limit_is_not_upgraded(driver):
    driver.rules = driver.rules._replace(max_size=1)
    settle(driver.classic_member(), driver.classic_member())
    assert driver.join().errors == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert driver.consumer is None


def test_a_classic_member_waiting_in_a_rebalance_is_told_to_rejoin_at_an_upgrade(driver):
    one = driver.classic_member()
    one.settle()
    two = driver.classic_member()
    two.step()
    assert two.is_waiting
    new = driver.join()
    two.step()
    assert two.errors == [REBALANCING]
    settle(one, two, new)
    assert sorted(map(len, (one.owned, two.owned, new.owned))) == [1, 1, 2]


def test_a_static_member_that_upgrades_during_a_rebalance_is_assigned_partitions(driver):
    one = driver.classic_member()
    one.settle()
    waiting = driver.classic_member(instance_id="i")
    assert waiting.is_waiting
    new = driver.join(instance_id="i")  # replaces the waiting member, with the same subscription
    settle(one, new)
    assert (len(one.owned), len(new.owned)) == (2, 2)


def test_an_upgrade_of_a_classic_group_that_cannot_be_logged_changes_nothing(driver):
    old = driver.classic_member()
    old.settle()
    driver.refuse = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    new = driver.join()
    driver.refuse = None
    assert (new.errors, driver.consumer) == ([ErrorCode.COORDINATOR_NOT_AVAILABLE], None)
    old.step()
    assert (old.errors, len(old.owned)) == ([], 4)


# ---- downgrade -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["leaves", "is silent", "is removed by an admin"])
def test_a_group_is_downgraded_when_its_last_consumer_protocol_member_leaves(driver, way):
    old, new = mixed(driver)
    if way == "leaves":
        new.leave()
    elif way == "is silent":
        driver.wait(30_000)
        old.step()
        driver.wait(15_001)
    else:
        assert driver.leave_group(Leaving(new.member_id)) is ErrorCode.NONE
    assert driver.classic is not None
    assert (driver.consumer, driver.classic.state) == (None, State.PREPARING_REBALANCE)
    assert driver.may_commit(old.member_id, old.generation, old.owned)
    settle(old)
    assert (old.errors, old.owned) == ([REBALANCING, REBALANCING], places(0, 1, 2, 3))


@pytest.mark.parametrize("policy", [Policy.UPGRADE, Policy.DISABLED])
def test_with_downgrades_off_classic_members_stay_in_the_consumer_group(driver, policy):
    old, new = mixed(driver)
    driver.policy = policy
    new.leave()
    assert driver.classic is None
    driver.policy = Policy.UPGRADE
    settle(old)
    assert old.owned == places(0, 1, 2, 3)


def test_a_group_too_large_for_a_classic_group_is_not_downgraded(driver):
    one, new = mixed(driver)
    two = driver.classic_member()
    settle(one, two, new)
    driver.rules = driver.rules._replace(classic_max_size=1)
    new.leave()
    assert driver.classic is None
    settle(one, two)
    assert one.owned | two.owned == places(0, 1, 2, 3)


def test_a_static_member_that_changes_its_protocol_and_back_keeps_its_partitions(driver):
    old = driver.classic_member(instance_id="i")
    old.settle()
    new = driver.join(instance_id="i")
    assert (new.epoch, new.owned) == (old.generation, places(0, 1, 2, 3))
    old.step()
    assert old.errors == [ErrorCode.FENCED_INSTANCE_ID]
    again = driver.classic_member(instance_id="i")
    again.settle()
    assert driver.classic is not None
    assert (driver.consumer, driver.classic.state) == (None, State.STABLE)
    assert (again.generation, again.owned) == (new.epoch, places(0, 1, 2, 3))


def test_a_downgrade_of_a_consumer_group_that_cannot_be_logged_changes_nothing(driver):
    old, new = mixed(driver)
    before = {change[:2]: change.value for change in driver.group.changes()}
    driver.refuse = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(KafkaError) as refused:
        new.leave()
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.refuse = None
    assert {change[:2]: change.value for change in driver.group.changes()} == before
    assert driver.may_commit(old.member_id, old.generation, old.owned)


def test_a_downgrade_removes_all_consumer_group_records_from_the_log(driver):
    old, new = mixed(driver)
    new.leave()
    kept = [key for key, value in dict(driver.log).items() if value is not None]
    assert [int.from_bytes(key[:2], "big") for key in kept] == [2]  # the version of a classic group's key
    driver.restart()
    assert driver.classic is not None
    assert set(driver.classic.members) == {old.member_id}
    assert driver.classic.generation == old.generation

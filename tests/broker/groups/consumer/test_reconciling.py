"""reconcile(): one step of a member from its current assignment towards its target assignment."""

import pytest
from fencepost.broker.groups.consumer.reconciling import Goal, reconcile
from fencepost.broker.groups.consumer.records import Current, MemberState

TOPIC = bytes(16)


def goal(*partitions: int, free: bool) -> Goal:
    return Goal(2, {TOPIC: frozenset(partitions)}, [TOPIC], lambda topic_id, partition: free)


def test_a_partition_assigned_again_to_its_owner_is_not_revoked():
    """The partition is in the member's own record, so no other member can have it."""
    before = Current(1, 1, MemberState.UNREVOKED, {}, {TOPIC: {0: 1}})
    after = reconcile(before, goal(0, free=False), {}, other_subscription=False)
    assert after == Current(2, 1, MemberState.STABLE, {TOPIC: {0: 2}})


@pytest.mark.parametrize("free", [False, True])
def test_a_member_enters_the_new_epoch_whether_or_not_its_new_partition_is_free(free: bool):
    before = Current(1, 1, MemberState.STABLE, {TOPIC: {0: 1}})
    after = reconcile(before, goal(0, 1, free=free), None, other_subscription=False)
    state = MemberState.STABLE if free else MemberState.UNRELEASED
    assert after == Current(2, 1, state, {TOPIC: {0: 1, **({1: 2} if free else {})}})


@pytest.mark.parametrize("owned", [None, {TOPIC: [1]}])
def test_a_member_that_may_still_own_revoked_partitions_keeps_its_epoch(owned):
    before = Current(1, 1, MemberState.STABLE, {TOPIC: {0: 1, 1: 1}})
    after = reconcile(before, goal(0, 2, free=True), owned, other_subscription=False)
    assert after == Current(1, 1, MemberState.UNREVOKED, {TOPIC: {0: 1}}, {TOPIC: {1: 1}})


def test_a_member_that_drops_a_topic_still_has_to_revoke_earlier_partitions():
    """It has revoked neither the earlier partitions nor the dropped topic's; if the earlier ones counted as free,
    another member would get them too soon.
    """
    other = bytes([1] * 16)
    before = Current(1, 1, MemberState.UNREVOKED, {other: {0: 1}, TOPIC: {1: 1}}, {TOPIC: {0: 1}})
    owned = {other: [0], TOPIC: [0, 1]}
    after = reconcile(before, goal(1, free=True), owned, other_subscription=True)
    assert after == Current(1, 1, MemberState.UNREVOKED, {TOPIC: {1: 1}}, {TOPIC: {0: 1}, other: {0: 1}})

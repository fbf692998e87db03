"""Members of the SDK against the broker's group, without a loop: no two owners, no stale commit, and it settles."""

import pytest
from fencepost.client.assignors.sticky import CooperativeStickyAssignor, _assign, owned_now
from fencepost.client.group.membership import GivingUp, Membership
from fencepost.protocol.errors import ErrorCode
from long_runs import first_only, share_of
from member_interleavings import World, every_run, random_run

pytestmark = pytest.mark.slow

KINDS = [("range", False), ("range", True), ("cooperative-sticky", False), ("cooperative-sticky", True)]
kinds = pytest.mark.parametrize(("strategy", "static"), KINDS)


@kinds
@pytest.mark.sampled
def test_under_faults_no_partition_has_two_owners_and_members_stabilise(strategy, static):
    for seed in range(share_of(150)):
        random_run(seed, 30, strategy=strategy, count=2 + seed % 2, static=static, faults=4)


@pytest.mark.parametrize(("strategy", "static"), first_only(KINDS, 2))
def test_two_members_stabilise_in_every_order_of_four_steps_with_one_fault(strategy, static):
    """In the model of a group each run ends with all partitions assigned, none of them to two members."""
    for _ in every_run(4, strategy=strategy, count=2, static=static, faults=1):
        pass


@pytest.mark.long
@kinds
def test_members_stabilise_under_many_random_faults(strategy, static):
    for seed in range(10_000):
        random_run(seed, 60, strategy=strategy, count=2 + seed % 3, static=static, faults=8)
    for _ in every_run(6, strategy=strategy, count=2, static=static, faults=1):
        pass


def test_a_static_member_that_missed_a_rebalance_cannot_commit():
    world = World("cooperative-sticky", 3, static=True, faults=0)
    world.settle(world.sides[:2])
    late, other, new = world.sides
    new.poll()
    other.beat()
    other.hear_heartbeat()
    other.poll()
    for _ in range(13):  # longer than the rebalance timeout, and never silent
        world.driver.wait(5_000)
        late.beat()
        late.heartbeat, heard = None, late.heartbeat
    for side in (other, new):
        side.hear()
    for side in (other, new):
        side.hear()
        side.poll()
        world.check()
    had = late.membership.applied
    assert set(late.owned) & {*other.owned, *new.owned}
    assert world.commit(had, transactional=True) is ErrorCode.ILLEGAL_GENERATION
    assert world.commit(had, transactional=False) is ErrorCode.ILLEGAL_GENERATION
    late.membership.on_heartbeat(*heard)
    late.poll()
    assert not late.owned
    world.settle()


def fails(runs=100, static=False):
    failed = 0
    for seed in range(runs):
        try:
            random_run(seed, 30, strategy="cooperative-sticky", count=2 + seed % 2, static=static, faults=4)
        except AssertionError:
            failed += 1
    return failed


def test_the_model_detects_an_assignor_that_gives_away_owned_partitions(monkeypatch):
    # _assign() also returns the partitions that are owned by another member, which assign() takes out.
    monkeypatch.setattr(CooperativeStickyAssignor, "assign", lambda self, *given: _assign(*given, owned_now)[0])
    assert fails()
    assert fails(static=True)


def test_the_model_detects_a_member_that_keeps_lost_partitions(monkeypatch):
    real = Membership.prepare
    monkeypatch.setattr(Membership, "prepare", lambda self, *given: GivingUp((), real(self, *given).lost))
    assert fails()


def test_the_model_detects_a_member_that_does_not_rejoin(monkeypatch):
    real = Membership.take_over

    def take_over(self, *given, **more):
        taking = real(self, *given, **more)
        self.reason = ""
        return taking

    monkeypatch.setattr(Membership, "take_over", take_over)
    assert fails()

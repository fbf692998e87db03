"""A member's states: what every answer makes of it, whom it counts for, and what has to be given up when."""

import pytest
from fencepost.client.assignors.assignors import assignors_of
from fencepost.client.assignors.consumer_protocol import Assignment, decode_subscription, encode_assignment
from fencepost.client.group.membership import TABLE, Api, GivingUp, Membership, Stamp, State, Terms, Turn
from fencepost.client.values import ConsumerGroupMetadata, TopicPartition
from fencepost.protocol.errors import ErrorCode, MalformedFrame
from fencepost.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse

E = ErrorCode
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
OUT = {E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID}


def member(*strategies, instance=None):
    return Membership(Terms("g", instance, 10_000, 60_000, "r1"), assignors_of(strategies or ("range",)))


def joined(m, *, generation=1, member_id="m1", leader="m1", protocol="range", code=0, **more):
    return m.on_join(
        JoinGroupResponse(
            error_code=code,
            generation_id=generation,
            protocol_type="consumer",
            protocol_name=protocol,
            leader=leader,
            member_id=member_id,
            members=[],
            **more,
        )
    )


def synced(m, *places, code=0, asked=None, **more):
    content = encode_assignment(Assignment(places)) if not code else b""
    response = SyncGroupResponse(error_code=code, assignment=content, **more)
    return m.on_sync(response, asked or m.stamp)


def stable(m, *places, generation=1, owned=(), protocol="range"):
    m.prepare(owned, {"t"})
    m.join_request({"t"}, owned)
    assert joined(m, generation=generation, protocol=protocol) is Turn.GO_ON
    assert synced(m, *places) is Turn.GO_ON
    return m.take_over(owned, fits=True)


def test_after_member_id_required_a_member_joins_again_with_the_id_it_was_given():
    """Its commits use the new generation once a poll has taken the assignment over."""
    m = member()
    assert m.prepare((), {"t"}) == GivingUp((), lost=True)
    m.join_request({"t"}, ())
    assert m.state is State.JOINING
    assert joined(m, code=E.MEMBER_ID_REQUIRED, member_id="m1", generation=-1) is Turn.TAKE_ID
    assert m.join_request({"t"}, ()).member_id == "m1", "KIP-394: it joins again with the id it was given"
    assert joined(m) is Turn.GO_ON
    assert (m.state, m.leads, m.stamp) == (State.SYNCING, True, Stamp(1, "m1"))
    assert synced(m, T0, T1) is Turn.GO_ON
    assert (m.state, m.assignment) == (State.ASSIGNED, (T0, T1))
    assert m.applied.generation == -1, "not before a poll takes it over"
    assert m.take_over((), fits=True).added == (T0, T1)
    assert m.settled
    assert m.applied == ConsumerGroupMetadata("g", 1, "m1", None)


def test_a_join_contains_the_assignors_the_owned_partitions_and_the_reason():
    m = member("range", "sticky", "cooperative-sticky")
    stable(m, T0, generation=4)
    m.rejoin("the subscription has changed")
    m.rejoin("another reason, later")
    request = m.join_request({"u", "t"}, (T0,))
    assert [each.name for each in request.protocols] == ["range", "sticky", "cooperative-sticky"]
    sent = [decode_subscription(each.metadata) for each in request.protocols]
    assert {(each.topics, each.owned, each.generation, each.rack_id) for each in sent} == {(("t", "u"), (T0,), 4, "r1")}
    assert sent[2].user_data == (4).to_bytes(4, "big")
    assert request.reason == "the subscription has changed"
    assert request.rebalance_timeout_ms == 60_000


@pytest.mark.parametrize("api", [Api.JOIN, Api.SYNC])
def test_a_refused_member_keeps_its_id_for_leaving_and_rejoining(api):
    m = member()
    stable(m, T0)
    m.join_request({"t"}, ())
    if api is Api.JOIN:
        assert joined(m, code=E.GROUP_AUTHORIZATION_FAILED, member_id="") is Turn.REFUSE
    else:
        joined(m, generation=2)
        assert synced(m, code=E.GROUP_AUTHORIZATION_FAILED) is Turn.REFUSE
    assert (m.member_id, m.state) == ("m1", State.UNJOINED)
    assert m.leave("bye").member_id == "m1"


@pytest.mark.slow
@pytest.mark.parametrize("api", Api)
def test_every_error_code_of_every_group_api_has_its_defined_reaction(api, subtests):
    """For each error code of an API the member answers as the test's table says: retry, rejoin, look up, or refuse."""
    for code in E:
        with subtests.test(code.name):
            check_meaning(api, code)


def check_meaning(api, code):
    m = member()
    stable(m, T0)
    if api in (Api.JOIN, Api.SYNC):
        m.join_request({"t"}, ())
        turn = joined(m, code=code, generation=2)
        if api is Api.SYNC:
            joined(m, generation=2)
            turn = synced(m, T0, code=code)
    else:
        turn = m.on_heartbeat(code, m.stamp) if api is Api.HEARTBEAT else m.on_commit(code, m.stamp)
    assert turn is TABLE[api].get(code, Turn.REFUSE)
    if turn in (Turn.LEAVE_GENERATION, Turn.LEAVE_MEMBER, Turn.FENCE):
        assert m.generation == -1
        assert not m.in_generation
        assert bool(m.member_id) == (turn is Turn.LEAVE_GENERATION)
        assert m.prepare((T0,), {"t"}).lost, "what it had belongs to others"
        assert m.applied.generation == 1, (
            "a commit that speaks of the old generation is refused; one of none would not be"
        )
    elif turn is Turn.REJOIN:
        assert m.reason
        assert m.generation >= 1
    elif api in (Api.HEARTBEAT, Api.COMMIT):
        assert (m.state, m.generation) == (State.STABLE, 1), "only what says so takes a member out"


def test_a_fenced_classic_member_does_not_rejoin():
    m = member(instance="i")
    stable(m, T0)
    m.on_heartbeat(E.FENCED_INSTANCE_ID, m.stamp)
    assert m.prepare((T0,), {"t"}) == GivingUp((T0,), lost=True)
    assert m.state is State.FENCED
    m.leave("closing")
    assert m.state is State.FENCED


@pytest.mark.parametrize("code", sorted(OUT | {E.REBALANCE_IN_PROGRESS}))
def test_heartbeat_and_commit_errors_for_an_older_generation_change_nothing(code):
    m = member()
    stable(m, T0)
    before = m.stamp
    stable(m, T0, generation=2)
    m.on_heartbeat(code, before)
    m.on_commit(code, before)
    assert m.settled
    assert m.generation == 2


def test_a_sync_answer_of_an_older_generation_is_ignored():
    m = member()
    m.join_request({"t"}, ())
    joined(m)
    asked = m.stamp
    m.on_heartbeat(E.UNKNOWN_MEMBER_ID, asked)
    m.leave("x")
    assert synced(m, T0, asked=asked) is Turn.REJOIN  # of the member's turns, the one that does nothing here
    assert m.state is State.UNJOINED


@pytest.mark.parametrize("asked", [Stamp(1, "m1"), Stamp(3, "m1"), Stamp(2, "m0"), Stamp(2, "m2")], ids=str)
def test_a_sync_answer_of_an_earlier_request_is_ignored_during_a_newer_one(asked):
    m = member()
    m.join_request({"t"}, ())
    joined(m, generation=2)
    assert synced(m, T0, asked=asked) is Turn.REJOIN
    assert (m.state, m.assignment) == (State.SYNCING, ())
    assert synced(m, T1) is Turn.GO_ON
    assert synced(m, T0) is Turn.REJOIN, "there is an assignment already"
    assert m.assignment == (T1,)


@pytest.mark.parametrize(("leader", "leads"), [("m0", False), ("m1", True), ("m2", False)])
def test_a_member_leads_if_the_join_response_names_it(leader, leads):
    m = member()
    m.join_request({"t"}, ())
    joined(m, leader=leader)
    assert m.leads is leads


def test_an_eager_member_gives_everything_up_before_it_joins_again():
    m = member("range", "cooperative-sticky")
    stable(m, T0, T1)
    m.on_heartbeat(E.REBALANCE_IN_PROGRESS, m.stamp)
    assert m.prepare((T0, T1), {"t"}) == GivingUp((T0, T1), lost=False)


def test_a_cooperative_member_keeps_partitions_and_revokes_others_in_two_steps():
    m = member("cooperative-sticky")
    stable(m, T0, T1, protocol="cooperative-sticky")
    m.on_heartbeat(E.REBALANCE_IN_PROGRESS, m.stamp)
    other = TopicPartition("gone", 0)
    assert m.prepare((T0, T1, other), {"t"}) == GivingUp((other,), lost=False)
    taking = stable(m, T1, T2, generation=2, owned=(T0, T1), protocol="cooperative-sticky")
    assert (taking.revoked, taking.added, taking.partitions) == ((T0,), (T2,), (T1, T2))
    assert not m.settled, "it joins again, so that somebody else can have what it gave up"
    taking = stable(m, T1, T2, generation=3, owned=(T1, T2), protocol="cooperative-sticky")
    assert (taking.revoked, taking.added) == ((), ())
    assert m.settled


def test_a_cooperative_member_revokes_everything_when_it_leaves():
    m = member("cooperative-sticky")
    stable(m, T0, protocol="cooperative-sticky")
    assert m.prepare((T0,), ()) == GivingUp((T0,), lost=False)


def test_commits_use_the_generation_whose_assignment_was_applied():
    m = member("cooperative-sticky")
    assert not m.may_commit
    stable(m, T0, protocol="cooperative-sticky")
    assert m.may_commit
    m.prepare((T0,), {"t"})
    assert m.may_commit, "in a listener"
    m.join_request({"t"}, (T0,))
    assert not m.may_commit
    joined(m, generation=2, protocol="cooperative-sticky")
    synced(m, T0)
    assert not m.may_commit
    assert m.applied.generation == 1
    m.take_over((T0,), fits=True)
    assert m.may_commit


def test_offsets_of_a_never_applied_generation_are_not_committed():
    m = member("cooperative-sticky")
    stable(m, T0, protocol="cooperative-sticky")
    m.prepare((T0,), {"t"})
    m.join_request({"t"}, (T0,))
    joined(m, generation=2, protocol="cooperative-sticky")
    synced(m, T0)
    m.prepare((T0,), {"t"})  # another rebalance came before generation 2 was taken over
    assert (m.generation, m.applied.generation) == (2, 1)
    assert not m.may_commit


def test_an_assignment_for_topics_no_longer_subscribed_is_ignored():
    m = member("cooperative-sticky")
    m.join_request({"t"}, ())
    joined(m, protocol="cooperative-sticky")
    synced(m, T0)
    taken = m.take_over((T1,), fits=False)
    assert (taken.partitions, taken.revoked, taken.added) == ((T1,), (), ()), "it keeps what it owns"
    assert not m.settled, "it joins again"


@pytest.mark.parametrize("more", [{"protocol": "sticky"}, {"protocol": None}])
def test_a_join_answer_with_a_protocol_the_member_did_not_offer_is_refused(more):
    m = member("range")
    m.join_request({"t"}, ())
    assert joined(m, **more) is Turn.REFUSE
    assert m.state is State.UNJOINED


def test_a_sync_answer_with_another_protocol_is_refused():
    """KIP-559: since version 5 an answer to SyncGroup names the group's protocol."""
    m = member("range")
    m.join_request({"t"}, ())
    joined(m)
    assert synced(m, T0, protocol_type="connect") is Turn.REFUSE
    m.join_request({"t"}, ())
    joined(m)
    assert synced(m, T0, protocol_type="consumer", protocol_name="sticky") is Turn.REFUSE


def test_a_malformed_assignment_of_the_leader_raises_and_ends_membership():
    m = member()
    m.join_request({"t"}, ())
    joined(m)
    with pytest.raises(MalformedFrame):
        m.on_sync(SyncGroupResponse(assignment=b"\0"), m.stamp)
    assert (m.state, m.member_id) == (State.UNJOINED, "m1"), "the coordinator still has it as a member"


def test_a_dynamic_member_sends_leave_group_and_a_static_one_does_not():
    """KIP-345: a static member may come back within its session."""
    m = member()
    stable(m, T0)
    request = m.leave("the consumer is being closed")
    assert request is not None
    assert (request.member_id, request.members[0].member_id) == ("m1", "m1")
    assert request.members[0].reason == "the consumer is being closed"
    assert (m.state, m.member_id) == (State.UNJOINED, "")
    assert m.leave("again") is None
    static = member(instance="i")
    stable(static, T0)
    assert static.leave("closing") is None


def test_leaving_clears_the_topics_the_member_had_joined_for():
    """Otherwise a poll in between would prevent a new join for the same topics."""
    m = member()
    stable(m, T0)
    assert m.joined_topics == {"t"}
    m.leave("unsubscribed")
    assert m.joined_topics == frozenset()

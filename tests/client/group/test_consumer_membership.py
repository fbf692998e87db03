"""One member of the newer group protocol: what its heartbeats say, and what becomes of it after each response."""

import pytest
from consumer_group_driver import ConsumerGroupDriver, topic_id
from consumer_members import Reader
from fencepost.broker.groups.consumer.machine import Rules
from fencepost.client.errors import (
    ClientError,
    FencedInstanceIdError,
    InvalidConfigurationError,
    UnsupportedVersionError,
)
from fencepost.client.group.consumer_membership import TABLE, ConsumerMembership, ConsumerTerms, State
from fencepost.client.group.membership import Turn
from fencepost.client.values import TopicPartition
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatResponse as Response

T = topic_id("t")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Topic = Response.Assignment.TopicPartitions


def membership(instance_id=None, assignor=None):
    made = ConsumerMembership(ConsumerTerms("g", instance_id, 60_000, "rack", assignor), "m")
    made.subscribe(["t"], None)
    return made


def response(epoch=1, *places, code=0, message=None):
    assignment = None
    if places:
        assignment = Response.Assignment(topic_partitions=[Topic(topic_id=T, partitions=list(places))])
    return Response(error_code=code, error_message=message, member_id="m", member_epoch=epoch, assignment=assignment)


def beat(member, answer):
    stamp = member.stamp
    request = member.heartbeat_request()
    return request, member.on_heartbeat_response(answer, stamp)


def name_of(found):
    return "t" if found == T else None


def take(member):
    plan = member.plan(name_of)
    if plan.revoked:
        member.give_up(plan.revoked)
        plan = member.plan(name_of)
    member.take_over(plan)
    return plan


def stable(*numbers, epoch=1, **terms):
    member = membership(**terms)
    member.join()
    beat(member, response(epoch, *numbers))
    take(member)
    beat(member, response(epoch))
    assert member.state is State.STABLE
    return member


def test_the_first_heartbeat_is_full_and_later_ones_have_only_changes():
    """The second one acknowledges the partitions that a poll has taken over."""
    member = membership(assignor="range")
    member.join()
    first, turn = beat(member, response(3, 0, 1))
    assert (first.member_epoch, first.rebalance_timeout_ms, first.rack_id) == (0, 60_000, "rack")
    assert (first.subscribed_topic_names, first.server_assignor, first.topic_partitions) == (["t"], "range", [])
    assert (turn, member.state, member.generation) == (Turn.GO_ON, State.RECONCILING, 3)
    assert take(member).added == (T0, T1)
    assert member.state is State.ACKNOWLEDGING
    assert member.hurries
    second, _ = beat(member, response(3))
    assert (second.member_epoch, second.rebalance_timeout_ms, second.rack_id) == (3, -1, None)
    assert (second.subscribed_topic_names, second.server_assignor) == (None, None)
    assert [(each.topic_id, each.partitions) for each in second.topic_partitions] == [(T, [0, 1])]
    assert member.state is State.STABLE
    assert not member.hurries
    third, _ = beat(member, response(3))
    assert third.topic_partitions is None


def test_an_empty_assignment_counts_only_after_a_second_heartbeat_and_a_poll():
    """The first heartbeat's answer may be empty because the broker has not assigned anything yet."""
    member = membership()
    member.join()
    beat(member, Response(member_id="m", member_epoch=1))
    assert member.state is State.RECONCILING
    assert take(member).added == ()
    assert member.state is State.STABLE
    assert not member.may_be_empty, "the broker may not have assigned anything yet"
    beat(member, Response(member_id="m", member_epoch=1))
    assert not member.settled, "a poll has to note that it is so"
    take(member)
    assert member.may_be_empty
    beat(member, Response(member_id="m", member_epoch=1))
    assert member.settled


def test_after_a_lost_response_the_next_heartbeat_is_full():
    driver = ConsumerGroupDriver(t=3)
    a, b = Reader(driver, "a", ["t"]), Reader(driver, "b", ["t"])
    for _ in range(4):
        a.run()
        b.run()
        driver.wait(2_000)
    assert len(b.reads) == 1
    a.leave()
    driver.wait(2_000)
    b.send()
    b.arrive()
    b.fail()
    assert b.membership.state is State.STABLE
    b.beat()
    assert b.last_request.rebalance_timeout_ms == 60_000, "a heartbeat with changes only has -1"
    b.poll()
    assert len(b.reads) == 3
    assert not b.errors


def test_a_member_waits_for_its_heartbeats_answer_before_it_takes_partitions():
    """That heartbeat says the member owns no partition; one taken meanwhile could be given to another member."""
    driver = ConsumerGroupDriver(t=1)
    a, b = Reader(driver, "a", ["t"]), Reader(driver, "b", ["t"])
    a.poll()
    a.beat()
    a.send()
    a.fail()
    a.send()  # a says again that it owns nothing
    a.poll()
    assert not a.reads
    assert a.membership.settled, "a poll would have to wait"
    a.arrive()
    a.hear()
    assert not a.membership.settled
    a.poll()
    assert set(a.reads) == {T0}
    b.run()
    assert not b.reads


def test_a_revoked_partition_is_reported_to_the_group_with_the_next_heartbeat():
    member = stable(0, 1)
    beat(member, response(1, 0))
    assert member.state is State.RECONCILING
    assert member.plan(name_of).revoked == (T1,)
    member.give_up([T1])
    assert member.hurries
    member.take_over(member.plan(name_of))
    request, _ = beat(member, response(2))
    assert [(each.topic_id, each.partitions) for each in request.topic_partitions] == [(T, [0])]
    assert (member.state, member.generation, member.applied.generation) == (State.STABLE, 2, 2)


def test_commits_use_a_new_epoch_only_after_a_poll_applied_its_assignment():
    member = stable(0, 1)
    beat(member, response(2, 0))
    assert member.applied.generation == 1
    assert member.metadata_for([T0]).generation == 2, "it stays"
    assert member.metadata_for([T1]).generation == 1, "it may have another owner in epoch 2"
    take(member)
    assert member.applied.generation == 2
    beat(member, response(3))
    assert member.applied.generation == 3, "nothing to apply"


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_loses_everything_and_joins_again_with_the_same_id(code):
    member = stable(0, epoch=5)
    _, turn = beat(member, response(code=code))
    assert (turn, member.state, member.generation) == (Turn.LEAVE_MEMBER, State.UNJOINED, -1)
    assert member.is_out
    assert not member.may_commit
    assert member.applied.generation == 5, "so that the broker refuses what is committed late"
    member.join()
    request, _ = beat(member, response(7, 0))
    assert (request.member_id, request.member_epoch, request.topic_partitions) == ("m", 0, [])
    assert take(member).added == (T0,)


def test_offsets_read_before_losing_membership_are_not_committed_after_rejoining():
    driver = ConsumerGroupDriver(t=1)
    reader = Reader(driver, "a", ["t"])
    reader.run()
    before = reader.membership.applied
    reader.send()
    reader.membership.on_no_response(reader.membership.stamp, final=True)  # the broker still has it
    reader.fail()
    for _ in range(15):
        driver.wait(5_000)
        reader.run()
    assert set(reader.reads) == {T0}
    assert reader.may_commit(T0, in_transaction=True)
    with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
        driver.group.check_commit(before.member_id, None, before.generation, [(T, 0)], version=None)


@pytest.mark.parametrize("code", sorted(set(ErrorCode) - {ErrorCode.NONE}))
def test_a_heartbeat_error_keeps_the_members_state_or_makes_it_fenced_or_unjoined(code):
    """As the table of reactions says for its code; after an error that keeps the state, the next heartbeat is full."""
    for joining in (True, False):
        member = stable(0) if not joining else membership()
        if joining:
            member.join()
        before = member.state
        request, turn = beat(member, response(code=code))
        known = TABLE.get(code, Turn.REFUSE)
        if known in (Turn.AGAIN, Turn.FIND, Turn.WAIT, Turn.COMPLAIN):
            assert member.state is before
            assert beat(member, response(1, 0))[0].subscribed_topic_names == ["t"], "everything again"
        elif known is Turn.FENCE:
            assert member.state is State.FENCED
        else:
            assert member.state is State.UNJOINED
        assert request is not None
        assert turn is (Turn.REFUSE if joining and code is ErrorCode.GROUP_ID_NOT_FOUND else known)


@pytest.mark.parametrize(
    ("code", "error", "hint"),
    [
        (ErrorCode.UNSUPPORTED_ASSIGNOR, InvalidConfigurationError, "group_remote_assignor"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, InvalidConfigurationError, "RE2"),
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedVersionError, "classic"),
        (ErrorCode.GROUP_ID_NOT_FOUND, ClientError, "another type"),
        (ErrorCode.UNRELEASED_INSTANCE_ID, FencedInstanceIdError, "stop the other consumer"),
    ],
)
def test_the_error_for_a_refused_join_has_the_brokers_text_and_a_hint(code, error, hint):
    member = membership()
    member.join()
    found = member.refusal(response(code=code, message="because"))
    assert type(found) is error
    assert "because" in str(found)
    assert hint in found.hint


def test_a_heartbeat_answer_for_a_membership_that_was_left_changes_nothing():
    member = stable(0)
    stamp = member.stamp
    member.heartbeat_request()
    assert member.leave().member_epoch == -1
    member.subscribe(["t"], None)
    member.join()
    assert member.on_heartbeat_response(response(1, 0), stamp) is Turn.GO_ON
    assert (member.state, member.generation) == (State.JOINING, -1)
    member.on_no_response(stamp, final=True)
    assert member.state is State.JOINING


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_a_fenced_member_sends_a_leave_with_its_old_id_before_a_rejoin_or_close(instance_id, epoch):
    """It is sent once, again if the coordinator has moved, and not any more when another join is begun."""
    for closes in (False, True):
        member = stable(0, instance_id=instance_id)
        beat(member, response(code=ErrorCode.FENCED_MEMBER_EPOCH))
        if not closes:
            member.join("m2")
        left = member.leave() if closes else member.farewell
        assert (left.member_id, left.member_epoch, left.instance_id) == ("m", epoch, instance_id)
        assert left.topic_partitions is None
        if closes:
            assert member.leave() is None, "once"
            continue
        assert member.on_farewell(ErrorCode.NOT_COORDINATOR) is Turn.FIND
        assert member.farewell is left, "sent again"
        assert member.leave() is left, "the join was not sent yet"
        member.subscribe(["t"], None)
        member.join("m3")
        assert member.farewell is None


@pytest.mark.parametrize("code", [0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_a_fenced_member_joins_again_whatever_the_answer_to_leaving_with_its_old_id(code):
    member = stable(0)
    beat(member, response(code=ErrorCode.FENCED_MEMBER_EPOCH))
    member.join("m2")
    assert member.on_farewell(code) is Turn.GO_ON
    assert member.farewell is None
    assert beat(member, response(7, 0))[0].member_id == "m2"


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.FENCED_INSTANCE_ID]
)
def test_a_member_unknown_to_the_broker_sends_no_leave(code):
    member = stable(0, instance_id="i")
    beat(member, response(code=code))
    assert member.farewell is None
    assert member.leave() is None


def test_a_member_whose_new_subscription_was_refused_sends_a_leave():
    member = stable(0, instance_id="i")
    beat(member, response(code=ErrorCode.INVALID_REGULAR_EXPRESSION))
    assert member.farewell.member_epoch == -2
    refused = membership(instance_id="i")
    refused.join()
    assert beat(refused, response(code=ErrorCode.UNRELEASED_INSTANCE_ID))[1] is Turn.WAIT
    assert refused.state is State.JOINING
    refused.on_no_response(refused.stamp, final=True)
    assert (refused.state, refused.farewell) == (State.UNJOINED, None), "it never was a member"


def test_a_partition_withdrawn_before_a_poll_took_it_is_given_up_in_a_heartbeat():
    driver = ConsumerGroupDriver(Rules(assignors=("range",)), t=1)
    late, early = Reader(driver, "n", ["t"]), Reader(driver, "a", ["t"])
    late.poll()
    late.beat()
    assert late.membership.state is State.RECONCILING, "it was given t-0, and no poll has taken it"
    driver.wait(2_000)
    for _ in range(3):
        early.run()
        late.beat()
    late.poll()
    assert late.membership.hurries
    late.run()
    early.run()
    assert set(early.reads) == {T0}, "long before the rebalance timeout of the other one"
    assert not late.membership.hurries
    late.beat()
    assert late.last_request.topic_partitions is None, "once"


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_a_leave_has_epoch_minus_1_or_minus_2_for_a_static_member_and_is_sent_once(instance_id, epoch):
    member = stable(0, instance_id=instance_id)
    request = member.leave()
    assert (request.member_epoch, request.member_id, request.instance_id) == (epoch, "m", instance_id)
    assert member.leave() is None


def test_unsubscribed_topics_are_revoked_at_once_and_do_not_return():
    member = stable(0)
    assert member.subscribe(["u"], None) == (T0,)
    member.give_up([T0])
    take(member)
    request, _ = beat(member, response(1, 0))  # the broker did not know yet
    assert (request.subscribed_topic_names, request.topic_partitions) == (["u"], [])
    assert take(member).partitions == {}
    member.subscribe(["t"], None)
    assert take(member).added == (T0,)


def test_a_pattern_is_sent_as_text_and_ended_by_sending_an_empty_one():
    member = stable(0)
    member.subscribe([], "t.*")
    request, _ = beat(member, response(2))
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "t.*")
    assert beat(member, response(2))[0].subscribed_topic_regex is None
    member.subscribe(["t"], None)
    request, _ = beat(member, response(2))
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], "")


def test_partitions_of_a_topic_id_are_taken_once_metadata_has_its_name():
    member = membership()
    member.join()
    beat(member, response(1, 0))
    assert member.plan(lambda _: None).unknown == (T,)
    member.take_over(member.plan(lambda _: None))
    assert member.state is State.RECONCILING
    assert member.settled, "nothing to do until the name is known"
    assert member.unknown_topics(lambda _: None) == (T,)
    member.note_names()
    assert not member.settled
    assert take(member).added == (T0,)
    assert member.unknown_topics(lambda _: None) == ()


def test_a_recreated_topic_is_revoked_and_assigned_again():
    member = stable(0)
    other = topic_id("t", 1)
    beat(
        member,
        Response(
            member_id="m",
            member_epoch=2,
            assignment=Response.Assignment(topic_partitions=[Topic(topic_id=other, partitions=[0])]),
        ),
    )
    plan = member.plan({other: "t"}.get)
    assert (plan.revoked, plan.added) == ((T0,), (T0,))


def test_a_commit_with_a_stale_epoch_makes_the_member_heartbeat_at_once():
    member = stable(0)
    member.on_commit(ErrorCode.STALE_MEMBER_EPOCH, None)
    assert member.hurries
    beat(member, response(2))
    assert not member.hurries

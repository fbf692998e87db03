"""The member of a share group, without a broker: what it sends, and what each answer does to it."""

import pytest
from fencepost.client.group.membership import Turn
from fencepost.client.share.membership import TABLE, Place, ShareMembership, State
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatResponse

ID = b"t" * 16
Assignment = ShareGroupHeartbeatResponse.Assignment


def made(*topics: str) -> ShareMembership:
    member = ShareMembership("billing", "m-1", "rack")
    member.subscribe(topics or ("orders",))
    member.join()
    return member


def answer(epoch: int = 1, partitions: list[int] | None = None, code: int = 0) -> ShareGroupHeartbeatResponse:
    assignment = None
    if partitions is not None:
        topic = Assignment.TopicPartitions(topic_id=ID, partitions=partitions)
        assignment = Assignment(topic_partitions=[topic] if partitions else [])
    return ShareGroupHeartbeatResponse(member_epoch=epoch, assignment=assignment, error_code=code)


def hear(member: ShareMembership, response: ShareGroupHeartbeatResponse) -> Turn:
    member.heartbeat_request()
    return member.on_heartbeat_response(response, member.stamp)


def joined() -> ShareMembership:
    member = made()
    hear(member, answer(1, [0, 1]))
    return member


def test_a_share_members_first_heartbeat_has_epoch_zero_the_topics_and_the_rack() -> None:
    request = made("b", "a").heartbeat_request()
    assert (request.group_id, request.member_id, request.member_epoch, request.rack_id) == ("billing", "m-1", 0, "rack")
    assert request.subscribed_topic_names == ["a", "b"]


def test_a_later_heartbeat_has_the_epoch_and_only_what_has_changed() -> None:
    member = joined()
    request = member.heartbeat_request()
    assert (request.member_epoch, request.subscribed_topic_names, request.rack_id) == (1, None, None)
    member.on_heartbeat_response(answer(1), member.stamp)
    member.subscribe(["orders", "more"])
    assert member.hurries
    assert member.heartbeat_request().subscribed_topic_names == ["more", "orders"]


def test_a_heartbeat_answer_without_an_assignment_keeps_the_last_one() -> None:
    member = joined()
    assert member.assigned == {Place(ID, 0), Place(ID, 1)}
    hear(member, answer(2))
    assert (member.generation, len(member.assigned)) == (2, 2)
    hear(member, answer(3, []))
    assert (member.generation, member.assigned) == (3, frozenset())


def test_after_an_unanswered_heartbeat_the_next_one_is_a_full_heartbeat() -> None:
    member = joined()
    member.heartbeat_request()
    member.on_no_response(member.stamp, final=False)
    request = member.heartbeat_request()
    assert (request.member_epoch, request.subscribed_topic_names, request.rack_id) == (1, ["orders"], "rack")


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_removed_member_rejoins_at_epoch_0_and_keeps_its_partitions_meanwhile(code: ErrorCode) -> None:
    member = joined()
    assert hear(member, answer(code=code)) is Turn.LEAVE_MEMBER
    assert (member.state, member.hurries, len(member.assigned)) == (State.JOINING, True, 2)
    assert member.heartbeat_request().member_epoch == 0


def test_a_deleted_group_is_joined_again_and_one_of_another_type_is_refused() -> None:
    member = joined()
    assert hear(member, answer(code=ErrorCode.GROUP_ID_NOT_FOUND)) is Turn.LEAVE_MEMBER
    assert hear(member, answer(code=ErrorCode.GROUP_ID_NOT_FOUND)) is Turn.REFUSE
    assert (member.state, member.assigned) == (State.UNJOINED, frozenset())
    hint = str(getattr(member.refusal(answer(code=ErrorCode.GROUP_ID_NOT_FOUND)), "hint", ""))
    assert "another type" in hint
    assert "delete it" in hint, "to stop its members is not enough: a group with offsets is of its type for good"


@pytest.mark.parametrize("code", [code for code in ErrorCode if TABLE.get(code) is not Turn.GO_ON])
def test_after_any_heartbeat_error_the_next_request_lists_the_subscribed_topics(code: ErrorCode) -> None:
    member = joined()
    turn = hear(member, answer(code=code))
    assert turn is TABLE.get(code, Turn.REFUSE)
    if turn is Turn.REFUSE:
        member.join()
    assert member.heartbeat_request().subscribed_topic_names == ["orders"]
    assert member.refusal(answer(code=code)).code is code


def test_a_heartbeat_answer_to_a_former_share_membership_changes_nothing() -> None:
    member = joined()
    member.heartbeat_request()
    stamp = member.stamp
    member.leave()
    member.join()
    assert member.on_heartbeat_response(answer(9, [5]), stamp) is Turn.GO_ON
    assert (member.generation, member.assigned) == (-1, frozenset())
    member.on_no_response(stamp, final=True)
    assert member.in_generation


def test_a_share_members_leave_is_one_heartbeat_or_none_if_it_never_joined() -> None:
    member = ShareMembership("billing", "m-1")
    assert member.leave() is None
    member.join()
    request = member.leave()
    assert request is not None
    assert (request.member_id, request.member_epoch) == ("m-1", -1)
    assert (member.in_generation, member.leave()) == (False, None)

"""The sticky assignors: balance and stickiness against a slow reference, user data, and who is believed."""

import itertools

import pytest
from fencepost.client.assignors.assignment import LastAssignment
from fencepost.client.assignors.consumer_protocol import NO_GENERATION, Subscription
from fencepost.client.assignors.java_order import hash_order, text_hash
from fencepost.client.assignors.sticky import (
    Claim,
    CooperativeStickyAssignor,
    StickyAssignor,
    claim_in_user_data,
    settle,
)
from fencepost.client.values import TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import share_of

pytestmark = pytest.mark.slow

STICKY, COOPERATIVE = StickyAssignor(), CooperativeStickyAssignor()
GENERATION = 7


def tps(text):
    return tuple(TopicPartition(each[0], int(each[1:])) for each in text.split())


def saying(topics, owned=(), generation=GENERATION):
    """Return the subscription of a member with the assignor "sticky", which had `owned` in this generation."""
    data = STICKY.user_data(LastAssignment(tuple(owned), generation)) if owned else None
    return Subscription(tuple(sorted(topics)), data, (), generation)


def keeping(topics, owned=(), generation=GENERATION):
    """Return the subscription of a member with the assignor "cooperative-sticky", which owns `owned`."""
    data = COOPERATIVE.user_data(LastAssignment(tuple(owned), generation))
    return Subscription(tuple(sorted(topics)), data, tuple(owned), generation)


@st.composite
def groups(draw, alike):
    """Draw numbers of partitions, the topics each member wants (alike: all), and the partitions of them that it had."""
    partitions = draw(st.dictionaries(st.sampled_from("abc"), st.integers(1, 4), min_size=1))
    names = draw(st.lists(st.text("xyz", min_size=1, max_size=3), min_size=1, max_size=4, unique=True))
    topics = st.sets(st.sampled_from(sorted(partitions)), min_size=1)
    wanted = {name: set(partitions) if alike else draw(topics) for name in names}
    owned = {name: [] for name in names}
    for place in [
        TopicPartition(topic, number) for topic, count in sorted(partitions.items()) for number in range(count)
    ]:
        owner = draw(st.sampled_from([None, *names]))
        if owner is not None and place.topic in wanted[owner]:
            owned[owner].append(place)
    return partitions, wanted, owned


def improvable(assigned, wanted):
    """Return whether a partition could go to a member that wants its topic and has at least two fewer."""
    return any(
        len(places) > len(assigned[other]) + 1 and place.topic in wanted[other]
        for places in assigned.values()
        for place in places
        for other in assigned
    )


def uneven(assigned):
    """Return the assignor's measure of imbalance: the sum, over all pairs of members, of the differences."""
    return sum(abs(len(one) - len(other)) for one, other in itertools.combinations(assigned.values(), 2))


def fewest_moves(partitions, owned):
    """Return how many partitions must move at least so that all members, which want every topic, have equal shares."""
    count, members = sum(partitions.values()), list(owned)
    least, more = divmod(count, len(members))
    return min(
        sum(max(0, len(owned[member]) - (least + (member in lucky))) for member in members)
        for lucky in itertools.combinations(members, more)
    )


@settings(max_examples=share_of(300))
@given(groups(alike=True))
def test_sticky_members_of_one_subscription_get_equal_shares_with_fewest_moves(group):
    partitions, wanted, owned = group
    found = STICKY.assign(partitions, {name: saying(wanted[name], owned[name]) for name in wanted})
    sizes = [len(places) for places in found.values()]
    assert max(sizes) - min(sizes) <= 1
    moved = sum(len(set(owned[name]) - set(found[name])) for name in owned)
    assert moved == fewest_moves(partitions, owned)


@settings(max_examples=share_of(300))
@given(groups(alike=False))
def test_sticky_balances_members_of_different_subscriptions_and_then_moves_nothing(group):
    partitions, wanted, owned = group
    found = STICKY.assign(partitions, {name: saying(wanted[name], owned[name]) for name in wanted})
    if not any(owned.values()):  # else it may keep an old assignment that could be improved
        assert not improvable(found, wanted)
    again = STICKY.assign(partitions, {name: saying(wanted[name], found[name]) for name in wanted})
    if not improvable(found, wanted):
        assert {name: set(places) for name, places in again.items()} == {
            name: set(places) for name, places in found.items()
        }


@settings(max_examples=share_of(300))
@given(groups(alike=True) | groups(alike=False))
def test_cooperative_sticky_gives_nobody_what_another_member_owns_and_ends_balanced(group):
    """Within nine generations nothing more is revoked, and shares are as even as those of the eager sticky assignor."""
    partitions, wanted, owned = group
    goal = STICKY.assign(partitions, {name: saying(wanted[name], owned[name]) for name in wanted})
    now = owned
    for generation in range(GENERATION, GENERATION + 9):
        found = COOPERATIVE.assign(partitions, {name: keeping(wanted[name], now[name], generation) for name in wanted})
        for name, places in found.items():
            others = {place for other in now if other != name for place in now[other]}
            assert not others & set(places), "two members would have it at once"
        revoked = any(set(now[name]) - set(found[name]) for name in now)
        now = found
        if not revoked:
            break
    else:
        pytest.fail("it never settles")
    assert uneven(now) <= uneven(goal)  # step by step it may find a better one, where members want different topics
    assert {p for places in now.values() for p in places} == {p for places in goal.values() for p in places}


def test_a_third_sticky_member_gets_one_partition_from_each_other_and_no_other_moves():
    had = {"a": tps("t0 t1 t2"), "b": tps("t3 t4 t5")}
    found = STICKY.assign({"t": 6}, {**{name: saying("t", places) for name, places in had.items()}, "c": saying("t")})
    assert sorted(map(len, found.values())) == [2, 2, 2]
    assert set(found["a"]) < set(had["a"])
    assert set(found["b"]) < set(had["b"])


def test_a_sticky_member_that_gives_up_half_its_partitions_keeps_some_of_each_topic():
    """KAFKA-16277: low numbers of all topics are kept, not all of the first topic."""
    had = tps("a0 a1 a2 b0 b1 b2")
    found = STICKY.assign({"a": 3, "b": 3}, {"x": saying("ab", had), "y": saying("ab")})
    assert set(found["x"]) == set(tps("a0 b0 a1"))


def test_a_sticky_partition_that_two_members_claim_stays_with_the_newer_generation():
    members = {"old": saying("t", tps("t0 t1"), 3), "new": saying("t", tps("t0 t1"), 4)}
    found = STICKY.assign({"t": 2}, members)
    assert sorted(map(len, found.values())) == [1, 1]
    claims = {name: claim_in_user_data(said) for name, said in members.items()}
    assert settle({"t": 2}, members, claims).owned == {"old": [], "new": list(tps("t0 t1"))}


def test_a_partition_claimed_twice_in_one_generation_stays_with_neither_member():
    members = {"a": keeping("t", tps("t0")), "b": keeping("t", tps("t0"))}
    claims = {name: Claim(said.owned, said.generation) for name, said in members.items()}
    found = settle({"t": 2}, members, claims)
    assert (found.owned, found.disputed) == ({"a": [], "b": []}, set(tps("t0")))
    given_out = COOPERATIVE.assign({"t": 2}, members)
    assert tps("t0")[0] not in [place for places in given_out.values() for place in places], "both may still read it"


def test_a_partition_does_not_return_to_a_member_that_no_longer_wants_its_topic():
    """Kafka's own assignor gives it back if the member is of an older generation: a deviation on purpose."""
    members = {
        "old": saying("b", tps("a0 a1 a2 a3"), 3),
        "x": saying("ab", tps("a0 a1 a2 a3 a4 a5"), 4),
        "y": saying("a", (), 4),
    }
    found = STICKY.assign({"a": 6, "b": 1}, members)
    assert all(place.topic == "b" for place in found["old"])


def test_sticky_assigns_no_partition_that_does_not_exist():
    found = STICKY.assign({"t": 1}, {"a": saying("t", tps("t0 t1 t2"))})
    assert found == {"a": list(tps("t0"))}


def test_sticky_user_data_has_the_same_bytes_as_kafkas():
    last = LastAssignment(tps("t1 t2"), 5)
    assert STICKY.user_data(None) is None
    assert STICKY.user_data(last).hex() == "00000001" "000174" "00000002" "00000001" "00000002" "00000005"  # fmt: skip
    assert COOPERATIVE.user_data(last).hex() == "00000005"
    assert COOPERATIVE.user_data(None).hex() == "ffffffff"


def test_sticky_user_data_without_generation_is_accepted_and_malformed_is_ignored():
    without_generation = bytes.fromhex("00000001" "000174" "00000001" "00000001")  # fmt: skip
    assert claim_in_user_data(Subscription(("t",), without_generation)) == Claim(tps("t1"), None)
    nine_topics_missing = b"\x00\x00\x00\x09"
    assert claim_in_user_data(Subscription(("t",), nine_topics_missing)) == Claim((), NO_GENERATION)
    assert claim_in_user_data(Subscription(("t",))) == Claim((), None)


def test_hash_order_is_the_order_of_a_java_hash_map():
    """Kafka's Java client visits members in this order, so ties are decided as there."""
    assert text_hash("hello") == 99162322
    assert hash_order(["apple", "banana", "cherry"], text_hash) == ["banana", "apple", "cherry"]
    many = [f"m{number}" for number in range(40)]
    assert sorted(hash_order(many, text_hash)) == sorted(many), "each once"

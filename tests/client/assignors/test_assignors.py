"""Range and round robin: Kafka's documented examples, and that everything is given once to one who wants it."""

import pytest
from fencepost.client.assignors.assignors import assignors_of, cooperates
from fencepost.client.assignors.consumer_protocol import Subscription
from fencepost.client.errors import InvalidConfigurationError
from fencepost.client.values import TopicPartition
from hypothesis import given
from hypothesis import strategies as st


def members(**topics):
    return {member: Subscription(tuple(wanted.split())) for member, wanted in topics.items()}


def assigned(name, partitions, said):
    found = assignors_of([name])[0].assign(partitions, said)
    return {member: " ".join(f"{topic}{number}" for topic, number in places) for member, places in found.items()}


def test_range_gives_contiguous_partitions_and_one_more_to_the_first_members():
    said = members(c0="s t", c1="s t")
    assert assigned("range", {"s": 3, "t": 3}, said) == {"c0": "s0 s1 t0 t1", "c1": "s2 t2"}


def test_range_assigns_topics_of_equal_size_identically():
    found = assignors_of(["range"])[0].assign({"s": 5, "t": 5}, members(a="s t", b="s t", c="s t"))
    for places in found.values():
        assert [p.partition for p in places if p.topic == "s"] == [p.partition for p in places if p.topic == "t"]


def test_range_leaves_surplus_members_without_partitions():
    assert assigned("range", {"s": 1}, members(b="s", a="s")) == {"a": "s0", "b": ""}


def test_round_robin_gives_partitions_in_turn_to_the_topics_subscribers():
    assert assigned("roundrobin", {"s": 3, "t": 3}, members(c0="s t", c1="s t")) == {"c0": "s0 s2 t1", "c1": "s1 t0 t2"}
    said = members(c0="r", c1="r s", c2="r s t")
    assert assigned("roundrobin", {"r": 1, "s": 2, "t": 3}, said) == {"c0": "r0", "c1": "s0", "c2": "s1 t0 t1 t2"}


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_static_members_keep_their_partitions_when_their_member_ids_change(name):
    """KIP-345: they are sorted by instance id, and before the others."""
    before = {
        "z": Subscription(("s",), group_instance_id="1"),
        "b": Subscription(("s",)),
        "y": Subscription(("s",), group_instance_id="2"),
    }
    after = {"k": before["y"], "b": before["b"], "x": before["z"]}
    first, second = (assigned(name, {"s": 6}, said) for said in (before, after))
    assert (first["z"], first["y"], first["b"]) == (second["x"], second["k"], second["b"])
    assert first["z"].startswith("s0")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
@given(
    partitions=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 7)),
    wanted=st.dictionaries(st.text("xyz", min_size=1, max_size=3), st.sets(st.sampled_from("abcde")), min_size=1),
)
def test_every_subscribed_partition_is_assigned_to_exactly_one_subscriber(name, partitions, wanted):
    said = {member: Subscription(tuple(sorted(topics))) for member, topics in wanted.items()}
    found = assignors_of([name])[0].assign(partitions, said)
    assert set(found) == set(said)
    given_out = [place for places in found.values() for place in places]
    there = {
        TopicPartition(topic, number)
        for topic, count in partitions.items()
        for number in range(count)
        if any(topic in topics for topics in wanted.values())
    }
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == there
    assert all(place.topic in wanted[member] for member, places in found.items() for place in places)


def test_cooperative_rebalancing_needs_every_offered_assignor_to_support_it():
    assert cooperates(assignors_of(["cooperative-sticky"]))
    assert not cooperates(assignors_of(["range", "cooperative-sticky"]))


@pytest.mark.parametrize("names", [["best"], ["range", "range"], []])
def test_unknown_repeated_or_no_assignment_strategies_are_refused(names):
    with pytest.raises(InvalidConfigurationError):
        assignors_of(names)

"""The assignors on random groups: complete, one owner, balanced, sticky; and what each is known for."""

from collections import Counter

import pytest
from fencepost.broker.groups.assigned.assignment import Subscriber, TopicShape, run_steps
from fencepost.broker.groups.consumer.assignors import ASSIGNORS
from hypothesis import given
from hypothesis import strategies as st

TOPICS = [b"%016d" % number for number in range(6)]
uniform, ranges = (
    (lambda *asked: run_steps(ASSIGNORS["uniform"](*asked))),
    (lambda *asked: run_steps(ASSIGNORS["range"](*asked))),
)
shapes = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7).map(TopicShape))
subscriptions = st.frozensets(st.sampled_from(TOPICS))
members = st.dictionaries(st.sampled_from("abcdefgh"), subscriptions, max_size=6)


def places(assigned):
    return [(topic, part) for parts in assigned.values() for topic, of in parts.items() for part in of]


def load(parts):
    return sum(map(len, parts.values()))


def check_complete(subscribers, topics, assigned):
    wanted = {topic for each in subscribers for topic in each.topics if topic in topics}
    expected = Counter((topic, part) for topic in wanted for part in range(topics[topic].partitions))
    assert Counter(places(assigned)) == expected
    for each in subscribers:
        assert assigned[each.member_id].keys() <= each.topics


def check_balanced(subscribers, assigned):
    """Fail if a partition could move to another subscriber that has at least two partitions fewer."""
    for giver in subscribers:
        for topic in assigned[giver.member_id]:
            for taker in subscribers:
                if topic in taker.topics:
                    assert load(assigned[giver.member_id]) - load(assigned[taker.member_id]) < 2


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=members, topics=shapes)
def test_every_partition_has_one_owner_who_subscribes_to_it(name, members, topics):
    subscribers = [Subscriber(name, subscribed) for name, subscribed in members.items()]
    check_complete(subscribers, topics, run_steps(ASSIGNORS[name](subscribers, topics)))


@given(data=st.data(), before=members, after=members, topics=shapes, later=shapes)
def test_the_uniform_assignor_stays_balanced_as_members_and_topics_change(data, before, after, topics, later):
    had = uniform([Subscriber(name, subscribed) for name, subscribed in before.items()], topics)
    subscribers = [Subscriber(name, topics, had.get(name, {})) for name, topics in after.items()]
    assigned = uniform(subscribers, later)
    check_complete(subscribers, later, assigned)
    check_balanced(subscribers, assigned)
    again = [each._replace(has=assigned[each.member_id]) for each in subscribers]
    assert uniform(again, later) == assigned  # nothing is left to do


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 40))
def test_the_uniform_assignor_moves_no_more_partitions_than_balance_needs(before, after, partitions):
    topics, subscribed = {TOPICS[0]: TopicShape(partitions)}, frozenset(TOPICS[:1])
    had = uniform([Subscriber(str(number), subscribed) for number in range(before)], topics)
    subscribers = [Subscriber(str(number), subscribed, had.get(str(number), {})) for number in range(after)]
    assigned = uniform(subscribers, topics)
    stayed = sum(
        len(had[name][topic] & parts)
        for name, of in assigned.items()
        if name in had
        for topic, parts in of.items()
        if topic in had[name]
    )
    least, more = divmod(partitions, after)
    loads = sorted((load(had.get(str(number), {})) for number in range(after)), reverse=True)
    # Each member keeps what it had up to its even share. The largest shares are those of the members that had the most.
    assert stayed == sum(min(had, least + (rank < more)) for rank, had in enumerate(loads))


def test_the_uniform_assignor_ignores_owned_partitions_that_a_member_cannot_have():
    topics, subscribed = {TOPICS[0]: TopicShape(2)}, frozenset(TOPICS[:1])
    has = {TOPICS[0]: frozenset({0, 9}), TOPICS[1]: frozenset({0})}
    subscribers = [Subscriber("a", subscribed, has), Subscriber("b", subscribed, {TOPICS[0]: frozenset({0})})]
    assert uniform(subscribers, topics) == {"a": {TOPICS[0]: frozenset({0})}, "b": {TOPICS[0]: frozenset({1})}}


def test_the_range_assignor_gives_each_member_the_same_range_of_each_topic():
    topics = {TOPICS[0]: TopicShape(5), TOPICS[1]: TopicShape(5)}
    assigned = ranges([Subscriber(name, frozenset(TOPICS[:2])) for name in "ba"], topics)
    assert assigned == {
        "a": dict.fromkeys(TOPICS[:2], frozenset({0, 1, 2})),
        "b": dict.fromkeys(TOPICS[:2], frozenset({3, 4})),
    }


def test_the_range_assignor_orders_static_members_by_instance_id_first():
    topics, subscribed = {TOPICS[0]: TopicShape(3)}, frozenset(TOPICS[:1])
    subscribers = [
        Subscriber("a", subscribed),
        Subscriber("b", subscribed, instance_id="2"),
        Subscriber("c", subscribed, instance_id="1"),
    ]
    assigned = ranges(subscribers, topics)
    assert {name: min(of[TOPICS[0]]) for name, of in assigned.items()} == {"c": 0, "b": 1, "a": 2}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_each_step_of_assigning_a_large_group_is_short(name):
    topics = {b"%016d" % number: TopicShape(10) for number in range(100)}
    subscribers = [Subscriber(f"m{number}", frozenset(topics)) for number in range(300)]
    assert max(ASSIGNORS[name](subscribers, topics)) <= 10_000  # units of work, as an assignor yields them


@pytest.mark.slow
def test_assigning_1000_partitions_to_1000_members_takes_less_than_20000_units():
    """Each step of an assignor yields how many units of work it has done."""
    topics, subscribed = {TOPICS[0]: TopicShape(1000)}, frozenset(TOPICS[:1])
    one = uniform([Subscriber("m0", subscribed)], topics)
    subscribers = [Subscriber(f"m{number}", subscribed, one.get(f"m{number}", {})) for number in range(1000)]
    units = sum(ASSIGNORS["uniform"](subscribers, topics))
    assert units < 20_000

"""The assignor `simple` on random groups: complete, shared as little as possible, balanced, and sticky."""

from collections import Counter

from fencepost.broker.groups.assigned.assignment import Subscriber, TopicShape, run_steps
from fencepost.broker.groups.share.assignor import simple_steps
from hypothesis import given
from hypothesis import strategies as st

TOPICS = [b"%016d" % number for number in range(4)]
sizes = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 6))
subscriptions = st.frozensets(st.sampled_from(TOPICS))
members = st.dictionaries(st.sampled_from("abcdefghijkl"), subscriptions, max_size=9)
ONE, TWO, THREE = TOPICS[:3]


def assign(subscribers, sizes):
    shapes = {topic: TopicShape(size) for topic, size in sizes.items()}
    return run_steps(simple_steps(subscribers, shapes, {topic: frozenset(range(sizes[topic])) for topic in sizes}))


def of(names, topics=frozenset({ONE}), has=None):
    return [Subscriber(name, frozenset(topics), (has or {}).get(name, {})) for name in names]


def readers(assigned):
    return Counter((topic, each) for parts in assigned.values() for topic, some in parts.items() for each in some)


def loads(assigned):
    return sorted(sum(map(len, parts.values())) for parts in assigned.values())


@given(members=members, sizes=sizes)
def test_share_partitions_are_assigned_only_to_subscribers_and_each_to_at_least_one(members, sizes):
    assigned = assign([Subscriber(name, topics) for name, topics in members.items()], sizes)
    wanted = {topic for topics in members.values() for topic in topics if topic in sizes}
    assert readers(assigned).keys() == {(topic, each) for topic in wanted for each in range(sizes[topic])}
    assert all(assigned[name].keys() <= topics for name, topics in members.items())


@given(count=st.integers(1, 12), sizes=sizes, data=st.data())
def test_members_with_one_subscription_share_each_partition_with_as_few_as_possible(count, sizes, data):
    names = [f"m-{number:02}" for number in range(count)]
    places = [(topic, each) for topic, size in sizes.items() for each in range(size)]
    had = {}
    for name in data.draw(st.lists(st.sampled_from(names), unique=True)):
        for topic, each in data.draw(st.lists(st.sampled_from(places), max_size=4)) if places else ():
            had.setdefault(name, {}).setdefault(topic, set()).add(each)
    has = {name: {topic: frozenset(some) for topic, some in parts.items()} for name, parts in had.items()}
    assigned = assign(of(names, sizes, has), sizes)
    if places:
        sharing = -(-count // len(places))
        assert all(1 <= found <= sharing for found in readers(assigned).values())
        # With as many members as partitions, each member has one. No member has more than an even share.
        assert loads(assigned)[0] >= 1 or count < len(places) or sharing > 1
        assert loads(assigned)[-1] <= -(-sharing * len(places) // count)


@given(members=members, sizes=sizes)
def test_an_unchanged_share_group_keeps_its_assignment(members, sizes):
    assigned = assign([Subscriber(name, topics) for name, topics in members.items()], sizes)
    again = [Subscriber(name, topics, assigned[name]) for name, topics in members.items()]
    assert assign(again, sizes) == assigned


def test_a_share_group_with_no_more_members_than_partitions_shares_no_partition():
    assert loads(assign(of("abc"), {ONE: 3})) == [1, 1, 1]
    assert loads(assign(of("ab"), {ONE: 3})) == [1, 2]


def test_more_members_than_partitions_share_them_evenly():
    assigned = assign(of("abcde"), {ONE: 2})
    # The partitions of each of the five members, and the members of each of the two partitions.
    assert (loads(assigned), sorted(readers(assigned).values())) == ([1, 1, 1, 1, 2], [3, 3])


def test_a_joining_share_member_takes_only_as_many_partitions_as_balance_needs():
    first = assign(of("bc"), {ONE: 4})
    second = assign(of("abc", has=first), {ONE: 4})
    assert all(second[name][ONE] <= first[name][ONE] for name in "bc")
    assert loads(second) == [1, 1, 2]


def test_partitions_of_a_departed_share_member_go_to_others_who_keep_their_own():
    first = assign(of("abc"), {ONE: 6})
    second = assign(of("ac", has=first), {ONE: 6})
    assert all(first[name][ONE] <= second[name][ONE] for name in "ac")
    assert loads(second) == [3, 3]


def test_the_share_assignor_assigns_only_assignable_partitions():
    shapes = {ONE: TopicShape(3), TWO: TopicShape(1)}
    steps = simple_steps(of("a", (ONE, TWO)), shapes, {ONE: frozenset({0, 2}), TWO: frozenset()})
    assert run_steps(steps) == {"a": {ONE: frozenset({0, 2})}}

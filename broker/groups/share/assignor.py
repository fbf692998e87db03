"""The assignor `simple`: it decides which members of a share group read which partitions. Pure.

Topics with the same subscribers are divided among these subscribers together. If there are at least as many partitions
as subscribers, each partition gets one member. If there are fewer, each partition gets ⌈subscribers / partitions⌉
members, so that every member has one. The numbers of partitions that members get differ by one at most, unless a
partition would be given to a member twice. Members keep what they have as far as that allows. Like all assignors it is
a generator that yields the cost of its steps.

Source: KIP-932; Kafka's SimpleAssignor, which divides each topic separately if subscriptions differ.
"""

from collections.abc import Generator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from ...topics.names import TopicIdPartition
from ..assigned.assignment import UNITS_AT_ONCE, Assigned, AssignmentSteps, Subscriber, Topics, classes_of
from ..targets import TopicId

Given = list[set[TopicIdPartition]]  # the partitions that each member gets, by index of the member
Assignable = Mapping[TopicId, frozenset[int]]
"""The partitions that may be assigned, by topic."""


def simple_steps(members: Sequence[Subscriber], topics: Topics, assignable: Assignable) -> AssignmentSteps:
    """Assign partitions to members, in steps. A partition may get several members. Yields the cost of each step;
    returns the assignment.

    Members keep what they have where possible. topics, assignable: by topic id, the topics and the partitions that may
    be assigned.
    """
    ordered = sorted(members, key=lambda each: each.member_id)
    given: Given = [set() for _ in ordered]
    yield 1 + len(ordered)
    classes = yield from classes_of(ordered, topics)
    for each in classes:
        places = [(topic_id, partition) for topic_id in each.topics for partition in sorted(assignable[topic_id])]
        yield 1 + len(places)
        if places:
            yield from _share(places, each.members, ordered, given)
    assigned: Assigned = {}
    for member, has in zip(ordered, given, strict=True):
        found: dict[TopicId, set[int]] = {}
        for topic_id, partition in has:
            found.setdefault(topic_id, set()).add(partition)
        assigned[member.member_id] = {topic_id: frozenset(found[topic_id]) for topic_id in sorted(found)}
        yield 1 + len(has)
    return assigned


def _share(
    places: Sequence[TopicIdPartition], subscribers: Sequence[int], members: Sequence[Subscriber], given: Given
) -> Generator[int, None, None]:
    """Divide these partitions among the subscribers, in steps. Each keeps the partitions that it has, up to the
    number that it is to get, and then gets free ones.

    subscribers: indices of members. given: the partitions of each member, by index; those assigned here are added.
    """
    sharing = -(-len(subscribers) // len(places))  # how many members each partition gets: the quotient, rounded up
    held: dict[TopicIdPartition, set[int]] = {place: set() for place in places}
    had = {index: _had(members[index], held) for index in subscribers}
    yield sum(map(len, had.values())) + len(places)
    missing = _sizes(had, sharing * len(places))
    for index in subscribers:
        for place in had[index]:
            if missing[index] and len(held[place]) < sharing:
                held[place].add(index)
                missing[index] -= 1
        yield 1 + len(had[index])
    yield from _fill(held, missing, sharing)
    for place, indices in held.items():
        for index in indices:
            given[index].add(place)
        yield 1 + len(indices)


def _had(member: Subscriber, held: Mapping[TopicIdPartition, object]) -> list[TopicIdPartition]:
    """Return the partitions that the member has at present and that are in `held`."""
    return [
        place
        for topic_id, partitions in member.has.items()
        for partition in sorted(partitions)
        if (place := (topic_id, partition)) in held
    ]


def _sizes(had: Mapping[int, Sequence[TopicIdPartition]], places: int) -> dict[int, int]:
    """Return how many of `places` assignments each member gets, by index: equally many, or one more.

    had: the partitions that each member has now. Those with the most get the additional ones.
    """
    least, more = divmod(places, len(had))
    ordered = sorted(had, key=lambda index: (-len(had[index]), index))
    return {index: least + (number < more) for number, index in enumerate(ordered)}


def _fill(
    held: dict[TopicIdPartition, set[int]], missing: Mapping[int, int], sharing: int
) -> Generator[int, None, None]:
    """Give partitions that have fewer than `sharing` members to the members that lack the most, in steps. Unassigned
    partitions come first.

    held: the members of each partition, by index. missing: how many partitions each member is still to get.
    """
    unfilled = [(-count, index) for index, count in missing.items() if count]
    heapify(unfilled)
    for number, place in enumerate(sorted(held, key=lambda each: len(held[each]))):
        indices, again = held[place], list[tuple[int, int]]()
        while unfilled and len(indices) < sharing:
            count, index = heappop(unfilled)
            if index in indices:
                again.append((count, index))
                continue
            indices.add(index)
            if count + 1:
                again.append((count + 1, index))
        for each in again:
            heappush(unfilled, each)
        if number % UNITS_AT_ONCE == 0:
            yield UNITS_AT_ONCE

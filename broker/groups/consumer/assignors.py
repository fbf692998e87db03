"""The assignors `uniform` and `range`: they decide which member of a consumer group reads which partition. Pure.

Both give each partition of a subscribed topic to exactly one of the topic's subscribers. `uniform` balances, and moves
as few partitions as that needs: afterwards no partition could move to a subscriber that has at least two fewer. `range`
gives each subscriber of a topic a range of consecutive partitions: the same range of each topic if all members
subscribe to the same topics. Neither looks at racks (decision 22).
An assignor is a generator that yields units of work, so a large group is assigned in slices.
Sources: KIP-848; Kafka's UniformAssignor and RangeAssignor. `range` has the same results as Kafka's.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from ...topics.names import TopicIdPartition
from ..assigned.assignment import (
    TOPICS_OF_A_UNIT,
    UNITS_AT_ONCE,
    Assigned,
    AssignmentSteps,
    Class,
    Subscriber,
    Topics,
    classes_of,
)
from ..targets import TopicId

Assignor = Callable[[Sequence[Subscriber], Topics], AssignmentSteps]


# ---- range ---------------------------------------------------------------------------------------------------


def range_steps(members: Sequence[Subscriber], topics: Topics) -> AssignmentSteps:
    """Assign by `range`, in steps: each member gets a range of consecutive partitions of each topic.

    Members get their ranges in a fixed order, static members first. Yields the cost of each step; returns the
    assignment.
    """
    ordered = sorted(members, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id))
    assigned: dict[str, dict[TopicId, frozenset[int]]] = {each.member_id: {} for each in ordered}
    subscribers_of = yield from _subscribers(ordered, topics)
    for topic_id, subscribers in subscribers_of.items():
        least, more = divmod(topics[topic_id].partitions, len(subscribers))
        begin = 0
        for index, member in enumerate(subscribers):
            end = begin + least + (index < more)
            if end > begin:
                assigned[member.member_id][topic_id] = frozenset(range(begin, end))
            begin = end
        yield 1 + len(subscribers)
    return dict(assigned)


def _subscribers(
    members: Iterable[Subscriber], topics: Topics
) -> Generator[int, None, dict[TopicId, list[Subscriber]]]:
    """Return the subscribers of each topic, in steps. Topics that do not exist are left out."""
    found: dict[TopicId, list[Subscriber]] = {}
    for member in members:
        for topic_id in member.topics:
            if topic_id in topics:
                found.setdefault(topic_id, []).append(member)
        yield 1 + len(member.topics) // TOPICS_OF_A_UNIT
    return found


# ---- uniform -------------------------------------------------------------------------------------------------


def uniform_steps(members: Sequence[Subscriber], topics: Topics) -> AssignmentSteps:
    """Assign by `uniform`, in steps: members keep their partitions; free ones go to those with the fewest partitions.

    Then some partitions are moved, so that loads differ as little as possible. Yields the cost of each step; returns
    the assignment.
    """
    classes = yield from classes_of(members, topics)
    loads = [0] * len(members)
    class_of = {topic_id: each for each in classes for topic_id in each.topics}
    taken: set[TopicIdPartition] = set()
    for index, member in enumerate(members):
        loads[index] = _keep(member, index, class_of, topics, taken)
        yield 1 + loads[index]
    for each in classes:
        for topic_id in each.topics:
            of_topic = ((topic_id, index) for index in range(topics[topic_id].partitions))
            each.free += [place for place in of_topic if place not in taken]
            yield topics[topic_id].partitions
        yield from _hand_out(each, loads)
    moved = True
    while moved:  # each move makes the sum of squared loads smaller, so this ends
        moved = False
        for each in classes:
            moves = yield from _balance(each, loads)
            moved = moved or (moves > 0 and len(classes) > 1)
    return (yield from _collect(members, classes))


def _keep(
    member: Subscriber, index: int, class_of: Mapping[TopicId, Class], topics: Topics, taken: set[TopicIdPartition]
) -> int:
    """Let a member keep the partitions it has, as far as it still subscribes to their topics. Returns how many it
    keeps.

    index: the member's index. taken: the partitions that are assigned so far; the kept ones are added.
    """
    kept = 0
    for topic_id, partitions in member.has.items():
        found = class_of.get(topic_id)
        if found is None or topic_id not in member.topics:
            continue
        held = found.held.setdefault(index, [])
        for partition in sorted(partitions):
            place = topic_id, partition
            if partition < topics[topic_id].partitions and place not in taken:
                taken.add(place)
                held.append(place)
                kept += 1
    return kept


def _hand_out(each: Class, loads: list[int]) -> Generator[int, None, None]:
    """Give each free partition to the subscriber that has the fewest, in steps. loads: how many partitions each member
    has, by index.
    """
    least = [(loads[index], index) for index in each.members]
    heapify(least)
    for number, place in enumerate(each.free):
        load, index = heappop(least)
        each.held.setdefault(index, []).append(place)
        loads[index] = load + 1
        heappush(least, (load + 1, index))
        if number % UNITS_AT_ONCE == 0:
            yield UNITS_AT_ONCE
    each.free = []


def _balance(each: Class, loads: list[int]) -> Generator[int, None, int]:
    """Move partitions of the class from the member that has the most to the one that has the fewest, as long as they
    differ by 2 or more.

    Runs in steps. Returns how many were moved. loads: the number of partitions of each member, by index.
    """
    least = [(loads[index], index) for index in each.members]
    most = [(-loads[index], index) for index, held in each.held.items() if held]
    heapify(least)
    heapify(most)
    moves = 0
    while most:
        load, giver = -most[0][0], most[0][1]
        if load != loads[giver]:  # its load has changed: put it back with its present load
            heappop(most)
            if each.held.get(giver):
                heappush(most, (-loads[giver], giver))
            continue
        few, taker = least[0]
        if few != loads[taker]:
            heappop(least)
            heappush(least, (loads[taker], taker))
            continue
        if load - few < 2:
            break
        heappop(most)
        held = each.held[giver]
        each.held.setdefault(taker, []).append(held.pop())
        loads[giver] -= 1
        loads[taker] += 1
        heappush(most, (-loads[taker], taker))
        if held:
            heappush(most, (-loads[giver], giver))
        moves += 1
        if moves % UNITS_AT_ONCE == 0:
            yield UNITS_AT_ONCE
    yield len(each.members)
    return moves


def _collect(members: Sequence[Subscriber], classes: Iterable[Class]) -> AssignmentSteps:
    """Merge the partitions that each class gave to its members into one assignment."""
    found: list[dict[TopicId, set[int]]] = [{} for _ in members]
    for each in classes:
        for index, held in each.held.items():
            for topic_id, partition in held:
                found[index].setdefault(topic_id, set()).add(partition)
            yield 1 + len(held) // TOPICS_OF_A_UNIT
    assigned: Assigned = {}
    for member, has in zip(members, found, strict=True):
        assigned[member.member_id] = {topic_id: frozenset(has[topic_id]) for topic_id in sorted(has)}
        yield 1 + len(has)
    return assigned


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform_steps, "range": range_steps}
"""By name; the first is the default."""

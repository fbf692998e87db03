"""What assignors are given and what they return, whatever kind of group they assign. Pure."""

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

from ...topics.names import TopicIdPartition
from ..targets import NOTHING, Partitions, TopicId

UNITS_AT_ONCE = 100  # of work in one step of an assignor that goes through partitions
TOPICS_OF_A_UNIT = 10  # topics of one member that are gone through for one unit of work

Assigned = dict[str, Partitions]
"""What each member is to read, by member id."""

AssignmentSteps = Generator[int, None, Assigned]
"""The work of an assignor: it yields the units that each step took, so a large group is assigned in slices."""


class Subscriber(NamedTuple):
    """A member of a group, with what an assignor needs of it. topics: the ids of the topics it subscribes to. has: its
    previous target assignment.
    """

    member_id: str
    topics: frozenset[TopicId]
    has: Partitions = NOTHING
    instance_id: str | None = None


class TopicShape(NamedTuple):
    """How many partitions a topic has, for an assignor."""

    partitions: int


Topics = Mapping[TopicId, TopicShape]


class Class:
    """Topics with the same subscribers, so that any partition of these topics can be moved from one of the subscribers
    to another.

    members: indices of the subscribers in the list of all members.
    """

    __slots__ = ("free", "held", "members", "topics")

    def __init__(self, members: list[int]) -> None:
        self.members = members
        self.topics: list[TopicId] = []
        self.held: dict[int, list[TopicIdPartition]] = {}  # by member: what it has of these topics
        self.free: list[TopicIdPartition] = []


def classes_of(members: Sequence[Subscriber], topics: Topics) -> Generator[int, None, list[Class]]:
    """Group the topics into classes, one for each set of subscribers. Yields the cost of each step; returns the
    classes.

    Classes with the fewest subscribers come first, because they leave the least choice. Topics that do
    not exist, or that nobody subscribes to, are in no class. members: all members of the group; a class refers to them
    by index.
    """
    if not members:
        return []
    first = members[0].topics
    indices: dict[TopicId, list[int]] = {}
    yield len(members)
    if all(member.topics is first or member.topics == first for member in members):
        everybody = list(range(len(members)))
        indices = {topic_id: everybody for topic_id in sorted(first) if topic_id in topics}
    else:
        for index, member in enumerate(members):
            for topic_id in member.topics:
                if topic_id in topics:
                    indices.setdefault(topic_id, []).append(index)
            yield 1 + len(member.topics) // TOPICS_OF_A_UNIT
    by_members: dict[tuple[int, ...] | int, Class] = {}  # if all members subscribe, the key is only their number
    for topic_id in sorted(indices):
        of_topic = indices[topic_id]
        key = len(of_topic) if len(of_topic) == len(members) else tuple(of_topic)
        found = by_members.get(key)
        if found is None:
            found = by_members[key] = Class(of_topic)
        found.topics.append(topic_id)
        yield 1 + (0 if isinstance(key, int) else len(key) // TOPICS_OF_A_UNIT)
    return sorted(by_members.values(), key=lambda each: len(each.members))


def run_steps(steps: AssignmentSteps) -> Assigned:
    """Run all steps of an assignor without pauses, and return the assignment."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Assigned = end.value
            return result

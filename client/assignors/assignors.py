"""The range and round robin assignors, and all assignors by name. Pure.

The rule: the same members and topics give the same assignment as Kafka's assignors, so a group may mix clients. A
topic without known partitions is left out. Racks are ignored. Sources: Kafka's RangeAssignor and RoundRobinAssignor
(4.x); KIP-345 for the order of static members.
"""

from collections.abc import Sequence

from ..errors import InvalidConfigurationError
from ..values import TopicPartition
from .assignment import Assigned, Assignor, LastAssignment, Members, Partitions, subscribed
from .sticky import CooperativeStickyAssignor, StickyAssignor


class RangeAssignor:
    """Topic by topic: the first members get the first partitions, so topics of one size are divided alike."""

    name = "range"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return None

    def assign(self, partitions: Partitions, members: Members) -> Assigned:
        """Give each subscriber a run of consecutive partitions of each topic; the first ones get one more where
        needed.
        """
        assigned: Assigned = {member: [] for member in members}
        readers_of: dict[str, list[str]] = {}
        for member in in_order(members):
            for topic in dict.fromkeys(members[member].topics):
                readers_of.setdefault(topic, []).append(member)
        for topic in sorted(subscribed(partitions, members)):
            readers = readers_of[topic]
            each, more = divmod(partitions[topic], len(readers))
            first = 0
            for place, member in enumerate(readers):
                end = first + each + (place < more)
                assigned[member] += [TopicPartition(topic, number) for number in range(first, end)]
                first = end
        return assigned


class RoundRobinAssignor:
    """Partition by partition, to the next member who subscribes to its topic."""

    name = "roundrobin"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return None

    def assign(self, partitions: Partitions, members: Members) -> Assigned:
        """Give the partitions of all topics to the members in turn, skipping members that do not subscribe to the
        topic.
        """
        assigned: Assigned = {member: [] for member in members}
        ordered = in_order(members)
        wanted = [frozenset(members[member].topics) for member in ordered]
        turn = 0
        for topic in sorted(subscribed(partitions, members)):
            for number in range(partitions[topic]):
                while topic not in wanted[turn % len(ordered)]:
                    turn += 1
                assigned[ordered[turn % len(ordered)]].append(TopicPartition(topic, number))
                turn += 1
        return assigned


def in_order(members: Members) -> list[str]:
    """Return the member ids in order: static members first, by instance id; then the others, by member id."""

    def rank(member: str) -> tuple[bool, str]:
        instance = members[member].group_instance_id
        return (instance is None, member if instance is None else instance)

    return sorted(members, key=rank)


def assignors_of(strategies: Sequence[str | Assignor]) -> tuple[Assignor, ...]:
    """Return the assignors with these names; an assignor object is used as it is. Raises InvalidConfigurationError."""
    known: list[Assignor] = [RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor()]
    by_name = {assignor.name: assignor for assignor in known}
    found = [by_name.get(each) if isinstance(each, str) else each for each in strategies]
    chosen = [assignor for assignor in found if assignor is not None]
    if len(chosen) != len(strategies) or not chosen:
        raise InvalidConfigurationError(
            f"partition_assignment_strategy={list(strategies)} is not valid", hint=f"use any of {', '.join(by_name)}"
        )
    if len({assignor.name for assignor in chosen}) != len(chosen):
        raise InvalidConfigurationError("partition_assignment_strategy names an assignor twice")
    return tuple(chosen)


def cooperates(assignors: Sequence[Assignor]) -> bool:
    """Return whether the member keeps its partitions while it joins: only if all its assignors allow that."""
    return all(assignor.cooperative for assignor in assignors)

"""The types that all assignors share: their input and their result. Pure.

Source: Kafka's ConsumerPartitionAssignor.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from ..values import TopicPartition
from .consumer_protocol import Subscription

Partitions = Mapping[str, int]
"""Topic → number of partitions."""

Members = Mapping[str, Subscription]
"""Member id → subscription, in the order of the broker's list."""

Assigned = dict[str, list[TopicPartition]]
"""Member id → its partitions."""


class LastAssignment(NamedTuple):
    """This member's most recent assignment, and the generation of it."""

    partitions: tuple[TopicPartition, ...]
    generation: int


class Assignor(Protocol):
    """Divides a group's partitions among its members. cooperative: members may keep what they have while the group
    rebalances (KIP-429).
    """

    name: str
    cooperative: bool

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        """Return the `user_data` of this member's subscription, which the leader reads; None for none. last: its most
        recent assignment.
        """
        ...

    def assign(self, partitions: Partitions, members: Members) -> Assigned:
        """Return the partitions of every member. The leader of the group calls it. partitions: the number of
        partitions by topic.
        """
        ...


def subscribed(partitions: Partitions, members: Members) -> set[str]:
    """Return the topics that at least one member subscribes to and that have partitions."""
    wanted = {topic for subscription in members.values() for topic in subscription.topics}
    return {topic for topic in wanted if partitions.get(topic, 0) > 0}


def partitions_of(topics: Iterable[str], partitions: Partitions) -> list[TopicPartition]:
    """Return all partitions of these topics, one topic after the other."""
    return [TopicPartition(topic, number) for topic in topics for number in range(partitions[topic])]

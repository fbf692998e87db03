"""What an assignor is asked and what it answers: the words that all assignors share. Pure.

Source: Kafka's ConsumerPartitionAssignor.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from ..values import TopicPartition
from .consumer_protocol import Subscription

Partitions = Mapping[str, int]
"""Topics, and how many partitions each has."""

Members = Mapping[str, Subscription]
"""Member ids and their subscriptions, in the order in which the broker named them."""

Assigned = dict[str, list[TopicPartition]]
"""Member ids, and what each gets."""


class LastAssignment(NamedTuple):
    """What this member was given last, and in which generation."""

    partitions: tuple[TopicPartition, ...]
    generation: int


class Assignor(Protocol):
    """cooperative: members may keep what they have while the group rebalances (KIP-429)."""

    name: str
    cooperative: bool

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        """What a member says to the leader beside its topics."""
        ...

    def assign(self, partitions: Partitions, members: Members) -> Assigned:
        """As the leader of the group: every member is named in the result."""
        ...


def subscribed(partitions: Partitions, members: Members) -> set[str]:
    """The topics that somebody wants and that have partitions."""
    wanted = {topic for subscription in members.values() for topic in subscription.topics}
    return {topic for topic in wanted if partitions.get(topic, 0) > 0}


def partitions_of(topics: Iterable[str], partitions: Partitions) -> list[TopicPartition]:
    """All partitions of these topics, one topic after the other."""
    return [TopicPartition(topic, number) for topic in topics for number in range(partitions[topic])]

"""The topics, as groups with assigned partitions see them, and a hash of what a group subscribes to. Pure."""

from collections.abc import Collection, Iterable
from typing import Protocol

from ..targets import TopicId
from .assignment import Topics

FIRST_EPOCH = 1  # of a group without a record of its epoch; so no member is ever answered epoch 0
TEXT_BYTES = 60  # of memory for a text, besides its characters
MEMBER_BYTES = 2_000  # of memory for a member, besides its texts and partitions
PARTITION_BYTES = 100  # of memory for a partition that a member has
LARGE_PRIME = (1 << 61) - 1


class TopicView(Protocol):
    """The topics of the broker, through the methods that groups use. version: changes when a topic or partition is
    added or removed.
    """

    @property
    def version(self) -> int:
        """A number that changes when a topic or partition is added or removed."""
        ...

    def id_of(self, name: str) -> TopicId | None:
        """Return the topic's id; None if the topic does not exist."""
        ...

    def sizes(self, names: Iterable[str]) -> Iterable[tuple[TopicId, int]]:
        """Return the id and the number of partitions of each of these topics that exists."""
        ...

    def shapes(self, topic_ids: Iterable[TopicId]) -> Topics:
        """Return how many partitions each of these topics has, by id. Topics that do not exist are left out."""
        ...

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
        ...

    def name_of(self, topic_id: TopicId) -> str | None:
        """Return the topic's name; None if the topic does not exist."""
        ...


def metadata_hash(topics: TopicView, names: Iterable[str]) -> int:
    """Return a hash of the existing topics among `names`, which changes if one of them is created or deleted, or gets
    more partitions.

    It differs from Kafka's, which does not matter because only this broker compares it. Since topic ids are random, a
    sum is enough; the order of names has no effect.
    """
    return sum(int.from_bytes(topic_id, "big") * (size + 1) for topic_id, size in topics.sizes(names)) % LARGE_PRIME

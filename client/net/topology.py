"""What a client knows of the cluster: brokers, topics, who leads which partition.

The rule: a view is never changed, only replaced; what a broker says of a leader with an older epoch than the one known
is not believed, unless the topic is another one of the same name. Source: KIP-320, KIP-516; Kafka's class Metadata.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages.cluster import MetadataResponse
from ...protocol.primitives import ZERO_UUID
from ..errors import code_of

Uuid = bytes


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class Partition(NamedTuple):
    """leader: -1 if there is none at the moment. leader_epoch: -1 if the broker does not say."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class Topic(NamedTuple):
    """error: why it cannot be used, 0 if it can. topic_id: zero if the broker gives none."""

    name: str
    topic_id: Uuid
    partitions: Mapping[int, Partition]
    error: int = 0
    is_internal: bool = False


class Metadata:
    """One view. at_ms: when it was asked for; -1: never."""

    __slots__ = ("_names", "at_ms", "brokers", "cluster_id", "controller_id", "topics")

    def __init__(
        self,
        brokers: Mapping[int, Node] | None = None,
        topics: Mapping[str, Topic] | None = None,
        controller_id: int = -1,
        cluster_id: str | None = None,
        at_ms: int = -1,
    ) -> None:
        self.brokers = brokers or {}
        self.topics = topics or {}
        self.controller_id = controller_id
        self.cluster_id = cluster_id
        self.at_ms = at_ms
        self._names = {topic.topic_id: topic.name for topic in self.topics.values() if topic.topic_id != ZERO_UUID}

    def leader(self, topic_partition: tuple[str, int]) -> int | None:
        """The node that leads a partition; None while nobody does, or it is not known."""
        topic = self.topics.get(topic_partition[0])
        partition = topic.partitions.get(topic_partition[1]) if topic is not None else None
        return partition.leader if partition is not None and partition.leader >= 0 else None

    def leader_epoch(self, topic_partition: tuple[str, int]) -> int:
        """-1 if not known."""
        topic = self.topics.get(topic_partition[0])
        partition = topic.partitions.get(topic_partition[1]) if topic is not None else None
        return partition.leader_epoch if partition is not None else -1

    def partitions(self, topic: str) -> int | None:
        """How many partitions a topic has; None if it is not known."""
        found = self.topics.get(topic)
        return len(found.partitions) if found is not None and not found.error else None

    def topic_id(self, topic: str) -> Uuid:
        """Zero if it is not known."""
        found = self.topics.get(topic)
        return found.topic_id if found is not None else ZERO_UUID

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def error(self, topic: str) -> ErrorCode | None:
        """What the broker said against a topic that was asked for; None if nothing, or if nobody asked."""
        found = self.topics.get(topic)
        if found is None or not found.error:
            return None
        return code_of(found.error)

    def incomplete(self, topics: Iterable[str]) -> list[str]:
        """Those of which something is missing that may come: the topic, or the leader of a partition."""
        return [name for name in topics if not _complete(self.topics.get(name))]

    def updated(self, response: MetadataResponse, asked: Iterable[str] | None, now_ms: int) -> "Metadata":
        """The view after a response. asked: None for all topics; those no longer named are gone then."""
        topics = {} if asked is None else dict(self.topics)
        for name in asked or ():
            topics.pop(name, None)
        for answered in response.topics:
            if answered.name is not None:
                topics[answered.name] = _topic(answered, self.topics.get(answered.name))
        brokers = {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers}
        return Metadata(brokers, topics, response.controller_id, response.cluster_id, now_ms)

    def without(self, topics: Iterable[str]) -> "Metadata":
        """The same, without topics that nobody asks for any more."""
        gone = set(topics)
        left = {name: topic for name, topic in self.topics.items() if name not in gone}
        return Metadata(self.brokers, left, self.controller_id, self.cluster_id, self.at_ms)


def _complete(topic: Topic | None) -> bool:
    if topic is None or topic.error or not topic.partitions:
        return False
    return all(partition.leader >= 0 for partition in topic.partitions.values())


def _topic(answered: MetadataResponse.Topic, before: Topic | None) -> Topic:
    assert answered.name is not None
    known: Mapping[int, Partition] = {}
    if before is not None and before.topic_id == answered.topic_id:
        known = before.partitions
    partitions = {}
    for one in answered.partitions:
        found = Partition(
            one.leader_id,
            one.leader_epoch,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
            tuple(one.offline_replicas),
        )
        old = known.get(one.partition_index)
        stale = old is not None and 0 <= found.leader_epoch < old.leader_epoch
        partitions[one.partition_index] = old if stale and old is not None else found
    return Topic(answered.name, answered.topic_id, partitions, answered.error_code, answered.is_internal)

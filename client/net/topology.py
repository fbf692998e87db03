"""The metadata of a cluster: brokers, topics, partitions and their leaders. Pure.

The rule: a Metadata object never changes, it is replaced; a leader with an older epoch than the known one is ignored,
unless the topic has another id (deleted and created again). Source: KIP-320, KIP-516; Kafka's class Metadata.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages.cluster import MetadataResponse
from ...protocol.primitives import ZERO_UUID
from ..errors import code_of

Uuid = bytes


class Node(NamedTuple):
    """A broker: its id, address and rack."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class Partition(NamedTuple):
    """A partition's replicas. leader: a node id, -1 if there is none at the moment. leader_epoch: -1 if the broker
    sends none.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class Topic(NamedTuple):
    """A topic and its partitions. error: the code of the broker's error, 0 if it is usable. topic_id: zero if the
    broker sends none.
    """

    name: str
    topic_id: Uuid
    partitions: Mapping[int, Partition]
    error: int = 0
    is_internal: bool = False


class Metadata:
    """What the brokers said of the cluster; never changed, but replaced. at_ms: when it was requested (monotonic ms);
    -1: never.
    """

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
        """Return the node id of the partition's leader; None if it has none or is not known."""
        topic = self.topics.get(topic_partition[0])
        partition = topic.partitions.get(topic_partition[1]) if topic is not None else None
        return partition.leader if partition is not None and partition.leader >= 0 else None

    def leader_address(self, topic_partition: tuple[str, int]) -> tuple[str, int] | None:
        """Return host and port of the partition's leader; None if it has none or is not known."""
        node_id = self.leader(topic_partition)
        node = None if node_id is None else self.brokers.get(node_id)
        return None if node is None else (node.host, node.port)

    def leader_epoch(self, topic_partition: tuple[str, int]) -> int:
        """Return the partition's leader epoch; -1 if it is not known."""
        topic = self.topics.get(topic_partition[0])
        partition = topic.partitions.get(topic_partition[1]) if topic is not None else None
        return partition.leader_epoch if partition is not None else -1

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions of the topic; None if it is not known."""
        found = self.topics.get(topic)
        return len(found.partitions) if found is not None and not found.error else None

    def topic_id(self, topic: str) -> Uuid:
        """Return the id of the topic; ZERO_UUID if it is not known."""
        found = self.topics.get(topic)
        return found.topic_id if found is not None else ZERO_UUID

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def error(self, topic: str) -> ErrorCode | None:
        """Return the broker's error for the topic; None if it has none, or was not requested."""
        found = self.topics.get(topic)
        if found is None or not found.error:
            return None
        return code_of(found.error)

    def incomplete(self, topics: Iterable[str]) -> list[str]:
        """Return those of these topics that are missing, have an error, or have a partition without a leader."""
        return [name for name in topics if not _is_complete(self.topics.get(name))]

    def updated(self, response: MetadataResponse, requested: Iterable[str] | None, now_ms: int) -> "Metadata":
        """Return the metadata after a response. requested: the topics that were asked for; None: all, so any other no
        longer exists.
        """
        topics = {} if requested is None else dict(self.topics)
        for name in requested or ():
            topics.pop(name, None)
        for answered in response.topics:
            if answered.name is not None:
                topics[answered.name] = _topic(answered, self.topics.get(answered.name))
        brokers = {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers}
        return Metadata(brokers, topics, response.controller_id, response.cluster_id, now_ms)

    def without(self, topics: Iterable[str]) -> "Metadata":
        """Return the same metadata without these topics."""
        removed = set(topics)
        left = {name: topic for name, topic in self.topics.items() if name not in removed}
        return Metadata(self.brokers, left, self.controller_id, self.cluster_id, self.at_ms)


def _is_complete(topic: Topic | None) -> bool:
    """Return whether the topic is known, has no error, and each of its partitions has a leader."""
    if topic is None or topic.error or not topic.partitions:
        return False
    return all(partition.leader >= 0 for partition in topic.partitions.values())


def _topic(answered: MetadataResponse.Topic, before: Topic | None) -> Topic:
    """Return the topic from metadata, without going back to an older leader epoch of the same topic."""
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

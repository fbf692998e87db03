"""What Admin takes and gives: topics, settings, groups, transactions, as values. Pure.

The rule: a value says what the broker said, in Kafka's words; times are ms since 1970 on the broker's clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..net.topology import Node
from ..values import TopicPartition

DEFAULT_SOURCE = "default"
_SOURCES = {1: "topic", 2: "broker", 3: "all brokers", 4: "file or flag", 5: DEFAULT_SOURCE, 6: "broker logger"}
ONGOING = "Ongoing"


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1: as many as the broker gives by default (1 on brokers before 2.4)."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict[str, str])


class PartitionDescription(NamedTuple):
    """leader: the id of a node, -1 where there is none now."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """topic_id: zeros on brokers before 2.8."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, each.partition) for each in self.partitions]

    @property
    def led(self) -> list[TopicPartition]:
        """Those that have a leader now, so that they can be asked."""
        return [TopicPartition(self.name, each.partition) for each in self.partitions if each.leader >= 0]


class ConfigEntry(NamedTuple):
    """value: None where it is secret. source: topic, broker, all brokers, file or flag, default."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool

    @property
    def is_default(self) -> bool:
        return self.source == DEFAULT_SOURCE


def source_of(number: int) -> str:
    """The word for a number of DescribeConfigs."""
    return _SOURCES.get(number, "unknown")


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """controller: -1 where nobody says. features: what is finalized, by name."""

    cluster_id: str | None
    controller: int
    nodes: tuple[Node, ...]
    features: Mapping[str, int]


class GroupListing(NamedTuple):
    """state, group_type: empty where the broker is too old to tell. protocol_type: empty for offsets only."""

    group_id: str
    state: str
    protocol_type: str
    group_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group. client_host: as the coordinator sees it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """protocol: the assignor in use. coordinator: the id of a node."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...]


class TransactionListing(NamedTuple):
    """A transactional id. coordinator: the id of a node."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """started_ms: of the transaction that is open, None where none is. partitions: those it has written to."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    coordinator: int
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        """Whether readers may be waiting for its end."""
        return self.state == ONGOING or self.state.startswith("Prepare")


class ProducerState(NamedTuple):
    """A producer as a partition remembers it. txn_start_offset: of its open transaction, None where none is."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int | None


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition, as the partition sees it."""

    topic_partition: TopicPartition
    producer: ProducerState

    @property
    def start_offset(self) -> int:
        return -1 if self.producer.txn_start_offset is None else self.producer.txn_start_offset


@dataclass(frozen=True, slots=True)
class Blocker:
    """What keeps a partition's last stable offset below its high watermark. description: None if nobody knows it."""

    open: OpenTransaction
    last_stable_offset: int
    high_watermark: int
    description: TransactionDescription | None

    @property
    def hangs(self) -> bool:
        """No coordinator will ever end it: it knows nothing of the transaction, or not of this partition."""
        return self.description is None or self.open.topic_partition not in self.description.partitions

"""The parameters and results of Admin: topics, configs, quotas, groups, transactions, as values. Pure.

The rule: a value is the broker's answer in Kafka's terms; times are ms since 1970 on the broker's clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...protocol.ledger_keys import held_text
from ..net.topology import Node
from ..values import TopicPartition

DEFAULT_SOURCE = "default"
_SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file or flag",
    5: DEFAULT_SOURCE,
    6: "broker logger",
    8: "group",
}
ONGOING = "Ongoing"
DEFAULT_ENTITY = "<default>"  # in the place of a name
ANY_ENTITY = "<any>"


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1: the broker's default (1 on brokers before 2.4)."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict[str, str])


class PartitionDescription(NamedTuple):
    """One partition of a topic. leader: the node id of the leader, -1 if the partition has none now."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions. topic_id: zeros on brokers before 2.8."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, each.partition) for each in self.partitions]

    @property
    def led(self) -> list[TopicPartition]:
        """The partitions that have a leader now."""
        return [TopicPartition(self.name, each.partition) for each in self.partitions if each.leader >= 0]


class ConfigEntry(NamedTuple):
    """One setting of a topic, a broker or a group. value: None if it is secret. source: topic, broker, all brokers,
    group, file or flag, default, broker logger.
    """

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool

    @property
    def is_default(self) -> bool:
        return self.source == DEFAULT_SOURCE


def source_of(number: int) -> str:
    """Return the name of a `config_source` number of DescribeConfigs."""
    return _SOURCES.get(number, "unknown")


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers of a cluster. controller: the controller's node id, -1 if unknown. features: the finalized versions,
    by name.
    """

    cluster_id: str | None
    controller: int
    nodes: tuple[Node, ...]
    features: Mapping[str, int]


class QuotaEntity(NamedTuple):
    """The owner of quotas: a user, a client id, both, or an address.

    "<default>" means all without quotas of their own; in a filter, "<any>" matches every name and the default.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __str__(self) -> str:
        named = zip(("user", "client id", "ip"), self, strict=True)
        return ", ".join(f"{type_} {name}" for type_, name in named if name is not None)


class GroupListing(NamedTuple):
    """A group in a list of groups. state, group_type: "" if the broker is too old. protocol_type: "" for a group that
    has offsets only.
    """

    group_id: str
    state: str
    protocol_type: str
    group_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group. client_host: the address that the coordinator sees.

    Only in a group of the type "consumer": epoch, and target, which is what it is to read once others have given it up.
    is_classic: it speaks the classic protocol.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int = -1
    target: tuple[TopicPartition, ...] = ()
    is_classic: bool = True


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members. protocol: the name of the assignor in use. coordinator: a node id.

    group_type: "consumer" if the broker assigns the partitions (KIP-848), "share" if members share them (KIP-932), else
    "classic". epoch: of the group, -1 in a classic one.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    group_type: str = "classic"
    epoch: int = -1


class PendingRange(NamedTuple):
    """Records that a member has acknowledged in a transaction that is open: they are done with if it commits.

    transactional_id: None if it is not known, or this login may not see it.
    """

    first_offset: int
    last_offset: int
    transactional_id: str | None
    producer_id: int
    member_id: str


class ShareWindow(NamedTuple):
    """The records from a share group's start offset in a partition to the last one that it delivered.

    size: how many they are; limit: how many there may be. pending_count: how many of them are acknowledged in open
    transactions. pending: the offsets of those, or of the first of them if they are many. runs: how many runs
    (neighbouring records in the same state) the broker keeps. lacks_memory: the broker has no memory for more runs, so
    it delivers no new record.
    """

    size: int
    limit: int
    pending_count: int
    pending: tuple[PendingRange, ...]
    runs: int = 0
    lacks_memory: bool = False

    @property
    def is_full(self) -> bool:
        """Whether the group gets no new records of the partition until its start offset moves."""
        return self.size >= self.limit


class SharePartitionOffsets(NamedTuple):
    """Where a share group stands in a partition: all records below start_offset are done.

    lag: how many from there on are not; None if it is not known, as on brokers before 4.2. window: None on brokers
    other than fencepost.
    """

    start_offset: int
    leader_epoch: int
    lag: int | None
    window: ShareWindow | None = None

    @property
    def held_by(self) -> tuple[PendingRange, ...]:
        """Return the pending records if the window is full because its first record is pending: no new record is
        delivered until the transaction with that one ends. Else returns ().
        """
        if self.window is None or not self.window.is_full or not self.window.pending:
            return ()
        return self.window.pending if self.window.pending[0].first_offset == self.start_offset else ()


class TransactionListing(NamedTuple):
    """A transactional id. coordinator: a node id. transaction_id: as in TransactionDescription."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int
    transaction_id: str | None = None


def is_open_state(state: str) -> bool:
    """Return whether a transaction in this state of its coordinator is not ended completely."""
    return state == ONGOING or state.startswith("Prepare")


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator knows it.

    started_ms: start of the open transaction, None if none is open. partitions: those it has written to.
    transaction_id: 32 hexadecimal digits, the id of the open transaction or else of the last one; no other transaction
    of the cluster has it. None if there was none since the producer began, or if the broker is not fencepost.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    coordinator: int
    partitions: tuple[TopicPartition, ...]
    transaction_id: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the transaction has not ended completely, so that read_committed readers may wait for it."""
        return is_open_state(self.state)


class PreparedTransaction(NamedTuple):
    """A transaction that is prepared: it waits for a decision, such as that of a sink about its batch.

    sink: the ledger key. number: of the decision, for a sink its batch. owner: who decided last, if known. held: nobody
    else may end it, because the decision may have been taken already, in a database perhaps.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    sink: str
    number: int
    owner: str | None
    held: bool = False

    @property
    def state(self) -> str:
        """Return "Prepared" or "Held"."""
        return "Held" if self.held else "Prepared"

    @property
    def waits_for(self) -> str:
        """The decision that it waits for, as a text."""
        return decision_text(self.sink, self.number, self.held)


def decision_text(ledger_key: str, number: int, held: bool) -> str:
    """Return a text that names the decision for which a prepared transaction waits."""
    if held:
        return held_text(ledger_key, number)
    return f"the decision of sink {ledger_key} about batch {number}"


class ProducerState(NamedTuple):
    """A partition's state of one producer. txn_start_offset: of its open transaction, None if none is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int | None


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition, from the partition's state."""

    topic_partition: TopicPartition
    producer: ProducerState

    @property
    def start_offset(self) -> int:
        return -1 if self.producer.txn_start_offset is None else self.producer.txn_start_offset


@dataclass(frozen=True, slots=True)
class Blocker:
    """The transaction that keeps a partition's last stable offset below its high watermark.

    description: None if no coordinator knows it. prepared: the decision that it waits for, if it does.
    """

    open: OpenTransaction
    last_stable_offset: int
    high_watermark: int
    description: TransactionDescription | None
    prepared: PreparedTransaction | None = None

    @property
    def since_ms(self) -> int | None:
        """When the transaction began, in ms since 1970, or, if that is unknown, the time of its last record in the
        partition; None if neither is known.
        """
        if self.description is not None and self.description.started_ms is not None:
            return self.description.started_ms
        last = self.open.producer.last_timestamp_ms
        return last if last >= 0 else None

    @property
    def hangs(self) -> bool:
        """Whether the transaction hangs: no coordinator will end it in this partition, because none knows the
        transaction, or its coordinator does not count this partition as a part of it.
        """
        return self.description is None or self.open.topic_partition not in self.description.partitions


@dataclass(frozen=True, slots=True)
class HeldOffsets:
    """An open transaction that holds committed offsets of a group: no member learns where to begin in `partitions`.

    open: in the group's partition of __consumer_offsets. description: None if no coordinator knows it. prepared: the
    decision that it waits for, if it does.
    """

    group_id: str
    partitions: tuple[TopicPartition, ...]
    open: OpenTransaction
    description: TransactionDescription | None
    prepared: PreparedTransaction | None

    @property
    def since_ms(self) -> int | None:
        """When the transaction began, in ms since 1970, or, if that is unknown, the time of its last record in the
        partition of __consumer_offsets; None if neither is known.
        """
        return Blocker(self.open, 0, 0, self.description).since_ms

    @property
    def hangs(self) -> bool:
        """Whether the transaction hangs: no coordinator will end it in that partition of __consumer_offsets, as for
        Blocker.hangs.
        """
        return Blocker(self.open, 0, 0, self.description).hangs


class LogDir(NamedTuple):
    """A directory of a broker. usable_bytes: free on its disk; None, as total_bytes, where the broker does not say."""

    path: str
    total_bytes: int | None
    usable_bytes: int | None


class LowLogDir(NamedTuple):
    """A directory on a nearly full disk. floor_bytes: with less free space its broker refuses writes; None if that
    limit is not known.
    """

    broker: int
    path: str
    usable_bytes: int
    floor_bytes: int | None


class ClientDescription(NamedTuple):
    """Connections of one client to a fencepost broker. idle_ms: how long the broker has seen nothing come or leave on
    them.
    """

    client_id: str | None
    software: str
    host: str
    listener: str
    principal: str
    connections: int
    bytes_in: int
    bytes_out: int
    requests: int
    idle_ms: int


class TransactionOwner(NamedTuple):
    """The client that initialised a transactional id last. connected: whether it still is, over the same connection."""

    client_id: str | None
    software: str
    host: str
    listener: str
    principal: str
    connected: bool


class NamedProducerDescription(NamedTuple):
    """A named producer. epoch: of the client that opened the name last, its owner. highest: the highest sequence of
    each partition.
    """

    epoch: int
    owner: str
    highest: dict[TopicPartition, int]


class MetricSample(NamedTuple):
    """One value of a metric. value: of a histogram the sum. buckets: of a histogram (bound, how many are at most
    that), the last infinite.
    """

    labels: tuple[str, ...]
    value: float
    buckets: tuple[tuple[float, int], ...] = ()


class MetricFamily(NamedTuple):
    """A metric. kind: gauge, counter or histogram. labels: the names of the labels, in the order of `labels` of each
    sample.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    samples: tuple[MetricSample, ...]

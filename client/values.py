"""The values that go in and out of the SDK: partitions, offsets, records, what a group knows of a member.

The rule: they are small, immutable where their number is small, and know nothing of the wire.
"""

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]

CREATE_TIME = 0
LOG_APPEND_TIME = 1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """Where a record was written. offset: -1 with acks=0, when nobody says."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Record:
    """A record as it was read. timestamp_type: CREATE_TIME or LOG_APPEND_TIME."""

    __slots__ = ("headers", "key", "offset", "partition", "timestamp_ms", "timestamp_type", "topic", "value")

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        timestamp_type: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __repr__(self) -> str:
        return f"Record({self.topic}-{self.partition}@{self.offset} key={self.key!r} value={self.value!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and all(getattr(self, n) == getattr(other, n) for n in Record.__slots__)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))


class ConsumerGroupMetadata(NamedTuple):
    """Which member of which generation of a group (KIP-447)."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)

"""The values that go in and out of the SDK: partitions, offsets, records, what a group knows of a member.

The rule: they are small, immutable where their number is small, and know nothing of the wire.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
HeadersLike = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
"""What a user may give for them."""

CREATE_TIME = 0
LOG_APPEND_TIME = 1


class TopicPartition(NamedTuple):
    """A partition, by its topic and number. A tuple of the two is taken everywhere."""

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
    """A record by its time. offset: -1 where there is none."""

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


class Record(NamedTuple):
    """A record as it was read. timestamp_type: CREATE_TIME or LOG_APPEND_TIME.

    A tuple, because nothing else is made as fast, and reading makes millions of them.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: Any  # bytes or None, unless a deserializer made something else of it
    value: Any
    headers: Headers = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __repr__(self) -> str:
        return f"Record({self.topic}-{self.partition}@{self.offset} key={self.key!r} value={self.value!r})"


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

"""The values in parameters and results of the SDK: partitions, offsets, records, group members. Pure.

The rule: they are small and immutable, and independent of the wire format.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
HeadersLike = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
"""The types that `send` accepts as headers."""


def headers_bytes(headers: Headers) -> int:
    """Return an upper bound of the headers' size in a record."""
    size = 0
    for name, content in headers:
        size += 4 * len(name) + 8 + (len(content) if content is not None else 0)
    return size


CREATE_TIME = 0
LOG_APPEND_TIME = 1


class TopicPartition(NamedTuple):
    """A partition, by its topic and number. A tuple of the two is accepted everywhere."""

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
    """The offset of a record found by its timestamp. offset: -1 if there is none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """Where a record was written. offset: -1 if it is not known, as with acks=0."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def duplicate(self) -> bool:
        """Return whether this send wrote nothing, because a named producer had sent this sequence before."""
        return False


class WrittenBefore(RecordMetadata):
    """The result of a send that wrote nothing, because its sequence was written before. offset: -1, since the first
    one's offset is not known.
    """

    __slots__ = ()

    @property
    def duplicate(self) -> bool:
        return True


class Record(NamedTuple):
    """A record that was read. timestamp_type: CREATE_TIME or LOG_APPEND_TIME.

    It is a tuple because that is the fastest to create.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: Any  # bytes or None, or the deserializer's result
    value: Any
    headers: Headers = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __repr__(self) -> str:
        return f"Record({self.topic}-{self.partition}@{self.offset} key={self.key!r} value={self.value!r})"


class ShareRecord(NamedTuple):
    """A record of a share group, as it was delivered to one consumer. Its first fields are those of Record.

    delivery_count: how many times it was delivered, this time included; at the group's limit it is not delivered again.
    deadline_ms: until when it is this consumer's, by its wall clock; while it is held, the consumer renews that.
    delivery: a number for this delivery, by which it is told from others of the same record.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: Any
    value: Any
    headers: Headers = ()
    delivery_count: int = 1
    deadline_ms: int = 0
    delivery: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __repr__(self) -> str:
        return (
            f"ShareRecord({self.topic}-{self.partition}@{self.offset} key={self.key!r} value={self.value!r}"
            f" delivery_count={self.delivery_count})"
        )


class AcknowledgeType(IntEnum):
    """What becomes of a record that a share group delivered."""

    ACCEPT = 1  # it is done
    RELEASE = 2  # deliver it again, to any consumer, unless that was the last time allowed
    REJECT = 3  # never deliver it again
    RENEW = 4  # it needs more time: the consumer keeps it, from now on for as long as at first


class ConsumerGroupMetadata(NamedTuple):
    """A member of a group and its generation (KIP-447)."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)

"""The partitions of one Produce request, each with its batch, and with the result of the worker that checked it.

A request is checked as a whole, its batches are checked by a worker thread if that takes long, and then they are
appended; each of these steps goes through the same list. Only after a worker was used are the partitions looked up
again, because a topic may have been deleted and created again. A worker's result is valid only for the partition and
the rules that it was computed for.
"""

import struct
from collections.abc import Callable

from ...protocol.batches import HEADER_BYTES, MAGIC, TRANSACTIONAL_BIT, Batch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import ProduceRequest
from ..topics.partition import AppendRules, Partition
from ..topics.topics import Topics

Part = ProduceRequest.Topic.Partition

TOPIC_IDS_SINCE = 13
MAGIC_AT, ATTRIBUTES_AT = 16, 22  # the second byte of the attributes
PRODUCER_AT = 43
_producer = struct.Struct(">qh").unpack_from


class Target:
    """One partition of a Produce request, with its batch.

    partition: None if it does not exist, or the client may not write to it. transactional: whether the batch is marked
    as part of a transaction.
    """

    __slots__ = ("_found", "_rules", "_seen", "part", "partition", "transactional")

    def __init__(self, part: Part) -> None:
        records = part.records
        self.part = part
        self.partition: Partition | None = None
        self.transactional = (
            records is not None
            and len(records) >= HEADER_BYTES
            and records[MAGIC_AT] == MAGIC
            and records[ATTRIBUTES_AT] & TRANSACTIONAL_BIT != 0
        )
        self._found: Batch | BaseException | None = None  # by a worker
        self._seen: Partition | None = None  # by it, as were these rules
        self._rules: AppendRules | None = None

    @property
    def producer(self) -> tuple[int, int]:
        """The producer id and epoch of a transactional batch."""
        assert self.part.records is not None
        producer_id, epoch = _producer(self.part.records, PRODUCER_AT)
        return producer_id, epoch

    def looked_into(self, partition: Partition, rules: AppendRules, found: Batch | BaseException) -> None:
        """Store what Partition.accept() returned or raised in a worker thread. The result is valid for this partition
        and these rules only.
        """
        self._seen, self._rules, self._found = partition, rules, found

    @property
    def is_looked_into(self) -> bool:
        """Whether a worker thread has checked the batch already, and the result still holds: it does as long as the
        partition and its rules for batches are the same objects as then.
        """
        seen = self._seen
        return seen is not None and seen is self.partition and self._rules is seen.rules

    def accept(self, partition: Partition, records: memoryview, wall_ms: int) -> Batch:
        """Return the checked batch: the worker's result if it is still valid, otherwise what Partition.accept() returns
        now. Raises what that raises.
        """
        found = self._found if self.is_looked_into else None
        if found is None:
            return partition.accept(records, wall_ms)
        if isinstance(found, BaseException):
            raise found
        return found


class Targets:
    """All partitions of one Produce request. by_topic: grouped as in the request. all: in one list."""

    __slots__ = ("_by_id", "_may_write", "_topics", "all", "by_topic")

    def __init__(
        self, topics: Topics, request: ProduceRequest, version: int, may_write: Callable[[str], bool] | None = None
    ) -> None:
        """may_write: returns whether the client may write to a topic; None if every client may."""
        self._topics = topics
        self._may_write = may_write
        self._by_id = version >= TOPIC_IDS_SINCE
        self.by_topic = [(topic, [Target(part) for part in topic.partition_data]) for topic in request.topic_data]
        self.all = [target for _, targets in self.by_topic for target in targets]
        self.look_up()

    def look_up(self) -> None:
        """Look up the partition of each batch. A partition that the client may not write to counts as missing."""
        topics, by_id, may_write = self._topics, self._by_id, self._may_write
        for named, targets in self.by_topic:
            topic = topics.by_id.get(named.topic_id) if by_id else topics.by_name.get(named.name)
            if may_write is not None and topic is not None and not may_write(topic.name):
                topic = None
            partitions = [] if topic is None else topic.partitions
            for target in targets:
                index = target.part.index
                target.partition = partitions[index] if 0 <= index < len(partitions) else None

    def refusal_of_missing(self, named: ProduceRequest.Topic) -> KafkaError:
        """Return the error for a partition that does not exist or may not be written to."""
        topic = self._topics.by_id.get(named.topic_id) if self._by_id else None
        if self._by_id and topic is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if self._may_write is not None and not self._may_write(named.name if topic is None else topic.name):
            return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

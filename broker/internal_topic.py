"""An internal compacted topic as the log of a coordinator's state.

The rules: an ordinary topic of the catalogue, made by the first who needs it and in one unit, never at start; only its
coordinator writes to it; a replay checks every batch and ends where the log ends or with an error, so nobody is served
what was read only in part. Source: Kafka's GroupCoordinator and TransactionStateManager; S-57, S-58, S-59.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..protocol import batches
from ..protocol.batches import Batch, CorruptBatch
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.records import Record, keyed_batch, records
from ..storage.journal import Part, UnitRefused
from ..storage.log import PartitionLog
from ..storage.log_reads import ColdRead
from .java_hash import partition_for

if TYPE_CHECKING:
    from .broker import Broker

READ_BYTES = 1 << 20
NOBODY = -1  # no producer, no epoch

Apply = Callable[[int, Batch, Iterable[Record]], None]


class InternalTopicDamaged(Exception):
    """A partition of an internal topic does not read as it was written; its coordinator cannot know its state."""


class InternalTopic:
    """One such topic of one broker. `name` need not exist yet."""

    def __init__(self, broker: "Broker", name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """partitions, configs: for the day it is made."""
        self.name = name
        self._topics = broker.topics
        self._store = broker.store
        self.replay_from: Mapping[int, int] = {}  # by partition: below is what a snapshot gave
        self._partitions = partitions
        self._configs = configs

    @property
    def exists(self) -> bool:
        return self.name in self._topics.by_name

    @property
    def partitions(self) -> int:
        """Of the topic as it is, else as it would be."""
        topic = self._topics.by_name.get(self.name)
        return self._partitions if topic is None else len(topic.partitions)

    def ensure(self) -> None:
        """Make the topic if it is not there. Raises KafkaError COORDINATOR_NOT_AVAILABLE while there is no room."""
        if self.exists:
            return
        try:
            self._topics.create(self.name, self._partitions, self._configs)
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name}: {error.text}") from error

    def partition_for(self, key: str) -> int:
        """The partition of a group or a transactional id (S-57)."""
        return partition_for(key, self.partitions)

    def log(self, partition: int) -> PartitionLog:
        """The log behind a partition of the topic, which must exist. Raises COORDINATOR_NOT_AVAILABLE if offline."""
        log = self._topics.by_name[self.name].partitions[partition].log
        if log.offline is not None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name}-{partition}: {log.offline}")
        return log

    def part(
        self,
        partition: int,
        contents: Sequence[tuple[bytes, bytes | None]],
        *,
        now_ms: int,
        producer_id: int = NOBODY,
        producer_epoch: int = NOBODY,
        transactional: bool = False,
    ) -> Part:
        """The part of a unit that appends these (key, value) as one batch. now_ms: wall time."""
        batch = keyed_batch(
            contents, now_ms, producer_id=producer_id, producer_epoch=producer_epoch, transactional=transactional
        )
        return self._store.append_part(self.log(partition).log_id, batch)

    def commit(self, parts: Sequence[Part]) -> int:
        """Write the parts as one unit, if there is room, and return the unit.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE while there is none; nothing was changed.
        """
        if not self._store.admits(sum(sum(map(len, part.data)) for part in parts), internal=True):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there is no room on disk; try again later")
        try:
            return self._store.commit(parts)
        except UnitRefused as refused:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(refused)) from refused

    # ---- start -----------------------------------------------------------------------------------------------

    def load(self, apply: Apply) -> None:
        """Hand every batch that no snapshot knew to `apply`, each checked, markers included, partition by partition.

        A partition that is offline is left out: what it holds cannot be served, and log() says so.
        Raises: InternalTopicDamaged. What was applied until then must not be served.
        """
        topic = self._topics.by_name.get(self.name)
        for partition in topic.partitions if topic else ():
            log, index = partition.log, partition.index
            if log.offline is not None:
                continue
            offset = max(log.start_offset, self.replay_from.get(index, 0))
            try:
                while offset < log.end_offset:
                    offset = _replay(log, index, offset, apply)
            except (KafkaError, CorruptBatch, ValueError, KeyError, IndexError, TypeError) as error:
                reason = log.offline or (error.text if isinstance(error, KafkaError) else str(error))
                raise InternalTopicDamaged(f"{log.directory}: from offset {offset} on: {reason}") from error


def _replay(log: PartitionLog, partition: int, offset: int, apply: Apply) -> int:
    """One read's worth of batches. Returns where the next read begins.

    Compaction may leave nothing at the end of the segments, so an empty read there is no damage (KAFKA-9065).
    """
    found = log.read(offset, READ_BYTES, log.end_offset, at_least_one=True)
    if isinstance(found, ColdRead):
        found = found.run()
    if not found.size_bytes:
        return log.flushed_offset if offset < log.flushed_offset else log.end_offset
    for batch in batches.walk(memoryview(b"".join(found.buffers))):
        batches.verify(batch)
        apply(partition, batch, records(batch))
        offset = batch.last_offset + 1
    return offset

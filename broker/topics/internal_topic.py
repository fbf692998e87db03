"""An internal topic, in whose partitions a coordinator logs its state.

The rules: it is an ordinary topic of the catalogue. It is not created at a start, but by the first request that needs
it, in one unit. Only its coordinator writes to it. A replay checks all batches of a partition before it applies the
first one, so that no state is served that was read only in part. A damaged partition is put offline, and the others are
served.

Source: Kafka's GroupCoordinator and TransactionStateManager; S-57, S-58, S-59.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...protocol.batches import Batch, CorruptBatch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.java_hash import partition_for
from ...protocol.records import Record, keyed_batch, records
from ...storage.journal.journal import Part, UnitRefused
from ...storage.log.opening import leave_as_it_is
from ...storage.log.partition_log import PartitionLog
from ...storage.store import Store
from .reading import checked_batches, raise_system_error, why_refused
from .topics import Topics

NOBODY = -1  # no producer, no epoch

Apply = Callable[[int, Batch, Iterable[Record]], None]


class InternalTopicDamaged(Exception):
    """Raised if a record of an internal topic cannot be parsed although its checksum is right."""


class InternalTopic:
    """One internal topic of one broker. The topic need not exist yet."""

    def __init__(
        self,
        topics: Topics,
        store: Store,
        known_offline: dict[str, str],
        name: str,
        partitions: int,
        configs: Mapping[str, str],
    ) -> None:
        """partitions, configs: used when the topic is created. known_offline: see Shared."""
        self.name = name
        self._topics = topics
        self._store = store
        self._known_offline = known_offline
        self._sound_from: dict[int, int] = {}  # by partition: all batches from this offset on were looked at
        self.replay_from: Mapping[int, int] = {}  # by partition: below is what a snapshot gave
        self._partitions = partitions
        self._configs = configs
        self._topics.made_when_needed[name] = self.ensure

    @property
    def exists(self) -> bool:
        """Whether the topic was created already."""
        return self.name in self._topics.by_name

    @property
    def partitions(self) -> int:
        """The number of partitions of the topic; if it does not exist yet, the number it would be created with."""
        topic = self._topics.by_name.get(self.name)
        return self._partitions if topic is None else len(topic.partitions)

    def ensure(self) -> None:
        """Create the topic if it does not exist. Raises COORDINATOR_NOT_AVAILABLE if there is no room."""
        if self.exists:
            return
        try:
            self._topics.create(self.name, self._partitions, self._configs)
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name}: {error.text}") from error

    def partition_for(self, key: str) -> int:
        """Return the partition that has the state of this key (such as a group id), computed as in Kafka."""
        return partition_for(key, self.partitions)

    def log(self, partition: int) -> PartitionLog:
        """Return the log of a partition of the topic, which must exist. Raises COORDINATOR_NOT_AVAILABLE if the
        partition is offline.
        """
        log = self._topics.by_name[self.name].partitions[partition].log
        if log.offline is not None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name}-{partition}: {log.offline}")
        return log

    def end_offset(self, partition: int) -> int:
        """Return the end offset of a partition's log (exclusive), even if the partition is offline."""
        return self._topics.by_name[self.name].partitions[partition].log.end_offset

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
        """Return the part of a unit that appends these (key, value) pairs to the partition as one batch. now_ms: wall
        time.

        Raises COORDINATOR_NOT_AVAILABLE if the partition is offline.
        """
        batch = keyed_batch(
            contents, now_ms, producer_id=producer_id, producer_epoch=producer_epoch, transactional=transactional
        )
        return self._store.append_part(self.log(partition).log_id, batch)

    def append_of(
        self, partition: int, contents: Sequence[tuple[bytes, bytes | None]], *, now_ms: int
    ) -> tuple[PartitionLog, Batch]:
        """Return the partition's log and a batch of these (key, value) pairs, for a unit. Raises
        COORDINATOR_NOT_AVAILABLE.
        """
        return self.log(partition), keyed_batch(contents, now_ms)

    def commit(self, parts: Sequence[Part]) -> int:
        """Write the parts as one unit. Returns the number of the unit.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE if there is no room; then nothing was changed.
        """
        size = sum(sum(map(len, part.data)) for part in parts)
        if not self._store.admits(size, internal=True):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._store.refuse(size))
        try:
            return self._store.commit(parts)
        except UnitRefused as refused:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(refused)) from refused

    # ---- start -----------------------------------------------------------------------------------------------

    def is_sound(self, partition: int, offset: int) -> bool:
        """Return whether all batches from `offset` on are valid. If they are not, put the partition offline.

        Called only at start, before anything is appended. Raises OSError if the system lacks file descriptors or
        memory.
        """
        log = self._topics.by_name[self.name].partitions[partition].log
        at = offset = max(offset, log.start_offset)
        if log.offline is None and offset < self._sound_from.get(partition, log.end_offset):
            try:
                for batch in checked_batches(log, offset):
                    at = batch.next_offset
            except (KafkaError, CorruptBatch) as error:
                raise_system_error(error, log)
                self._put_offline(log, at, error)
            self._sound_from[partition] = offset
        return log.offline is None

    def _put_offline(self, log: PartitionLog, offset: int, error: KafkaError | CorruptBatch) -> None:
        """Put the log offline, because of damage found at this offset. Its files are not changed."""
        reason = error.text if isinstance(error, KafkaError) else error.reason
        leave_as_it_is(log, f"{log.directory}: from offset {offset} on: {reason}")
        self._known_offline[log.directory] = log.offline or ""

    def load(self, apply: Apply) -> None:
        """Call apply(partition, batch, records) for every batch after the coordinator's snapshot, including markers.

        Batches are checked first. A partition that is offline or damaged is left out, and log() raises for it from then
        on. Raises InternalTopicDamaged, OSError; then what was applied so far must not be served.
        """
        topic = self._topics.by_name.get(self.name)
        for partition in topic.partitions if topic else ():
            log, index = partition.log, partition.index
            offset = max(self.replay_from.get(index, 0), log.start_offset)
            if not self.is_sound(index, offset):
                continue
            try:
                for batch in checked_batches(log, offset):
                    offset = batch.base_offset
                    apply(index, batch, records(batch))
            except (KafkaError, CorruptBatch, ValueError, KeyError, IndexError, TypeError) as error:
                reason = why_refused(error, log)
                raise InternalTopicDamaged(f"{log.directory}: from offset {offset} on: {reason}") from error

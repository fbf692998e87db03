"""The named producers of one broker: their log, and the checks and changes that requests need.

The rules: as in any coordinator, a request is decided in memory, committed as one unit, and applied. The log is
__fencepost_producers, one compacted partition. A batch and the record of its highest sequence are in the same unit, so
after a crash both exist, or neither. Nothing expires; an admin can remove a name.
"""

from collections.abc import Iterable, Sequence

from ...protocol.batches import Batch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import Record
from ...storage.journal.journal import Part
from ..shared import Shared
from ..topics.names import PRODUCERS_TOPIC
from ..topics.partition import Partition
from ..topics.topics import Along, Topic
from .names import (
    LONGEST_NAME_BYTES,
    LONGEST_OWNER_LETTERS,
    Names,
    Numbered,
    Row,
    epoch_row,
    highest_row,
    name_row,
    topic_row,
)

FIELDS = ("key", "value")
AT_ONCE = 5_000  # records of one batch
MAX_ENDED_WITH_A_TOPIC = 10_000  # more are forgotten at the next start: the unit of the catalogue stays of its size
SKIPPED_EPOCHS = 1 << 40  # more than any broker gives out


class NamedProducers:
    """The named producers, and their log."""

    def __init__(self, shared: Shared) -> None:
        self.names = Names()
        self.topic = shared.internal_topic(PRODUCERS_TOPIC, 1, {})
        self._topics = shared.topics
        self._store = shared.store
        self._settings = shared.settings
        self._clock = shared.clock
        shared.topics.at_deletion.append(self._topic_goes)

    def load(self) -> None:
        """Read the log into memory, at start. Raises DamagedNameRecord, NewerNameRecord, InternalTopicDamaged."""
        self.topic.load(self._replay)
        for topic_id in {each for found in self.names.by_name.values() for each in found.counts}:
            if topic_id not in self._topics.by_id:
                self._apply_all(self._ends_of(topic_id))

    def _replay(self, partition: int, batch: Batch, contents: Iterable[Record]) -> None:
        """Apply one batch of the log, at start."""
        for record in contents:
            self.names.apply((record.key or b"", record.value))

    def check_known(self) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE if the log is offline, because the highest sequences are not known then."""
        if self.topic.exists:
            self.topic.log(0)

    # ---- opening ---------------------------------------------------------------------------------------------

    def open(self, name: str, owner: str) -> int:
        """Open the name for a client. Returns its new epoch; from now on batches with an earlier one are refused.
        Raises KafkaError.

        owner: describes the client, for error texts.
        """
        self.check_known()
        if not 0 < len(name.encode()) <= LONGEST_NAME_BYTES:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"the name of a producer has between 1 and {LONGEST_NAME_BYTES} bytes"
            )
        names, most = self.names, self._settings.now.max_named_producers
        if name not in names.by_name and len(names.by_name) >= most:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"there are {len(names.by_name)} named producers (max.named.producers)"
            )
        self.topic.ensure()
        epoch = names.newest_epoch + 1
        self._log([epoch_row(epoch), name_row(name, epoch, owner[:LONGEST_OWNER_LETTERS])])
        return epoch

    def open_topic(self, name: str, epoch: int, topic: Topic, partition_count: int) -> None:
        """Let the name write to a topic. partition_count: the topic's number of partitions as the client knows it,
        which must be right. Raises KafkaError.
        """
        self.check_known()
        found, actual = self.names.check_epoch(name, epoch), len(topic.partitions)
        if partition_count != actual:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"the topic has {actual} partitions, the client knows {partition_count}"
            )
        self.names.check_count(found, topic.id, actual)
        if topic.id not in found.counts:
            self._check_room()
            self._log([topic_row(name, topic.id, actual)])

    def _check_room(self) -> None:
        """Raise POLICY_VIOLATION if named producers have as many topics and partitions as max.named.producer.partitions
        allows.
        """
        most = self._settings.now.max_named_producer_partitions
        if self.names.entries >= most:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"named producers have {self.names.entries} topics and partitions (max.named.producer.partitions)",
            )

    # ---- writing ---------------------------------------------------------------------------------------------

    def judge(self, batch: Numbered) -> int | None:
        """Return None if the batch is to be appended; if all of it was written already, the partition's highest
        sequence.

        Raises what Names.judge raises, POLICY_VIOLATION, COORDINATOR_NOT_AVAILABLE.
        """
        self.check_known()
        highest = self.names.judge(batch)
        if highest is None and batch.place not in self.names.by_name[batch.name].highest:
            self._check_room()
        return highest

    def append(self, numbered: Numbered, partition: Partition, batch: Batch) -> int | None:
        """Append a batch that judge() accepted, and the record of its highest sequence, in one atomic write.

        Returns the batch's base offset; None if the journal has no room for both, and then nothing was changed.
        """
        row = highest_row(numbered.name, numbered.place, numbered.last)
        of_name = self.topic.append_of(0, [row], now_ms=self._clock.now_ms())
        if not self._store.admits(batch.size + of_name[1].size):
            return None
        base_offset = partition.log.end_offset
        self._store.append_together([of_name, (partition.log, batch)])
        self.names.apply(row)
        return base_offset

    # ---- removal ---------------------------------------------------------------------------------------------

    def remove(self, name: str) -> None:
        """Remove a name with its sequences. Raises RESOURCE_NOT_FOUND, COORDINATOR_NOT_AVAILABLE."""
        self.check_known()
        if name not in self.names.by_name:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no named producer {name!r}")
        rows = self.names.rows_without(name)
        self.topic.commit(self._parts(rows))
        self.names.apply(rows[-1])  # the tombstone of the name, which removes all its entries

    def _topic_goes(self, topic: Topic) -> Along:
        """Return what removes a deleted topic from all names: records for the unit that deletes the topic, and a
        function to call after the commit.

        The number of records is limited; the next start removes the rest.
        """
        ends = self._ends_of(topic.id)
        parts: list[Part] = []
        if ends and self._is_online():
            parts = self._parts(ends[:MAX_ENDED_WITH_A_TOPIC])
        return parts, lambda: self._apply_all(ends)

    def _ends_of(self, topic_id: bytes) -> list[Row]:
        """Return the tombstones that remove the entries of all names for a topic."""
        by_name = self.names.by_name
        having = [name for name, found in by_name.items() if topic_id in found.counts]
        return [row for name in having for row in self.names.rows_without(name, topic_id)]

    def _is_online(self) -> bool:
        """Return whether the log exists and is online."""
        try:
            self.check_known()
        except KafkaError:
            return False
        return self.topic.exists

    def fence_all(self) -> None:
        """Give every name a new epoch, higher than any that an earlier broker can have given out. Raises KafkaError.

        Called after the data directory was restored from a backup, so that no client of an earlier broker can write any
        more. If the log is offline, nothing is done; the next start calls this again.
        """
        names = self.names
        if self.topic.exists and not self._is_online():
            return  # the next start fences again
        self.topic.ensure()
        epoch = names.newest_epoch + SKIPPED_EPOCHS
        self._log([epoch_row(epoch), *(name_row(name, epoch, found.owner) for name, found in names.by_name.items())])

    # ---- the log ---------------------------------------------------------------------------------------------

    def _log(self, rows: Sequence[Row]) -> None:
        """Write these records in one atomic write, and apply them. Raises KafkaError."""
        self.topic.commit(self._parts(rows))
        self._apply_all(rows)

    def _parts(self, rows: Sequence[Row]) -> list[Part]:
        """Return batches of the log with these records, AT_ONCE at most in each."""
        now_ms = self._clock.now_ms()
        return [
            self.topic.part(0, rows[start : start + AT_ONCE], now_ms=now_ms) for start in range(0, len(rows), AT_ONCE)
        ]

    def _apply_all(self, rows: Iterable[Row]) -> None:
        """Apply these records, which are in the log, to the state."""
        for row in rows:
            self.names.apply(row)

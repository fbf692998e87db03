"""The offsets that groups have committed, and those pending in open transactions. Pure.

The rules: state changes only by applying a record or a marker, in the order of the log, both live and in a replay. An
offset sent in a transaction takes effect when that commits, and is dropped if it aborts. Of all commits and tombstones
for a partition the one whose record is latest in the log wins, no matter when its transaction ends; compaction keeps
the same one. A transaction's marker ends only what its producer has pending in that partition of the log (KAFKA-17507).
Source: Kafka's OffsetMetadataManager; KIP-98, KIP-447.
"""

from collections.abc import Iterable, Iterator

from ...protocol.batches import Batch
from ...protocol.records import Marker, Record, read_marker
from . import records
from .records import Committed, Place

PartitionKey = tuple[str, int]  # topic and partition


class Offsets:
    """All offsets, from all partitions of __consumer_offsets."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[PartitionKey, Committed]] = {}  # by group
        self.pending: dict[tuple[int, int], dict[Place, Committed]] = {}  # by log partition and producer id
        self._pending_of: dict[str, dict[PartitionKey, set[tuple[int, int]]]] = {}  # by group and partition, its owners

    # ---- questions -------------------------------------------------------------------------------------------

    def of_group(self, group: str) -> dict[PartitionKey, Committed]:
        """Return all offsets that the group has committed, by topic and partition."""
        return self.committed.get(group, {})

    def get(self, place: Place) -> Committed | None:
        """Return the committed offset of this group, topic and partition; None if there is none."""
        return self.committed.get(place.group, {}).get((place.topic, place.partition))

    def is_pending(self, place: Place) -> bool:
        """Return whether an open transaction may still change the offset."""
        return (place.topic, place.partition) in self._pending_of.get(place.group, {})

    def has_pending(self, group: str) -> bool:
        """Return whether any transaction with offsets of the group is open."""
        return group in self._pending_of

    @property
    def pending_groups(self) -> Iterable[str]:
        """The groups that have offsets in an open transaction."""
        return self._pending_of.keys()

    def pending_places(self, group: str) -> Iterator[PartitionKey]:
        """Yield the partitions whose committed offset an open transaction may still change."""
        return iter(self._pending_of.get(group, {}))

    def knows(self, group: str) -> bool:
        """Return whether the group has offsets, committed or pending."""
        return group in self.committed or group in self._pending_of

    # ---- changes ---------------------------------------------------------------------------------------------

    def apply_batch(self, log_partition: int, batch: Batch, contents: Iterable[Record]) -> list[Record]:
        """Apply the offsets and markers in a batch of __consumer_offsets. Returns its other records, which belong to
        groups.

        log_partition: the batch's partition. Raises UnreadableRecord, which can happen only at a start.
        """
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None:
                self.end(log_partition, batch.producer_id, batch.base_offset, commit=marker[0] is Marker.COMMIT)
            return []
        others: list[Record] = []
        producer_id = batch.producer_id if batch.is_transactional else -1
        for record in contents:
            if record.key is None or records.key_kind(record.key) not in records.OFFSET_KEYS:
                others.append(record)
                continue
            place = records.read_offset_key(record.key)
            if record.value is None:
                self.remove(place, record.offset)
            else:
                committed = records.read_offset_value(record.value, record.offset)
                self.put(log_partition, place, committed, producer_id)
        return others

    def put(self, log_partition: int, place: Place, committed: Committed, producer_id: int = -1) -> None:
        """Apply the record of an offset. It is committed, or pending if a transactional producer (producer_id >= 0)
        wrote it.

        log_partition: the partition of __consumer_offsets, which also gets the transaction's marker.
        """
        if producer_id < 0:
            self._settle(place, committed)
            return
        owner = log_partition, producer_id
        self.pending.setdefault(owner, {})[place] = committed
        of_group = self._pending_of.setdefault(place.group, {})
        of_group.setdefault((place.topic, place.partition), set()).add(owner)

    def _settle(self, place: Place, committed: Committed) -> None:
        """Set this committed offset, unless one is known whose record is later in the log."""
        of_group = self.committed.setdefault(place.group, {})
        key = place.topic, place.partition
        known = of_group.get(key)
        if known is None or known.position < committed.position:
            of_group[key] = committed

    def remove(self, place: Place, position: int) -> None:
        """Apply a tombstone at this position of the log: remove all earlier offsets of the partition, committed and
        pending.
        """
        key = place.topic, place.partition
        for owner in list(self._pending_of.get(place.group, {}).get(key, ())):
            if self.pending[owner][place].position < position:
                del self.pending[owner][place]
                if not self.pending[owner]:
                    del self.pending[owner]
                self._no_longer_pending(place, owner)
        of_group = self.committed.get(place.group)
        if of_group is not None and key in of_group and of_group[key].position < position:
            del of_group[key]
            if not of_group:
                del self.committed[place.group]

    def end(self, log_partition: int, producer_id: int, position: int, *, commit: bool) -> None:
        """Apply a transaction's marker at this position of the log: commit or drop the producer's pending offsets
        before it.

        Later offsets belong to the producer's next transaction. They may be in memory because a snapshot that took some
        time contains them.
        """
        owner = log_partition, producer_id
        pending = self.pending.get(owner, {})
        for place, committed in list(pending.items()):
            if committed.position > position:
                continue
            del pending[place]
            self._no_longer_pending(place, owner)
            if commit:
                self._settle(place, committed)
        if not pending:
            self.pending.pop(owner, None)

    def _no_longer_pending(self, place: Place, owner: tuple[int, int]) -> None:
        """Forget that this owner (log partition and producer id) has a pending offset for this group and partition."""
        of_group = self._pending_of[place.group]
        key = place.topic, place.partition
        of_group[key].discard(owner)
        if not of_group[key]:
            del of_group[key]
            if not of_group:
                del self._pending_of[place.group]


def is_expired(committed: Committed, idle_since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    """Return whether an unused offset has expired. Times are in ms on the data directory's clock.

    idle_since_ms: since when the group has no members; None if the time of the commit counts, as for a group that never
    had any.
    """
    if committed.retention_ms != records.NO_LIMIT:
        return committed.age_ms != records.UNKNOWN_AGE and now_ms - committed.age_ms >= committed.retention_ms
    since_ms = committed.age_ms if idle_since_ms is None else max(committed.age_ms, idle_since_ms)
    return since_ms != records.UNKNOWN_AGE and now_ms - since_ms >= retention_ms

"""The committed offsets of all groups, and their records in __consumer_offsets.

A commit is one batch in the partition of its group; it is written in one unit, and then applied in memory. An offset
belongs to the topic that it was committed for. If that is deleted, the offset is gone at once, even if another topic
gets the same name. Offsets expire by the store's age, which no wall clock moves, and never while a transaction of the
group is open.

Source: Kafka's OffsetMetadataManager and GroupMetadataManager.cleanupExpiredOffsets (KIP-211); KAFKA-13636, 19163.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

from ...protocol.batches import Batch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.primitives import ZERO_UUID
from ...protocol.records import Record
from ...storage.journal.journal import Part
from ..bugs import contain_bugs
from ..shared import Shared
from ..topics.names import OFFSETS_TOPIC
from ..topics.participants import Settlement
from . import records
from .offsets import Offsets, PartitionKey, is_expired
from .records import Committed, Place

log = logging.getLogger("fencepost.broker")

NOBODY = -1
FEW_OFFSETS = 1_000  # expired offsets that are deleted in one unit at most
SLICE_MS = 4  # for which expired offsets are deleted without a pause
PAUSE_S = 0.002
MINUTE_MS = 60_000
TOMBSTONES_BYTES = 1 << 20  # of one batch that deletes offsets, about
LONGEST_TOPIC_NAME = 249
GROUP_ROW = 2  # how many values a row has that is a record of a group


Row = tuple[Any, ...]
"""A row of a snapshot: see rows()."""


class Groups(Protocol):
    """The methods of GroupKinds that offsets use. The records of groups are in the same topic as those of offsets."""

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Load one record of a group from the log, at start. value: None for a tombstone. Raises ValueError."""
        ...

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the (key, value) of all records that restore the present groups by apply()."""
        ...

    def unused(self, group_id: str) -> tuple[Callable[[str], bool] | None, int | None]:
        """Return which topics' offsets may expire, and since when the group has no members.

        The first is a function that tells by topic name whether the topic's offsets may expire; None if none may. The
        second is in ms on the data directory's clock; None if the time of each offset's commit counts instead.
        """
        ...

    def offsets_expired(self, group_id: str) -> None:
        """Delete the group if it has no members. To be called when its last offset was deleted. Raises KafkaError."""
        ...


class GroupOffsets:
    """The committed offsets of all groups of one broker, with the pending ones of open transactions.

    groups: must be set before load().
    """

    groups: Groups

    def __init__(self, shared: Shared) -> None:
        settings = shared.settings.now
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.offsets_topic_segment_bytes),
        }
        self.topic = shared.internal_topic(OFFSETS_TOPIC, settings.offsets_topic_num_partitions, configs)
        self.state = Offsets()
        self._topics = shared.topics
        self._store = shared.store
        self._settings = shared.settings
        self._clock = shared.clock
        self._metrics = shared.metrics
        self._tasks = shared.tasks

    def load(self) -> None:
        """Read the topic, at start: load the offsets into memory, and pass records of groups to their coordinators.

        Raises InternalTopicDamaged.
        """
        self.topic.load(self._replay)

    def _replay(self, partition: int, batch: Batch, contents: Iterable[Record]) -> None:
        """Apply one batch of the topic, at start. partition: of __consumer_offsets."""
        for record in self.state.apply_batch(partition, batch, contents):
            self.groups.apply(record.key or b"", record.value)

    # ---- snapshots -------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """Yield the whole state as rows of a snapshot: pending offsets, committed offsets, then records of groups.

        The row of an offset is (partition of __consumer_offsets, producer id, key, committed offset), where key is
        (group, topic, partition); both numbers are NOBODY if it is committed. The row of a group is the (key, value) of
        its record. Others may change the state between two rows. Pending offsets come first, because a transaction that
        ends meanwhile is then in the snapshot as pending, as committed, or as both, and in each case the replay of its
        marker leads to the same state.
        """
        for owner in list(self.state.pending):
            for place, committed in list(self.state.pending.get(owner, {}).items()):
                yield *owner, place, committed
        for group in list(self.state.committed):
            for key, committed in list(self.state.of_group(group).items()):
                yield NOBODY, NOBODY, (group, *key), committed
        yield from self.groups.records()

    def read_row(self, row: Row) -> Row:
        """Convert a row of plain values, as a snapshot has it, back into a row of rows()."""
        if len(row) == GROUP_ROW:
            return row
        partition, producer_id, place, committed = row
        return partition, producer_id, Place(*place), Committed(*committed)

    def put_row(self, row: Row) -> None:
        """Apply a row of a snapshot, which read_row() returned, to the state."""
        if len(row) == GROUP_ROW:
            self.groups.apply(*row)
        else:
            partition, producer_id, place, committed = row
            self.state.put(partition, place, committed, producer_id)

    # ---- commits ---------------------------------------------------------------------------------------------

    def commit(
        self,
        group: str,
        offsets: Sequence[tuple[PartitionKey, Committed]],
        *,
        producer_id: int = NOBODY,
        producer_epoch: int = NOBODY,
        also: Sequence[Part] = (),
    ) -> None:
        """Write offsets of a group, together with the parts in `also`, in one atomic write.

        With a producer id they are pending until its transaction ends. Raises KafkaError, and then nothing was changed:
        COORDINATOR_NOT_AVAILABLE if there is no room, INVALID_COMMIT_OFFSET_SIZE.
        """
        self.topic.ensure()
        partition = self.topic.partition_for(group)
        position = self.topic.log(partition).end_offset
        largest_bytes = self._topics.by_name[OFFSETS_TOPIC].settings.max_message_bytes
        if _least_bytes(group, [key for key, _ in offsets]) > largest_bytes:
            raise _too_many_bytes(largest_bytes)
        placed = [
            (Place(group, *key), committed._replace(position=position + index))
            for index, (key, committed) in enumerate(offsets)
        ]
        part = self.topic.part(
            partition,
            [(records.offset_key(place), records.offset_value(committed)) for place, committed in placed],
            now_ms=self._clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer_id >= 0,
        )
        if len(part.data[0]) > largest_bytes:
            raise _too_many_bytes(largest_bytes)
        self.topic.commit([*also, part])
        for place, committed in placed:
            self.state.put(partition, place, committed, producer_id)

    def settle(self, partition: int, producer_id: int, commit: bool) -> Settlement:
        """Return the changes that a transaction's marker in this partition of the topic makes. It commits or drops the
        pending offsets of the transaction.

        commit: whether it is a commit marker. Nothing has changed yet; the caller applies the result after the write.
        """
        return Settlement((), partial(self.end_transaction, partition, producer_id, commit))

    def end_transaction(self, partition: int, producer_id: int, commit: bool, marker_offset: int) -> None:
        """Commit or drop the producer's pending offsets in this partition, because its marker was appended at
        marker_offset.
        """
        self.state.end(partition, producer_id, marker_offset, commit=commit)

    # ---- questions -------------------------------------------------------------------------------------------

    def check_online(self, group: str) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE if the log with the group's offsets is offline."""
        if self.topic.exists:
            self.topic.log(self.topic.partition_for(group))

    def fetch(self, group: str, key: PartitionKey) -> Committed | None:
        """Return the group's committed offset of a partition; None if it has none, or the topic was deleted."""
        found = self.state.get(Place(group, *key))
        return found if found is not None and self._has_topic(found) else None

    def all_of(self, group: str) -> dict[PartitionKey, Committed]:
        """Return all offsets that the group has committed, by partition, without those of deleted topics."""
        return {key: found for key, found in self.state.of_group(group).items() if self._has_topic(found)}

    def is_pending(self, group: str, key: PartitionKey) -> bool:
        """Return whether an open transaction may still change this offset (KIP-447)."""
        return self.state.is_pending(Place(group, *key))

    def has_pending(self, group: str) -> bool:
        """Return whether any transaction with offsets of the group is open."""
        return self.state.has_pending(group)

    def has_pending_of(self, partition: int, producer_id: int) -> bool:
        """Return whether this producer's open transaction has offsets in this partition of __consumer_offsets."""
        return (partition, producer_id) in self.state.pending

    def knows(self, group: str) -> bool:
        """Return whether the group has any offsets, so that it exists even if it has no members."""
        return self.state.has_pending(group) or self.has_committed(group)

    def has_committed(self, group: str) -> bool:
        """Return whether the group has a committed offset of a topic that still exists."""
        return any(map(self._has_topic, self.state.of_group(group).values()))

    def _has_topic(self, committed: Committed) -> bool:
        """Return whether the offset's topic still exists; True if the topic's id is not known."""
        return committed.topic_id == ZERO_UUID or committed.topic_id in self._topics.by_id

    # ---- deletion --------------------------------------------------------------------------------------------

    def delete(self, group: str, keys: Iterable[PartitionKey]) -> None:
        """Delete the group's offsets of these partitions, pending ones too, in one atomic write.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE.
        """
        state = self.state
        places = [
            place for place in (Place(group, *key) for key in keys) if state.get(place) or state.is_pending(place)
        ]
        parts = self._tombstones(group, places)
        if parts:
            position = self.topic.log(self.topic.partition_for(group)).end_offset
            self.topic.commit(parts)
            for index, place in enumerate(places):
                self.state.remove(place, position + index)

    def delete_group(self, group: str) -> list[Part]:
        """Return the tombstones that delete all offsets of a group. The caller commits them, and then calls
        group_deleted().
        """
        keys = dict.fromkeys([*self.state.of_group(group), *self.state.pending_places(group)])
        return self._tombstones(group, [Place(group, *key) for key in keys])

    def group_deleted(self, group: str) -> None:
        """Remove all offsets of a group from memory. Call it when the tombstones of delete_group() are committed."""
        position = self.topic.log(self.topic.partition_for(group)).end_offset
        for key in [*self.state.of_group(group), *self.state.pending_places(group)]:
            self.state.remove(Place(group, *key), position)

    def _tombstones(self, group: str, places: Sequence[Place]) -> list[Part]:
        """Return tombstones for these offsets, in batches of a bounded size.

        Raises COORDINATOR_NOT_AVAILABLE if there are too many for one atomic write.
        """
        if not places:
            return []
        least_bytes = _least_bytes(group, [place[1:] for place in places])
        if not self._store.admits(least_bytes, internal=True):
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "there is no room to forget all these offsets at once"
            )
        at_once = _at_once(group)
        partition, now_ms = self.topic.partition_for(group), self._clock.now_ms()
        return [
            self.topic.part(
                partition, [(records.offset_key(each), None) for each in places[begin : begin + at_once]], now_ms=now_ms
            )
            for begin in range(0, len(places), at_once)
        ]

    # ---- forgetting ------------------------------------------------------------------------------------------

    async def forget_from_time_to_time(self) -> None:
        """Delete expired offsets of all groups every offsets.retention.check.interval.ms, with pauses. Returns when the
        broker stops.
        """
        tasks = self._tasks
        while not await tasks.pause(self._settings.now.offsets_retention_check_interval_ms / 1000):
            began_ms = self._clock.monotonic_ms()
            for group in list(self.state.committed):
                with contain_bugs(self._metrics, f"offsets of group {group!r}"):
                    while self.forget_expired(group) or self._clock.monotonic_ms() - began_ms >= SLICE_MS:
                        if await tasks.pause(PAUSE_S):
                            return
                        began_ms = self._clock.monotonic_ms()

    def forget_expired(self, group: str) -> bool:
        """Delete some offsets of the group that have expired or whose topics were deleted. If no offset is left, delete
        the group if it is empty. Does nothing while a transaction with offsets of the group is open.

        Returns whether there may be more of them, so that the caller calls this again.
        """
        offsets = self.state.of_group(group)
        if not offsets or self.state.has_pending(group):
            return False
        few = min(FEW_OFFSETS, _at_once(group))
        gone = list(islice(self._expired_partitions(group, offsets), few))
        if not gone:
            return False
        try:
            self.delete(group, gone)
            if not self.state.of_group(group):
                self.groups.offsets_expired(group)
        except KafkaError as error:
            log.warning("offsets of group %s that have expired stay for now: %s", group, error.text)
            return False
        return len(gone) == few

    def _expired_partitions(self, group: str, offsets: Mapping[PartitionKey, Committed]) -> Iterator[PartitionKey]:
        """Yield the partitions whose offsets have expired (KIP-211) or whose topic was deleted."""
        unused, idle_since_ms = self.groups.unused(group)
        now_ms = self._store.age_ms()
        retention_ms = self._settings.now.offsets_retention_minutes * MINUTE_MS
        for key, committed in offsets.items():
            expired = (
                unused is not None and unused(key[0]) and is_expired(committed, idle_since_ms, now_ms, retention_ms)
            )
            if expired or not self._has_topic(committed):
                yield key


def _least_bytes(group: str, keys: Iterable[PartitionKey]) -> int:
    """Return a lower limit, in bytes, of the size of the records for these offsets, each of which contains the names of
    its group and topic. A request for many offsets may be too large because a group's name may have 32 KB.
    """
    group_bytes = len(group.encode())
    return sum(group_bytes + len(topic) for topic, _ in keys)


def _at_once(group: str) -> int:
    """Return how many of the group's offsets are deleted in one batch; at least 1."""
    return max(1, TOMBSTONES_BYTES // (len(group.encode()) + LONGEST_TOPIC_NAME))


def _too_many_bytes(largest_bytes: int) -> KafkaError:
    """Return the error for offsets whose records do not fit into one batch."""
    return KafkaError(
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE, f"the offsets of the request take more than {largest_bytes} bytes"
    )

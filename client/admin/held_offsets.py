"""Admin's answer to why a group stands still although no partition is blocked: a transaction holds its offsets.

A transactional producer commits offsets of a group within its transaction. Until that ends, they are pending, and a
member that starts and asks for stable offsets (KIP-447) gets none for these partitions: it waits. They are records of
__consumer_offsets, so the records themselves say whose offsets an open transaction holds; the partition's last stable
offset does not, since another group's transaction may be the oldest. Sources: KIP-447; Kafka's GroupMetadataManager.
"""

import struct
from collections.abc import Iterable

from ...protocol.batches import Batch
from ...protocol.java_hash import partition_for
from ...protocol.records import records
from ..settings import LEAST_DECOMPRESSED_LIMIT
from ..values import TopicPartition
from .asking import one_or_more
from .reading import ReadingAdmin
from .transactions import TransactionAdmin
from .values import HeldOffsets, OpenTransaction

OFFSETS_TOPIC = "__consumer_offsets"
MAX_PAGES = 16  # of one partition, about a megabyte each: what is not seen in them is not found
_OF_OFFSETS = (0, 1)  # versions of keys of committed offsets


class HeldOffsetsAdmin(TransactionAdmin, ReadingAdmin):
    """Open transactions that hold committed offsets. Needs Kafka 3.0, and Read on __consumer_offsets."""

    async def find_held_offsets(self, group_ids: str | Iterable[str] | None = None) -> list[HeldOffsets]:
        """Return the open transactions in which offsets of these groups, or of any, are committed and pending; the
        oldest first.
        """
        topic = (await self.describe_topics()).get(OFFSETS_TOPIC)
        if topic is None:
            return []
        names = None if group_ids is None else set(one_or_more(group_ids))
        at = topic.led
        if names is not None:
            homes = {partition_for(name, len(topic.partitions)) for name in names}
            at = [each for each in at if each.partition in homes]
        found: dict[tuple[OpenTransaction, str], set[TopicPartition]] = {}
        by_partition: dict[TopicPartition, list[OpenTransaction]] = {}
        for each in await self.open_transactions(at, skip_missing=True):
            by_partition.setdefault(each.topic_partition, []).append(each)
        for partition, transactions in by_partition.items():
            for (txn, group), partitions in (await self._held_in(partition, transactions)).items():
                if names is None or group in names:
                    found[txn, group] = partitions
        owners = await self._owners(txn.producer.producer_id for txn, _ in found)
        decisions = await self._decisions(owners.values())
        held = [
            HeldOffsets(group, tuple(sorted(partitions)), txn, owners.get(producer), decisions.get(producer))
            for (txn, group), partitions in found.items()
            for producer in (txn.producer.producer_id,)
        ]
        return sorted(held, key=lambda each: (each.since_ms or 0, each.group_id))

    async def _held_in(
        self, partition: TopicPartition, transactions: list[OpenTransaction]
    ) -> dict[tuple[OpenTransaction, str], set[TopicPartition]]:
        """Return, for each transaction and group, the partitions with an offset that is pending in the transaction.
        They are read from the records that it wrote to this partition of __consumer_offsets.
        """
        by_producer = {each.producer.producer_id: each for each in transactions}
        found: dict[tuple[OpenTransaction, str], set[TopicPartition]] = {}
        position = min(each.start_offset for each in transactions)
        for _ in range(MAX_PAGES):
            page = await self.read_page(partition, position)
            for batch in page.batches:
                txn = by_producer.get(batch.producer_id)
                if txn is not None and batch.base_offset >= txn.start_offset and batch.is_transactional:
                    for group, at in _offsets_of(batch):
                        found.setdefault((txn, group), set()).add(at)
            if page.next_offset in (position, page.high_watermark):
                break
            position = page.next_offset
        return found


def _offsets_of(batch: Batch) -> Iterable[tuple[str, TopicPartition]]:
    """Yield group and partition of each committed offset in a batch."""
    if batch.is_control:
        return
    for record in records(batch, limit=LEAST_DECOMPRESSED_LIMIT):
        if record.key is None or record.value is None:
            continue
        try:
            key = _read_key(bytes(record.key))
        except (struct.error, UnicodeDecodeError):
            continue  # of a kind that we do not know
        if key is not None:
            yield key


def _read_key(key: bytes) -> tuple[str, TopicPartition] | None:
    """Return group and partition from the key of an offset commit in __consumer_offsets: int16 version, string group,
    string topic, int32 partition. Returns None for the key of another kind of record.
    """
    (version,) = struct.unpack_from(">h", key)
    if version not in _OF_OFFSETS:
        return None
    group, position = _string(key, 2)
    topic, position = _string(key, position)
    (partition,) = struct.unpack_from(">i", key, position)
    return group, TopicPartition(topic, partition)


def _string(data: bytes, position: int) -> tuple[str, int]:
    """Decode a string with a length of two bytes. Returns it and the position after it."""
    (size,) = struct.unpack_from(">h", data, position)
    end = position + 2 + size
    return data[position + 2 : end].decode(), end

"""Decides what compaction keeps of each batch. Pure: takes batches in log order, and returns their replacements.

The latest record of each key is kept. A tombstone is kept for delete.retention.ms after compaction first saw it (its
delete horizon, KIP-534, attribute bit 6; by the store's clock, not the wall clock). Nothing of an aborted transaction
is kept. A marker is kept as long as a batch of its transaction is kept, and then until its own horizon. The last batch
of a producer is kept, without its records if need be, because it has the producer's sequences. Offsets never change.
Source: Kafka's Cleaner, CleanedTransactionMetadata, MemoryRecords.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

from ...effects.disk import Buffer
from ...protocol.batches import Batch
from ...protocol.errors import KafkaError
from ...protocol.raw_records import drop_records, raw_records, rewrite
from ...protocol.records import DECOMPRESSED_LIMIT_BYTES, payload_of
from ..producers.aborted import AbortedTransaction

DIGEST_BYTES = 16  # keys as long or longer are remembered by digest, so that memory does not depend on their size


def name_of(key: bytes) -> bytes:
    """Return the bytes that stand for a key in the map of offsets: the key, or the digest of a long key."""
    return key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()


class AbortedSpans:
    """Says which batches belong to aborted transactions: for each producer, the offsets that its aborted transactions
    span.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for entry in sorted(aborted, key=lambda entry: entry.first_offset):
            self._spans.setdefault(entry.producer_id, []).append((entry.first_offset, entry.last_offset))

    def cover(self, batch: Batch) -> bool:
        """Return whether this data batch (not a marker) belongs to an aborted transaction."""
        spans = self._spans.get(batch.producer_id) if batch.is_transactional else None
        if spans is None:
            return False
        number = bisect_right(spans, (batch.base_offset, 2**63)) - 1
        return number >= 0 and batch.base_offset <= spans[number][1]


class KeyMap:
    """The latest offset of each key in a range of the log, for a bounded number of keys."""

    def __init__(self, aborted: AbortedSpans, most_keys: int) -> None:
        """aborted: the transactions whose records are left out. most_keys: how many keys the map may have."""
        self.offsets: dict[bytes, int] = {}
        self._aborted = aborted
        self._most_keys = most_keys

    def add(self, batch: Batch) -> bool:
        """Add the keys of a batch. Returns False if the map has no room for them; the first batch is always taken.

        A batch that cannot be parsed adds no keys, so it replaces no older records.
        """
        if batch.is_control or self._aborted.cover(batch):
            return True
        if self.offsets and len(self.offsets) + batch.record_count > self._most_keys:
            return False
        try:
            raw = raw_records(batch, payload_of(batch, DECOMPRESSED_LIMIT_BYTES))
            found = {name_of(record.key): record.offset for record in raw if record.key is not None}
        except KafkaError:
            return True
        self.offsets.update(found)
        return True


class Rules:
    """Decides for each batch of a log, in log order, what one compaction keeps of it."""

    def __init__(
        self,
        latest: Mapping[bytes, int],
        aborted: AbortedSpans,
        *,
        start_offset: int,
        end_offset: int,
        last_batches: Collection[int],
        last_epochs: Mapping[int, int],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """latest: the latest offset of each key below end_offset; records from there on are all kept.

        last_batches: base offsets of the newest batches of live producers.

        last_epochs: by producer id, the epoch of each producer of which only a marker is left.
        """
        self._latest = latest
        self._aborted = aborted
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._last_batches = last_batches
        self._last_epochs = last_epochs
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._with_data: set[int] = set()  # producers with a batch in a transaction whose marker is still to come

    def retain(self, batch: Batch) -> Buffer | None:
        """Return what replaces the batch in the log: the batch itself, a smaller one, one without records, or None to
        drop it.
        """
        if batch.base_offset >= self._end_offset:
            return batch.buffer
        if batch.is_control:
            return self._retain_marker(batch)
        if batch.last_offset < self._start_offset:
            return self._header_if_needed(batch)
        if batch.is_transactional:
            self._with_data.add(batch.producer_id)
        if self._aborted.cover(batch) or not batch.record_count:
            return self._header_if_needed(batch)
        return self._retain_records(batch)

    def _retain_records(self, batch: Batch) -> Buffer | None:
        """Return the batch with the records that compaction keeps; None if none is kept."""
        horizon_ms = batch.delete_horizon_ms
        tombstones_go = horizon_ms is not None and horizon_ms <= self._now_ms
        latest = self._latest
        tombstones = False
        try:
            payload = payload_of(batch, DECOMPRESSED_LIMIT_BYTES)
            kept = bytearray(batch.record_count)
            for number, record in enumerate(raw_records(batch, payload)):
                if record.key is None or latest.get(name_of(record.key), -1) > record.offset:
                    continue
                if record.is_tombstone:
                    if tombstones_go:
                        continue
                    tombstones = True
                kept[number] = 1
            if not any(kept):
                return self._header_if_needed(batch)
            if tombstones and horizon_ms is None:
                horizon_ms = self._horizon_ms
            elif all(kept):
                return batch.buffer
            return rewrite(batch, payload, kept, delete_horizon_ms=horizon_ms)
        except KafkaError:  # a batch that cannot be decoded or encoded again is kept as it is
            return batch.buffer

    def _header_if_needed(self, batch: Batch) -> Buffer | None:
        """Return the batch without its records if it has a live producer's last sequence number, which must be kept;
        else None.
        """
        if batch.base_offset not in self._last_batches:
            return None
        return drop_records(batch) if batch.record_count else batch.buffer

    def _retain_marker(self, batch: Batch) -> Buffer | None:
        """Return what compaction keeps of a marker's batch: all of it, perhaps with a new delete horizon, or the batch
        without its record; None to drop it.
        """
        if batch.producer_id in self._with_data:
            self._with_data.discard(batch.producer_id)
            return batch.buffer
        horizon_ms = batch.delete_horizon_ms
        if batch.record_count and horizon_ms is None:
            payload = payload_of(batch, DECOMPRESSED_LIMIT_BYTES)
            return rewrite(batch, payload, b"\1" * batch.record_count, delete_horizon_ms=self._horizon_ms)
        if batch.record_count and horizon_ms is not None and horizon_ms > self._now_ms:
            return batch.buffer
        if self._last_epochs.get(batch.producer_id) != batch.producer_epoch:
            return None
        return drop_records(batch) if batch.record_count else batch.buffer

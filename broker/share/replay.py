"""Reads the state of share partitions from the topic at a start, and decodes only what that start needs.

The rules: a snapshot replaces what was logged before it. So snapshots and updates are kept encoded until the log has
been read to its end, and those that a later snapshot replaces are never decoded. Updates of a transaction, its marker,
and the deletion of a share partition are applied at once, after everything that was logged earlier for the same share
partition. A snapshot does not contain pending acknowledgements. So while there are any, it replaces nothing, because an
update before it may have moved the window past them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ...protocol.batches import Batch
from ...protocol.record_fields import UnreadableRecord
from ...protocol.records import Marker, Record, read_marker
from ..topics.internal_topic import InternalTopic, InternalTopicDamaged
from . import records
from .logged import Logged, LoggedAt, LoggedPartition
from .records import Kind
from .runs import Transaction
from .values import SharePartitionKey, StateBatch

_Encoded = tuple[Kind, bytes, LoggedAt]


class Replayed(Protocol):
    """The methods of ShareStateLog that a replay calls, to change the state."""

    topic: InternalTopic
    known: dict[SharePartitionKey, LoggedPartition]

    def note_logged(self, home: int, key: SharePartitionKey, offset: int, value_bytes: int) -> LoggedAt: ...
    def apply(self, key: SharePartitionKey, what: Logged, at: LoggedAt) -> None: ...
    def apply_pending(
        self, key: SharePartitionKey, producer_id: int, at: LoggedAt, batches: Sequence[StateBatch]
    ) -> None: ...
    def pending_in(self, transaction: Transaction) -> list[SharePartitionKey]: ...
    def end_transaction(self, partition: int, producer_id: int, commit: bool, marker_offset: int) -> None: ...


class Replay:
    """A replay of the topic. It holds the records that were read and not applied yet."""

    def __init__(self, state_log: Replayed, read_from: Mapping[SharePartitionKey, int]) -> None:
        """read_from: for each share partition that a snapshot of the coordinators contains, the offset of the first
        record that this snapshot does not cover.
        """
        self._state_log = state_log
        self._read_from = read_from
        self._encoded: dict[SharePartitionKey, list[_Encoded]] = {}

    def read(self, home: int, batch: Batch, contents: Iterable[Record]) -> None:
        """Read a batch of a partition of the topic, except records that a snapshot of the coordinators covers.

        Snapshots and updates of share partitions are kept encoded where possible. Raises UnreadableRecord,
        InternalTopicDamaged.
        """
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None:
                for key in self._state_log.pending_in((home, batch.producer_id)):
                    self._apply(key)
                commit = marker[0] is Marker.COMMIT
                self._state_log.end_transaction(home, batch.producer_id, commit, batch.base_offset)
            return
        for record in contents:
            kind, key = records.read_key(record.key or b"")
            if record.offset >= self._read_from.get(key, 0):
                self._read_record(home, batch, record, kind, key)

    def _read_record(self, home: int, batch: Batch, record: Record, kind: Kind, key: SharePartitionKey) -> None:
        """Handle one record. A snapshot or an update is kept encoded, because a later snapshot may replace it; a
        deletion, or an update of a transaction, is applied now. Updates of unknown share partitions are ignored.
        Raises UnreadableRecord, InternalTopicDamaged.
        """
        value = record.value
        at = self._state_log.note_logged(home, key, record.offset, len(value or b""))
        if kind is Kind.SNAPSHOT and value is None:
            self._encoded.pop(key, None)
            self._state_log.apply(key, None, at)
        elif value is None:
            return
        elif kind is Kind.SNAPSHOT:
            if self._has_pending(key):
                self._apply(key)
            self._encoded[key] = [(kind, value, at)]
        elif batch.is_transactional:
            self._apply(key)
            self._state_log.apply_pending(key, batch.producer_id, at, records.read_update(value).batches)
        elif key in self._encoded or key in self._state_log.known:
            self._encoded.setdefault(key, []).append((kind, value, at))

    def _has_pending(self, key: SharePartitionKey) -> bool:
        """Return whether a transaction has something pending in this share partition."""
        kept = self._state_log.known.get(key)
        return kept is not None and bool(kept.machine.transactions)

    def finish(self) -> None:
        """Apply the snapshots and updates that are still kept encoded. Raises InternalTopicDamaged."""
        for key in list(self._encoded):
            self._apply(key)

    def _apply(self, key: SharePartitionKey) -> None:
        """Decode and apply the snapshot and updates of this share partition that are kept encoded. Raises
        InternalTopicDamaged.
        """
        for kind, value, at in self._encoded.pop(key, ()):
            try:
                what = records.read_snapshot(value) if kind is Kind.SNAPSHOT else records.read_update(value)
            except UnreadableRecord as error:
                directory = self._state_log.topic.log(at.home).directory
                raise InternalTopicDamaged(f"{directory}: at offset {at.offset}: {error}") from error
            self._state_log.apply(key, what, at)

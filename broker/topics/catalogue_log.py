"""Stores the catalogue in log 0, a compacted log. A change is written in one unit with the logs that it names.

The rule: a change is one unit of the journal, committed and applied in one step, so that a topic is always created and
deleted together with its logs. An answer about it waits for the unit, like any other answer.
"""

from collections.abc import Sequence
from dataclasses import replace

from ...effects.clock import Clock
from ...protocol.batches import CorruptBatch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import Record, build, records
from ...storage.journal.journal import Part
from ...storage.layout import CATALOGUE_LOG_ID
from ...storage.store import Store
from .catalogue import DAMAGED_RECORD, Catalogue, Change
from .reading import checked_batches, why_refused

SEGMENT_BYTES = 1 << 20  # compaction leaves the newest segment alone, so this bounds what is never compacted
PART_BYTES = 64  # framing of a CREATE or DROP part beside its data, for admission


class CatalogueDamaged(Exception):
    """Raised if the catalogue is damaged. Without it nobody knows which log belongs to which topic."""


class NoRoom(KafkaError):
    """Raised if a change cannot be written because the disk or the journal is nearly full. Nothing was changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, reason)


class CatalogueLog:
    """Reads the catalogue at start and commits its changes."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.catalogue = Catalogue()
        self._store = store
        self._clock = clock

    def load(self) -> None:
        """Apply all records, after checking each batch. Raises CatalogueDamaged, NewerCatalogue, OSError."""
        log = self._store.logs[CATALOGUE_LOG_ID]
        log.settings = replace(log.settings, cleanup_policy="compact", segment_bytes=SEGMENT_BYTES)
        offset = log.start_offset
        try:
            for batch in checked_batches(log, offset):
                for record in records(batch):
                    self.catalogue.apply(record.key or b"", record.value)
                offset = batch.next_offset
        except (KafkaError, CorruptBatch, *DAMAGED_RECORD) as error:
            reason = why_refused(error, log)
            raise CatalogueDamaged(f"{log.directory}: from offset {offset} on: {reason}") from error

    def commit(
        self, changes: Sequence[Change], parts: Sequence[Part] = (), *, internal: bool = True, frees: bool = False
    ) -> None:
        """Write these changes of the catalogue, together with `parts` of other logs, as one unit, and apply them.
        Raises NoRoom.

        internal: whether it may use the last free space. frees: whether it makes room, so that it is written even if
        the disk is nearly full.
        """
        wall_ms = self._clock.now_ms()
        written = [Record(offset, wall_ms, key, value) for offset, (key, value) in enumerate(changes)]
        batch = build(written)
        size = len(batch) + sum(PART_BYTES + sum(map(len, part.data)) for part in parts)
        if not self._store.admits(size, internal=internal, frees=frees):
            raise NoRoom(self._store.refuse(size))
        self._store.commit([self._store.append_part(CATALOGUE_LOG_ID, batch), *parts])
        for key, value in changes:
            self.catalogue.apply(key, value)

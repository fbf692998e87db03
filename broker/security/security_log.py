"""The security log: rules of access, users and quotas, in memory and on disk.

The rules: the log is created with the first record, and the catalogue contains its id. A change is one unit of the
journal, committed and applied in one step, and synced in every durability mode, so that a right that was removed does
not come back after a power cut. If any of it cannot be read, the broker does not start, because the missing part may be
a rule that denies access.
"""

from collections.abc import Sequence

from ...effects.clock import Clock
from ...protocol.batches import CorruptBatch
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import keyed_batch, records
from ...storage.journal.journal import UnitRefused
from ...storage.layout import NO_TOPIC_ID, SECURITY_TOPIC
from ...storage.log.settings import LogSettings
from ...storage.store import Store
from ..topics.catalogue import security_log_made
from ..topics.catalogue_log import NoRoom
from ..topics.reading import checked_batches, why_refused
from ..topics.topics import Topics
from .acl_records import Change
from .security_state import DAMAGED_RECORD, NEWER_RECORD, SecurityState

SEGMENT_BYTES = 1 << 20  # compaction leaves the newest segment alone, so this bounds what is never compacted


class SecurityLogDamaged(Exception):
    """Raised if the log is damaged. The broker does not start then, since it could not tell who must be refused."""


class NewerSecurityLog(Exception):
    """Raised if a later version of fencepost wrote the log: it may deny something that this one does not know."""


class SecurityLog:
    """Reads the security log at start and commits changes. Only this class changes `state`."""

    def __init__(self, topics: Topics, store: Store, clock: Clock, state: SecurityState) -> None:
        self.state = state
        self._topics = topics
        self._store = store
        self._clock = clock

    def load(self) -> None:
        """Apply all records, after checking each batch. Raises SecurityLogDamaged, NewerSecurityLog, OSError."""
        log_id = self._topics.catalogue.security_log
        if log_id is None:
            return
        log = self._store.logs.get(log_id)
        if log is None:
            raise SecurityLogDamaged(f"the catalogue names log {log_id} for rules of access and users: there is none")
        offset = log.start_offset
        try:
            for batch in checked_batches(log, offset):
                for record in records(batch):
                    self.state.apply(record.key or b"", record.value)
                offset = batch.next_offset
        except NEWER_RECORD as error:
            raise NewerSecurityLog(f"{log.directory}: {error}") from error
        except (KafkaError, CorruptBatch, *DAMAGED_RECORD) as error:
            reason = why_refused(error, log)
            raise SecurityLogDamaged(f"{log.directory}: from offset {offset} on: {reason}") from error

    def commit(self, changes: Sequence[Change]) -> None:
        """Write these changes as one unit, and apply them.

        Raises NoRoom, KAFKA_STORAGE_ERROR; then nothing was changed.
        """
        if not changes:
            return
        log_id = self._ensure()
        batch = keyed_batch(changes, self._clock.now_ms())
        if not self._store.admits(batch.size, internal=True):
            raise NoRoom(self._store.refuse(batch.size))
        try:
            self._store.commit([self._store.append_part(log_id, batch)])
        except UnitRefused as refused:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(refused)) from refused
        for key, value in changes:
            self.state.apply(key, value)

    def _ensure(self) -> int:
        """Return the log's id. If there is no log yet, create it in a unit of its own."""
        log_id = self._topics.catalogue.security_log
        if log_id is None:
            log_id = self._store.new_log_id()
            settings = LogSettings(cleanup_policy="compact", segment_bytes=SEGMENT_BYTES)
            made = self._store.create_part(log_id, SECURITY_TOPIC, NO_TOPIC_ID, 0, settings)
            self._topics.commit([security_log_made(log_id)], [made])
        return log_id

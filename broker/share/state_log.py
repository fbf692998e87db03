"""The state of all share partitions, and the topic __share_group_state, in which it is logged.

The rules. All changes of one request are one unit, with one record for each share partition. They are applied in the
step that logs them, as a replay would apply them. The topic is not compacted, because an update has only a part of a
state. Instead a snapshot of each share partition is logged from time to time, and the start of a log moves up to the
first record that is still needed. So a share partition whose last snapshot is below the log start was deleted.
Acknowledgements of a transaction are updates in a transactional batch; the marker after them decides. A snapshot has
no pending acknowledgements, so updates before it are still needed while their acknowledgements are pending.
Source: Kafka's ShareCoordinatorShard, ShareCoordinatorService, ShareCoordinatorOffsetsManager; KAFKA-19695.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...protocol.batches import Batch
from ...protocol.errors import KafkaError
from ...protocol.records import keyed_batch
from ..bugs import contain_bugs
from ..net.turns import SUBJECT_UNITS, Job, Steps
from ..shared import Shared
from ..topics.names import SHARE_STATE_TOPIC
from ..topics.participants import Settlement
from . import records
from .logged import Change, EncodedPending, EncodedSnapshot, EncodedUpdate, Encoding, Logged, LoggedAt, LoggedPartition
from .memory import RunMemory
from .pending import PendingAcknowledgements
from .records import Kind, record_key
from .replay import Replay
from .runs import Transaction
from .values import UNCHANGED, SharePartitionKey, ShareUnit, Snapshot, StateBatch, Update

log = logging.getLogger("fencepost.broker")

LEAST_BYTES = 16 << 10  # of updates after a snapshot: with fewer, their size makes no new one due
TIMES_ITS_SIZE = 4  # the updates after a snapshot must have this many times its bytes, too
COLD_BYTES = 1 << 20  # logged in a partition of the topic since a snapshot, before prune() writes another one
COLD_AT_ONCE = 50  # snapshots that one prune() writes at most, in one unit: the next one writes more
BATCH_BYTES = 512 << 10
PRUNE_EVERY_S = 300.0
PRUNE_AFTER_BYTES = 2 << 20  # logged in one partition of the topic, if that comes sooner
AROUND_BYTES = 100  # around a value and the group's name in the log: the rest of a key, and mostly a batch of its own
PAUSE_S = 0.002  # between two partitions of the topic

FIELDS = ("group", "topic id", "partition", "home", "log end", "snapshot offset", "needs from", "snapshot bytes",
          "bytes since", "updates", "update bytes", "snapshot", "pending")  # fmt: skip
"""The names of the columns of a row in a snapshot of the coordinators."""

Row = tuple[Any, ...]


class _Written(NamedTuple):
    """A batch for one partition of the topic, with the changes that its records contain."""

    home: int
    batch: Batch
    changes: list[tuple[SharePartitionKey, Logged, int]]  # the last: the size of the value


class ShareStateLog:
    """The state of all share partitions of one broker."""

    def __init__(self, shared: Shared) -> None:
        settings = shared.settings.now
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "segment.bytes": str(settings.share_coordinator_state_topic_segment_bytes),
        }
        partitions = settings.share_coordinator_state_topic_num_partitions
        self.topic = shared.internal_topic(SHARE_STATE_TOPIC, partitions, configs)
        self.known: dict[SharePartitionKey, LoggedPartition] = {}
        self.memory = RunMemory()
        self._of_group: dict[str, dict[SharePartitionKey, None]] = {}
        self.pending = PendingAcknowledgements()
        self._logged_bytes: dict[int, int] = {}  # by partition of the topic
        self._pruned_at: dict[int, int] = {}  # _logged_bytes when it was pruned last
        self._due: dict[SharePartitionKey, None] = {}  # snapshots of them are to be written
        self._grown: dict[int, None] = {}  # partitions of the topic that are to be pruned
        self._read_from: dict[SharePartitionKey, int] = {}  # during a start: records below are known already
        self._turns = shared.turns
        self._store = shared.store
        self._settings = shared.settings
        self._clock = shared.clock
        self._metrics = shared.metrics
        self._tasks = shared.tasks

    # ---- questions -------------------------------------------------------------------------------------------

    def home(self, key: SharePartitionKey) -> int:
        """Return the partition of the topic that has the state of this share partition."""
        kept = self.known.get(key)
        return self.topic.partition_for(records.home_name(key)) if kept is None else kept.home

    def check_online(self, key: SharePartitionKey) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE if the log with the state of this share partition is offline."""
        if self.topic.exists:
            self.topic.log(self.home(key))

    def is_online(self, key: SharePartitionKey) -> bool:
        """Return whether the log with the state of this share partition can be read and written."""
        try:
            self.check_online(key)
        except KafkaError:
            return False
        return True

    def of_group(self, group: str) -> list[SharePartitionKey]:
        """Return the share partitions of a group."""
        return list(self._of_group.get(group, ()))

    def pending_in(self, transaction: Transaction) -> list[SharePartitionKey]:
        """Return the share partitions in which a transaction has pending acknowledgements."""
        return self.pending.keys_of(transaction)

    # ---- writing ---------------------------------------------------------------------------------------------

    def unit(self, changes: Iterable[Change]) -> ShareUnit:
        """Encode these changes as parts of a unit. The caller commits the parts, then calls apply(). Raises
        COORDINATOR_NOT_AVAILABLE.
        """
        self.topic.ensure()
        written = list(self._batches(changes))
        parts = [self._store.append_part(self.topic.log(each.home).log_id, each.batch) for each in written]

        def apply() -> None:
            for each in written:
                self._apply_written(each)

        return ShareUnit(parts, apply)

    def commit(self, changes: Sequence[Change]) -> None:
        """Write these changes as one unit and apply them; then begin snapshots that are due. Raises
        COORDINATOR_NOT_AVAILABLE, and then nothing is changed.
        """
        self._commit(changes)
        self._keep_short([key for key, _ in changes])

    def _commit(self, changes: Sequence[Change]) -> None:
        """Write and apply these changes in one unit; begin no snapshots. Raises COORDINATOR_NOT_AVAILABLE."""
        unit = self.unit(changes)
        self.topic.commit(unit.parts)
        unit.apply()

    def settlement(self, home: int, producer_id: int, commit: bool, changes: Sequence[Change]) -> Settlement:
        """Return what a transaction marker in this partition of the topic changes. changes: updates to log in the same
        unit as the marker. Only an abort has some: they archive records that were delivered as often as allowed.
        """
        owner = self.topic.log(home)
        written = list(self._batches(changes))
        keys = self.pending_in((home, producer_id))

        def apply(marker_offset: int) -> None:
            """End the transaction in memory by its marker at this offset, then apply the updates logged with it."""
            self.end_transaction(home, producer_id, commit, marker_offset)
            for each in written:
                self._apply_written(each)
            self._keep_short(keys)

        return Settlement([(owner, each.batch) for each in written], apply)

    def pending_unit(
        self, changes: Sequence[tuple[SharePartitionKey, EncodedPending]], producer_id: int, producer_epoch: int
    ) -> ShareUnit:
        """Encode acknowledgements of a transaction, which stay pending until its marker. The caller commits the parts,
        then calls apply(). Raises COORDINATOR_NOT_AVAILABLE.
        """
        by_home: dict[int, list[tuple[SharePartitionKey, EncodedPending]]] = {}
        for change in changes:
            by_home.setdefault(self.known[change[0]].home, []).append(change)
        now_ms = self._clock.now_ms()
        written = []
        for home, of_home in by_home.items():
            values = [
                records.update_of(UNCHANGED, UNCHANGED, what.states, self.known[key].epoch) for key, what in of_home
            ]
            contents = [(record_key(Kind.UPDATE, key), value) for (key, _), value in zip(of_home, values, strict=True)]
            batch = keyed_batch(
                contents, now_ms, producer_id=producer_id, producer_epoch=producer_epoch, transactional=True
            )
            written.append((home, batch, of_home, values))
        parts = [self._store.append_part(self.topic.log(home).log_id, batch) for home, batch, *_ in written]

        def apply() -> None:
            """Make the acknowledgements pending in memory, at the offsets that their batches got."""
            for home, batch, of_home, values in written:
                transaction = home, producer_id
                for index, ((key, what), value) in enumerate(zip(of_home, values, strict=True)):
                    at = self.note_logged(home, key, batch.base_offset + index, len(value))
                    what.apply(transaction, at.offset)
                    self.pending.add(transaction, key, what.states.number)
                    self._count_update(key, at)

        return ShareUnit(parts, apply)

    def _batches(self, changes: Iterable[Change]) -> Iterator[_Written]:
        """Encode changes as batches of about BATCH_BYTES at most, separately for each partition of the topic."""
        by_home: dict[int, list[Change]] = {}
        for change in changes:
            by_home.setdefault(self.home(change[0]), []).append(change)
        now_ms = self._clock.now_ms()
        for home, of_home in by_home.items():
            contents: list[tuple[bytes, bytes | None]] = []
            described: list[tuple[SharePartitionKey, Logged, int]] = []
            size = 0
            for key, what in of_home:
                record = self._record(key, what)
                value_bytes = len(record[1] or b"")
                if contents and size + value_bytes > BATCH_BYTES:
                    yield _Written(home, keyed_batch(contents, now_ms), described)
                    contents, described, size = [], [], 0
                contents.append(record)
                described.append((key, what, value_bytes))
                size += value_bytes
            yield _Written(home, keyed_batch(contents, now_ms), described)

    def _record(self, key: SharePartitionKey, what: Logged) -> tuple[bytes, bytes | None]:
        """Return key and value of the record that logs a change. Value None: the share partition is deleted."""
        if isinstance(what, Update):
            return record_key(Kind.UPDATE, key), records.update_value(what, self.known[key].epoch)
        if isinstance(what, EncodedUpdate):
            value = records.update_of(what.start, what.complete, what.states, self.known[key].epoch)
            return record_key(Kind.UPDATE, key), value
        if isinstance(what, EncodedSnapshot):
            return record_key(Kind.SNAPSHOT, key), what.value
        return record_key(Kind.SNAPSHOT, key), None if what is None else records.snapshot_value(what)

    def _apply_written(self, written: _Written) -> None:
        """Apply the records of a batch that is now in the log to the share partitions in memory, and note the offset of
        each.
        """
        for index, (key, what, value_bytes) in enumerate(written.changes):
            at = self.note_logged(written.home, key, written.batch.base_offset + index, value_bytes)
            self.apply(key, what, at)

    def _keep_short(self, keys: Iterable[SharePartitionKey]) -> None:
        """Begin to write snapshots of share partitions with many updates, and to prune logs that have grown."""
        is_working = bool(self._due or self._grown)
        for key in keys:
            home, kept = self.home(key), self.known.get(key)
            if kept is not None and self._is_due(kept):
                self._due[key] = None
            if self._logged_bytes.get(home, 0) - self._pruned_at.get(home, 0) >= PRUNE_AFTER_BYTES:
                self._grown[home] = None
        if not is_working and (self._due or self._grown):
            self._turns.enqueue(Job(self._shorten()))

    def _shorten(self) -> Steps[None]:
        """Write the snapshots that are due, and prune the partitions of the topic that have grown, in steps."""
        while self._due or self._grown:
            while self._due:
                key = next(iter(self._due))
                with contain_bugs(self._metrics, f"the snapshot of {key}"):
                    kept = self.known.get(key)
                    if kept is not None:
                        encoding = Encoding(kept.machine)
                        for runs in encoding.encode_ahead():
                            yield 1 + runs
                        self._write_one(key, kept, encoding)
                del self._due[key]
            for home in list(self._grown):
                with contain_bugs(self._metrics, f"{SHARE_STATE_TOPIC}-{home}"):
                    self.prune(home, self._by_home()[home])
                del self._grown[home]
                yield SUBJECT_UNITS

    def _write_one(self, key: SharePartitionKey, kept: LoggedPartition, encoding: Encoding) -> None:
        """Write the snapshot of a share partition if it is still due. If that fails, a later change tries again."""
        if self.known.get(key) is kept and self._is_due(kept):
            try:
                self._commit([(key, kept.encoded_snapshot(encoding.finish(), self._clock.now_ms()))])
            except KafkaError as error:
                log.info("no snapshot of a share partition is written, its next change tries again: %s", error.text)

    def _is_due(self, kept: LoggedPartition) -> bool:
        """Return whether so much was logged since the last snapshot that a new one is due."""
        max_updates = self._settings.now.share_coordinator_snapshot_update_records_per_snapshot
        max_bytes = max(LEAST_BYTES, TIMES_ITS_SIZE * kept.snapshot_bytes)
        return kept.updates > 0 and (kept.updates >= max_updates or kept.update_bytes >= max_bytes)

    def write_snapshots(self, keys: Sequence[SharePartitionKey]) -> None:
        """Write snapshots of these share partitions, in one unit. Raises COORDINATOR_NOT_AVAILABLE."""
        now_ms = self._clock.now_ms()
        known = [(key, self.known[key]) for key in keys]
        self._commit([(key, kept.encoded_snapshot(Encoding(kept.machine).finish(), now_ms)) for key, kept in known])

    # ---- what a replay applies too ---------------------------------------------------------------------------

    def apply(self, key: SharePartitionKey, what: Logged, at: LoggedAt) -> None:
        """Apply a change that was just written, or is replayed. An update of an unknown share partition is ignored."""
        kept = self.known.get(key)
        if isinstance(what, Update | EncodedUpdate):
            if kept is not None:
                what.apply() if isinstance(what, EncodedUpdate) else kept.machine.apply(what)
                self._count_update(key, at)
        elif isinstance(what, Snapshot):
            self._apply_snapshot(key, what, at)
        elif what is None:
            self._forget(key)
        elif kept is not None:
            kept.epoch = what.epoch
            kept.note_snapshot(at)

    def _count_update(self, key: SharePartitionKey, at: LoggedAt) -> None:
        """Count one more update record of a share partition since its last snapshot, and its runs."""
        kept = self.known[key]
        kept.updates += 1
        kept.update_bytes += at.value_bytes
        self.count_runs(key)

    def note_logged(self, home: int, key: SharePartitionKey, offset: int, value_bytes: int) -> LoggedAt:
        """Count a record of this share partition as logged in its partition of the topic. Returns where it is."""
        self._count_logged(home, value_bytes + len(key.group))
        return LoggedAt(home, offset, value_bytes, self._logged_bytes[home])

    def _count_logged(self, home: int, size_bytes: int) -> None:
        """Add a record's size to the bytes that were logged in this partition of the topic."""
        self._logged_bytes[home] = self._logged_bytes.get(home, 0) + size_bytes + AROUND_BYTES

    def _apply_snapshot(self, key: SharePartitionKey, snapshot: Snapshot, at: LoggedAt) -> None:
        """Set a share partition's state to that of a written or replayed snapshot. If it is unknown, create it."""
        kept = self.known.get(key)
        if kept is None:
            kept = self._begin(at.home, key, max(0, snapshot.start), snapshot.state_epoch)
        kept.machine.apply_snapshot(snapshot._replace(start=max(0, snapshot.start)))
        kept.epoch, kept.created_ms = snapshot.epoch, snapshot.created_ms
        kept.note_snapshot(at)
        self.count_runs(key)

    def _begin(self, home: int, key: SharePartitionKey, start: int = 0, state_epoch: int = 0) -> LoggedPartition:
        """Add a share partition whose window begins at `start`. home: the partition of the topic that has its state."""
        kept = self.known[key] = LoggedPartition(home, start, state_epoch)
        self._of_group.setdefault(key.group, {})[key] = None
        return kept

    def apply_pending(
        self, key: SharePartitionKey, producer_id: int, at: LoggedAt, batches: Sequence[StateBatch]
    ) -> None:
        """Replay the update of a transaction. The snapshot of its share partition may follow later in the log."""
        self._make_pending(at.home, key, producer_id, at.offset, batches)
        self._count_update(key, at)

    def _make_pending(
        self, home: int, key: SharePartitionKey, producer_id: int, offset: int, batches: Sequence[StateBatch]
    ) -> None:
        """Make acknowledgements from a record at this offset pending. If the share partition is unknown, create it."""
        kept = self.known.get(key) or self._begin(home, key)
        transaction = home, producer_id
        kept.machine.apply_pending(transaction, offset, batches)
        self.pending.add(transaction, key, len(batches))
        self.count_runs(key)

    def count_runs(self, key: SharePartitionKey) -> None:
        """Count how many runs (ranges in the same state) the share partition has now, for the memory limit."""
        kept = self.known.get(key)
        self.memory.count(key, 0 if kept is None else len(kept.machine.runs))

    def end_transaction(self, partition: int, producer_id: int, commit: bool, marker_offset: int) -> None:
        """End the transaction of a producer in this partition of the topic: commit or abort what it made pending before
        its marker at marker_offset.
        """
        transaction = partition, producer_id
        self._count_logged(partition, 0)  # the marker, which takes AROUND_BYTES
        for key in self.pending.end(transaction):
            machine = self.known[key].machine
            machine.settle(transaction, marker_offset, commit=commit)
            self.count_runs(key)
            if transaction in machine.transactions:  # of a later transaction, known from a snapshot
                self.pending.add(transaction, key, machine.pending_ranges(transaction))

    def _forget(self, key: SharePartitionKey) -> None:
        """Remove a share partition from memory, with its pending acknowledgements; nothing if it is unknown."""
        kept = self.known.pop(key, None)
        if kept is None:
            return
        self.memory.count(key, 0)
        of_group = self._of_group[key.group]
        del of_group[key]
        if not of_group:
            del self._of_group[key.group]
        self.pending.forget(key)

    def forget(self, keys: Iterable[SharePartitionKey]) -> None:
        """Forget share partitions of deleted topics. Nothing is logged, because the deletion of the topic is."""
        for key in keys:
            self._forget(key)

    # ---- start -----------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Replay the topic; forget partitions whose newest snapshot is below its start. Raises InternalTopicDamaged."""
        replay = Replay(self, self._read_from)
        self.topic.load(replay.read)
        replay.finish()
        self._read_from.clear()
        for key, kept in list(self.known.items()):
            if kept.snapshot_offset < self._begins(kept.home):
                self._forget(key)

    def _begins(self, home: int) -> int:
        """Return the log start offset of a partition of the topic; 0 if it is offline."""
        try:
            return self.topic.log(home).start_offset
        except KafkaError:
            return 0

    # ---- snapshots of all coordinators -----------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """Yield a row for each share partition, for a snapshot of the coordinators' state.

        Each row contains the end offset of its log at that moment. A start replays only the log above it, because
        updates below are in the row already. Replaying them could make acknowledgements pending again that have been
        decided in the row.
        """
        for key in list(self.known):
            kept = self.known.get(key)
            if kept is not None:
                pending = tuple(
                    (producer_id, position, *batch)
                    for (_, producer_id), position, batch in kept.machine.pending_batches()
                )
                end = self.topic.end_offset(kept.home)
                bytes_since = self._logged_bytes.get(kept.home, 0) - kept.snapshot_at
                positions = kept.snapshot_offset, kept.needs_from, kept.snapshot_bytes, bytes_since
                value = records.snapshot_value(kept.snapshot(kept.epoch, kept.machine.durable()))
                yield *key, kept.home, end, *positions, kept.updates, kept.update_bytes, value, pending

    def read_row(self, row: Row) -> Row:
        """Return a row of rows(), decoded from plain values. Raises ValueError if it does not fit this log."""
        group, topic_id, partition, home, end, *numbers, value, pending = row
        if end > self.topic.end_offset(home):
            raise ValueError(f"{SHARE_STATE_TOPIC}-{home} ends before offset {end}, up to which the row knows it")
        made: dict[tuple[int, int], list[StateBatch]] = {}  # by record, which is faster
        for producer_id, position, first, last, state, deliveries, member in pending:
            batch = StateBatch(first, last, records.STATES[state], deliveries, member)
            made.setdefault((producer_id, position), []).append(batch)
        return SharePartitionKey(group, topic_id, partition), home, end, *numbers, records.read_snapshot(value), made

    def put_row(self, row: Row) -> None:
        """Apply a row of a snapshot of the coordinators, as read_row() returned it.

        The row includes the records of the state log below its `end`. If the log now begins above that, records between
        the two were removed, and the row is out of date and ignored: a share partition that still exists was written
        again where the log begins, or later, and is read from there.
        """
        key, home, end, offset, needs_from, value_bytes, bytes_since, updates, update_bytes, snapshot, pending = row
        if end < self._begins(home):
            return
        self._read_from[key] = end
        self._apply_snapshot(key, snapshot, LoggedAt(home, offset, value_bytes, self._logged_bytes.get(home, 0)))
        kept = self.known[key]
        kept.needs_from, kept.updates, kept.update_bytes = needs_from, updates, update_bytes
        kept.snapshot_at -= bytes_since
        for (producer_id, position), batches in pending.items():
            self._make_pending(home, key, producer_id, position, batches)

    # ---- pruning ---------------------------------------------------------------------------------------------

    async def prune_from_time_to_time(self) -> None:
        """Prune the partitions of the topic one by one, every PRUNE_EVERY_S seconds, until the broker stops."""
        while not await self._tasks.pause(PRUNE_EVERY_S):
            for home, keys in self._by_home().items():
                with contain_bugs(self._metrics, f"{SHARE_STATE_TOPIC}-{home}"):
                    self.prune(home, keys)
                if await self._tasks.pause(PAUSE_S):
                    return

    def _by_home(self) -> Mapping[int, list[SharePartitionKey]]:
        """Return the share partitions by the partition of the topic that has their state; an empty list for a partition
        that has none.
        """
        homes: dict[int, list[SharePartitionKey]] = {}
        if self.topic.exists:
            homes = {home: [] for home in range(self.topic.partitions)}
        for key, kept in self.known.items():
            homes[kept.home].append(key)
        return homes

    def prune(self, home: int, keys: Sequence[SharePartitionKey]) -> None:
        """Delete the records of this partition of the topic that no restart needs. Before that, write snapshots of
        share partitions whose last one is old, so that fewer are needed. keys: all share partitions with state here. If
        a KafkaError prevents that, it is logged, and nothing is deleted.
        """
        try:
            owner = self.topic.log(home)
            written = self._pruned_at[home] = self._logged_bytes.get(home, 0)
            behind = sorted((self.known[key].snapshot_at, key) for key in keys)
            if cold := [key for snapshot_at, key in behind if written - snapshot_at > COLD_BYTES]:
                self.write_snapshots(cold[:COLD_AT_ONCE])
        except KafkaError as error:
            log.info("%s-%s is not pruned now: %s", SHARE_STATE_TOPIC, home, error.text)
            return
        bounds = [self.known[key].needs_from for key in keys]
        first_open = owner.producers.first_open_offset()
        if first_open is not None:
            bounds.append(first_open)
        start = min([*bounds, owner.high_watermark])
        if start > owner.start_offset and self._store.admits(0, frees=True):
            self._store.commit([self._store.log_start_part(owner, start)])

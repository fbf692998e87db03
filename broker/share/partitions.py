"""All share partitions of a broker: members acquire records and acknowledge them; groups create and delete share
partitions.

The rules: a durable change is decided, logged and applied in one step. A lock ends by an acknowledgement of its owner,
with the owner's session, or at its deadline (locks.py). Requests that wait for a share partition are woken in the next
turn of the loop, so that none acquires records while another request is being handled.

Source: KIP-932, Kafka's SharePartition, SharePartitionManager; KAFKA-19201.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ...effects.counts import count_text
from ...protocol.errors import ErrorCode, KafkaError
from ..net.turns import Steps
from ..shared import Shared
from ..topics.names import TopicIdPartition
from ..topics.participants import Settlement
from .acknowledging import Acknowledging
from .acquiring import Limits
from .counts import count_no_data, count_rejected, count_released
from .locks import Locks
from .logged import Change, LoggedPartition
from .machine import SharePartition
from .portions import Decide
from .records import LEADER_EPOCH
from .state_log import ShareStateLog
from .values import AckRange, AcquiredRange, Found, SharePartitionKey, ShareUnit, Snapshot, Update, Wanted

if TYPE_CHECKING:
    from ..topics.topics import Topic

log = logging.getLogger("fencepost.broker")

MAX_NAMED = 5  # transactions, in an error
ENOUGH_MEMORY = 3 / 4  # of group.metadata.max.bytes: below this, the next lack of memory is logged again

Updated = tuple[SharePartitionKey, Update]
"""A change of a share partition that continues to exist."""


class ShareConfigs(Protocol):
    """The configs of a group that apply to its share partitions; config/group_configs.py has them."""

    @property
    def share_record_lock_duration_ms(self) -> int: ...
    @property
    def share_delivery_count_limit(self) -> int: ...
    @property
    def share_partition_max_record_locks(self) -> int: ...
    @property
    def share_renew_acknowledge_enable(self) -> bool: ...


class Described(NamedTuple):
    """The position of a group in a partition."""

    start_offset: int
    state_epoch: int
    leader_epoch: int
    delivery_complete_count: int


class PendingRange(NamedTuple):
    """Records that a member has acknowledged in an open transaction of this producer."""

    first: int
    last: int
    producer_id: int
    member: str


class Window(NamedTuple):
    """A group's window in a partition: from the first record that is not done to the last that was delivered.

    size: how many records it has. runs: how many ranges of records in the same state. lacks_memory: nothing new is
    delivered, for lack of memory.
    """

    size: int
    pending: list[PendingRange]
    runs: int
    lacks_memory: bool


class SharePartitions:
    """The share partitions of one broker, and the timer of their locks."""

    def __init__(
        self,
        shared: Shared,
        configs: Callable[[str], ShareConfigs],
        loop: asyncio.AbstractEventLoop,
        wake: Callable[[Collection[Hashable]], None],
    ) -> None:
        """configs: returns a group's settings. wake: makes the fetches that wait for one of these share partitions try
        again.
        """
        self.state_log = ShareStateLog(shared)
        self._configs = configs
        self._loop = loop
        self._wake = wake
        self._topics = shared.topics
        self._store = shared.store
        self._clock = shared.clock
        self._metrics = shared.metrics
        self._settings = shared.settings
        self._lacks_memory = False  # true from the warning in the log until there is enough memory again
        self._known = self.state_log.known
        self.transactional_id_of: Callable[[int], str | None] = _unknown
        self._reading: set[SharePartitionKey] = set()
        self._to_wake: dict[Hashable, None] = {}
        self.locks = Locks(shared, self.state_log, self._delivery_limit, loop, self._wake_soon)
        shared.topics.at_deletion.append(self._topic_goes)

    def load(self) -> None:
        """Replay the log at start, and forget share partitions of deleted topics. Raises InternalTopicDamaged."""
        self.state_log.load()
        self.state_log.forget([key for key in self._known if key.topic_id not in self._topics.by_id])

    def stop(self) -> None:
        """Cancel the timer of locks."""
        self.locks.stop()

    # ---- questions -------------------------------------------------------------------------------------------

    def knows(self, key: SharePartitionKey) -> bool:
        """Return whether this share partition exists."""
        return key in self._known

    def check_online(self, key: SharePartitionKey) -> None:
        """Raise COORDINATOR_NOT_AVAILABLE if the log with the state of this share partition is offline."""
        self.state_log.check_online(key)

    def of_group(self, group: str) -> list[SharePartitionKey]:
        """Return the share partitions of a group."""
        return self.state_log.of_group(group)

    def describe(self, key: SharePartitionKey) -> Described | None:
        """Return the start offset and the other numbers that say how far the group is in the partition; None if there
        is no such share partition.
        """
        kept = self._known.get(key)
        if kept is None:
            return None
        machine = kept.machine
        return Described(machine.start, machine.state_epoch, LEADER_EPOCH, machine.runs.complete)

    def window(self, key: SharePartitionKey) -> Window | None:
        """Return the group's window with its pending ranges in offset order; None if there is no such share
        partition.
        """
        kept = self._known.get(key)
        if kept is None:
            return None
        machine = kept.machine
        pending = [
            PendingRange(first, last, standing.transaction[1], standing.member)
            for first, last, standing in machine.pending_runs()
            if standing.transaction is not None
        ]
        return Window(machine.end - machine.start + 1, pending, len(machine.runs), not self.has_memory(key))

    def has_memory(self, key: SharePartitionKey, more_runs: int = 0, times: int = 1) -> bool:
        """Return whether this share partition may have more_runs more runs (ranges of records in the same state); see
        RunMemory.has_room().
        """
        return self.state_log.memory.has_room(key, self._settings.now.group_metadata_max_bytes, more_runs, times)

    def lock_timeout_ms(self, group: str) -> int:
        """Return for how many ms a member has the records that it acquires now."""
        return self._configs(group).share_record_lock_duration_ms

    def check_nothing_pending(self, group: str) -> None:
        """Raise NON_EMPTY_GROUP if an open transaction has acknowledged records of the group."""
        self._check_pending(self.of_group(group))

    def _check_pending(self, keys: Iterable[SharePartitionKey]) -> None:
        """Raise NON_EMPTY_GROUP if an open transaction has acknowledged records of these share partitions."""
        pending = {each for key in keys if key in self._known for each in self._known[key].machine.transactions}
        if pending:
            ids = sorted({producer_id for _, producer_id in pending})
            named = ", ".join(map(str, ids[:MAX_NAMED]))  # no transactional ids: not every user may see them
            of = count_text(len(ids), "open transaction")
            text = f"acknowledgements of {of} are pending: {'producer id' if len(ids) == 1 else 'producer ids'} {named}"
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, text)

    # ---- beginning and end -----------------------------------------------------------------------------------

    def initialize(self, group: str, starts: Mapping[TopicIdPartition, int]) -> ShareUnit:
        """Return the changes that create share partitions at these offsets, except those that exist already. The caller
        writes them in a unit.

        Raises COORDINATOR_NOT_AVAILABLE.
        """
        keyed = {SharePartitionKey(group, *place): start for place, start in starts.items()}
        return self._unit([self._begun(key, start, 0, 0) for key, start in keyed.items() if key not in self._known])

    def alter(self, group: str, starts: Mapping[TopicIdPartition, int]) -> ShareUnit:
        """Return the changes that reset share partitions to these offsets, and create those that do not exist. The
        caller writes them in a unit.

        Raises NON_EMPTY_GROUP, COORDINATOR_NOT_AVAILABLE.
        """
        keyed = {SharePartitionKey(group, *place): start for place, start in starts.items()}
        self._check_pending(keyed)
        changes = []
        for key, start in keyed.items():
            kept = self._known.get(key)
            numbers = (0, 0) if kept is None else (kept.epoch + 1, kept.machine.state_epoch + 1)
            changes.append(self._begun(key, start, *numbers))
        return self._unit(changes)

    def _begun(self, key: SharePartitionKey, start: int, epoch: int, state_epoch: int) -> Change:
        """Return the snapshot with which a share partition begins at this offset."""
        now_ms = self._clock.now_ms()
        return key, Snapshot(epoch, state_epoch, start, 0, (), now_ms, now_ms)

    def delete(self, group: str, places: Collection[TopicIdPartition] | None = None) -> ShareUnit:
        """Return the changes that delete these share partitions; places None: all of the group. The caller writes them
        in a unit.

        Raises NON_EMPTY_GROUP, COORDINATOR_NOT_AVAILABLE.
        """
        keys = self.of_group(group)
        if places is not None:
            keys = [key for key in keys if (key.topic_id, key.partition) in places]
        self._check_pending(keys)
        return self._unit([(key, None) for key in keys])

    def _unit(self, changes: Sequence[Change]) -> ShareUnit:
        """Return these changes for a caller's unit, whose apply() also wakes the fetches that wait for these share
        partitions.
        """
        unit = self.state_log.unit(changes) if changes else ShareUnit([], _nothing)

        def apply() -> None:
            """Apply the committed changes, and wake fetches that wait for these share partitions."""
            unit.apply()
            self._wake_soon(key for key, _ in changes)

        return ShareUnit(unit.parts, apply)

    def _topic_goes(self, topic: "Topic") -> ShareUnit:
        """Return the changes that delete the share partitions of a topic, for the unit that deletes the topic.

        Those whose log is offline are not logged as deleted; the next start forgets them.
        """
        keys = [key for key in self._known if key.topic_id == topic.id]
        changes: list[Change] = [(key, None) for key in keys if self.state_log.is_online(key)]
        unit = self._unit(changes)

        def apply() -> None:
            """Apply the committed changes, and forget all share partitions of the topic."""
            unit.apply()
            self.state_log.forget(keys)
            self._wake_soon(keys)

        return ShareUnit(unit.parts, apply)

    # ---- fetching --------------------------------------------------------------------------------------------

    def next_offset(self, key: SharePartitionKey) -> int | None:
        """Return the offset to read from: the first available one, or the one after the window. Before that, a window
        that begins below the log start offset is moved up to it.

        Returns None while nothing may be acquired, because another request is reading, or because the window is full or
        may not grow for lack of memory. Raises UNKNOWN_TOPIC_OR_PARTITION, COORDINATOR_NOT_AVAILABLE.
        """
        kept = self._find(key)
        if key in self._reading:
            return None
        self._follow_log(key, kept)
        machine = kept.machine
        offset = machine.next_offset
        return offset if offset <= machine.end or self._room(key, kept) > 0 else None

    def begin_read(self, key: SharePartitionKey) -> None:
        """Reserve the share partition for one reader: until end_read(), next_offset() returns None."""
        self._reading.add(key)

    def end_read(self, key: SharePartitionKey) -> None:
        """End the reservation of begin_read(), and wake the requests that wait for this share partition."""
        self._reading.discard(key)
        self._wake_soon([key])

    def acquire(
        self, key: SharePartitionKey, member: str, offset: int, found: Sequence[Found], wanted: Wanted
    ) -> list[AcquiredRange]:
        """Let the member acquire records of these batches. Returns the acquired ranges. offset: where the read of the
        batches began.

        Batches without data are archived, in a unit. Raises UNKNOWN_TOPIC_OR_PARTITION, COORDINATOR_NOT_AVAILABLE; then
        nothing was changed.
        """
        kept = self._find(key)
        machine, configs = kept.machine, self._configs(key.group)
        limits = Limits(configs.share_delivery_count_limit, self._room(key, kept))
        acquired, archived = machine.decide_acquisition(offset, found, wanted, limits)
        update = machine.decide_archive(archived)
        if update is not None:
            self.state_log.commit([(key, update)])
            count_no_data(self._metrics, archived)
            self._wake_soon([key])
        machine.acquire(acquired, member, self._lock_until_ms(configs))
        self.state_log.count_runs(key)
        self.locks.ensure_alarm(key, kept)
        return acquired

    def _delivery_limit(self, group: str) -> int:
        return self._configs(group).share_delivery_count_limit

    def _lock_until_ms(self, configs: ShareConfigs) -> int:
        """Return the monotonic time in milliseconds at which a lock taken now ends."""
        return self._clock.monotonic_ms() + configs.share_record_lock_duration_ms

    def _room(self, key: SharePartitionKey, kept: LoggedPartition) -> int:
        """Return by how many records the window may grow; 0 if there is no memory for more runs, which is logged. Once
        enough memory is free again, the next lack of it will be logged.
        """
        if not self.has_memory(key):
            self._log_lack_of_memory(key, len(kept.machine.runs))
            return 0
        if self._lacks_memory:
            enough_bytes = ENOUGH_MEMORY * self._settings.now.group_metadata_max_bytes
            self._lacks_memory = self.state_log.memory.size_bytes > enough_bytes
        return kept.machine.room(self._configs(key.group).share_partition_max_record_locks)

    def _log_lack_of_memory(self, key: SharePartitionKey, runs: int) -> None:
        """Log which share partition gets no new records for lack of memory. Logs only the first one until there is
        memory again.
        """
        if not self._lacks_memory:
            self._lacks_memory = True
            topic = self._topics.by_id.get(key.topic_id)
            text = "share group %s gets nothing new of %s-%d: its %d runs of records there take more than their part "
            text += "of group.metadata.max.bytes; and so may others"
            log.warning(text, key.group, "" if topic is None else topic.name, key.partition, runs)

    def _find(self, key: SharePartitionKey) -> LoggedPartition:
        """Return the share partition. Raises UNKNOWN_TOPIC_OR_PARTITION, COORDINATOR_NOT_AVAILABLE."""
        kept = self._known.get(key)
        self.state_log.check_online(key)
        if kept is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the group has no such share partition")
        return kept

    def _follow_log(self, key: SharePartitionKey, kept: LoggedPartition) -> None:
        """If the window begins below the partition's log start offset, move its start up to there. Raises
        COORDINATOR_NOT_AVAILABLE.
        """
        topic = self._topics.by_id.get(key.topic_id)
        if topic is not None and key.partition < len(topic.partitions):
            update = kept.machine.decide_start(topic.partitions[key.partition].log.start_offset)
            if update is not None:
                self.state_log.commit([(key, update)])
                self._wake_soon([key])

    # ---- acknowledging ---------------------------------------------------------------------------------------

    def begin_acknowledging(
        self, group: str, member: str, acks: Mapping[TopicIdPartition, Sequence[AckRange]]
    ) -> Acknowledging:
        """Return the acknowledgements of a request, which the caller decides in steps and then passes to finish()."""
        configs = self._configs(group)
        limit, until_ms = configs.share_delivery_count_limit, self._lock_until_ms(configs)
        renewed_until_ms = until_ms if configs.share_renew_acknowledge_enable else None

        def decide_of(key: SharePartitionKey, machine: SharePartition) -> Decide:
            """Return the function that decides acknowledgements of this member in a share partition."""
            return lambda ranges, above: machine.decide_acks(member, ranges, above, limit, renewed_until_ms)

        return Acknowledging(group, acks, self.state_log, self._machine, decide_of, self.has_memory)

    def finish(self, acknowledging: Acknowledging) -> dict[TopicIdPartition, KafkaError | None]:
        """Apply acknowledgements in one unit. Each partition succeeds or fails as a whole.

        Returns each partition's error; None for success.
        """
        answers, changed = acknowledging.finish(self._metrics)
        self._wake_soon(changed)
        for place, error in answers.items():
            if error is None:
                key = SharePartitionKey(acknowledging.group, *place)
                self.state_log.count_runs(key)
                self.locks.ensure_alarm(key, self._known[key])
        return answers

    def _machine(self, key: SharePartitionKey) -> SharePartition:
        """Return the state machine of a share partition."""
        return self._find(key).machine

    def begin_release(self, group: str, member: str, places: Iterable[TopicIdPartition]) -> None:
        """Begin to make the records that the member has acquired in these partitions available again, because its
        session has ended.

        Some are released at once, the rest in turns with other jobs: see finish_release(). If the log cannot be
        written, it is tried again later.
        """
        keys = [key for place in places if (key := SharePartitionKey(group, *place)) in self._known]
        self.locks.begin_release(group, member, keys)

    def finish_release(self, group: str, member: str) -> Steps[None]:
        """Release now, in steps, all that a member's ended session still has acquired.

        To be called before the member opens another session, and before the end of its session is answered.
        """
        return self.locks.finish_release(group, member)

    # ---- transactions ----------------------------------------------------------------------------------------

    def begin_acknowledging_in_transaction(
        self, group: str, member: str, producer_id: int, acks: Mapping[TopicIdPartition, Sequence[AckRange]]
    ) -> Acknowledging:
        """Return acknowledgements that are part of a producer's transaction, for the caller to decide in steps; then
        call their finish_in_transaction().
        """

        def decide_of(key: SharePartitionKey, machine: SharePartition) -> Decide:
            """Return the function that decides acknowledgements of this transaction in a share partition."""
            transaction = self.state_log.home(key), producer_id
            return lambda ranges, above: machine.decide_pending(member, ranges, above, transaction)

        return Acknowledging(group, acks, self.state_log, self._machine, decide_of, self.has_memory)

    def settle(self, home: int, producer_id: int, commit: bool) -> Settlement:
        """Return the changes that a transaction marker in this partition of __share_group_state makes.

        On an abort, records that were delivered as often as allowed are archived. That is logged in the same unit,
        because another limit may be in effect when the log is replayed.
        """
        transaction = home, producer_id
        changes: list[Updated] = []
        for key in () if commit else self.state_log.pending_in(transaction):
            limit = self._configs(key.group).share_delivery_count_limit
            update = self._known[key].machine.decide_abort(transaction, limit)
            if update is not None:
                changes.append((key, update))
        settlement = self.state_log.settlement(home, producer_id, commit, changes)

        def apply(marker_offset: int) -> None:
            """Apply the committed marker at this offset, count what it archives, and wake waiting fetches."""
            keys = self.state_log.pending_in(transaction)
            if commit:
                count_rejected(self._metrics, [self._known[key].machine for key in keys], transaction)
            settlement.apply(marker_offset)
            for _, update in changes:
                count_released(self._metrics, update.batches, timed_out=False)
            self._wake_soon(keys)

        return settlement._replace(apply=apply)

    # ---- fetches that wait -----------------------------------------------------------------------------------

    def _wake_soon(self, keys: Iterable[SharePartitionKey]) -> None:
        """Let fetches that wait for these share partitions try again, soon after this turn of the loop."""
        found: dict[Hashable, None] = dict.fromkeys(keys)
        if found and not self._to_wake:
            self._loop.call_soon(self._wake_all)
        self._to_wake.update(found)

    def _wake_all(self) -> None:
        """Wake the share fetches that wait for any of the noted share partitions. It is called once for all that
        were noted in one turn of the loop.
        """
        to_wake, self._to_wake = self._to_wake, {}
        self._wake(to_wake)


def _nothing() -> None:
    """Do nothing. It is the apply() of a unit that changes no state."""


def _unknown(producer_id: int) -> None:
    """Return None, because no transactional id of any producer is known until the coordinator has set its own
    function.
    """

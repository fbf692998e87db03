"""The part that the coordinators of consumer groups (KIP-848) and of share groups have in common: the broker assigns
partitions.

The rules: what a group decides is written as one unit before any member is answered. Deadlines are monotonic. Work that
grows with the size of a group is done in steps between other requests; meanwhile members continue with the assignment
they have. Groups are loaded from the newest record of each key.

Source: Kafka's GroupCoordinatorService.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, KeysView
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from ....protocol.errors import ErrorCode, KafkaError
from ....storage.journal.journal import Part
from ....storage.store import BrokerHalted
from ...alarms import Alarms
from ...bugs import contain_bugs
from ...net.turns import Job, Steps
from ...security.access import Access
from ...security.acls import Operation, ResourceType
from ...security.principals import Session
from ...shared import Shared
from ...topics.internal_topic import InternalTopic
from ...topics.topics import Topics
from ..targets import TopicId
from .assignment import Assigned, AssignmentSteps, TopicShape
from .records import Recorded

log = logging.getLogger("fencepost.broker")

AFTER_FAILURE_MS = 10_000  # until a group is tried again whose timeouts could not be handled
BATCH_BYTES = 500_000  # larger changes of a group are several batches of one unit
GROUP_BYTES = 2_000  # of memory for a group, besides its members and what they have


class AssignedGroup(Protocol):
    """A group whose partitions the broker assigns. It decides what changes; the coordinator writes the changes to the
    log.
    """

    group_id: str
    size_bytes: int
    wake_ms: int
    is_assigning: bool

    @property
    def member_ids(self) -> Collection[str]:
        """The ids of all members."""
        ...

    def apply(self, change: Any) -> None:
        """Apply one record of the group, read from the log or just written."""
        ...

    def changes(self) -> Iterator[Any]:
        """Yield a change for each record that the group has in the log now. The group may change while this runs."""
        ...

    def begin(self, now_ms: int) -> None:
        """Start a full session timeout for every member. To be called at a start, once all records are applied."""
        ...

    def expire(self, now_ms: int) -> None:
        """Remove the members whose session has timed out by now_ms (monotonic). Raises KafkaError if that cannot be
        written.
        """
        ...

    def remove(self, member_ids: Collection[str]) -> None:
        """Remove these members from the group. Raises KafkaError if that cannot be written."""
        ...

    def tombstones(self) -> list[Any]:
        """Return the tombstones that delete the group's records. Raises NON_EMPTY_GROUP if it has members."""
        ...

    def is_assignment_due(self, now_ms: int) -> bool:
        """Return whether the target assignment is older than the group's epoch, and may be computed now."""
        ...

    def is_assignment_doubtful(self, now_ms: int) -> bool:
        """Return whether the assignment must be computed again because ACLs have changed, and may be computed now: the
        interval since the last assignment is over.
        """
        ...

    def begin_assignment(self) -> tuple[int, AssignmentSteps]:
        """Return the epoch of the next target assignment, and the steps that compute it."""
        ...

    def take_assignment(self, epoch: int, assigned: Assigned, now_ms: int, wall_ms: int) -> None:
        """Make a computed assignment the target. Raises KafkaError if it cannot be logged.

        epoch: the group's epoch when the computation began. now_ms: monotonic time; wall_ms: wall time.
        """
        ...


Group = TypeVar("Group", bound=AssignedGroup)
Change = TypeVar("Change", bound=Recorded)


class BrokerTopics:
    """The topics of the broker, through the methods that groups use."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    @property
    def version(self) -> int:
        """A number that changes when a topic or partition is added or removed."""
        return self._topics.version

    def id_of(self, name: str) -> TopicId | None:
        found = self._topics.by_name.get(name)
        return None if found is None else found.id

    def sizes(self, names: Iterable[str]) -> list[tuple[TopicId, int]]:
        """Return the id and the number of partitions of each of these topics that exists."""
        by_name = self._topics.by_name
        return [(topic.id, len(topic.partitions)) for name in names if (topic := by_name.get(name)) is not None]

    def shapes(self, topic_ids: Iterable[TopicId]) -> dict[TopicId, TopicShape]:
        """Return how many partitions each of these topics has, by id. Topics that do not exist are left out."""
        by_id = self._topics.by_id
        return {each: TopicShape(len(by_id[each].partitions)) for each in topic_ids if each in by_id}

    def names(self) -> KeysView[str]:
        return self._topics.by_name.keys()

    def name_of(self, topic_id: TopicId) -> str | None:
        found = self._topics.by_id.get(topic_id)
        return None if found is None else found.name


class BrokerRights:
    """The access checks that groups use."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @property
    def is_enforced(self) -> bool:
        return self._access.is_enforced

    @property
    def version(self) -> int:
        """A number that changes with every change of ACLs."""
        return self._access.version

    def describes(self, user: Session, topic: str) -> bool:
        """Return whether the user may describe the topic."""
        return self._access.allows(user, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def reads(self, user: Session, topic: str) -> bool:
        """Return whether the user may read the topic."""
        return self._access.allows(user, Operation.READ, ResourceType.TOPIC, topic)


class AssignedGroups(Generic[Group, Change]):
    """All groups of one type (consumer groups, or share groups) of one broker."""

    def __init__(self, shared: Shared, topic: InternalTopic, loop: asyncio.AbstractEventLoop, access: Access) -> None:
        """topic: __consumer_offsets, where the groups' records are written."""
        self.groups: dict[str, Group] = {}
        self.size_bytes = 0
        self.topics = BrokerTopics(shared.topics)
        self._topic = topic
        self._rights = BrokerRights(access)
        self._settings = shared.settings
        self._clock = shared.clock
        self._store = shared.store
        self._metrics = shared.metrics
        self._rng = shared.rng
        self._turns = shared.turns
        self._alarms = Alarms(shared.clock, loop, self._ring)
        self._sizes: dict[str, int] = {}
        self._loaded: dict[str, dict[tuple[int, str], Change]] = {}

    # ---- what the kinds do differently -----------------------------------------------------------------------

    @abstractmethod
    def _make_group(self, group_id: str) -> Group:
        """Make a group of this kind, without members and records."""

    @abstractmethod
    def _read(self, key: bytes, value: bytes | None) -> tuple[str, Change]:
        """Decode a record of the log. Returns the group's id and the change. Raises UnreadableRecord, a ValueError."""

    @abstractmethod
    def _record(self, group_id: str, change: Change) -> tuple[bytes, bytes | None]:
        """Encode a change of a group. Returns the record's key and value; the value is None for a tombstone."""

    # ---- start and end ---------------------------------------------------------------------------------------

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Note one record of the log, at start. start() then makes the groups from all records. Raises
        UnreadableRecord, a ValueError.
        """
        group_id, change = self._read(key, value)
        kept = self._loaded.setdefault(group_id, {})
        if change.value is None:
            kept.pop((change.kind, change.name), None)
        else:
            kept[change.kind, change.name] = change

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the (key, value) of all records from which apply() and start() restore the present groups. Groups may
        change while this runs.
        """
        for group_id in list(self.groups):
            group = self.groups.get(group_id)
            for change in group.changes() if group is not None else ():
                key, value = self._record(group_id, change)
                if value is not None:
                    yield key, value

    def start(self) -> None:
        """Make the groups from the loaded records, and start the session timeouts of all members."""
        now_ms = self._clock.monotonic_ms()
        for group_id, kept in self._loaded.items():
            if kept:
                group = self.groups[group_id] = self._make_group(group_id)
                for change in kept.values():
                    group.apply(change)
                group.begin(now_ms)
                self._count_and_set_alarm(group)
        self._loaded.clear()

    def stop(self) -> None:
        """Stop the timer, so that no member times out any more."""
        self._alarms.stop()

    # ---- what happens to a group -----------------------------------------------------------------------------

    @contextmanager
    def _event(self, group: Group) -> Iterator[None]:
        """Surround a change of a group: afterwards set its alarm, or remove it from memory if it has no records."""
        try:
            yield
        finally:
            if self.groups.get(group.group_id) is not group:
                pass  # it was removed, or is a group of another kind now
            elif next(group.changes(), None) is None:
                self.forget(group.group_id)  # it has no records: nobody has joined it
            else:
                self._count_and_set_alarm(group)

    def _count_and_set_alarm(self, group: Group) -> None:
        """Count the group's memory anew, and set the alarm for its next timeout."""
        size_bytes = GROUP_BYTES + group.size_bytes
        self.size_bytes += size_bytes - self._sizes.get(group.group_id, 0)
        self._sizes[group.group_id] = size_bytes
        self._alarms.set(group.group_id, group.wake_ms)

    def _check_bytes(self, more_bytes: int) -> None:
        """Raise GROUP_MAX_SIZE_REACHED if more_bytes of additional memory would exceed group.metadata.max.bytes."""
        max_bytes = self._settings.now.group_metadata_max_bytes
        if self.size_bytes + more_bytes + GROUP_BYTES > max_bytes:
            log.warning("no room for more members: group.metadata.max.bytes (%d) is reached", max_bytes)
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def dismiss(self) -> int:
        """Remove the members of all groups. Returns how many there were. Raises KafkaError if the log cannot be
        written.
        """
        dismissed = 0
        for group in list(self.groups.values()):
            members = list(group.member_ids)
            if members:
                with self._event(group):
                    group.remove(members)
                dismissed += len(members)
        return dismissed

    # ---- the end of a group ----------------------------------------------------------------------------------

    def tombstones(self, group_id: str) -> list[Part]:
        """Return the batches that delete a group's records; [] if the group does not exist. The caller commits them,
        then calls forget().

        Raises NON_EMPTY_GROUP, COORDINATOR_NOT_AVAILABLE.
        """
        group = self.groups.get(group_id)
        return [] if group is None else self.parts(group_id, group.tombstones())

    def forget(self, group_id: str) -> None:
        """Remove a group from memory, together with its alarm. Does nothing if it is not there."""
        self.groups.pop(group_id, None)
        self.size_bytes -= self._sizes.pop(group_id, 0)
        self._alarms.forget(group_id)

    # ---- the log ---------------------------------------------------------------------------------------------

    def parts(self, group_id: str, changes: Iterable[Change], also: Iterable[tuple[bytes, bytes]] = ()) -> list[Part]:
        """Return batches for __consumer_offsets with these changes, followed by the records in `also`. The caller
        commits them.

        also: (key, value) of other records. Raises KafkaError if the group's partition of the log is offline.
        """
        topic, now_ms = self._topic, self._clock.now_ms()
        partition = topic.partition_for(group_id)
        parts: list[Part] = []
        contents: list[tuple[bytes, bytes | None]] = []
        size_bytes = 0
        for key, value in (*(self._record(group_id, change) for change in changes), *also):
            contents.append((key, value))
            size_bytes += len(key) + len(value or b"")
            if size_bytes >= BATCH_BYTES:
                parts.append(topic.part(partition, contents, now_ms=now_ms))
                contents, size_bytes = [], 0
        if contents:
            parts.append(topic.part(partition, contents, now_ms=now_ms))
        return parts

    # ---- work in slices --------------------------------------------------------------------------------------

    def _assign_if_due(self, group: Group, now_ms: int) -> None:
        """If the target assignment is outdated and may be computed now, begin to compute it in later turns of
        the loop.
        """
        if group.is_assignment_due(now_ms) or group.is_assignment_doubtful(now_ms):
            group.is_assigning = True  # at once, so that no second computation begins before this one runs
            self._begin(group, self._assign(group))

    def _assign(self, group: Group) -> Steps[None]:
        """Compute a target assignment in steps, and make it the target of the group if the group still exists then.
        Yields the cost of each step.
        """
        epoch, steps = group.begin_assignment()
        yield len(group.member_ids)
        assigned = yield from steps
        if self.groups.get(group.group_id) is group:
            with self._event(group):
                group.take_assignment(epoch, assigned, self._clock.monotonic_ms(), self._clock.now_ms())

    def _begin(self, group: Group, steps: Steps[None]) -> None:
        """Run this work of a group in later turns of the loop. If it fails, log that, and let the group be assigned
        again later.
        """
        job = Job(steps)

        def finish(result: Exception | None) -> None:
            """If the work has failed, log its exception, and let the group be assigned again later. None: it has
            not failed, and nothing is left to do.
            """
            if result is None:
                return
            self._give_up(group)
            try:
                with contain_bugs(self._metrics, f"group {group.group_id!r}", besides=KafkaError):
                    raise result
            except KafkaError as error:
                log.warning("group %s is assigned again later: %s", group.group_id, error.text)

        job.finish = finish
        self._turns.enqueue(job, long=True)

    def _give_up(self, group: Group) -> None:
        """Note that no assignment is being computed any more, because the work has failed. It may begin again later."""
        group.is_assigning = False

    # ---- time ------------------------------------------------------------------------------------------------

    def _ring(self, group_ids: Iterable[str]) -> None:
        """Handle the timeouts of these groups. Called by the timer when their alarms are due."""
        for group_id in group_ids:
            self._expire(self.groups[group_id])

    def _expire(self, group: Group) -> None:
        """Let one group remove the members that have timed out. If the group's next timeout has moved to a later time,
        only set its alarm. A bug or error affects only this group, which is tried again after AFTER_FAILURE_MS.
        """
        now_ms = self._clock.monotonic_ms()
        if group.wake_ms > now_ms:
            self._count_and_set_alarm(group)
            return
        try:
            with self._event(group):
                group.wake_ms = now_ms + AFTER_FAILURE_MS  # if expire() fails before it sets wake_ms itself
                with contain_bugs(self._metrics, f"group {group.group_id!r}", besides=KafkaError):
                    group.expire(now_ms)
        except BrokerHalted:
            return
        except KafkaError as error:
            log.warning("members of group %s stay for now: %s", group.group_id, error.text)

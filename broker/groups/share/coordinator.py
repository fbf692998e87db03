"""The coordinator of share groups: it passes requests, time and timeouts to the pure groups, and logs their changes.

The rules are those of assigned/coordinator.py, and these: share partitions that a group creates or deletes are changed
in the same unit as the group's own records. The offset where a share partition begins is decided once, when it is
created, from the log at that time: `latest` means the end of what was appended before. A partition that is added to a
topic in use begins at its first record, whatever the group's setting, because nobody could have read it before. The
deletion of a topic deletes its share partitions, too.

Sources: KIP-932; Kafka's GroupCoordinatorService, SharePartition.startOffsetDuringInitialization, KAFKA-19201.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ....storage.journal.journal import Part
from ...config.group_configs import EARLIEST, LATEST, reset_duration_ms
from ...security.access import Access
from ...share.values import ShareUnit
from ...shared import Shared
from ...topics.internal_topic import InternalTopic
from ...topics.names import TopicIdPartition
from ...topics.topics import Along, Topic
from ..assigned.coordinator import GROUP_BYTES, AssignedGroups
from ..configs import ConfigsByGroup
from .heartbeats import JOINS, Answer, Heartbeat
from .machine import INITIALIZED_AT_ONCE, Missing, Rules, ShareGroup
from .records import Change, Kind, read, record
from .roster import SHARE_PARTITION_BYTES, without

log = logging.getLogger("fencepost.broker")

MAX_FORGOTTEN_BYTES = 4 << 20  # of records by which groups forget one deleted topic, in the unit that deletes it
UNITS_OF_A_CHANGE = 10  # the work of writing one record of a group
UNITS_OF_A_SHARE_PARTITION = 10  # the work of creating a share partition

Starts = Mapping[TopicIdPartition, int]
"""The offset at which reading begins, by topic id and partition."""

NOT_LOOKED_UP: Starts = {}


class ShareStateStore(Protocol):
    """The methods of SharePartitions that groups use. Each returns changes, which the caller writes and then applies.

    All raise COORDINATOR_NOT_AVAILABLE; alter and delete also raise NON_EMPTY_GROUP if an open transaction has
    acknowledged records.
    """

    def initialize(self, group: str, starts: Starts) -> ShareUnit:
        """Return the changes that create share partitions at these offsets; existing ones are not changed. The caller
        writes them.
        """
        ...

    def alter(self, group: str, starts: Starts) -> ShareUnit:
        """Return the changes that reset share partitions to these offsets. The caller writes them.

        Raises NON_EMPTY_GROUP, COORDINATOR_NOT_AVAILABLE.
        """
        ...

    def delete(self, group: str, keys: Collection[TopicIdPartition] | None = None) -> ShareUnit:
        """Return the changes that delete share partitions of the group. The caller writes them. keys: which ones; None
        for all.
        """
        ...


class ShareGroups(AssignedGroups[ShareGroup, Change]):
    """All share groups of one broker."""

    def __init__(
        self,
        shared: Shared,
        configs: ConfigsByGroup,
        topic: InternalTopic,
        loop: asyncio.AbstractEventLoop,
        access: Access,
        share_partitions: ShareStateStore,
    ) -> None:
        """topic: __consumer_offsets, where the groups' records are written."""
        super().__init__(shared, topic, loop, access)
        self._configs = configs
        self._broker_topics = shared.topics
        shared.topics.at_deletion.append(self._topic_goes)
        self._share_partitions = share_partitions

    def _make_group(self, group_id: str) -> ShareGroup:
        return ShareGroup(group_id, self.topics, lambda: self.rules(group_id), self._rights, self._keep)

    def _read(self, key: bytes, value: bytes | None) -> tuple[str, Change]:
        """Decode a record of the log. Returns the group's id and the change. Raises UnreadableRecord."""
        return read(key, value)

    def _record(self, group_id: str, change: Change) -> tuple[bytes, bytes | None]:
        """Encode a change of a group. Returns the record's key and value; the value is None for a tombstone."""
        return record(group_id, change)

    def rules(self, group_id: str) -> Rules:
        """Return the settings in effect for this group, from its own configs and the broker's."""
        own = self._configs.obeyed(group_id)
        return Rules(
            session_timeout_ms=own.share_session_timeout_ms,
            assignment_interval_ms=own.share_assignment_interval_ms,
            max_size=self._settings.now.group_share_max_size,
        )

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._configs.obeyed(group_id).share_heartbeat_interval_ms

    # ---- members ---------------------------------------------------------------------------------------------

    def heartbeat(self, group_id: str, beat: Heartbeat, looked_up: Starts = NOT_LOOKED_UP) -> Answer:
        """Handle a ShareGroupHeartbeat. With epoch 0 the member joins, and its group is created if needed.

        looked_up: the start offsets of the partitions that to_look_up() returned. Raises KafkaError.
        """
        if beat.epoch == JOINS and group_id not in self.groups:
            self.groups[group_id] = self._make_group(group_id)
        group = self._find(group_id)
        now_ms = self._clock.monotonic_ms()
        begin = partial(self._begin_share_partitions, group_id, looked_up)
        with self._event(group):
            self._check_room(group, beat)
            answer = group.heartbeat(beat, now_ms, self._clock.now_ms(), begin)
        self._assign_if_due(group, now_ms)
        return answer

    def _find(self, group_id: str) -> ShareGroup:
        """Return the group. Raises GROUP_ID_NOT_FOUND."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return group

    def _check_room(self, group: ShareGroup, beat: Heartbeat) -> None:
        """Raise GROUP_MAX_SIZE_REACHED if a new member or subscription would exceed group.metadata.max.bytes."""
        if beat.epoch == JOINS or beat.topics:
            named = sum(4 * len(topic) + 60 for topic in beat.topics or ())
            begun = sum(1 for _ in islice(group.missing(beat.topics or ()), INITIALIZED_AT_ONCE))
            self._check_bytes(named + SHARE_PARTITION_BYTES * begun)

    def leave(self, group_id: str, beat: Heartbeat) -> Answer:
        """Answer the ShareGroupHeartbeat by which a member leaves the group. Raises KafkaError."""
        group = self._find(group_id)
        with self._event(group):
            return group.leave(beat)

    # ---- where share partitions begin ------------------------------------------------------------------------

    def to_look_up(self, group_id: str, topics: Sequence[str]) -> list[tuple[TopicIdPartition, int]]:
        """Return (partition, timestamp in ms) for each partition in which the group would begin to read at a point in
        time.

        The caller looks up the offset of the timestamp, and passes it to heartbeat(). Empty unless
        share.auto.offset.reset is a duration. Partitions that were added to a topic in use are left out: they begin at
        their log start. topics: those to which the heartbeat subscribes.
        """
        reset = self._configs.obeyed(group_id).share_auto_offset_reset
        if reset in (EARLIEST, LATEST):
            return []
        group = self.groups.get(group_id) or self._make_group(group_id)
        at_ms = max(0, self._clock.now_ms() - reset_duration_ms(reset))
        missing = islice(group.missing(topics), INITIALIZED_AT_ONCE)
        return [(each.place, at_ms) for each in missing if not each.is_new]

    def _begin_share_partitions(
        self, group_id: str, looked_up: Starts, missing: Sequence[Missing]
    ) -> tuple[Collection[TopicIdPartition], ShareUnit | None]:
        """Prepare to create those of these share partitions whose log is online and whose start offset is known, as
        many as there is memory for.

        Returns their keys, and the changes that create them, which the caller writes together with the group's; no
        keys and None if there are none, or after a KafkaError, which is logged.
        """
        max_new = max(0, self._settings.now.group_metadata_max_bytes - self.size_bytes) // SHARE_PARTITION_BYTES
        starts = dict(islice(self._starts(group_id, looked_up, missing), max_new))
        self._turns.spend(UNITS_OF_A_SHARE_PARTITION * len(starts))
        try:
            return starts.keys(), self._share_partitions.initialize(group_id, starts) if starts else None
        except KafkaError as error:
            log.warning("group %s begins with some partitions later: %s", group_id, error.text)
            return (), None

    def _starts(
        self, group_id: str, looked_up: Starts, missing: Sequence[Missing]
    ) -> Iterator[tuple[TopicIdPartition, int]]:
        """Yield the start offset of each of these share partitions whose start offset is known. It follows from
        share.auto.offset.reset.

        A partition that was added to a topic in use begins at its log start, whatever the setting.
        """
        reset = self._configs.obeyed(group_id).share_auto_offset_reset
        for (topic_id, index), is_new in missing:
            partition_log = self._broker_topics.by_id[topic_id].partitions[index].log
            if partition_log.offline is not None:
                continue
            if is_new or reset == EARLIEST:
                yield (topic_id, index), partition_log.start_offset
            elif reset == LATEST:
                yield (topic_id, index), partition_log.end_offset
            elif (topic_id, index) in looked_up:
                yield (topic_id, index), max(looked_up[topic_id, index], partition_log.start_offset)

    def alter(self, group_id: str, starts: Starts) -> None:
        """Set the start offsets of share partitions in a group without members. If the group does not exist, create it.

        Raises NON_EMPTY_GROUP; POLICY_VIOLATION if there is no memory for more share partitions;
        COORDINATOR_NOT_AVAILABLE.
        """
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self._make_group(group_id)
        with self._event(group):
            group.check_empty()
            self._check_more(group, {topic_id for topic_id, _ in starts})
            group.begin_anew(starts.keys(), self._share_partitions.alter(group_id, starts))

    def _check_more(self, group: ShareGroup, topic_ids: Collection[bytes]) -> None:
        """Raise POLICY_VIOLATION if these topics' share partitions would exceed group.metadata.max.bytes."""
        shapes = self.topics.shapes(topic_ids)
        more = sum(each.partitions for key, each in shapes.items() if key not in group.state_partitions.initialized)
        more_bytes = SHARE_PARTITION_BYTES * more + (0 if group.group_id in self._sizes else GROUP_BYTES)
        if more_bytes and self.size_bytes + more_bytes > self._settings.now.group_metadata_max_bytes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "no room for more share partitions: group.metadata.max.bytes")

    def delete_offsets(self, group_id: str, topic_ids: Collection[bytes]) -> None:
        """Delete the share partitions of these topics from a group without members. Raises KafkaError, such as
        NON_EMPTY_GROUP.
        """
        group = self._find(group_id)
        initialized = group.state_partitions.initialized
        found = [topic_id for topic_id in topic_ids if topic_id in initialized]
        places = [(topic_id, index) for topic_id in found for index in initialized[topic_id].partitions]
        with self._event(group):
            group.check_empty()
            group.forget_topics(topic_ids, self._share_partitions.delete(group_id, places))

    # ---- the end of topics and groups ------------------------------------------------------------------------

    def _topic_goes(self, topic: Topic) -> Along:
        """Return the changes of all groups with share partitions of a deleted topic, for the unit that deletes the
        topic.

        If the log of a group is offline, or the unit (one atomic write) would be too large, the group keeps its entry
        for the topic, and removes it when it next creates share partitions.
        """
        unit_parts: list[Part] = []
        changes: list[tuple[ShareGroup, Change]] = []
        size_bytes = 0
        for group in self.groups.values():
            left = without(group.state_partitions, (topic.id,))
            if left == group.state_partitions or size_bytes > MAX_FORGOTTEN_BYTES:
                continue
            change = Change(Kind.STATE_PARTITIONS, "", left)
            try:
                parts = self.parts(group.group_id, [change])
            except KafkaError as error:
                log.warning("group %s forgets a deleted topic later: %s", group.group_id, error.text)
                continue
            size_bytes += sum(len(data) for part in parts for data in part.data)
            unit_parts.extend(parts)
            changes.append((group, change))

        def apply() -> None:
            """Apply the changes, which are written now, to the groups in memory."""
            for group, change in changes:
                group.apply(change)
                self._count_and_set_alarm(group)

        return unit_parts, apply

    def delete(self, group_id: str) -> None:
        """Delete a group without members and its share partitions, in one atomic write. Raises KafkaError."""
        tombstones = self.tombstones(group_id)
        share_unit = self._share_partitions.delete(group_id)
        self._topic.commit([*tombstones, *share_unit.parts])
        share_unit.apply()
        self.forget(group_id)

    # ---- the log ---------------------------------------------------------------------------------------------

    def _keep(self, group: ShareGroup, changes: Sequence[Change], share_units: Sequence[ShareUnit]) -> None:
        """Write changes of a group and of its share partitions together. Raises KafkaError, and then nothing was
        written.
        """
        self._topic.ensure()
        parts = self.parts(group.group_id, changes)
        self._turns.spend(UNITS_OF_A_CHANGE * len(changes))
        self._topic.commit([*parts, *(part for each in share_units for part in each.parts)])
        for each in share_units:
            each.apply()

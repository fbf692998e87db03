"""The groups of all types: classic groups, consumer groups (KIP-848) and share groups. It passes each request to the
type that the group is of.

The rule: a group id belongs to one type at a time. A classic group can become a consumer group and vice versa, and
keeps its offsets then: a group without members when the first member of the other protocol joins, a group with members
if `group.consumer.migration.policy` allows it (consumer/migration.py). A share group stays one until it is deleted, and
has no committed offsets. Source: Kafka's GroupMetadataManager.
"""

import logging
from collections.abc import Callable, Collection, Iterator

from ...protocol.errors import ErrorCode, KafkaError
from ..bugs import contain_bugs
from ..security.principals import Session
from ..shared import Shared
from .consumer.classic_members import Caller, MixedGroup
from .consumer.coordinator import ConsumerGroups
from .consumer.heartbeats import JOINS, Answer, Heartbeat
from .consumer.machine import ConsumerGroup
from .consumer.migration import HandOver, upgraded
from .consumer.records import KINDS, Change, Kind
from .consumer.states import GroupState
from .coordinator import GroupCoordinator
from .members import NO_MEMBER, Joined, Joining, JoinReply, Leaving, Synced, Syncing, SyncReply
from .offset_log import GroupOffsets
from .share import records as share_records
from .share.coordinator import NOT_LOOKED_UP, ShareGroups, Starts
from .share.heartbeats import Answer as ShareAnswer
from .share.heartbeats import Heartbeat as ShareHeartbeat
from .share.machine import ShareGroup
from .states import State
from .subscriptions import CONSUMER

log = logging.getLogger("fencepost.broker")

SWEPT_AT_ONCE = 500  # groups that _forget_unused() goes through before it pauses
SWEEP_PAUSE_S = 0.002


class GroupKinds:
    """All groups of one broker: classic, consumer and share groups."""

    def __init__(
        self,
        shared: Shared,
        offsets: GroupOffsets,
        classic: GroupCoordinator,
        consumer: ConsumerGroups,
        share: ShareGroups,
    ) -> None:
        self._offsets = offsets
        self._classic = classic
        self._consumer = consumer
        self._share = share
        self._settings = shared.settings
        self._metrics = shared.metrics
        self._tasks = shared.tasks
        consumer.take_back = self._take_back

    # ---- records ---------------------------------------------------------------------------------------------

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Load a record of a group from the log, at start: any record of __consumer_offsets except a committed offset.
        Raises ValueError.
        """
        kind = int.from_bytes(key[:2], "big")
        if kind in KINDS:
            self._consumer.apply(key, value)
        elif kind in share_records.KINDS:
            self._share.apply(key, value)
        else:
            self._classic.apply(key, value)

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the (key, value) of all records from which apply() restores the present groups."""
        yield from self._classic.records()
        yield from self._consumer.records()
        yield from self._share.records()

    # ---- members ---------------------------------------------------------------------------------------------

    def join(self, group_id: str, asked: Joining, reply: JoinReply) -> None:
        """Handle a JoinGroup, for a group of any kind. `reply` is called once with the answer, now or later. An empty
        consumer group is deleted first: it becomes a classic one.
        """
        found = self._consumer.groups.get(group_id)
        if group_id in self._share.groups:
            reply(Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, NO_MEMBER))
            return
        if found is not None:
            try:
                if found.subscriptions:
                    reply(self._join_consumer(found, asked))
                    return
                self._delete_consumer(group_id)
            except KafkaError as error:
                reply(Joined(error.code, NO_MEMBER))
                return
        self._classic.join(group_id, asked, reply)

    def _join_consumer(self, group: MixedGroup, asked: Joining) -> Joined:
        """Handle the JoinGroup of a classic member for a consumer group, and return the answer. Raises KafkaError."""
        error = self._classic.wrong_join(group.group_id, asked)
        if error is not None:
            raise KafkaError(error)
        return self._consumer.join(group, asked)

    def sync(self, group_id: str, asked: Syncing, reply: SyncReply) -> None:
        """Handle a SyncGroup. `reply` is called once with the answer, now or later."""
        found = self._consumer.groups.get(group_id)
        if found is None:
            self._classic.sync(group_id, asked, reply)
            return
        try:
            reply(self._consumer.sync(found, asked))
        except KafkaError as error:
            reply(Synced(error.code))

    def classic_heartbeat(self, group_id: str, caller: Caller, user: Session) -> ErrorCode:
        """Handle a Heartbeat of the classic protocol, and return the error code for the answer."""
        found = self._consumer.groups.get(group_id)
        if found is None:
            return self._classic.heartbeat(group_id, *caller)
        try:
            self._consumer.classic_heartbeat(found, caller, user)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def classic_leave(self, group_id: str, leaving: Collection[Leaving]) -> list[ErrorCode]:
        """Handle a LeaveGroup. Returns an error code for each member. Raises KafkaError."""
        found = self._consumer.groups.get(group_id)
        return self._classic.leave(group_id, leaving) if found is None else self._consumer.classic_leave(found, leaving)

    def heartbeat(self, group_id: str, beat: Heartbeat) -> Answer:
        """Handle a ConsumerGroupHeartbeat, by which a member also joins. If the group is a classic one, it is
        converted. Raises KafkaError.
        """
        self._offsets.check_online(group_id)
        self._check_no_share_group(group_id)
        if group_id in self._consumer.groups:
            return self._consumer.heartbeat(group_id, beat)
        first = self._conversion(group_id, beat.epoch)
        answer = self._consumer.heartbeat(group_id, beat, first)
        if self._classic.group(group_id) is not None:
            self._classic.end(group_id)
        return answer

    def leave(self, group_id: str, beat: Heartbeat) -> Answer:
        """Handle the last ConsumerGroupHeartbeat of a member that leaves. Raises KafkaError."""
        self._offsets.check_online(group_id)
        if group_id not in self._consumer.groups and self.exists(group_id):
            raise _of_another_kind(group_id, "consumer")
        return self._consumer.leave(group_id, beat)

    def share_heartbeat(self, group_id: str, beat: ShareHeartbeat, looked_up: Starts = NOT_LOOKED_UP) -> ShareAnswer:
        """Handle a ShareGroupHeartbeat. Raises KafkaError. looked_up: start offsets found by time; see
        ShareGroups.heartbeat.
        """
        self._check_share(group_id)
        return self._share.heartbeat(group_id, beat, looked_up)

    def share_leave(self, group_id: str, beat: ShareHeartbeat) -> ShareAnswer:
        """Handle the last ShareGroupHeartbeat of a member that leaves. Raises KafkaError."""
        self._check_share(group_id)
        return self._share.leave(group_id, beat)

    def _check_share(self, group_id: str) -> None:
        """Raise GROUP_ID_NOT_FOUND if the group is of another kind, and COORDINATOR_NOT_AVAILABLE if its log is
        offline.
        """
        self._offsets.check_online(group_id)
        if group_id not in self._share.groups and self.exists(group_id):
            raise _of_another_kind(group_id, "share")

    def _conversion(self, group_id: str, epoch: int) -> list[Change]:
        """Return the changes that convert a classic group, at the heartbeat of its first member that uses the newer
        protocol.

        Returns [] if there is no group of this id. epoch: of the heartbeat. Raises GROUP_ID_NOT_FOUND if the group
        cannot be converted, or the heartbeat does not join.
        """
        classic = self._classic.group(group_id)
        if epoch != JOINS:
            if self.exists(group_id):
                raise _of_another_kind(group_id, "consumer")
        elif classic is not None:
            if not classic.members:
                return [Change(Kind.CLASSIC_GROUP, "", None)]
            max_size = self._settings.now.group_consumer_max_size
            return upgraded(classic, self._consumer.topics, self._consumer.policy, max_size)
        return []

    def _take_back(self, handed: HandOver) -> str | None:
        """Convert a consumer group whose members are all classic to a classic group, and log that. Raises KafkaError.

        Returns the protocol of the classic group; None if its record would be too large, and then nothing has changed.
        """
        group, (key, value) = self._classic.formed(handed)
        if not self._classic.fits_a_record(value):
            log.warning("group %s stays a consumer group: it is larger than a record may be", handed.group_id)
            return None
        topic = self._offsets.topic
        topic.ensure()
        topic.commit(self._consumer.parts(handed.group_id, handed.tombstones, [(key, value)]))
        self._consumer.forget(handed.group_id)
        self._classic.begin(group, value, rebalance=handed.rebalance)
        return group.protocol

    # ---- questions -------------------------------------------------------------------------------------------

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Return the consumer group (KIP-848); None if there is none of this id."""
        return self._consumer.groups.get(group_id)

    def share_group(self, group_id: str) -> ShareGroup:
        """Return the share group. Raises GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE."""
        self._offsets.check_online(group_id)
        found = self._share.groups.get(group_id)
        if found is None:
            raise self._not_found(group_id, "share")
        return found

    def describe(self, group_id: str) -> ConsumerGroup:
        """Return the consumer group. Raises GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE."""
        self._offsets.check_online(group_id)
        found = self._consumer.groups.get(group_id)
        if found is None:
            raise self._not_found(group_id, "consumer")
        return found

    def _not_found(self, group_id: str, kind: str) -> KafkaError:
        """Return the error for a request to a group that is not of this kind."""
        if not group_id:
            return KafkaError(ErrorCode.INVALID_GROUP_ID)
        if self.exists(group_id):
            return _of_another_kind(group_id, kind)
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")

    def exists(self, group_id: str) -> bool:
        """Return whether there is a group of any type with this id, even if it only has offsets."""
        has_members = group_id in self._consumer.groups or self._classic.group(group_id) is not None
        return has_members or group_id in self._share.groups or self._offsets.knows(group_id)

    def ids(self) -> list[str]:
        """Return the ids of all groups of every type. Some may only have expired offsets that are not removed yet."""
        return list(dict.fromkeys([*self._classic.ids(), *self._consumer.groups, *self._share.groups]))

    def check_commit(
        self,
        group_id: str,
        epoch: int,
        member_id: str,
        instance_id: str | None,
        partitions: Collection[tuple[bytes, int]],
        *,
        version: int | None,
    ) -> None:
        """Check that a member may commit offsets of these partitions. Raises KafkaError.

        version: of OffsetCommit; None for TxnOffsetCommit. epoch: the member's epoch, or the generation in a classic
        group.
        """
        found = self._consumer.groups.get(group_id)
        self._check_no_share_group(group_id)
        if found is not None:
            found.check_commit(member_id, instance_id, epoch, partitions, version=version)
        else:
            self._classic.check_commit(group_id, epoch, member_id, instance_id, transactional=version is None)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Check that a member of a consumer group may fetch offsets with this epoch; a classic group does not check.

        Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
        """
        found = self._consumer.groups.get(group_id)
        if found is not None:
            found.check_fetch(member_id, epoch)

    def _check_no_share_group(self, group_id: str) -> None:
        """Raise GROUP_ID_NOT_FOUND if the group is a share group, because that has no offsets, and no members that use
        other protocols.
        """
        if group_id in self._share.groups:
            raise _of_another_kind(group_id, "consumer")

    # ---- offsets that may be deleted -------------------------------------------------------------------------

    def unused(self, group_id: str) -> tuple[Callable[[str], bool] | None, int | None]:
        """Return which topics' offsets may expire, and since when the group has no members.

        The first is a function that tells by topic name whether the topic's offsets may expire; None if none may. The
        second is in ms on the data directory's clock; None if the time of each offset's commit counts instead.
        """
        consumer, classic = self._consumer.groups.get(group_id), self._classic.group(group_id)
        if consumer is not None:
            empty_since_ms = None if consumer.subscriptions else consumer.epoch.empty_since_ms
            return lambda topic: not consumer.subscribes_to(topic), empty_since_ms
        if classic is None or classic.protocol_type is None:
            return _any_topic, None
        if classic.state is State.EMPTY:
            return _any_topic, classic.empty_since_ms
        topics = classic.subscribed_topics if classic.state is State.STABLE else None
        return (None if topics is None else lambda topic: topic not in topics), None

    def topics_in_use(self, group_id: str) -> Callable[[str], bool]:
        """Return a function that tells by topic name whether members subscribe to the topic, so that its offsets must
        not be deleted.

        Raises KafkaError if no offset of the group may be deleted, or the group does not exist.
        """
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        self._check_no_share_group(group_id)
        consumer, classic = self._consumer.groups.get(group_id), self._classic.group(group_id)
        if consumer is not None:
            return consumer.subscribes_to
        if classic is None or classic.state is State.DEAD:
            if not self._offsets.knows(group_id):
                self._offsets.check_online(group_id)
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            return lambda topic: False
        if classic.state is State.EMPTY:
            return lambda topic: False
        if classic.protocol_type != CONSUMER:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        topics = classic.subscribed_topics
        return lambda topic: topics is None or topic in topics

    def offsets_expired(self, group_id: str) -> None:
        """Delete the group if it has no members. To be called when its last offset was deleted. Raises KafkaError."""
        found = self._consumer.groups.get(group_id)
        if found is None:
            self._classic.offsets_expired(group_id)
        elif found.state is GroupState.EMPTY:
            self.delete(group_id)

    # ---- the end of a group ----------------------------------------------------------------------------------

    def delete(self, group_id: str) -> None:
        """Delete a group with its offsets or share partitions, in one atomic write. Raises KafkaError, such as
        NON_EMPTY_GROUP.
        """
        if group_id in self._share.groups:
            self._offsets.check_online(group_id)
            self._share.delete(group_id)
            return
        if group_id not in self._consumer.groups:
            self._classic.delete(group_id)
            return
        offsets = self._offsets
        offsets.check_online(group_id)
        tombstones = self._consumer.tombstones(group_id)
        parts = offsets.delete_group(group_id)
        offsets.topic.commit([*parts, *tombstones])
        offsets.group_deleted(group_id)
        self._consumer.forget(group_id)

    def _delete_consumer(self, group_id: str) -> None:
        """Delete a consumer group without members, but not its offsets. Raises KafkaError."""
        tombstones = self._consumer.tombstones(group_id)
        if tombstones:
            self._offsets.topic.commit(tombstones)
        self._consumer.forget(group_id)

    async def forget_from_time_to_time(self) -> None:
        """Delete groups that have neither members nor offsets, every offsets.retention.check.interval.ms, until the
        broker stops.
        """
        while not await self._tasks.pause(self._settings.now.offsets_retention_check_interval_ms / 1000):
            await self._forget_unused(self._classic.groups)
            await self._forget_unused(self._consumer.groups)

    async def _forget_unused(self, groups: Collection[str]) -> None:
        """Delete those of these groups that have neither members nor offsets, with pauses. After a KafkaError the rest
        is left to the next call.
        """
        for number, group_id in enumerate(list(groups), 1):
            if number % SWEPT_AT_ONCE == 0 and await self._tasks.pause(SWEEP_PAUSE_S):
                return
            try:
                with contain_bugs(self._metrics, f"group {group_id!r}", besides=KafkaError):
                    if not self._offsets.knows(group_id):
                        self.offsets_expired(group_id)
            except KafkaError as error:
                log.warning("groups that nobody is in stay for now: %s", error.text)
                return


def _of_another_kind(group_id: str, kind: str) -> KafkaError:
    """Return the error for a request to a group of another kind than `kind`."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind} group.")


def _any_topic(topic: str) -> bool:
    """Return True, because the offsets of every topic may expire."""
    return True

"""Groups of both kinds, classic and of the newer protocol (KIP-848): whatever concerns a group without asking which.

The rule: a group id is of one kind at a time. A group that nobody is in becomes one of the other kind when the first
member of that joins, and its offsets stay. Source: Kafka's GroupMetadataManager.
"""

import logging
from collections.abc import Callable, Collection, Iterator

from ...protocol.errors import ErrorCode, KafkaError
from ..bugs import contain_bugs
from ..shared import Shared
from .consumer.coordinator import ConsumerGroups
from .consumer.heartbeats import JOINS, Answer, Heartbeat
from .consumer.machine import ConsumerGroup
from .consumer.records import KINDS
from .consumer.states import GroupState
from .coordinator import GroupCoordinator
from .members import Joined, Joining, JoinReply
from .offset_log import GroupOffsets
from .states import State
from .subscriptions import CONSUMER

log = logging.getLogger("fencepost.broker")

SWEPT_AT_ONCE = 500  # empty groups looked at in one turn of the loop
SWEEP_PAUSE_S = 0.002


class GroupKinds:
    """All groups of one broker."""

    def __init__(
        self, shared: Shared, offsets: GroupOffsets, classic: GroupCoordinator, consumer: ConsumerGroups
    ) -> None:
        self._offsets = offsets
        self._classic = classic
        self._consumer = consumer
        self._settings = shared.settings
        self._metrics = shared.metrics
        self._tasks = shared.tasks

    # ---- records ---------------------------------------------------------------------------------------------

    def apply(self, key: bytes, value: bytes | None) -> None:
        """A record that is no offset's, at start. Raises ValueError."""
        if int.from_bytes(key[:2], "big") in KINDS:
            self._consumer.apply(key, value)
        else:
            self._classic.apply(key, value)

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """What apply() would need to know what is in the log now."""
        yield from self._classic.records()
        yield from self._consumer.records()

    # ---- members ---------------------------------------------------------------------------------------------

    def join(self, group_id: str, asked: Joining, reply: JoinReply) -> None:
        """A member of the classic protocol joins. `reply` is called once, now or later."""
        found = self._consumer.groups.get(group_id)
        if found is not None:
            if found.state is not GroupState.EMPTY:
                reply(Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, asked.member_id))
                return
            try:
                self._delete_consumer(group_id)
            except KafkaError as error:
                reply(Joined(error.code, asked.member_id))
                return
        self._classic.join(group_id, asked, reply)

    def heartbeat(self, group_id: str, beat: Heartbeat, sees: Callable[[str], bool]) -> Answer:
        """A member of the newer protocol is there, or joins. Raises KafkaError."""
        self._offsets.check_online(group_id)
        if group_id not in self._consumer.groups:
            self._make_way(group_id, beat.epoch)
        return self._consumer.heartbeat(group_id, beat, sees)

    def leave(self, group_id: str, beat: Heartbeat) -> Answer:
        """A member of the newer protocol goes. Raises KafkaError."""
        self._offsets.check_online(group_id)
        if group_id not in self._consumer.groups and self.exists(group_id):
            raise _no_consumer_group(group_id)
        return self._consumer.leave(group_id, beat)

    def _make_way(self, group_id: str, epoch: int) -> None:
        """A classic group in which nobody is makes way for the first member of the newer protocol."""
        classic = self._classic.group(group_id)
        if epoch != JOINS:
            if self.exists(group_id):
                raise _no_consumer_group(group_id)
        elif classic is not None:
            if classic.state is not State.EMPTY or classic.pending:
                text = f"Cannot upgrade classic group {group_id} to consumer group because online upgrade is disabled."
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
            self._classic.give_up(group_id)

    # ---- questions -------------------------------------------------------------------------------------------

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        return self._consumer.groups.get(group_id)

    def described(self, group_id: str) -> ConsumerGroup:
        """A consumer group. Raises GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        self._offsets.check_online(group_id)
        found = self._consumer.groups.get(group_id)
        if found is None:
            if self.exists(group_id):
                raise _no_consumer_group(group_id)
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return found

    def exists(self, group_id: str) -> bool:
        """Whether there is such a group, if only with offsets."""
        is_here = group_id in self._consumer.groups or self._classic.group(group_id) is not None
        return is_here or self._offsets.knows(group_id)

    def ids(self) -> list[str]:
        """Of every group, and perhaps of some whose offsets count no more."""
        return list(dict.fromkeys([*self._classic.ids(), *self._consumer.groups]))

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
        """Whether offsets of these partitions may be committed so. version: of OffsetCommit; None in a transaction.

        Raises KafkaError.
        """
        found = self._consumer.groups.get(group_id)
        if found is not None:
            found.check_commit(member_id, instance_id, epoch, partitions, version=version)
        else:
            self._classic.check_commit(group_id, epoch, member_id, instance_id, transactional=version is None)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Whether offsets may be asked for so. Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        found = self._consumer.groups.get(group_id)
        if found is not None:
            found.check_fetch(member_id, epoch)

    # ---- offsets nobody uses ---------------------------------------------------------------------------------

    def unused(self, group_id: str) -> tuple[Callable[[str], bool] | None, int | None]:
        """Which topics' offsets a group does not use, None for no topic's; and since when by the store's age (KIP-211).

        No age: the age of each offset counts.
        """
        consumer, classic = self._consumer.groups.get(group_id), self._classic.group(group_id)
        if consumer is not None:
            return lambda topic: not consumer.subscribes_to(topic), None
        if classic is None or classic.protocol_type is None:
            return _any_topic, None
        if classic.state is State.EMPTY:
            return _any_topic, classic.empty_since_ms
        topics = classic.subscribed_topics if classic.state is State.STABLE else None
        return (None if topics is None else lambda topic: topic not in topics), None

    def topics_in_use(self, group_id: str) -> Callable[[str], bool]:
        """Whether members of the group subscribe to a topic. Raises KafkaError where nothing may be deleted at all."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
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
        """The last offset of a group is gone; so is the group, if nobody is in it. Raises KafkaError."""
        found = self._consumer.groups.get(group_id)
        if found is None:
            self._classic.offsets_expired(group_id)
        elif found.state is GroupState.EMPTY:
            self.delete(group_id)

    # ---- the end of a group ----------------------------------------------------------------------------------

    def delete(self, group_id: str) -> None:
        """Forget a group and its offsets, in one unit. Raises KafkaError."""
        if group_id not in self._consumer.groups:
            self._classic.delete(group_id)
            return
        offsets = self._offsets
        offsets.check_online(group_id)
        tombstones = self._consumer.tombstones(group_id)
        parts = offsets.delete_group(group_id)
        offsets.topic.commit([*parts, *([] if tombstones is None else [tombstones])])
        offsets.group_deleted(group_id)
        self._consumer.forget(group_id)

    def _delete_consumer(self, group_id: str) -> None:
        """Forget a consumer group in which nobody is, and keep its offsets. Raises KafkaError."""
        tombstones = self._consumer.tombstones(group_id)
        if tombstones is not None:
            self._offsets.topic.commit([tombstones])
        self._consumer.forget(group_id)

    async def forget_from_time_to_time(self) -> None:
        """Forget consumer groups that nobody is in and that have no offsets; some at once, and then others."""
        tasks = self._tasks
        while not await tasks.pause(self._settings.now.offsets_retention_check_interval_ms / 1000):
            for number, group_id in enumerate(list(self._consumer.groups), 1):
                if number % SWEPT_AT_ONCE == 0 and await tasks.pause(SWEEP_PAUSE_S):
                    return
                try:
                    with contain_bugs(self._metrics, f"group {group_id!r}", besides=KafkaError):
                        if not self._offsets.knows(group_id):
                            self.offsets_expired(group_id)
                except KafkaError as error:
                    log.warning("groups that nobody is in stay for now: %s", error.text)
                    break


def _no_consumer_group(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


def _any_topic(topic: str) -> bool:
    return True

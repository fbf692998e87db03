"""The coordinator of classic consumer groups: it passes requests, time and timeouts to the pure groups, and logs their
changes.

The rules: a group decides, its record is written, and its answers are made in the same step; they leave when the record
is durable. Time limits are monotonic, so a change of the wall clock expires no member. A client that leaves while its
answer is held back stays a member until a timeout, as in Kafka. At a start each group is in the state of its last
record, and its members have a full session timeout to report.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ...storage.store import BrokerHalted
from ..alarms import Alarms
from ..bugs import contain_bugs
from ..shared import Shared
from . import group_records
from .consumer.migration import HandOver
from .group_records import UNKNOWN_AGE, KeptGroup
from .machine import Group, Rules
from .members import NO_MEMBER, Joined, Joining, JoinReply, Leaving, Synced, Syncing, SyncReply, protocols_bytes
from .memory import GroupMemory
from .offset_log import GroupOffsets
from .states import TABLE, Event, State

log = logging.getLogger("fencepost.broker")

MAX_OF_A_NAME = 249  # bytes of a client id or instance id that are in a member id; Kafka's clients have no longer ones
EVICTED_AT_ONCE = 200  # empty groups that one request may delete to make room
FEW_MEMBERS = 50  # writing a group with more members counts as one unit of work for each member
MEMBERS_PER_UNIT = 16  # any other event of such a group counts as one unit of work for this many members
AFTER_FAILURE_MS = 10_000  # until a group is tried again whose timeouts could not be handled
RECORD_OVERHEAD_BYTES = 256  # of a batch with one record


class GroupCoordinator:
    """All classic groups of one broker, and the timer for their timeouts."""

    def __init__(self, shared: Shared, offsets: GroupOffsets, loop: asyncio.AbstractEventLoop) -> None:
        settings = shared.settings.now
        self.groups: dict[str, Group] = {}
        self.memory = GroupMemory()
        self._rules = Rules(settings.group_max_size, settings.group_initial_rebalance_delay_ms)
        self._offsets = offsets
        self._settings = shared.settings
        self._store = shared.store
        self._clock = shared.clock
        self._rng = shared.rng
        self._metrics = shared.metrics
        self._turns = shared.turns
        self._loop = loop
        self._values: dict[str, bytes] = {}  # the latest record in the log, by group
        self._loaded: dict[str, KeptGroup] = {}
        self._alarms = Alarms(shared.clock, loop, self._ring)

    # ---- start and end ---------------------------------------------------------------------------------------

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Note one group record of the log, at start; start() then makes the groups. A value of None deletes the group.
        Raises UnreadableGroup, a ValueError.
        """
        group_id = group_records.read_key(key)
        if value is None:
            self._loaded.pop(group_id, None)
            self._values.pop(group_id, None)
        else:
            self._loaded[group_id] = group_records.read_value(value)
            self._values[group_id] = bytes(value)

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the (key, value) of all records from which apply() and start() restore the present groups. Groups may
        change while this runs.
        """
        for group_id in list(self._values):
            value = self._values.get(group_id)
            if value is not None:
                yield group_records.key(group_id), value

    def start(self) -> None:
        """Make the groups from the loaded records, and start the session timeouts of all members."""
        now_ms = self._clock.monotonic_ms()
        for group_id, kept in self._loaded.items():
            group = self.groups[group_id] = Group.restore(group_id, self._rules, self._log, kept, now_ms)
            group.empty_since_ms = self._empty_since_ms(kept)
            self.memory.count(group, len(self._values[group_id]))
            self._set_alarm(group)
        self._loaded.clear()

    def _empty_since_ms(self, kept: KeptGroup) -> int | None:
        """Return since when the group has no members, in ms on the data directory's clock; None if it has members.

        That clock runs only while the broker does. A record that another broker wrote has only the wall time, from
        which the time on that clock is computed.
        """
        if kept.members:
            return None
        if kept.since_age_ms != UNKNOWN_AGE:
            return kept.since_age_ms
        past_ms = self._clock.now_ms() - kept.since_ms if kept.since_ms >= 0 else 0
        return self._store.age_ms() - max(0, past_ms)

    def stop(self) -> None:
        """Cancel the timer, so that no session or rebalance times out any more."""
        self._alarms.stop()

    # ---- requests of members ---------------------------------------------------------------------------------

    def join(self, group_id: str, asked: Joining, reply: JoinReply) -> None:
        """Handle a JoinGroup. `reply` is called once with the answer, now or later. A group that does not exist is
        created if the member has no id yet, or the group has offsets.
        """
        error = self.wrong_join(group_id, asked) or self._too_much(group_id, asked)
        if error is not None:
            reply(Joined(error, asked.member_id))
            return
        group = self.groups.get(group_id)
        if group is None:
            error = self._unknown(group_id)
            may_begin = asked.member_id == NO_MEMBER or self._offsets.knows(group_id)
            if error is not ErrorCode.UNKNOWN_MEMBER_ID or not may_begin:
                reply(Joined(error, asked.member_id))
                return
            group = self.groups[group_id] = Group(group_id, self._rules, self._log)
        with self._event(group):
            group.join(asked, reply, self._clock.monotonic_ms(), lambda: self._new_id(asked))

    def wrong_join(self, group_id: str, asked: Joining) -> ErrorCode | None:
        """Return the error of a JoinGroup that no group could accept; None if the request is valid."""
        settings = self._settings.now
        shortest_ms, longest_ms = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not shortest_ms <= asked.session_timeout_ms <= longest_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if protocols_bytes(asked.protocols) > settings.message_max_bytes:  # they must fit into a record of the group
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        return None

    def _too_much(self, group_id: str, asked: Joining) -> ErrorCode | None:
        """Return GROUP_MAX_SIZE_REACHED if the join needs more memory than groups may use; else None."""
        growth = self.memory.growth(self.groups.get(group_id), group_id, asked)
        has_room = self._has_room(growth, self._settings.now.group_metadata_max_bytes, group_id)
        return None if has_room else ErrorCode.GROUP_MAX_SIZE_REACHED

    def _has_room(self, growth: int, max_bytes: int, group_id: str) -> bool:
        """Return whether all groups together have room for `growth` more bytes, if they may use max_bytes in all. To
        make room, delete empty groups without offsets, and count those with offsets, which must stay, no longer.

        group_id: the group that grows, which is not deleted.
        """
        memory, offsets = self.memory, self._offsets
        if growth <= 0 or memory.size_bytes + growth <= max_bytes:
            return True
        for empty in list(islice(memory.empty, EVICTED_AT_ONCE)):
            if empty == group_id:
                continue
            if offsets.knows(empty):
                memory.discount(empty)
            else:
                try:
                    self.delete(empty)
                except KafkaError:  # its partition of the log is offline: try it last
                    memory.empty.move_to_end(empty)
            if memory.size_bytes + growth <= max_bytes:
                return True
        log.warning("no room for more members: group.metadata.max.bytes (%d) is reached", max_bytes)
        return False

    def _unknown(self, group_id: str) -> ErrorCode:
        """Return the error code for a request to a group that is not in memory. If the group's log is offline, the code
        says that.
        """
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        try:
            self._offsets.check_online(group_id)
        except KafkaError as error:
            return error.code
        return ErrorCode.UNKNOWN_MEMBER_ID

    def _new_id(self, asked: Joining) -> str:
        """Return a new member id: the instance id or client id, cut to a limited length, and a random UUID."""
        unique = f"-{UUID(bytes=self._rng.bytes(16), version=4)}"
        name = asked.instance_id if asked.instance_id is not None else asked.client_id
        if len(name) > MAX_OF_A_NAME // 4:  # shorter names fit, because a character has at most 4 bytes
            name = name.encode()[:MAX_OF_A_NAME].decode(errors="ignore")
        return name + unique

    def sync(self, group_id: str, asked: Syncing, reply: SyncReply) -> None:
        """Handle a SyncGroup. `reply` is called once with the answer, now or later."""
        group = self.groups.get(group_id)
        if group is None:
            reply(Synced(self._unknown(group_id)))
            return
        with self._event(group):
            group.sync(asked, reply, self._clock.monotonic_ms())

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Handle a Heartbeat. Returns the error code: NONE, or for example REBALANCE_IN_PROGRESS to join again."""
        group = self.groups.get(group_id)
        if group is None:
            return self._unknown(group_id)
        return group.heartbeat(member_id, instance_id, generation, self._clock.monotonic_ms())

    def leave(self, group_id: str, leaving: Iterable[Leaving]) -> list[ErrorCode]:
        """Handle a LeaveGroup. Returns an error code for each member. Raises INVALID_GROUP_ID,
        COORDINATOR_NOT_AVAILABLE.
        """
        group = self.groups.get(group_id)
        if group is None:
            error = self._unknown(group_id)
            if error is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise KafkaError(error)
            return [error for _ in leaving]
        with self._event(group):
            return group.leave(leaving, self._clock.monotonic_ms())

    def check_commit(
        self, group_id: str, generation: int, member_id: str, group_instance_id: str | None, *, transactional: bool
    ) -> None:
        """Check that offsets may be committed, and restart the member's session timeout. Raises KafkaError.

        A generation below 0 means a commit without a member, which is accepted for a group that does not exist.
        transactional: whether the request is a TxnOffsetCommit.
        """
        group = self.groups.get(group_id)
        if group is None:
            if generation >= 0 and not self._offsets.knows(group_id):
                self._offsets.check_online(group_id)
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            group = Group(group_id, self._rules, self._log)
        now_ms = self._clock.monotonic_ms()
        group.check_commit(member_id, group_instance_id, generation, now_ms, transactional=transactional)

    # ---- finding and deleting groups -------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """Return the group; None if none of this id is in memory. Its offsets may exist all the same."""
        return self.groups.get(group_id)

    def ids(self) -> list[str]:
        """Return the ids of all groups, including those that have only offsets. Some may only have expired offsets that
        are not removed yet.
        """
        return list(dict.fromkeys([*self._offsets.state.committed, *self.groups]))

    def delete(self, group_id: str) -> None:
        """Delete a group and its offsets, in one atomic write. Raises KafkaError, such as NON_EMPTY_GROUP."""
        group, offsets = self.groups.get(group_id), self._offsets
        offsets.check_online(group_id)
        if group is None and not offsets.knows(group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if group is not None and isinstance(error := TABLE[Event.DELETE][group.state], ErrorCode):
            raise KafkaError(error)
        parts = offsets.delete_group(group_id)
        if group_id in self._values:
            tombstone = [(group_records.key(group_id), None)]
            now_ms = self._clock.now_ms()
            parts.append(offsets.topic.part(offsets.topic.partition_for(group_id), tombstone, now_ms=now_ms))
        if parts:
            offsets.topic.commit(parts)
            offsets.group_deleted(group_id)
        self._forget(group_id)

    def offsets_expired(self, group_id: str) -> None:
        """Delete the group if it has no members. To be called when its last offset was deleted. Raises KafkaError."""
        group = self.groups.get(group_id)
        if group is not None and group.state is State.EMPTY and not group.pending:
            self.delete(group_id)

    def _forget(self, group_id: str) -> None:
        """Remove the group and its alarm from memory, and stop counting its memory."""
        self._values.pop(group_id, None)
        self._alarms.forget(group_id)
        self.memory.discount(group_id)
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.delete()

    # ---- groups that change their kind -----------------------------------------------------------------------

    def end(self, group_id: str) -> None:
        """Remove a group that has become a consumer group from memory. Its waiting members must join again. The log is
        not changed here.
        """
        self.groups[group_id].end()
        self._forget(group_id)

    def formed(self, handed: HandOver) -> tuple[Group, tuple[bytes, bytes]]:
        """Make a classic group from a former consumer group. Returns the group, and the (key, value) of its record.

        The caller writes the record to the log, and then calls begin().
        """
        group = Group.of(handed.group_id, self._rules, self._log, handed.members, handed.generation)
        kept = self._dated(group.to_keep())._replace(must_rebalance=handed.rebalance)
        return group, (group_records.key(handed.group_id), group_records.value(kept))

    def begin(self, group: Group, value: bytes, *, rebalance: bool) -> None:
        """Start to serve a group that formed() made. value: of its record, which is now in the log.

        rebalance: whether all its members must join again now.
        """
        self.groups[group.group_id] = group
        self._values[group.group_id] = value
        with self._event(group):
            group.begin(self._clock.monotonic_ms(), rebalance=rebalance)

    # ---- the log ---------------------------------------------------------------------------------------------

    def _log(self, group: Group, kept: KeptGroup) -> None:
        """Write the group's new state to the log. Raises KafkaError, and then nothing was written. Called by the
        group.
        """
        topic, kept = self._offsets.topic, self._dated(kept)
        value = group_records.value(kept)
        if not self.fits_a_record(value):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the group is larger than a record may be")
        # The record counts up to twice (see memory.py), and may take up to twice the memory that is allowed for joins.
        growth = 2 * (len(value) - len(self._values.get(group.group_id, b"")))
        if not self._has_room(growth, 2 * self._settings.now.group_metadata_max_bytes, group.group_id):
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if len(kept.members) > FEW_MEMBERS:
            self._turns.spend(len(kept.members))
        topic.ensure()
        record = group_records.key(group.group_id), value
        topic.commit([topic.part(topic.partition_for(group.group_id), [record], now_ms=self._clock.now_ms())])
        self._values[group.group_id] = value
        group.empty_since_ms = None if kept.members else kept.since_age_ms

    def _dated(self, kept: KeptGroup) -> KeptGroup:
        """Return the group's record with the present time, from which the retention of its offsets counts if it is
        empty.
        """
        return kept._replace(since_ms=self._clock.now_ms(), since_age_ms=self._store.age_ms())

    def fits_a_record(self, value: bytes) -> bool:
        """Return whether a group's encoded state fits into message.max.bytes."""
        return len(value) + RECORD_OVERHEAD_BYTES <= self._settings.now.message_max_bytes

    # ---- time ------------------------------------------------------------------------------------------------

    @contextmanager
    def _event(self, group: Group) -> Iterator[None]:
        """Surround a change of a group. Afterwards set its alarm, or remove it from memory if it is empty and was never
        written.
        """
        try:
            yield
        finally:
            if group.state is State.EMPTY and not group.pending and group.group_id not in self._values:
                self._forget(group.group_id)  # no member has ever joined it
            else:
                self.memory.count(group, len(self._values.get(group.group_id, b"")))
                self._set_alarm(group)
                if len(group.members) > FEW_MEMBERS:
                    self._turns.spend(len(group.members) // MEMBERS_PER_UNIT)

    def _set_alarm(self, group: Group) -> None:
        """Set the alarm for the group's next timeout."""
        self._alarms.set(group.group_id, group.wake_ms)

    def _ring(self, group_ids: Iterable[str]) -> None:
        """Handle the timeouts of these groups. Called by the timer when their alarms are due."""
        now_ms = self._clock.monotonic_ms()
        try:
            for group in [self.groups[group_id] for group_id in group_ids]:
                self._expire(group, now_ms)
        except BrokerHalted:
            return  # the broker has failed: no client gets an answer

    def _expire(self, group: Group, now_ms: int) -> None:
        """Let one group handle its timeouts. A bug affects only this group, which is tried again later."""
        if group.wake_ms > now_ms:
            self._set_alarm(group)
            return
        with self._event(group):
            group.wake_ms = now_ms + AFTER_FAILURE_MS  # if expire() fails before it sets wake_ms itself
            with contain_bugs(self._metrics, f"group {group.group_id!r}"):
                group.expire(now_ms)

"""The coordinator of consumer groups (KIP-848): gives the pure groups their requests, the time and timers, and logs
changes.

The rules are those of assigned/coordinator.py. Regular expressions are matched with topics in slices, too.
Source: Kafka's GroupCoordinatorService, TopicRegexResolver.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol
from uuid import UUID

from ....protocol.errors import ErrorCode, KafkaError
from ...net.turns import LOOK_UNITS, Steps
from ...security.access import Access
from ...security.principals import Session
from ...shared import Shared
from ...topics.internal_topic import InternalTopic
from ..assigned.coordinator import AssignedGroups
from ..assigned.topic_view import TEXT_BYTES
from ..configs import ConfigsByGroup
from ..members import Joined, Joining, Leaving, Synced, Syncing, protocols_bytes
from .classic_members import Caller, MixedGroup
from .heartbeats import JOINS, Answer, Heartbeat
from .machine import ConsumerGroup, Rules
from .migration import HandOver, Policy, TakeBack
from .records import Change, GroupEpoch, Resolved, read, record

log = logging.getLogger("fencepost.broker")

NAMES_AT_ONCE = 5_000  # names of matched topics that are written before other requests are served
UNITS_OF_A_CHANGE = 10  # the work of writing one record of a group
UNITS_OF_A_NAME = 6  # the work for each subscribed topic when a group changes


class Pattern(Protocol):
    """A compiled regular expression."""

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches the pattern. Raises ValueError if that takes too long."""
        ...


Compile = Callable[[str], Pattern]
"""Compiles a regular expression. Raises ValueError if it is not valid."""


class ConsumerGroups(AssignedGroups[MixedGroup, Change]):
    """All consumer groups of one broker. take_back: converts a group to a classic one; it must be set before the log is
    loaded.
    """

    take_back: TakeBack

    def __init__(
        self,
        shared: Shared,
        configs: ConfigsByGroup,
        topic: InternalTopic,
        loop: asyncio.AbstractEventLoop,
        compile_pattern: Compile,
        access: Access,
    ) -> None:
        """topic: __consumer_offsets. compile_pattern: compiles a regular expression of a subscription."""
        super().__init__(shared, topic, loop, access)
        self._compile = compile_pattern
        self._configs = configs

    def _make_group(self, group_id: str) -> MixedGroup:
        """Make a group without members and records."""
        return MixedGroup(
            group_id,
            self.topics,
            lambda: self.rules(group_id),
            self._check_regex,
            self._keep,
            self._rights,
            self._hand_over,
        )

    def _read(self, key: bytes, value: bytes | None) -> tuple[str, Change]:
        """Decode a record of the log. Returns the group's id and the change. Raises UnreadableRecord."""
        return read(key, value)

    def _record(self, group_id: str, change: Change) -> tuple[bytes, bytes | None]:
        """Encode a change of a group. Returns the record's key and value; the value is None for a tombstone."""
        return record(group_id, change)

    def _hand_over(self, handed: HandOver) -> str | None:
        """Convert a consumer group to a classic one. Returns its protocol; None if it cannot be one."""
        return self.take_back(handed)

    @property
    def policy(self) -> Policy:
        """The migration policy: whether groups may be converted between the protocols."""
        return Policy(self._settings.now.group_consumer_migration_policy)

    def rules(self, group_id: str) -> Rules:
        """Return the settings in effect for this group, from its own configs and the broker's."""
        settings, own = self._settings.now, self._configs.obeyed(group_id)
        return Rules(
            session_timeout_ms=own.consumer_session_timeout_ms,
            assignment_interval_ms=own.consumer_assignment_interval_ms,
            regex_refresh_ms=settings.group_consumer_regex_refresh_interval_ms,
            max_size=settings.group_consumer_max_size,
            assignors=settings.group_consumer_assignors,
            takes_classic=self.policy is not Policy.DISABLED,
            may_go_back=self.policy.downgrades,
            classic_max_size=settings.group_max_size,
        )

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._configs.obeyed(group_id).consumer_heartbeat_interval_ms

    # ---- members ---------------------------------------------------------------------------------------------

    def heartbeat(self, group_id: str, beat: Heartbeat, first: Sequence[Change] = ()) -> Answer:
        """Handle a ConsumerGroupHeartbeat. With epoch 0 the member joins, and its group is created if needed.

        first: the changes that convert a classic group to this one. Raises KafkaError.
        """
        group = self.groups.get(group_id)
        if group is None:
            if beat.epoch != JOINS:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            group = self.groups[group_id] = self._make_group(group_id)
        now_ms = self._clock.monotonic_ms()
        with self._event(group):
            self._check_room(group, beat)
            answer = group.heartbeat(beat, now_ms, self._clock.now_ms(), first)
        self._work(group, now_ms)
        return answer

    # ---- members of the classic protocol ---------------------------------------------------------------------

    def join(self, group: MixedGroup, asked: Joining) -> Joined:
        """Handle the JoinGroup of a classic member, for a consumer group that has members. Raises KafkaError."""
        now_ms = self._clock.monotonic_ms()
        with self._event(group):
            self._check_bytes(protocols_bytes(asked.protocols))
            new_id = str(UUID(bytes=self._rng.bytes(16), version=4))
            joined = group.join(asked, now_ms, self._clock.now_ms(), new_id)
        self._assign_if_all_classic(group, now_ms)
        return joined

    def sync(self, group: MixedGroup, asked: Syncing) -> Synced:
        """Handle the SyncGroup of a classic member. Raises KafkaError."""
        with self._event(group):
            return group.sync(asked, self._clock.monotonic_ms())

    def classic_heartbeat(self, group: MixedGroup, caller: Caller, user: Session) -> None:
        """Handle a classic member's Heartbeat. Raises KafkaError: REBALANCE_IN_PROGRESS if it has to join again."""
        now_ms = self._clock.monotonic_ms()
        with self._event(group):
            try:
                group.classic_heartbeat(caller, now_ms, self._clock.now_ms(), user)
            finally:
                self._assign_if_all_classic(group, now_ms)

    def classic_leave(self, group: MixedGroup, leaving: Iterable[Leaving]) -> list[ErrorCode]:
        """Handle a LeaveGroup. Returns an error code for each member. Raises KafkaError."""
        with self._event(group):
            return group.classic_leave(leaving)

    def _assign_if_all_classic(self, group: MixedGroup, now_ms: int) -> None:
        """If all members are classic, begin to compute the assignment if it is due. In other groups the heartbeats of
        the newer protocol do this.
        """
        if group.is_all_classic and self.groups.get(group.group_id) is group:
            self._assign_if_due(group, now_ms)

    def _check_room(self, group: MixedGroup, beat: Heartbeat) -> None:
        """Raise GROUP_MAX_SIZE_REACHED if the memory of a new member or subscription, as estimated, would exceed
        group.metadata.max.bytes.
        """
        subscribed_bytes = sum(4 * len(topic) + TEXT_BYTES for topic in beat.topics or ()) + 4 * len(beat.regex or "")
        if beat.epoch == JOINS or subscribed_bytes:
            self._check_bytes(subscribed_bytes)

    def leave(self, group_id: str, beat: Heartbeat) -> Answer:
        """Answer the ConsumerGroupHeartbeat by which a member leaves the group. Raises KafkaError."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        with self._event(group):
            return group.leave(beat)

    # ---- the log ---------------------------------------------------------------------------------------------

    def _keep(self, group: ConsumerGroup, changes: Sequence[Change]) -> None:
        """Write the changes of a group to the log together. If it has no members now, its GroupEpoch gets the present
        age of the data directory. Raises KafkaError, and then nothing was written.
        """
        self._topic.ensure()
        kept = changes if group.subscriptions else [self._dated(change) for change in changes]
        parts = self.parts(group.group_id, kept)
        subscribed = min(len(group.subscribers), len(self.topics.names()))
        written = sum(len(getattr(change.value, "topics", ())) for change in changes)
        self._turns.spend(UNITS_OF_A_NAME * (subscribed + written) + UNITS_OF_A_CHANGE * len(changes))
        self._topic.commit(parts)
        # The group has applied `changes` already; in memory, too, its GroupEpoch gets the age.
        for change in kept if kept is not changes else ():
            if isinstance(change.value, GroupEpoch):
                group.apply(change)

    def _dated(self, change: Change) -> Change:
        """If the change is a GroupEpoch, return it with the present age of the data directory, from which on the group
        has no members and the retention of its offsets counts. Other changes are returned unchanged.
        """
        if not isinstance(change.value, GroupEpoch):
            return change
        return change._replace(value=change.value._replace(empty_since_ms=self._store.age_ms()))

    # ---- work in slices --------------------------------------------------------------------------------------

    def _work(self, group: MixedGroup, now_ms: int) -> None:
        """Begin work that is due, in later turns of the loop: matching regular expressions with topics, and computing a
        large assignment.
        """
        due = group.regexes_due(now_ms)
        if due:
            group.is_resolving = True
            self._begin(group, self._resolve(group, due))
        self._assign_if_due(group, now_ms)

    def _give_up(self, group: MixedGroup) -> None:
        """Note that neither an assignment nor regular expressions are being worked on, because the work has failed. It
        may begin again later.
        """
        super()._give_up(group)
        group.is_resolving = False

    def _check_regex(self, regex: str) -> None:
        """Raise INVALID_REGULAR_EXPRESSION if the regular expression cannot be compiled."""
        try:
            self._compile(regex)
        except ValueError as error:
            text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None

    def _resolve(self, group: MixedGroup, regexes: Sequence[str]) -> Steps[None]:
        """Match each regular expression with the names of all topics, in steps, and tell the group which topics match.

        A topic counts only if a member with the expression may describe it. Yields the cost of each step.
        """
        version, wall_ms = self.topics.version, self._clock.now_ms()
        found: dict[str, Resolved] = {}
        names = 0
        for regex in regexes:
            if names >= NAMES_AT_ONCE:
                self._resolved(group, found, more=True)
                found, names = {}, 0
            matching = []
            try:
                pattern = self._compile(regex)
                for name in list(self.topics.names()):
                    if pattern.matches(name) and group.is_seen(regex, name):
                        matching.append(name)
                    yield LOOK_UNITS  # a pattern may take a long time for a few names
            except ValueError as error:
                log.warning("group %s: the regular expression %r is given up: %s", group.group_id, regex, error)
            found[regex] = Resolved(tuple(sorted(matching)), version, wall_ms)
            names += len(matching)
            yield 1
        self._resolved(group, found, more=False)

    def _resolved(self, group: MixedGroup, found: dict[str, Resolved], *, more: bool) -> None:
        """If the group still exists, tell it which topics its regular expressions match. more: whether other
        expressions follow.
        """
        if self.groups.get(group.group_id) is group:
            with self._event(group):
                group.set_resolved_topics(found, self._clock.monotonic_ms(), more=more)

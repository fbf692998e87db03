"""The coordinator of consumer groups: between heartbeats, the pure groups, the loop's clock, and the log.

The rules: what a group decides is one batch in its partition, written before any member is answered; deadlines
are monotonic; what grows with the size of a group or with the number of topics (an assignment, the topics of a regular
expression) is worked in slices between other requests, and members go on meanwhile with what they have.
Source: Kafka's GroupCoordinatorService, TopicRegexResolver.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence
from contextlib import contextmanager
from typing import Protocol
from uuid import UUID

from ....protocol.errors import ErrorCode, KafkaError
from ....storage.journal.journal import Part
from ....storage.store import BrokerHalted
from ...bugs import contain_bugs
from ...net.turns import LOOK_UNITS, Job, Steps
from ...security.access import Access
from ...security.acls import Operation, ResourceType
from ...security.principals import Session
from ...shared import Shared
from ...topics.internal_topic import InternalTopic
from ...topics.topics import Topics
from ..alarms import Alarms
from ..members import Joined, Joining, Leaving, Synced, Syncing, protocols_bytes
from ..record_fields import TopicId
from .assignors import TopicShape
from .classic_members import Caller, MixedGroup
from .configs import ConfigsByGroup
from .heartbeats import JOINS, Answer, Heartbeat
from .machine import ConsumerGroup, Rules
from .migration import HandOver, Policy, TakeBack
from .records import Change, GroupEpoch, Kind, Resolved, read, record

log = logging.getLogger("fencepost.broker")

AFTER_FAILURE_MS = 10_000  # until a group in which a bug was met is looked at again
BATCH_BYTES = 500_000  # a change of a large group is several batches of one unit
GROUP_BYTES = 2_000
NAMES_AT_ONCE = 5_000  # of topics that regular expressions match: so many are written before others are served
UNITS_OF_A_CHANGE = 10
UNITS_OF_A_NAME = 6  # of a topic that members subscribe to, where something of the group changes


class Pattern(Protocol):
    """A compiled regular expression; matches raises ValueError where it takes too long."""

    def matches(self, text: str) -> bool: ...


Compile = Callable[[str], Pattern]
"""Raises ValueError."""


class _Topics:
    """The topics of the broker, as groups see them."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    @property
    def version(self) -> int:
        return self._topics.version

    def id_of(self, name: str) -> TopicId | None:
        found = self._topics.by_name.get(name)
        return None if found is None else found.id

    def sizes(self, names: Iterable[str]) -> list[tuple[TopicId, int]]:
        by_name = self._topics.by_name
        return [(topic.id, len(topic.partitions)) for name in names if (topic := by_name.get(name)) is not None]

    def shapes(self, topic_ids: Iterable[TopicId]) -> dict[TopicId, TopicShape]:
        by_id = self._topics.by_id
        return {each: TopicShape(len(by_id[each].partitions)) for each in topic_ids if each in by_id}

    def names(self) -> KeysView[str]:
        return self._topics.by_name.keys()

    def name_of(self, topic_id: TopicId) -> str | None:
        found = self._topics.by_id.get(topic_id)
        return None if found is None else found.name


class _Rights:
    """The rules of access, as groups ask them."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @property
    def is_enforced(self) -> bool:
        return self._access.is_enforced

    @property
    def version(self) -> int:
        return self._access.version

    def describes(self, user: Session, topic: str) -> bool:
        return self._access.allows(user, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def reads(self, user: Session, topic: str) -> bool:
        return self._access.allows(user, Operation.READ, ResourceType.TOPIC, topic)


class ConsumerGroups:
    """All consumer groups of one broker. take_back: set before anything is loaded; has a group be a classic one."""

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
        """topic: __consumer_offsets."""
        self.groups: dict[str, MixedGroup] = {}
        self.size_bytes = 0
        self._topic = topic
        self.topics = _Topics(shared.topics)
        self._compile = compile_pattern
        self._rights = _Rights(access)
        self._settings = shared.settings
        self._configs = configs
        self._clock = shared.clock
        self._store = shared.store
        self._metrics = shared.metrics
        self._rng = shared.rng
        self._turns = shared.turns
        self._alarms = Alarms(shared.clock, loop, self._ring)
        self._sizes: dict[str, int] = {}
        self._loaded: dict[str, dict[tuple[Kind, str], Change]] = {}

    # ---- start and end ---------------------------------------------------------------------------------------

    def apply(self, key: bytes, value: bytes | None) -> None:
        """A record, at start. Raises UnreadableRecord, a ValueError."""
        group_id, change = read(key, value)
        kept = self._loaded.setdefault(group_id, {})
        if change.value is None:
            kept.pop(change[:2], None)
        else:
            kept[change[:2]] = change

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """What apply() would need to know what is in the log now; groups may change while one goes through it."""
        for group_id in list(self.groups):
            group = self.groups.get(group_id)
            for change in group.changes() if group is not None else ():
                key, value = record(group_id, change)
                if value is not None:
                    yield key, value

    def start(self) -> None:
        """All records were applied: begin the sessions of all members."""
        now_ms = self._clock.monotonic_ms()
        for group_id, kept in self._loaded.items():
            if kept:
                group = self.groups[group_id] = self._make_group(group_id)
                for change in kept.values():
                    group.apply(change)
                group.begin(now_ms)
                self._see_to(group)
        self._loaded.clear()

    def stop(self) -> None:
        """Stop the timer of all groups."""
        self._alarms.stop()

    def _make_group(self, group_id: str) -> MixedGroup:
        return MixedGroup(
            group_id,
            self.topics,
            lambda: self.rules(group_id),
            self._check_regex,
            self._keep,
            self._rights,
            self._hand_over,
        )

    def _hand_over(self, handed: HandOver) -> str | None:
        return self.take_back(handed)

    @property
    def policy(self) -> Policy:
        return Policy(self._settings.now.group_consumer_migration_policy)

    def rules(self, group_id: str) -> Rules:
        """The rules in effect for this group, from its own settings and the broker's."""
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
        """A member is there; with epoch 0 it joins, and its group comes into being. Raises KafkaError.

        first: what makes this group of a classic one.
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
        """A member of the classic protocol joins a group in which somebody is. Raises KafkaError."""
        now_ms = self._clock.monotonic_ms()
        with self._event(group):
            self._check_bytes(protocols_bytes(asked.protocols))
            new_id = str(UUID(bytes=self._rng.bytes(16), version=4))
            joined = group.join(asked, now_ms, self._clock.now_ms(), new_id)
        self._work_alone(group, now_ms)
        return joined

    def sync(self, group: MixedGroup, asked: Syncing) -> Synced:
        """One asks for its assignment. Raises KafkaError."""
        with self._event(group):
            return group.sync(asked, self._clock.monotonic_ms())

    def classic_heartbeat(self, group: MixedGroup, caller: Caller, user: Session) -> None:
        """A Heartbeat of one. Raises KafkaError."""
        now_ms = self._clock.monotonic_ms()
        with self._event(group):
            try:
                group.classic_heartbeat(caller, now_ms, self._clock.now_ms(), user)
            finally:
                self._work_alone(group, now_ms)

    def classic_leave(self, group: MixedGroup, leaving: Iterable[Leaving]) -> list[ErrorCode]:
        """A LeaveGroup: an error for each. Raises KafkaError."""
        with self._event(group):
            return group.classic_leave(leaving)

    def _work_alone(self, group: MixedGroup, now_ms: int) -> None:
        """Begin what is too long for one request, where no heartbeats of the newer protocol will."""
        if group.is_all_classic and self.groups.get(group.group_id) is group:
            self._assign_if_due(group, now_ms)

    def _check_room(self, group: ConsumerGroup, beat: Heartbeat) -> None:
        """Nobody new joins where all groups have the memory that they may have."""
        subscribed_bytes = sum(4 * len(topic) + 60 for topic in beat.topics or ()) + 4 * len(beat.regex or "")
        if beat.epoch == JOINS or subscribed_bytes:
            self._check_bytes(subscribed_bytes)

    def _check_bytes(self, more_bytes: int) -> None:
        """Raises GROUP_MAX_SIZE_REACHED where all groups have the memory that they may have."""
        most = self._settings.now.group_metadata_max_bytes
        if self.size_bytes + more_bytes + GROUP_BYTES > most:
            log.warning("no room for more members: group.metadata.max.bytes (%d) is reached", most)
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def leave(self, group_id: str, beat: Heartbeat) -> Answer:
        """Answer the heartbeat of a member that leaves the group. Raises KafkaError."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        with self._event(group):
            return group.leave(beat)

    def dismiss(self) -> int:
        """Remove the members of all groups. Returns how many there were. Raises KafkaError while there is no room."""
        dismissed = 0
        for group in list(self.groups.values()):
            members = list(group.subscriptions)
            if members:
                with self._event(group):
                    group.remove(members)
                dismissed += len(members)
        return dismissed

    @contextmanager
    def _event(self, group: ConsumerGroup) -> Iterator[None]:
        """Something happens to a group: afterwards see to its alarm, and to whether it is worth keeping."""
        try:
            yield
        finally:
            if self.groups.get(group.group_id) is not group:
                pass  # it is a classic group now
            elif next(group.changes(), None) is None:
                self.forget(group.group_id)  # it never came to anything
            else:
                self._see_to(group)

    def _see_to(self, group: ConsumerGroup) -> None:
        size_bytes = GROUP_BYTES + group.size_bytes
        self.size_bytes += size_bytes - self._sizes.get(group.group_id, 0)
        self._sizes[group.group_id] = size_bytes
        self._alarms.set(group.group_id, group.wake_ms)

    # ---- the end of a group ----------------------------------------------------------------------------------

    def tombstones(self, group_id: str) -> Part | None:
        """The part of a unit that deletes a group; once it is committed, call forget.

        Raises NON_EMPTY_GROUP, COORDINATOR_NOT_AVAILABLE.
        """
        group = self.groups.get(group_id)
        if group is None:
            return None
        return self.parts(group_id, group.tombstones())[0]

    def forget(self, group_id: str) -> None:
        """Remove a group from memory, with its alarms."""
        self.groups.pop(group_id, None)
        self.size_bytes -= self._sizes.pop(group_id, 0)
        self._alarms.forget(group_id)

    # ---- the log ---------------------------------------------------------------------------------------------

    def _keep(self, group: ConsumerGroup, changes: Sequence[Change]) -> None:
        """Write the changes as one unit. Raises KafkaError, and then nothing was written."""
        self._topic.ensure()
        kept = changes if group.subscriptions else [self._dated(change) for change in changes]
        parts = self.parts(group.group_id, kept)
        looked_at = min(len(group.subscribers), len(self.topics.names()))
        written = sum(len(getattr(change.value, "topics", ())) for change in changes)
        self._turns.spend(UNITS_OF_A_NAME * (looked_at + written) + UNITS_OF_A_CHANGE * len(changes))
        self._topic.commit(parts)
        for change in kept if kept is not changes else ():
            if isinstance(change.value, GroupEpoch):
                group.apply(change)

    def _dated(self, change: Change) -> Change:
        """The epoch of a group that nobody is in any more gets the time from which its offsets are kept."""
        if not isinstance(change.value, GroupEpoch):
            return change
        return change._replace(value=change.value._replace(empty_since_ms=self._store.age_ms()))

    def parts(self, group_id: str, changes: Iterable[Change], also: Iterable[tuple[bytes, bytes]] = ()) -> list[Part]:
        """The parts of a unit with these changes, and with other records behind them. Raises KafkaError."""
        topic, now_ms = self._topic, self._clock.now_ms()
        partition = topic.partition_for(group_id)
        parts: list[Part] = []
        contents: list[tuple[bytes, bytes | None]] = []
        size_bytes = 0
        for key, value in (*(record(group_id, change) for change in changes), *also):
            contents.append((key, value))
            size_bytes += len(key) + len(value or b"")
            if size_bytes >= BATCH_BYTES:
                parts.append(topic.part(partition, contents, now_ms=now_ms))
                contents, size_bytes = [], 0
        if contents:
            parts.append(topic.part(partition, contents, now_ms=now_ms))
        return parts

    # ---- work in slices --------------------------------------------------------------------------------------

    def _work(self, group: ConsumerGroup, now_ms: int) -> None:
        """Begin what one heartbeat is too short for."""
        due = group.regexes_due(now_ms)
        if due:
            group.is_resolving = True
            self._begin(group, self._resolve(group, due))
        self._assign_if_due(group, now_ms)

    def _assign_if_due(self, group: ConsumerGroup, now_ms: int) -> None:
        if group.is_assignment_due(now_ms) or group.is_assignment_doubtful(now_ms):
            group.is_assigning = True  # from now on: others ask before its turn comes
            self._begin(group, self._assign(group))

    def _begin(self, group: ConsumerGroup, steps: Steps[None]) -> None:
        job = Job(steps)

        def finish() -> None:
            if isinstance(job.result, Exception):
                group.is_assigning = group.is_resolving = False
                with contain_bugs(self._metrics, f"group {group.group_id!r}", besides=KafkaError):
                    raise job.result

        def finish_or_tell() -> None:
            try:
                finish()
            except KafkaError as error:
                log.warning("group %s is assigned anew later: %s", group.group_id, error.text)

        job.finish = finish_or_tell
        self._turns.enqueue(job, long=True)

    def _assign(self, group: ConsumerGroup) -> Steps[None]:
        epoch, steps = group.begin_assignment()
        yield len(group.subscriptions)
        assigned = yield from steps
        if self.groups.get(group.group_id) is group:
            with self._event(group):
                group.end_assignment(epoch, assigned, self._clock.monotonic_ms(), self._clock.now_ms())

    def _check_regex(self, regex: str) -> None:
        try:
            self._compile(regex)
        except ValueError as error:
            text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None

    def _resolve(self, group: ConsumerGroup, regexes: Sequence[str]) -> Steps[None]:
        """Look through all topics; those that no member with the expression may know of match nothing."""
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
                    yield LOOK_UNITS  # few names may take a pattern a long time
            except ValueError as error:
                log.warning("group %s: the regular expression %r is given up: %s", group.group_id, regex, error)
            found[regex] = Resolved(tuple(sorted(matching)), version, wall_ms)
            names += len(matching)
            yield 1
        self._resolved(group, found, more=False)

    def _resolved(self, group: ConsumerGroup, found: dict[str, Resolved], *, more: bool) -> None:
        if self.groups.get(group.group_id) is group:
            with self._event(group):
                group.set_resolved_topics(found, self._clock.monotonic_ms(), more=more)

    # ---- time ------------------------------------------------------------------------------------------------

    def _ring(self, group_id: str) -> None:
        """Have a group do what is due. A bug is this group's alone: it is looked at again after a while."""
        group, now_ms = self.groups[group_id], self._clock.monotonic_ms()
        if group.wake_ms > now_ms:
            self._see_to(group)
            return
        try:
            with self._event(group):
                group.wake_ms = now_ms + AFTER_FAILURE_MS  # expire() sets it anew, if it comes to that
                with contain_bugs(self._metrics, f"group {group_id!r}", besides=KafkaError):
                    group.expire(now_ms)
        except BrokerHalted:
            return
        except KafkaError as error:
            log.warning("members of group %s stay for now: %s", group_id, error.text)

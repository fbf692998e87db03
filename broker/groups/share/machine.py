"""One share group: what heartbeats and timeouts do to its members, and which share partitions it creates. Pure.

The rules: what is decided is a list of changes, which is passed to `log` before any answer contains it, and undone if
it cannot be written. Every change of members, subscriptions, topics or share partitions begins a new group epoch. A
partition that a member subscribes to is initialized at once, in the unit of the heartbeat that reports the
subscription, so that a member that joins gets its assignment in the first answer. For this reason a small group is
assigned at every join, where Kafka lets the member wait for its next heartbeat. Errors, their order and their texts are
Kafka's.

Sources: KIP-932; Kafka's GroupMetadataManager, ShareGroup, ShareGroupAssignmentBuilder.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from ...deadlines import NEVER
from ...share.values import ShareUnit
from ...topics.names import TopicIdPartition
from ..assigned.assignment import Assigned, AssignmentSteps, Subscriber
from ..assigned.group import AssigningGroup
from ..assigned.rights import MembersRights, Rights
from ..assigned.topic_view import TopicView, metadata_hash
from ..targets import NOTHING, Partitions, Target, TargetEpoch, TopicId
from .assignor import simple_steps
from .heartbeats import JOINS, Answer, Heartbeat
from .records import Change, Current, GroupEpoch, Kind, Member, SharedTopic, StatePartitions, Value
from .roster import Roster, with_initialized, without

ASSIGNED_AT_ONCE = 4_000  # members and partitions of a group that is assigned within one heartbeat
INITIALIZED_AT_ONCE = 1_000  # share partitions: the others follow with the next heartbeats


class Rules(NamedTuple):
    """The settings in effect for a group."""

    session_timeout_ms: int = 45_000
    assignment_interval_ms: int = 1_000
    max_size: int = 200


class Missing(NamedTuple):
    """A subscribed partition without a share partition. is_new: whether it was added to a topic that already has share
    partitions.
    """

    place: TopicIdPartition
    is_new: bool


Log = Callable[["ShareGroup", Sequence[Change], Sequence[ShareUnit]], None]
Begin = Callable[[Sequence[Missing]], tuple[Collection[TopicIdPartition], ShareUnit | None]]
"""Returns which of the missing share partitions can be created now, and the change that creates them (or None)."""


class ShareGroup(Roster, AssigningGroup[Change]):
    """One share group. log: writes changes, or raises KafkaError. rules: returns the settings in effect now.

    wake_ms: the monotonic time at which expire() is to be called; it may find nothing to do then.
    """

    def __init__(
        self,
        group_id: str,
        topics: TopicView,
        rules: Callable[[], Rules],
        rights: Rights,
        log: Log,
    ) -> None:
        super().__init__(group_id, topics)
        self.wake_ms = NEVER
        self.is_assigning = False  # an assignment is being computed, in slices
        self.rights = MembersRights(rights, topics)
        self._rules = rules
        self._log = log
        self._made: list[tuple[Change, Change]] = []  # in this event: each change, and the one that undoes it
        self._share_units: list[ShareUnit] = []  # in this event: changes of share partitions
        self._sessions: dict[str, int] = {}  # when a member's session times out, monotonic ms
        self._seen_version: int | None = None  # the version of `topics` at which no share partition was missing
        self._assigned_ms: int | None = None  # when the target assignment was made, monotonic ms
        self._assigned_for: tuple[int, int] | None = None  # what rights.seen was when the target was made
        self._rights_then = (0, 0)  # rights.seen when the computation began

    def begin(self, now_ms: int) -> None:
        """Start a full session timeout for every member. To be called once, when the broker starts and all records were
        applied.
        """
        for member_id in self.members:
            self._touch(member_id, now_ms)

    # ---- changes ---------------------------------------------------------------------------------------------

    @property
    def _epochs(self) -> tuple[int, int]:
        """The group's epoch, and the epoch that the target assignment was made for."""
        return self.epoch.epoch, self.target_epoch.epoch

    @property
    def _assignment_interval_ms(self) -> int:
        return self._rules().assignment_interval_ms

    @property
    def _rights_changed(self) -> bool:
        """Whether ACLs or the users of members have changed since the target assignment was made; False without an
        authorizer.
        """
        return self.rights.rules.is_enforced and self._assigned_for != self.rights.seen

    def _keep(self, changes: Sequence[Change]) -> None:
        """Write these changes, and those of share partitions in this event, to the log together. Raises KafkaError if
        that fails.
        """
        self._log(self, changes, self._share_units)

    def _end_event(self) -> None:
        """Forget the changes of the event, because they are written or undone."""
        super()._end_event()
        self._share_units = []

    def _change(self, kind: Kind, name: str, value: Value | None) -> None:
        """Change a value of the group within an event, which then writes the change or undoes it.

        name: see Change. value: None removes the value.
        """
        change = Change(kind, name, value)
        self._made.append((change, self.present_change(kind, name)))
        self.apply(change)

    def _next_epoch(self) -> None:
        """Raise the group's epoch by one, which makes the target assignment outdated."""
        hashed = metadata_hash(self._topics, self.subscribed_names())
        self._change(Kind.EPOCH, "", GroupEpoch(self.epoch.epoch + 1, hashed))

    # ---- heartbeats ------------------------------------------------------------------------------------------

    def heartbeat(self, beat: Heartbeat, now_ms: int, wall_ms: int, begin: Begin) -> Answer:
        """Handle a heartbeat; with epoch 0 the member joins. Raises KafkaError, and then nothing has changed.

        begin: creates the share partitions that are missing. now_ms: monotonic time; wall_ms: wall time.
        """
        member_id, version = beat.member_id, self._topics.version
        self._check_room(member_id)
        before = self.current(member_id)
        if beat.epoch != JOINS:
            self._check_epoch(beat, before)
        with self._event():
            resubscribed = self._note(beat)
            complete, changed = True, False
            if resubscribed or self._seen_version != version:
                complete, changed = self._initialize(begin)
            if resubscribed or changed or (self._seen_version != version and self._topics_changed()):
                self._next_epoch()
            self._assign_if_due(now_ms, wall_ms, joins=beat.epoch == JOINS)
            self._reconcile(member_id, resubscribed=resubscribed)
        self._seen_version = version if complete else None
        self._touch(member_id, now_ms)
        after = self.current(member_id)
        is_sent = beat.epoch == JOINS or beat.topics is not None or after.assigned != before.assigned
        return Answer(member_id, after.epoch, after.assigned if is_sent else None)

    def _topics_changed(self) -> bool:
        """Return whether subscribed topics were created or deleted, or got more partitions, since the group's epoch
        began.
        """
        return metadata_hash(self._topics, self.subscribed_names()) != self.epoch.metadata_hash

    def _check_room(self, member_id: str) -> None:
        """Raise GROUP_MAX_SIZE_REACHED if the group is full and this is a new member."""
        max_size = self._rules().max_size
        if len(self.members) >= max_size and member_id not in self.members:
            text = f"The share group has reached its maximum capacity of {max_size} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)

    def check_member(self, member_id: str) -> None:
        """Raise UNKNOWN_MEMBER_ID if this is not a member."""
        if member_id not in self.members:
            text = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)

    def _check_epoch(self, beat: Heartbeat, current: Current) -> None:
        """Raise UNKNOWN_MEMBER_ID, or FENCED_MEMBER_EPOCH for a wrong epoch.

        The previous epoch is accepted too, because the answer that contained the present one may be lost.
        """
        self.check_member(beat.member_id)
        if beat.epoch in (current.epoch, current.previous_epoch):
            return
        size = "greater" if beat.epoch > current.epoch else "smaller"
        known = f"epoch ({beat.epoch}) than the one known by the group coordinator ({current.epoch})"
        if size == "smaller":
            known += f", and it does not match the previous member epoch ({current.previous_epoch})"
        text = f"The share group member has a {size} member {known}. "
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, f"{text}The member must abandon all its partitions and rejoin.")

    def _note(self, beat: Heartbeat) -> bool:
        """Store what a member reports about itself, and as which user. Returns whether its subscription changed."""
        old = self.members.get(beat.member_id)
        before = old or Member()
        new = Member(
            before.rack_id if beat.rack_id is None else beat.rack_id,
            beat.client_id,
            beat.client_host,
            before.topics if beat.topics is None else tuple(sorted(set(beat.topics))),
        )
        if new != old:
            self._change(Kind.MEMBER, beat.member_id, new)
        self.rights.note(beat.member_id, beat.user)
        return new.topics != before.topics

    def _reconcile(self, member_id: str, *, resubscribed: bool) -> None:
        """Give the member its target assignment, without the topics that it does not subscribe to or may not describe
        now. Does nothing if the member has the target's epoch already and its subscription has not changed.
        """
        before, epoch = self.current(member_id), self.target_epoch.epoch
        if before.epoch == epoch and not resubscribed and member_id in self.currents:
            return
        subscribed, describes = self.topic_ids(self.members[member_id]), self.rights.describes
        assigned = {
            topic_id: partitions
            for topic_id, partitions in self.target(member_id).items()
            if topic_id in subscribed and describes(member_id, topic_id)
        }
        previous_epoch = before.previous_epoch if before.epoch == epoch else before.epoch
        after = Current(epoch, previous_epoch, assigned)
        if after != before or member_id not in self.currents:
            self._change(Kind.CURRENT, member_id, after)

    # ---- share partitions ------------------------------------------------------------------------------------

    def missing(self, topics: Collection[str] = ()) -> Iterator[Missing]:
        """Yield those partitions of the group's subscribed topics, and of `topics`, for which the group has no share
        partition yet.
        """
        states, sizes = self.state_partitions, self._topics.sizes({*self.subscribed_names(), *topics})
        for topic_id, size in sizes:
            known, begun = states.initialized.get(topic_id), states.initializing.get(topic_id)
            if known is not None and len(known.partitions) >= size:
                continue
            for partition in range(size):
                if known is None or partition not in known.partitions:
                    is_new = known is not None and (begun is None or partition not in begun.partitions)
                    yield Missing((topic_id, partition), is_new)

    def _initialize(self, begin: Begin) -> tuple[bool, bool]:
        """Create share partitions that are missing, INITIALIZED_AT_ONCE at most. The others are noted as still to be
        initialized, and those of deleted topics are forgotten.

        Returns two values: whether none is missing any more, and whether any was created.
        """
        missing = self.missing()
        now = list(islice(missing, INITIALIZED_AT_ONCE))
        if not now:
            return True, False
        begun, share_unit = begin(now)
        if share_unit is not None:
            self._share_units.append(share_unit)
        left = [each for each in [*now, *missing] if each.place not in begun]
        later = [each.place for each in left if not each.is_new]
        gone = [topic_id for topic_id in self.state_partitions.initialized if self._topics.name_of(topic_id) is None]
        left_over = without(self.state_partitions, gone)
        self._set_state_partitions(with_initialized(left_over, self._by_topic(begun), self._by_topic(later)))
        return not left, bool(begun)

    def _by_topic(self, places: Iterable[TopicIdPartition]) -> dict[TopicId, SharedTopic]:
        """Return these partitions by topic id, with the topics' names."""
        found: dict[TopicId, set[int]] = {}
        for topic_id, partition in places:
            found.setdefault(topic_id, set()).add(partition)
        return {key: SharedTopic(self._topics.name_of(key) or "", frozenset(each)) for key, each in found.items()}

    def _set_state_partitions(self, found: StatePartitions) -> None:
        """Set which share partitions the group has, within an event. Nothing is written if that changes nothing."""
        if found != self.state_partitions:
            self._change(Kind.STATE_PARTITIONS, "", found)

    # ---- the target assignment -------------------------------------------------------------------------------

    def _assign_if_due(self, now_ms: int, wall_ms: int, *, joins: bool) -> None:
        """Compute the target assignment now if it is due and the group is small. joins: a member joins, so that it need
        not wait for the interval.
        """
        if self._is_behind if joins else self.is_assignment_due(now_ms):
            self._assign_at_once(ASSIGNED_AT_ONCE, now_ms, wall_ms)

    @property
    def _topics_of_members(self) -> Iterable[Sequence[str]]:
        """The topic names that each member subscribes to."""
        return (each.topics for each in self.members.values())

    def begin_assignment(self) -> tuple[int, AssignmentSteps]:
        """Return the group's epoch, and the steps that compute an assignment for it. The caller passes the result to
        take_assignment(). Until then, is_assigning is true, so that no other computation begins.
        """
        self.is_assigning = True
        self._rights_then = self.rights.seen
        return self.epoch.epoch, self._assignment_steps(dict(self.members), dict(self.targets))

    def _assignment_steps(self, members: Mapping[str, Member], targets: Mapping[str, Target]) -> AssignmentSteps:
        """Compute an assignment of initialized partitions to these members, in steps. targets: the present target of
        each.
        """
        shares = yield from self.rights.shares(members, targets, lambda each: each.topics, self.topic_ids)
        subscribers = [
            Subscriber(member_id, shares[member_id], targets[member_id].partitions if member_id in targets else NOTHING)
            for member_id in members
        ]
        shapes = self._topics.shapes({topic_id for ids in set(shares.values()) for topic_id in ids})
        initialized = self.state_partitions.initialized
        assignable = {key: initialized[key].partitions if key in initialized else frozenset() for key in shapes}
        yield 1 + len(shapes) + len(subscribers)
        return (yield from simple_steps(subscribers, shapes, assignable))

    def _set_target(self, epoch: int, assigned: Assigned, now_ms: int, wall_ms: int) -> None:
        """Write a computed assignment as the target. Members that have joined since get nothing yet.

        epoch: the group's epoch for which it was computed.
        """
        for member_id in self.members:
            partitions: Partitions | None = assigned.get(member_id)
            before = self.targets.get(member_id)
            if partitions is not None and (before is None or before.partitions != partitions):
                self._change(Kind.TARGET, member_id, Target(partitions))
        self._change(Kind.TARGET_EPOCH, "", TargetEpoch(epoch, wall_ms))
        self._assigned_for, self._assigned_ms = self._rights_then, now_ms

    # ---- leaving ---------------------------------------------------------------------------------------------

    def leave(self, beat: Heartbeat) -> Answer:
        """Remove a member that leaves. It may still acknowledge records that it acquired. Raises KafkaError."""
        self.check_member(beat.member_id)
        self.remove([beat.member_id])
        return Answer(beat.member_id, beat.epoch)

    def remove(self, member_ids: Collection[str]) -> None:
        """Remove members from the group, which begins a new epoch. Raises KafkaError if that cannot be written."""
        with self._event():
            for member_id in member_ids:
                for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
                    self._change(kind, member_id, None)
            self._next_epoch()
        for member_id in member_ids:
            self._sessions.pop(member_id, None)
            self.rights.forget(member_id)

    # ---- what happens without members ------------------------------------------------------------------------

    def check_empty(self) -> None:
        """Raise NON_EMPTY_GROUP if the group has members."""
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self) -> list[Change]:
        """Return the tombstones that delete the group's records. Raises NON_EMPTY_GROUP if it has members."""
        self.check_empty()
        return [Change(change.kind, change.name, None) for change in self.changes()]

    def begin_anew(self, places: Collection[TopicIdPartition], share_unit: ShareUnit) -> None:
        """Write the reset of share partitions to other start offsets, and begin a new group epoch. share_unit: the
        changes of the share partitions, which are written with those of the group.

        Raises NON_EMPTY_GROUP, or KafkaError if it cannot be written. The other partitions of the same topics are noted
        as still to be initialized, so that they do not count as new partitions.
        """
        self.check_empty()
        shapes = self._topics.shapes({topic_id for topic_id, _ in places})
        of_topics = {(topic_id, each) for topic_id, shape in shapes.items() for each in range(shape.partitions)}
        later = [place for place in of_topics.difference(places) if self._is_uninitialized(*place)]
        with self._event():
            self._next_epoch()
            self._share_units.append(share_unit)
            self._set_state_partitions(
                with_initialized(self.state_partitions, self._by_topic(places), self._by_topic(later))
            )

    def _is_uninitialized(self, topic_id: TopicId, partition: int) -> bool:
        """Return whether the partition is still to be initialized, or no partition of its topic is initialized."""
        begun = self.state_partitions.initializing.get(topic_id)
        return topic_id not in self.state_partitions.initialized or (
            begun is not None and partition in begun.partitions
        )

    def forget_topics(self, topic_ids: Collection[TopicId], share_unit: ShareUnit) -> None:
        """Remove the share partitions of topics from the group. share_unit: the changes of the share partitions, which
        are written with those of the group.

        Raises NON_EMPTY_GROUP, or KafkaError if it cannot be written.
        """
        self.check_empty()
        with self._event():
            self._share_units.append(share_unit)
            self._set_state_partitions(without(self.state_partitions, topic_ids))

    # ---- time ------------------------------------------------------------------------------------------------

    def _touch(self, member_id: str, now_ms: int) -> None:
        """Restart the member's session timeout."""
        at_ms = self._sessions[member_id] = now_ms + self._rules().session_timeout_ms
        self.wake_ms = min(self.wake_ms, at_ms)

    def expire(self, now_ms: int) -> None:
        """Remove the members whose session has timed out. Raises KafkaError if that cannot be written; then call it
        again.
        """
        late = [member_id for member_id, at_ms in self._sessions.items() if at_ms <= now_ms]
        if late:
            self.remove(late)
        self.wake_ms = min(self._sessions.values(), default=NEVER)

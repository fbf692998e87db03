"""One consumer group of the newer protocol: what heartbeats, commits and time do to it. Pure: time is an argument.

Each change of members, subscriptions or topics makes a new group epoch, and each group epoch a target assignment: what
every member is to read. A member gets there by its own heartbeats (reconciling.py), and its epoch shows how far it is.
The rules: what an event decides is a list of changes. `log` writes them before any answer shows them; if that fails
they are undone. A member's request is accepted or refused by the epoch that it sends. Its previous epoch is accepted,
too, because an answer may have been lost; with an older one it has to give up all its partitions and join again.
Errors, their order and their texts are Kafka's.
Sources: KIP-848, KIP-1082, KIP-1251; Kafka's GroupMetadataManager, ConsumerGroup.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from ...deadlines import NEVER
from ..assigned.assignment import Assigned, AssignmentSteps, Subscriber
from ..assigned.group import AssigningGroup
from ..assigned.rights import Rights
from ..assigned.topic_view import TopicView
from ..targets import NOTHING, Target, TargetEpoch
from .assignors import ASSIGNORS, Assignor
from .heartbeats import JOINS, LEAVES_FOR_A_WHILE, NO_TIMEOUT, Answer, Heartbeat
from .reconciling import Goal, owns_only, reconcile
from .records import Change, Current, GroupEpoch, Kind, MemberState, Resolved, Subscription, Value
from .rights import UsersRoster
from .states import GroupState

ASSIGNED_AT_ONCE = 1_500  # a group with at most so many members and partitions is assigned within one heartbeat
FIRST_ASSIGNED_AT_ONCE = 4_000  # the first time more, as the first member else waits until its next heartbeat
REGEX_PAUSE_MS = 10_000  # before regular expressions are matched again with topics, unless one of them is new


class Rules(NamedTuple):
    """The settings in effect for a group. assignors: the first one is used if members ask for none."""

    session_timeout_ms: int = 45_000
    assignment_interval_ms: int = 1_000
    regex_refresh_ms: int = 600_000
    max_size: int = (1 << 31) - 1
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    takes_classic: bool = True  # members of the classic protocol may join
    may_go_back: bool = True  # a group of classic members only becomes a classic group
    classic_max_size: int = (1 << 31) - 1


Log = Callable[["ConsumerGroup", Sequence[Change]], None]


class ConsumerGroup(UsersRoster, AssigningGroup[Change]):
    """One consumer group.

    log: writes changes, or raises KafkaError. rules: called each time, because settings change. check_regex: raises
    KafkaError INVALID_REGULAR_EXPRESSION. wake_ms: the monotonic time at which expire() is to be called; it may find
    nothing to do then.
    """

    def __init__(
        self,
        group_id: str,
        topics: TopicView,
        rules: Callable[[], Rules],
        check_regex: Callable[[str], None],
        log: Log,
        rights: Rights,
    ) -> None:
        super().__init__(group_id, topics, rights)
        self.wake_ms = NEVER
        self.is_assigning = False  # an assignment is being computed, in slices
        self.is_resolving = False  # its regular expressions are being matched with topics
        self._rules = rules
        self._check_regex = check_regex
        self._log = log
        self._made: list[tuple[Change, Change]] = []  # in this event: each change, and the one that undoes it
        self._sessions: dict[str, int] = {}  # when a member's session times out, monotonic ms
        self._revocations: dict[str, int] = {}  # by when a member must have given up partitions
        self._deadlines = [self._sessions, self._revocations]
        self._seen_version: int | None = None  # the version of the topics at the last heartbeat
        self._assigned_ms: int | None = None
        self._static_then: dict[str, str] = {}  # as `static`, when the work on an assignment began
        self._resolved_ms: int | None = None
        self._rights_then: tuple[int, int] = (0, 0)  # as _rights_seen, when that work began
        self._resolves_all = False  # all regular expressions are being matched now

    def begin(self, now_ms: int) -> None:
        """Start a full session timeout for every member. To be called at a start, once all records are applied."""
        for member_id in self.subscriptions:
            self._touch(member_id, now_ms)
            self._set_rebalance_timeout(member_id, now_ms)

    # ---- changes ---------------------------------------------------------------------------------------------

    @property
    def _epochs(self) -> tuple[int, int]:
        """The group's epoch, and the epoch that the target assignment was made for."""
        return self.epoch.epoch, self.target_epoch.epoch

    @property
    def _assignment_interval_ms(self) -> int:
        return self._rules().assignment_interval_ms

    def _keep(self, changes: Sequence[Change]) -> None:
        """Write these changes to the log together. Raises KafkaError if that fails."""
        self._log(self, changes)

    def _change(self, kind: Kind, name: str, value: Value | None) -> None:
        """Change a value of the group within an event, which then writes the change or undoes it.

        name: see Change. value: None removes the value.
        """
        change = Change(kind, name, value)
        self._made.append((change, self.present_change(kind, name)))
        self.apply(change)

    def _topics_changed(self) -> bool:
        """Return whether subscribed topics were created or deleted, or got more partitions, since the group's epoch
        began.
        """
        return self.metadata_hash() != self.epoch.metadata_hash

    def _next_epoch(self) -> None:
        """Raise the group's epoch by one, which makes the target assignment outdated."""
        self._change(Kind.EPOCH, "", GroupEpoch(self.epoch.epoch + 1, self.metadata_hash()))

    # ---- heartbeats ------------------------------------------------------------------------------------------

    def heartbeat(self, beat: Heartbeat, now_ms: int, wall_ms: int, first: Sequence[Change] = ()) -> Answer:
        """Handle a heartbeat of a member that has an id; with epoch 0 the member joins. Raises KafkaError, and then
        nothing has changed.

        first: the changes that convert a classic group to this one, if this heartbeat does so (migration.py). now_ms:
        monotonic time; wall_ms: wall time.
        """
        member_id, version = beat.member_id, self._topics.version
        with self._event():
            for change in first:
                self._change(*change)
            self._admit(beat)
            before = self.current(member_id)
            self._advance(beat, now_ms, wall_ms)
        self._seen_version = version
        if first:
            self.begin(now_ms)
        after = self.current(member_id)
        self._touch(member_id, now_ms)
        if after != before:
            self._set_rebalance_timeout(member_id, now_ms)
        is_assignment_sent = beat.epoch == JOINS or beat.is_full or after.assigned != before.assigned
        return Answer(member_id, after.epoch, after.assigned if is_assignment_sent else None)

    def _advance(self, beat: Heartbeat, now_ms: int, wall_ms: int) -> None:
        """Store what a member reports, compute the target assignment if it is due, and move the member one step towards
        it.
        """
        other_subscription = self._note(beat)
        self._assign_if_due(now_ms, wall_ms)
        if other_subscription or not self.has_its_target(beat.member_id):
            self._reconcile(beat.member_id, beat, other_subscription=other_subscription)

    def _note(self, beat: Heartbeat) -> bool:
        """Store what a member reports. If that changes the group's topics, begin a new epoch.

        Returns whether the member's subscription has changed.
        """
        other_topics, other_regex, resolved = self._subscribe(beat)
        news = self._seen_version != self._topics.version
        if other_topics or resolved or (news and self._topics_changed()):
            self._next_epoch()
        return other_topics or other_regex

    def _check_room(self, member_id: str) -> None:
        """Raise GROUP_MAX_SIZE_REACHED if the group is full and this is a new member."""
        max_size = self._rules().max_size
        if len(self.subscriptions) >= max_size and member_id not in self.subscriptions:
            text = f"The consumer group has reached its maximum capacity of {max_size} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)

    def _admit(self, beat: Heartbeat) -> None:
        """Raise KafkaError unless the sender is a member with the right epoch, or joins. A static member that joins
        replaces the member that has its instance id.
        """
        member_id = beat.member_id
        self._check_room(member_id)
        if beat.instance_id is not None:
            self._admit_static(beat, beat.instance_id)
        elif member_id in self.subscriptions:
            self._check_epoch(beat)
        elif beat.epoch != JOINS:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, self._no_member(member_id))

    def _admit_static(self, beat: Heartbeat, instance_id: str) -> None:
        """Check a static member's heartbeat. If it joins, it replaces the member that has its instance id. Raises
        KafkaError.
        """
        owner = self.static.get(instance_id)
        if beat.epoch == JOINS:
            if owner is not None and not (owner == beat.member_id and self._is_present(owner)):
                self._check_released(owner, beat.member_id, instance_id)
                self._replace(owner, beat.member_id)
            return
        self._check_owner(beat.member_id, instance_id)
        self._check_epoch(beat)

    def _is_present(self, member_id: str) -> bool:
        """Return whether a member uses the newer protocol and is not temporarily absent."""
        return self.current(member_id).epoch != LEAVES_FOR_A_WHILE and self.subscriptions[member_id].classic is None

    def _check_released(self, old: str, new: str, instance_id: str) -> None:
        """Raise UNRELEASED_INSTANCE_ID if the member `old`, which has this instance id, uses the newer protocol and
        has not left.
        """
        if self._is_present(old):
            text = f"Static member {new} with instance id {instance_id} cannot join the group because the instance id "
            raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, f"{text}is owned by {old} member.")

    def _replace(self, old: str, new: str) -> None:
        """Replace a static member by `new`, which takes over its subscription and assignment."""
        current, subscription, target = self.current(old), self.subscriptions[old], self.target(old)
        self._forget(old)
        self._change(Kind.SUBSCRIPTION, new, subscription)
        self._change(Kind.TARGET, new, Target(target))
        self._change(Kind.CURRENT, new, current._replace(epoch=0, previous_epoch=0))

    def _check_epoch(self, beat: Heartbeat) -> None:
        """Raise FENCED_MEMBER_EPOCH for a wrong epoch. The previous epoch is accepted if the member owns only
        partitions that were assigned to it.
        """
        epoch, current = beat.epoch, self.current(beat.member_id)
        if epoch in (JOINS, current.epoch):
            return
        if epoch == current.previous_epoch and epoch < current.epoch and owns_only(beat.owned, current.assigned):
            return
        size = "greater" if epoch > current.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({current.epoch}). The member must abandon all its partitions and rejoin.",
        )

    # ---- subscriptions ---------------------------------------------------------------------------------------

    def _subscribe(self, beat: Heartbeat) -> tuple[bool, bool, bool]:
        """Store the subscription, rack and other fields that a heartbeat reports about its member.

        Returns three values: whether the member subscribes to other topics by name; whether it uses another regular
        expression, or none any more; and whether it is known already which topics that adds or removes, because the
        new expression has been matched before or there is none. Raises INVALID_REGULAR_EXPRESSION.
        """
        old = self.subscriptions.get(beat.member_id, Subscription())
        new = Subscription(
            old.instance_id if beat.instance_id is None else beat.instance_id,
            old.rack_id if beat.rack_id is None else beat.rack_id,
            beat.client_id,
            beat.client_host,
            old.topics if beat.topics is None else tuple(sorted(dict.fromkeys(beat.topics))),
            old.regex if beat.regex is None else beat.regex,
            old.rebalance_timeout_ms if beat.rebalance_timeout_ms == NO_TIMEOUT else beat.rebalance_timeout_ms,
            old.assignor if beat.assignor is None else beat.assignor,
            beat.classic,
        )
        resolved = False
        if old.regex != new.regex:
            if new.regex and new.regex not in self.regex_subscribers:
                self._check_regex(new.regex)
            else:
                resolved = new.regex in self.regexes if new.regex else bool(old.regex)
        if new != old or beat.member_id not in self.subscriptions:
            self._change(Kind.SUBSCRIPTION, beat.member_id, new)
        self._note_user(beat.member_id, beat.user)
        if old.regex != new.regex and old.regex:
            self._forget_regex(old.regex)
        return old.topics != new.topics, old.regex != new.regex, resolved

    def _forget_regex(self, regex: str) -> None:
        """Remove a regular expression's record, unless a member still subscribes to it."""
        if regex not in self.regex_subscribers and regex in self.regexes:
            self._change(Kind.REGEX, regex, None)

    def regexes_due(self, now_ms: int) -> list[str]:
        """Return the regular expressions to match with all topics now, and note the users whose rights count for each.
        Returns none while others are being matched.

        These are all if the refresh interval is over, or topics or rights have changed; else those not matched yet.
        """
        if not self.regex_subscribers or self.is_resolving:
            return []
        unknown = {each for each in self.regex_subscribers if each not in self.regexes or each in self._unresolved}
        since_ms = NEVER if self._resolved_ms is None else now_ms - self._resolved_ms
        if since_ms < self._rules().regex_refresh_ms and not unknown and since_ms < REGEX_PAUSE_MS:
            return []
        version = self._topics.version
        outdated = self._resolves_anew or any(resolved.version != version for resolved in self.regexes.values())
        self._resolves_all = since_ms >= self._rules().regex_refresh_ms or outdated
        due = list(self.regex_subscribers if self._resolves_all else unknown)
        if due:
            self._begin_resolving()
        return due

    def set_resolved_topics(self, found: Mapping[str, Resolved], now_ms: int, *, more: bool = False) -> None:
        """Store which topics regular expressions match, and begin a new epoch if that has changed. more: whether other
        expressions follow.

        Raises KafkaError if it cannot be written.
        """
        self.is_resolving = more
        with self._event():
            changed = False
            for regex, resolved in found.items():
                if regex not in self.regex_subscribers:
                    continue
                before = self.regexes.get(regex)
                changed = changed or (before.topics if before else ()) != resolved.topics
                self._change(Kind.REGEX, regex, resolved)
            if changed or self._topics_changed():
                self._next_epoch()
        for regex in found:
            if regex in self.regex_subscribers:
                self._end_resolving(regex)
        if self._resolves_all and not more:
            self._resolved_ms = now_ms
            self._resolved_rights = self._resolving_rights

    # ---- the target assignment -------------------------------------------------------------------------------

    def _assign_if_due(self, now_ms: int, wall_ms: int) -> None:
        """If the target assignment is due and the group is small, compute it now. In a large group the coordinator
        computes it, in steps.
        """
        if self.is_assignment_due(now_ms):
            is_first = Kind.TARGET_EPOCH not in self._kept
            self._assign_at_once(FIRST_ASSIGNED_AT_ONCE if is_first else ASSIGNED_AT_ONCE, now_ms, wall_ms)

    @property
    def _topics_of_members(self) -> Iterable[Sequence[str]]:
        """The topic names that each member subscribes to."""
        return (each.topics for each in self.subscriptions.values())

    def begin_assignment(self) -> tuple[int, AssignmentSteps]:
        """Return the group's epoch, and the steps that compute an assignment for it. The caller passes the result to
        take_assignment().
        """
        self.is_assigning = True
        self._static_then, self._rights_then = dict(self.static), self._rights_seen
        steps = self._assignment_steps(ASSIGNORS[self.assignor], dict(self.subscriptions), dict(self.targets))
        return self.epoch.epoch, steps

    def _assignment_steps(
        self, assignor: Assignor, subscriptions: dict[str, Subscription], targets: dict[str, Target]
    ) -> AssignmentSteps:
        """Compute an assignment for these members by this assignor, in steps. targets: the present target of each
        member.
        """
        subscribers = []
        shares = yield from self._shares(subscriptions, targets)
        for member_id, subscription in subscriptions.items():
            has = targets[member_id].partitions if member_id in targets else NOTHING
            subscribers.append(Subscriber(member_id, shares[member_id], has, subscription.instance_id))
        shapes = self._topics.shapes({topic_id for ids in set(shares.values()) for topic_id in ids})
        yield 1 + len(shapes) + len(subscribers)
        return (yield from assignor(subscribers, shapes))

    @property
    def assignor(self) -> str:
        """The name of the assignor that most members ask for; if none asks for one, the first in the settings."""
        names = self._rules().assignors
        votes = [each.assignor for each in self.subscriptions.values() if each.assignor in names]
        return max(names, key=votes.count) if votes else names[0]

    def _set_target(self, epoch: int, assigned: Assigned, now_ms: int, wall_ms: int) -> None:
        """Write a computed assignment as the target. Members that have joined since get nothing yet; partitions of
        members that have left stay free.

        A static member that has replaced another since gets what was assigned to that one. epoch: the group's epoch for
        which the assignment was computed.
        """
        for member_id, subscription in self.subscriptions.items():
            partitions = assigned.get(member_id)
            if partitions is None and subscription.instance_id is not None:
                partitions = assigned.get(self._static_then.get(subscription.instance_id, ""))
            before = self.targets.get(member_id)
            if partitions is not None and (before is None or before.partitions != partitions):
                self._change(Kind.TARGET, member_id, Target(partitions))
        self._change(Kind.TARGET_EPOCH, "", TargetEpoch(epoch, wall_ms))
        self._assigned_for, self._assigned_ms = self._rights_then, now_ms

    def _reconcile(self, member_id: str, beat: Heartbeat, *, other_subscription: bool) -> None:
        """Move the member one step towards its target assignment, according to the owned partitions that it reports."""
        goal = Goal(
            self.target_epoch.epoch,
            self.target(member_id),
            self.topic_ids(self.subscriptions[member_id]),
            partial(self._may_be_given, member_id),
        )
        before = self.current(member_id)
        after = reconcile(before, goal, beat.owned, other_subscription=other_subscription)
        if after != before or member_id not in self.currents:
            self._change(Kind.CURRENT, member_id, after)

    # ---- leaving ---------------------------------------------------------------------------------------------

    def leave(self, beat: Heartbeat) -> Answer:
        """Handle the heartbeat of a member that leaves. A static member may also leave for a while: then it keeps its
        assignment. Raises KafkaError.
        """
        member_id, instance_id = beat.member_id, beat.instance_id
        if instance_id is not None:
            self._check_owner(member_id, instance_id)
        elif member_id not in self.subscriptions:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, self._no_member(member_id))
        if beat.epoch == LEAVES_FOR_A_WHILE:
            current = self.current(member_id)
            assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in current.assigned.items()}
            away = Current(LEAVES_FOR_A_WHILE, current.previous_epoch, current.state, assigned)
            with self._event():
                self._change(Kind.CURRENT, member_id, away)
            self._revocations.pop(member_id, None)
        else:
            self.remove([member_id])
        return Answer(member_id, beat.epoch)

    def remove(self, member_ids: Collection[str]) -> None:
        """Remove members, so that their partitions can be assigned to others. Raises KafkaError if that cannot be
        written.
        """
        with self._event():
            for member_id in member_ids:
                self._forget(member_id)
            self._go_on()
        for deadlines in self._deadlines:
            for member_id in member_ids:
                deadlines.pop(member_id, None)

    def _go_on(self) -> None:
        """Continue after members were removed: begin a new epoch. A subclass may make it a classic group instead."""
        self._next_epoch()

    def _forget(self, member_id: str) -> None:
        """Remove all records of the member, and its regular expression if no other member subscribes to it."""
        regex = self.subscriptions[member_id].regex
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.SUBSCRIPTION):
            self._change(kind, member_id, None)
        if regex:
            self._forget_regex(regex)

    def tombstones(self) -> list[Change]:
        """Return the tombstones that delete the group's records. Raises NON_EMPTY_GROUP if it has members."""
        if self.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        kinds = (Kind.TARGET_EPOCH, Kind.PARTITION_METADATA, Kind.EPOCH)
        return [Change(kind, "", None) for kind in kinds]

    # ---- time ------------------------------------------------------------------------------------------------

    def _touch(self, member_id: str, now_ms: int) -> None:
        """Restart the member's session timeout."""
        classic = self.subscriptions[member_id].classic
        timeout_ms = self._rules().session_timeout_ms if classic is None else classic.session_timeout_ms
        self._wake_at(self._sessions, member_id, now_ms + timeout_ms)

    def _set_rebalance_timeout(self, member_id: str, now_ms: int) -> None:
        """Start the member's rebalance timeout if the member has to give up partitions; otherwise cancel it.

        For a classic member it is always cancelled, because such a member has to join again within another timeout.
        """
        is_classic = self.subscriptions[member_id].classic is not None
        if self.current(member_id).state is MemberState.UNREVOKED and not is_classic:
            timeout_ms = self.subscriptions[member_id].rebalance_timeout_ms
            self._wake_at(self._revocations, member_id, now_ms + max(timeout_ms, 0))
        else:
            self._revocations.pop(member_id, None)

    def _wake_at(self, deadlines: dict[str, int], member_id: str, at_ms: int) -> None:
        """Set a member's deadline, in monotonic ms, and move wake_ms ahead, so that expire() is called by then."""
        deadlines[member_id] = at_ms
        self.wake_ms = min(self.wake_ms, at_ms)

    def expire(self, now_ms: int) -> None:
        """Remove the members whose deadline has passed at now_ms. Raises KafkaError if that cannot be written; then
        call it again.
        """
        late = {member_id for deadlines in self._deadlines for member_id, at_ms in deadlines.items() if at_ms <= now_ms}
        for deadlines in self._deadlines:  # of members that were replaced
            for member_id in [each for each in deadlines if each not in self.subscriptions]:
                del deadlines[member_id]
        late &= self.subscriptions.keys()
        if late:
            self.remove([member_id for member_id in self.subscriptions if member_id in late])
        self.wake_ms = min((at_ms for deadlines in self._deadlines for at_ms in deadlines.values()), default=NEVER)

"""Members of the classic protocol within a consumer group, and what their requests mean there (KIP-848). Pure.

Such a member goes through the same epochs as any other; its JoinGroup stands for the heartbeat:

    JoinGroup    reports what it subscribes to and has, and moves it one step towards its target; the answer's
                 generation is the member's epoch. It is answered at once. No member leads, because the broker assigns
    SyncGroup    returns what it may read now, in the layout of its own protocol
    Heartbeat    returns REBALANCE_IN_PROGRESS if another join would change its assignment: there is another target, or
                 it has to give up partitions, or those that it waits for are free
    LeaveGroup   removes it

A classic member can be told of a change by REBALANCE_IN_PROGRESS only. From the first such answer on, it has its
rebalance timeout to join, and after the join the same time to send SyncGroup. An eager member has no partitions when it
joins, and gets all of its own with one join. A cooperative one reports what it has; it joins once to learn what it has
to give up, and once more after it has done so.
When the last member of the newer protocol has left, the group becomes a classic one again (migration.py). If the policy
does not allow that, the heartbeats of classic members compute the target assignment, as nobody sends newer ones.
Source: Kafka's GroupMetadataManager, classicGroup…ToConsumerGroup.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from ...security.principals import Session
from ..assigned.rights import Rights
from ..assigned.topic_view import TopicView
from ..consumer_protocol import UnreadableMetadata, assignment_for, read_subscription
from ..members import NO_MEMBER, Joined, Joining, Leaving, Synced, Syncing
from ..subscriptions import CONSUMER
from ..targets import TopicId
from .heartbeats import JOINS, Answer, Heartbeat
from .machine import ConsumerGroup, Log, Rules
from .migration import TakeBack, handed_over
from .records import Change, Classic, Kind, MemberState, Subscription


class Caller(NamedTuple):
    """The sender of a request of the classic protocol: its member id, instance id and generation."""

    member_id: str
    instance_id: str | None
    generation: int


class MixedGroup(ConsumerGroup):
    """A consumer group whose members may use either protocol. take_back: converts it to a classic group
    (migration.py).
    """

    def __init__(
        self,
        group_id: str,
        topics: TopicView,
        rules: Callable[[], Rules],
        check_regex: Callable[[str], None],
        log: Log,
        rights: Rights,
        take_back: TakeBack,
    ) -> None:
        super().__init__(group_id, topics, rules, check_regex, log, rights)
        self._take_back = take_back
        self._joins: dict[str, int] = {}  # when a member that was told to join must have done so, monotonic ms
        self._syncs: dict[str, int] = {}  # when a member that has joined must have sent SyncGroup, monotonic ms
        self._deadlines += self._joins, self._syncs

    @property
    def is_all_classic(self) -> bool:
        return len(self.subscriptions) == self.classic_members

    def heartbeat(self, beat: Heartbeat, now_ms: int, wall_ms: int, first: Sequence[Change] = ()) -> Answer:
        """Answer a ConsumerGroupHeartbeat. If the member used the classic protocol before, the time limits for its next
        JoinGroup and SyncGroup end.

        first: the changes that convert a classic group to this one, if this heartbeat does so. Raises KafkaError.
        """
        answer = super().heartbeat(beat, now_ms, wall_ms, first)
        self._joins.pop(beat.member_id, None)
        self._syncs.pop(beat.member_id, None)
        return answer

    # ---- joining ---------------------------------------------------------------------------------------------

    def join(self, asked: Joining, now_ms: int, wall_ms: int, new_id: str) -> Joined:
        """Handle the JoinGroup of a classic member, and return the answer. new_id: the member id for one that has none
        yet; a dynamic member that can send it again only gets it, with MEMBER_ID_REQUIRED, and has not joined.

        Raises KafkaError, and then nothing has changed. now_ms: monotonic time; wall_ms: wall time.
        """
        self._check_join(asked)
        if asked.member_id == NO_MEMBER and asked.instance_id is None and asked.must_know_id:
            return Joined(ErrorCode.MEMBER_ID_REQUIRED, new_id)
        beat, version = self._beat(asked, new_id), self._topics.version
        member_id, protocol = beat.member_id, None
        with self._event():
            is_last = self._admit_classic(asked, member_id)
            if is_last:
                protocol = self._join_and_go_back(beat)
            if protocol is None:
                self._advance(beat, now_ms, wall_ms)
        self._seen_version = version
        self._joins.pop(member_id, None)
        self._touch(member_id, now_ms)
        self._wake_at(self._syncs, member_id, now_ms + asked.rebalance_timeout_ms)
        epoch = self.current(member_id).epoch
        return Joined(ErrorCode.NONE, member_id, epoch, CONSUMER, protocol or asked.protocols[0][0])

    def _check_join(self, asked: Joining) -> None:
        """Check that the member may join. Raises INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED."""
        if not self._rules().takes_classic:
            text = f"Cannot join the consumer group {self.group_id} with the classic protocol because the group "
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{text}migration is disabled.")
        self._check_room(asked.member_id)
        known = (self.classic_protocols[name] == self.classic_members for name, _ in asked.protocols)
        if asked.protocol_type != CONSUMER or not any(known):
            text = f"Member {asked.member_id}'s protocols are not supported."
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)

    def _beat(self, asked: Joining, new_id: str) -> Heartbeat:
        """Convert a JoinGroup to a heartbeat. new_id: the member's id if it has none. Raises UNKNOWN_SERVER_ERROR.

        The subscription is taken from its first protocol, because a consumer sends the same with each protocol.
        """
        try:
            subscribed = read_subscription(asked.protocols[0][1])
        except UnreadableMetadata as wrong:
            text = f"The subscription in the join of member {asked.member_id} cannot be read: {wrong}."
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from None
        owned: dict[TopicId, set[int]] = {}
        for topic, partitions in subscribed.owned.items():
            topic_id = self._topics.id_of(topic)
            if topic_id is not None:
                owned[topic_id] = set(partitions)
        return Heartbeat(
            asked.member_id or new_id,
            JOINS,
            asked.instance_id,
            subscribed.rack_id,
            asked.rebalance_timeout_ms,
            subscribed.topics,
            regex="",
            owned=owned,
            client_id=asked.client_id,
            client_host=asked.client_host,
            classic=Classic(asked.session_timeout_ms, asked.protocols),
            user=asked.user,
        )

    def _admit_classic(self, asked: Joining, member_id: str) -> bool:
        """Check a joining classic member, and let a static one replace the member with the same instance id. Raises
        KafkaError.

        Returns whether the replaced member was the last one of the newer protocol.
        """
        if asked.instance_id is None:
            return False
        owner = self.static.get(asked.instance_id)
        if asked.member_id != NO_MEMBER:
            self._check_owner(member_id, asked.instance_id)
        elif owner is not None:
            is_newer = self.subscriptions[owner].classic is None
            is_last = is_newer and len(self.subscriptions) == self.classic_members + 1
            self._replace(owner, member_id)
            return is_last
        return False

    def _join_and_go_back(self, beat: Heartbeat) -> str | None:
        """Convert the group to a classic one at this join. There is no new target assignment, because the leader of the
        classic group makes the next one. But if the present target is up to date, the member first gets what it may
        have of it.

        Returns the protocol of the classic group; None if the group stays a consumer group.
        """
        if not self._may_go_back:
            return None
        other_subscription = self._note(beat)
        if self.epoch.epoch == self.target_epoch.epoch and not self.has_its_target(beat.member_id):
            self._reconcile(beat.member_id, beat, other_subscription=other_subscription)
        return self._go_back(was_replaced=True)

    # ---- assignments and heartbeats --------------------------------------------------------------------------

    def sync(self, asked: Syncing, now_ms: int) -> Synced:
        """Handle the SyncGroup of a classic member: return its partitions, encoded for its protocol.

        Raises KafkaError: REBALANCE_IN_PROGRESS if it has to join again first.
        """
        member_id = asked.member_id
        subscription = self._judge(Caller(member_id, asked.instance_id, asked.generation))
        assert subscription.classic is not None
        # Any protocol of the member is right, not only its first: if it joined while the group was a classic one, it
        # names the protocol that was chosen then.
        protocols = dict(subscription.classic.protocols)
        if asked.protocol_type not in (None, CONSUMER) or not (asked.protocol is None or asked.protocol in protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        current = self.current(member_id)
        if current.epoch < self.target_epoch.epoch and current.state is not MemberState.UNREVOKED:
            self._must_join(member_id, subscription, now_ms)
        self._syncs.pop(member_id, None)
        self._touch(member_id, now_ms)
        partitions = {
            name: list(epochs)
            for topic_id, epochs in current.assigned.items()
            if (name := self._topics.name_of(topic_id)) is not None
        }
        return Synced(
            ErrorCode.NONE,
            asked.protocol_type,
            asked.protocol,
            assignment_for(subscription.classic.protocols[0][1], partitions),
        )

    def classic_heartbeat(self, caller: Caller, now_ms: int, wall_ms: int, user: Session | None = None) -> None:
        """Handle a classic member's Heartbeat, which restarts its session timeout. If all members are classic, it also
        computes the target assignment if that is due. user: the user whose access rights apply to the member.

        Raises KafkaError: REBALANCE_IN_PROGRESS if the member has to join again.
        """
        subscription = self._judge(caller)
        self._note_user(caller.member_id, user)
        if self.is_all_classic:
            self.make_target(now_ms, wall_ms)
        self._touch(caller.member_id, now_ms)
        if self._gets_further_by_joining(caller.member_id):
            self._must_join(caller.member_id, subscription, now_ms)

    def make_target(self, now_ms: int, wall_ms: int) -> None:
        """Begin a new epoch if topics have changed, and compute the target assignment if it is due. Raises KafkaError.

        Usually the heartbeats of the newer protocol do this; this method is for groups in which no member sends them.
        """
        with self._event():
            if self._topics_changed():
                self._next_epoch()
            self._assign_if_due(now_ms, wall_ms)

    def _judge(self, caller: Caller) -> Subscription:
        """Return the subscription of a classic request's sender. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
        ILLEGAL_GENERATION.
        """
        member_id = caller.member_id
        if caller.instance_id is not None:
            self._check_owner(member_id, caller.instance_id)
        subscription = self.subscriptions.get(member_id)
        if subscription is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, self._no_member(member_id))
        if subscription.classic is None:
            text = f"Member {member_id} does not use the classic protocol."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
        if caller.generation != self.current(member_id).epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return subscription

    def _gets_further_by_joining(self, member_id: str) -> bool:
        """Return whether another JoinGroup of the member would change its assignment."""
        current = self.current(member_id)
        if current.epoch < self.target_epoch.epoch or current.state is MemberState.UNREVOKED:
            return True
        return current.state is MemberState.UNRELEASED and all(
            partition in current.assigned.get(topic_id, ()) or self._may_be_given(member_id, topic_id, partition)
            for topic_id, partitions in self.target(member_id).items()
            for partition in partitions
        )

    def _must_join(self, member_id: str, subscription: Subscription, now_ms: int) -> None:
        """Always raise REBALANCE_IN_PROGRESS. The first time, also start the timeout within which the member must
        rejoin.
        """
        if member_id not in self._joins:
            self._wake_at(self._joins, member_id, now_ms + subscription.rebalance_timeout_ms)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    # ---- leaving ---------------------------------------------------------------------------------------------

    def classic_leave(self, leaving: Iterable[Leaving]) -> list[ErrorCode]:
        """Handle a LeaveGroup, for members of either protocol. Returns an error code for each member. Raises
        KafkaError.
        """
        gone: dict[str, None] = {}
        errors = []
        for each in leaving:
            owner = each.member_id if each.instance_id is None else self.static.get(each.instance_id)
            error = ErrorCode.NONE
            if owner is None or owner not in self.subscriptions:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            elif each.member_id not in (NO_MEMBER, owner):
                error = ErrorCode.FENCED_INSTANCE_ID
            else:
                gone[owner] = None
            errors.append(error)
        if gone:
            self.remove(list(gone))
        return errors

    def _go_on(self) -> None:
        """Continue after members were removed: become a classic group if only classic members are left and the policy
        allows it; otherwise begin a new epoch.
        """
        goes_back = self.is_all_classic and self._may_go_back
        if not goes_back or self._go_back(was_replaced=False) is None:
            super()._go_on()

    @property
    def _may_go_back(self) -> bool:
        """Whether the migration policy and the number of members allow the group to become a classic one."""
        rules, size = self._rules(), len(self.subscriptions)
        return rules.may_go_back and 0 < size <= rules.classic_max_size

    def _go_back(self, *, was_replaced: bool) -> str | None:
        """Convert to a classic group, including the changes of this event. Returns its protocol; None if it cannot
        become one.

        was_replaced: whether the last member of the newer protocol was a static one that a classic member has replaced.
        """
        before: dict[tuple[Kind, str], Change] = {}
        for change, was in self._made:
            before.setdefault((change.kind, change.name), was)
        now = {(change.kind, change.name): change for change in self.changes()}
        logged = [key for key, was in (now | before).items() if was.value is not None]
        protocol = self._take_back(handed_over(self, self._topics, logged, was_replaced=was_replaced))
        if protocol is not None:
            self._made.clear()  # the conversion is written: nothing is left to write or undo
        return protocol

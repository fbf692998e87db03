"""One classic consumer group: members, generations, and requests that wait. Pure: time and ids are arguments.

The rules: what an event does is in states.TABLE; a generation has one protocol, which all its members know, and one
leader; an assignment is sent to a member only after its record was handed to `log`. Every delayed answer is given in
bounded time: by the rebalance timeout, by a session timeout, or when its member is removed. Sources: Kafka's
ClassicGroup and GroupMetadataManager; KIP-62, 134, 345, 394, 559, 814.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ..deadlines import NEVER
from .group_records import KeptGroup
from .members import NO_MEMBER, Joined, Joining, JoinReply, Leaving, Member, Synced, Syncing, SyncReply
from .roster import Roster
from .states import MAY_FOLLOW, TABLE, Event, State, Step
from .subscriptions import CONSUMER, topics_of

LAST_GENERATION = (1 << 31) - 1


class Rules(NamedTuple):
    """The settings of every group of a broker, in milliseconds and counts."""

    max_size: int = LAST_GENERATION
    initial_delay_ms: int = 3_000
    newcomer_timeout_ms: int = 300_000  # of a new member's delayed join (KAFKA-7610)
    max_pending: int = 10_000  # members that were given an id and have not joined with it


class Group(Roster):
    """One classic group. `log` writes its state before any answer contains it, and raises KafkaError if that fails.

    wake_ms: the monotonic time at which expire() is to be called; it may find nothing to do then.
    """

    def __init__(self, group_id: str, rules: Rules, log: Callable[["Group", KeptGroup], None]) -> None:
        super().__init__()
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.wake_ms = NEVER
        self.empty_since_ms: int | None = None  # on the data directory's clock; set by the coordinator
        self._rules = rules
        self._log = log
        self._join_due_ms = NEVER
        self._sync_due_ms = NEVER
        self._first: tuple[int, int] | None = None  # during the initial delay: its length, and how much it may grow
        self._newcomers = False  # a member joined during the initial delay

    @classmethod
    def restore(
        cls, group_id: str, rules: Rules, log: Callable[["Group", KeptGroup], None], kept: KeptGroup, now_ms: int
    ) -> "Group":
        """Make the group that a record describes. Its members' sessions start now, and a rebalance if one is needed."""
        group = cls(group_id, rules, log)
        group.generation = kept.generation
        group.protocol_type = kept.protocol_type or None
        group.protocol = kept.protocol
        group.leader = kept.leader
        for each in kept.members:
            group._put(Member.restore(each, kept.protocol))
        if kept.members:
            group.state = State.STABLE
            for member in group.members.values():
                group._touch(member, now_ms)
            if kept.must_rebalance or len(group.members) > rules.max_size:
                group._rebalance(now_ms)  # if there are too many, the last ones to join are refused
        return group

    @classmethod
    def of(
        cls,
        group_id: str,
        rules: Rules,
        log: Callable[["Group", KeptGroup], None],
        members: Iterable[Member],
        generation: int,
    ) -> "Group":
        """Make a stable group of these members of a former consumer group (consumer/migration.py)."""
        group = cls(group_id, rules, log)
        group.generation, group.protocol_type = generation, CONSUMER
        for member in members:
            group._put(member)
        group.protocol, group.state = group.vote(), State.STABLE
        return group

    def begin(self, now_ms: int, *, rebalance: bool) -> None:
        """Start the session timeouts of a group made by of(). rebalance: all members must join again now."""
        for member in self.members.values():
            self._touch(member, now_ms)
        if rebalance:
            self._rebalance(now_ms)

    def end(self) -> None:
        """Become DEAD, because this is a consumer group from now on. Waiting members are told to join again."""
        for member in list(self.members.values()):
            member.tell_joined(Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            member.tell_synced(Synced(ErrorCode.REBALANCE_IN_PROGRESS))
        self._become(State.DEAD)
        self.pending.clear()

    # ---- joining ---------------------------------------------------------------------------------------------

    def join(self, asked: Joining, reply: JoinReply, now_ms: int, new_id: Callable[[], str]) -> None:
        """Handle a JoinGroup, or remove a member that has no room. `reply` is called once, now or later."""
        member_id = asked.member_id
        if not self._has_room(member_id):
            self._remove(member_id)
            reply(Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER))
            self._happens(Event.NEWCOMER_GONE, now_ms)
        elif self.state is not State.DEAD and not self._knows(asked):
            reply(Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif member_id == NO_MEMBER:
            self._join_without_id(asked, reply, now_ms, new_id())
        elif member_id in self.pending and asked.instance_id is None:
            self._act(Event.JOIN, asked, reply, now_ms, member_id)
        elif (error := self._not_a_member(member_id, asked.instance_id)) is not None and self.state is not State.DEAD:
            reply(Joined(error, member_id))
        else:
            self._act(Event.JOIN_AGAIN, asked, reply, now_ms, member_id)

    def _has_room(self, member_id: str) -> bool:
        """Return whether the group has room for this member. During a rebalance only members that have joined count."""
        if self.state in (State.EMPTY, State.DEAD):
            return True
        member = self.members.get(member_id)
        if self.state is State.PREPARING_REBALANCE:
            if member is not None and member.join is not None:
                return True
            return self._joined_below(self._rules.max_size)
        return member is not None or len(self.members) < self._rules.max_size

    def _join_without_id(self, asked: Joining, reply: JoinReply, now_ms: int, new_id: str) -> None:
        """Handle a JoinGroup without member id: add member new_id, or tell it to join again with that id (KIP-394)."""
        if asked.instance_id is not None:
            known = asked.instance_id in self.static
            self._act(Event.JOIN_RETURNING if known else Event.JOIN, asked, reply, now_ms, new_id)
        elif not asked.must_know_id or self.state is State.DEAD:
            self._act(Event.JOIN, asked, reply, now_ms, new_id)
        elif len(self.pending) >= self._rules.max_pending:
            reply(Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER))
        else:
            self.pending[new_id] = now_ms + asked.session_timeout_ms
            self._wake_at(self.pending[new_id])
            reply(Joined(ErrorCode.MEMBER_ID_REQUIRED, new_id))

    def _act(self, event: Event, asked: Joining, reply: JoinReply, now_ms: int, member_id: str) -> None:
        """Handle a JoinGroup as the table of states says. member_id: the id that the member has from now on."""
        step = TABLE[event][self.state]
        if isinstance(step, ErrorCode):
            known = NO_MEMBER if step is ErrorCode.UNKNOWN_MEMBER_ID else asked.member_id
            reply(Joined(step, known))
        elif step is Step.ADMIT:
            self._admit(asked, reply, now_ms, member_id)
        elif step in (Step.REPLACE, Step.REPLACE_AND_REBALANCE, Step.REPLACE_IN_PLACE):
            self._replace(step, asked, reply, now_ms, member_id)
        else:
            self._join_again(step, self.members[member_id], asked, reply, now_ms)

    def _admit(self, asked: Joining, reply: JoinReply, now_ms: int, member_id: str) -> None:
        """Add a new member. It is answered when all members have joined."""
        member = Member.of(asked, member_id)
        member.is_new = True
        member.join = reply
        self._newcomers = self._newcomers or self._first is not None  # then the initial delay may be extended
        self.pending.pop(member_id, None)
        self._put(member)
        if len(self.members) == 1:
            self.protocol_type = asked.protocol_type
        # It cannot send heartbeats before it knows its generation, and we do not see whether it is still there.
        member.deadline_ms = now_ms + self._rules.newcomer_timeout_ms
        self._wake_at(member.deadline_ms)
        self._rebalance_or_complete(now_ms)

    def _join_again(self, step: Step, member: Member, asked: Joining, reply: JoinReply, now_ms: int) -> None:
        """Handle a member's new JoinGroup. Repeat the last answer if step and protocols allow that, else rebalance."""
        leads = member.member_id == self.leader
        unchanged = member.protocols == asked.protocols
        if unchanged and (step is Step.REPEAT_OR_REBALANCE or (step is Step.ANSWER_OR_REBALANCE and not leads)):
            reply(self._join_answer(member, roster=leads))
            return
        # A leader joins again when it has seen a change, such as new partitions, that its subscription does not show.
        self._change(member, asked)
        member.tell_joined(Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))  # its former request
        member.join = reply
        self._rebalance_or_complete(now_ms)

    def _rebalance_or_complete(self, now_ms: int) -> None:
        """Begin a rebalance; if one is under way already, end it if all members have joined."""
        if State.PREPARING_REBALANCE in MAY_FOLLOW[self.state]:
            self._rebalance(now_ms)
        else:
            self._complete_if_all(now_ms)

    # ---- static members that come back -----------------------------------------------------------------------

    def _replace(self, step: Step, asked: Joining, reply: JoinReply, now_ms: int, member_id: str) -> None:
        """Replace a static member by one with its instance id and a new member id. step: whether to rebalance then."""
        assert asked.instance_id is not None
        old, old_leader = self.members[self.static[asked.instance_id]], self.leader
        new = Member.of(asked, member_id)
        new.assignment = old.assignment
        self._swap(old, new)
        if step is Step.REPLACE_IN_PLACE and self.protocol == self.vote():
            try:
                self._log(self, self.to_keep())
            except KafkaError as error:
                self._swap(new, old)
                reply(Joined(error.code, NO_MEMBER, self.generation, self.protocol_type, self.protocol))
                return
            self._touch(new, now_ms)
            leads = asked.may_skip_assignment and self.leader == member_id
            answer = self._join_answer(new, roster=leads)._replace(skip_assignment=leads)
            # An old client would begin to assign if the answer named it as the leader (KAFKA-13435).
            reply(answer if asked.may_skip_assignment else answer._replace(leader=old_leader or NO_MEMBER))
            return
        self._touch(new, now_ms)
        new.join = reply
        old.tell_joined(Joined(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        old.tell_synced(Synced(ErrorCode.FENCED_INSTANCE_ID))
        if step is Step.REPLACE:
            self._complete_if_all(now_ms)
        else:
            self._rebalance(now_ms)

    # ---- rebalances ------------------------------------------------------------------------------------------

    def _rebalance(self, now_ms: int) -> None:
        """Make all members join again. An empty group first waits group.initial.rebalance.delay.ms for others."""
        if self.state is State.COMPLETING_REBALANCE:
            self._refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self._sync_due_ms = NEVER
        was_empty = self.state is State.EMPTY
        self._become(State.PREPARING_REBALANCE)
        if was_empty:
            delay_ms = self._rules.initial_delay_ms
            self._first = delay_ms, max(self._rebalance_timeout_ms() - delay_ms, 0)
            self._newcomers = False
            self._join_due(now_ms + delay_ms)
        elif self._all_joined():
            self._complete(now_ms)
        else:
            self._join_due(now_ms + self._rebalance_timeout_ms())

    def _complete_if_all(self, now_ms: int) -> None:
        """Complete the join phase if all members have joined; not during the initial delay."""
        if self.state is State.PREPARING_REBALANCE and self._first is None and self._all_joined():
            self._complete(now_ms)

    def _join_time_is_over(self, now_ms: int) -> None:
        """Extend the initial delay if members joined in it and its limit allows; else complete the join phase."""
        if self._first is not None:
            delay_ms, left_ms = self._first
            next_ms = min(self._rules.initial_delay_ms, left_ms)
            if self._newcomers and next_ms:
                self._newcomers = False
                self._first = next_ms, max(left_ms - delay_ms, 0)
                self._join_due(now_ms + next_ms)
                return
        self._complete(now_ms)

    def _complete(self, now_ms: int) -> None:
        """Remove dynamic members that have not joined. Begin a generation, or wait on if no member left has joined."""
        for member in list(self.members.values()):
            if member.join is None and member.instance_id is None:
                self._remove(member.member_id)
        self._first = None
        if self.members and not self._choose_leader():
            self._join_due(now_ms + self._rebalance_timeout_ms())  # no leader has joined: wait for one
            return
        self._join_due_ms = NEVER
        self.generation = self.generation % LAST_GENERATION + 1
        if self.members:
            self._begin_generation(now_ms)
            return
        self.protocol = None
        self._become(State.EMPTY)
        try:
            self._log(self, self.to_keep())
        except KafkaError:
            pass  # a restart finds the old members, whose sessions time out

    def _begin_generation(self, now_ms: int) -> None:
        """Choose the protocol, answer all waiting JoinGroups, and wait for the leader's assignments."""
        self.protocol = self.vote()
        self._become(State.COMPLETING_REBALANCE)
        self._sync_due_ms = now_ms + self._rebalance_timeout_ms()
        self._wake_at(self._sync_due_ms)
        self._pending_sync.update(self.members)
        for member in list(self.members.values()):
            self._touch(member, now_ms)
            member.is_new = False
            member.tell_joined(self._join_answer(member, roster=member.member_id == self.leader))

    def _join_answer(self, member: Member, *, roster: bool) -> Joined:
        """Return the answer to a JoinGroup. roster: whether it lists all members, as it does for the leader."""
        return Joined(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or NO_MEMBER,
            self.entries() if roster else (),
        )

    # ---- assignments -----------------------------------------------------------------------------------------

    def sync(self, asked: Syncing, reply: SyncReply, now_ms: int) -> None:
        """Handle a SyncGroup; the leader's contains all assignments. `reply` is called once, now or later."""
        step = TABLE[Event.SYNC][self.state]
        if self.state is not State.DEAD:
            step = self._wrong_sync(asked) or step
        if isinstance(step, ErrorCode):
            reply(Synced(step))
            return
        member = self.members[asked.member_id]
        self._pending_sync.discard(member.member_id)
        member.tell_synced(Synced(ErrorCode.REBALANCE_IN_PROGRESS))  # to its earlier SyncGroup, if one still waits
        member.sync = reply
        if step is Step.ANSWER_ASSIGNMENT:
            self._tell_assignment(member, now_ms)
        elif member.member_id == self.leader:
            self._assign(asked.assignments, now_ms)

    def _wrong_sync(self, asked: Syncing) -> ErrorCode | None:
        """Return the error of a SyncGroup with a wrong member, generation or protocol; None if it is valid."""
        error = self._not_a_member(asked.member_id, asked.instance_id)
        if error is not None:
            return error
        if asked.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        wrong_type = asked.protocol_type is not None and asked.protocol_type != self.protocol_type
        wrong_name = asked.protocol is not None and asked.protocol != self.protocol
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL if wrong_type or wrong_name else None

    def _assign(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """Log and store the leader's assignments, and answer waiting members. A member left out gets an empty one."""
        try:
            self._log(self, self.to_keep(assignments))
        except KafkaError as error:
            self._refuse_syncs(error.code, now_ms)
            self._rebalance(now_ms)
            return
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._become(State.STABLE)
        for member in list(self.members.values()):
            if member.sync is not None:
                self._tell_assignment(member, now_ms)

    def _tell_assignment(self, member: Member, now_ms: int) -> None:
        self._touch(member, now_ms)
        member.tell_synced(Synced(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment))

    def _refuse_syncs(self, error: ErrorCode, now_ms: int) -> None:
        """Drop all assignments, and answer all waiting SyncGroups with this error."""
        for member in list(self.members.values()):
            member.assignment = b""
            if member.sync is not None:
                self._touch(member, now_ms)
                member.tell_synced(Synced(error))

    # ---- heartbeats, commits, leaving ------------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Handle a Heartbeat, which restarts the session timeout. Returns the error code, NONE for success."""
        step = TABLE[Event.HEARTBEAT][self.state]
        if self.state is not State.DEAD:
            wrong = self._not_a_member(member_id, instance_id)
            if wrong is not None or generation != self.generation:
                return wrong or ErrorCode.ILLEGAL_GENERATION
            self._touch(self.members[member_id], now_ms)
        return step if isinstance(step, ErrorCode) else ErrorCode.NONE

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int, *, transactional: bool
    ) -> None:
        """Check that offsets of this group may be committed. Raises KafkaError if not.

        A generation below 0 is that of a client without a member, which may commit while the group has no members.
        """
        if self.state is State.EMPTY and generation < 0:
            return
        step = TABLE[Event.COMMIT_IN_TRANSACTION if transactional else Event.COMMIT][self.state]
        if self.state is not State.DEAD:
            if generation >= 0 or member_id or instance_id is not None:
                wrong = self._not_a_member(member_id, instance_id)
                if wrong is not None or generation != self.generation:
                    raise KafkaError(wrong or ErrorCode.ILLEGAL_GENERATION)
            elif not transactional:  # a client without a group, but the group has members
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(step, ErrorCode):
            raise KafkaError(step)
        if step is Step.TOUCH:
            self._touch(self.members[member_id], now_ms)

    def leave(self, leaving: Iterable[Leaving], now_ms: int) -> list[ErrorCode]:
        """Remove these members, and rebalance if that is needed. Returns an error code for each of them."""
        errors: list[ErrorCode] = []
        event = None
        for each in leaving:
            member_id = each.member_id or self.static.get(each.instance_id or "", NO_MEMBER)
            error = None if member_id in self.pending else self._not_a_member(member_id, each.instance_id)
            errors.append(error or ErrorCode.NONE)
            if error is None:
                was_member = self._remove(member_id)
                event = Event.MEMBER_GONE if was_member else event or Event.NEWCOMER_GONE
        if event is not None:
            self._happens(event, now_ms)
        return errors

    def delete(self) -> ErrorCode:
        """Make the group DEAD and return NONE, if it may be deleted; else return the error."""
        step = TABLE[Event.DELETE][self.state]
        if isinstance(step, ErrorCode):
            return step
        self._become(State.DEAD)
        self.pending.clear()
        return ErrorCode.NONE

    # ---- time ------------------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Handle the timeouts that are over at now_ms: of unused new member ids, sessions, and the rebalance."""
        for member_id in [each for each, until_ms in self.pending.items() if until_ms <= now_ms]:
            if self.pending.pop(member_id, None) is not None:
                self._happens(Event.NEWCOMER_GONE, now_ms)
        for member in [m for m in self.members.values() if m.deadline_ms is not None and m.deadline_ms <= now_ms]:
            self._session_over(member, now_ms)
        if self._join_due_ms <= now_ms:
            self._join_due_ms = NEVER
            self._happens(Event.JOIN_TIMEOUT, now_ms)
        if self._sync_due_ms <= now_ms:
            self._sync_due_ms = NEVER
            self._happens(Event.SYNC_TIMEOUT, now_ms)
        sessions = (m.deadline_ms for m in self.members.values() if m.deadline_ms is not None)
        self.wake_ms = min(self._join_due_ms, self._sync_due_ms, *self.pending.values(), *sessions, NEVER)

    def _session_over(self, member: Member, now_ms: int) -> None:
        """Remove a member whose session timed out; one that waits for an answer stays, unless it is new."""
        if self.members.get(member.member_id) is not member or member.deadline_ms is None:
            return
        if member.deadline_ms > now_ms:  # an earlier timeout has restarted its session
            return
        member.deadline_ms = None
        if not member.is_new and (member.join is not None or member.sync is not None):
            return  # it waits for other members
        self._remove(member.member_id)
        self._happens(Event.MEMBER_GONE, now_ms)

    def _happens(self, event: Event, now_ms: int) -> None:
        """Handle an event that is not a request, such as a timeout, as the table of states says."""
        step = TABLE[event][self.state]
        if step is Step.COMPLETE_IF_ALL:
            self._complete_if_all(now_ms)
        elif step is Step.REBALANCE:
            self._rebalance(now_ms)
        elif step is Step.COMPLETE:
            self._join_time_is_over(now_ms)
        elif step is Step.DROP_SILENT and self._pending_sync:
            for member_id in list(self._pending_sync):
                self._remove(member_id)
            self._rebalance(now_ms)

    def _touch(self, member: Member, now_ms: int) -> None:
        """Restart the member's session timeout."""
        member.deadline_ms = now_ms + member.session_timeout_ms
        self._wake_at(member.deadline_ms)

    def _join_due(self, at_ms: int) -> None:
        self._join_due_ms = at_ms
        self._wake_at(at_ms)

    def _wake_at(self, at_ms: int) -> None:
        if at_ms < self.wake_ms:
            self.wake_ms = at_ms

    @property
    def subscribed_topics(self) -> Collection[str] | None:
        """The topics that members subscribe to; None if unknown (no consumers, no protocol yet, or bad metadata)."""
        if self.protocol_type != CONSUMER or (self.members and self.protocol is None):
            return None
        return topics_of(member.metadata(self.protocol) for member in self.members.values())

    # ---- state -----------------------------------------------------------------------------------------------

    def _become(self, state: State) -> None:
        assert state in MAY_FOLLOW[self.state], f"{self.state.name} → {state.name}"
        self.state = state

    def to_keep(self, assignments: Mapping[str, bytes] | None = None) -> KeptGroup:
        """Return the group's record, all that a restart needs. assignments: None for the present ones."""
        members = [
            member.to_record(self.protocol, None if assignments is None else assignments.get(member.member_id, b""))
            for member in self.members.values()
        ]
        return KeptGroup(self.protocol_type or "", self.generation, self.protocol, self.leader, tuple(members))

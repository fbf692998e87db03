"""Random lives of one group, beside what its members know: what must hold whatever they do.

Members act on the answers that they got, as clients do, and also on answers of long ago. The group's own state is read
only at the end of each step, to check its counts.
"""

from collections import Counter
from typing import Any

import pytest
from fencepost.broker.groups.members import Leaving
from fencepost.broker.groups.states import State
from fencepost.protocol.errors import ErrorCode
from group_driver import REBALANCE_MS, SESSION_MS, Answer, GroupDriver
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from long_runs import share_of

pytestmark = pytest.mark.slow

NONE = ErrorCode.NONE
FOR_EVER_MS = 1_000_000  # longer than any timeout here, one after another
INSTANCES = ("x", "y")
PROTOCOLS = ((("range", b"1"),), (("range", b"2"), ("sticky", b"2")), (("sticky", b"3"), ("range", b"3")))

who = st.integers(0, 11)
protocols = st.sampled_from(PROTOCOLS)


class GroupLives(RuleBasedStateMachine):
    """answered: the (member id, generation, instance id) of each successful join."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = GroupDriver(initial_delay_ms=500, max_size=5)
        self.joins: list[tuple[Answer, str | None]] = []
        self.syncs: list[tuple[Answer, str, int]] = []
        self.answered: list[tuple[str, int, str | None]] = []
        self.ids: list[str] = []
        self.rosters: dict[int, set[str]] = {}  # by generation: whom the leader was told of, and their successors
        self.assigned: dict[int, dict[str, bytes]] = {}  # by generation: what its leader said
        self.latest = 0

    def pick(self, n: int) -> tuple[str, int, str | None]:
        return self.answered[-1 - n % len(self.answered)]

    # ---- what clients do -------------------------------------------------------------------------------------

    @rule(protocols=protocols, old=st.booleans())
    def somebody_joins(self, protocols: Any, old: bool) -> None:
        self.note_join(self.driver.join(protocols=protocols, must_know_id=not old), None)

    @rule(instance=st.sampled_from(INSTANCES), protocols=protocols, old=st.booleans())
    def a_static_member_joins(self, instance: str, protocols: Any, old: bool) -> None:
        before = self.driver.group.static.get(instance)
        answer = self.driver.join("", instance, protocols=protocols, may_skip_assignment=not old)
        after = self.driver.group.static.get(instance)
        if answer.error is NONE and before and after and answer.got.generation in self.rosters:  # it took over
            generation = answer.got.generation
            self.rosters[generation] = (self.rosters[generation] - {before}) | {after}
            if before in self.assigned.get(generation, {}):
                self.assigned[generation][after] = self.assigned[generation].pop(before)
        self.note_join(answer, instance)

    @precondition(lambda self: self.ids)
    @rule(n=who, protocols=protocols)
    def one_that_was_told_its_id_joins(self, n: int, protocols: Any) -> None:
        self.note_join(self.driver.join(self.ids[-1 - n % len(self.ids)], protocols=protocols), None)

    @precondition(lambda self: self.answered)
    @rule(n=who, protocols=protocols)
    def a_member_joins_again(self, n: int, protocols: Any) -> None:
        member_id, _, instance = self.pick(n)
        self.note_join(self.driver.join(member_id, instance, protocols=protocols), instance)

    @precondition(lambda self: self.answered)
    @rule(n=who)
    def a_member_asks_for_its_assignment(self, n: int) -> None:
        member_id, generation, instance = self.pick(n)
        roster = sorted(self.rosters.get(generation, ()))
        shares = {each: b"partition %d of %d" % (index, generation) for index, each in enumerate(roster)}
        was_assigned = len(self.driver.logged)
        answer = self.driver.sync(member_id, shares, generation=generation, instance_id=instance)
        if len(self.driver.logged) > was_assigned and answer.error is NONE:
            assert generation not in self.assigned, "a generation was assigned twice"
            self.assigned[generation] = shares
        self.syncs.append((answer, member_id, generation))

    @precondition(lambda self: self.answered)
    @rule(n=who)
    def a_member_is_alive(self, n: int) -> None:
        member_id, generation, instance = self.pick(n)
        error = self.driver.heartbeat(member_id, generation, instance)
        assert error in (NONE, ErrorCode.REBALANCE_IN_PROGRESS) or not self.is_in(member_id, generation)

    @precondition(lambda self: self.answered)
    @rule(n=who, transactional=st.booleans())
    def a_member_commits(self, n: int, transactional: bool) -> None:
        member_id, generation, instance = self.pick(n)
        if self.driver.commit(member_id, generation, instance, transactional=transactional) is NONE:
            assert generation == self.latest, "a stale generation committed"
            assert member_id in self.rosters[generation], "a stranger committed"

    @precondition(lambda self: self.answered)
    @rule(n=who, by_instance=st.booleans())
    def a_member_leaves(self, n: int, by_instance: bool) -> None:
        member_id, _, instance = self.pick(n)
        if by_instance and instance is not None:
            self.driver.leave(Leaving("", instance))
        else:
            self.driver.leave(Leaving(member_id, instance))

    @rule(ms=st.sampled_from([1, 500, 2_000, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, ms: int) -> None:
        self.driver.wait(ms)

    @precondition(lambda self: self.driver.logged)
    @rule()
    def the_broker_is_killed(self) -> None:
        """Clients that wait get no answer any more. Generations that were not logged are forgotten."""
        for answer, *_ in [*self.joins, *self.syncs]:
            answer.got = answer.got or "lost"
        self.joins, self.syncs = [], []
        kept = self.driver.logged[-1]
        self.driver.restarted()
        for generation in [each for each in self.rosters if each > kept.generation]:
            del self.rosters[generation]
            self.assigned.pop(generation, None)
        self.answered = [each for each in self.answered if each[1] <= kept.generation]
        self.latest = kept.generation
        if kept.members:
            self.rosters[self.latest] = {member.member_id for member in kept.members}

    # ---- what must hold --------------------------------------------------------------------------------------

    def is_in(self, member_id: str, generation: int) -> bool:
        group = self.driver.group
        return member_id in group.members and generation == group.generation

    def note_join(self, answer: Answer, instance: str | None) -> None:
        self.joins.append((answer, instance))

    @invariant()
    def answers_agree(self) -> None:
        self.hear_joins()
        self.hear_syncs()

    def hear_joins(self) -> None:
        heard = [(answer.got, instance) for answer, instance in self.joins if answer.got is not None]
        self.joins = [(answer, instance) for answer, instance in self.joins if answer.got is None]
        for got, _ in heard:
            if got.roster and not got.skip_assignment:
                known = self.rosters.setdefault(got.generation, {each.member_id for each in got.roster})
                assert known == {each.member_id for each in got.roster} or got.generation in self.assigned
                assert got.leader == got.member_id
        for got, instance in heard:
            if got.error is ErrorCode.MEMBER_ID_REQUIRED:
                self.ids.append(got.member_id)
            elif got.error is NONE:
                assert got.generation >= self.latest, "generations go back"
                assert got.member_id in self.rosters[got.generation]
                self.latest = got.generation
                self.answered.append((got.member_id, got.generation, instance))

    def hear_syncs(self) -> None:
        for answer, member_id, generation in self.syncs:
            if answer.error is NONE:
                share = self.assigned[generation].get(member_id, b"")
                assert answer.got.assignment == share, "not what the leader said"
        shares = Counter(share for given in self.assigned.values() for share in given.values())
        assert not shares or max(shares.values()) == 1, "two owners of a partition in one generation"
        self.syncs = [each for each in self.syncs if each[0].got is None]

    @invariant()
    def what_is_counted_is_right(self) -> None:
        group = self.driver.group
        members = group.members.values()
        assert group.size_bytes == sum(member.size_bytes for member in members)
        assert group._knowing == Counter(name for member in members for name, _ in member.protocols)
        assert group.static == {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        assert (group.leader in group.members) if group.members else group.leader is None
        assert group._pending_sync <= set(group.members)
        waiting = [member for member in members if member.join is not None]
        assert not waiting or group.state is State.PREPARING_REBALANCE
        due = [m.deadline_ms for m in members if m.deadline_ms is not None] + list(group.pending.values())
        assert group.wake_ms <= min(due, default=group.wake_ms)

    def teardown(self) -> None:
        """Everybody falls silent: whoever waits is answered in bounded time, and the group ends up empty."""
        self.driver.wait(FOR_EVER_MS)
        for answer, *_ in [*self.joins, *self.syncs]:
            assert answer.got is not None, "somebody waits for ever"
        assert self.driver.group.state is State.EMPTY
        assert not self.driver.group.members
        assert not self.driver.group.pending


GroupLives.TestCase.settings = settings(max_examples=share_of(150), stateful_step_count=40)
TestGroupLives = GroupLives.TestCase

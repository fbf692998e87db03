"""Members of the SDK against the broker's group, both pure, with a network between that may do anything, and no loop.

A run is a list of choices among what can happen next: a member polls, hears an answer or loses it, heartbeats, commits,
is silent for longer than its session, leaves. `settle` then lets everything go well until nothing is left to do.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

from fencepost.broker.groups.members import Joined, Synced
from fencepost.client.assignors.assignors import assignors_of
from fencepost.client.group.leading import assignments, members_of
from fencepost.client.group.membership import Membership, Stamp, State, Terms, Turn
from fencepost.client.values import ConsumerGroupMetadata, TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.groups import JoinGroupRequest, JoinGroupResponse, SyncGroupResponse
from group_driver import Answer, GroupDriver

SESSION_MS = 10_000
PARTITIONS = {"t": 4}
FAULTS = (" loses", " is silent", " leaves")


class Side:
    """A member as `Group` drives it: what it owns, and the one answer it waits for."""

    def __init__(self, name: str, world: "World", strategy: str, instance_id: str | None) -> None:
        self.name = name
        self.world = world
        self.membership = Membership(Terms("g", instance_id, SESSION_MS, 60_000), assignors_of([strategy]))
        self.owned: tuple[TopicPartition, ...] = ()
        self.asked: JoinGroupRequest | Stamp | None = None
        self.answer: Answer | None = None
        self.joins: list[Answer] = []  # of all joins, also the answers that were lost
        self.heartbeat: tuple[ErrorCode, Stamp] | None = None
        self.gone = False

    # ---- what can happen -------------------------------------------------------------------------------------

    def choices(self) -> Iterator[tuple[str, Callable[[], None]]]:
        membership = self.membership
        if self.gone:
            return
        if self.answer is not None:
            if self.answer.got is not None:
                yield f"{self.name} hears", self.hear
            if self.world.faults_left:
                yield f"{self.name} loses", self.world.fault(self.lose)
        elif self.asked is not None:
            yield f"{self.name} asks again", self.ask_again
        elif not membership.settled and membership.state is not State.FENCED:
            yield f"{self.name} polls", self.poll
        if self.heartbeat is not None:
            yield f"{self.name} hears its heartbeat", self.hear_heartbeat
        elif membership.in_generation:
            yield f"{self.name} beats", self.beat
        if self.owned and membership.applied.generation >= 0:
            yield f"{self.name} commits", self.commit
        if membership.member_id and self.world.faults_left:
            yield f"{self.name} is silent", self.world.fault(lambda: self.world.silent(self))
            yield f"{self.name} leaves", self.world.fault(self.leave)

    def poll(self) -> None:
        membership = self.membership
        if membership.state is State.ASSIGNED:
            self.owned = membership.take_over(self.owned, fits=True).partitions
            return
        given_up = membership.prepare(self.owned, {"t"}).partitions
        self.owned = tuple(place for place in self.owned if place not in given_up)
        self.asked = membership.join_request({"t"}, self.owned)
        self.ask_again()

    def ask_again(self) -> None:
        request = self.asked
        if isinstance(request, JoinGroupRequest):
            request = self.asked = self.membership.join_request({"t"}, self.owned)
            self.answer = self.world.driver.join(
                request.member_id,
                request.group_instance_id,
                protocols=tuple((each.name, each.metadata) for each in request.protocols),
                session_timeout_ms=SESSION_MS,
            )
            self.joins.append(self.answer)

    def lose(self) -> None:
        """End the connection before the answer comes: a join is sent again; after a sync the member joins again."""
        assert self.answer is not None
        self.answer = None
        if isinstance(self.asked, Stamp):
            self.asked = None
            self.membership.rejoin("SyncGroup was not answered")

    def hear(self) -> None:
        assert self.answer is not None
        got, self.answer = self.answer.got, None
        if isinstance(got, Joined):
            self._joined(got)
        else:
            self._synced(got)

    def _joined(self, got: Joined) -> None:
        roster = [
            JoinGroupResponse.Member(member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata)
            for m in got.roster
        ]
        turn = self.membership.on_join(
            JoinGroupResponse(
                error_code=got.error,
                generation_id=got.generation,
                protocol_type=got.protocol_type,
                protocol_name=got.protocol,
                leader=got.leader,
                skip_assignment=got.skip_assignment,
                member_id=got.member_id,
                members=roster,
            )
        )
        if turn is Turn.TAKE_ID:
            self.ask_again()
        elif turn is Turn.GO_ON:
            lead = self.membership.leads and not got.skip_assignment
            assignor = self.membership.assignor
            given = assignments(assignor, PARTITIONS, members_of(roster)) if lead and assignor else {}
            self.asked = self.membership.stamp
            self.answer = self.world.driver.sync(
                got.member_id, given, generation=got.generation, instance_id=self.membership.terms.group_instance_id
            )
        else:
            assert turn in (Turn.LEAVE_GENERATION, Turn.LEAVE_MEMBER, Turn.FENCE, Turn.AGAIN), (turn, got)
            self.asked = self.asked if turn is Turn.AGAIN else None

    def _synced(self, got: Synced) -> None:
        asked, self.asked = self.asked, None
        assert isinstance(asked, Stamp)
        response = SyncGroupResponse(
            error_code=got.error,
            protocol_type=got.protocol_type,
            protocol_name=got.protocol,
            assignment=got.assignment,
        )
        turn = self.membership.on_sync(response, asked)
        assert turn is not Turn.REFUSE, got

    def beat(self) -> None:
        asked = self.membership.stamp
        instance_id = self.membership.terms.group_instance_id
        self.heartbeat = self.world.driver.heartbeat(asked.member_id, asked.generation, instance_id), asked

    def hear_heartbeat(self) -> None:
        assert self.heartbeat is not None
        heard, self.heartbeat = self.heartbeat, None
        self.membership.on_heartbeat(*heard)

    def commit(self) -> None:
        """Commit offsets of its partitions: in a transaction, with the metadata that it would pass on; and plainly, if
        it may.
        """
        member = self.membership.applied
        code = self.world.commit(member, transactional=True)
        if code is ErrorCode.NONE:
            self.world.accepted(self, member)
        if self.membership.may_commit:
            plain = self.world.commit(member, transactional=False)
            self.membership.on_commit(plain, Stamp(member.generation, member.member_id))

    def leave(self) -> None:
        request = self.membership.leave("over")
        self.owned, self.asked, self.answer, self.gone = (), None, None, True
        if request is not None:
            self.world.driver.leave(request.member_id)


class World:
    """The group of the broker, and its members."""

    def __init__(self, strategy: str, count: int, static: bool, faults: int) -> None:
        self.faults_left = faults
        self.driver = GroupDriver()
        self.sides = [Side(f"m{n}", self, strategy, f"i{n}" if static else None) for n in range(count)]
        self.story: list[str] = []

    def do(self, name: str, act: Callable[[], None]) -> None:
        self.story.append(name)
        act()
        self.check()

    def choices(self) -> list[tuple[str, Callable[[], None]]]:
        found = [choice for side in self.sides for choice in side.choices()]
        return [*found, ("a second passes", lambda: self.driver.wait(1_000))]

    def fault(self, act: Callable[[], None]) -> Callable[[], None]:
        """Return a function that does `act` and counts it as one of the few faults that a run may have."""

        def run() -> None:
            self.faults_left -= 1
            act()

        return run

    def silent(self, one: Side) -> None:
        """Let a member be silent until its session ends, while the others send heartbeats."""
        for _ in range(3):
            self.driver.wait(SESSION_MS // 2)
            for side in self.sides:
                if side is not one and side.membership.in_generation and not side.gone:
                    side.beat()
                    side.hear_heartbeat()

    def commit(self, member: ConsumerGroupMetadata, *, transactional: bool) -> ErrorCode:
        return self.driver.commit(
            member.member_id, member.generation, member.group_instance_id, transactional=transactional
        )

    # ---- what must hold --------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that no two members own the same partition, among those that were members all the time."""
        owners: dict[TopicPartition, str] = {}
        for side in self.sides:
            if side.membership.generation < 0 and side.membership.state is State.JOINING:
                assert not side.owned, f"{side.name} joins anew and has not given up what it lost: {self.story}"
            if self.owns_by_right(side):
                for place in side.owned:
                    assert place not in owners, f"{owners[place]} and {side.name} own {place}: {self.story}"
                    owners[place] = side.name

    def owns_by_right(self, side: Side) -> bool:
        """Return whether the member was in every generation since the one that gave it what it owns.

        A static member that does not join in time stays in the group, with what it said when it joined last (KIP-345):
        what it owns may go to another, as if it had been removed, and until it hears so both have it.
        """
        applied, group = side.membership.applied, self.driver.group
        if not side.owned or applied.member_id not in group.members:
            return False
        answers = [answer.got for answer in side.joins if answer.error is ErrorCode.NONE]
        return {got.generation for got in answers}.issuperset(range(applied.generation, group.generation + 1))

    def accepted(self, side: Side, member: ConsumerGroupMetadata) -> None:
        assert member.generation == self.driver.group.generation, self.story
        for other in self.sides:
            shared = set(other.owned) & set(side.owned) if other is not side else ()
            if shared and other.membership.applied.generation > member.generation:
                raise AssertionError(f"{side.name} committed {shared} of {other.name}: {self.story}")

    def settle(self, sides: list[Side] | None = None) -> None:
        """Let everything go well from now on, until each partition has one owner."""
        sides = self.sides if sides is None else sides
        for _ in range(200):
            if self.settled(sides):
                return
            for side in sides:
                if side.gone:
                    continue
                if side.membership.in_generation:
                    side.beat()
                    side.hear_heartbeat()
                if side.answer is not None and side.answer.got is not None:
                    side.hear()
                elif side.answer is None and side.asked is not None:
                    side.ask_again()
                elif side.answer is None and not side.membership.settled:
                    side.poll()
                self.check()
            self.driver.wait(500)
        raise AssertionError(f"it never settles: {[(s.membership.state, s.owned) for s in self.sides]}: {self.story}")

    def settled(self, sides: list[Side]) -> bool:
        here = [side for side in sides if not side.gone]
        if any(side.answer is not None or not side.membership.settled for side in here):
            return False
        owned = sorted(place.partition for side in here for place in side.owned)
        return not here or owned == list(range(PARTITIONS["t"]))


def run(
    choose: Callable[[list[Any]], int], steps: int, *, strategy: str, count: int, static: bool, faults: int
) -> World:
    """Make this many steps, then settle, and return the world. choose: returns the index of the choice to take."""
    world = World(strategy, count, static, faults)
    world.settle(world.sides[:-1])  # one comes later
    for _ in range(steps):
        choices = world.choices()
        world.do(*choices[choose(choices)])
    world.settle()
    return world


def random_run(seed: int, steps: int, **more: Any) -> World:
    """Make a random run, in which faults are rare, and return the world after it."""
    chance = random.Random(seed)

    def choose(choices: list[tuple[str, Any]]) -> int:
        at = chance.randrange(len(choices))
        while choices[at][0].endswith(FAULTS) and chance.random() < 0.8:
            at = chance.randrange(len(choices))
        return at

    return run(choose, steps, **more)


def every_run(steps: int, **more: Any) -> Iterator[World]:
    """Make a run for each possible sequence of this many choices, and yield the world after each."""
    path: list[int] = []
    while True:
        taken: list[tuple[int, int]] = []

        def choose(choices: list[Any], path: list[int] = path, taken: list[tuple[int, int]] = taken) -> int:
            at = path[len(taken)] if len(taken) < len(path) else 0
            taken.append((at, len(choices)))
            return at

        yield run(choose, steps, **more)
        path = [at for at, _ in taken]
        while path and path[-1] + 1 >= taken[len(path) - 1][1]:
            path.pop()
        if not path:
            return
        path[-1] += 1

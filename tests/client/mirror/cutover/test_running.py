"""A cutover moves all groups exactly, or takes back all that it did: whatever happens between its steps, and however
often it is killed.
"""

import asyncio
from copy import deepcopy
from dataclasses import dataclass, field

import pytest
from fencepost.client.errors import ClientError, ProducerFencedError
from fencepost.client.mirror.cutover.plan import Found, GroupFound, Written
from fencepost.client.mirror.cutover.record import decode_record, encode_record
from fencepost.client.mirror.cutover.running import CutoverFailed, Overtaken, cut_over
from fencepost.client.mirror.findings import Finding
from fencepost.client.mirror.group_offsets import PartitionMap
from fencepost.client.mirror.offset_map import Run
from fencepost.client.values import OffsetAndMetadata, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


@dataclass
class World:
    """Two clusters. logs: of each source partition, which offsets have a committed record. copies: source → target."""

    logs: dict[TopicPartition, list[bool]]
    refusing: set[str] = field(default_factory=set)
    open: dict[str, TopicPartition] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=lambda: {"source": set(), "target": set()})
    copies: dict[TopicPartition, dict[int, int]] = field(default_factory=lambda: {A: {}, B: {}})
    positions: dict[TopicPartition, int] = field(default_factory=lambda: {A: 0, B: 0})
    there: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    record: bytes | None = None
    epoch: int = 0
    settled: bool = False
    seen: dict[TopicPartition, int] = field(default_factory=dict)  # up to where a cutover has looked last
    looked: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)  # the groups' offsets, as seen last
    mirror_runs: bool = True

    def write(self, partition, *, by_force=False):
        """Write a record with a producer that has no transaction. by_force: as a super user."""
        if by_force or partition.topic not in self.refusing:
            self.logs[partition].append(True)

    def target_of(self, partition, source):
        """Return the target offset of the first copied record at or after this source offset; without one, the end."""
        ahead = [there for offset, there in self.copies[partition].items() if offset >= source]
        return min(ahead, default=self.target_end(partition))

    def target_end(self, partition):
        return max(self.copies[partition].values(), default=-1) + 2  # after the commit's marker

    def copy(self):
        for partition, log in self.logs.items():
            for offset in range(self.positions[partition], len(log)):
                if log[offset]:
                    self.copies[partition][offset] = max(self.copies[partition].values(), default=-1) + 2
            self.positions[partition] = len(log)


class FakeSides:
    """Both clusters, as a World. interrupt: called before and after each step with its number. groups: to move, None
    for all.
    """

    def __init__(self, world, interrupt, groups=None):
        self.world, self.interrupt, self.epoch, self.steps, self.groups = world, interrupt, -1, 0, groups

    def _fenced(self):
        if self.epoch != self.world.epoch:
            raise ProducerFencedError("fenced")

    async def _do(self, work):
        self.interrupt(2 * self.steps)
        found = work()
        self.steps += 1
        self.interrupt(2 * self.steps - 1)
        return found

    async def take_record(self):
        def take():
            self.world.epoch += 1
            self.epoch = self.world.epoch
            return None if self.world.record is None else decode_record(self.world.record)

        return await self._do(take)

    async def write(self, record, groups):
        def write():
            self._fenced()
            self.world.record = None if record is None else encode_record(record)
            for name, offsets in groups.items():
                self.world.there.setdefault(name, {}).update({at: each.offset for at, each in offsets.items()})

        await self._do(write)

    async def look(self, groups=None):
        names, always = self.groups if groups is None else groups, {name: {} for name in groups or ()}

        def look():
            groups = {
                name: GroupFound(
                    "classic",
                    {at: OffsetAndMetadata(each) for at, each in offsets.items()},
                    members=tuple(self.world.members["source"] & {name}),
                    there={at: OffsetAndMetadata(each) for at, each in self.world.there.get(name, {}).items()},
                    members_there=tuple(self.world.members["target"] & {name}),
                )
                for name, offsets in {**always, **self.world.offsets}.items()
                if names is None or name in names
            }
            ends = {partition: len(log) for partition, log in self.world.logs.items()}
            self.world.looked = {name: dict(offsets) for name, offsets in self.world.offsets.items()}
            return Found(("a", "b"), groups, "setting", frozenset(self.world.refusing), ends)

        return await self._do(look)

    async def refuse_writes(self, topic, barrier):
        await self._do(lambda: self.world.refusing.add(topic))

    async def allow_writes(self, topic, barrier):
        await self._do(lambda: self.world.refusing.discard(topic))

    async def end_transactions(self, groups):
        def end():
            ended = sorted(self.world.open)
            for name in ended:
                self.world.logs[self.world.open.pop(name)] += [False, False]  # its record, and the marker of the abort
            return ended

        return await self._do(end)

    async def drain(self, ends, tell):
        def drain():
            if not self.world.mirror_runs:
                return [Finding(True, "the mirror does not run", "start it")]
            self.world.copy()
            return []

        return await self._do(drain)

    async def written_since(self, ends):
        def written():
            self.world.seen = {partition: len(log) for partition, log in self.world.logs.items()}
            return [
                Written(partition, offset, 0, -1)
                for partition, log in self.world.logs.items()
                for offset in range(ends[partition], len(log))
                if log[offset]
            ]

        return await self._do(written)

    async def read_maps(self):
        return await self._do(
            lambda: {
                partition: PartitionMap(Run(*pair, 1) for pair in pairs.items())
                for partition, pairs in self.world.copies.items()
            }
        )

    async def target_ends(self, maps):
        return await self._do(lambda: ({each: self.world.target_end(each) for each in self.world.logs}, []))

    async def put_back(self, group, offsets):
        def put():
            for partition, before in offsets.items():
                self.world.there.get(group, {}).pop(partition, None)
                if before is not None:
                    self.world.there.setdefault(group, {})[partition] = before.offset

        await self._do(put)

    async def settle_configs(self):
        await self._do(lambda: setattr(self.world, "settled", True))


def world():
    made = World({A: [True, False, True, True], B: [False]})
    made.open["copier"] = A
    made.offsets = {"billing": {A: 1, B: 1}, "report": {A: 4}}
    made.there = {"report": {A: 0}}
    return made


def run(made, interrupt=lambda step: None, groups=None):
    """Run one cutover. Returns "done", "failed", "killed" or "overtaken", and what it raised."""
    sides = FakeSides(made, interrupt, groups)
    try:
        asyncio.run(cut_over(sides, lambda line: None))
    except Killed as error:
        return "killed", error
    except CutoverFailed as error:
        return "failed", error
    except Overtaken as error:
        return "overtaken", error
    return "done", None


def steps_of(made):
    count = []
    run(made, count.append)
    return len(count)


def check(made, outcome, before):
    """Assert that all is moved exactly, or that all is as it was before."""
    if outcome == "done":
        assert made.refusing == {"a", "b"}
        assert made.settled
        for group, offsets in made.looked.items():
            for partition, source in offsets.items():
                assert made.there[group][partition] == made.target_of(partition, source), group
        for partition, log in made.logs.items():
            left = [at for at in range(made.seen[partition]) if log[at] and at not in made.copies[partition]]
            assert left == [], "a record stayed behind"
    else:
        assert outcome == "failed"
        assert made.refusing == before.refusing
        assert made.record in (None, before.record)  # before.record: of a cutover that was done before
        if not made.members["target"]:  # a group with members there keeps its offsets there
            assert {name: at for name, at in made.there.items() if at} == before.there


DISTURBANCES = {
    "nothing happens": lambda made: None,
    "a plain producer writes": lambda made: made.write(A),
    "a super user writes": lambda made: made.write(A, by_force=True),
    "a super user writes elsewhere": lambda made: made.write(B, by_force=True),
    "a fenced producer comes back": lambda made: made.open.update(copier=B) if "b" not in made.refusing else None,
    "a group is moved": lambda made: made.offsets["billing"].update({A: 3}),
    "a consumer starts at the source": lambda made: made.members["source"].add("billing"),
    "a consumer starts at the target": lambda made: made.members["target"].add("report"),
    "the mirror stops": lambda made: setattr(made, "mirror_runs", False),
}
HARMLESS = ("nothing happens", "a plain producer writes", "a fenced producer comes back")
"""What comes before the refusal is copied, and what comes after it is refused."""

STEPS = steps_of(world())


def test_a_cutover_moves_groups_to_exactly_the_next_record():
    made = world()
    assert run(made) == ("done", None)
    assert made.copies == {A: {0: 1, 2: 3, 3: 5}, B: {}}
    assert made.there == {"billing": {A: 3, B: 1}, "report": {A: 7}}
    check(made, "done", world())


@pytest.mark.parametrize("what", DISTURBANCES)
def test_a_disturbance_at_any_step_of_a_cutover_moves_all_groups_or_none(what):
    outcomes = set()
    for step in range(STEPS):
        made = world()
        outcome, _ = run(made, lambda now, step=step, made=made: now == step and DISTURBANCES[what](made))
        check(made, outcome, world())
        outcomes.add(outcome)
    assert outcomes == ({"done"} if what in HARMLESS else {"done", "failed"})


@pytest.mark.parametrize("what", DISTURBANCES)
def test_a_cutover_killed_at_any_step_is_finished_or_undone_by_the_next(what):
    for step in range(STEPS):
        made = world()

        def kill(now, step=step):
            if now == step:
                raise Killed

        assert run(made, kill)[0] == "killed"
        was_done = made.record is not None and decode_record(made.record).state == "done"
        before = deepcopy(made) if was_done else world()  # a later one that fails leaves it so
        DISTURBANCES[what](made)
        outcome, _ = run(made)
        check(made, outcome, before)


def test_a_cutover_of_another_group_undoes_a_killed_one_unless_that_moved_its_group():
    """The cutover of billing is killed at each step, then one of report runs. If the killed one has committed billing's
    offset at the target, that offset stays, and so does the progress of billing's consumers since. Else none is there.
    """
    for step in range(STEPS):
        made, moved_on = world(), {}

        def kill(now, step=step):
            if now == step:
                raise Killed

        assert run(made, kill, ["billing"])[0] == "killed"
        if A in made.there.get("billing", {}):  # its consumers run at the target already, and commit 7
            made.there["billing"][A] = moved_on["billing"] = 7
        outcome, _ = run(made, groups=["report"])
        assert outcome == "done"
        assert made.there["report"] == {A: made.target_of(A, 4)}
        assert made.there.get("billing", {}).get(A) == moved_on.get("billing")


def test_a_cutover_stops_without_undoing_anything_if_a_second_one_begins():
    for step in range(STEPS):
        made, second = world(), []

        def another(now, step=step, made=made, second=second):
            if now == step:
                second.append(run_beside(made))

        outcome, _ = run(made, another)
        assert second == ["done"]
        assert outcome in ("overtaken", "done")  # done: the second began after the first one's last write
        check(made, "done", world())


def test_a_failing_cutover_takes_nothing_more_back_once_a_second_one_has_begun():
    second = []

    class OvertakenSides(FakeSides):
        async def allow_writes(self, topic, barrier):
            await super().allow_writes(topic, barrier)
            if not second:
                self.world.mirror_runs = True
                second.append(run_beside(self.world))

    made = world()
    made.mirror_runs = False
    with pytest.raises(Overtaken):
        asyncio.run(cut_over(OvertakenSides(made, lambda step: None), lambda line: None))
    assert second == ["done"]
    check(made, "done", world())


def run_beside(made):
    """Run a whole cutover within a step of another one. Returns "done"."""
    work = cut_over(FakeSides(made, lambda step: None), lambda line: None)
    with pytest.raises(StopIteration):  # nothing in it waits
        work.send(None)
    return "done"


@pytest.mark.parametrize("is_done", [False, True])
def test_a_cutover_whose_commit_had_no_answer_is_done_if_it_was_made_else_undone(is_done):
    class LosingSides(FakeSides):
        async def write(self, record, groups):
            if not groups or is_done:
                await super().write(record, groups)
            if groups:
                raise ClientError("no answer")

    made = world()
    try:
        asyncio.run(cut_over(LosingSides(made, lambda step: None), lambda line: None))
    except CutoverFailed:
        check(made, "failed", world())
        assert not is_done
    else:
        check(made, "done", world())
        assert is_done


def test_a_cutover_cancelled_at_any_step_is_undone_or_finished_by_the_next():
    for step in range(STEPS):
        made = world()

        def interrupt(now, step=step):
            if now == step:
                raise asyncio.CancelledError

        outcome = "failed"
        try:
            outcome, _ = run(made, interrupt)
        except asyncio.CancelledError:
            if made.record is not None:  # in the last steps: the next one finishes it
                outcome, _ = run(made)
        check(made, outcome, world())


def test_a_cutover_that_cannot_be_undone_reports_that_writes_are_still_refused():
    class DeadSides(FakeSides):
        async def drain(self, ends, tell):
            raise ClientError("the target does not answer")

        async def allow_writes(self, topic, barrier):
            raise ClientError("the source does not answer either")

    made = world()
    with pytest.raises(CutoverFailed) as failed:
        asyncio.run(cut_over(DeadSides(made, lambda step: None), lambda line: None))
    assert failed.value.now == "left"
    assert failed.value.problems[0].text == "the target does not answer"
    assert made.refusing == {"a", "b"}
    assert run(made)[0] == "done"


def test_a_cutover_that_fails_by_an_unexpected_error_is_undone_and_the_error_raised():
    class BrokenSides(FakeSides):
        async def read_maps(self):
            raise ZeroDivisionError

    made = world()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(cut_over(BrokenSides(made, lambda step: None), lambda line: None))
    check(made, "failed", world())

"""Bugs of a mirror: of its protocol, which the simulation of two brokers catches, as the model has them; and which
entries of its map it removes, what it takes for its own, and whom a cutover looks at.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from bisect import bisect_right
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from fencepost.client.mirror import machine, others
from fencepost.client.mirror.ahead import Ahead
from fencepost.client.mirror.cutover.looking import Looking
from fencepost.client.mirror.cutover.sides import AdminSides
from fencepost.client.mirror.leftovers import Leftovers
from fencepost.client.mirror.machine import Step
from fencepost.client.mirror.membership import Membership
from fencepost.client.mirror.positions import BatchMark, Position, encode_position, mark_of
from fencepost.client.mirror.task import MirrorTask
from fencepost.client.values import ConsumerGroupMetadata
from simulation.planting import around, breaks, caught_with_mirror, killed_by, replaced

EACH_ONCE = "mirror.md: Each committed record once"


@caught_with_mirror(1)
@breaks(EACH_ONCE)
def the_target_is_told_no_generation_as_if_the_group_were_on_the_source(stack: ExitStack) -> None:
    fence_of = machine.fence_of

    def unfenced(task: Any) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(fence_of(task).group_id, -1, "")

    replaced(stack, machine.fence_of, unfenced)


@caught_with_mirror(3)
@breaks(EACH_ONCE)
def positions_are_read_while_they_are_pending(stack: ExitStack) -> None:
    async def offsets(self: Any, partitions: Any) -> Any:
        return await self._group.committed(partitions, require_stable=False, timeout_ms=self._timeout_ms)

    async def nothing(self: Any, *, patience_ms: int = 0) -> None:
        """End no open transactions, as with a target before Kafka 3.0, which cannot list them. To end them would hide
        the bug.
        """

    replaced(stack, Membership.stable_offsets, offsets)
    replaced(stack, Leftovers.end_orphans, nothing)


@caught_with_mirror(1)
@breaks(EACH_ONCE)
def positions_are_those_in_memory_after_a_doubt(stack: ExitStack) -> None:
    def wrapper(doubt: Any) -> Any:
        async def doubted(self: Any) -> None:
            task = self._task
            await doubt(self)
            if task.step is Step.ADDED:
                self._task = replace(task, step=Step.READY, positions=task.following, following=())
                self._aheads = {tp: Ahead(tp, position) for tp, position in task.following}
                self._source.read(self._aheads)

        return doubted

    around(stack, MirrorTask._doubt, wrapper)


@caught_with_mirror(1)
@breaks("mirror.md: Records, their places in the map of offsets and the position of the mirror are one transaction")
def a_cycle_is_committed_without_its_positions_which_follow(stack: ExitStack) -> None:
    async def cycle(self: Any, chunks: Any) -> None:
        await self._ids.check({chunk.tp: chunk.following for chunk in chunks})
        producer = await self._started_producer()
        following = dict(self._task.positions) | {chunk.tp: chunk.following for chunk in chunks}
        gone = self._leftovers.gone(self._source.starts)
        self._task = machine.began(self._task)
        async with producer.transaction():
            await self._writer.write(producer, chunks, gone)
        await self._membership._group.commit({chunk.tp: encode_position(chunk.following) for chunk in chunks})
        self._task = machine.committed(machine.added(self._task, tuple(sorted(following.items()))))
        self._writer.committed()
        self._leftovers.removed(gone)
        self._count(chunks)

    replaced(stack, MirrorTask._cycle, cycle)


MAP = "tests/client/mirror/test_map_and_cutover.py"
EXACTLY_NEXT = "mirror.md: becomes the target offset of the first mirrored record at or above it"
RUN_AGAIN = "mirror.md: finishes what was committed, or takes back what was not"


@killed_by(MAP)
@breaks(EXACTLY_NEXT)
def the_newest_entry_of_the_map_is_removed_by_where_it_once_ended(stack: ExitStack) -> None:
    def gone(self: Any, starts: Any) -> Any:
        return [
            key
            for tp, position in self._positions.items()
            for firsts in [self._firsts.get(tp, {}).get(position.topic_id, [])]
            for key in self._keys(tp, position.topic_id, firsts[: bisect_right(firsts, starts.get(tp, 0) - 1)])
        ]

    replaced(stack, Leftovers.gone, gone)


@killed_by(MAP)
@breaks("mirror.md: to delete that group is to forget the mirror")
def the_map_of_an_earlier_copy_stays(stack: ExitStack) -> None:
    replaced(stack, Leftovers.of_earlier_copies, lambda self, partitions: [])


@killed_by(MAP)
@breaks(RUN_AGAIN)
def a_cutover_looks_only_at_groups_that_it_was_asked_for(stack: ExitStack) -> None:
    def wrapper(find: Any) -> Any:
        async def found(self: Any, topics: Any, *, waits_for_stable: bool, named: Any = None) -> Any:
            return await find(self, topics, waits_for_stable=waits_for_stable)

        return found

    around(stack, Looking.find_groups, wrapper)


@killed_by("tests/client/mirror/test_task.py")
@breaks("mirror.md: its open transaction is aborted by whoever takes them over")
def nobody_ends_what_a_dead_task_has_left_open(stack: ExitStack) -> None:
    async def nothing(self: Any, *, patience_ms: int = 0) -> None:
        return

    replaced(stack, Leftovers.end_orphans, nothing)


@killed_by("tests/client/mirror/test_positions.py")
@breaks("mirror.md: A topic that was made again, restored, cut")
def a_shorter_batch_that_ends_like_the_copied_one_is_taken_for_what_compaction_left(stack: ExitStack) -> None:
    def is_in(self: BatchMark, batch: Any) -> bool:
        now = mark_of(batch)
        is_shorter = batch.base_offset > self.first or self.is_compacted or now.is_compacted
        return now[-3:] == self[-3:] and now.last == self.last and (is_shorter or now.crc == self.crc)

    replaced(stack, BatchMark.is_in, is_in)


OTHERS = "tests/client/mirror/test_others.py"


@killed_by(OTHERS)
@breaks("mirror.md: that another mirror copies to the target, too")
def a_mirror_does_not_look_for_others_that_copy_the_same_topics(stack: ExitStack) -> None:
    async def nobody(target: Any, mirror: str, copies: Any, sources: Any) -> dict[str, str]:
        return {}

    replaced(stack, others.find_rivals, nobody)


@killed_by(OTHERS)
@breaks("mirror.md: that another mirror copies back to the source")
def a_mirror_does_not_look_for_others_that_copy_back(stack: ExitStack) -> None:
    async def nobody(source: Any, copies: Any) -> dict[str, str]:
        return {}

    replaced(stack, others.find_circles, nobody)


@killed_by(OTHERS)
@breaks("mirror.md: that was deleted on the target")
def a_position_counts_for_any_topic_of_the_name_on_the_target(stack: ExitStack) -> None:
    replaced(stack, Position.is_of_copy, lambda self, topic_id: True)


@killed_by(MAP)
@breaks(EXACTLY_NEXT)
def lost_entries_of_the_map_are_taken_for_removed_ones(stack: ExitStack) -> None:
    async def never(self: Any, partition: Any, known: Any, start: int) -> bool:
        return False

    replaced(stack, AdminSides._has_lost, never)


@killed_by(MAP)
@breaks("mirror.md: if the source was restored since it was copied")
def a_cutover_compares_only_the_lengths_of_the_source_and_its_copy(stack: ExitStack) -> None:
    async def nothing(self: Any, positions: Any) -> list[Any]:
        return []

    replaced(stack, AdminSides.find_replaced, nothing)

"""Carries a cutover out: one step after the other. If one of them fails, those before it are undone.

The rule: what a step does is written on the target before it is done (`record.py`). So a cutover that crashes anywhere
is continued by the next one: finished if its offsets are committed, else carried on or undone. A cutover that is fenced
by a later one changes nothing any more, and undoes nothing. Every step may be repeated.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Literal, Protocol

from ...errors import KafkaError, ProducerFencedError
from ...values import OffsetAndMetadata, TopicPartition
from ..findings import ANEW, Finding, fatal
from ..group_offsets import MapDamaged, PartitionMap
from .plan import (
    Barrier,
    Found,
    GroupFound,
    Offsets,
    Written,
    find_moved,
    find_overtaken,
    find_refusals,
    move_groups,
    refuse_written,
)
from .record import MAX_PACKED_BYTES, Carried, CutoverRecord, packed_size

Tell = Callable[[str], None]
LEFT = "writes are still refused at the source: run the cutover again, which finishes it or takes it back"


class CutoverFailed(Exception):
    """Raised with the problems, and with the state in which they left both clusters (`now`).

    nothing: it had not begun. taken back: all is as it was. left: writes are still refused, because taking that back
    failed, too. moved: the groups have their offsets at the target, and only what comes after that failed.
    """

    def __init__(
        self, problems: Sequence[Finding], now: Literal["nothing", "taken back", "left", "moved"] = "taken back"
    ) -> None:
        super().__init__("; ".join(each.text for each in problems))
        self.problems = tuple(problems)
        self.now = now


class Overtaken(Exception):
    """Raised if another cutover of the same mirror has begun: this one has stopped, and taken nothing back."""


class Sides(Protocol):
    """Both clusters, as far as a cutover needs them. Each call may be repeated; each may raise KafkaError."""

    async def take_record(self) -> CutoverRecord | None:
        """Fence every earlier cutover of the mirror, and return the record that the last one left; None if there is
        none.
        """
        ...

    async def write(self, record: CutoverRecord | None, groups: Mapping[str, Offsets]) -> None:
        """Write the record, None to remove it, and commit these offsets on the target, all in one transaction.

        Raises ProducerFencedError if a later cutover has begun.
        """
        ...

    async def look(self, groups: Collection[str] | None = None) -> Found:
        """Return topics, groups with their stable offsets, and the ends of the source. groups: the names of those to
        look at; None for those that this cutover is to move.
        """
        ...

    async def refuse_writes(self, topic: str, barrier: Barrier) -> None:
        """Have the source refuse every batch for the topic."""
        ...

    async def allow_writes(self, topic: str, barrier: Barrier) -> None:
        """Undo refuse_writes()."""
        ...

    async def end_transactions(self, groups: Sequence[str]) -> list[str]:
        """Wait until every broker refuses writes; then abort the transactions that are open in the topics or hold
        offsets of the groups, and wait until they have ended. Returns their transactional ids.
        """
        ...

    async def drain(self, ends: Mapping[TopicPartition, int], tell: Tell) -> list[Finding]:
        """Wait until the mirror's positions are at these ends. Returns the problem for which it gave up waiting; an
        empty list if all was copied.
        """
        ...

    async def written_since(self, ends: Mapping[TopicPartition, int]) -> list[Written]:
        """Return, for each source partition that has records at or above this end, the first of them."""
        ...

    async def read_maps(self) -> Mapping[TopicPartition, PartitionMap]:
        """Return, for each mirrored partition, the map of its source offsets to target offsets. It is empty for a
        partition without one.
        """
        ...

    async def target_ends(
        self, maps: Mapping[TopicPartition, PartitionMap]
    ) -> tuple[Mapping[TopicPartition, int], list[Written]]:
        """Return the ends of the target's partitions; and, for each partition in which somebody else has written
        after the mirror's last record, the first record of those.
        """
        ...

    async def put_back(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Set the group's offsets on the target; None deletes one."""
        ...

    async def settle_configs(self) -> None:
        """Give the topics on the target the settings that would have changed records while they were copied."""
        ...


async def cut_over(sides: Sides, tell: Tell) -> CutoverRecord:
    """Move the groups to the target. Returns the record of what was committed.

    Raises CutoverFailed, which says whether all was taken back, or Overtaken if another cutover of the mirror has
    begun.
    """
    try:
        return await _cut_over(sides, tell)
    except ProducerFencedError as error:
        raise Overtaken("another cutover of this mirror has begun") from error


async def _cut_over(sides: Sides, tell: Tell) -> CutoverRecord:
    """Do what cut_over() does, but raise ProducerFencedError if another cutover has begun."""
    record = await sides.take_record()
    if record is not None and record.state == "undoing":
        tell("an earlier cutover was not quite taken back: doing that first")
        await _undo(sides, record, tell)
        record = None
    if record is not None and record.state == "committed":
        tell("an earlier cutover has committed the offsets: finishing it")
        async with _or_undone(sides, record, tell):
            await _look_again(sides, record, is_resumed=True)
        done = await _finish(sides, record, tell)
        if (await sides.look()).groups.keys() <= record.groups.keys():
            return done
        tell("now the groups that the earlier cutover has not moved")
        record = None
    if record is not None and record.state == "done":
        record = None
    return await _cut_over_anew(sides, record, tell)


async def _cut_over_anew(sides: Sides, left: CutoverRecord | None, tell: Tell) -> CutoverRecord:
    """Carry out a cutover from its first step on. left: the record of one that crashed before it committed. Raises
    CutoverFailed.
    """
    found = await sides.look()
    mine = left.refused if left is not None else ()
    refused = tuple(sorted({*mine, *(each for each in found.topics if each not in found.refusing)}))
    record = CutoverRecord("begun", found.barrier, refused if found.barrier != "none" else mine)
    refusals = find_refusals(found)
    if refusals and left is None:
        raise CutoverFailed(refusals, "nothing")
    for name, group in sorted(found.groups.items()):
        if group.others:
            tell(f"{name}: its offsets in topics that are not mirrored stay: {', '.join(group.others)}")
    async with _or_undone(sides, record, tell):
        if refusals:
            raise CutoverFailed(refusals)
        await sides.write(record, {})
        for topic in record.refused:
            await sides.refuse_writes(topic, record.barrier)
            tell(f"{topic}: the source refuses writes")
        before, ends = await _stop(sides, found, tell)
        committed = await _prepare(sides, record, before, ends, tell)
    # If undone, an offset is put back only if the target has it as it was to be committed.
    async with _or_undone(sides, committed, tell):
        await _commit(sides, committed)
        tell(f"{len(committed.groups)} groups have their offsets at the target")
        await _look_again(sides, committed, is_resumed=False)
    return await _finish(sides, committed, tell)


async def _stop(sides: Sides, found: Found, tell: Tell) -> tuple[Found, Mapping[TopicPartition, int]]:
    """Abort the open transactions, and wait until the mirror has copied everything. Returns what was found when nothing
    was written any more, and the ends at that time. Raises CutoverFailed.
    """
    ended = await sides.end_transactions(sorted(found.groups))
    tell(f"aborted: {', '.join(ended)}" if ended else "no transaction was open")
    before = await sides.look()
    _check(find_refusals(before))
    _check(await sides.drain(before.ends, tell))
    tell("the mirror has copied everything")
    return before, before.ends


async def _prepare(
    sides: Sides, record: CutoverRecord, before: Found, ends: Mapping[TopicPartition, int], tell: Tell
) -> CutoverRecord:
    """Return the record to commit, after seeing that nothing has moved since `ends`. Raises CutoverFailed."""
    maps = await sides.read_maps()
    target_ends, foreign = await sides.target_ends(maps)
    now = await sides.look()
    written = await sides.written_since(ends)
    _check(
        [*refuse_written(written, "source"), *refuse_written(foreign, "target"), *find_moved(before.groups, now.groups)]
    )
    groups = {name: group.offsets for name, group in before.groups.items()}
    planned = move_groups(groups, maps, target_ends)
    _check(find_overtaken(now.groups, planned))
    tell("nothing was written meanwhile")
    carried = {name: _carried(now.groups[name], offsets) for name, offsets in planned.items()}
    committed = replace(record, state="committed", ends=ends, groups=carried)
    if (size := packed_size(committed)) > MAX_PACKED_BYTES:  # not even its undoing could be written then
        text = f"the offsets of {len(carried)} groups take {size:,} bytes in one record, compressed"
        raise CutoverFailed([fatal(text, "move the groups in several cutovers: each with a narrower --groups")])
    return committed


def _carried(group: GroupFound, planned: Offsets) -> dict[TopicPartition, Carried]:
    """Return what the record keeps of a group, by partition. planned: the offsets on the target."""
    return {
        partition: Carried(group.offsets[partition].offset, target, group.there.get(partition))
        for partition, target in planned.items()
    }


async def _commit(sides: Sides, record: CutoverRecord) -> None:
    """Commit the offsets and the record. If the outcome is unknown, reads the record on the target to find out; raises
    the error if it was not committed.
    """
    offsets = {name: {at: each.target for at, each in carried.items()} for name, carried in record.groups.items()}
    try:
        await sides.write(record, offsets)
    except ProducerFencedError:
        raise
    except KafkaError:
        left = await sides.take_record()
        if left is None or left.state != "committed":
            raise


async def _look_again(sides: Sides, record: CutoverRecord, *, is_resumed: bool) -> None:
    """Check that all is as it was before the offsets were committed. Raises CutoverFailed. is_resumed: an earlier run
    committed, so that new members at the target may have the committed offsets already.
    """
    now = await sides.look(record.groups)
    before = {
        name: GroupFound("", {partition: OffsetAndMetadata(each.source) for partition, each in carried.items()})
        for name, carried in record.groups.items()
    }
    after = {name: replace(group, members_there=()) if is_resumed else group for name, group in now.groups.items()}
    open_again = [
        Finding(True, f"writes to {topic} are allowed again at the source", "somebody took the refusal away: ask who")
        for topic in record.refused
        if topic in now.topics and topic not in now.refusing
    ]
    written = await sides.written_since(record.ends)
    _check([*open_again, *refuse_written(written, "source"), *find_moved(before, after)])


async def _finish(sides: Sides, record: CutoverRecord, tell: Tell) -> CutoverRecord:
    """Do what remains after the groups have moved. Returns the last record. Raises CutoverFailed, which says that the
    groups have moved.
    """
    done = replace(record, state="done")
    try:
        await sides.settle_configs()
        await sides.write(done, {})
    except ProducerFencedError:
        raise
    except KafkaError as error:
        raise CutoverFailed(
            [Finding(True, str(error), "run the cutover again: it does what remains")], "moved"
        ) from error
    tell("the groups go on at the target")
    return done


@asynccontextmanager
async def _or_undone(sides: Sides, record: CutoverRecord, tell: Tell) -> AsyncGenerator[None, None]:
    """Take back what the record says if the block fails, also when it is cancelled. Raises CutoverFailed.

    Raises ProducerFencedError, with nothing taken back, where another cutover has begun.
    """
    try:
        yield
    except ProducerFencedError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        problems = _problems_of(error)
        try:
            await _undo(sides, record, tell)
        except ProducerFencedError:
            raise
        except KafkaError as again:
            raise CutoverFailed((*problems, Finding(True, f"taking it back failed: {again}", LEFT)), "left") from error
        if not isinstance(error, CutoverFailed | MapDamaged | KafkaError):
            raise
        raise CutoverFailed(problems) from error


def _problems_of(error: BaseException) -> tuple[Finding, ...]:
    """Return the problems that an error of a cutover says."""
    if isinstance(error, CutoverFailed):
        return error.problems
    if isinstance(error, MapDamaged):
        return (Finding(True, f"the map of offsets is damaged: {error}", ANEW),)
    return (Finding(True, str(error) or "interrupted"),)


async def _undo(sides: Sides, record: CutoverRecord, tell: Tell) -> None:
    """Take back the refusals of writes and the offsets that the record has, and remove it.

    A change by Admin cannot be fenced. So the record is written again before each of them: that fails if another
    cutover has begun meanwhile, which may need what would be taken back.
    """
    undoing = replace(record, state="undoing")
    await sides.write(undoing, {})
    there: Mapping[str, GroupFound] = (await sides.look(record.groups)).groups if record.groups else {}
    for name, carried in sorted(record.groups.items()):
        group = there[name]
        if group.members_there:
            tell(f"group {name} has members at the target: its offsets there stay")
            continue
        ours = {at: each for at, each in carried.items() if group.there.get(at) == each.target}
        await sides.write(undoing, {})
        await sides.put_back(name, {at: each.before for at, each in ours.items()})
    for topic in record.refused:
        await sides.write(undoing, {})
        await sides.allow_writes(topic, record.barrier)
        tell(f"{topic}: writes are allowed again at the source")
    await sides.write(None, {})


def _check(problems: Sequence[Finding]) -> None:
    """Raise CutoverFailed if there are problems."""
    if problems:
        raise CutoverFailed(problems)

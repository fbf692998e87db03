"""What a cutover would do, and why it would not: from what was found on both sides. Pure.

A cutover moves consumer groups to the target, so that each goes on at exactly the next record. Nothing may be written
after the offsets that it commits there. So it first refuses all writes on the source (a barrier: to fence producers is
none, since they come back, and plain ones have no id), ends what is open, waits until the mirror has everything, looks
whether anything was written all the same, and commits the offsets of all groups in one transaction on the target. Then
it looks again. Whatever is not as it has to be takes back all it did.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...values import OffsetAndMetadata, TopicPartition
from ..findings import ANEW, Finding, fatal, named
from ..group_offsets import MapDamaged, PartitionMap

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Barrier = Literal["setting", "rule", "none"]
"""How the source refuses writes: the topic's setting (fencepost), a rule of access, or not at all."""


@dataclass(frozen=True)
class GroupFound:
    """A consumer group of the source, and what the target has of it.

    offsets: committed on the source, in mirrored topics. others: topics with offsets of the group that no mirror has.
    there: its offsets on the target, in mirrored topics. members, members_there: as people know them, "client@host".
    """

    kind: str
    offsets: Offsets
    others: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    there: Offsets = field(default_factory=dict[TopicPartition, OffsetAndMetadata])
    members_there: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """What a cutover has found before it does anything.

    topics: all that the mirror copies. refusing: those that refuse writes already. stopped: partitions that the mirror
    does not copy any more, and why. ends: the end of each source partition. producers_stopped: the user has said that
    nobody writes, so the source need not be able to refuse. partly: groups may have offsets in topics that the mirror
    does not copy; those stay.
    """

    topics: tuple[str, ...]
    groups: Mapping[str, GroupFound]
    barrier: Barrier
    refusing: frozenset[str]
    ends: Mapping[TopicPartition, int]
    stopped: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    producers_stopped: bool = False
    partly: bool = False


class Step(NamedTuple):
    """A step of the plan that is shown to people. undo: how a cutover that fails takes the step back; None if there is
    nothing to take back.
    """

    text: str
    undo: str | None = None


def find_refusals(found: Found) -> list[Finding]:
    """Return the problems for which a cutover must not begin; an empty list if it may begin."""
    if not found.topics:
        return [fatal("the mirror has copied no topic", "start fencepost mirror, and wait until it has caught up")]
    return [
        *_of_topics(found),
        *([] if found.partly else _of_others(found.groups)),
        *(problem for name, group in sorted(found.groups.items()) for problem in _of_group(name, group, found.ends)),
    ]


def _of_topics(found: Found) -> Iterator[Finding]:
    """Yield problems with the mirrored topics."""
    if not found.groups:
        yield fatal(
            "no consumer group of the source has the name and offsets in mirrored topics",
            "fencepost group list shows the groups; --groups takes a regular expression of the whole name",
        )
    for partition, why in sorted(found.stopped.items()):
        yield fatal(
            f"the mirror has stopped {partition}: {why}",
            f"mend that and start all tasks of the mirror again; what cannot be mended has to be copied anew: {ANEW}",
        )
    if found.barrier == "none" and not found.producers_stopped:
        yield fatal(
            "the source cannot refuse writes: it has no rules of access, and no topic setting for it",
            "give it an authorizer, or stop all producers and add --producers-stopped; what is written all the same "
            "before the offsets are committed is found, what comes later is not",
        )


def _of_others(groups: Mapping[str, GroupFound]) -> Iterator[Finding]:
    """Yield a problem for each group that has offsets in topics which the mirror does not copy."""
    for name, group in sorted(groups.items()):
        if group.others and group.kind != "share":
            yield fatal(
                f"group {name} has offsets in topics that the mirror does not copy: {named(group.others)}",
                "run fencepost mirror with --topics that has them, which finds a new topic within 30 s; or add "
                "--partly, and these offsets stay",
            )


def _of_group(name: str, group: GroupFound, ends: Mapping[TopicPartition, int]) -> Iterator[Finding]:
    """Yield problems with one group. ends: of the source's partitions."""
    if group.kind == "share":
        yield fatal(
            f"{name} is a share group, and what it has acknowledged cannot be moved",
            "let it finish at the source, and make a new one at the target, or leave it out of --groups",
        )
        return
    for members, where in ((group.members, "source"), (group.members_there, "target")):
        if members:
            yield fatal(
                f"group {name} has members at the {where}: {named(members)}", "stop its consumers on both sides first"
            )
    for partition, at in sorted(group.offsets.items()):
        if partition not in ends:
            yield fatal(
                f"group {name} has an offset in {partition}, which is not at the source",
                "the topic was made again with fewer partitions: delete the group's offsets in it",
            )
        elif at.offset > ends[partition]:
            yield fatal(
                f"group {name} is at offset {at.offset} of {partition}, which ends at {ends[partition]}",
                "the topic was cut or made again: set the group's offset with fencepost group seek",
            )


def steps(found: Found) -> list[Step]:
    """Return the steps of a cutover in order, each with the action that takes it back."""
    denied = [name for name in found.topics if name not in found.refusing]
    kept = [name for name in found.topics if name in found.refusing]
    word = "its setting fencepost.writes.refused" if found.barrier == "setting" else "a rule of access"
    begun = [Step(f"{name} refuses writes already: leave it so") for name in kept]
    if found.barrier == "none":
        why = "you said that its producers are stopped" if found.producers_stopped else "it cannot"
        begun = [Step(f"refuse nothing at the source: {why}")]
    else:
        begun += [
            Step(f"refuse writes to {name} at the source, by {word}", f"allow them again to {name}") for name in denied
        ]
    return [
        *begun,
        Step("abort the transactions that are open in these topics, and those that hold offsets of the groups"),
        Step("wait until the mirror has copied everything that is committed"),
        Step("see that nothing was written meanwhile, and that the groups stand still"),
        Step(f"commit the offsets of {len(found.groups)} groups at the target, all or none", "put back what was there"),
        Step("look again: nothing was written, no group has moved, none has members"),
        Step("give the topics at the target the settings that had to wait until all records were there"),
    ]


AFTERWARDS = (
    "a producer that had a request in the air does not know whether it was written: let it look at the target before "
    "it sends again"
)


class Move(NamedTuple):
    """Where a group goes on in a partition: its source offset, and its target offset; None if it is not known yet."""

    group: str
    partition: TopicPartition
    source: int
    target: int | None


def preview(
    groups: Mapping[str, GroupFound],
    maps: Mapping[TopicPartition, PartitionMap],
    target_ends: Mapping[TopicPartition, int],
    copied: Collection[TopicPartition],
) -> list[Move]:
    """Return where the groups would go on now. Raises MapDamaged.

    maps: the source offsets and target offsets of each partition. copied: the partitions that the mirror has copied to
    the end. In any other the target offset for a group that is after the last copied record is not known yet.
    """
    return [
        Move(
            name,
            partition,
            at.offset,
            _target_of(partition, at.offset, maps, target_ends)
            if partition in copied or at.offset < maps[partition].source_end
            else None,
        )
        for name, group in sorted(groups.items())
        for partition, at in sorted(group.offsets.items())
        if partition in maps  # of any other find_refusals() says why not
    ]


def _target_of(
    partition: TopicPartition,
    source: int,
    maps: Mapping[TopicPartition, PartitionMap],
    target_ends: Mapping[TopicPartition, int],
) -> int:
    """Return the target offset for a source offset of this partition. Raises MapDamaged that names the partition."""
    try:
        return maps[partition].target_of(source, target_ends[partition])
    except MapDamaged as error:
        raise MapDamaged(f"{partition}: {error}") from None


def planned_by(moves: Iterable[Move]) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """Return the offsets on the target that are known already, by group."""
    found: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for move in moves:
        if move.target is not None:
            found.setdefault(move.group, {})[move.partition] = OffsetAndMetadata(move.target)
    return found


def move_groups(
    groups: Mapping[str, Offsets],
    maps: Mapping[TopicPartition, PartitionMap],
    target_ends: Mapping[TopicPartition, int],
) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """Return the offsets to commit on the target, by group. The metadata of an offset is kept; its leader epoch is not,
    because it is one of the source.

    maps: the source offsets and target offsets of each partition, complete up to the source's end. target_ends: the
    ends of the target's partitions. Raises MapDamaged.
    """
    return {
        name: {
            partition: OffsetAndMetadata(_target_of(partition, at.offset, maps, target_ends), at.metadata)
            for partition, at in sorted(offsets.items())
        }
        for name, offsets in sorted(groups.items())
    }


def find_overtaken(groups: Mapping[str, GroupFound], planned: Mapping[str, Offsets]) -> list[Finding]:
    """Return a problem for each group that has already read on at the target beyond the offset to commit, which would
    have it read records again.
    """
    return [
        fatal(
            f"group {name} stands at offset {group.there[partition].offset} of {partition} at the target, after "
            f"{at.offset} where it would go on: it has read there already",
            "leave it out of --groups; or delete the group at the target, if what it read there does not count",
        )
        for name, group in sorted(groups.items())
        for partition, at in sorted(planned.get(name, {}).items())
        if partition in group.there and group.there[partition].offset > at.offset
    ]


def find_moved(before: Mapping[str, GroupFound], after: Mapping[str, GroupFound]) -> list[Finding]:
    """Return a problem for each group that is not as it was: with other offsets on the source, or with members on one
    of the sides.
    """
    none = GroupFound("", {})
    pairs = {name: (before.get(name, none), after.get(name, none)) for name in sorted({*before, *after})}
    moved = [
        fatal(
            f"group {name} has committed offset {at(now, partition)} of {partition} at the source meanwhile; "
            f"it was {at(then, partition)}",
            "somebody commits for it who is no member: stop that, and run the cutover again",
        )
        for name, (then, now) in pairs.items()
        for partition in sorted({*then.offsets, *now.offsets})
        if at(then, partition) != at(now, partition)
    ]
    joined = [
        fatal(
            f"group {name} has got members at the {where} meanwhile: {named(members)}",
            "stop its consumers on both sides, and run the cutover again",
        )
        for name, group in sorted(after.items())
        for members, where in ((group.members, "source"), (group.members_there, "target"))
        if members
    ]
    return moved + joined


def at(group: GroupFound, partition: TopicPartition) -> int | None:
    """Return the group's offset on the source; None if it has none."""
    found = group.offsets.get(partition)
    return None if found is None else found.offset


class Written(NamedTuple):
    """A record that should not be there: where, when it says it was made, and by whom, as far as that is known."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int
    producer_id: int
    transactional_id: str | None = None

    @property
    def by(self) -> str:
        """Return a text that names the producer, as far as it is known."""
        if self.transactional_id is not None:
            return f"the transactional producer {self.transactional_id}"
        if self.producer_id >= 0:
            return f"an idempotent producer (id {self.producer_id})"
        return "a producer without an id"


def refuse_written(written: Iterable[Written], side: Literal["source", "target"]) -> list[Finding]:
    """Return a problem for each of these records: written to the source during the cutover, or to the target by
    somebody other than the mirror.
    """
    hint = {
        "source": "its user is a super user, or writes are not refused: stop it, and run the cutover again",
        "target": "only the mirror may write there before the cutover: stop it, and mirror into a new topic",
    }[side]
    return [
        fatal(f"{one.by} has written to {one.partition} at the {side}, at offset {one.offset}", hint) for one in written
    ]

"""The bank of bugs in share groups: who is in them, what they begin and forget, and what their members are given.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack
from typing import Any

from fencepost.broker.groups.kinds import GroupKinds
from fencepost.broker.groups.share import assignor, machine
from fencepost.broker.groups.share.coordinator import ShareGroups
from fencepost.broker.groups.share.machine import ShareGroup
from fencepost.broker.groups.share.records import Change
from fencepost.broker.share.partitions import SharePartitions
from simulation.planting import _around, around, breaks, killed_by, replaced

ASSIGNOR, COORDINATOR, MACHINE, REPLAY = (
    f"tests/broker/groups/share/test_{name}.py" for name in ("assignor", "coordinator", "machine", "replay")
)

# ---- share partitions ----------------------------------------------------------------------------------------


@killed_by(REPLAY)
@breaks("ARCHITECTURE.md: Durable state changes only by applying a logged unit")
def share_partitions_are_begun_in_memory_alone(stack: ExitStack) -> None:
    def wrapper(keep: Any) -> Any:
        def kept(self: Any, group: Any, changes: Any, states: Any) -> None:
            keep(self, group, changes, ())
            for each in states:
                each.apply()

        return kept

    around(stack, ShareGroups._keep, wrapper)


@killed_by(REPLAY)
@breaks("ARCHITECTURE.md: Durable state changes only by applying a logged unit")
def a_topic_that_is_deleted_stays_in_the_records_of_its_groups(stack: ExitStack) -> None:
    def wrapper(topic_goes: Any) -> Any:
        return lambda self, topic: ([], topic_goes(self, topic)[1])

    around(stack, ShareGroups._topic_goes, wrapper)


@killed_by(COORDINATOR)
@breaks("ARCHITECTURE.md: which partitions each member may ask for")
def a_topic_that_is_deleted_stays_in_its_groups(stack: ExitStack) -> None:
    replaced(stack, ShareGroups._topic_goes, lambda self, topic: ([], lambda: None))


@killed_by(COORDINATOR)
@breaks("settings.md: Where the group begins in a topic that it has not read")
def a_group_that_is_deleted_leaves_its_share_partitions(stack: ExitStack) -> None:
    def wrapper(delete: Any) -> Any:
        return lambda self, *given: delete(self, *given)._replace(apply=lambda: None)

    around(stack, SharePartitions.delete, wrapper)


@killed_by(COORDINATOR)
@breaks("guarantees.md: lost write: acknowledged, never read")
def a_partition_that_a_topic_gets_later_begins_as_the_group_is_set(stack: ExitStack) -> None:
    """Records that are written before the group knows the partition are never delivered. Apache Kafka 4.3 behaves like
    this mutant.
    """

    def wrapper(missing: Any) -> Any:
        def found(self: Any, topics: Any = ()) -> Any:
            return (each._replace(is_new=False) for each in missing(self, topics))

        return found

    around(stack, ShareGroup.missing, wrapper)


@killed_by(MACHINE)
@breaks("ARCHITECTURE.md: which partitions each member may ask for")
def partitions_are_assigned_before_they_are_begun(stack: ExitStack) -> None:
    def wrapper(simple_steps: Any) -> Any:
        def steps(members: Any, topics: Any, assignable: Any) -> Any:
            return simple_steps(members, topics, {key: frozenset(range(topics[key].partitions)) for key in topics})

        return steps

    _around(stack, machine, "simple_steps", wrapper)


# ---- members -------------------------------------------------------------------------------------------------


@killed_by(MACHINE)
@breaks("guarantees.md: stale generation or fenced member commits")
def the_epoch_before_is_refused(stack: ExitStack) -> None:
    def wrapper(check: Any) -> Any:
        return lambda self, beat, current: check(self, beat, current._replace(previous_epoch=current.epoch))

    around(stack, ShareGroup._check_epoch, wrapper)


@killed_by(MACHINE)
@breaks("guarantees.md: stale generation or fenced member commits")
def any_epoch_of_a_member_is_good(stack: ExitStack) -> None:
    replaced(stack, ShareGroup._check_epoch, lambda self, beat, current: self.check_member(beat.member_id))


@killed_by(MACHINE)
@breaks("ARCHITECTURE.md: Durable state changes only by applying a logged unit")
def what_could_not_be_kept_stays_in_memory(stack: ExitStack) -> None:
    def change(self: Any, kind: Any, name: str, value: Any) -> None:
        made = Change(kind, name, value)
        self._made.append((made, made))
        self.apply(made)

    replaced(stack, ShareGroup._change, change)


@killed_by(MACHINE)
@breaks("settings.md: After how long without a heartbeat a member of a share group is removed")
def members_of_share_groups_are_never_removed(stack: ExitStack) -> None:
    replaced(stack, ShareGroup.expire, lambda self, now_ms: None)


@killed_by(COORDINATOR)
@breaks("settings.md: `consumer.…` is for groups of the newer protocol")
def a_share_group_takes_members_of_other_protocols(stack: ExitStack) -> None:
    replaced(stack, GroupKinds._check_no_share_group, lambda self, group_id: None)


@killed_by(COORDINATOR)
@breaks("settings.md: `consumer.…` is for groups of the newer protocol")
def a_group_of_another_kind_takes_members_of_share_groups(stack: ExitStack) -> None:
    replaced(stack, GroupKinds._check_share, lambda self, group_id: None)


@killed_by(ASSIGNOR)
@breaks("ARCHITECTURE.md: which partitions each member may ask for")
def all_members_read_all_partitions(stack: ExitStack) -> None:
    def share(places: Any, subscribers: Any, members: Any, given: Any) -> Any:
        for index in subscribers:
            given[index].update(places)
            yield 1

    replaced(stack, assignor._share, share)

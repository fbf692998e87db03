"""The bank of bugs in share groups: who is in them, what they begin and forget, and what their members are given."""

from contextlib import ExitStack
from typing import Any

from fencepost.broker.groups.kinds import GroupKinds
from fencepost.broker.groups.share import assignor
from fencepost.broker.groups.share.coordinator import ShareGroups
from fencepost.broker.groups.share.machine import ShareGroup
from simulation.code_mutants import _edited, killed_by
from simulation.mutants import _around, _replaced

ASSIGNOR, COORDINATOR, MACHINE, REPLAY = (
    f"tests/broker/groups/share/test_{name}.py" for name in ("assignor", "coordinator", "machine", "replay")
)

# ---- share partitions ----------------------------------------------------------------------------------------


@killed_by(REPLAY)
def share_partitions_are_begun_in_memory_alone(stack: ExitStack) -> None:
    _edited(stack, ShareGroups, "_keep", "[*parts, *(part for each in states for part in each.parts)]", "parts")


@killed_by(REPLAY)
def a_topic_that_is_deleted_stays_in_the_records_of_its_groups(stack: ExitStack) -> None:
    _edited(stack, ShareGroups, "_topic_goes", "return unit_parts, apply", "return [], apply")


@killed_by(COORDINATOR)
def a_topic_that_is_deleted_stays_in_its_groups(stack: ExitStack) -> None:
    _replaced(stack, ShareGroups, "_topic_goes", lambda self, topic: ([], lambda: None))


@killed_by(COORDINATOR)
def a_group_that_is_deleted_leaves_its_share_partitions(stack: ExitStack) -> None:
    _edited(stack, ShareGroups, "delete", "    states.apply()\n", "")


@killed_by(COORDINATOR)
def a_partition_that_a_topic_gets_later_begins_as_the_group_is_set(stack: ExitStack) -> None:
    """As in Kafka 4.3: what comes before the group sees it is never delivered."""

    def wrapper(missing: Any) -> Any:
        def found(self: Any, topics: Any = ()) -> Any:
            return (each._replace(is_new=False) for each in missing(self, topics))

        return found

    _around(stack, ShareGroup, "missing", wrapper)


@killed_by(MACHINE)
def partitions_are_assigned_before_they_are_begun(stack: ExitStack) -> None:
    has = "initialized[key].partitions if key in initialized else frozenset()"
    _edited(stack, ShareGroup, "_assignment_steps", has, "frozenset(range(shapes[key].partitions))")


# ---- members -------------------------------------------------------------------------------------------------


@killed_by(MACHINE)
def the_epoch_before_is_refused(stack: ExitStack) -> None:
    _edited(stack, ShareGroup, "_check_epoch", "(current.epoch, current.previous_epoch)", "(current.epoch,)")


@killed_by(MACHINE)
def any_epoch_of_a_member_is_good(stack: ExitStack) -> None:
    _replaced(stack, ShareGroup, "_check_epoch", lambda self, beat, current: self.check_member(beat.member_id))


@killed_by(MACHINE)
def what_could_not_be_kept_stays_in_memory(stack: ExitStack) -> None:
    _edited(stack, ShareGroup, "_change", "self.known(kind, name)", "change")


@killed_by(MACHINE)
def members_of_share_groups_are_never_removed(stack: ExitStack) -> None:
    _replaced(stack, ShareGroup, "expire", lambda self, now_ms: None)


@killed_by(COORDINATOR)
def a_share_group_takes_members_of_other_protocols(stack: ExitStack) -> None:
    _replaced(stack, GroupKinds, "_check_no_share_group", lambda self, group_id: None)


@killed_by(COORDINATOR)
def a_group_of_another_kind_takes_members_of_share_groups(stack: ExitStack) -> None:
    _replaced(stack, GroupKinds, "_check_share", lambda self, group_id: None)


@killed_by(ASSIGNOR)
def all_members_read_all_partitions(stack: ExitStack) -> None:
    _edited(stack, assignor, "_share", "-(-len(subscribers) // len(places))", "len(subscribers)")

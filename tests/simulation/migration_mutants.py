"""The bank of bugs in groups that change between the classic and the newer protocol while members are in them.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack
from typing import Any
from unittest import mock

from fencepost.broker.groups import group_records
from fencepost.broker.groups.assigned.topic_view import metadata_hash
from fencepost.broker.groups.consumer import classic_members, migration
from fencepost.broker.groups.consumer.classic_members import MixedGroup
from fencepost.broker.groups.consumer.records import Change, GroupEpoch, Kind
from fencepost.protocol.errors import ErrorCode, KafkaError
from simulation.planting import _around, around, breaks, killed_by, replaced

CLASSIC_MEMBERS = "tests/broker/groups/consumer/test_classic_members.py"
MIGRATION = "tests/broker/groups/consumer/test_migration.py"

# ---- conversions ---------------------------------------------------------------------------------------------


def _other_changes(stack: ExitStack, other: Any) -> None:
    """Let an upgrade make other(its changes, the topics) instead of its changes."""
    around(stack, migration._upgraded, lambda make: lambda group, topics: other(make(group, topics), topics))


@killed_by(CLASSIC_MEMBERS)
@breaks("sdk.md: Offsets, epochs and transactions go on")
def an_upgrade_keeps_the_classic_group_in_the_log(stack: ExitStack) -> None:
    _other_changes(stack, lambda changes, topics: changes[1:])


@killed_by(CLASSIC_MEMBERS)
@breaks("guarantees.md: two owners of a partition in one generation")
def what_members_read_is_free_after_an_upgrade(stack: ExitStack) -> None:
    _other_changes(stack, lambda changes, topics: [change for change in changes if change.kind is not Kind.CURRENT])


@killed_by(CLASSIC_MEMBERS)
@breaks("guarantees.md: two owners of a partition in one generation")
def what_is_read_in_a_cooperative_rebalance_is_free_after_an_upgrade(stack: ExitStack) -> None:
    """Others get partitions that a cooperative member has not given up yet. Apache Kafka behaves like this mutant."""
    _around(stack, migration, "read_subscription", lambda read: lambda metadata: read(metadata)._replace(owned={}))


@killed_by(CLASSIC_MEMBERS)
@breaks("sdk.md: Offsets, epochs and transactions go on")
def an_upgrade_in_a_rebalance_makes_no_epoch(stack: ExitStack) -> None:
    """Apache Kafka behaves like this mutant if the first heartbeat is of a static member that subscribed to the same
    topics before.
    """

    def known(changes: list[Change], topics: Any) -> list[Change]:
        names = {name for each in changes if each.kind is Kind.SUBSCRIPTION for name in each.value.topics}  # type: ignore[union-attr]
        return [
            change._replace(value=GroupEpoch(change.value.epoch, metadata_hash(topics, names)))  # type: ignore[union-attr]
            if change.kind is Kind.EPOCH
            else change
            for change in changes
        ]

    _other_changes(stack, known)


def _other_hand_over(stack: ExitStack, **wrong: Any) -> None:
    _around(
        stack,
        classic_members,
        "handed_over",
        lambda make: lambda *about, **more: make(*about, **more)._replace(**wrong),
    )


@killed_by(CLASSIC_MEMBERS)
@breaks("sdk.md: Offsets, epochs and transactions go on")
def a_downgrade_leaves_the_consumer_group_in_the_log(stack: ExitStack) -> None:
    _other_hand_over(stack, tombstones=())


@killed_by(CLASSIC_MEMBERS)
@breaks("sdk.md: members of both protocols share the partitions")
def a_group_that_came_back_is_not_assigned_anew(stack: ExitStack) -> None:
    _other_hand_over(stack, rebalance=False)


@killed_by(MIGRATION)
@breaks("sdk.md: members of both protocols share the partitions")
def a_group_that_a_successor_took_back_is_not_assigned_anew(stack: ExitStack) -> None:
    """A member of that group that still waits for partitions gets none."""

    def wrapper(make: Any) -> Any:
        def handed_over(*about: Any, was_replaced: bool) -> Any:
            return make(*about, was_replaced=was_replaced)._replace(rebalance=not was_replaced)

        return handed_over

    stack.enter_context(mock.patch.object(classic_members, "handed_over", wrapper(classic_members.handed_over)))


@killed_by(MIGRATION)
@breaks("sdk.md: Offsets, epochs and transactions go on")
def a_restart_forgets_that_a_group_came_back(stack: ExitStack) -> None:
    """Apache Kafka behaves like this mutant: nobody gets the partitions of the last member of the newer protocol."""

    def wrapper(read: Any) -> Any:
        return lambda value: read(value)._replace(must_rebalance=False)

    around(stack, group_records.read_value, wrapper)


@killed_by(CLASSIC_MEMBERS)
@breaks("sdk.md: members of both protocols share the partitions")
def a_group_goes_back_while_members_of_the_newer_protocol_are_in_it(stack: ExitStack) -> None:
    def go_on(self: Any) -> None:
        leaves = [each for each, known in self.subscriptions.items() if known.classic is None]
        for member_id in leaves:
            self._forget(member_id)
        if not (self._may_go_back and self._go_back(was_replaced=False)):
            self._next_epoch()

    replaced(stack, MixedGroup._go_on, go_on)


@killed_by(MIGRATION)
@breaks("sdk.md: Offsets, epochs and transactions go on")
def a_group_without_a_generation_becomes_one_of_epoch_0(stack: ExitStack) -> None:
    stack.enter_context(mock.patch.object(migration, "FIRST_EPOCH", 0))


# ---- classic members -----------------------------------------------------------------------------------------


@killed_by(MIGRATION)
@breaks("sdk.md: members of both protocols share the partitions")
def a_member_may_name_only_the_protocol_it_likes_best(stack: ExitStack) -> None:
    """Apache Kafka behaves like this mutant, even if the group had chosen another protocol before its conversion."""

    def wrapper(sync: Any) -> Any:
        def synced(self: Any, asked: Any, now_ms: int) -> Any:
            subscription = self.subscriptions[asked.member_id]
            if asked.protocol not in (None, subscription.classic.protocols[0][0]):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return sync(self, asked, now_ms)

        return synced

    around(stack, MixedGroup.sync, wrapper)


@killed_by(MIGRATION)
@breaks("sdk.md: members of both protocols share the partitions")
def who_takes_a_group_back_is_given_the_protocol_it_likes_best(stack: ExitStack) -> None:
    """Apache Kafka behaves like this mutant, even if the classic group has chosen another protocol."""

    def wrapper(join: Any) -> Any:
        def joined(self: Any, asked: Any, now_ms: int, wall_ms: int, new_id: str) -> Any:
            return join(self, asked, now_ms, wall_ms, new_id)._replace(protocol=asked.protocols[0][0])

        return joined

    around(stack, MixedGroup.join, wrapper)


@killed_by(CLASSIC_MEMBERS)
@breaks("guarantees.md: two owners of a partition in one generation")
def what_a_joining_member_owns_is_not_looked_at(stack: ExitStack) -> None:
    around(stack, MixedGroup._beat, lambda make: lambda *about: make(*about)._replace(owned={}))


@killed_by(CLASSIC_MEMBERS)
@breaks("guarantees.md: stale generation or fenced member commits")
def any_generation_of_a_classic_member_is_good(stack: ExitStack) -> None:
    def wrapper(judge: Any) -> Any:
        def judged(self: Any, caller: Any) -> Any:
            return judge(self, caller._replace(generation=self.current(caller.member_id).epoch))

        return judged

    around(stack, MixedGroup._judge, wrapper)


@killed_by(CLASSIC_MEMBERS)
@breaks("sdk.md: members of both protocols share the partitions")
def members_without_a_common_protocol_are_let_in(stack: ExitStack) -> None:
    replaced(stack, MixedGroup._check_join, lambda self, asked: None)


@killed_by(CLASSIC_MEMBERS)
@breaks("sdk.md: members of both protocols share the partitions")
def a_member_that_has_to_join_again_has_all_the_time(stack: ExitStack) -> None:
    def wrapper(must: Any) -> Any:
        return lambda self, member_id, subscription, now_ms: must(self, member_id, subscription, now_ms + (1 << 40))

    around(stack, MixedGroup._must_join, wrapper)


@killed_by(CLASSIC_MEMBERS)
@breaks("sdk.md: members of both protocols share the partitions")
def a_member_that_waits_for_a_partition_is_not_told_when_it_is_free(stack: ExitStack) -> None:
    replaced(
        stack,
        MixedGroup._gets_further_by_joining,
        lambda self, member_id: self.current(member_id).epoch < self.target_epoch.epoch,
    )


@killed_by(CLASSIC_MEMBERS)
@breaks("sdk.md: members of both protocols share the partitions")
def classic_members_alone_make_no_target(stack: ExitStack) -> None:
    replaced(stack, MixedGroup.make_target, lambda self, now_ms, wall_ms: None)

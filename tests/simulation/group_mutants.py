"""The bank of bugs in groups whose broker assigns the partitions (KIP-848), on both sides.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

import asyncio
from contextlib import ExitStack
from typing import Any
from unittest import mock

from fencepost.broker.groups.consumer import reconciling
from fencepost.broker.groups.consumer.coordinator import ConsumerGroups
from fencepost.broker.groups.consumer.machine import ConsumerGroup
from fencepost.broker.groups.consumer.records import Kind
from fencepost.broker.groups.consumer.rights import UsersRoster
from fencepost.broker.groups.consumer.roster import Roster
from fencepost.broker.groups.kinds import GroupKinds
from fencepost.broker.groups.offset_log import GroupOffsets
from fencepost.broker.groups.records import Place
from fencepost.client.group.consumer_membership import ConsumerMembership
from simulation.planting import _around, around, breaks, killed_by, mutant, replaced

RIGHTS = "tests/broker/groups/consumer/test_rights.py"

# ---- the broker ----------------------------------------------------------------------------------------------


def _check_commits(stack: ExitStack, is_good: Any) -> None:
    """Let commits pass without a check if is_good(group, member's id, its epoch, the request's version)."""

    def wrapper(check: Any) -> Any:
        def checked(self: Any, member_id: str, instance_id: Any, epoch: int, *more: Any, version: Any) -> None:
            if not is_good(self, member_id, epoch, version):
                check(self, member_id, instance_id, epoch, *more, version=version)

        return checked

    _around(stack, ConsumerGroup, "check_commit", wrapper)


@killed_by("tests/broker/groups/consumer/test_reconciling.py")
@breaks("sdk.md: only the partitions that move stop")
def who_drops_a_topic_has_nothing_else_to_give_up(stack: ExitStack) -> None:
    replaced(stack, reconciling.merge, lambda one, other: other)


@killed_by("tests/broker/groups/test_coordinator.py")
@breaks("guarantees.md: A coordinator's log is checked as a whole before it is used")
def newer_members_are_judged_though_the_log_of_their_group_is_offline(stack: ExitStack) -> None:
    def wrapper(heartbeat: Any) -> Any:
        def judged(self: Any, group_id: str, beat: Any) -> Any:
            with mock.patch.object(self._offsets, "check_online"):
                return heartbeat(self, group_id, beat)

        return judged

    around(stack, GroupKinds.heartbeat, wrapper)


@killed_by("tests/broker/groups/test_offset_log.py")
@breaks("guarantees.md: consumers see a transaction as a whole or not at all")
def an_offset_that_is_only_pending_is_not_deleted(stack: ExitStack) -> None:
    def wrapper(delete: Any) -> Any:
        def deleted(self: Any, group: str, keys: Any) -> None:
            delete(self, group, [key for key in keys if self.state.get(Place(group, *key))])

        return deleted

    around(stack, GroupOffsets.delete, wrapper)


@killed_by(RIGHTS)
@breaks("security.md: a member is given partitions of topics that it may read and describe")
def rights_that_change_move_no_partitions(stack: ExitStack) -> None:
    replaced(stack, UsersRoster._rights_changed, property(lambda self: False))


@killed_by(RIGHTS)
@breaks("security.md: a member is given partitions of topics that it may read and describe")
def what_is_free_is_given_to_whom_may_not_know_of_it_any_more(stack: ExitStack) -> None:
    def may_be_given(self: Any, member_id: str, topic_id: bytes, partition: int) -> bool:
        return bool(self.is_free(topic_id, partition))

    replaced(stack, UsersRoster._may_be_given, may_be_given)


@killed_by(RIGHTS)
@breaks("security.md: a member is given partitions of topics that it may read and describe")
def a_pattern_matches_what_no_member_may_know_of(stack: ExitStack) -> None:
    replaced(stack, UsersRoster.is_seen, lambda self, regex, topic: True)


@mutant
@breaks("guarantees.md: stale generation or fenced member commits")
def offsets_in_a_transaction_need_no_member(stack: ExitStack) -> None:
    _check_commits(stack, lambda group, member_id, epoch, version: version is None)


@mutant
@breaks("guarantees.md: stale generation or fenced member commits")
def offsets_need_no_member(stack: ExitStack) -> None:
    _check_commits(stack, lambda group, member_id, epoch, version: member_id not in group.subscriptions)


@mutant
@breaks("guarantees.md: stale generation or fenced member commits")
def any_older_epoch_is_good(stack: ExitStack) -> None:
    """KIP-1251 without its lower bound: an epoch from before the member got the partition is accepted as well."""
    _check_commits(stack, lambda group, member_id, epoch, version: epoch <= group.current(member_id).epoch)


@mutant
@breaks("guarantees.md: stale generation or fenced member commits")
def any_newer_epoch_is_good(stack: ExitStack) -> None:
    _check_commits(stack, lambda group, member_id, epoch, version: epoch >= group.current(member_id).epoch)


@mutant
@breaks("guarantees.md: two owners of a partition in one generation")
def partitions_are_given_before_they_are_given_up(stack: ExitStack) -> None:
    replaced(stack, Roster.is_free, lambda self, topic_id, partition: True)


@mutant
@breaks("guarantees.md: stale generation or fenced member commits")
def the_epochs_of_members_are_kept_after_the_answer(stack: ExitStack) -> None:
    def wrapper(keep: Any) -> Any:
        def later(self: Any, group: Any, changes: Any) -> None:
            asyncio.get_running_loop().call_later(0.3, keep, self, group, list(changes))

        return later

    around(stack, ConsumerGroups._keep, wrapper)


@mutant
@breaks("guarantees.md: stale generation or fenced member commits")
def the_epochs_of_members_are_not_read_at_start(stack: ExitStack) -> None:
    def wrapper(start: Any) -> Any:
        def started(self: Any) -> None:
            for kept in self._loaded.values():
                for key in [key for key in kept if key[0] is Kind.CURRENT]:
                    del kept[key]
            start(self)

        return started

    _around(stack, ConsumerGroups, "start", wrapper)


@killed_by("tests/broker/groups/consumer/test_coordinator.py")
@breaks("settings.md: How long offsets of a group that nobody is in are kept")
def offsets_of_a_group_that_was_left_are_as_old_as_their_commits(stack: ExitStack) -> None:
    """Their retention counts from the commit, not from when the last member left. Apache Kafka does this in groups of
    the newer protocol; the mutant, too, is wrong in these alone.
    """
    replaced(stack, ConsumerGroups._dated, lambda self, change: change)


@mutant
@breaks("sdk.md: only the partitions that move stop")
def a_restart_ends_the_sessions_of_members(stack: ExitStack) -> None:
    def wrapper(begin: Any) -> Any:
        return lambda self, now_ms: begin(self, now_ms - self._rules().session_timeout_ms)

    around(stack, ConsumerGroup.begin, wrapper)


@mutant
@breaks("guarantees.md: stale generation or fenced member commits")
def an_epoch_goes_back_at_a_restart(stack: ExitStack) -> None:
    def wrapper(begin: Any) -> Any:
        def begun(self: Any, now_ms: int) -> None:
            for member_id, current in list(self.currents.items()):
                self.currents[member_id] = current._replace(epoch=max(1, current.epoch - 1))
            begin(self, now_ms)

        return begun

    around(stack, ConsumerGroup.begin, wrapper)


# ---- the SDK -------------------------------------------------------------------------------------------------


@killed_by("tests/client/group/test_consumer_membership.py")
@breaks("sdk.md: only the partitions that move stop")
def sdk_what_is_withdrawn_before_a_poll_is_not_reported(stack: ExitStack) -> None:
    """The broker waits until the rebalance timeout for the member to report that it gave these partitions up."""

    def wrapper(acknowledge: Any) -> Any:
        def unaware(self: Any) -> None:
            self._offered = frozenset()
            acknowledge(self)

        return unaware

    around(stack, ConsumerMembership._acknowledge, wrapper)


@killed_by("tests/client/group/test_consumer_group.py")
@breaks("sdk.md: only the partitions that move stop")
def sdk_a_fenced_member_is_not_left(stack: ExitStack) -> None:
    """It sends no heartbeat that leaves the group: its partitions wait for the end of its session, and so does a static
    successor.
    """

    def wrapper(leave: Any) -> Any:
        return lambda self, state, *, is_known=False: leave(self, state)

    around(stack, ConsumerMembership._leave, wrapper)

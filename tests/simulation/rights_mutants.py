"""The bank of bugs, in the rights of users: checks that are missing, and rights that outlive their end.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from contextlib import ExitStack
from typing import Any

from fencepost.broker.groups.assigned.rights import MembersRights, View
from fencepost.broker.groups.consumer.classic_members import MixedGroup
from fencepost.broker.groups.consumer.rights import UsersRoster
from fencepost.broker.requests.group_requests import HIDDEN, SeenGroups
from fencepost.broker.security.access import Access
from fencepost.broker.security.acls import Operation, ResourceType
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.credentials import ScramUsers
from fencepost.broker.security.security_log import SecurityLog
from fencepost.broker.topics.partition import Partition
from fencepost.protocol.errors import ErrorCode, KafkaError
from simulation.planting import around, breaks, killed_by, mutant, replaced
from simulation.security_mutants import answers_outlive_the_rule_that_is_removed


def _always(stack: ExitStack, operation: Operation, kind: ResourceType) -> None:
    """Allow this operation to everybody, on all resources of this kind."""

    def wrapper(allows: Any) -> Any:
        def allowed(self: Any, session: Any, asked: Any, resource_type: Any, name: str) -> bool:
            return (asked is operation and resource_type is kind) or allows(self, session, asked, resource_type, name)

        return allowed

    around(stack, Access.allows, wrapper)


@mutant
@breaks("security.md: With an authorizer, every request is checked")
def anybody_may_write_to_any_topic(stack: ExitStack) -> None:
    _always(stack, Operation.WRITE, ResourceType.TOPIC)


@mutant
@breaks("security.md: With an authorizer, every request is checked")
def anybody_may_read_any_topic(stack: ExitStack) -> None:
    _always(stack, Operation.READ, ResourceType.TOPIC)


@mutant
@breaks("security.md: With an authorizer, every request is checked")
def anybody_may_use_any_transactional_id(stack: ExitStack) -> None:
    _always(stack, Operation.WRITE, ResourceType.TRANSACTIONAL_ID)


@mutant
@breaks("security.md: each request is judged when it comes")
def a_right_that_was_used_outlives_its_rule(stack: ExitStack) -> None:
    answers_outlive_the_rule_that_is_removed(stack)


@mutant
@breaks("security.md: each request is judged when it comes")
def a_refusal_outlives_the_rule_that_allows(stack: ExitStack) -> None:
    def wrapper(add: Any) -> Any:
        def added(self: Any, binding: Any) -> None:
            kept = dict(self._answers)
            add(self, binding)
            self._answers.update(kept)

        return added

    around(stack, Authorizer.add, wrapper)


@mutant
@breaks("security.md: They are in force when the answer comes")
def a_right_that_was_taken_is_back_after_a_restart(stack: ExitStack) -> None:
    """A removed rule is removed in memory alone, and stays in the log."""

    def wrapper(commit: Any) -> Any:
        def committed(self: Any, changes: Any) -> None:
            commit(self, [change for change in changes if change[1] is not None])
            for key, value in changes:
                if value is None:
                    self.state.apply(key, value)

        return committed

    around(stack, SecurityLog.commit, wrapper)


@mutant
@breaks("security.md: has a new password, keeps them until its session ends")
def a_removed_user_still_logs_in(stack: ExitStack) -> None:
    def wrapper(put: Any) -> Any:
        def kept(self: Any, name: str, mechanism: Any, credential: Any) -> None:
            if credential is not None:
                put(self, name, mechanism, credential)

        return kept

    around(stack, ScramUsers._put, wrapper)


@mutant
@breaks("security.md: a member is given partitions of topics that it may read and describe")
def members_of_a_group_are_given_topics_without_a_look_at_their_rights(stack: ExitStack) -> None:
    """Apache Kafka behaves like this mutant if one of the members may describe the topic."""

    def view(self: Any, ids: Any, user: Any) -> Any:
        yield 1
        return View(ids, ids)

    replaced(stack, MembersRights._view, view)


@mutant
@breaks("security.md: a member is given partitions of topics that it may read and describe")
def whoever_may_know_of_a_topic_counts_as_its_reader(stack: ExitStack) -> None:
    around(stack, MembersRights._view, _reading_all)


def _reading_all(make: Any) -> Any:
    def view(self: Any, ids: Any, user: Any) -> Any:
        found = yield from make(self, ids, user)
        return found._replace(readable=found.described)

    return view


@killed_by("tests/broker/groups/consumer/test_rights.py")
@breaks("security.md: a member is given partitions of topics that it may read and describe")
def a_pattern_is_not_looked_up_anew_for_rights_that_changed(stack: ExitStack) -> None:
    replaced(stack, UsersRoster._resolves_anew, property(lambda self: False))


@killed_by("tests/broker/groups/consumer/test_rights.py")
@breaks("security.md: a member is given partitions of topics that it may read and describe")
def whose_a_member_was_is_remembered_when_it_is_gone(stack: ExitStack) -> None:
    def wrapper(apply: Any) -> Any:
        def applied(self: Any, change: Any) -> None:
            users = dict(self.users)
            apply(self, change)
            self.users.update(users)

        return applied

    around(stack, UsersRoster.apply, wrapper)


@killed_by("tests/broker/groups/consumer/test_rights.py")
@breaks("security.md: a member is given partitions of topics that it may read and describe")
def heartbeats_of_classic_members_do_not_say_whose_they_are(stack: ExitStack) -> None:
    def wrapper(heartbeat: Any) -> Any:
        return lambda self, caller, now_ms, wall_ms, user=None: heartbeat(self, caller, now_ms, wall_ms)

    around(stack, MixedGroup.classic_heartbeat, wrapper)


# ---- what nobody may do --------------------------------------------------------------------------------------


@killed_by("tests/broker/handlers/test_writes_refused.py")
@breaks("guarantees.md: a new record in a topic with `fencepost.writes.refused`")
def a_topic_that_refuses_writes_has_the_fast_path(stack: ExitStack) -> None:
    def wrapper(obey: Any) -> Any:
        def obeyed(self: Any, rules: Any) -> None:
            obey(self, rules)
            self.plain |= rules.writes_refused

        return obeyed

    around(stack, Partition.obey, wrapper)


@killed_by("tests/broker/requests/test_group_requests.py")
@breaks("security.md: a group is refused whole where a topic that its members name may not be described")
def what_was_seen_of_a_group_counts_after_it_has_changed(stack: ExitStack) -> None:
    def find(self: Any, group_id: str) -> Any:
        group, _, _, may_see = self._seen[group_id]
        if not may_see:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN)
        return group

    replaced(stack, SeenGroups.find, find)


@killed_by("tests/broker/requests/test_group_requests.py")
@breaks("apis.md: A request whose work is more than some milliseconds is done in slices")
def the_topics_of_a_group_are_looked_at_in_one_step(stack: ExitStack) -> None:
    def wrapper(sees: Any) -> Any:
        def seen(self: Any, group: Any) -> Any:
            steps = sees(self, group)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value
            yield 1  # a generator without a step

        return seen

    around(stack, SeenGroups._sees, wrapper)

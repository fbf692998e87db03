"""The bank of bugs, in what protects: each names the test file that catches it.

A function's name is the bug that it plants; its docstring says what comes of it, or where it is known from.
"""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

from fencepost.broker.handlers import acls as acls_handlers
from fencepost.broker.requests.dispatch import HANDLERS, load_handlers
from fencepost.broker.security import authorizer as authorizer_module
from fencepost.broker.security import security_log
from fencepost.broker.security.access import Access
from fencepost.broker.security.acls import AclFilter, Operation, PatternType, Permission
from fencepost.broker.security.authorizer import Authorizer
from fencepost.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest
from fencepost.protocol.schema import schema_of
from fencepost.storage import recovery
from fencepost.storage.log.settings import LogSettings
from simulation.planting import _replaced, around, breaks, killed_by, replaced

AUTHORIZER = "tests/broker/security/test_authorizer.py"


@killed_by(AUTHORIZER)
@breaks("security.md: a rule that denies wins over all that allow")
def an_allowing_rule_wins_over_one_that_denies(stack: ExitStack) -> None:
    def decide(self: Any, principal: Any, host: str, operation: Any, kind: Any, name: str) -> bool:
        return decided(self, principal, host, operation, kind, name) or any(
            binding.permission is Permission.ALLOW and binding.operation is operation
            for by_principal in self._fitting(kind, name)
            for binding in by_principal.get(principal, ())
        )

    decided = Authorizer._decide
    replaced(stack, Authorizer._decide, decide)


@killed_by(AUTHORIZER)
@breaks("security.md: a rule that denies wins over all that allow")
def a_rule_that_denies_everybody_denies_nobody_by_name(stack: ExitStack) -> None:
    """Only rules that name the principal count."""
    _replaced(stack, authorizer_module, "EVERYBODY", object())


@killed_by(AUTHORIZER)
@breaks("security.md: of one name, of all names with a beginning, or of any")
def a_prefixed_rule_fits_its_own_name_alone(stack: ExitStack) -> None:
    def fitting(self: Any, kind: Any, name: str) -> Iterator[Any]:
        for pattern, text in ((PatternType.LITERAL, name), (PatternType.LITERAL, "*"), (PatternType.PREFIXED, name)):
            if found := self._by_pattern.get((kind, pattern, text)):
                yield found

    replaced(stack, Authorizer._fitting, fitting)


@killed_by(AUTHORIZER)
@breaks("security.md: of one name, of all names with a beginning, or of any")
def a_prefix_is_forgotten_with_another_of_its_length(stack: ExitStack) -> None:
    def wrapper(remove: Any) -> Any:
        def removed(self: Any, binding: Any) -> None:
            remove(self, binding)
            if binding.pattern_type is PatternType.PREFIXED:
                self._prefix_lengths[binding.resource_type].pop(len(binding.resource_name), None)

        return removed

    around(stack, Authorizer.remove, wrapper)


@killed_by(AUTHORIZER)
@breaks("security.md: from one address or any")
def a_rule_for_every_host_fits_none(stack: ExitStack) -> None:
    _replaced(stack, authorizer_module, "ANY_HOST", "any")


@killed_by(AUTHORIZER)
@breaks("security.md: from one address or any")
def a_rule_for_one_host_fits_every_host(stack: ExitStack) -> None:
    _replaced(stack, authorizer_module, "plain_host", lambda text: "*")


@killed_by(AUTHORIZER)
@breaks("security.md: from one address or any")
def an_address_is_compared_as_it_is_spelt(stack: ExitStack) -> None:
    """A rule for the long form of ::1 then fits nobody."""
    _replaced(stack, authorizer_module, "plain_host", lambda text: text)


@killed_by(AUTHORIZER)
@breaks("security.md: Read, Write, Delete and Alter include Describe")
def no_operation_implies_another(stack: ExitStack) -> None:
    alone = {operation: frozenset({operation}) for operation in Operation}
    _replaced(stack, authorizer_module, "_ALLOWED_BY", alone | {Operation.ALL: frozenset(Operation)})


@killed_by(AUTHORIZER)
@breaks("security.md: Read, Write, Delete and Alter include Describe")
def every_operation_implies_describe(stack: ExitStack) -> None:
    allowed = {operation: kinds | {Operation.DESCRIBE} for operation, kinds in authorizer_module._ALLOWED_BY.items()}
    _replaced(stack, authorizer_module, "_ALLOWED_BY", allowed)


@killed_by(AUTHORIZER)
@breaks("security.md: each request is judged when it comes")
def answers_outlive_the_rule_that_is_removed(stack: ExitStack) -> None:
    def wrapper(remove: Any) -> Any:
        def removed(self: Any, binding: Any) -> None:
            kept = dict(self._answers)
            remove(self, binding)
            self._answers.update(kept)

        return removed

    around(stack, Authorizer.remove, wrapper)


@killed_by(AUTHORIZER)
@breaks("security.md: as Apache Kafka's authorizer of that name does it")
def a_resource_with_rules_for_others_alone_is_open_to_a_client(stack: ExitStack) -> None:
    """allow.everyone.if.no.acl.found is about resources without any rule. Here rules that name other clients do not
    count.
    """

    def wrapper(decide: Any) -> Any:
        def decided(self: Any, principal: Any, host: str, operation: Any, kind: Any, name: str) -> bool:
            spoken = any(principal in by_principal for by_principal in self._fitting(kind, name))
            return decide(self, principal, host, operation, kind, name) or (
                self._allow_everyone_if_no_acl and not spoken
            )

        return decided

    around(stack, Authorizer._decide, wrapper)


@killed_by("tests/broker/security/test_acls.py")
@breaks("security.md: of one name, of all names with a beginning, or of any")
def a_filter_that_matches_a_name_does_not_know_prefixes(stack: ExitStack) -> None:
    def wrapper(matches: Any) -> Any:
        def matched(self: Any, binding: Any) -> bool:
            found: bool = matches(self, binding)
            return found and (binding.pattern_type is PatternType.LITERAL or self.resource_name in (None, binding[2]))

        return matched

    around(stack, AclFilter.matches, wrapper)


# ---- the log of them, and the requests that change them ----------------------------------------------------------


@killed_by("tests/broker/security/test_security_log.py")
@breaks("security.md: They are in force when the answer comes")
def a_change_of_rules_is_answered_before_its_unit_is_durable(stack: ExitStack) -> None:
    load_handlers()
    for request in (CreateAclsRequest, DeleteAclsRequest):
        _replaced(stack, HANDLERS[schema_of(request).api or 0], "waits", False)


@killed_by("tests/broker/security/test_security_log.py")
@breaks("security.md: They are in force when the answer comes")
def a_start_without_the_security_log_begins_another(stack: ExitStack) -> None:
    """The broker begins without users and rules, as if there had never been any."""

    def wrapper(load: Any) -> Any:
        def loaded(self: Any) -> None:
            with suppress(security_log.SecurityLogDamaged):
                load(self)

        return loaded

    around(stack, security_log.SecurityLog.load, wrapper)


@killed_by("tests/broker/security/test_security_log.py")
@breaks("security.md: They are in force when the answer comes")
def the_security_log_is_as_durable_as_a_topic(stack: ExitStack) -> None:
    """With durability os, access that was taken away comes back with a power cut."""
    make = LogSettings
    _replaced(stack, security_log, "LogSettings", lambda **more: make(durability_mode="os", **more))


@killed_by("tests/broker/security/test_security_log.py")
@breaks("guarantees.md: Damage to files below the durable point is never ignored")
def damage_in_the_security_log_is_found_behind_the_replay(stack: ExitStack) -> None:
    _replaced(stack, recovery.layout, "NO_TOPIC_ID", b"?" * 16)
    _replaced(stack, security_log, "NO_TOPIC_ID", bytes(16))


@killed_by("tests/broker/security/test_security_log.py")
@breaks("security.md: They are in force when the answer comes")
def a_rule_that_is_removed_leaves_no_record(stack: ExitStack) -> None:
    def wrapper(commit: Any) -> Any:
        def committed(self: Any, changes: Any) -> None:
            commit(self, [change for change in changes if change[1] is not None])
            for change in changes:
                self.state.apply(*change)

        return committed

    around(stack, security_log.SecurityLog.commit, wrapper)


@killed_by("tests/broker/handlers/test_acls.py")
@breaks("security.md: Alter on Cluster")
def who_may_read_rules_may_change_them(stack: ExitStack) -> None:
    def wrapper(check: Any) -> Any:
        return lambda broker, call, operation: check(broker, call, Operation.DESCRIBE)

    around(stack, acls_handlers._check_access, wrapper)


@killed_by("tests/broker/handlers/test_acls.py")
@breaks("security.md: Alter on Cluster")
def rules_are_changed_by_anybody(stack: ExitStack) -> None:
    replaced(stack, Access.check_on_cluster, lambda *_: None)


@killed_by("tests/broker/security/test_access.py")
@breaks("security.md: With an authorizer, every request is checked")
def an_authorizer_that_is_not_configured_is_asked(stack: ExitStack) -> None:
    def wrapper(init: Any) -> Any:
        return lambda self, authorizer, *, is_enforced: init(self, authorizer, is_enforced=True)

    around(stack, Access.__init__, wrapper)

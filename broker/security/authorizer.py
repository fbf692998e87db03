"""Decides by the ACLs, which it indexes, whether a principal has a right, as Kafka's StandardAuthorizer does. Pure.

The rules: a super user may do everything. For others, all ACLs count whose pattern matches the name: literally, as a
prefix, or as `*`. One that denies wins over any number that allow. If none is about this principal, host and operation,
the answer is no; but with allow.everyone.if.no.acl.found it is yes if no ACL at all matches the name. The right to
Read, Write, Delete or Alter includes Describe, and AlterConfigs includes DescribeConfigs; denying one of them denies
nothing else. The cost of an answer grows with the length of the name and the number of ACLs that match, not with the
number of all ACLs.

Source: StandardAuthorizerData and Authorizer.authorizeByResourceType of 4.3.1.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import TypeAlias

from .acls import ANY_NAME, AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from .principals import ANY_HOST, EVERYBODY, Principal, parse_principal, plain_host

KEPT_ANSWERS = 10_000
LONGEST_KEPT_NAME = 300  # of a resource: what is kept has a bound in bytes, too
PROBE_NAME = "hardcode"  # Kafka asks for a resource of this name, to find out what holds for all of a type

_IMPLIED = {
    Operation.READ: (Operation.DESCRIBE,),
    Operation.WRITE: (Operation.DESCRIBE,),
    Operation.DELETE: (Operation.DESCRIBE,),
    Operation.ALTER: (Operation.DESCRIBE,),
    Operation.ALTER_CONFIGS: (Operation.DESCRIBE_CONFIGS,),
    Operation.ALL: tuple(Operation),
}
_ALLOWED_BY = {operation: frozenset({operation, *_IMPLIED.get(operation, ())}) for operation in Operation}

_Pattern: TypeAlias = tuple[ResourceType, PatternType, str]
_Rules: TypeAlias = dict[AclBinding, str]  # with its host, as it is compared


class Authorizer:
    """All ACLs of one broker, with indexes and a cache of decisions."""

    def __init__(self, super_users: Collection[Principal] = (), *, allow_everyone_if_no_acl: bool = False) -> None:
        """super_users: principals that may do everything. allow_everyone_if_no_acl: whether everybody may do everything
        with a resource to which no ACL applies.
        """
        self._super_users = frozenset(super_users)
        self._allow_everyone_if_no_acl = allow_everyone_if_no_acl
        self._bindings: dict[AclBinding, None] = {}
        self._by_pattern: dict[_Pattern, dict[Principal, _Rules]] = {}
        self._by_principal: dict[tuple[ResourceType, Principal], _Rules] = {}
        self._prefix_lengths: dict[ResourceType, Counter[int]] = {kind: Counter() for kind in ResourceType}
        self._answers: dict[tuple[Principal, str, Operation, ResourceType, str | None], bool] = {}
        self.version = 0  # how often the rules have changed

    def __len__(self) -> int:
        return len(self._bindings)

    def __contains__(self, binding: object) -> bool:
        return binding in self._bindings

    def __iter__(self) -> Iterator[AclBinding]:
        return iter(self._bindings)

    # ---- the rules -------------------------------------------------------------------------------------------

    def add(self, binding: AclBinding) -> None:
        """Add an ACL; one that exists changes nothing. Raises ValueError if its principal is not valid."""
        if binding in self._bindings:
            return
        principal, host = parse_principal(binding.principal), plain_host(binding.host)
        pattern = _pattern_of(binding)
        if pattern not in self._by_pattern:
            self._by_pattern[pattern] = {}
            if binding.pattern_type is PatternType.PREFIXED:
                self._prefix_lengths[binding.resource_type][len(binding.resource_name)] += 1
        self._bindings[binding] = None
        self._by_pattern[pattern].setdefault(principal, {})[binding] = host
        self._by_principal.setdefault((binding.resource_type, principal), {})[binding] = host
        self._changed()

    def remove(self, binding: AclBinding) -> None:
        """Remove an ACL; one that does not exist changes nothing."""
        if binding not in self._bindings:
            return
        principal = parse_principal(binding.principal)
        del self._bindings[binding]
        pattern, of_principal = _pattern_of(binding), (binding.resource_type, principal)
        by_principal = self._by_pattern[pattern]
        del by_principal[principal][binding], self._by_principal[of_principal][binding]
        if not self._by_principal[of_principal]:
            del self._by_principal[of_principal]
        if not by_principal[principal]:
            del by_principal[principal]
        if not by_principal:
            del self._by_pattern[pattern]
            if binding.pattern_type is PatternType.PREFIXED:
                lengths = self._prefix_lengths[binding.resource_type]
                lengths[len(binding.resource_name)] -= 1
                if not lengths[len(binding.resource_name)]:
                    del lengths[len(binding.resource_name)]
        self._changed()

    def _changed(self) -> None:
        """Drop all cached decisions after a change of the ACLs."""
        self._answers.clear()
        self.version += 1

    def find(self, wanted: AclFilter) -> list[AclBinding]:
        """Return the ACLs that match a filter, in the order in which they were added."""
        return [binding for binding in self.near(wanted) if wanted.matches(binding)]

    def near(self, wanted: AclFilter) -> Collection[AclBinding]:
        """Return candidates for a filter: all ACLs that may match it, and others only where the indexes cannot exclude
        them.
        """
        if wanted.resource_name is None or wanted.resource_type is ResourceType.ANY:
            return self._bindings if wanted.principal is None else self._of_principal(wanted.principal)
        kind, name = wanted.resource_type, wanted.resource_name
        if wanted.pattern_type is PatternType.MATCH:
            fitting: Iterator[dict[Principal, _Rules]] = self._fitting(kind, name)
        else:
            patterns = ((kind, pattern, name) for pattern in PatternType)
            fitting = (self._by_pattern[each] for each in patterns if each in self._by_pattern)
        return [binding for by_principal in fitting for rules in by_principal.values() for binding in rules]

    def _of_principal(self, text: str) -> list[AclBinding]:
        """Return all ACLs of the principal; none if the text is not a principal."""
        try:
            principal = parse_principal(text)
        except ValueError:
            return []
        by_kind = (self._by_principal.get((kind, principal), _NONE) for kind in ResourceType)
        return [binding for rules in by_kind for binding in rules]

    # ---- what follows from them ------------------------------------------------------------------------------

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return whether the principal may do this operation on a resource. host: in the form that plain_host()
        returns.
        """
        key = (principal, host, operation, resource_type, name)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._decide(principal, host, operation, resource_type, name)
            if len(name) <= LONGEST_KEPT_NAME:
                self._keep(key, answer)
        return answer

    def allows_on_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the principal may do this operation on at least one resource of that type.

        As in Kafka, a rule for an operation that implies this one (Read implies Describe) counts only if it applies to
        every name.
        """
        key = (principal, host, operation, resource_type, None)
        answer = self._answers.get(key)
        if answer is None:
            answer = self.allows(principal, host, operation, resource_type, PROBE_NAME) or self._allows_one(
                principal, host, operation, resource_type
            )
            self._keep(key, answer)
        return answer

    def _keep(self, key: tuple[Principal, str, Operation, ResourceType, str | None], answer: bool) -> None:
        """Cache a decision. The whole cache is dropped when it is full."""
        if len(self._answers) >= KEPT_ANSWERS:
            self._answers.clear()
        self._answers[key] = answer

    def _decide(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return whether the ACLs allow the operation. Does not look into the cache.

        A super user may do everything. A DENY rule that applies wins over any ALLOW. If no ACL applies to the resource,
        allow.everyone.if.no.acl.found decides.
        """
        if principal in self._super_users:
            return True
        is_allowed, is_found = False, False
        for by_principal in self._fitting(resource_type, name):
            is_found = True
            for whom in (principal, EVERYBODY):
                for binding, of_host in by_principal.get(whom, _NONE).items():
                    if of_host not in (ANY_HOST, host):
                        continue
                    if binding.permission is Permission.ALLOW:
                        is_allowed = is_allowed or operation in _ALLOWED_BY[binding.operation]
                    elif binding.operation in (Operation.ALL, operation):
                        return False
        return is_allowed or (not is_found and self._allow_everyone_if_no_acl)

    def _fitting(self, kind: ResourceType, name: str) -> Iterator[dict[Principal, _Rules]]:
        """Yield, for each resource pattern that matches the name, the ACLs with this pattern, by principal."""
        by_pattern = self._by_pattern
        for literal in {name, ANY_NAME}:
            if found := by_pattern.get((kind, PatternType.LITERAL, literal)):
                yield found
        for length in self._prefix_lengths[kind]:
            if length <= len(name) and (found := by_pattern.get((kind, PatternType.PREFIXED, name[:length]))):
                yield found

    def _allows_one(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the principal has an ALLOW rule whose pattern is not completely covered by a DENY rule."""
        named: dict[tuple[Permission, PatternType], set[str]] = {
            (permission, pattern): set() for permission in Permission for pattern in PatternType
        }
        for whom in (principal, EVERYBODY):
            for binding, of_host in self._by_principal.get((resource_type, whom), _NONE).items():
                if of_host in (ANY_HOST, host) and binding.operation in (Operation.ALL, operation):
                    named[binding.permission, binding.pattern_type].add(binding.resource_name)
        denied = named[Permission.DENY, PatternType.LITERAL]
        denied_prefixes = named[Permission.DENY, PatternType.PREFIXED]
        if ANY_NAME in denied:
            return False
        literal = named[Permission.ALLOW, PatternType.LITERAL]
        if ANY_NAME in literal:
            return True
        lengths = {len(prefix) for prefix in denied_prefixes}
        return any(
            all(name[:length] not in denied_prefixes for length in lengths)
            for name in (literal - denied) | named[Permission.ALLOW, PatternType.PREFIXED]
        )


_NONE: _Rules = {}


def _pattern_of(binding: AclBinding) -> _Pattern:
    """Return the resource pattern of a binding: type, pattern type (literal or prefixed) and name."""
    return binding.resource_type, binding.pattern_type, binding.resource_name

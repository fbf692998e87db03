"""Rules of access as a list; each answer goes through all of them. The broker's index must give the same answers.

Written from the prose of KIP-11 and KIP-290 and the comments of Kafka's StandardAuthorizer, not from ours.
"""

from collections.abc import Iterable

from fencepost.broker.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from fencepost.broker.security.principals import Principal, plain_host

DESCRIBING = {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
DESCRIBING_CONFIGS = {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}


def fits(rule: AclBinding, name: str) -> bool:
    if rule.pattern_type is PatternType.PREFIXED:
        return name.startswith(rule.resource_name)
    return rule.resource_name in (name, "*")


def speaks_of(rule: AclBinding, principal: Principal, host: str) -> bool:
    return rule.principal in (str(principal), "User:*") and plain_host(rule.host) in ("*", host)


def covers(rule: AclBinding, operation: Operation) -> bool:
    if rule.operation is Operation.ALL or rule.operation is operation:
        return True
    if rule.permission is Permission.DENY:
        return False
    if operation is Operation.DESCRIBE:
        return rule.operation in DESCRIBING
    return operation is Operation.DESCRIBE_CONFIGS and rule.operation in DESCRIBING_CONFIGS


def is_allowed(
    rules: Iterable[AclBinding],
    principal: Principal,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    super_users: Iterable[Principal] = (),
    allow_everyone_if_no_acl: bool = False,
) -> bool:
    """Return what Authorizer.allows must return."""
    if principal in super_users:
        return True
    fitting = [rule for rule in rules if rule.resource_type is kind and fits(rule, name)]
    if not fitting:
        return allow_everyone_if_no_acl
    given = {rule.permission for rule in fitting if speaks_of(rule, principal, host) and covers(rule, operation)}
    return given == {Permission.ALLOW}


def is_allowed_on_any(
    rules: Iterable[AclBinding],
    principal: Principal,
    host: str,
    operation: Operation,
    kind: ResourceType,
    *,
    super_users: Iterable[Principal] = (),
    allow_everyone_if_no_acl: bool = False,
) -> bool:
    """Return what Authorizer.allows_on_any must return."""
    rules = list(rules)
    more = {"super_users": super_users, "allow_everyone_if_no_acl": allow_everyone_if_no_acl}
    # Kafka asks first about a name that no rule has: super users, rules of all names, and resources without rules.
    if is_allowed(rules, principal, host, operation, kind, "hardcode", **more):  # type: ignore[arg-type]
        return True
    spoken = [
        rule
        for rule in rules
        if rule.resource_type is kind
        and speaks_of(rule, principal, host)
        and rule.operation in (Operation.ALL, operation)
    ]
    denied = [rule for rule in spoken if rule.permission is Permission.DENY]

    def is_denied_whole(allowed: AclBinding) -> bool:
        """Return whether one rule denies everything that this one allows."""
        if any(rule.pattern_type is PatternType.PREFIXED and fits(rule, allowed.resource_name) for rule in denied):
            return not (allowed.pattern_type is PatternType.LITERAL and allowed.resource_name == "*")
        return any(rule[:3] == allowed[:3] for rule in denied)

    if any(rule.pattern_type is PatternType.LITERAL and rule.resource_name == "*" for rule in denied):
        return False
    return any(rule.permission is Permission.ALLOW and not is_denied_whole(rule) for rule in spoken)

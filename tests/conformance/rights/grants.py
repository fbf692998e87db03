"""The users who send the requests of the matrix of rights (rows.py), and the ACLs of each.

The user `Topic Read` has that one right, to the names in NAMES; `Topic Describe + Group Read` has two. `not Topic Read`
is allowed everything on every name and denied that one right to the names in NAMES, so it still sees what is named
`hidden`. `prefixed Topic All`, `any Topic All` and `elsewhere Topic All` have Kafka's operation All: by a prefix, for
any name, and only from another host.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.broker.security.acls import (
    ANY_NAME,
    CLUSTER_NAME,
    OPERATIONS,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

PREFIX = "rights."
TOPICS = [PREFIX + name for name in ("t", "gone", "doomed", "fresh")]
GROUPS = [PREFIX + name for name in ("g", "gone", "read", "share", "sharing")]
TRANSACTIONAL_IDS = [PREFIX + name for name in ("x", "open", "key", "waits", "gone")]
NAMES = {
    ResourceType.TOPIC: TOPICS,
    ResourceType.GROUP: GROUPS,
    ResourceType.CLUSTER: [CLUSTER_NAME],
    ResourceType.TRANSACTIONAL_ID: TRANSACTIONAL_IDS,
}
"""The resources to which a user has its right. None is named `hidden`: only users with a right to any name see that."""

DESCRIBE_TOPIC = ResourceType.TOPIC, Operation.DESCRIBE
WRITE_ID = ResourceType.TRANSACTIONAL_ID, Operation.WRITE
READ_GROUP = ResourceType.GROUP, Operation.READ
TOGETHER = [
    (DESCRIBE_TOPIC, (ResourceType.TOPIC, Operation.CREATE)),
    (DESCRIBE_TOPIC, (ResourceType.CLUSTER, Operation.CREATE)),
    (DESCRIBE_TOPIC, READ_GROUP),
    (DESCRIBE_TOPIC, (ResourceType.GROUP, Operation.DELETE)),
    ((ResourceType.TOPIC, Operation.READ), READ_GROUP),
    (WRITE_ID, (ResourceType.TOPIC, Operation.WRITE)),
    (WRITE_ID, (ResourceType.TRANSACTIONAL_ID, Operation.TWO_PHASE_COMMIT)),
    (WRITE_ID, READ_GROUP),
    (WRITE_ID, READ_GROUP, (ResourceType.TOPIC, Operation.READ)),
    ((ResourceType.CLUSTER, Operation.CREATE), (ResourceType.TOPIC, Operation.DESCRIBE_CONFIGS)),
]
"""Rights that some requests need together: a user for each of these tuples."""

SUPER, NOTHING = "super user", "nothing"
ELSEWHERE = "192.0.2.1"


def rules() -> dict[str, list[AclBinding]]:
    """Return the ACLs of each user, by the user's name in the matrix, such as `Topic Read` or `not Topic Read`."""
    found: dict[str, list[AclBinding]] = {SUPER: [], NOTHING: []}
    for kind, operation in rights():
        what = f"{word(kind)} {word(operation)}"
        found[what] = list(_rules(what, kind, operation))
        everything = [rule for each in NAMES for rule in _rules(f"not {what}", each, Operation.ALL, names=[ANY_NAME])]
        found[f"not {what}"] = everything + list(_rules(f"not {what}", kind, operation, permission=Permission.DENY))
    for several in TOGETHER:
        what = " + ".join(f"{word(kind)} {word(operation)}" for kind, operation in several)
        found[what] = [rule for kind, operation in several for rule in _rules(what, kind, operation)]
    for kind in NAMES:
        what = f"{word(kind)} All"
        found[f"elsewhere {what}"] = list(_rules(f"elsewhere {what}", kind, Operation.ALL, host=ELSEWHERE))
        if kind is not ResourceType.CLUSTER:
            prefixed = _rules(f"prefixed {what}", kind, Operation.ALL, names=[PREFIX], pattern=PatternType.PREFIXED)
            found[f"prefixed {what}"] = list(prefixed)
            found[f"any {what}"] = list(_rules(f"any {what}", kind, Operation.ALL, names=[ANY_NAME]))
    return found


def rights() -> Iterator[tuple[ResourceType, Operation]]:
    """Yield every right: a kind of resource and an operation."""
    for kind in NAMES:
        for operation in (*OPERATIONS[kind], Operation.ALL):
            yield kind, operation


def user_of(what: str) -> str:
    """Return the name with which a user of the matrix logs in. It is also the client id: by it a broker of the tests
    knows the user without a login.
    """
    return what.replace(" + ", " and ").replace(" ", "-").lower()


def word(code: ResourceType | Operation) -> str:
    """Return a code as Kafka writes it, such as IdempotentWrite."""
    return "".join(part.capitalize() for part in code.name.split("_"))


def _rules(
    what: str,
    kind: ResourceType,
    operation: Operation,
    *,
    names: list[str] | None = None,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
    permission: Permission = Permission.ALLOW,
) -> Iterator[AclBinding]:
    for name in NAMES[kind] if names is None or kind is ResourceType.CLUSTER else names:
        yield AclBinding(kind, pattern, name, f"User:{user_of(what)}", host, operation, permission)

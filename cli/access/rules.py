"""Makes rules and filters of the options of `fencepost acl`, with the shorthands --producer and --consumer. Pure.

The rules of a shorthand are those of Kafka's kafka-acls.sh (AclCommand): sending needs Write, Describe and Create on
the topic, and Write and Describe on the transactional id; reading needs Read and Describe on the topic, and Read on the
group. A producer that commits offsets in its transactions needs both.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

OPERATIONS = (
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
    "two_phase_commit",
)
CLUSTER = "kafka-cluster"


class Resource(NamedTuple):
    """A resource of a rule. kind: its resource type, in the SDK's words."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rules that the options describe. principals: (permission, principal)."""

    principals: Sequence[tuple[str, str]]
    hosts: Sequence[str]
    operations: Sequence[str]
    resources: Sequence[Resource]
    prefixed: bool
    producer: bool
    consumer: bool

    @property
    def says_nothing(self) -> bool:
        """Whether no option limits which rules are meant."""
        return not (self.principals or self.hosts or self.operations or self.resources or self.is_shorthand)

    @property
    def is_shorthand(self) -> bool:
        return self.producer or self.consumer


class Unclear(Exception):
    """Raised when the options do not describe a rule. hint: which option is missing."""

    def __init__(self, cause: str, hint: str) -> None:
        super().__init__(cause)
        self.hint = hint


def principal_of(text: str) -> str:
    """Return the principal of an option: `alice` becomes User:alice, text with a colon stays as it is."""
    return text if ":" in text else f"User:{text}"


def pairs_of(wanted: Wanted) -> list[tuple[str, Resource]]:
    """Return each operation with its resource. Raises Unclear if the options cannot be combined or a resource is
    missing.
    """
    if wanted.is_shorthand:
        if wanted.operations:
            raise Unclear(
                "--operation cannot be used together with --producer or --consumer",
                "give the operations in a command of their own",
            )
        return list(dict.fromkeys(_shorthand(wanted)))
    if not wanted.resources:
        raise Unclear("no resource is given", "use --topic, --group, --transactional-id or --cluster")
    if not wanted.operations:
        raise Unclear("no operation is given", "--operation NAME sets it, or use --producer or --consumer")
    return [(operation, resource) for resource in wanted.resources for operation in wanted.operations]


def _shorthand(wanted: Wanted) -> Iterator[tuple[str, Resource]]:
    """Yield the pairs of operation and resource that --producer and --consumer stand for. Raises Unclear."""
    by_kind: dict[str, list[Resource]] = {}
    for resource in wanted.resources:
        by_kind.setdefault(resource.kind, []).append(resource)
    topics, groups = by_kind.pop("topic", []), by_kind.pop("group", [])
    ids = by_kind.pop("transactional_id", [])
    if not topics:
        raise Unclear("--producer and --consumer need a topic", "--topic NAME sets it; --topic '*' means all")
    if wanted.consumer != bool(groups):
        raise Unclear(
            "--consumer needs a group" if wanted.consumer else "--group belongs to --consumer",
            "a consumer reads as a member of a group: --consumer --group NAME",
        )
    if ids and not wanted.producer:
        raise Unclear("--transactional-id belongs to --producer", "a consumer has no transactional id")
    if by_kind:
        raise Unclear("--cluster cannot be used together with --producer or --consumer", "leave out --cluster")
    if wanted.producer:
        yield from _pairs(("write", "describe", "create"), topics)
        yield from _pairs(("write", "describe"), ids)
    if wanted.consumer:
        yield from _pairs(("read", "describe"), topics)
        yield from _pairs(("read",), groups)


def _pairs(operations: Iterable[str], resources: Iterable[Resource]) -> Iterator[tuple[str, Resource]]:
    """Return every operation paired with every resource."""
    return ((operation, resource) for resource in resources for operation in operations)


def rules_of(wanted: Wanted) -> list[dict[str, Any]]:
    """Return the fields of each rule to be added. Raises Unclear."""
    if not wanted.principals:
        raise Unclear("no user is given", "--allow NAME grants rights to a user, --deny NAME takes them away")
    return [
        {
            "principal": principal,
            "operation": operation,
            "resource_type": resource.kind,
            "resource_name": resource.name,
            "pattern": _pattern(wanted, resource),
            "host": host,
            "permission": permission,
        }
        for permission, principal in wanted.principals
        for operation, resource in pairs_of(wanted)
        for host in wanted.hosts or ("*",)
    ]


def filters_of(wanted: Wanted, *, applying: bool) -> list[dict[str, Any]]:
    """Return the fields of the filters that find the rules. applying: find all rules that apply to a name, of any
    pattern type.

    Raises Unclear.
    """
    if wanted.is_shorthand:
        pairs: list[tuple[str | None, Resource | None]] = list(pairs_of(wanted))
    else:
        pairs = [
            (operation, resource)
            for resource in wanted.resources or (None,)
            for operation in wanted.operations or (None,)
        ]
    return [
        {
            "principal": principal,
            "operation": operation,
            "resource_type": resource and resource.kind,
            "resource_name": resource and resource.name,
            "pattern": resource and ("match" if applying else _pattern(wanted, resource)),
            "host": host,
            "permission": permission,
        }
        for permission, principal in wanted.principals or ((None, None),)
        for operation, resource in pairs
        for host in wanted.hosts or (None,)
    ]


def _pattern(wanted: Wanted, resource: Resource) -> str:
    """Return the pattern type of a rule for this resource: literal or prefixed."""
    return "prefixed" if wanted.prefixed and resource.kind != "cluster" else "literal"

"""Access control lists and changes of passwords as values, and the codes of ACLs on the wire. Pure.

The rule: words stand for codes (`"topic"`, `"read"`, `"allow"`); a code of a newer broker is shown as `unknown(16)`. A
password is in no repr. Source: KIP-11, KIP-140, KIP-290, KIP-554; Kafka's AclBinding, AclBindingFilter.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from ...protocol.messages.acls import CreateAclsRequest
from ..errors import InvalidConfigurationError

AclResourceType = Literal["topic", "group", "cluster", "transactional_id", "delegation_token", "user"]
AclPattern = Literal["literal", "prefixed"]
AclOperation = Literal[
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
    "create_tokens",
    "describe_tokens",
    "two_phase_commit",
]
AclPermission = Literal["deny", "allow"]
ScramMechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]

CLUSTER_NAME = "kafka-cluster"  # the name of the only resource of type cluster
LEAST_ITERATIONS = 4_096  # of SCRAM, as Kafka demands
ANY, MATCH = 1, 2
_TYPES: dict[str, int] = {word: code for code, word in enumerate(get_args(AclResourceType), 2)}
_PATTERNS: dict[str, int] = {word: code for code, word in enumerate(get_args(AclPattern), 3)}
_OPERATIONS: dict[str, int] = {word: code for code, word in enumerate(get_args(AclOperation), 2)}
_PERMISSIONS: dict[str, int] = {word: code for code, word in enumerate(get_args(AclPermission), 2)}
OPERATIONS = tuple(_OPERATIONS)
RESOURCE_TYPES = tuple(_TYPES)


def operations_in(bits: int) -> frozenset[str]:
    """Return the operations in an answer's bit field, in which each has the bit of its code."""
    return frozenset(word for word, code in _OPERATIONS.items() if bits >> code & 1)


class AclBinding(NamedTuple):
    """A rule: whether this principal, from this host, may do this with the resources that the pattern matches.

    principal: "User:alice", "User:*" is everybody. resource_name: "*" with pattern "literal" is every resource.
    """

    principal: str
    operation: AclOperation
    resource_type: AclResourceType
    resource_name: str
    pattern: AclPattern = "literal"
    host: str = "*"
    permission: AclPermission = "allow"

    def __str__(self) -> str:
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{self.permission} {self.principal}{host} {self.operation} {_resource_text(self)}"


def _resource_text(acl: AclBinding) -> str:
    """Return the resource of a rule as text, such as "topic orders" or "topic app-*"."""
    if acl.resource_type == "cluster":
        return "cluster"
    return f"{acl.resource_type} {acl.resource_name}{'*' if acl.pattern == 'prefixed' else ''}"


class AclFilter(NamedTuple):
    """Which rules to select; a field that is None matches every value. pattern "match": all rules that apply to this
    resource name.
    """

    principal: str | None = None
    operation: AclOperation | None = None
    resource_type: AclResourceType | None = None
    resource_name: str | None = None
    pattern: Literal["literal", "prefixed", "match"] | None = None
    host: str | None = None
    permission: AclPermission | None = None


class ScramCredentialInfo(NamedTuple):
    """One way in which a user may log in with a password."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A password of a user for one mechanism, new or changed."""

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = "SCRAM-SHA-256"
    iterations: int = LEAST_ITERATIONS


class ScramDeletion(NamedTuple):
    """The removal of a user's password for one mechanism."""

    user: str
    mechanism: ScramMechanism = "SCRAM-SHA-256"


ScramChange = ScramUpsertion | ScramDeletion


def creation(acl: AclBinding) -> CreateAclsRequest.Creation:
    """Return the request's entry that creates an ACL. Raises InvalidConfigurationError for an unknown word."""
    return CreateAclsRequest.Creation(
        resource_type=_code(_TYPES, "resource_type", acl.resource_type),
        resource_name=acl.resource_name,
        resource_pattern_type=_code(_PATTERNS, "pattern", acl.pattern),
        principal=acl.principal,
        host=acl.host,
        operation=_code(_OPERATIONS, "operation", acl.operation),
        permission_type=_code(_PERMISSIONS, "permission", acl.permission),
    )


def filter_fields(wanted: AclFilter) -> dict[str, Any]:
    """Return the fields of a filter in a request. Raises InvalidConfigurationError for an unknown word."""
    return {
        "resource_type_filter": _code(_TYPES, "resource_type", wanted.resource_type),
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": _code({**_PATTERNS, "match": MATCH}, "pattern", wanted.pattern),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": _code(_OPERATIONS, "operation", wanted.operation),
        "permission_type": _code(_PERMISSIONS, "permission", wanted.permission),
    }


def binding(resource: Any, acl: Any) -> AclBinding:
    """Return an ACL from the fields of a response. resource, acl: may be the same struct."""
    return AclBinding(
        acl.principal,
        _word(_OPERATIONS, acl.operation),
        _word(_TYPES, resource.resource_type),
        resource.resource_name,
        _word(_PATTERNS, resource.pattern_type),
        acl.host,
        _word(_PERMISSIONS, acl.permission_type),
    )


def _code(codes: dict[str, int], what: str, word: str | None) -> int:
    """Return the protocol's number for a word, and ANY for None. Raises InvalidConfigurationError for an unknown word,
    which the message calls `what`.
    """
    if word is None:
        return ANY
    if word not in codes:
        raise InvalidConfigurationError(f"{what} {word!r} is not known", hint=f"use one of {', '.join(codes)}")
    return codes[word]


def _word(codes: dict[str, int], code: int) -> Any:
    return next((word for word, number in codes.items() if number == code), f"unknown({code})")

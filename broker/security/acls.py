"""ACLs and filters of ACLs as values: Kafka's AclBinding, AclBindingFilter and their codes. Pure.

KIP-11, KIP-140, KIP-290 (prefixed patterns), KIP-939 (TWO_PHASE_COMMIT). Asked of Apache Kafka 4.3.1.
"""

from enum import IntEnum
from typing import NamedTuple, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from .principals import parse_principal

ANY_NAME = "*"  # as a literal pattern it fits every name
CLUSTER_NAME = "kafka-cluster"


class Code(IntEnum):
    """An enum of numbers that are sent on the wire. It is hashed by number, which is much faster than Enum's hash."""

    __hash__ = int.__hash__


class ResourceType(Code):
    """The type of resource of an ACL."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(Code):
    """How the resource name of an ACL matches. ANY and MATCH occur in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(Code):
    """An operation on a resource. ANY occurs in filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(Code):
    """Whether a rule forbids or allows. ANY occurs in filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


AnyCode = TypeVar("AnyCode", bound=Code)

OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""What can be done with each: what answers list as authorized operations (Kafka's AclEntry.supportedOperations)."""


class AclBinding(NamedTuple):
    """One ACL: the principal, from the host, is allowed or denied the operation on resources that match."""

    resource_type: ResourceType
    pattern_type: PatternType
    resource_name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclFilter(NamedTuple):
    """A filter of ACLs. None and ANY match every ACL. The pattern type MATCH selects all ACLs whose pattern matches
    resource_name.
    """

    resource_type: ResourceType
    pattern_type: PatternType
    resource_name: str | None
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, binding: AclBinding) -> bool:
        """Return whether the ACL matches the filter."""
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self._matches_name(binding)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (Operation.ANY, binding.operation)
            and self.permission in (Permission.ANY, binding.permission)
        )

    def _matches_name(self, binding: AclBinding) -> bool:
        """Return whether the resource name and pattern type of the ACL match the filter."""
        wanted, name = self.pattern_type, self.resource_name
        if wanted not in (PatternType.ANY, PatternType.MATCH, binding.pattern_type):
            return False
        if name is None or name == binding.resource_name:
            return True
        if wanted is not PatternType.MATCH:
            return False
        if binding.pattern_type is PatternType.LITERAL:
            return binding.resource_name == ANY_NAME
        return name.startswith(binding.resource_name)


def member_of(kind: type[AnyCode], code: int) -> AnyCode:
    """Return the enum's member with this code; UNKNOWN if there is none."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def check_binding(binding: AclBinding) -> None:
    """Raise INVALID_REQUEST if the ACL is not valid."""
    reason = _wrong_with(binding)
    if reason:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _wrong_with(binding: AclBinding) -> str | None:
    """Return Kafka's error text for an invalid ACL; None if it is valid."""
    if binding.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {binding.resource_type.name}"
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {binding.pattern_type.name}"
    if binding.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"Invalid operation {binding.operation.name}"
    if binding.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {binding.permission.name}"
    if not binding.resource_name:
        return "Invalid empty resource name"
    if binding.resource_type is ResourceType.CLUSTER and binding.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    try:
        parse_principal(binding.principal)
    except ValueError as error:
        return f"Could not parse principal: {error}"
    return None


def check_filter(wanted: AclFilter) -> None:
    """Raise INVALID_REQUEST if the filter of a request that deletes ACLs has an unknown code."""
    kinds = (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission)
    if not all(kinds):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The filter contains UNKNOWN elements.")

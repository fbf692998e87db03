"""Tells handlers whether the user of a connection has a right. Pure.

The rule: without an authorizer everybody may do everything, so handlers always ask, whether there is one or not.
docs/security.md lists the right that each request needs.
"""

from collections.abc import Iterable

from ...protocol.errors import ErrorCode, KafkaError
from .acls import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from .authorizer import Authorizer
from .principals import Session

REFUSED = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""What is answered to who may not."""


def _bits(operations: Iterable[Operation]) -> int:
    """Return a bit set with the bit of each operation's code."""
    return sum(1 << operation for operation in operations)


EVERY_OPERATION = {kind: _bits(operations) for kind, operations in OPERATIONS.items()}


class Access:
    """The rights of all users of one broker."""

    __slots__ = ("_authorizer", "is_enforced")

    def __init__(self, authorizer: Authorizer, *, is_enforced: bool) -> None:
        """is_enforced: False if the broker has no authorizer, so that every user has every right."""
        self._authorizer = authorizer
        self.is_enforced = is_enforced

    @property
    def version(self) -> int:
        """A number that grows with every change of ACLs. Answers remembered at another version are invalid."""
        return self._authorizer.version

    def allows(self, session: Session, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the session's user may do this operation on a resource of that name, existing or not."""
        return not self.is_enforced or self._authorizer.allows(
            session.principal, session.host, operation, resource_type, name
        )

    def allows_on_cluster(self, session: Session, operation: Operation) -> bool:
        """Return whether the session's user may do this operation on the cluster."""
        return self.allows(session, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def check(self, session: Session, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raise the error that belongs to the resource type, such as TOPIC_AUTHORIZATION_FAILED, if the session's user
        may not do this operation on the resource.
        """
        if not self.allows(session, operation, resource_type, name):
            raise KafkaError(REFUSED[resource_type])

    def check_on_cluster(self, session: Session, operation: Operation) -> None:
        """Raise CLUSTER_AUTHORIZATION_FAILED if the session's user may not do this operation on the cluster."""
        self.check(session, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_on_any(self, session: Session, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the session's user may do this operation on at least one resource of that type."""
        return not self.is_enforced or self._authorizer.allows_on_any(
            session.principal, session.host, operation, resource_type
        )

    def allowed(
        self, session: Session, operation: Operation, resource_type: ResourceType, names: Iterable[str]
    ) -> set[str]:
        """Return those of the names on which the session's user may do this operation."""
        return {name for name in names if self.allows(session, operation, resource_type, name)}

    def operations(self, session: Session, resource_type: ResourceType, name: str) -> int:
        """Return the operations that the session's user may do on a resource, as a bit set of their codes (KIP-430)."""
        if not self.is_enforced:
            return EVERY_OPERATION[resource_type]
        may = self._authorizer.allows
        principal, host = session.principal, session.host
        return _bits(each for each in OPERATIONS[resource_type] if may(principal, host, each, resource_type, name))

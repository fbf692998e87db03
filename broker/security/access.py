"""Answers handlers whether the user of a connection may do something. Pure.

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
    return sum(1 << operation for operation in operations)


EVERY_OPERATION = {kind: _bits(operations) for kind, operations in OPERATIONS.items()}


class Access:
    """The rights of all users of one broker."""

    __slots__ = ("_authorizer", "is_enforced")

    def __init__(self, authorizer: Authorizer, *, is_enforced: bool) -> None:
        self._authorizer = authorizer
        self.is_enforced = is_enforced

    @property
    def version(self) -> int:
        """Changes with every change of the rules: remembered answers of an older version are invalid."""
        return self._authorizer.version

    def allows(self, session: Session, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether it may do this with the resource of that name, whether there is such a one or not."""
        return not self.is_enforced or self._authorizer.allows(
            session.principal, session.host, operation, resource_type, name
        )

    def allows_on_cluster(self, session: Session, operation: Operation) -> bool:
        """Whether the session has the right to this operation on the cluster."""
        return self.allows(session, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def check(self, session: Session, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raises TOPIC_AUTHORIZATION_FAILED, or the like for another type, if it may not."""
        if not self.allows(session, operation, resource_type, name):
            raise KafkaError(REFUSED[resource_type])

    def check_on_cluster(self, session: Session, operation: Operation) -> None:
        """Raises CLUSTER_AUTHORIZATION_FAILED if it may not."""
        self.check(session, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_on_any(self, session: Session, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there may be a resource of that type with which it may do this."""
        return not self.is_enforced or self._authorizer.allows_on_any(
            session.principal, session.host, operation, resource_type
        )

    def allowed(
        self, session: Session, operation: Operation, resource_type: ResourceType, names: Iterable[str]
    ) -> set[str]:
        """Those of the names with which it may do this."""
        return {name for name in names if self.allows(session, operation, resource_type, name)}

    def operations(self, session: Session, resource_type: ResourceType, name: str) -> int:
        """What the user may do with a resource, as answers encode it (KIP-430): a bit for each operation's code."""
        if not self.is_enforced:
            return EVERY_OPERATION[resource_type]
        may = self._authorizer.allows
        principal, host = session.principal, session.host
        return _bits(each for each in OPERATIONS[resource_type] if may(principal, host, each, resource_type, name))

"""Requests about rules of access, written as `allow User:alice READ TOPIC = orders @10.0.0.1`; and users for them."""

from typing import Any

from fencepost.broker.broker import Broker, Serve
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.net.connection import Connection
from fencepost.broker.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from fencepost.broker.security.principals import Principal, Session
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from fencepost.protocol.primitives import Readable

EVERY_FILTER = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}


def guarded(**more: Any) -> BrokerSettings:
    """Return the settings of a broker with an authorizer, where anonymous clients may do everything."""
    return BrokerSettings(**{"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"} | more)


def rule(text: str) -> AclBinding:
    """Parse a rule. In it `=` stands before a literal name, `^` before a prefix."""
    permission, principal, operation, kind, pattern, name, *host = text.split(" ")
    return AclBinding(
        ResourceType[kind],
        {"=": PatternType.LITERAL, "^": PatternType.PREFIXED}[pattern],
        name,
        principal,
        host[0].removeprefix("@") if host else "*",
        Operation[operation],
        Permission[permission.upper()],
    )


def text_of(binding: Any) -> str:
    """Return the text of an ACL binding: the inverse of rule()."""
    pattern = "=" if binding.pattern_type == PatternType.LITERAL else "^"
    permission = Permission(getattr(binding, "permission", None) or binding.permission_type)
    words = [permission.name.lower(), binding.principal, Operation(binding.operation).name]
    words += [ResourceType(binding.resource_type).name, pattern, binding.resource_name]
    return " ".join(words + ([f"@{binding.host}"] if binding.host != "*" else []))


def creating(*rules: str) -> CreateAclsRequest:
    return CreateAclsRequest(creations=[creation(rule(text)) for text in rules])


def creation(binding: AclBinding) -> CreateAclsRequest.Creation:
    return CreateAclsRequest.Creation(
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        resource_pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def describing(**wanted: Any) -> DescribeAclsRequest:
    return DescribeAclsRequest(**EVERY_FILTER | wanted)


def deleting(*filters: dict[str, Any]) -> DeleteAclsRequest:
    return DeleteAclsRequest(filters=[DeleteAclsRequest.Filter(**EVERY_FILTER | wanted) for wanted in filters])


def described(broker: Any, **wanted: Any) -> list[str]:
    """Return all ACLs of a broker that match a filter, as sorted texts."""
    answer = broker.ask(describing(**wanted))
    assert answer.error_code == 0, answer
    return sorted(
        text_of(
            AclBinding(
                each.resource_type,
                each.pattern_type,
                each.resource_name,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
        )
        for each in answer.resources
        for acl in each.acls
    )


class ActingUser:
    """Treats every connection as if `user` had logged in over it; `user` may be changed at any time."""

    def __init__(self, broker: Broker, user: str) -> None:
        self.user = user
        broker.intercept(self._between)

    def _between(self, serve: Serve) -> Serve:
        def served(connection: Connection, frame: Readable) -> None:
            be(connection, self.user)
            serve(connection, frame)

        return served


def by_client_id(serve: Serve) -> Serve:
    """Return a function for broker.intercept that takes each client id for the name of its user."""

    def served(connection: Connection, frame: Readable) -> None:
        be(connection, read_request_header(frame).client_id or "")
        serve(connection, frame)

    return served


def be(connection: Connection, user: str) -> None:
    """Treat the connection as if that user had logged in over it."""
    if connection.session.principal.name != user:
        connection.session = Session(Principal("User", user), "127.0.0.1")

"""What handlers ask: everything is allowed without an authorizer, and with one what it says."""

import pytest
from acl_client import rule
from fencepost.broker.security.access import Access
from fencepost.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.principals import Principal, Session

ALICE, BOB = (Session(Principal("User", name), "::ffff:10.0.0.1") for name in ("alice", "bob"))
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALL_OPERATIONS = [(TOPIC, "t", 3576), (GROUP, "g", 3400), (CLUSTER, CLUSTER_NAME, 8096)]  # as Kafka answers


def access_of(*rules: str) -> Access:
    authorizer = Authorizer()
    for text in rules:
        authorizer.add(rule(text))
    return Access(authorizer, is_enforced=True)


@pytest.mark.parametrize(("kind", "name", "operations"), ALL_OPERATIONS)
def test_without_an_authorizer_every_operation_is_allowed(kind: ResourceType, name: str, operations: int) -> None:
    authorizer = Authorizer()
    authorizer.add(rule("deny User:* ALL TOPIC = *"))
    access = Access(authorizer, is_enforced=False)
    assert access.allows(ALICE, Operation.READ, kind, name)
    assert access.allows_on_any(ALICE, Operation.WRITE, kind)
    assert access.allows_on_cluster(ALICE, Operation.ALTER)
    assert access.allowed(ALICE, Operation.READ, kind, [name]) == {name}
    assert access.operations(ALICE, kind, name) == operations


def test_an_authorizer_is_asked_with_the_connections_user_and_address() -> None:
    """All methods of Access ask the authorizer in this way."""
    access = access_of(
        "allow User:alice READ TOPIC ^ a @10.0.0.1",
        "deny User:alice READ TOPIC = ab",
        "allow User:alice WRITE TOPIC = w",
        "allow User:bob ALTER CLUSTER = kafka-cluster",
    )
    assert access.allows(ALICE, Operation.READ, TOPIC, "a")
    assert not access.allows(BOB, Operation.READ, TOPIC, "a")
    assert not access.allows(Session(ALICE.principal, "10.0.0.2"), Operation.READ, TOPIC, "a")
    assert access.allowed(ALICE, Operation.READ, TOPIC, ["a", "ab", "abc", "b"]) == {"a", "abc"}
    assert access.allows_on_cluster(BOB, Operation.ALTER)
    assert not access.allows_on_cluster(ALICE, Operation.ALTER)
    assert access.allows_on_any(ALICE, Operation.WRITE, TOPIC)
    assert not access.allows_on_any(BOB, Operation.WRITE, TOPIC)
    assert access.operations(ALICE, TOPIC, "abc") == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert access.operations(BOB, TOPIC, "abc") == 0

"""Rules and filters as values: what may be a rule, and which rules a filter means."""

from typing import Any

import pytest
from fencepost.broker.security.acls import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
    check_filter,
    member_of,
)
from fencepost.protocol.errors import ErrorCode, KafkaError

BINDING = AclBinding(
    ResourceType.TOPIC, PatternType.LITERAL, "orders", "User:alice", "*", Operation.READ, Permission.ALLOW
)
ALL = AclFilter(ResourceType.ANY, PatternType.ANY, None, None, None, Operation.ANY, Permission.ANY)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"pattern_type": PatternType.PREFIXED},
        {"resource_name": "no topic's name"},
        {"resource_name": "*"},
        {"principal": "Group:"},
        {"host": ""},
        {"host": "10.0.0.0/8"},
        {"operation": Operation.ALL},
        {"operation": Operation.CLUSTER_ACTION},  # topics have no such operation, but Kafka accepts it
        {"resource_type": ResourceType.CLUSTER, "resource_name": "kafka-cluster"},
        {"resource_type": ResourceType.USER, "permission": Permission.DENY},
    ],
)
def test_acls_with_unusual_fields_that_kafka_accepts_are_accepted(change: dict[str, Any]) -> None:
    check_binding(BINDING._replace(**change))


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": ResourceType.UNKNOWN},
        {"resource_type": ResourceType.ANY},
        {"resource_type": ResourceType.CLUSTER},
        {"resource_type": ResourceType.CLUSTER, "resource_name": "*"},
        {"pattern_type": PatternType.UNKNOWN},
        {"pattern_type": PatternType.ANY},
        {"pattern_type": PatternType.MATCH},
        {"resource_name": ""},
        {"principal": ""},
        {"principal": "alice"},
        {"operation": Operation.UNKNOWN},
        {"operation": Operation.ANY},
        {"permission": Permission.UNKNOWN},
        {"permission": Permission.ANY},
    ],
)
def test_an_acl_with_an_invalid_field_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(KafkaError) as refused:
        check_binding(BINDING._replace(**change))
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, True),
        ({"resource_type": ResourceType.TOPIC}, True),
        ({"resource_type": ResourceType.GROUP}, False),
        ({"principal": "User:alice"}, True),
        ({"principal": "User:*"}, False),
        ({"principal": ""}, False),
        ({"host": "*"}, True),
        ({"host": "10.0.0.1"}, False),
        ({"host": ""}, False),
        ({"operation": Operation.READ}, True),
        ({"operation": Operation.ALL}, False),
        ({"operation": Operation.DESCRIBE}, False),
        ({"permission": Permission.ALLOW}, True),
        ({"permission": Permission.DENY}, False),
    ],
)
def test_a_filter_matches_acls_equal_in_all_fields_that_it_sets(wanted: dict[str, Any], found: bool) -> None:
    assert ALL._replace(**wanted).matches(BINDING) is found


LITERAL, PREFIXED, ANY, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY, PatternType.MATCH


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (ANY, None, ["= orders", "= *", "^ ord", "^ orders", "^ *"]),
        (MATCH, None, ["= orders", "= *", "^ ord", "^ orders", "^ *"]),
        (LITERAL, None, ["= orders", "= *"]),
        (PREFIXED, None, ["^ ord", "^ orders", "^ *"]),
        (ANY, "orders", ["= orders", "^ orders"]),
        (ANY, "*", ["= *", "^ *"]),
        (LITERAL, "orders", ["= orders"]),
        (LITERAL, "*", ["= *"]),
        (PREFIXED, "orders", ["^ orders"]),
        (PREFIXED, "ord", ["^ ord"]),
        (PREFIXED, "order", []),
        (MATCH, "orders", ["= orders", "= *", "^ ord", "^ orders"]),
        (MATCH, "orders2", ["= *", "^ ord", "^ orders"]),
        (MATCH, "ordain", ["= *", "^ ord"]),
        (MATCH, "o", ["= *"]),
        (MATCH, "*", ["= *", "^ *"]),
        (MATCH, "*x", ["= *", "^ *"]),
        (MATCH, "", ["= *"]),
        (ANY, "", []),
    ],
)
def test_acl_patterns_match_names_by_their_pattern_type(
    pattern: PatternType, name: str | None, found: list[str]
) -> None:
    rules = {"= orders": LITERAL, "= *": LITERAL, "^ ord": PREFIXED, "^ orders": PREFIXED, "^ *": PREFIXED}
    wanted = ALL._replace(pattern_type=pattern, resource_name=name)
    bindings = {text: BINDING._replace(pattern_type=kind, resource_name=text[2:]) for text, kind in rules.items()}
    assert [text for text, binding in bindings.items() if wanted.matches(binding)] == found


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission"])
def test_a_filter_with_an_unknown_code_is_refused(field: str) -> None:
    check_filter(ALL)
    with pytest.raises(KafkaError) as refused:
        check_filter(ALL._replace(**{field: member_of(type(getattr(ALL, field)), 99)}))
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("code", [-128, -1, 0, 16, 127])
def test_an_acl_code_that_kafka_does_not_use_becomes_the_member_unknown(code: int) -> None:
    assert member_of(Operation, code) is Operation.UNKNOWN
    assert member_of(ResourceType, code) is ResourceType.UNKNOWN

"""From the options of `fencepost acl` to rules: the shorthands as those of kafka-acls.sh, and what makes no rule."""

from dataclasses import replace
from typing import Any

import pytest
from fencepost.cli.access.rules import (
    CLUSTER,
    OPERATIONS,
    Resource,
    Unclear,
    Wanted,
    filters_of,
    pairs_of,
    principal_of,
    rules_of,
)
from fencepost.client.admin.security_values import OPERATIONS as KNOWN
from fencepost.client.admin.security_values import AclBinding, AclFilter, creation, filter_fields

NOTHING = Wanted((), (), (), (), prefixed=False, producer=False, consumer=False)
ALICE = ("allow", "User:alice")
ORDERS, BILLING, ID = Resource("topic", "orders"), Resource("group", "billing"), Resource("transactional_id", "t1")


def wanted(**given: Any) -> Wanted:
    return replace(NOTHING, **given)


def texts(rules: list[dict[str, Any]]) -> list[str]:
    return [str(AclBinding(**each)) for each in rules]


def test_acl_shorthand_producer_allows_topic_writes_creation_and_transactions() -> None:
    assert texts(rules_of(wanted(principals=[ALICE], resources=[ORDERS, ID], producer=True))) == [
        "allow User:alice write topic orders",
        "allow User:alice describe topic orders",
        "allow User:alice create topic orders",
        "allow User:alice write transactional_id t1",
        "allow User:alice describe transactional_id t1",
    ]


def test_acl_shorthand_consumer_allows_topic_reads_and_its_group() -> None:
    asked = wanted(principals=[ALICE], resources=[ORDERS, BILLING], consumer=True, prefixed=True)
    assert texts(rules_of(asked)) == [
        "allow User:alice read topic orders*",
        "allow User:alice describe topic orders*",
        "allow User:alice read group billing*",
    ]


def test_acl_shorthands_producer_and_consumer_together_repeat_no_acl() -> None:
    both = wanted(resources=[ORDERS, BILLING, ID], producer=True, consumer=True)
    assert pairs_of(both) == [
        ("write", ORDERS),
        ("describe", ORDERS),
        ("create", ORDERS),
        ("write", ID),
        ("describe", ID),
        ("read", ORDERS),
        ("read", BILLING),
    ]


def test_acl_add_creates_one_acl_per_combination_of_its_options() -> None:
    asked = wanted(
        principals=[ALICE, ("deny", "User:*")],
        hosts=["10.0.0.1", "10.0.0.2"],
        operations=["read", "write"],
        resources=[ORDERS, Resource("cluster", CLUSTER)],
        prefixed=True,
    )
    rules = rules_of(asked)
    assert len({str(rule) for rule in rules}) == 16
    assert {rule["pattern"] for rule in rules if rule["resource_type"] == "cluster"} == {"literal"}
    assert {rule["pattern"] for rule in rules if rule["resource_type"] == "topic"} == {"prefixed"}


@pytest.mark.parametrize(
    ("asked", "cause"),
    [
        (wanted(), "no user is given"),
        (wanted(principals=[ALICE]), "no resource is given"),
        (wanted(principals=[ALICE], resources=[ORDERS]), "no operation is given"),
        (wanted(principals=[ALICE], operations=["read"]), "no resource is given"),
        (wanted(principals=[ALICE], producer=True), "need a topic"),
        (wanted(principals=[ALICE], resources=[ID], producer=True), "need a topic"),
        (wanted(principals=[ALICE], resources=[ORDERS], consumer=True), "--consumer needs a group"),
        (wanted(principals=[ALICE], resources=[ORDERS, BILLING], producer=True), "--group belongs to --consumer"),
        (wanted(principals=[ALICE], resources=[ORDERS, BILLING, ID], consumer=True), "belongs to --producer"),
        (wanted(principals=[ALICE], resources=[ORDERS], operations=["read"], producer=True), "--operation cannot"),
        (wanted(principals=[ALICE], resources=[ORDERS, Resource("cluster", CLUSTER)], producer=True), "--cluster"),
    ],
)
def test_rules_of_raises_unclear_for_incomplete_acl_options_and_names_the_cause(asked: Wanted, cause: str) -> None:
    with pytest.raises(Unclear, match=cause) as raised:
        rules_of(asked)
    assert raised.value.hint


def test_acl_filters_match_any_value_of_omitted_options() -> None:
    (everything,) = filters_of(NOTHING, applying=True)
    assert AclFilter(**everything) == AclFilter()
    (of_alice,) = filters_of(wanted(principals=[ALICE]), applying=False)
    assert AclFilter(**of_alice) == AclFilter(principal="User:alice", permission="allow")
    (applying,) = filters_of(wanted(resources=[ORDERS]), applying=True)
    assert AclFilter(**applying) == AclFilter(resource_type="topic", resource_name="orders", pattern="match")
    (literal,) = filters_of(wanted(resources=[ORDERS]), applying=False)
    assert literal["pattern"] == "literal"


def test_acl_list_with_a_shorthand_finds_the_acls_it_adds() -> None:
    asked = wanted(principals=[ALICE], resources=[ORDERS, ID], producer=True, prefixed=True)
    added, found = rules_of(asked), filters_of(asked, applying=False)
    assert [{**each, "host": None} for each in added] == found


def test_wanted_says_nothing_is_true_only_without_any_acl_option() -> None:
    assert NOTHING.says_nothing
    for field, value in {"principals": [ALICE], "hosts": ["h"], "operations": ["read"], "producer": True}.items():
        assert not wanted(**{field: value}).says_nothing


def test_acl_user_options_accept_a_name_without_the_user_prefix() -> None:
    assert [principal_of(each) for each in ("alice", "*", "User:CN=a,O=b", "Group:x")] == [
        "User:alice",
        "User:*",
        "User:CN=a,O=b",
        "Group:x",
    ]


def test_the_sdk_accepts_every_acl_that_the_command_line_can_describe() -> None:
    assert set(OPERATIONS) <= set(KNOWN)
    asked = wanted(principals=[ALICE], operations=OPERATIONS, resources=[ORDERS, BILLING, ID])
    for rule in rules_of(asked):
        creation(AclBinding(**rule))
    for applying in (True, False):
        for each in filters_of(asked, applying=applying):
            filter_fields(AclFilter(**each))

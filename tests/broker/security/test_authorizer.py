"""What the rules of access come to: a table for each, and everything against a reference that looks at all rules."""

from itertools import product
from random import Random
from typing import Any

import pytest
from fencepost.broker.security.acls import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from fencepost.broker.security.authorizer import KEPT_ANSWERS, LONGEST_KEPT_NAME, Authorizer
from fencepost.broker.security.principals import Principal, parse_principal
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import share_of
from naive_authorizer import is_allowed, is_allowed_on_any

ALICE, BOB, GROUP = Principal("User", "alice"), Principal("User", "bob"), Principal("Group", "alice")
HERE, THERE = "10.0.0.1", "::1"
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
REAL_OPERATIONS = [each for each in Operation if each > Operation.ALL]


def rule(text: str) -> AclBinding:
    """Return the ACL for a topic that is written like `allow alice READ = orders` or `deny * ALL ^ ord @10.0.0.1`. `=`
    is LITERAL, `^` is PREFIXED, `@` begins the host.
    """
    permission, who, operation, pattern, name, *host = text.split(" ")
    return AclBinding(
        TOPIC,
        {"=": PatternType.LITERAL, "^": PatternType.PREFIXED}[pattern],
        name,
        who if ":" in who else f"User:{who}",
        host[0].removeprefix("@") if host else "*",
        Operation[operation],
        Permission[permission.upper()],
    )


def authorizer_of(*rules: str, **more: Any) -> Authorizer:
    made = Authorizer(**more)
    for each in rules:
        made.add(rule(each))
    return made


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], False),
        (["allow alice READ = orders"], True),
        (["allow bob READ = orders"], False),
        (["allow alice WRITE = orders"], False),
        (["allow alice READ = order"], False),
        (["allow alice READ = orders2"], False),
        (["allow alice ALL = orders"], True),
        # Who.
        (["allow * READ = orders"], True),
        (["allow Group:alice READ = orders"], False),
        (["allow Group:* READ = orders"], False),
        (["allow alic READ = orders"], False),
        # Names.
        (["allow alice READ = *"], True),
        (["allow alice READ ^ ord"], True),
        (["allow alice READ ^ orders"], True),
        (["allow alice READ ^ orders2"], False),
        (["allow alice READ ^ *"], False),
        # From where.
        (["allow alice READ = orders @10.0.0.1"], True),
        (["allow alice READ = orders @::ffff:10.0.0.1"], True),
        (["allow alice READ = orders @10.0.0.2"], False),
        (["allow alice READ = orders @10.0.0.*"], False),
        (["allow alice READ = orders @"], False),
        # Deny wins, wherever it stands and however it is spelt.
        (["allow alice READ = orders", "deny alice READ = orders"], False),
        (["deny alice READ = orders", "allow alice READ = orders"], False),
        (["allow alice READ = orders", "deny * READ = orders"], False),
        (["allow alice READ = orders", "deny alice ALL = orders"], False),
        (["allow alice READ = orders", "deny alice READ = *"], False),
        (["allow alice READ = orders", "deny alice READ ^ o"], False),
        (["allow alice READ = orders", "deny alice READ = orders @10.0.0.1"], False),
        (["allow alice ALL = *", "deny * ALL ^ orders"], False),
        # … but only what the rule names.
        (["allow alice READ = orders", "deny bob READ = orders"], True),
        (["allow alice READ = orders", "deny alice WRITE = orders"], True),
        (["allow alice READ = orders", "deny alice READ = order"], True),
        (["allow alice READ = orders", "deny alice READ ^ orders2"], True),
        (["allow alice READ = orders", "deny alice READ = orders @::1"], True),
        (["allow alice READ = orders", "deny Group:* READ = orders"], True),
    ],
)
def test_acls_match_user_name_and_host_and_a_deny_wins_in_any_order(rules: list[str], allowed: bool) -> None:
    for made in (authorizer_of(*rules), authorizer_of(*reversed(rules))):
        assert made.allows(ALICE, HERE, READ, TOPIC, "orders") is allowed
        assert made.allows(ALICE, HERE, READ, TOPIC, "orders") is allowed, "asked again"


IMPLIED = {
    DESCRIBE: {READ, WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


@pytest.mark.parametrize(("asked", "given_"), list(product(REAL_OPERATIONS, REAL_OPERATIONS)))
def test_an_allowed_operation_implies_others_as_in_kafka_a_denied_one_none(asked: Operation, given_: Operation) -> None:
    allowing = authorizer_of(f"allow alice {given_.name} = t")
    assert allowing.allows(ALICE, HERE, asked, TOPIC, "t") is (asked is given_ or given_ in IMPLIED.get(asked, ()))
    denying = authorizer_of("allow alice ALL = t", f"deny alice {given_.name} = t")
    assert denying.allows(ALICE, HERE, asked, TOPIC, "t") is (asked is not given_), "to deny implies nothing"


def test_an_acl_does_not_apply_to_resources_of_another_type() -> None:
    made = Authorizer()
    made.add(rule("allow alice ALL = t"))
    for kind in ResourceType:
        assert made.allows(ALICE, HERE, READ, kind, "t") is (kind is TOPIC)


def test_a_super_user_may_do_everything_even_if_an_acl_denies_it() -> None:
    made = authorizer_of("deny * ALL = *", super_users=[ALICE])
    assert made.allows(ALICE, HERE, READ, TOPIC, "t")
    assert made.allows_on_any(ALICE, HERE, WRITE, TOPIC)
    assert not made.allows(BOB, HERE, READ, TOPIC, "t")
    assert not made.allows(GROUP, HERE, READ, TOPIC, "t"), "of the same name, and of another kind"


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], True),
        (["allow bob READ = orders"], False),
        (["deny bob READ = orders"], False),
        (["allow bob READ = *"], False),
        (["allow bob READ ^ or"], False),
        (["allow bob READ = order"], True),
        (["allow bob READ ^ orders2"], True),
        (["allow bob READ = orders @10.9.9.9"], False),
        (["allow bob READ = orders", "allow alice READ = orders"], True),
    ],
)
def test_allow_everyone_if_no_acl_found_applies_to_names_without_acls(rules: list[str], allowed: bool) -> None:
    made = authorizer_of(*rules, allow_everyone_if_no_acl=True)
    assert made.allows(ALICE, HERE, READ, TOPIC, "orders") is allowed


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], False),
        (["allow alice WRITE = a"], True),
        (["allow alice ALL = a"], True),
        (["allow alice READ = a"], False),
        (["allow * WRITE ^ a"], True),
        (["allow bob WRITE = a"], False),
        (["allow alice WRITE = a @::1"], False),
        (["allow alice WRITE = a", "deny alice WRITE = a"], False),
        (["allow alice WRITE = a", "deny alice WRITE = b"], True),
        (["allow alice WRITE = abc", "deny alice WRITE ^ ab"], False),
        (["allow alice WRITE = abc", "deny alice WRITE ^ abcd"], True),
        (["allow alice WRITE ^ abc", "deny alice WRITE = abc"], True),
        (["allow alice WRITE ^ abc", "deny alice WRITE ^ abc"], False),
        (["allow alice WRITE ^ abc", "deny alice WRITE ^ abcd"], True),
        (["allow alice WRITE = a", "deny alice WRITE = *"], False),
        (["allow alice WRITE = *", "deny alice WRITE = *"], False),
        (["allow alice WRITE = *", "deny alice WRITE ^ a"], True),
        (["allow alice WRITE = a", "deny bob WRITE = *"], True),
    ],
)
def test_allows_on_any_returns_whether_the_user_may_write_some_topic(rules: list[str], allowed: bool) -> None:
    made = authorizer_of(*rules)
    assert made.allows_on_any(ALICE, HERE, WRITE, TOPIC) is allowed
    assert made.allows_on_any(ALICE, HERE, WRITE, TOPIC) is allowed, "asked again"


def test_cached_authorizer_answers_are_dropped_at_every_change() -> None:
    made, allow, deny = Authorizer(), rule("allow alice WRITE = t"), rule("deny * ALL ^ t")

    def answers() -> tuple[bool, bool]:
        return made.allows(ALICE, HERE, WRITE, TOPIC, "t"), made.allows_on_any(ALICE, HERE, WRITE, TOPIC)

    assert answers() == (False, False)
    made.add(allow)
    assert answers() == (True, True)
    made.add(deny)
    assert answers() == (False, False)
    made.remove(deny)
    assert answers() == (True, True)
    made.remove(allow)
    assert answers() == (False, False)


def test_removing_a_prefixed_acl_keeps_others_of_the_same_prefix_length() -> None:
    made = authorizer_of("allow alice READ ^ ab", "allow alice READ ^ cd", "allow bob READ ^ ab")
    made.remove(rule("allow alice READ ^ cd"))
    made.remove(rule("allow bob READ ^ ab"))
    assert made.allows(ALICE, HERE, READ, TOPIC, "abc")
    assert not made.allows(BOB, HERE, READ, TOPIC, "abc")


def test_the_number_and_name_length_of_cached_answers_are_limited() -> None:
    made = authorizer_of("allow alice READ ^ t")
    for number in range(KEPT_ANSWERS + 10):
        assert made.allows(ALICE, HERE, READ, TOPIC, f"t{number}")
    made.allows(ALICE, HERE, READ, TOPIC, "t" * (LONGEST_KEPT_NAME + 1))
    assert len(made._answers) <= KEPT_ANSWERS
    assert max(len(name) for *_, name in made._answers if name) <= LONGEST_KEPT_NAME


def test_removing_all_acls_leaves_an_empty_authorizer() -> None:
    made = Authorizer()
    empty = {name: len(value) for name, value in vars(made).items() if isinstance(value, dict)}
    rules = [
        rule(f"{what} {who} READ {how} n{i}")
        for what in ("allow", "deny")
        for who in "ab"
        for how in "=^"
        for i in range(3)
    ]
    for each in rules + rules:
        made.add(each)
    assert len(made) == len(rules)
    assert list(made) == rules
    for each in rules + rules:
        made.remove(each)
    assert {name: len(value) for name, value in vars(made).items() if isinstance(value, dict)} == empty
    assert not any(made._prefix_lengths.values())


def test_authorizing_takes_no_longer_with_more_acls_that_do_not_match() -> None:
    looked: list[int] = []

    class Counting(dict[Any, Any]):
        def get(self, *key: Any) -> Any:
            looked.append(1)
            return super().get(*key)

    def looks(rules: int) -> int:
        made = authorizer_of("allow alice READ = orders")
        for number in range(rules):
            made.add(rule(f"allow alice READ {'=^'[number % 2]} x{number % 7 * 'y'}{number}"))
            made.add(rule(f"allow user-{number} READ = orders"))
        made._by_pattern = Counting(made._by_pattern)
        looked.clear()
        assert made.allows(ALICE, HERE, READ, TOPIC, "orders")
        return len(looked)

    assert looks(2000) <= looks(200) + 4, "a look-up more for each new length of a prefix"


# ---- against the reference -----------------------------------------------------------------------------------

NAMES = ["", "a", "ab", "abc", "b", "*", "*a", "hardcode", "hard", "é"]
HOSTS = ["*", "10.0.0.1", "::1", "0:0:0:0:0:0:0:1", "", "10.0.0.2"]
WHO = ["User:alice", "User:bob", "User:*", "Group:alice", "Group:*", "User:"]
SOME_OPERATIONS = [ALL, READ, WRITE, DESCRIBE, Operation.ALTER, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS]
BINDINGS = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, TOPIC, CLUSTER]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(NAMES[1:]),
    st.sampled_from(WHO),
    st.sampled_from(HOSTS),
    st.sampled_from(SOME_OPERATIONS),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)
CHANGES = st.lists(BINDINGS | BINDINGS | st.integers(0, 9), max_size=16)
"""A rule that is added, or which of those that are there is removed."""
QUESTIONS = [
    (parse_principal(who), host, operation, name)
    for who in WHO
    for host in (HERE, THERE)
    for operation in SOME_OPERATIONS[1:]
    for name in NAMES
]


SUPER_USERS = st.sets(st.sampled_from([ALICE, GROUP]), max_size=1)


@pytest.mark.slow
@settings(max_examples=share_of(140))
@given(CHANGES, SUPER_USERS, st.booleans())
def test_the_authorizer_answers_like_a_reference_that_scans_all_acls(
    changes: list[AclBinding | int], super_users: set[Principal], everyone: bool
) -> None:
    check_all_answers(changes, super_users, everyone)


@pytest.mark.long
@settings(max_examples=5_000)
@given(CHANGES, SUPER_USERS, st.booleans())
def test_the_authorizer_answers_like_the_reference_for_random_acls_and_super_users(
    changes: list[AclBinding | int], super_users: set[Principal], everyone: bool
) -> None:
    check_all_answers(changes, super_users, everyone)


def check_all_answers(changes: list[AclBinding | int], super_users: set[Principal], everyone: bool) -> None:
    """Make the changes, then compare the answers with a reference that looks at every rule: to 720 questions about one
    name, and 72 about any name.

    changes: rules to add, and the numbers of rules to remove.
    """
    made = Authorizer(super_users, allow_everyone_if_no_acl=everyone)
    rules: dict[AclBinding, None] = {}
    for change in changes:
        if isinstance(change, AclBinding):
            made.add(change)
            rules[change] = None
        elif change < len(rules):
            binding = list(rules)[change]
            made.remove(binding)
            del rules[binding]
    assert list(made) == list(rules)
    more: dict[str, Any] = {"super_users": super_users, "allow_everyone_if_no_acl": everyone}
    for who, host, operation, name in QUESTIONS:
        expected = is_allowed(rules, who, host, operation, TOPIC, name, **more)
        assert made.allows(who, host, operation, TOPIC, name) is expected, (who, host, operation, name)
    for who, host, operation in dict.fromkeys(question[:3] for question in QUESTIONS):
        expected = is_allowed_on_any(rules, who, host, operation, TOPIC, **more)
        assert made.allows_on_any(who, host, operation, TOPIC) is expected, (who, host, operation)


FILTERS = st.builds(
    AclFilter,
    st.sampled_from([ResourceType.ANY, TOPIC, CLUSTER, ResourceType.GROUP]),
    st.sampled_from([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
    st.none() | st.sampled_from(NAMES),
    st.none() | st.sampled_from(WHO),
    st.none() | st.sampled_from(HOSTS),
    st.sampled_from([Operation.ANY, *SOME_OPERATIONS]),
    st.sampled_from([Permission.ANY, Permission.ALLOW, Permission.DENY]),
)


@pytest.mark.slow
@given(st.sets(BINDINGS, max_size=30), st.lists(FILTERS, max_size=20))
def test_the_authorizer_finds_for_a_filter_the_same_acls_as_a_scan_of_all(
    bindings: set[AclBinding], filters: list[AclFilter]
) -> None:
    made = Authorizer()
    for binding in bindings:
        made.add(binding)
    for wanted in filters:
        found = made.find(wanted)
        assert len(found) == len(set(found))
        assert set(found) == {binding for binding in bindings if wanted.matches(binding)}


# ---- what holds of any rules ---------------------------------------------------------------------------------

SETS_OF_RULES = st.lists(BINDINGS, max_size=8)


def answers_to(rules: list[AclBinding]) -> list[bool]:
    made = Authorizer()
    for each in rules:
        made.add(each)
    return [made.allows(who, host, operation, TOPIC, name) for who, host, operation, name in QUESTIONS]


@pytest.mark.slow
@settings(max_examples=share_of(60))
@given(SETS_OF_RULES, BINDINGS)
def test_a_further_deny_acl_never_allows_more_and_a_further_allow_acl_never_less(
    rules: list[AclBinding], more: AclBinding
) -> None:
    before, after = answers_to(rules), answers_to([*rules, more])
    denies = more.permission is Permission.DENY
    assert all(new <= old if denies else new >= old for old, new in zip(before, after, strict=True))


@pytest.mark.slow
@settings(max_examples=share_of(60))
@given(SETS_OF_RULES, st.randoms(use_true_random=False))
def test_the_authorizer_ignores_the_order_in_which_acls_were_added(rules: list[AclBinding], random: Random) -> None:
    assert answers_to(random.sample(rules, len(rules))) == answers_to(rules)


@given(BINDINGS)
def test_a_deny_acl_for_everybody_wins_over_any_allow_acl(rule: AclBinding) -> None:
    denied = rule._replace(resource_type=TOPIC, principal="User:*", host="*", permission=Permission.DENY)
    allowed = denied._replace(permission=Permission.ALLOW, operation=ALL)
    everything = allowed._replace(pattern_type=PatternType.LITERAL, resource_name="*")
    made = Authorizer()
    for each in (everything, allowed, denied, allowed._replace(principal="User:alice")):
        made.add(each)
    name = denied.resource_name  # `*` among them, which as a literal fits any
    assert not made.allows(ALICE, HERE, READ if denied.operation is ALL else denied.operation, TOPIC, name)


def test_the_authorizers_version_changes_only_with_its_acls() -> None:
    made = authorizer_of("allow alice READ = orders")
    before = made.version
    made.add(rule("allow alice READ = orders"))
    made.remove(rule("allow alice READ = other"))
    made.allows(ALICE, HERE, READ, TOPIC, "orders")
    assert made.version == before
    made.add(rule("deny alice READ = orders"))
    changed = made.version
    made.remove(rule("deny alice READ = orders"))
    assert before != changed != made.version != before

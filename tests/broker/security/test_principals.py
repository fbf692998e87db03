"""Principals as Kafka writes them, and addresses in the one form in which they are compared."""

import pytest
from fencepost.broker.security.principals import (
    ANONYMOUS,
    Principal,
    Session,
    parse_principal,
    parse_super_users,
    plain_host,
)


@pytest.mark.parametrize(
    ("text", "principal"),
    [
        ("User:alice", Principal("User", "alice")),
        ("User:ANONYMOUS", ANONYMOUS),
        ("User:CN=a:b,O=c", Principal("User", "CN=a:b,O=c")),
        ("User:", Principal("User", "")),
        (":alice", Principal("", "alice")),
        ("Group:User:x", Principal("Group", "User:x")),
    ],
)
def test_a_principal_is_split_at_the_first_colon(text: str, principal: Principal) -> None:
    assert parse_principal(text) == principal
    assert str(principal) == text


@pytest.mark.parametrize("text", ["", "alice", "*"])
def test_a_principal_without_a_colon_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not of the form User:name"):
        parse_principal(text)


def test_super_users_are_separated_by_semicolons_and_may_contain_commas() -> None:
    named = parse_super_users(" User:a ; User:CN=b,O=c;;")
    assert named == {Principal("User", "a"), Principal("User", "CN=b,O=c")}
    assert parse_super_users("") == frozenset()
    with pytest.raises(ValueError, match="'b'"):
        parse_super_users("User:a;b")


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8:0:0:0:0:0:A", "2001:db8::a"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("*", "*"),
        ("", ""),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("010.0.0.1", "010.0.0.1"),
        ("some.host", "some.host"),
    ],
)
def test_equal_addresses_have_the_same_normalized_text(written: str, plain: str) -> None:
    assert plain_host(written) == plain
    assert Session(ANONYMOUS, written).host == plain

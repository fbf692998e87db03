"""`fencepost acl`: rules of access added, listed and removed, on a running broker."""

from collections.abc import Iterator

import pytest
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from served_broker import ServedBroker
from terminal import Terminal


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with ServedBroker(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS") as broker:
        yield Terminal(broker)


def test_acl_commands_add_list_and_remove_acls(terminal: Terminal) -> None:
    output = terminal.run("acl add --allow alice --consumer --topic orders --group billing")
    assert output.splitlines() == [
        "allow User:alice read topic orders",
        "allow User:alice describe topic orders",
        "allow User:alice read group billing",
    ]
    terminal.run("acl add --deny * --host 10.0.0.7 --operation All --topic or --prefixed")
    terminal.run("acl add --allow User:CN=a,O=b --operation IdempotentWrite --operation cluster-action --cluster")
    assert terminal.run("acl list --topic orders").splitlines() == [
        "PERMISSION  PRINCIPAL   HOST      OPERATION  RESOURCE  NAME    PATTERN",
        "deny        User:*      10.0.0.7  all        topic     or      prefixed",
        "allow       User:alice  *         describe   topic     orders  literal",
        "allow       User:alice  *         read       topic     orders  literal",
    ]
    assert len(terminal.objects("acl list")) == 6
    assert [each["operation"] for each in terminal.objects("acl list --cluster")] == [
        "cluster_action",
        "idempotent_write",
    ]
    assert [each["resource_name"] for each in terminal.objects("acl list --topic or --prefixed")] == ["or"]
    assert len(terminal.objects("acl list --deny *")) == 1
    assert len(terminal.objects("acl rm --allow alice --dry-run")) == 3
    assert len(terminal.objects("acl rm --consumer --allow alice --topic orders --group billing")) == 3
    terminal.run("acl rm --topic or --prefixed")
    assert terminal.err == "1 rule removed\n"
    assert len(terminal.objects("acl rm --cluster")) == 2
    terminal.run("acl list")
    assert "no rules; fencepost acl add adds one" in terminal.err


def test_wrong_acl_arguments_exit_with_2_or_3_and_print_the_cause(terminal: Terminal) -> None:
    for line, code, cause in [
        ("acl add", 2, "no user is given"),
        ("acl add --allow a", 2, "no resource is given"),
        ("acl add --allow a --consumer --topic t", 2, "--consumer needs a group"),
        ("acl rm", 2, "no rules are described"),
        ("acl rm --allow nobody", 3, "there are no such rules"),
    ]:
        found = terminal.refused(line)
        assert found[:2] == (code, cause), line
        assert found[2]
    terminal.run("acl add --allow a --operation reed --topic t")
    assert (terminal.code, "'reed' is not an operation" in terminal.err) == (2, True)


def test_acl_commands_without_an_authorizer_print_how_to_enable_one() -> None:
    with ServedBroker() as open_:
        code, cause, hint = Terminal(open_).refused("acl list")
    assert code == 1
    assert "rules of access" in cause
    assert "authorizer.class.name" in hint


def test_acl_add_without_the_right_exits_with_6_and_a_hint() -> None:
    with ServedBroker(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:admin") as closed:
        code, cause, hint = Terminal(closed).refused("acl add --allow a --operation read --topic t")
        assert code == 6
        assert "Not allowed on the cluster" in cause
        assert "--user NAME" in hint
        assert Terminal(closed).refused("user list")[0] == 6

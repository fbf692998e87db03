"""`fencepost user`: adding, listing and removing users, on a running broker."""

from collections.abc import Iterator

import pytest
from fencepost.broker.security.credentials import Mechanism
from fencepost.cli.access import user as module
from served_broker import ServedBroker
from terminal import Terminal


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker() as served:
        yield served


@pytest.fixture
def terminal(broker: ServedBroker) -> Terminal:
    return Terminal(broker)


def test_user_commands_add_list_and_remove_users(terminal: Terminal, broker: ServedBroker) -> None:
    output = terminal.run("user add alice --password-stdin", given=b"secret of alice\n")
    assert output == "alice added (SCRAM-SHA-256, SCRAM-SHA-512)\n"
    for mechanism in Mechanism:
        kept = broker.broker.security_log.state.users.find("alice", mechanism)
        assert kept is not None
        assert kept.is_made_from(b"secret of alice")
    assert terminal.run("user list").splitlines() == [
        "USER   MECHANISMS                   ITERATIONS",
        "alice  SCRAM-SHA-256,SCRAM-SHA-512  4096,4096",
    ]
    assert terminal.objects("user list alice") == [
        {"user": "alice", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"], "iterations": [4096, 4096]}
    ]
    output = terminal.run("user add alice --password-stdin --mechanism SCRAM-SHA-512 --iterations 8192", given=b"new")
    assert output == "alice has a new password (SCRAM-SHA-512)\n"
    assert terminal.run("user rm alice --mechanism SCRAM-SHA-256") == "alice may still log in by 1 other mechanism\n"
    assert terminal.objects("user list")[0]["iterations"] == [8192]
    assert terminal.objects("user rm alice") == [{"user": "alice", "removed": True}]
    terminal.run("user list")
    assert "no users; fencepost user add NAME adds one" in terminal.err


def test_an_unknown_user_exits_with_3_and_removes_nobody(terminal: Terminal) -> None:
    terminal.run("user add bob --password-stdin", given=b"x\n")
    code, cause, hint = terminal.refused("user rm bob carol")
    assert (code, cause, hint) == (3, "there is no user carol", "fencepost user list shows all users")
    assert terminal.refused("user list carol")[:2] == (3, "there is no user carol")
    terminal.run("user rm bob --mechanism scram-sha-512")
    assert terminal.refused("user rm bob --mechanism SCRAM-SHA-512")[1] == (
        "there is no user bob who logs in by SCRAM-SHA-512"
    )
    assert terminal.run("user rm bob") == "bob removed\n"


def test_user_add_on_a_terminal_asks_for_the_password_twice(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, cause, hint = terminal.refused("user add dave")
    assert (code, cause) == (2, "a password is needed, and there is no terminal to ask for it")
    assert "--password-stdin" in hint
    asked = []

    def typed(prompt: str, hint: str, *, confirm: bool = False) -> str:
        asked.append((prompt, confirm))
        return "typed"

    monkeypatch.setattr(module, "password_typed", typed)
    assert terminal.run("user add dave").startswith("dave added")
    assert asked == [("New password of dave", True)]
    terminal.run("user rm dave")


@pytest.mark.parametrize(
    ("given", "cause"),
    [(b"", "no password"), (b"\n", "no password"), (b"\xff\n", "not UTF-8"), (b"x" * 5_000, "longer than 4096")],
)
def test_an_unusable_password_is_refused_and_not_shown(terminal: Terminal, given: bytes, cause: str) -> None:
    terminal.run("user add erin --password-stdin", given=given)
    assert terminal.code == 2
    assert cause in terminal.err
    assert "xxx" not in terminal.err
    assert terminal.objects("user list") == []


def test_user_add_with_a_password_as_an_argument_exits_with_2(terminal: Terminal) -> None:
    terminal.run("user add alice secret")
    assert (terminal.code, "unexpected extra argument" in terminal.err) == (2, True)

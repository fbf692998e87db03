"""`fencepost quota`: quotas set, listed and removed, on a running broker and on a directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from served_broker import ServedBroker
from terminal import Terminal


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with ServedBroker() as broker:
        yield Terminal(broker)


def test_quota_commands_set_list_and_remove_quotas(terminal: Terminal) -> None:
    output = terminal.run("quota set user=alice --produce 1.5M --fetch 500 --request-time 12.5 --mutations 0.5")
    assert output.splitlines() == [
        "user=alice: producer_byte_rate 1,500,000",
        "user=alice: consumer_byte_rate 500",
        "user=alice: request_percentage 12.5",
        "user=alice: controller_mutation_rate 0.5",
    ]
    terminal.run("quota set user=alice client-id=* --produce 100k")
    terminal.run("quota set ip=10.0.0.1 --connections 20")
    assert terminal.run("quota list").splitlines() == [
        "USER   CLIENT ID  IP          PRODUCE  FETCH  REQUEST TIME  MUTATIONS  CONNECTIONS",
        "-      -          10.0.0.1          -      -             -          -           20",
        "alice  -          -         1,500,000    500          12.5        0.5            -",
        "alice  *          -           100,000      -             -          -            -",
    ]
    assert [each["client_id"] for each in terminal.objects("quota list user=alice")] == [None, "*"]
    assert terminal.objects("quota list ip=10.0.0.1") == [
        {"user": None, "client_id": None, "ip": "10.0.0.1", "connection_creation_rate": 20.0}
    ]
    assert [each["quota"] for each in terminal.objects("quota rm user=alice --only request_percentage")] == [
        "request_percentage"
    ]
    terminal.run("quota rm user=alice")
    assert terminal.err == "3 quotas removed\n"
    assert len(terminal.objects("quota list user=alice")) == 1, "the quota of alice's client ids was removed too"
    terminal.run("quota rm client-id=* user=alice")
    terminal.run("quota rm ip=10.0.0.1")
    terminal.run("quota list")
    assert "no quotas; fencepost quota set sets one" in terminal.err


def test_wrong_quota_arguments_exit_with_2_or_3_and_print_the_cause(terminal: Terminal) -> None:
    for line, code, cause in [
        ("quota set user=alice", 2, "no quota is given"),
        ("quota set --produce 5", 2, "nobody is named"),
        ("quota set user=alice user=bob --produce 5", 2, "a user, client id or ip is named twice"),
        ("quota set user=alice ip=10.0.0.1 --produce 5", 2, "a quota of an ip is for no user or client id"),
        ("quota rm user=nobody", 3, "user=nobody has no such quotas"),
        (
            "quota set ip=localhost --connections 5",
            2,
            "ip localhost: 'localhost' is no address, and names are not looked up",
        ),
        ("quota set user=alice --connections 5", 2, "user alice: connection_creation_rate is no quota of a user"),
    ]:
        found = terminal.refused(line)
        assert found[:2] == (code, cause), line
        assert found[2]
    for line, cause in [
        ("quota set alice --produce 5", "'alice' is not user=NAME"),
        ("quota set user=alice --produce fast", "'fast' is not a rate"),
        ("quota set user=alice --fetch 0", "'0' is out of range"),
        ("quota set user=alice --request-time nan", "nan"),
    ]:
        terminal.run(line)
        assert (terminal.code, cause in terminal.err) == (2, True), line


def test_quotas_can_be_set_in_the_directory_of_a_stopped_broker(terminal: Terminal, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    terminal.run(f"quota set user=* --produce 5 --data-dir {directory}")
    assert [each["user"] for each in terminal.objects(f"quota list --data-dir {directory}")] == ["*"]
    terminal.run(f"quota rm user=* --data-dir {directory}")
    assert terminal.objects(f"quota list --data-dir {directory}") == []

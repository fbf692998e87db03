"""`fencepost consume --share`: a worker of a share group at a terminal."""

from collections.abc import Iterator

import pytest
from served_broker import ServedBroker
from terminal import Terminal


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with ServedBroker() as broker:
        yield Terminal(broker)


def test_consume_in_a_share_group_prints_and_accepts_records_once(terminal: Terminal) -> None:
    terminal.run("topic create work")
    terminal.plain("work", "a", "b", "c")
    (first,) = terminal.objects("consume work --share -g packing --from start -n 1")
    assert (first["value"], first["offset"], first["delivery_count"]) == ("a", 0, 1)
    assert terminal.run("consume work --share -g packing -e") == "b\nc\n"
    assert terminal.run("consume work --share -g packing -e") == ""


def test_consume_in_a_new_share_group_without_from_starts_at_the_groups_own_setting(terminal: Terminal) -> None:
    """By default the end of the topic; the help text says so."""
    terminal.run("topic create later")
    terminal.plain("later", "before")
    assert terminal.run("consume later --share -g late -e") == ""
    terminal.plain("later", "after")
    assert terminal.run("consume later --share -g late -e") == "after\n"
    assert "[default: start; with --share, what the group has set]" in " ".join(terminal.run("consume --help").split())


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("consume work --share", "--share is for share groups"),
        ("consume work --share -g g --explain", "--share cannot be used with"),
        ("consume work --share -g g --group-protocol consumer", "--share cannot be used with"),
        ("consume work --share -g g --from 5", "a share group starts where it stands"),
        ("consume work:0 --share -g g", "a partition cannot be chosen"),
        ("consume work --share -g g --isolation read_committed", "--isolation cannot be used with --share"),
    ],
)
def test_consume_with_options_that_a_share_group_does_not_allow_exits_with_2(
    terminal: Terminal, line: str, cause: str
) -> None:
    code, told, _ = terminal.refused(line)
    assert (code, cause in told) == (2, True)

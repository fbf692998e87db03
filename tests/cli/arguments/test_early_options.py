"""Options before the command's name: they reach the command, whichever it is, or are refused as click refuses them."""

import click
import pytest
from click.testing import CliRunner
from fencepost.cli import main
from fencepost.cli.arguments.early_options import move_options
from served_broker import ServedBroker
from terminal import Terminal


def moved(line: str) -> str:
    context = click.Context(main, info_name="fencepost")
    assert isinstance(main, click.Group)
    return " ".join(move_options(context, main, line.split()))


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ("-b h:1 topic list", "topic list -b h:1"),
        ("--bootstrap=h:1 -o json topic list --internal", "topic list --bootstrap=h:1 -o json --internal"),
        ("-q topic -b h:1 list", "topic list -q -b h:1"),
        ("-b topic topic list", "topic list -b topic"),
        ("-b h:1 produce t", "produce -b h:1 t"),
        ("-b h:1 bench small --records 2", "bench small -b h:1 --records 2"),
        ("topic create -p 2 topic", "topic create -p 2 topic"),
    ],
)
def test_connection_options_before_the_command_apply_to_it(given: str, understood: str) -> None:
    assert moved(given) == understood


@pytest.mark.parametrize("line", ["-b h:1", "-z topic list", "-b topic list", "-p 3 topic list", "-b h:1 nonsense"])
def test_wrong_options_before_the_command_are_not_moved_and_click_refuses_them(line: str) -> None:
    assert moved(line) == line
    assert CliRunner().invoke(main, line.split()).exit_code == 2


def test_a_bootstrap_option_before_the_command_selects_the_broker() -> None:
    with ServedBroker() as broker:
        terminal = Terminal(broker)
        terminal.run("topic create early")
        terminal.bootstrap, bootstrap = "127.0.0.1:1", terminal.bootstrap
        assert "early" in terminal.run(f"-b {bootstrap} topic list")
        assert terminal.code == 0

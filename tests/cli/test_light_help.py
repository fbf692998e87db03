"""`--help` is cheap: nothing that a command needs is imported before it runs. Modules are counted, not seconds."""

import importlib
import subprocess
import sys

import pytest
from click.testing import CliRunner
from fencepost.cli import COMMANDS, main

PRINT_IMPORTED = """
import sys
import click
before = set(sys.modules)
from fencepost.cli import main
try:
    main(sys.argv[1:], standalone_mode=False)
except SystemExit:
    pass
print("\\n".join(sorted(set(sys.modules) - before)), file=sys.stderr)
"""
HEAVY = {"asyncio", "rich", "uvloop", "ssl", "cramjam", "crc32c", "msgpack", "sortedcontainers", "email", "tempfile"}
HEAVY |= {"fencepost.client", "fencepost.protocol", "fencepost.broker", "fencepost.storage"}
OF_THE_BROKER = (
    "topic",
    "group",
    "share-group",
    "named-producer",
    "user",
    "acl",
    "quota",
    "txn",
    "produce",
    "consume",
    "health",
    "doctor",
)
MAX_OWN_MODULES = 15


def imported(*words: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", PRINT_IMPORTED, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_the_list_of_commands_imports_no_command() -> None:
    found = imported("--help")
    assert not found & HEAVY
    assert {each for each in found if each.startswith("fencepost")} == {"fencepost", "fencepost.cli"}


@pytest.mark.parametrize(
    "words",
    [(each,) for each in OF_THE_BROKER]
    + [("txn", "why-blocked"), ("txn", "resolve"), ("sql", "schema"), ("topic", "create")],
    ids=" ".join,
)
def test_the_help_of_a_command_imports_nothing_of_the_client(words: tuple[str, ...]) -> None:
    found = imported(*words, "--help")
    assert not found & HEAVY, found & HEAVY
    assert len([each for each in found if each.startswith("fencepost")]) <= MAX_OWN_MODULES


def test_every_command_has_a_line_of_help() -> None:
    assert set(OF_THE_BROKER) <= set(COMMANDS)
    assert all(0 < len(text) <= 70 for text in COMMANDS.values())


def test_ctrl_c_before_a_command_began_prints_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    result = CliRunner().invoke(main, ["topic", "list"])
    assert (result.exit_code, result.output) == (130, "")

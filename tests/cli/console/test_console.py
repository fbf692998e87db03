"""`fencepost console`: what it serves, what it refuses, and how it ends."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from fencepost.cli import main
from fencepost.cli.console.options import address, token_of
from fencepost.cli.output.failures import Failure
from served_broker import ServedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker() as served:
        yield served


@pytest.mark.slow
def test_the_console_serves_until_ctrl_c_and_only_reads_by_default(broker: ServedBroker) -> None:
    command = [sys.executable, "-m", "fencepost", "console", "-b", f"127.0.0.1:{broker.port}", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.endswith(f"of 127.0.0.1:{broker.port}, read-only\n")
        with urllib.request.urlopen(line.split()[1] + "v1/session", timeout=20) as answer:
            session = json.load(answer)
        assert (session["changes_allowed"], session["changes_hint"]) == (False, "start it with --allow-changes")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        (["--http", "0.0.0.0:0"], 2, "--http-token-file"),
        (["--http", "127.0.0.1"], 2, "not HOST:PORT"),
        (["-b", "127.0.0.1:1", "--http", "127.0.0.1:0", "--timeout", "1s"], 4, "127.0.0.1:1"),
    ],
)
def test_wrong_console_options_print_one_line_of_cause_and_one_of_hint(
    options: list[str], code: int, expected: str
) -> None:
    result = CliRunner().invoke(main, ["console", *options])
    assert result.exit_code == code
    assert expected in result.output
    assert [line.split(":")[0] for line in result.output.splitlines()] == ["error", "hint"]


def test_a_port_in_use_is_an_error_with_a_hint(broker: ServedBroker) -> None:
    at = f"127.0.0.1:{broker.port}"
    result = CliRunner().invoke(main, ["console", "-b", at, "--http", at])
    assert result.exit_code == 75
    assert "in use" in result.output
    assert "port 0" in result.output


def test_console_without_aiohttp_exits_with_1_and_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "aiohttp" else found(name))
    result = CliRunner().invoke(main, ["console"])
    assert result.exit_code == 1
    assert "needs aiohttp" in result.output
    assert "pip install 'fencepost[console]'" in result.output


def test_a_console_address_needs_a_host_and_a_port() -> None:
    assert address("127.0.0.1:0") == ("127.0.0.1", 0)
    assert address("[::1]:8082") == ("::1", 8082)
    for wrong in ("", ":1", "a", "a:", "a:x", "a:70000", "a:-1"):
        with pytest.raises(Failure):
            address(wrong)


def test_a_console_token_is_the_single_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("a token of some length\n")
    assert token_of(str(path)) == "a token of some length"
    assert token_of(None) is None
    for content in (b"", b"\n", b"a\nb", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(Failure):
            token_of(str(path))

"""docs/cli.md: the sessions on the page are run with a broker, and their output is compared with the page."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click
import pytest
from click.testing import CliRunner
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from fencepost.cli import COMMANDS, main
from served_broker import ServedBroker

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
SESSIONS = re.findall(r"^```console\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def steps(session: str) -> list[tuple[str, str]]:
    """Return (command, its output) of each command of a terminal session on the page."""
    parts = re.split(r"^\$ (.*)\n", session, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def alike(text: str) -> str:
    """Replace what differs from run to run by words in capitals: addresses, times, ids, sizes, growing versions."""
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    text = re.sub(r"id \S+", "id ID", text)
    text = re.sub(r"fencepost\.version \d+", "fencepost.version N", text)  # grows with each API of our own
    text = re.sub(r"\d+ topics?, \d+ partitions", "TOPICS", text)
    text = re.sub(r"[\d.]+ (ms|s)\b( of [^\n]*| in [^\n]*)?", "TIME", text)
    text = re.sub(r"producer \d+ epoch \d+", "PRODUCER", text)
    text = re.sub(r" \d+:\d+ ", " P:E ", text)
    text = re.sub(r"\d+ files, [\d.]+ MB, through unit \d+", "CONTENTS", text)
    return re.sub(r"[ \t]+", " ", text).strip()


def untimed(line: str) -> str:
    """Cut out of a row of `txn list` what stands between its age and its first partition."""
    return re.sub(r"(?<=TIME ).*(?=orders-0)", "", line)


def shown(typed: str, environment: dict[str, str]) -> str:
    """Run a command line in the current directory, in this process if it needs no shell, and return its output."""
    if re.fullmatch(r"fencepost [\w .:/=,-]+", typed):
        result = CliRunner(env=environment).invoke(main, typed.split()[1:])
        assert result.exit_code == 0, (typed, result.stderr)
        return result.stdout
    done = subprocess.run(["bash", "-c", typed], env=environment, capture_output=True, timeout=60)
    assert done.returncode == 0, (typed, done.stderr.decode())
    return done.stdout.decode()


def test_the_terminal_sessions_on_the_cli_page_match_the_real_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(SESSIONS) == 6
    (tmp_path / "password.txt").write_text("of alice\n")
    guarded = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}
    with ServedBroker(log_dir=str(tmp_path / "data"), **guarded) as broker:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "FENCEPOST_BOOTSTRAP": f"127.0.0.1:{broker.port}"}
        held: list[subprocess.Popen[bytes]] = []
        try:
            for typed, printed in [step for session in SESSIONS for step in steps(session)]:
                if typed.endswith("&"):
                    held.append(_held(typed.removesuffix("&"), environment))
                    continue
                assert untimed(alike(shown(typed, environment))) == untimed(alike(printed)), typed
        finally:
            for process in held:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(30)


def _held(typed: str, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start a command that holds a transaction open, and return it once it has printed that it does."""
    process = subprocess.Popen(["bash", "-c", typed], env=environment, stderr=subprocess.PIPE, start_new_session=True)
    assert process.stderr is not None
    assert b"held for" in process.stderr.readline()
    process.stderr.close()
    return process


def leaves(group: click.Group, ctx: click.Context, *names: str) -> Iterator[tuple[str, click.Command]]:
    """Yield (full name, command) of every command in a group and its subgroups that is no group itself."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, ctx, *names, name)
        else:
            yield " ".join([*names, name]), command


def test_each_command_has_the_common_options_of_the_cli_page_or_is_an_exception() -> None:
    common = set(re.findall(r"`(--?[\w-]+)", PAGE.split("| option")[1].split("\n\n")[0]))
    login = {"--user", "--sasl", "--tls", "--tls-ca", "--tls-cert", "--tls-key", "--client-config"}
    assert common == {"-b", "--bootstrap", "-X", "--timeout", "-o", "-q"} | login
    (exceptions,) = re.findall(r"^(`serve`.*?) have their own options", PAGE, flags=re.MULTILINE)
    others = {"serve", "log dump", "log verify", "backup", "restore", "demo", "spark env", "spark demo", "sql schema"}
    others |= {"store status", "store verify", "store take", "mirror run", "mirror status", "mirror cutover"}
    generating = {"generate grafana", "generate prometheus", "generate systemd"}
    assert set(re.findall(r"`([a-z ]+)`", exceptions)) == {
        name.replace("log dump", "log").replace("store status", "store").replace("mirror run", "mirror")
        for name in others - {"log verify", "store verify", "store take", "mirror status", "mirror cutover"}
    } | {"generate"}
    for name, command in leaves(cast(click.Group, main), click.Context(main)):
        found = {option for each in command.params for option in each.opts}
        if name.startswith("bench "):
            assert {"-b", "-o"} <= found or name == "bench compare", name  # which asks no broker
            assert not found & {"--timeout", "-q"}, name
            assert ("-X" in found) == (name == "bench produce"), name
        elif name not in others | generating:
            assert common <= found, name


def test_every_command_and_exit_code_is_on_the_cli_page() -> None:
    import fencepost.cli as cli

    for name in set(COMMANDS) - {"serve", "log", "demo"}:
        assert re.search(rf"\b{name}\b", PAGE), name
    for code in re.findall(r"\b(\d+)\b", cli.__doc__ or ""):
        assert re.search(rf"^\| {code} \|", PAGE, flags=re.MULTILINE), code

"""`fencepost serve --http`: the console is a process beside the broker, which neither needs it nor waits for it."""

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess, broker_process
from click.testing import CliRunner
from confluent_kafka import Producer
from fencepost.broker.config.configuration import broker_settings
from fencepost.cli import main
from fencepost.cli.serve import children, console
from fencepost.cli.serve.console import HttpOptions, bootstrap_of, run_console
from fencepost.effects.threads import MORE_THREADS

pytestmark = pytest.mark.slow


def url_of(broker: BrokerProcess, count: int = 1) -> str:
    """Wait until the console has printed its URL for the count-th time, and return it."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        found = [line.split()[1] for line in broker.lines if line.startswith("console")]
        if len(found) >= count:
            return found[count - 1]
        time.sleep(0.05)
    raise AssertionError("no console:\n" + "".join(broker.lines))


def get(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.load(answer)


def child_of(broker: BrokerProcess) -> int:
    assert broker.process is not None
    number = broker.process.pid
    return int(Path(f"/proc/{number}/task/{number}/children").read_text().split()[0])


@pytest.mark.skipif(sys.platform != "linux", reason="the child process is found in /proc, which only Linux has")
def test_serve_restarts_a_console_process_that_died(tmp_path: Path) -> None:
    """The broker serves meanwhile, and the new process ends with it."""
    with broker_process(str(tmp_path / "data"), "--http", "127.0.0.1:0") as broker:
        snapshot = get(url_of(broker) + "v1/snapshot")
        assert snapshot["reachable"]
        assert snapshot["cluster"]["fencepost"]
        session = get(url_of(broker) + "v1/session")
        assert (session["changes_allowed"], session["bootstrap"]) == (True, broker.bootstrap)
        child = child_of(broker)
        assert os.getpriority(os.PRIO_PROCESS, child) >= 10  # the broker gets the CPU first
        os.kill(child, signal.SIGKILL)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"x")
        assert producer.flush(20) == 0
        assert get(url_of(broker, 2) + "healthz") == {"status": "ok"}
        again = child_of(broker)
        assert again != child
        assert broker.stop() == 0
        assert not Path(f"/proc/{again}").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the child process is found in /proc, which only Linux has")
def test_the_console_process_ends_after_its_broker_was_killed(tmp_path: Path) -> None:
    broker = BrokerProcess(str(tmp_path / "data"), "--http", "127.0.0.1:0")
    broker.start()
    try:
        url_of(broker)
        child = child_of(broker)
        assert broker.process is not None
        os.kill(broker.process.pid, signal.SIGKILL)
        broker.process.wait()
        until = time.monotonic() + 20
        while _runs(child) and time.monotonic() < until:
            time.sleep(0.05)
        assert not _runs(child)
    finally:
        broker.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="the child process is found in /proc, which only Linux has")
def test_a_console_that_hangs_is_killed_after_the_broker_has_stopped(tmp_path: Path) -> None:
    with broker_process(str(tmp_path / "data"), "--http", "127.0.0.1:0") as broker:
        url_of(broker)
        child = child_of(broker)
        os.kill(child, signal.SIGSTOP)
        assert broker.stop() == 0
        assert not _runs(child)


async def started_console(monkeypatch: pytest.MonkeyPatch, program: str, ending_s: float) -> Any:
    """Start a Python program as the console. Returns the process and the task of run_console()."""
    started: asyncio.Future[asyncio.subprocess.Process] = asyncio.get_running_loop().create_future()
    create = asyncio.create_subprocess_exec

    async def note(*command: str, **more: Any) -> asyncio.subprocess.Process:
        started.set_result(await create(*command, **more))
        return started.result()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", note)
    monkeypatch.setattr(console, "ENDING_S", ending_s)
    running = asyncio.create_task(run_console([sys.executable, "-c", program]))
    return await started, running


async def test_cancelling_run_console_kills_a_console_that_does_not_end_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, running = await started_console(monkeypatch, "import time; time.sleep(3600)", ending_s=0.05)
    running.cancel()
    await asyncio.sleep(0.05)
    assert process.returncode is None
    await console.end_console(running)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("is_cancelled_before", [False, True])
async def test_a_console_that_ends_in_time_is_not_killed(
    monkeypatch: pytest.MonkeyPatch, is_cancelled_before: bool
) -> None:
    program = "import sys, time; print(flush=True); sys.stdin.read(); time.sleep(0.2); sys.exit(3)"
    process, running = await started_console(monkeypatch, program, ending_s=30)
    await asyncio.sleep(0)
    if is_cancelled_before:
        running.cancel()
        await asyncio.sleep(0.05)
    await console.end_console(running)
    assert process.returncode == 3


async def test_serve_retries_a_console_that_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.EAGAIN, "Try again")]
    failures += [OSError(errno.ENOMEM, "Cannot allocate memory")]
    started = asyncio.Event()
    create = asyncio.create_subprocess_exec

    async def fail_first(*command: str, **more: Any) -> asyncio.subprocess.Process:
        if failures:
            raise failures.pop(0)
        process = await create(*command, **more)
        started.set()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fail_first)
    monkeypatch.setattr(children, "FIRST_PAUSE_S", 0.01)
    running = asyncio.create_task(run_console([sys.executable, "-c", "input()"]))
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED, timeout=30)
    assert started.is_set()
    running.cancel()
    await console.end_console(running)
    assert capsys.readouterr().err.splitlines() == [
        "warning: the console cannot be started: too many open files; again in 0 s",
        f"warning: the console cannot be started: try again ({MORE_THREADS}); again in 0 s",
        "warning: the console cannot be started: cannot allocate memory; again in 0 s",
    ]


def _runs(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--http", "0.0.0.0:0"], "--http-token-file"),
        (["--http", "nowhere"], "not HOST:PORT"),
        (["--http-read-only"], "--http 127.0.0.1:8082"),
        (["--http", "127.0.0.1:0", "--http-token-file", "/nowhere/token"], "/nowhere/token"),
        (["--http", "127.0.0.1:0", "--sasl", "SCRAM-SHA-256"], "--http-client-config"),
    ],
)
def test_wrong_console_options_are_refused_before_the_broker_starts(
    tmp_path: Path, options: list[str], expected: str
) -> None:
    directory = tmp_path / "data"
    result = CliRunner().invoke(main, ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(directory), *options])
    assert result.exit_code == 2
    assert expected in result.output
    assert not directory.exists()


def test_the_console_command_has_the_plain_listeners_address_and_no_secret() -> None:
    settings, _ = broker_settings({"listeners": "PLAINTEXT://0.0.0.0:1,SASL_PLAINTEXT://127.0.0.1:2"}, {}, {}, "file")
    assert bootstrap_of(settings, [("0.0.0.0", 1), ("127.0.0.1", 2)]) == "127.0.0.1:1"
    assert bootstrap_of(settings, [("::", 1)]) == "[::1]:1"
    options = HttpOptions("127.0.0.1:0", "/token", ["a", "b"], "/login", read_only=True)
    command = options.command("h:1", insecure=False)[4:]
    assert command == [
        "console",
        "--beside-broker",
        "-b",
        "h:1",
        "--http",
        "127.0.0.1:0",
        "--http-token-file",
        "/token",
        "--client-config",
        "/login",
        "--http-host",
        "a",
        "--http-host",
        "b",
    ]
    assert HttpOptions("h:1").command("h:1", insecure=True)[-2:] == ["--allow-changes", "--insecure"]


def test_the_console_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "aiohttp.py").write_text("raise SystemExit('imported from the working directory')")
    (tmp_path / "click.py").write_text("raise SystemExit('imported from the working directory')")
    command = HttpOptions("127.0.0.1:0").command("127.0.0.1:9", insecure=False)
    ended = subprocess.run([*command, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "--allow-changes" in ended.stdout


async def test_the_console_of_serve_does_not_inherit_user_password_or_client_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("USER", "PASSWORD", "CLIENT_CONFIG", "ELSE"):
        monkeypatch.setenv(f"FENCEPOST_{name}", "set")
    found = tmp_path / "found"
    program = "import os, sys; open(sys.argv[1], 'w').write(' '.join(k for k in os.environ if 'FENCEPOST_' in k) + '.')"
    running = asyncio.create_task(run_console([sys.executable, "-c", program, str(found)]))
    for _ in range(600):
        if found.exists() and found.read_text().endswith("."):
            break
        await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    names = set(found.read_text().removesuffix(".").split())
    assert "FENCEPOST_ELSE" in names
    assert not names & {"FENCEPOST_USER", "FENCEPOST_PASSWORD", "FENCEPOST_CLIENT_CONFIG"}

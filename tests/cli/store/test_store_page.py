"""docs/store.md: its commands exist, those for owner, standby and backup run, and its policies let brokers work."""

import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from broker_process import BrokerProcess
from fencepost.bench.peers.memory_s3 import MemoryS3
from fencepost.cli import main

PAGE = (Path(__file__).parents[3] / "docs" / "store.md").read_text()
COMMANDS = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
COMMANDS = [line.removeprefix("$ ").partition(" #")[0].strip() for line in COMMANDS if line.startswith("$ fencepost")]
RIGHTS, DENIALS = (json.loads(block)["Statement"] for block in re.findall(r"```json\n(.*?)```", PAGE, re.S))
ACTIONS = {"PUT": "s3:PutObject", "GET": "s3:GetObject", "POST": "s3:DeleteObject"}
QUICK = ("-X", "store.lease.ms=1000", "-X", "store.heartbeat.ms=200")
BUCKET = "arn:aws:s3:::bucket"


@pytest.mark.parametrize("line", COMMANDS)
def test_each_fencepost_command_on_the_page_about_stores_exists_with_its_options(line):
    command: click.Command = main
    words = shlex.split(line)[1:]
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, line
        command, words = found, words[1:]
    command.make_context(line, words)


class GuardedS3(MemoryS3):
    """A bucket that keeps what the page's two policies say of each request that they do not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.not_allowed: list[str] = []
        self.seen: set[str] = set()

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        is_list = method == "GET" and "list-type" in target
        name = target.partition("?")[0].removeprefix("/bucket")
        names = (
            [f"/{each.decode()}" for each in re.findall(rb"<Key>([^<]*)</Key>", body)] if method == "POST" else [name]
        )
        action = "s3:ListBucket" if is_list else ACTIONS[method]
        self.seen.add(action)
        for each in names:
            resource = BUCKET if is_list else f"{BUCKET}{each}"
            is_conditional = "if-none-match" in headers
            if not self._is_named(RIGHTS, action, resource, True) or self._is_named(
                DENIALS, action, resource, is_conditional
            ):
                self.not_allowed.append(f"{action} {resource}")
        return super().answer(method, target, headers, body)

    @staticmethod
    def _is_named(statements, action: str, resource: str, is_conditional: bool) -> bool:
        """Return whether a statement is about this action and resource. is_conditional: the request has
        If-None-Match.
        """
        for each in statements:
            actions, resources = (
                [value] if isinstance(value, str) else value for value in (each["Action"], each["Resource"])
            )
            applies = "Condition" not in each or not is_conditional
            if action in actions and applies and any(fnmatch.fnmatchcase(resource, one) for one in resources):
                return True
        return False


@pytest.fixture
def s3(monkeypatch, tmp_path) -> Iterator[GuardedS3]:
    server = GuardedS3()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    yield server
    server.close()


@pytest.mark.long
def test_the_commands_of_the_stores_page_start_an_owner_a_standby_and_a_backup(s3, tmp_path):
    section = PAGE.partition("## An owner, a standby and a backup")[2].partition("\n## ")[0]
    lines = [line.removeprefix("$ ") for line in section.splitlines() if line.startswith("$ ")]
    brokers: list[BrokerProcess] = []
    try:
        for line in lines:
            words = shlex.split(line.replace("s3://elsewhere/backup", f"file://{tmp_path}/elsewhere"))
            if words[:2] == ["fencepost", "serve"]:
                options = words[2:]
                for name in ("--listen", "--data-dir"):
                    at = options.index(name)
                    directory = options[at + 1]
                    del options[at : at + 2]
                broker = BrokerProcess(str(tmp_path / directory), *options, *QUICK)
                brokers.append(broker)
                if len(brokers) == 1:
                    broker.start()
            elif words[0] == "rm":
                shutil.rmtree(tmp_path / words[-1])
            else:
                command = [sys.executable, "-m", *words]
                done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
                assert done.returncode == 0, (line, done.stdout, done.stderr)
        assert [file for file in (tmp_path / "elsewhere").rglob("*") if file.is_file()]
        brokers[0].kill()
        brokers[1].start()  # returns once it has taken over
        assert brokers[1].stop() == 0
    finally:
        for broker in brokers:
            if broker.process is not None:
                broker.kill()
    assert not s3.not_allowed
    assert s3.seen == {"s3:ListBucket", *ACTIONS.values()}


def test_the_documented_bucket_policy_denies_unconditional_creates_of_journal_rounds():
    name = f"{BUCKET}/journal/0/journal/0000000001/000000000000/00"
    assert GuardedS3._is_named(DENIALS, "s3:PutObject", name, False)
    assert not GuardedS3._is_named(DENIALS, "s3:PutObject", name, True)
    assert not GuardedS3._is_named(DENIALS, "s3:DeleteObject", name, True)
    assert GuardedS3._is_named(DENIALS, "s3:DeleteObject", f"{BUCKET}/journal/0/owners/0000000001", False)

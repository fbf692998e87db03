"""The command line, as people use it against any broker: ours, or with KAFKA=HOST:PORT that one."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from fencepost.cli import main


class Shell:
    """Commands, with names that no other run uses.

    `produce` and `consume` are processes, as they use their standard files by their numbers. The others run here.
    """

    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "FENCEPOST_BOOTSTRAP": bootstrap}
        self.topic = f"cli-{uuid.uuid4().hex[:8]}"

    def __call__(self, line: str, given: str = "", code: int = 0) -> str:
        run = self._run_as_process if line.startswith(("consume ", "produce ")) else self._run_here
        ended, out, err = run(line.split(), given)
        assert ended == code, (line, out, err)
        return out

    def _run_as_process(self, words: list[str], given: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "fencepost", *words]
        done = subprocess.run(command, input=given, env=self.environment, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def _run_here(self, words: list[str], given: str) -> tuple[int, str, str]:
        done = CliRunner(env=self.environment).invoke(main, words, input=given)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, done.stderr

    def objects(self, line: str) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self(f"{line} -o json").splitlines()]

    def hold(self, transactional_id: str, given: str) -> "subprocess.Popen[str]":
        """Start `fencepost produce --hold`, and return it once it has printed that its transaction is held open."""
        line = f"produce {self.topic} -p 0 --txn {transactional_id} --hold 10m"
        process = subprocess.Popen(
            [sys.executable, "-m", "fencepost", *line.split()],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=self.environment, text=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(given)
        process.stdin.close()
        assert "held for" in process.stderr.readline()
        return process


@pytest.fixture
def shell(broker: Any) -> Iterator[Shell]:
    opened = Shell(broker.bootstrap)
    opened(f"topic create {opened.topic} -p 2 -c retention.ms=86400000")
    yield opened
    opened(f"topic delete {opened.topic}")


def test_commands_show_record_outcomes_and_the_blocking_transaction_and_can_abort_it(shell: Shell) -> None:
    topic, one, two = shell.topic, f"{shell.topic}-1", f"{shell.topic}-2"
    assert "committed 3 records" in shell(f"produce {topic} -p 0 --txn {one}", "1\n2\n3\n")
    assert "aborted 2 records" in shell(f"produce {topic} -p 0 --txn {one} --abort", "4\n5\n")
    holder = shell.hold(two, "6\n")
    try:
        assert "committed 1 record" in shell(f"produce {topic} -p 0 --txn {one}", "7\n")
        fates = [each["fate"] for each in shell.objects(f"consume {topic}:0 --explain")]
        assert fates == [*["committed"] * 3, "marker", *["aborted"] * 2, "marker", "open", "committed", "marker"]
        (blocker,) = shell.objects(f"txn why-blocked {topic}")
        assert (blocker["transactional_id"], blocker["lso"], blocker["hw"]) == (two, 7, 10)
        assert "read_committed stops here" in shell(f"consume {topic} --explain")
        assert [each["state"] for each in shell.objects(f"txn describe {one} {two}")] == ["CompleteCommit", "Ongoing"]
        shell(f"group seek {topic} -t {topic} --to 1")
        (group,) = shell.objects(f"group describe {topic}")
        assert (group["lag_lso"], group["lag_hw"], len(group["blocked"])) == (6, 9, 1)
        assert shell.objects(f"txn find-hanging {topic}") == []
        assert shell(f"txn abort {two}").startswith(f"aborted {two}")
        assert shell.objects(f"txn why-blocked {topic}") == []
        shell(f"txn abort {two}", code=5)
        shell(f"group delete {topic}")
    finally:
        holder.terminate()
        holder.wait(30)
        assert holder.stderr is not None
        holder.stderr.close()


def test_txn_abort_by_start_offset_ends_an_open_transaction(shell: Shell) -> None:
    holder = shell.hold(f"{shell.topic}-h", "1\n")
    holder.kill()
    holder.wait()
    assert holder.stderr is not None
    holder.stderr.close()
    assert [each["txn_start_offset"] for each in shell.objects(f"txn producers {shell.topic}:0 --open")] == [0]
    shell(f"txn abort {shell.topic}:0 --start-offset 0")
    assert shell.objects(f"txn producers {shell.topic}:0 --open") == []
    fates = [each["fate"] for each in shell.objects(f"consume {shell.topic}:0 --explain")]
    assert fates == ["aborted", "marker"]
    shell(f"txn fence {shell.topic}-h")


def test_topic_commands_work_on_any_kafka_broker(shell: Shell) -> None:
    topic = shell.topic
    shell(f"topic create {topic}", code=5)
    shell(f"topic alter {topic} -c max.message.bytes=5000 -d retention.ms")
    shell(f"topic add-partitions {topic} --num 1")
    shell(f"produce {topic} -p 1", "a\nb\nc\n")
    assert [each["start"] for each in shell.objects(f"topic trim {topic} --before 1:2,end")] == [0, 2, 0]
    (described,) = shell.objects(f"topic describe {topic}")
    assert [(each["start"], each["hw"]) for each in described["offsets"]] == [(0, 0), (2, 3), (0, 0)]
    assert described["configs"]["max.message.bytes"] == {"value": "5000", "source": "topic"}
    assert topic in [each["topic"] for each in shell.objects("topic list")]
    shell("topic describe no-such-topic-here", code=3)
    shell("topic list -b 127.0.0.1:1", code=4)


def test_health_and_doctor_report_a_healthy_broker(shell: Shell) -> None:
    assert shell.objects("health")[0]["healthy"] is True
    states = {each["check"]: each["state"] for each in shell.objects("doctor")}
    assert {states[check] for check in ("connection", "protocol", "features", "cluster", "advertised")} == {"ok"}


def test_consume_reads_produced_records_with_and_without_a_group(shell: Shell) -> None:
    """It reads only committed ones, unless read_uncommitted is asked for. Its JSON lines can be produced again."""
    topic = shell.topic
    shell(f"produce {topic} -p 0 --txn {topic}-r", "1\n2\n3\n")
    shell(f"produce {topic} -p 0 --txn {topic}-r --abort", "4\n")
    assert shell(f"consume {topic} --from start -n 3").split() == ["1", "2", "3"]
    assert shell(f"consume {topic} -e").split() == ["1", "2", "3"]
    assert shell(f"consume {topic} -e --isolation read_uncommitted").split() == ["1", "2", "3", "4"]
    assert shell(f"consume {topic} -g {topic} -n 2 -q").split() == ["1", "2"]
    assert shell.objects(f"group describe {topic}")[0]["partitions"][0]["committed"] == 2
    assert shell(f"consume {topic} -g {topic} -e").split() == ["3"]
    copied = "".join(f"{json.dumps(each)}\n" for each in shell.objects(f"consume {topic} -n 3"))
    shell(f"produce {topic} --jsonl", copied.replace('"partition": 0', '"partition": 1'))
    assert shell(f"consume {topic}:1 -e").split() == ["1", "2", "3"]
    shell(f"group delete {topic}")

"""How a Spark session that fails, ends, or does not answer is reported. The session is a script, without Spark."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fencepost.bench.bounds import spark
from fencepost.bench.bounds.spark import Session, SparkFailed, session
from process_ends import gone

SCRIPT = """
import json, os, sys, time
print(json.dumps({"spark": "4.3.0"}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if order["do"] == "end":
        print("first\\nlast", file=sys.stderr)
        sys.exit(3)
    if order["do"] == "hang":
        time.sleep(600)
    answer = {"error": "IllegalState: no"} if order["do"] == "fail" else {"seconds": 1.5, "pid": os.getpid(), **order}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    (tmp_path / "spark_loads.py").write_text(SCRIPT)
    monkeypatch.setattr(spark, "PROGRAM", tmp_path / "spark_loads.py")
    with session("fencepost", sys.executable) as found:
        yield found


def test_a_spark_session_answers_several_commands_with_their_results(made: Session) -> None:
    assert made.version == "4.3.0"
    assert made.do("read", topic="a")["topic"] == "a"
    answer = made.do("copy", options={"a": "b"})
    assert (answer["seconds"], answer["options"]) == (1.5, {"a": "b"})


def test_no_spark_session_outlives_its_with_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark_loads.py").write_text(SCRIPT)
    monkeypatch.setattr(spark, "PROGRAM", tmp_path / "spark_loads.py")
    with session("fencepost", sys.executable) as found:
        pid = found.do("read")["pid"]
    assert gone(pid)


def test_a_failing_command_raises_spark_failed_and_the_session_continues(made: Session) -> None:
    with pytest.raises(SparkFailed, match=r"^fencepost, fail: IllegalState: no$"):
        made.do("fail")
    assert made.do("read")["seconds"] == 1.5


def test_a_spark_session_that_ended_is_reported_with_its_last_output(made: Session) -> None:
    for _ in range(2):
        with pytest.raises(SparkFailed, match=r"^fencepost, end: ended with code 3 / first / last$"):
            made.do("end")


def test_a_spark_session_that_does_not_answer_is_killed(made: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = made.do("read")["pid"]
    monkeypatch.setattr(spark, "PATIENCE_S", 0.1)
    with pytest.raises(SparkFailed, match=r"^fencepost, hang: not done after 0.1 s$"):
        made.do("hang")
    assert gone(pid)

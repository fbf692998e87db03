"""`fencepost demo`: what it refuses, and what it leaves when it is ended."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from fencepost.cli import main


@pytest.mark.parametrize(
    "arguments", [["--lines", "0"], ["--lines", "-1"], *(["--lose", x] for x in ("nan", "1.5", "1"))]
)
def test_demo_with_numbers_out_of_their_range_exits_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, ["demo", *arguments]).exit_code == 2


def test_a_demo_ended_by_sigterm_exits_with_130_and_removes_its_files(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "fencepost", "demo"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert demo.stdout is not None
    guard = threading.Timer(30, demo.kill)
    guard.start()
    assert any(line.split()[:1] == ["sending"] for line in demo.stdout)
    guard.cancel()
    assert len(list(tmp_path.iterdir())) >= 2  # the data directory, and the broker's log beside it
    time.sleep(1)  # in the middle of its load, wherever that is
    demo.terminate()
    _, err = demo.communicate(timeout=20)
    assert demo.returncode == 130, err
    assert [line.split(":")[0] for line in err.splitlines()] == ["error", "hint"], err
    assert list(tmp_path.iterdir()) == []

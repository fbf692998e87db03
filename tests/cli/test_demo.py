"""`fencepost demo`: what it refuses, and what it leaves when it is ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from fencepost.cli import main


@pytest.mark.parametrize(
    "arguments", [["--lines", "0"], ["--lines", "-1"], *(["--lose", x] for x in ("nan", "1.5", "1"))]
)
def test_numbers_that_show_nothing_are_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, ["demo", *arguments]).exit_code == 2


def test_terminated_it_leaves_nothing(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "fencepost", "demo"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert demo.stdout is not None
    assert any(line.split()[:1] == ["sending"] for line in demo.stdout)  # its broker runs, records are on their way
    assert len(list(tmp_path.iterdir())) >= 2
    demo.terminate()
    _, err = demo.communicate(timeout=20)
    assert demo.returncode == 130, err
    assert [line.split(":")[0] for line in err.splitlines()] == ["error", "hint"], err
    assert list(tmp_path.iterdir()) == []

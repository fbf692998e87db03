"""Commands that run at the same time, for `make check` and `make test`."""

import subprocess
import sys
from pathlib import Path

import pytest

SIDE_BY_SIDE = [sys.executable, str(Path(__file__).resolve().parent / "support" / "side_by_side.py")]


def run(*scripts: str) -> subprocess.CompletedProcess[str]:
    commands = [part for script in scripts for part in (":::", "sh", "-c", script)]
    return subprocess.run([*SIDE_BY_SIDE, *commands[1:]], capture_output=True, text=True, timeout=60)


def test_side_by_side_runs_commands_at_once_and_prints_their_outputs_in_order(tmp_path):
    """The first can only end after the second began."""
    wait = f"until test -e {tmp_path}/begun; do sleep 0.01; done"
    done = run(f"echo one; {wait}; echo two", f"echo three >&2; touch {tmp_path}/begun; echo four", "echo five")
    assert (done.returncode, done.stdout) == (0, "one\ntwo\n\nthree\nfour\n\nfive\n")


@pytest.mark.parametrize(
    "scripts", [("exit 3", "echo said"), ("true", "echo said; exit 3"), ("true", "echo said", "exit 1")]
)
def test_side_by_side_fails_if_any_command_fails_and_prints_the_output_of_all(scripts):
    done = run(*scripts)
    assert done.returncode == 1
    assert "said\n" in done.stdout

"""The last steps of `fencepost serve`, after its exit code is decided."""

import subprocess
import sys
from pathlib import Path

import pytest

SIGNALLED = """
import atexit, os, signal, sys
from fencepost.cli import main
from fencepost.cli.serve import serving
end = lambda *_: os.kill(os.getpid(), signal.SIGTERM)
{}
main()
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("last_step", ["atexit.register(end)", "serving.remove_scratch = end"])
def test_a_signal_in_the_last_steps_of_serve_changes_no_exit_code(last_step: str, tmp_path: Path) -> None:
    """Standard output cannot be written, so serve ends with code 1; a signal arrives while it ends."""
    command = [sys.executable, "-c", SIGNALLED.format(last_step), "serve", "--listen", "127.0.0.1:0", "--ephemeral"]
    with open("/dev/full", "w") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, cwd=tmp_path)
    assert found.returncode == 1
    assert "error: standard output cannot be written" in found.stderr
    assert "Traceback" not in found.stderr

"""The servers and files of a run are gone when the run has ended, even if it was killed and could not clean up."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from eventually import wait_until
from fencepost.bench.peers import names
from process_ends import gone

STARTS = """
import sys, time
from fencepost.bench.peers import peers
peers.file_system = lambda path, mounts: "ext4"
with peers.bench_root(sys.argv[1]) as root, peers.start(sys.argv[2]) as peer:
    print(peer.pid, root, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("name", [names.FSYNC, names.MOCK])
@pytest.mark.parametrize("ended", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_and_its_files_do_not_outlive_a_run_that_was_killed(name, ended, tmp_path):
    command = [sys.executable, "-c", STARTS, str(tmp_path), name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid, root = run.stdout.readline().split()
        run.send_signal(ended)
        run.wait()
    try:
        assert gone(int(pid))
    finally:
        if Path(f"/proc/{pid}").exists():
            os.kill(int(pid), signal.SIGKILL)
    wait_until(lambda: not Path(root).exists())


LEAVES = """
import os, sys
from pathlib import Path
from fencepost.bench.peers import survivors
kept = Path(sys.argv[1])
with survivors.watched(os.getppid()), survivors.watched(kept):
    print(survivors._watcher().pid, flush=True)
os._exit(0) if sys.argv[2] == "at once" else None
"""


@pytest.mark.parametrize("how", ["at once", "tidily"])
def test_the_watcher_of_a_run_ends_with_that_run_and_kills_no_other_process(how, tmp_path):
    done = subprocess.run([sys.executable, "-c", LEAVES, str(tmp_path), how], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    assert gone(int(done.stdout))
    assert tmp_path.exists()  # and this process, which was watched too, was not killed

"""Loads in child processes: what they report, how they fail, and that they end with the process that started them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fencepost.bench.loads.child import Child, LoadFailed, histogram, run
from fencepost.bench.loads.window import Books
from fencepost.bench.peers.peers import Peer
from process_ends import gone

LOADS = """
import os, signal, sys, time
from fencepost.bench.loads import child
from fencepost.bench.loads.child import Outcome, histogram, say

def counts(settings, window):
    window.begin()
    until = time.process_time() + settings["busy_s"]
    while time.process_time() < until: pass
    window.end()
    return Outcome(settings["units"], 7, histogram([10, 10, 2000]), settings.get("elsewhere", 0.0))

def raises(settings, window):
    window.begin()
    raise ValueError("the topic is gone")

def dies(settings, window):
    print("no memory left", file=sys.stderr, flush=True)
    os._exit(9)

def mixes_up(settings, window):
    window.end()

def hangs(settings, window):
    say("begin", pid=os.getpid())
    signal.pause()

def has_a_child(settings, window):
    with child.Child("made_loads:hangs", {}) as below:
        say("begin", pid=below.expect("begin")["pid"])
        signal.pause()
"""


@pytest.fixture(autouse=True)
def made_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_loads.py").write_text(LOADS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def books() -> Books:
    return Books(Peer("this process", "", 0, os.getpid()))


def test_a_load_reports_its_counts_and_its_process_cpu_time() -> None:
    sample = run("made_loads:counts", {"units": 3, "busy_s": 0.05}, books())
    assert (sample.units, sample.bytes, sample.latencies.count) == (3, 7, 3)
    assert sample.latencies.percentile_ms(0.5) == 0.01
    assert sample.seconds > 0
    assert 0 < sample.client_share <= 1.1  # of one core; the two clocks may differ a little


def test_client_share_is_that_of_the_busier_of_a_load_and_a_process_it_started() -> None:
    sample = run("made_loads:counts", {"units": 1, "busy_s": 0.05, "elsewhere": 5.0}, books())
    assert sample.client_share == pytest.approx(5.0)


def test_a_failure_in_the_child_is_raised_with_its_cause() -> None:
    with pytest.raises(LoadFailed, match="made_loads:raises: ValueError: the topic is gone"):
        run("made_loads:raises", {}, books())


def test_a_child_that_dies_is_reported_with_its_last_output() -> None:
    with pytest.raises(LoadFailed, match="code 9 and no result / no memory left"):
        run("made_loads:dies", {}, books())


def test_a_window_in_which_nothing_was_done_is_a_failure() -> None:
    with pytest.raises(LoadFailed, match="nothing was done"):
        run("made_loads:counts", {"units": 0, "busy_s": 0}, books())


def test_running_a_load_that_does_not_exist_raises_load_failed() -> None:
    with pytest.raises(LoadFailed, match="AttributeError"):
        run("made_loads:nosuch", {}, books())


def test_a_load_that_ends_before_its_window_began_is_a_failure() -> None:
    with pytest.raises(LoadFailed, match="sent 'end', expected 'begin'"):
        run("made_loads:mixes_up", {}, books())


def test_a_load_that_hangs_is_killed_after_the_timeout() -> None:
    with Child("made_loads:hangs", {}, patience_s=1) as child:
        with pytest.raises(LoadFailed, match="not done after 1 s"):  # the second may pass before or after "begin"
            [child.expect(word) for word in ("begin", "end")]
        assert gone(child._process.pid)


def test_abandoning_a_window_kills_its_child_and_grandchild_processes() -> None:
    with Child("made_loads:has_a_child", {}) as child:
        below = child.expect("begin")["pid"]
    assert gone(below)


def test_a_child_does_not_outlive_a_parent_that_was_killed() -> None:
    program = "from fencepost.bench.loads.child import Child; import signal\n"
    program += "print(Child('made_loads:hangs', {}).expect('begin')['pid'], flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    assert gone(pid)


def test_a_histogram_counts_every_time_that_rounds_to_the_same_microsecond() -> None:
    latencies = histogram([1.2, 0.9, 1.4, 5000.0])
    assert latencies.count == 4
    assert latencies.percentile_ms(0.75) == 0.001
    assert latencies.percentile_ms(1) == pytest.approx(5, rel=0.001)

"""A mirror between two brokers, by seed: whatever is killed, cut or put to sleep, the copy is exact in the end.

`struck` of a result counts the faults and what the mirror did. It is checked, too: a run without them shows nothing.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from simulation.planting import MIRROR_SECONDS
from simulation.run import simulate

SEEDS = (3, 6)  # the first of them with a cutover
LONG = range(10, 60)
RUN = Path(__file__).with_name("run.py")


def test_no_simulation_seed_with_a_mirror_between_two_brokers_shows_an_anomaly():
    met = Counter()
    for seed in SEEDS:
        result = simulate(seed, MIRROR_SECONDS, mirror=True)
        assert result.good, f"{result}\nagain: make sim SEED={seed} SECONDS={MIRROR_SECONDS:g} MIRROR=1"
        met.update(result.struck)
    assert met["mirror: cycles"] > 20
    assert met["target: records"] > 200
    assert met["mirror: asleep"] + met["task_put_to_sleep"] > 0
    assert met["mirror: killed"] + met["task_killed"] > 0
    assert met["cutover: done"] > 0


@pytest.mark.slow
def test_a_seed_with_a_mirror_gives_the_same_history_in_every_process():
    """The other process has other hashes of strings."""
    here = simulate(4, 3.0, mirror=True).history.digest()
    there = subprocess.run(
        [sys.executable, str(RUN), "--mirror", "--seed", "4", "--seconds", "3"],
        env={"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert here in there.stdout


@pytest.mark.long
def test_no_simulation_seed_of_many_with_a_mirror_shows_an_anomaly():
    met = Counter()
    for seed in LONG:
        result = simulate(seed, mirror=True)
        assert result.good, f"{result}\nagain: make sim SEED={seed} MIRROR=1"
        met.update(result.struck)
    assert met["mirror: doubts"] > len(LONG)
    assert met["cutover: done"] > len(LONG) // 4
    for what in ("killed", "asleep", "request lost", "answer lost", "answer late"):
        assert met[f"mirror: {what}"] > len(LONG) // 2

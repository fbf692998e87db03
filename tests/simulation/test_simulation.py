"""Whole brokers under faults, by seed: nothing the checker knows of may happen, and everybody has to finish.

A few seeds, always the same ones, and more of them in `make test-long`; `make sim SEEDS=n` runs many, and says how to
replay the seeds that fail.

`struck` of a result counts the faults and what clients met. It is checked, too: a run that met none of them shows
nothing.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from fencepost.storage.log.file_parts import FilePart
from long_runs import share_of
from simulation.run import simulate
from small_parts import leave_small_parts

pytestmark = pytest.mark.sampled
SEEDS = (1, 2)[: share_of(2)]
FOLLOWED = (9, 13)  # seeds with a follower
WITH_STRANGERS = 5
WITH_A_QUEUE = 26
ALONE = range(21, 21 + share_of(4))  # seeds with the clients of a share group and nobody else
RUN = Path(__file__).with_name("run.py")


@pytest.mark.requirement("S-11", "S-66", "S-67", "S-89")
def test_no_simulation_seed_shows_an_anomaly_and_all_clients_finish():
    met = Counter()
    for seed in SEEDS:
        result = simulate(seed, 14.0)
        assert result.good, f"{result}\nagain: make sim SEED={seed} SECONDS=14"
        assert result.lives > 1
        met.update(result.struck)
    assert met["named: sent"] > met["named: duplicates"] > 10


def test_no_simulation_seed_with_a_follower_shows_an_anomaly():
    met = Counter()
    for seed in FOLLOWED:
        result = simulate(seed, 10.0)
        assert result.good, f"{result}\nagain: make sim SEED={seed} SECONDS=10"
        met.update(result.struck)
    for what in ("named", "gave", "withheld", "behind"):
        assert met[f"follower: {what}"] > 2


def test_a_simulation_with_clients_that_exceed_rights_and_limits_shows_no_anomaly():
    result = simulate(WITH_STRANGERS, 10.0)
    assert result.good, f"{result}\nagain: make sim SEED={WITH_STRANGERS} SECONDS=10"
    met = Counter(result.struck)
    assert all(met[what] for what in ("outsider: locked out", "outsider: halted", "hoarder: kept", "hoarder: refused"))


def test_no_simulation_seed_with_only_a_share_group_shows_an_anomaly():
    met = Counter()
    for seed in ALONE:
        result = simulate(seed, 8.0, only_queues=True)
        assert result.good, f"{result}\nagain: make sim SEED={seed} SECONDS=8 QUEUES=1"
        met.update(result.struck)
    queue = ("given", "said twice", "said of pending", "acknowledged twice", "in a transaction ok", "reset")
    assert all(met[f"queue: {what}"] for what in queue)
    assert met["sdk queue: given"] > 10


@pytest.mark.long
def test_a_simulation_of_a_share_group_and_other_clients_shows_no_anomaly():
    result = simulate(WITH_A_QUEUE, 10.0)
    assert result.good, f"{result}\nagain: make sim SEED={WITH_A_QUEUE} SECONDS=10"
    met = Counter(result.struck)
    assert all(met[f"queue: {what}"] for what in ("given", "said twice", "in a transaction ok", "reset"))
    assert met["sdk queue: given"] > 10


def test_a_simulation_whose_fetches_send_parts_of_small_files_shows_no_anomaly(monkeypatch):
    sent = 0

    def read(part, *place):
        nonlocal sent
        sent += 1
        return reads(part, *place)

    reads = FilePart.read
    monkeypatch.setattr(FilePart, "read", read)
    leave_small_parts(monkeypatch, 100)
    result = simulate(3, 8.0)
    assert result.good, f"{result}, with parts of files"
    assert sent > 20


def test_a_seed_gives_the_same_history_in_every_process_and_another_seed_another_one():
    """This process has run another seed before, and the other process has other hashes of strings."""
    other = simulate(41, 1.0).history.digest()
    here = simulate(40, 1.0).history.digest()
    there = subprocess.run(
        [sys.executable, str(RUN), "--seed", "40", "--seconds", "1"],
        env=os.environ | {"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert here in there.stdout
    assert other != here, "another seed gives another history"

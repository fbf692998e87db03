"""Brokers on one store of objects, by seed: nothing the checker knows of may happen, whoever owns the journal.

`struck` of a result counts the faults and what brokers met. It is checked, too: a run without them shows nothing.
"""

from collections import Counter

import pytest
from simulation.history import History, NotWritten
from simulation.machines import TRIED_AGAIN_MS, HeldUp
from simulation.restores import EVERY, FIRST
from simulation.run import simulate

QUICK = 1
LONG = range(10, 30)


def test_a_simulation_of_machines_that_share_a_store_shows_no_anomaly():
    result = simulate(QUICK, 2.5, in_store=True)
    assert result.good, f"{result}\nagain: make sim SEED={QUICK} SECONDS=2.5 IN_STORE=1"
    assert result.struck["store: epochs"] > 1


def test_a_broker_counts_as_held_up_from_a_failed_write_to_its_next_release():
    now = [1_000]
    history = History(lambda: now[0])
    held_up = HeldUp(history)
    held_up.released()
    for now[0] in (1_500, 1_800):  # of two writes that began before that release
        held_up.failed(900)
    now[0] = 2_500
    held_up.released()
    assert _times(history) == [(1_000, 2_500)]


def test_a_broker_that_stops_trying_is_held_up_until_its_next_attempt_was_due():
    now = [1_000]
    history = History(lambda: now[0])
    held_up = HeldUp(history)
    held_up.failed(500)
    now[0] = 9_000
    held_up.failed(8_000)
    now[0] = 9_001
    held_up.released()
    held_up.released()
    assert _times(history) == [(500, 1_000 + TRIED_AGAIN_MS), (8_000, 9_001)]


def _times(history):
    return [(since_ms, until_ms) for _, (since_ms, until_ms) in history.of(NotWritten)]


@pytest.mark.long
def test_no_simulation_seed_with_machines_that_share_a_store_shows_an_anomaly():
    met = Counter()
    for seed in LONG:
        result = simulate(seed, in_store=True)
        assert result.good, f"{result}\nagain: make sim SEED={seed} IN_STORE=1"
        met.update(result.struck)
    assert met["store: epochs"] > 3 * len(LONG)
    assert met["store: fenced"] > len(LONG) // 2
    assert met["store: restores beside"] == len([seed for seed in LONG if seed % EVERY == FIRST])
    assert met["store: restores refused"] > met["store: restores beside"]

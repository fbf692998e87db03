"""Brokers on one store of objects, by seed: nothing the checker knows of may happen, whoever owns the journal."""

from collections import Counter

import pytest
from simulation.run import simulate

QUICK = 1
LONG = range(10, 30)


def test_a_simulation_of_machines_that_share_a_store_shows_no_anomaly():
    result = simulate(QUICK, 2.5, in_store=True)
    assert result.good, f"{result}\nagain: make sim SEED={QUICK} SECONDS=2.5 IN_STORE=1"
    assert result.struck["store: epochs"] > 1


@pytest.mark.long
def test_no_simulation_seed_with_machines_that_share_a_store_shows_an_anomaly():
    met = Counter()
    for seed in LONG:
        result = simulate(seed, in_store=True)
        assert result.good, f"{result}\nagain: make sim SEED={seed} IN_STORE=1"
        met.update(result.struck)
    assert met["store: epochs"] > 3 * len(LONG)
    assert met["store: fenced"] > len(LONG) // 2

"""The simulation catches bugs: some of the bank here, all of it with `make mutants`."""

import pytest
from simulation import sdk_mutants  # noqa: F401 (adds its own)
from simulation.mutants import MUTANTS, hunt

QUICK = [
    "rounds_are_not_synced",
    "one_partition_gets_no_marker",
    "a_new_incarnation_does_not_get_a_new_epoch",
    "offsets_are_visible_before_the_commit",
    "sdk_the_list_of_aborted_transactions_is_ignored",
    "sdk_after_an_abort_the_consumer_goes_on",
]
SEEDS, QUICK_SECONDS = 40, 12.0


def test_the_bank_has_enough_bugs():
    ours = [name for name in MUTANTS if name.startswith("sdk_")]
    assert len(MUTANTS) - len(ours) >= 25
    assert len(ours) >= 8


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_is_caught(name):
    assert hunt(name, 4, QUICK_SECONDS) is not None


@pytest.mark.long
@pytest.mark.parametrize("name", list(MUTANTS))
def test_every_bug_of_the_bank_is_caught(name):
    result = hunt(name, SEEDS)
    assert result is not None, f"not caught by {SEEDS} seeds"
    print(f"{name}: {result}"[:400])

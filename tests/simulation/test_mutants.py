"""The simulation, or a test file that is named, catches bugs: some of the bank here, all of it with `make mutants`."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from simulation.bank import KILLED_BY, MUTANTS, SIMULATED
from simulation.mutants import hunt

QUICK = [
    "rounds_are_not_synced",
    "one_partition_gets_no_marker",
    "a_new_incarnation_does_not_get_a_new_epoch",
    "offsets_are_visible_before_the_commit",
    "what_is_prepared_has_no_deadline",
    "at_the_limit_new_ids_are_turned_away",
    "sdk_the_list_of_aborted_transactions_is_ignored",
    "sdk_after_an_abort_the_consumer_goes_on",
]
SEEDS, QUICK_SECONDS = 40, 12.0
TESTS = Path(__file__).resolve().parent.parent
A_TEST_FAILED = 1  # pytest's exit code


def test_the_bank_has_enough_bugs():
    ours = [name for name in MUTANTS if name.startswith("sdk_")]
    assert len(MUTANTS) >= 80
    assert len([name for name in SIMULATED if name not in ours]) >= 30
    assert len(ours) >= 30
    assert len([name for name in MUTANTS if name.startswith("spark_")]) >= 20


def test_every_bug_of_the_bank_can_be_planted_and_names_a_file_of_tests():
    """What a bug replaces may have moved, or have another name or other parameters by now."""
    wrong = {name: path for name, path in KILLED_BY.items() if not (TESTS.parent / path).exists()}
    for name, plant in MUTANTS.items():
        try:
            with ExitStack() as stack:
                plant(stack)
        except (AttributeError, ImportError, TypeError) as gone:
            wrong[name] = str(gone)
    assert not wrong


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_is_caught(name):
    assert hunt(name, 4, QUICK_SECONDS) is not None


@pytest.mark.long
@pytest.mark.parametrize("name", SIMULATED)
def test_every_bug_that_the_simulation_can_meet_is_caught(name):
    result = hunt(name, SEEDS)
    assert result is not None, f"not caught by {SEEDS} seeds"
    print(f"{name}: {result}"[:400])


@pytest.mark.long
@pytest.mark.parametrize("name", KILLED_BY)
def test_every_other_bug_is_caught_by_the_file_it_names(name):
    path = os.pathsep.join(map(str, (TESTS, *(TESTS / "support").glob("**/"))))
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "simulation.infecting",
            "-p",
            "no:cacheprovider",
            KILLED_BY[name],
        ],
        env=os.environ | {"MUTANT": name, "PYTHONPATH": path},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == A_TEST_FAILED, run.stdout[-2000:] + run.stderr[-2000:]

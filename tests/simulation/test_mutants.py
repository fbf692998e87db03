"""The simulation, or a test file that is named, catches bugs: some of the bank here, all of it with `make mutants`."""

import gc
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from simulation.bank import IN_STORE, KILLED_BY, MUTANTS, PROMISES, SIMULATED, WITH_MIRROR, WITH_QUEUES
from simulation.planting import hunt

QUICK = [  # of journal, transactions and SDK one
    "rounds_are_not_synced",
    "one_partition_gets_no_marker",
    "sdk_the_list_of_aborted_transactions_is_ignored",
]
QUICK_WITH_QUEUES = "the_end_of_a_session_frees_what_is_pending"
QUICK_WITH_MIRROR = "a_cycle_is_committed_without_its_positions_which_follow"
SEEDS, QUICK_SECONDS = 40, 5.0
TESTS = Path(__file__).resolve().parent.parent
DOCS = TESTS.parent / "docs"
A_TEST_FAILED = 1  # pytest's exit code

# A bug that is caught ends its run in the middle, with clients that nobody closes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def nothing_left():
    """After each test, collect the clients that nobody closed, so that their warnings do not fail another test."""
    yield
    gc.collect()


def test_the_mutant_bank_has_the_required_number_of_bugs():
    assert {*QUICK, QUICK_WITH_QUEUES, QUICK_WITH_MIRROR} < set(SIMULATED), "the long run has them too"
    assert len(WITH_QUEUES) >= 5
    assert len(WITH_MIRROR) >= 4
    assert len(IN_STORE) >= 2
    ours = [name for name in MUTANTS if name.startswith("sdk_")]
    assert len(MUTANTS) >= 80
    assert len([name for name in SIMULATED if name not in ours]) >= 30
    assert len(ours) >= 30
    assert len([name for name in MUTANTS if name.startswith("spark_")]) >= 20


def test_every_bug_of_the_bank_can_be_planted_and_names_a_file_of_tests():
    """Fails if what a bug replaces was moved, or has another name or other parameters."""
    wrong = {name: path for name, path in KILLED_BY.items() if not (TESTS.parent / path).exists()}
    for name, plant in MUTANTS.items():
        try:
            with ExitStack() as stack:
                plant(stack)
        except (AttributeError, ImportError, TypeError) as gone:
            wrong[name] = str(gone)
    assert not wrong


def test_every_bug_of_the_bank_breaks_a_promise_of_the_documentation():
    rows = (DOCS / "requirements.md").read_text()
    files = [*DOCS.glob("*.md"), *DOCS.glob("how-to/*.md")]
    pages = {page.relative_to(DOCS).as_posix(): " ".join(page.read_text().split()) for page in files}

    def is_made(promise: str) -> bool:
        if re.fullmatch(r"[SC]-\d+", promise):
            return f"| {promise} |" in rows
        page, _, words = promise.partition(": ")
        return len(words) > 10 and words in pages.get(page, "")

    assert {name: promise for name in MUTANTS if not is_made(promise := PROMISES.get(name, ""))} == {}
    assert PROMISES.keys() == MUTANTS.keys()


@pytest.mark.parametrize("name", QUICK)
def test_a_few_seeds_of_the_simulation_catch_each_quick_planted_bug(name):
    assert hunt(name, 4, QUICK_SECONDS) is not None


@pytest.mark.slow
def test_few_seeds_with_a_share_group_catch_a_bug_that_frees_pending_records():
    result = hunt(QUICK_WITH_QUEUES, 4)
    assert result is not None
    assert result.anomalies
    assert len(result.history.ops) < 3_000  # only clients of share groups ran


@pytest.mark.slow
def test_few_seeds_of_a_mirror_catch_positions_committed_outside_the_transaction():
    result = hunt(QUICK_WITH_MIRROR, 4)
    assert result is not None
    assert any(anomaly.name == "mirrored twice" for anomaly in result.anomalies)


@pytest.mark.long
@pytest.mark.parametrize("name", SIMULATED)
def test_every_bug_that_the_simulation_can_meet_is_caught(name):
    result = hunt(name, SEEDS)
    assert result is not None, f"not caught by {SEEDS} seeds"
    print(f"{name}: {result}"[:400])


@pytest.mark.long
@pytest.mark.parametrize("name", KILLED_BY)
def test_a_planted_bug_fails_the_test_file_that_it_names(name):
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

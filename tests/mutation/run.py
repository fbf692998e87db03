"""Small changes to pure modules, each of which some test has to notice: `make mutants-all` (cosmic-ray makes them).

The tool rewrites files, so it works in build/mutation, on copies of the package and the tests. For each module: its
changes, or a sample of them that depends on the seed alone, each against the test file of the module; what survives
that, against all tests named here. What survives both is printed as a difference. A survivor is a question, not yet a
fault: does the change break a promise? Annotations are left alone: nothing but the type checker reads them.
"""

import argparse
import ast
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutation"
AREAS = ("effects", "protocol", "storage", "broker", "client", "spark", "testing", "bench", "cli")
MODULES = {  # pure module: the test file of its own, and what tests it besides
    "storage/producers/producers.py": ("tests/storage/producers/test_producers.py", "tests/storage"),
    "storage/journal/scan.py": ("tests/storage/journal/test_scan.py", "tests/storage"),
    "storage/journal/format.py": ("tests/storage/journal/test_format.py", "tests/storage"),
    "broker/transactions/states/machine.py": (
        "tests/broker/transactions/states/test_machine.py",
        "tests/broker/transactions",
    ),
    "client/producer/sequences.py": (
        "tests/client/producer/test_sequences.py tests/client/producer/test_sequences_model.py",
        "tests/client",
    ),
    "broker/groups/machine.py": ("tests/broker/groups/test_machine.py", "tests/broker/groups"),
    "broker/groups/offset_log.py": ("tests/broker/groups/test_offset_log.py", "tests/broker/groups"),
    "storage/log/producer_snapshots.py": ("tests/storage/log/test_producer_snapshots.py", "tests/storage"),
    "protocol/batches.py": ("tests/protocol/test_batches.py", "tests/protocol tests/broker/handlers/test_produce.py"),
    "broker/transactions/states/table.py": (
        "tests/broker/transactions/states/test_table.py",
        "tests/broker/transactions",
    ),
    "broker/transactions/unit.py": ("tests/broker/transactions/test_unit.py", "tests/broker/transactions"),
    "broker/net/turns.py": ("tests/broker/net/test_turns.py", "tests/broker/net/test_unwanted_work.py"),
    "storage/producers/aborted.py": ("tests/storage/producers/test_aborted.py", "tests/storage"),
    "storage/cleaning/retention.py": ("tests/storage/cleaning/test_retention.py", "tests/storage"),
    "storage/system_errors.py": ("tests/storage/test_system_errors.py", "tests/storage"),
    "effects/gathering.py": ("tests/effects/test_gathering.py", "tests/effects tests/storage/journal/test_journal.py"),
    "client/consumer/batches.py": (
        "tests/client/consumer/test_batch_once.py tests/client/consumer/test_batch_again.py",
        "tests/client",
    ),
    "client/producer/batching.py": ("tests/client/producer/test_batching.py", "tests/client"),
    "client/transactions/table.py": ("tests/client/transactions/test_machine.py", "tests/client"),
    "broker/security/acls.py": ("tests/broker/security/test_acls.py", "tests/broker/security"),
    "broker/security/authorizer.py": ("tests/broker/security/test_authorizer.py", "tests/broker/security"),
    "client/group/membership.py": ("tests/client/group/test_membership.py", "tests/client"),
}
CONFIG = """[cosmic-ray]
module-path = "fencepost/{module}"
timeout = {timeout}
excluded-modules = []
test-command = {command}
[cosmic-ray.distributor]
name = "local"
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", required=True, help="the folder of cosmic-ray's programs")
    parser.add_argument("--modules", nargs="*", default=list(MODULES))
    parser.add_argument("--sample", type=int, default=0, help="changes a module; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--own-tests-only", action="store_true", help="do not try survivors against the other tests")
    options = parser.parse_args()
    _copy()
    survivors = 0
    for module in options.modules:
        tests = MODULES[module][:1] if options.own_tests_only else MODULES[module]
        survivors += _mutate(Path(options.tool), module, tests, options.sample, options.seed)
    return 1 if survivors else 0


def _copy() -> None:
    for folder in ("fencepost", "tests"):
        shutil.rmtree(WORK / folder, ignore_errors=True)
    shutil.copytree(ROOT / "fencepost", WORK / "fencepost")
    for area in AREAS:
        shutil.copytree(ROOT / area, WORK / "fencepost" / area, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", WORK / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", WORK)


def _mutate(tool: Path, module: str, tests: tuple[str, ...], sample: int, seed: int) -> int:
    """Try the changes of one module. Returns how many survived. The session file has each with its outcome."""
    session = WORK / f"{module.replace('/', '.')}.sqlite"
    session.unlink(missing_ok=True)
    _configure(module, tests[0], 1.0)
    _run(tool / "cosmic-ray", "init", "mutate.toml", session.name)
    of = _keep(session, _annotations(ROOT / module), sample, seed)
    if apart := _set_apart(tool, session):
        print(f"{module}: {apart} of the sample are not Python", flush=True)
    for files in tests:
        began = time.monotonic()
        _run(sys.executable, *_pytest(files))
        _configure(module, files, 30 + 10 * (time.monotonic() - began))
        with sqlite3.connect(session) as database:  # what has no result is tried
            database.execute("DELETE FROM work_results WHERE lower(test_outcome) LIKE '%survived'")
        _run(tool / "cosmic-ray", "exec", "mutate.toml", session.name)
        outcomes, survived = _results(session)
        reported = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        print(f"{module}, {files}: {outcomes.total()} changes of {of}: {reported}", flush=True)
    for difference in survived:
        print(difference, flush=True)
    return len(survived)


def _pytest(files: str) -> list[str]:
    return ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile=ci", *files.split()]


def _configure(module: str, files: str, timeout_s: float) -> None:
    command = json.dumps(" ".join([sys.executable, *_pytest(files)]))
    (WORK / "mutate.toml").write_text(CONFIG.format(module=module, timeout=timeout_s, command=command))


def _annotations(path: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return where the annotations are: line and column of begin and end."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(part, ast.expr):
                found.append(((part.lineno, part.col_offset), (part.end_lineno or 0, part.end_col_offset or 0)))
    return found


def _keep(session: Path, left_alone: list[tuple[tuple[int, int], tuple[int, int]]], sample: int, seed: int) -> int:
    """So many of the changes, by chance. Returns of how many. The ids of the tool differ in each run."""
    order = "start_pos_row, start_pos_col, operator_name, operator_args, occurrence"
    with sqlite3.connect(session) as database:
        found = database.execute(f"SELECT job_id, start_pos_row, start_pos_col FROM mutation_specs ORDER BY {order}")
        places = {job: (row, column) for job, row, column in found}
        jobs = [job for job, at in places.items() if not any(begin <= at < end for begin, end in left_alone)]
        kept = set(random.Random(seed).sample(jobs, min(sample, len(jobs))) if sample else jobs)
        _forget(database, [job for job in places if job not in kept])
    return len(jobs)


def _set_apart(tool: Path, session: Path) -> int:
    """Forget the changes that are no Python: no test is needed to notice them. Returns how many."""
    reported = _run(tool / "python", ROOT / "tests" / "mutation" / "not_python.py", session.name)
    with sqlite3.connect(session) as database:
        _forget(database, reported.split())
    return len(reported.split())


def _forget(database: sqlite3.Connection, jobs: list[str]) -> None:
    for table in ("mutation_specs", "work_items"):
        database.executemany(f"DELETE FROM {table} WHERE job_id = ?", [(job,) for job in jobs])


def _results(session: Path) -> tuple[Counter[str], list[str]]:
    """Return how many were killed, survived, or neither (a run that took too long, or could not begin), and the
    survivors.
    """
    with sqlite3.connect(session) as database:
        rows = list(database.execute("SELECT worker_outcome, test_outcome, output, diff FROM work_results"))
    reported = [(_outcome(worker, test, output), diff) for worker, test, output, diff in rows]
    return Counter(outcome for outcome, _ in reported), [diff for outcome, diff in reported if outcome == "survived"]


def _outcome(worker: str, test: str, output: str) -> str:
    """Return the outcome of a run. The tool counts one that took too long as killed; here it is `timed out`."""
    if output == "timeout":
        return "timed out"
    word = test if worker.lower().endswith("normal") and not worker.lower().endswith("abnormal") else worker
    return word.rsplit(".", 1)[-1].lower()


def _run(*command: object) -> str:
    """Returns what the command said."""
    environment = os.environ | {"PYTHONPATH": str(WORK), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [str(part) for part in command]
    return subprocess.run(words, cwd=WORK, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())

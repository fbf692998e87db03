"""Small changes to pure modules, each of which some test has to notice: `make mutants-all` (cosmic-ray makes them).

The tool rewrites files, so it works in build/mutation, on copies of the package and the tests. For each module: its
changes in an order of chance, as many as MOST allows, each against the test files named here; what survives is printed
as a difference. A survivor is a question, not yet a fault: does the change break a promise?
"""

import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutation"
AREAS = ("effects", "protocol", "storage", "broker", "client", "spark", "testing", "bench", "cli")
TIMEOUT_S = 120.0
MODULES = {  # pure module: what tests it, its own file first, since the first failure ends a run
    "broker/transactions/table.py": "tests/broker/transactions/test_table.py tests/broker/transactions",
    "broker/transactions/machine.py": "tests/broker/transactions/test_machine.py tests/broker/transactions",
    "broker/transactions/unit.py": "tests/broker/transactions/test_coordinator.py tests/broker/transactions",
    "broker/groups/machine.py": "tests/broker/groups/test_machine.py tests/broker/groups",
    "broker/groups/offset_log.py": "tests/broker/groups/test_offset_log.py tests/broker/groups",
    "broker/turns.py": "tests/broker/test_turns.py tests/broker/test_unwanted_work.py",
    "storage/producers.py": "tests/storage/test_producers.py tests/storage",
    "storage/aborted.py": "tests/storage/test_log_reads.py tests/storage",
    "storage/retention.py": "tests/storage/test_retention.py",
    "storage/journal_format.py": "tests/storage/test_journal_format.py tests/storage",
    "storage/journal_scan.py": "tests/storage/test_journal_scan.py tests/storage",
    "storage/log_snapshots.py": "tests/storage/test_log_snapshots.py tests/storage",
    "storage/system_errors.py": "tests/storage/test_system_errors.py tests/storage",
    "effects/gathering.py": "tests/effects/test_gathering.py tests/storage/test_journal.py tests/effects",
    "protocol/batches.py": "tests/protocol/test_batches.py tests/protocol tests/broker/handlers/test_produce.py",
    "client/batches.py": "tests/client/test_batch_once.py tests/client/test_batch_again.py tests/client",
    "client/batching.py": "tests/client/test_batching.py tests/client",
    "client/sequences.py": "tests/client/test_sequences.py tests/client",
    "client/transaction_table.py": "tests/client/test_transaction.py tests/client",
    "client/membership.py": "tests/client/test_membership.py tests/client",
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
    parser.add_argument("--tests", nargs="*", help="in place of those of the table")
    parser.add_argument("--most", type=int, default=0, help="changes a module; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    _copy()
    survivors = 0
    for module in options.modules:
        tests = options.tests or MODULES[module].split()
        survivors += _mutate(Path(options.tool), module, tests, options.most, options.seed)
    return 1 if survivors else 0


def _copy() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(ROOT / "fencepost", WORK / "fencepost")
    for area in AREAS:
        shutil.copytree(ROOT / area, WORK / "fencepost" / area, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", WORK / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", WORK)


def _mutate(tool: Path, module: str, tests: list[str], most: int, seed: int) -> int:
    """Try the changes of one module. Returns how many survived."""
    command = f"{sys.executable} -m pytest -q -x -p no:cacheprovider {' '.join(tests)}"
    (WORK / "mutate.toml").write_text(CONFIG.format(module=module, timeout=TIMEOUT_S, command=json.dumps(command)))
    session = WORK / f"{module.replace('/', '.')}.sqlite"
    _run(tool / "cosmic-ray", "init", "mutate.toml", session.name)
    if most:
        _keep(session, most, seed)
    _run(tool / "cosmic-ray", "baseline", "mutate.toml")
    _run(tool / "cosmic-ray", "exec", "mutate.toml", session.name)
    outcomes, survived = _results(session)
    told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    print(f"{module}: {outcomes.total()} changes: {told}", flush=True)
    for difference in survived:
        print(difference, flush=True)
    return len(survived)


def _keep(session: Path, most: int, seed: int) -> None:
    """So many of the changes, by chance."""
    with sqlite3.connect(session) as database:
        jobs = sorted(row[0] for row in database.execute("SELECT job_id FROM work_items"))
        random.Random(seed).shuffle(jobs)
        for table in ("mutation_specs", "work_items"):
            database.executemany(f"DELETE FROM {table} WHERE job_id = ?", [(job,) for job in jobs[most:]])


def _results(session: Path) -> tuple[Counter[str], list[str]]:
    """How many were killed, survived, or neither (a run that took too long, or could not begin), and the survivors."""
    with sqlite3.connect(session) as database:
        rows = list(database.execute("SELECT worker_outcome, test_outcome, output, diff FROM work_results"))
    told = [(_outcome(worker, test, output), diff) for worker, test, output, diff in rows]
    return Counter(outcome for outcome, _ in told), [diff for outcome, diff in told if outcome == "survived"]


def _outcome(worker: str, test: str, output: str) -> str:
    """The tool counts what took too long as killed."""
    if output == "timeout":
        return "timed out"
    word = test if worker.lower().endswith("normal") and not worker.lower().endswith("abnormal") else worker
    return word.rsplit(".", 1)[-1].lower()


def _run(*command: object) -> None:
    environment = os.environ | {"PYTHONPATH": str(WORK), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([str(part) for part in command], cwd=WORK, env=environment, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())

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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutation"
AREAS = ("effects", "protocol", "storage", "broker", "client", "spark", "testing", "bench", "cli")
TIMEOUT_S = 120.0
MODULES = {  # pure module: what tests it
    "broker/transactions/table.py": "tests/broker/transactions",
    "broker/transactions/machine.py": "tests/broker/transactions",
    "broker/groups/machine.py": "tests/broker/groups",
    "storage/producers.py": "tests/storage",
    "storage/aborted.py": "tests/storage",
    "storage/retention.py": "tests/storage/test_retention.py",
    "storage/journal_format.py": "tests/storage",
    "client/batching.py": "tests/client",
    "client/sequences.py": "tests/client",
    "client/transaction_table.py": "tests/client",
    "client/membership.py": "tests/client",
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
    tried, survived = _results(session)
    print(f"{module}: {tried} changes, {len(survived)} survived", flush=True)
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


def _results(session: Path) -> tuple[int, list[str]]:
    with sqlite3.connect(session) as database:
        rows = list(database.execute("SELECT test_outcome, diff FROM work_results"))
    return len(rows), [diff for outcome, diff in rows if str(outcome).lower().endswith("survived")]


def _run(*command: object) -> None:
    environment = os.environ | {"PYTHONPATH": str(WORK), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([str(part) for part in command], cwd=WORK, env=environment, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())

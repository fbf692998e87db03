"""docs/how-to/database.md: each program of the page runs."""

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "database.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
POSTGRESQL = "postgresql://localhost/orders"
RUN_EACH = """
import json, os, sys
for number, program in enumerate(json.loads(sys.argv[1])):
    os.mkdir(str(number))
    os.chdir(str(number))
    exec(compile(program, f"program {number}: {program[:200]}", "exec"), {"__name__": "__main__"})
    os.chdir("..")
"""


def run_each(programs: list[str], folder: Path) -> None:
    """Run the programs one after another, each in an empty folder. One process runs them all, because the imports take
    most of the time.
    """
    command = [sys.executable, "-c", RUN_EACH, json.dumps(programs)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_each_program_without_postgresql_of_the_how_to_page_about_databases_runs(tmp_path):
    programs = [program for program in PROGRAMS if POSTGRESQL not in program]
    assert len(programs) >= 4
    run_each(programs, tmp_path)


def test_each_program_with_postgresql_of_the_how_to_page_about_databases_runs(tmp_path, postgres):
    programs = [program for program in PROGRAMS if POSTGRESQL in program]
    assert len(programs) >= 2
    with ExitStack() as stack:
        run_each([each.replace(POSTGRESQL, stack.enter_context(postgres.database())) for each in programs], tmp_path)

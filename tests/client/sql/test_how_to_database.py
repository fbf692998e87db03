"""docs/how-to/database.md: each program of the page runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "database.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
TITLES = [re.sub(r"\W+", "_", program.partition("sql.")[2].partition("(")[0]) for program in PROGRAMS]


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=[f"{number}_{title}" for number, title in enumerate(TITLES)])
def test_each_example_program_of_the_how_to_page_about_databases_runs(tmp_path, request, program):
    if "postgresql://" in program:
        url = request.getfixturevalue("postgres_url")
        program = program.replace("postgresql://localhost/orders", url)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

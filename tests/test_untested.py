"""The line at the end of `make test`: what was not tested, and for want of what."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from untested import VARIABLE, line_of

ROOT = Path(__file__).resolve().parent.parent

SKIPPING = """
import pytest

@pytest.mark.skipif(True, reason="kcat is not installed: `apt-get install kcat` to run this")
@pytest.mark.parametrize("number", range(3))
def test_with_kcat(number): ...

def test_with_root():
    pytest.skip("mounting needs root; the simulated disk's power cuts run everywhere")

def test_that_runs(): ...
"""


def test_the_line_of_skipped_tests_counts_each_reason_and_omits_its_details():
    reasons = ["Skipped: kcat is not installed: `apt-get install kcat` to run this"] * 2
    reasons.append("Skipped: mounting needs root; elsewhere it is simulated")
    assert line_of(reasons) == "NOT TESTED HERE, 3 tests: 2 as kcat is not installed; 1 as mounting needs root"
    assert len(line_of(["word " * 100])) < 120
    assert "nothing was left out" in line_of([])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [("-n", "2")], ids=["workers"])
def test_the_line_of_skipped_tests_sums_the_skips_of_two_test_runs(tmp_path, workers):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(SKIPPING)
    noted = tmp_path / "untested"
    environment = os.environ | {VARIABLE: str(noted), "PYTHONPATH": str(ROOT / "tests" / "support")}
    for _ in range(2):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *workers]
        done = subprocess.run([*command, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    script = [sys.executable, str(ROOT / "tests" / "support" / "untested.py"), str(noted)]
    line = subprocess.run(script, capture_output=True, text=True, check=True, timeout=60).stdout
    assert line == "NOT TESTED HERE, 8 tests: 6 as kcat is not installed; 2 as mounting needs root\n"


def test_make_test_ends_with_the_line_of_skipped_tests():
    recipe = re.search(r"^test:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    commands = recipe.replace("\\\n", "").splitlines()
    [runs] = [command for command in commands if "$(PYTEST)" in command]
    assert runs.lstrip("\t@").startswith('UNTESTED="$(CURDIR)/build/untested" $(BIN)/python tests/support/suite.py')
    assert commands[-1].endswith("tests/support/untested.py build/untested")

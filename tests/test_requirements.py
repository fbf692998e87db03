"""The table of requirements is complete and speaks only of what is stated."""

from pathlib import Path

import pytest
import requirements_table

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "requirements.md"


def test_all_138_requirements_are_stated_in_order():
    stated = requirements_table.stated(DOCUMENT)
    assert [identifier for identifier in stated if identifier.startswith("S-")] == [f"S-{n:02}" for n in range(1, 139)]


def test_the_requirements_table_counts_tests_and_lists_untested_requirements():
    table = requirements_table.render(DOCUMENT, [("S-23", "tests/a.py::test_x[1]"), ("S-23", "tests/a.py::test_x[2]")])
    assert "S-23     1  " in table
    assert "            tests/a.py::test_x\n" in table
    assert "1 of 138 have a test; none: S-01" in table


def test_requirements_that_wait_for_a_feature_are_listed_apart_from_untested_ones(tmp_path):
    document = tmp_path / "requirements.md"
    document.write_text("| S-01 | one | security |\n| S-02 | two | |\n| S-03 | three | security |\n")
    table = requirements_table.render(document, [("S-03", "tests/a.py::test_x")])
    assert "S-01     0  one  [waits for security]\nS-02     0  two\n" in table
    assert "1 of 3 have a test; none: S-02\nwaits for security: S-01\n" in table


def test_a_test_that_names_an_unknown_requirement_is_refused():
    with pytest.raises(ValueError, match="S-139"):
        requirements_table.render(DOCUMENT, [("S-139", "tests/a.py::test_x")])

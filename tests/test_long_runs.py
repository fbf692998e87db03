"""Of a parametrized test, `make check` runs the first case."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from long_runs import WHOLE, share_of, with_first_value

SLOW, LONG = pytest.mark.slow, pytest.mark.long


@pytest.mark.parametrize(
    ("values", "ids", "passed_on"),
    [
        ([1, 2, 3], None, ([1], None)),
        ([(1, 2), (3, 4)], ["a", "b"], ([(1, 2)], ["a"])),
        ([pytest.param(1, marks=SLOW), pytest.param(2, marks=LONG), 3, 4], count(1), ([3], [3])),
        ([pytest.param(1, marks=SLOW), pytest.param(2, marks=LONG)], str, ([pytest.param(1, marks=SLOW)], str)),
        ([], None, ([], None)),
    ],
    ids=["plain", "with ids", "some are slow", "all are slow", "none"],
)
def test_make_check_runs_the_first_case_that_is_not_slow_of_each_test(values, ids, passed_on):
    passed: list[Any] = []
    with_first_value(lambda names, values, *, ids, scope: passed.append((names, values, ids, scope)))(
        "number", values, ids=ids, scope="module"
    )
    assert passed == [("number", *passed_on, "module")]


def test_make_test_takes_a_third_of_all_samples_and_make_test_long_takes_them_all(monkeypatch):
    monkeypatch.delenv(WHOLE, raising=False)
    assert [share_of(number) for number in (1, 3, 10, 300)] == [1, 1, 4, 100]
    monkeypatch.setenv(WHOLE, "1")
    assert share_of(300) == 300
    rules = (Path(__file__).resolve().parent.parent / "Makefile").read_text()
    assert f"test-long: export {WHOLE} := 1" in rules
    assert "(hypothesis or sampled) and not long" in rules

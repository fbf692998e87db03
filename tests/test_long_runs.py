"""Of a parametrized test, `make check` runs the first case."""

from types import SimpleNamespace
from typing import Any

from long_runs import without_later_cases


def test_make_check_runs_the_first_case_of_each_test():
    names = ["a.py::test_b", "a.py::test_c[1-[x]]", "a.py::test_c[2-y]", "b.py::test_c[2]", "b.py::TestD::runTest"]
    items: list[Any] = [SimpleNamespace(nodeid=name) for name in names]
    assert [item.nodeid for item in without_later_cases(items)] == [*names[:2], *names[3:]]

"""Cases of a test: `make check` runs the first one, `make test` those not marked `long`, `make test-long` all."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_only(values: Iterable[Any], first: int = 1) -> list[Any]:
    """Return the values for `parametrize`: those after the first one, or the first so many, are marked `long`."""
    return [
        value if place < first else pytest.param(*_parameters(value), marks=pytest.mark.long)
        for place, value in enumerate(values)
    ]


def without_later_cases(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the items in their order, and of those that are one test with other parameters only the first."""
    first: dict[str, pytest.Item] = {}
    for item in items:
        first.setdefault(item.nodeid.partition("[")[0], item)
    return list(first.values())


def _parameters(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)

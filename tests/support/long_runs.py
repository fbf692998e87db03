"""Parameters of a test of which the suite tries a few, and `make test-long` all."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_only(values: Iterable[Any], first: int = 1) -> list[Any]:
    """Return the values for `parametrize`: those after the first one, or the first so many, are marked `long`."""
    return [
        value if place < first else pytest.param(*_parameters(value), marks=pytest.mark.long)
        for place, value in enumerate(values)
    ]


def _parameters(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)

"""Cases of a test: `make check` runs the first one, `make test` those not marked `long`, `make test-long` all.

Of random examples, crash points and seeds `make test` takes a share, and `make test-long` takes them all: of tests of
hypothesis, and of those marked `sampled`.
"""

import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import pytest

LEFT_OUT = {"slow", "long"}
"""Marks of what `make check` does not run."""
WHOLE = "WHOLE"
"""The variable of the environment that `make test-long` sets."""


def share_of(number: int) -> int:
    """Return how many of so many examples, crash points or seeds to take: a third of them, or all where WHOLE is set.

    The test is one of hypothesis or is marked `sampled`, so that `make test-long` runs it with them all.
    """
    return number if os.environ.get(WHOLE) else max(1, -(-number // 3))


def first_only(values: Iterable[Any], first: int = 1) -> list[Any]:
    """Return the values for `parametrize`: those after the first one, or the first so many, are marked `long`."""
    return [
        value if place < first else pytest.param(*_parameters(value), marks=pytest.mark.long)
        for place, value in enumerate(values)
    ]


def with_first_value(parametrize: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement of `metafunc.parametrize` that passes on the first value alone of those not left out.

    The other cases are not even made: most of the time of a collection would go to them. If all values are marked, the
    first one stays, to be left out.
    """

    def with_first(names: Any, values: Iterable[Any], *others: Any, ids: Any = None, **options: Any) -> None:
        given = list(values)
        marks = [{mark.name for mark in getattr(value, "marks", ())} for value in given]
        place = next((place for place, of_value in enumerate(marks) if not of_value & LEFT_OUT), 0)
        if ids is not None and not callable(ids):
            ids = list(islice(ids, place, place + 1))  # some are endless
        parametrize(names, given[place : place + 1], *others, ids=ids, **options)

    return with_first


def _parameters(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)

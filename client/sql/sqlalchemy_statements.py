"""Statements and results as SQLAlchemy has them, whether it blocks or not."""

import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.types import NullType

from ..errors import InvalidConfigurationError
from .drivers import has_open_transaction


def clause(statement: str, values: Sequence[Any]) -> TextClause:
    """Return the statement as SQLAlchemy takes it, with these values for its `$1`, `$2` …."""
    named = re.sub(r"\$(\d+)", r":p\1", re.sub(r"(?<!:):(?=\w)", r"\\:", statement))
    return text(named).bindparams(
        *(bindparam(f"p{number}", value, NullType()) for number, value in enumerate(values, 1))
    )


def parts_of(statement: str) -> list[str]:
    """Split a text of several statements, each on lines of its own and ended by a semicolon."""
    return [part for part in statement.split(";\n") if part.strip()]


def found_by(result: Any) -> tuple[int, list[tuple[Any, ...]]]:
    """Return how many rows a statement has changed, and the rows that it returned."""
    return result.rowcount, [tuple(row) for row in result] if result.returns_rows else []


def check_begun(driver: Any) -> None:
    """Raise InvalidConfigurationError if the engine's connections commit each statement by themselves."""
    if not has_open_transaction(driver):
        raise InvalidConfigurationError(
            "the session's engine commits each statement by itself", hint="leave out isolation_level='AUTOCOMMIT'"
        )

"""Statements of sqlite3, whatever the connection of a user is set to."""

import re
import sqlite3
from collections.abc import Sequence
from typing import Any

_NUMBERED = re.compile(r"\$\d")


def run(connection: sqlite3.Connection, statement: str, values: Any = ()) -> sqlite3.Cursor:
    """Run a statement whose rows are tuples, whatever the row_factory of the user's connection is."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(statement, values)


def bound(statement: str, values: Sequence[Any]) -> Any:
    """Return the values in the form in which sqlite3 binds them: a mapping by number for `$1`, else a sequence."""
    return {str(at): value for at, value in enumerate(values, 1)} if _NUMBERED.search(statement) else values

"""Statements and results as SQLAlchemy has them, whether it blocks or not."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, TextClause, bindparam, event, text
from sqlalchemy.orm import Session
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


def refuse_second_database(session: Session, engine: Engine, is_in_block: Callable[[], bool]) -> None:
    """Raise InvalidConfigurationError if the session has binds to other engines than this one, now or whenever it
    begins a transaction of another engine within a block: each would be committed by itself. (Sessions like those of
    Flask-SQLAlchemy have no binds, and choose an engine for each class.)
    """

    @event.listens_for(session, "after_begin")
    def check(_session: Session, _transaction: Any, connection: Connection) -> None:
        if is_in_block() and connection.engine is not engine:
            connection.invalidate()  # whoever goes on after the error writes nothing there
            raise _several_databases()

    if any(bind.engine is not engine for bind in getattr(session, "binds", {}).values()):  # before 2.1 they are private
        raise _several_databases()


def _several_databases() -> InvalidConfigurationError:
    return InvalidConfigurationError(
        "the session has several databases, each of which would commit by itself",
        hint="give sql.connect a session with the engine of one database",
    )


def check_begun(driver: Any) -> None:
    """Raise InvalidConfigurationError if the engine's connections commit each statement by themselves."""
    if not has_open_transaction(driver):
        raise InvalidConfigurationError(
            "the session's engine commits each statement by itself", hint="leave out isolation_level='AUTOCOMMIT'"
        )

"""`fencepost sql`: what a database needs that takes part in the commits of producers. docs/how-to/database.md."""

import click

from .output.failures import WRONG_USAGE, Failure
from .output.writing import show_own_text


@click.group()
def sql() -> None:
    """Databases that take part in the commits of producers."""


@sql.command()
@click.option("--dialect", required=True, metavar="NAME", help="Of which database: sqlite, postgresql.")
def schema(dialect: str) -> None:
    """Print the statements that make the tables, for Alembic or Django."""
    from ..client.sql.statements import TABLES

    if dialect not in TABLES:
        raise Failure(f"there are no tables for {dialect!r}", f"there are some for: {', '.join(TABLES)}", WRONG_USAGE)
    show_own_text(TABLES[dialect])

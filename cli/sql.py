"""`fencepost sql`: prints the tables that a database needs to take part in the commits of producers.
docs/how-to/database.md.
"""

import click

from .output.failures import WRONG_USAGE, Failure
from .output.writing import show_own_text


@click.group()
def sql() -> None:
    """Databases that take part in the commits of producers."""


@sql.command()
@click.option("--dialect", required=True, metavar="NAME", help="Of which database: sqlite, postgresql.")
@click.option("--outbox", "outbox_table", metavar="TABLE", help="Those of an outbox of this name too.")
def schema(dialect: str, outbox_table: str | None) -> None:
    """Print the statements that make the tables, for Alembic or Django."""
    from ..client.sql.outbox.statements import outbox_schema
    from ..client.sql.statements import TABLES

    if dialect not in TABLES:
        raise Failure(f"there are no tables for {dialect!r}", f"there are some for: {', '.join(TABLES)}", WRONG_USAGE)
    show_own_text(TABLES[dialect])
    if outbox_table is not None:
        show_own_text("".join(f"{each};\n" for each in outbox_schema(dialect, outbox_table)))

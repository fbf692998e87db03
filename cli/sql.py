"""`fencepost sql`: prints the tables that a database needs to take part in the commits of producers, and removes what
it knows of ids that will not write again. docs/how-to/database.md.
"""

import click

from .arguments.connecting import Target, connecting
from .arguments.opening import DB, opened
from .arguments.ranges import DURATION
from .output.failures import WRONG_USAGE, Failure
from .output.writing import show_own_text


@click.group()
def sql() -> None:
    """Databases that take part in the commits of producers."""


@sql.command()
@click.option("--dialect", required=True, metavar="NAME", help="Of which database: sqlite, postgresql.")
@click.option("--outbox", "outbox_table", metavar="TABLE", help="Those of an outbox of this name too.")
def schema(dialect: str, outbox_table: str | None) -> None:
    """Print the SQL statements that create the tables of fencepost in a database, for Alembic or Django."""
    from ..client.sql.outbox.statements import outbox_schema
    from ..client.sql.statements import TABLES

    if dialect not in TABLES:
        raise Failure(f"there are no tables for {dialect!r}", f"there are some for: {', '.join(TABLES)}", WRONG_USAGE)
    show_own_text(TABLES[dialect])
    if outbox_table is not None:
        show_own_text("".join(f"{each};\n" for each in outbox_schema(dialect, outbox_table)))


@sql.command()
@click.argument("transactional_id")
@DB
@click.option("--unused-for", type=DURATION, default="30d", show_default=True, help="Since its last decision.")
@connecting
def forget(to: Target, transactional_id: str, url: str, unused_for: int) -> None:
    """Remove what database and broker know of a transactional id that will not write again.

    Refused while a transaction of it waits, or if its last decision is more recent.
    """

    async def work() -> bool:
        """Open the database, and forget the id. Returns whether database or broker knew anything of it."""
        from ..client.config_names import settings_from
        from ..client.settings import AdminSettings
        from ..client.sql.forgetting import forget_by

        async with opened(url, "check the URL, and whether this user may delete from fencepost_writers") as db:
            return await forget_by(settings_from(AdminSettings, to.config()), db, transactional_id, unused_for)

    found = to.run(work)
    facts = {"transactional_id": transactional_id, "was_known": found}
    to.output.result(f"{transactional_id}: {'forgotten' if found else 'was not known'}", facts)

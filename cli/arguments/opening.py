"""A database that takes part in commits, for one command: opened by its URL, and closed afterwards."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from ..output.failures import TIMED_OUT, Failure

if TYPE_CHECKING:
    from ...client.sql.interfaces import Database

DB = click.option("--db", "url", required=True, metavar="URL", help="The database: sqlite:///PATH, postgresql://…")


@asynccontextmanager
async def opened(url: str, hint: str, *, create: bool = False) -> AsyncGenerator["Database", None]:
    """Open the database for the block. create: whether to make our tables if they are missing. Raises KafkaError, and
    Failure with this hint if the database cannot be opened, or does not answer.
    """
    from ...client.errors import KafkaError
    from ...client.sql.connecting import connect
    from ...client.transactions.participant import DatabaseAway

    db = connect(url, create=create)
    try:
        try:
            await db.open()
        except KafkaError:
            raise
        except Exception as error:  # the driver's
            raise DatabaseAway(f"{db.name}: {str(error) or type(error).__name__}") from error
        yield db
    except DatabaseAway as away:
        raise Failure(str(away), hint, TIMED_OUT) from None
    finally:
        await db.close()

"""`fencepost outbox`: sends the rows of an outbox table, each exactly once. docs/how-to/database.md.

The rule: it runs until a signal, and ends by itself only if a person must act. A failure that may pass is shown once,
and again if it changes. A signal ends it between two commits, or aborts the one that is under way.
"""

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from .arguments.connecting import Target, connecting
from .arguments.opening import DB, opened
from .arguments.ranges import DURATION
from .output.failures import FAILED, Failure

if TYPE_CHECKING:
    from ..client.admin.admin import Admin
    from ..client.producer.producer import Producer
    from ..client.sql.interfaces import Database
    from ..client.sql.outbox.relay import Outbox

TOLD_EVERY_S = 10.0


@click.command()
@DB
@click.option("--table", default="outbox", show_default=True, help="The outbox; SCHEMA.TABLE too.")
@click.option("--to", "topic", required=True, metavar="TOPIC", help="Where rows go that name no topic.")
@click.option(
    "--by",
    type=click.Choice(["hold", "names", "offsets"]),
    help="How each row is sent once.  [default: hold if the broker can, else offsets]",
)
@click.option("--name", help="Of this relay; a newer one of the name ends an older one.  [default: outbox-TABLE]")
@click.option("--columns", metavar="PART=COLUMN,…", help="Of a table of your own: position=id,value=payload,headers=")
@click.option("--keep", type=DURATION, help="Mark rows that were sent, and delete them after this time.")
@click.option("--resume-at", type=click.IntRange(min=0), metavar="N", help="With offsets: row number N was the last.")
@click.option("--at-once", type=click.IntRange(1, 100_000), default=500, show_default=True, help="Rows in a commit.")
@click.option("--create", is_flag=True, help="Make the tables if they are missing.")
@click.option("--until-empty", is_flag=True, help="End when no row is left.")
@connecting
def outbox(
    to: Target, url: str, table: str, topic: str, create: bool, until_empty: bool, keep: int | None, **how: Any
) -> None:
    """Send the rows of a table of a database into topics: each exactly once, those of a key in order.

    Ends at SIGTERM or Ctrl-C, with exit code 0; by itself only if a row cannot be sent, or somebody has to decide.
    """
    relaying = _Relaying(to)

    async def work() -> None:
        """Open the database, and send rows until a signal."""
        from ..client.sql.outbox.relay import outbox_of

        hint = "check the URL, and whether this user may read and delete there"
        with suppress(asyncio.CancelledError):
            async with opened(url, hint, create=create) as db:
                relay = outbox_of(relaying, db, topic, table, keep_ms=keep, create=create, **how)
                await relaying.run(relay, db, until_empty)

    to.run(work)


class _Relaying:
    """Makes the clients of an outbox from the options, and prints its progress."""

    def __init__(self, to: Target) -> None:
        self._to = to
        self._trouble = ""
        self._told_s = time.monotonic()
        self._told = self._sent = 0

    def producer(self, **more: Any) -> "Producer":
        """Return a producer with the settings of the options."""
        return self._to.producer(**more)

    def admin(self) -> "Admin":
        """Return an admin client with the settings of the options, some of which may be only for a producer."""
        from ..client.settings import ProducerSettings

        return self._to.admin(ProducerSettings)

    async def run(self, relay: "Outbox", db: "Database", until_empty: bool) -> None:
        """Send rows until cancelled, and print at the end how many were sent. Raises Failure for an error of the
        database.
        """
        from ..client.errors import KafkaError

        try:
            async with relay:
                await relay.run(until_empty=until_empty, moved=self._moved, trouble=self._note)
        except KafkaError:
            raise
        except Exception as error:
            cause = f"{db.name}: {str(error) or type(error).__name__}"
            raise Failure(cause, "check the table, its columns, and what this user may do", FAILED) from error
        finally:
            self._to.output.result(f"{relay.sent:,} rows sent", {"sent": relay.sent, "is_end": True})

    def _moved(self, count: int) -> None:
        """Count rows that were sent, and print from time to time how many there are."""
        self._sent += count
        now_s = time.monotonic()
        if now_s - self._told_s < TOLD_EVERY_S:
            return
        rate = (self._sent - self._told) / (now_s - self._told_s)
        facts = {"sent": self._sent, "rows_per_s": round(rate, 1), "is_end": False}
        self._to.output.result(f"{self._sent:,} rows sent, {rate:,.0f}/s", facts)
        self._told_s, self._told = now_s, self._sent

    def _note(self, error: BaseException | None) -> None:
        """Print a failure that may pass, unless it is the one that was printed last. None: the failure has passed."""
        from ..client.errors import KafkaError
        from .output.refusals import refusal

        if error is None:
            self._trouble = ""
            return
        if isinstance(error, KafkaError):
            failure = refusal(error, self._to.bootstrap)
        else:
            failure = Failure(
                f"the database: {str(error) or type(error).__name__}", "it is tried again until it answers"
            )
        if failure.message != self._trouble:
            failure.show()
        self._trouble = failure.message
